"""Exact Laplace noise against OpenDP's float-safe and numpy's unsafe Laplace, in one run.

    python benchmarks/noise.py [--rows N] [--repeat R]

Each contestant takes rows of 384 float32 coordinates to noisy ones at ε = 8: ours normalises, puts
on the grid and adds exact noise; numpy's divides by the L1 norm and adds `Generator.laplace`;
OpenDP's adds its noise on the grid 2^−20 to rows that are normalised before the clock runs. They
take turns and the best time of each counts. Other mechanisms stand below for comparison. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.mechanisms import Gaussian, Laplace, PrivUnit, RandomisedResponse

WIDTH = 384
EPSILON = 8.0
WANTED = {"opendp": 100.0, "numpy": 0.35}
Contestant = tuple[Callable[[], Any], int]  # what to call, and how many rows that makes


def unsafe(rows: npt.NDArray[np.float32], rng: np.random.Generator) -> npt.NDArray[Any]:
    """The usual code: right scale, wrong arithmetic."""
    norms = np.abs(rows).sum(axis=1, keepdims=True)
    return rows / norms + rng.laplace(0.0, 2 / EPSILON, rows.shape)


def oracle(rows: npt.NDArray[np.float32]) -> Contestant:
    """OpenDP's vector Laplace on the grid 2^−20, row by row as it works."""
    import opendp.prelude as dp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        dp.enable_features("contrib", "floating-point")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=WIDTH)
    noise = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=2 / EPSILON, k=-20)
    some = rows[:40].astype(float)
    lists = (some / np.abs(some).sum(axis=1, keepdims=True)).tolist()
    return (lambda: [noise(row) for row in lists]), len(lists)


def contestants(rows: npt.NDArray[np.float32]) -> dict[str, Contestant]:
    rng = np.random.default_rng()
    laplace, gaussian = Laplace(EPSILON), Gaussian(EPSILON, 1e-5)
    privunit, response = PrivUnit(EPSILON), RandomisedResponse(EPSILON, WIDTH)
    return {
        "capelet laplace": (lambda: laplace(rows), len(rows)),
        "numpy": (lambda: unsafe(rows, rng), len(rows)),
        "opendp": oracle(rows),
        "capelet gaussian": (lambda: gaussian(rows), len(rows)),
        "capelet privunit": (lambda: privunit(rows), len(rows)),
        "capelet randomised-response": (lambda: response(rows), len(rows)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--repeat", type=int, default=9)
    arguments = parser.parse_args()

    rows = np.random.default_rng(0).normal(size=(arguments.rows, WIDTH)).astype(np.float32)
    running = contestants(rows)
    best = dict.fromkeys(running, float("inf"))
    for _ in range(arguments.repeat + 1):  # the first round warms up, and counts if it is best
        for name, (call, count) in running.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], (time.perf_counter() - start) / count)

    ours = best["capelet laplace"]
    print(f"rows of {WIDTH} coordinates at ε = {EPSILON:g}, best of {arguments.repeat + 1}")
    print(f"{'':<30}{'rows/s':>12}{'ns/coordinate':>16}{'our Laplace is':>16}")
    for name, seconds in best.items():
        each = seconds / WIDTH * 1e9
        print(f"{name:<30}{1 / seconds:>12,.0f}{each:>16.1f}{seconds / ours:>14.2f} ×")
    for name, wanted in WANTED.items():
        verdict = "met" if best[name] / ours >= wanted else "MISSED"
        print(f"exact Laplace against {name}: wanted {wanted:g} ×: {verdict}")
    figures = {
        name: {"rows_per_second": round(1 / seconds, 1), "ratio": round(seconds / ours, 3)}
        for name, seconds in best.items()
    }
    versions = {part: version(part) for part in ("numpy", "opendp", "cryptography")}
    print(json.dumps({"benchmark": "noise", "rows": len(rows), **versions, "result": figures}))


if __name__ == "__main__":
    main()
