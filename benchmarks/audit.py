"""The whole audit of ready vectors: against another version of the code, and against its own size.

Claims: the cross-validated attackers make an audit of 10,000 vectors at most three times as long
as the single held-back tenth of version 0.2 did, and the time is linear in the rows up to 80,000.

    python benchmarks/audit.py [--rows 10000 20000 40000 80000] [--seeds 5] [--peer OLD/src]

Every audit runs in a process of its own. `--peer` is the `src` folder of another version; it
audits the same made-up vectors of the first size, in turns with ours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import capelet
from tables import result, table, wanted

MOST = 3.0  # times the peer
# A little more than proportional is allowed: caches of the processor no longer hold a part.
MOST_GROWTH = 1.25
WIDTH = 384
# The secrets lie in few of the axes, one of them where no plane sees it; noise fills the others.
SCRIPT = """
import sys, time
import numpy as np
import capelet
from capelet.data.corpus import Corpus

rows, seeds, width = map(int, sys.argv[1:])
random = np.random.default_rng(0)
task, plain, curved = random.integers(0, 2, (3, rows))
vectors = random.normal(size=(rows, width)) * np.linspace(1.5, 0.2, width)
vectors[:, 3] += 1.5 * task
vectors[:, 9] += 0.8 * plain
signs = random.choice([-1.0, 1.0], size=rows)
vectors[:, 0] += 1.5 * signs
vectors[:, 1] += 1.5 * signs * (2 * curved - 1)
names = np.array(["no", "yes"], dtype=object)
corpus = Corpus(
    "made up", vectors=vectors.astype(np.float32), label_name="task", label=names[task],
    private={"plain": names[plain], "curved": names[curved]},
)
start = time.perf_counter()
findings = capelet.audit(corpus, seeds=seeds)
print(time.perf_counter() - start)
"""


def seconds(source: Path, rows: int, seeds: int) -> float:
    """Seconds of one audit, by the code in this folder."""
    command = [sys.executable, "-c", SCRIPT, str(rows), str(seeds), str(WIDTH)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(answer.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 20_000, 40_000, 80_000])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peer", type=Path, help="the src folder of another version")
    parser.add_argument("--repeat", type=int, default=2)
    arguments = parser.parse_args()
    own = Path(capelet.__file__).parents[1]
    first, *larger = arguments.rows
    sources = {"ours": own} | ({"peer": arguments.peer} if arguments.peer else {})
    # In turns, the best counts: whatever else the machine does falls on both alike.
    rounds = [
        {name: seconds(source, first, arguments.seeds) for name, source in sources.items()}
        for _ in range(arguments.repeat)
    ]
    best = {name: min(times[name] for times in rounds) for name in sources}
    by_rows = {first: best["ours"]}
    by_rows |= {rows: seconds(own, rows, arguments.seeds) for rows in larger}
    table(
        ("rows", "seconds", "per 1,000 rows"),
        {
            f"{rows:,}": (f"{time:.1f}", f"{1000 * time / rows:.2f}")
            for rows, time in by_rows.items()
        },
    )
    figures: dict[str, float] = {}
    if "peer" in best:
        figures["ratio"] = best["ours"] / best["peer"]
        wanted(f"ratio {figures['ratio']:.2f}: wanted at most {MOST:g}", figures["ratio"] <= MOST)
    if larger:
        last = larger[-1]
        figures["growth"] = (by_rows[last] / last) / (best["ours"] / first)
        wanted(
            f"time per row grows by {figures['growth']:.2f} from {first:,} to {last:,} rows: "
            f"wanted at most {MOST_GROWTH:g}",
            figures["growth"] <= MOST_GROWTH,
        )
    result("audit", ("numpy", "scikit-learn"), **best, **figures, seconds=by_rows)


if __name__ == "__main__":
    main()
