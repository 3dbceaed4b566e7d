"""Charging a person with a long history against charging one with none, in one run.

    python benchmarks/store.py

50,000 charges of one person lie in one store, none in another; then both are charged by turns, on
SQLite and, where the tests' wheel brings one, on PostgreSQL.
Claim: the history costs at most 1.5 × as much (it would cost 40 × if all rows were summed).
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from capelet.ledger.budgets import Budget
from capelet.ledger.settlement import Order
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee
from tables import best_of, result, table, wanted

ROWS, CHARGES, ROUNDS, WIDTH = 50_000, 100, 15, 32
RATIO = 1.5
DATABASES = ("sqlite", "postgres")
PROMISE = Guarantee(0.01)


@contextmanager
def places(database: str) -> Iterator[tuple[Path | str, Path | str]]:
    """Where two stores may be in a database; nothing is left of them."""
    if database == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "none.db", Path(folder) / "long.db"
        return
    from postgres import Server

    server = Server()
    try:
        server.start()
        yield server.create("none"), server.create("long")
    finally:
        server.delete()


def charger(ledger: Ledger, charges: int) -> Callable[[], None]:
    """So many charges of one person, each a transaction of its own."""
    numbers = itertools.count()
    vector, cap = np.ones((1, WIDTH), dtype=np.float32), Budget(1e6)

    def charge() -> None:
        for number in itertools.islice(numbers, charges):
            ledger.settle(["ann"], [f"new {number}".encode()], vector, PROMISE, budget=cap)

    return charge


def add_history(ledger: Ledger, rows: int) -> None:
    """Earlier charges of the same person: one entry of the log for each row."""
    vector = np.ones((1, WIDTH), dtype=np.float32)
    orders = (Order(["ann"], [f"old {row}".encode()], vector, PROMISE) for row in range(rows))
    while group := list(itertools.islice(orders, 500)):
        ledger.settle_all(group)


def measure(database: str, rows: int, charges: int, rounds: int) -> tuple[float, float]:
    """Seconds of a charge without and with a history."""
    with places(database) as (one, other), Ledger(one) as none, Ledger(other) as long:
        add_history(long, rows)
        running = {
            "none": (charger(none, charges), charges),
            "long": (charger(long, charges), charges),
        }
        seconds = best_of(running, rounds)
    return seconds["none"], seconds["long"]


def measure_all(
    databases: Sequence[str], rows: int, charges: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """The same for each database that can be started here."""
    # The tests know how to start a PostgreSQL.
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from postgres import why_no_server

    figures = {}
    for database in databases:
        if database == "postgres" and why_no_server():
            print(f"postgres: left out ({why_no_server()})")
            continue
        figures[database] = measure(database, rows, charges, rounds)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--charges", type=int, default=CHARGES)
    parser.add_argument("--repeat", type=int, default=ROUNDS)
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    arguments = parser.parse_args()
    figures = measure_all(arguments.databases, arguments.rows, arguments.charges, arguments.repeat)
    columns = ["charge", "no history", f"{arguments.rows:,} rows"]
    rows = {name: [f"{time * 1e6:.0f} µs" for time in times] for name, times in figures.items()}
    table(columns, rows)
    ratios = {name: second / first for name, (first, second) in figures.items()}
    for name, ratio in ratios.items():
        wanted(f"{name}: history costs at most {RATIO} ×, and costs {ratio:.2f} ×", ratio <= RATIO)
    result("store", ["numpy"], rows=arguments.rows, ratios=ratios, seconds=figures)


if __name__ == "__main__":
    main()
