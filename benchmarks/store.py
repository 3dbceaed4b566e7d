"""Charging a person with a long history against charging one with none, in one run.

    python benchmarks/store.py

50,000 charges of one person lie in one store, none in another; then both are charged by turns.
Claim: the history costs at most 1.5 × as much (in 0.1.0 it cost 40 ×: all rows were summed).
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from capelet.privacy.budgets import Budget
from capelet.privacy.guarantees import Guarantee
from capelet.privacy.store import Ledger
from tables import best_of, result, table, wanted

ROWS, CHARGES, ROUNDS, WIDTH = 50_000, 100, 15, 32
RATIO = 1.5


def charger(ledger: Ledger, charges: int) -> Callable[[], None]:
    """So many charges of one person, each a transaction of its own."""
    numbers = itertools.count()
    vector, promise, cap = np.ones((1, WIDTH), dtype=np.float32), Guarantee(0.01), Budget(1e6)

    def charge() -> None:
        for number in itertools.islice(numbers, charges):
            ledger.settle(["ann"], [f"new {number}".encode()], vector, promise, budget=cap)

    return charge


def add_history(ledger: Ledger, rows: int) -> None:
    """Earlier charges of the same person: one entry of the log for each row."""
    vector, promise = np.ones((1, WIDTH), dtype=np.float32), Guarantee(0.01)
    for row in range(rows):
        ledger.settle(["ann"], [f"old {row}".encode()], vector, promise)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--charges", type=int, default=CHARGES)
    parser.add_argument("--repeat", type=int, default=ROUNDS)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger(Path(folder) / "none.db") as none,
        Ledger(Path(folder) / "long.db") as long,
    ):
        add_history(long, given.rows)
        running = {
            "no history": (charger(none, given.charges), given.charges),
            f"{given.rows:,} rows": (charger(long, given.charges), given.charges),
        }
        seconds = best_of(running, given.repeat)
    first, second = seconds.values()
    rows = {name: [f"{time * 1e6:.0f} µs"] for name, time in seconds.items()}
    table(["charge", "each"], rows)
    wanted(
        f"history costs at most {RATIO} ×, and costs {second / first:.2f} ×",
        second / first <= RATIO,
    )
    result("store", ["numpy"], rows=given.rows, ratio=second / first, seconds=[first, second])


if __name__ == "__main__":
    main()
