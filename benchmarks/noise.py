"""Exact Laplace noise against OpenDP's float-safe and numpy's unsafe Laplace, in one run.

    python benchmarks/noise.py [--rows N] [--texts N] [--repeat R]

Each contestant takes rows of 384 float32 coordinates to noisy ones at ε = 8: ours normalises, puts
on the grid and adds exact noise; numpy's divides by the L1 norm and adds `Generator.laplace`;
OpenDP's adds its noise on the grid 2^−20 to rows that are normalised before the clock runs. They
take turns and the best time of each counts. Other mechanisms stand below for comparison.

Then texts of the embedded sample are encoded by the default encoder, and the noise on their vectors
is told as a share of that time. Word replacement, a search over a whole vocabulary for each word,
stands beside it without a bar. The last line is JSON.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.data.datasets import load
from capelet.encoders import load as load_encoder
from capelet.mechanisms import Gaussian, Laplace, PrivUnit, RandomisedResponse, WordReplacement
from tables import Contestant, best_of, result, table, wanted

WIDTH = 384
EPSILON = 8.0
WANTED = {"opendp": 100.0, "numpy": 0.35}
SHARE = 0.05  # of the encoding time, at most, for noise on vectors
WORD_EPSILON = 200.0  # on minilm's table; the search costs the same at any ε


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


def shares(texts: list[str], rounds: int) -> dict[str, float]:
    """Seconds of privatising over seconds of encoding, for the same texts in the same rounds."""
    encoder = load_encoder("minilm")
    vectors = encoder.encode(texts)  # the model is read before the clock runs
    words = WordReplacement(WORD_EPSILON, "minilm")
    words(texts[:8])  # and so is the table
    laplace, gaussian, privunit = Laplace(EPSILON), Gaussian(EPSILON, 1e-5), PrivUnit(EPSILON)
    running: dict[str, Contestant] = {
        "encoding": (lambda: encoder.encode(texts), len(texts)),
        "laplace": (lambda: laplace(vectors), len(texts)),
        "gaussian": (lambda: gaussian(vectors), len(texts)),
        "privunit": (lambda: privunit(vectors), len(texts)),
        "word-replacement": (lambda: words(texts), len(texts)),
    }
    best = best_of(running, rounds)
    table(
        ("", "texts/s", "of encoding"),
        {
            name: (f"{1 / each:,.0f}", f"{100 * each / best['encoding']:.2f} %")
            for name, each in best.items()
        },
    )
    return {name: best[name] / best["encoding"] for name in best if name != "encoding"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=9)
    arguments = parser.parse_args()

    rows = np.random.default_rng(0).normal(size=(arguments.rows, WIDTH)).astype(np.float32)
    rounds = arguments.repeat + 1
    best = best_of(contestants(rows), rounds)
    ours = best["capelet laplace"]
    print(f"rows of {WIDTH} coordinates at ε = {EPSILON:g}, best of {rounds}")
    table(
        ("", "rows/s", "ns/coordinate", "our Laplace is"),
        {
            name: (f"{1 / each:,.0f}", f"{each / WIDTH * 1e9:.1f}", f"{each / ours:.2f} ×")
            for name, each in best.items()
        },
    )
    for name, least in WANTED.items():
        wanted(f"exact Laplace against {name}: wanted {least:g} ×", best[name] / ours >= least)

    sample = load("reviews").texts
    assert sample is not None
    texts = sample[: arguments.texts].tolist()
    print(f"\nnoise on the vectors of {len(texts)} encoded texts, best of {min(rounds, 3)}")
    share = shares(texts, min(rounds, 3))
    for name in ("laplace", "gaussian", "privunit"):
        wanted(f"{name}: wanted at most {SHARE:.0%} of encoding", share[name] <= SHARE)

    figures = {
        name: {"rows_per_second": round(1 / each, 1), "ratio": round(each / ours, 3)}
        for name, each in best.items()
    }
    parts = {name: round(value, 5) for name, value in share.items()}
    packages = ("numpy", "opendp", "cryptography")
    counts = {"rows": len(rows), "texts": len(texts)}
    result("noise", packages, **counts, result=figures, share_of_encoding=parts)


if __name__ == "__main__":
    main()
