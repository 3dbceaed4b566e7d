"""A study in two processes against the same study in one, and what the engine itself costs.

    python benchmarks/studies.py

24 equal cells (one release of the invented reviews, 24 splits of equal size) are measured by one
worker process and by two, each time into an empty store and by processes that begin anew; the
vectors are encoded before. Claims: two processes on two cores are at least 1.7 × as fast; and all
that is not measuring (starting processes, sending, writing, waiting) is at most 5 % of a cell of
5 seconds. On a machine that has other work to do the first claim says nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from capelet.engines import Processes
from capelet.studies.cell import compute
from capelet.studies.plan import StudyPlan
from capelet.studies.run import Run
from capelet.studies.store import Store
from tables import result, table, wanted

CELLS, ROWS = 24, 1200
SPEED_UP, OVERHEAD, CELL_SECONDS = 1.7, 0.05, 5.0


def plan_of(cells: int, rows: int) -> StudyPlan:
    """One release, so many splits."""
    return StudyPlan.of(
        {
            "kind": "audit",
            "settings": {"encoder": "wordllama", "attackers": ["logistic"], "rows": rows},
            "axes": {"corpus": ["reviews"], "seed": list(range(cells))},
        }
    )


def run(plan: StudyPlan, workers: int) -> tuple[float, list[float]]:
    """Seconds of the whole run, and of each cell."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        cells = [item.cell for item in plan.cells()]
        start = time.perf_counter()
        counts = Run(store, Processes(compute, workers)).measure(cells)
        return time.perf_counter() - start, counts.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=CELLS)
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    plan = plan_of(arguments.cells, arguments.rows)
    # Once before, so that neither run has to encode.
    run(plan_of(1, arguments.rows), 1)
    (one, seconds), (two, _) = run(plan, 1), run(plan, 2)
    overhead = (one - sum(seconds)) / len(seconds)
    share = overhead / CELL_SECONDS
    mean = sum(seconds) / len(seconds)
    rows = {"1 process": [f"{one:.1f} s"], "2 processes": [f"{two:.1f} s"]}
    table([f"{arguments.cells} cells of {mean:.2f} s", "run"], rows)
    wanted(f"two are {one / two:.2f} × as fast, at least {SPEED_UP} ×", one / two >= SPEED_UP)
    wanted(
        f"the engine costs {overhead:.3f} s a cell, {share:.1%} of {CELL_SECONDS:g} s, at most 5 %",
        share <= OVERHEAD,
    )
    result(
        "studies",
        ["numpy"],
        cells=arguments.cells,
        speed_up=one / two,
        overhead_share=share,
        seconds=[one, two],
    )


if __name__ == "__main__":
    main()
