"""What the benchmarks share: contestants take turns, the best time counts, tables and JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

Contestant = tuple[Callable[[], Any], int]  # what to call, and how many units that makes


def best_of(running: Mapping[str, Contestant], rounds: int) -> dict[str, float]:
    """Seconds for one unit, the best of so many rounds in which all take turns.

    Whatever else the machine does falls on all alike. The first round warms up, and counts if best.
    """
    best = dict.fromkeys(running, float("inf"))
    for _ in range(rounds):
        for name, (call, count) in running.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], (time.perf_counter() - start) / count)
    return best


def table(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    """Print rows under their columns: names to the left, figures to the right."""
    lines = [columns, *([name, *cells] for name, cells in rows.items())]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for first, *rest in lines:
        figures = "".join(
            f"{cell:>{width + 3}}" for cell, width in zip(rest, widths[1:], strict=True)
        )
        print(f"{first:<{widths[0]}}{figures}")


class Claim(NamedTuple):
    """A figure that we claim: what it is, the most that it may be, and what it was."""

    name: str
    most: float
    value: float

    @property
    def holds(self) -> bool:
        return self.value <= self.most


def claims_table(claims: Sequence[Claim]) -> None:
    """Every claim with its bound, what was measured, and whether it holds."""
    rows = {
        claim.name: [f"{claim.most:.2f}", f"{claim.value:.3f}", "yes" if claim.holds else "NO"]
        for claim in claims
    }
    table(["claim", "at most", "measured", "holds"], rows)


def wanted(what: str, met: bool) -> None:
    """Say whether a figure that we claim was reached."""
    print(f"{what}: {'met' if met else 'MISSED'}")


def result(benchmark: str, packages: Sequence[str], **figures: Any) -> None:
    """The last line: everything as JSON, with the versions that decide it."""
    versions = {package: version(package) for package in packages}
    print(json.dumps({"benchmark": benchmark, **versions, **figures}))
