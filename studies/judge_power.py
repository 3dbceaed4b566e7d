"""How often the judge finds planted faults, how often it alarms for nothing, and how long it takes.

    python studies/judge_power.py --workers 8 --out judge_power.jsonl [--old OTHER/src]

(a) `power`: each of the fourteen planted specimens at ε = 1 in 16 dimensions, with the default
samples and confidence: the share of runs that refute it. (b) `alarms`: each right mechanism at
ε = 1 with 100,000 samples and confidence 0.99: at most 1 % of runs may refute it. (c) `time`: how
many seconds of one core a `verify` takes, and, with `--old`, how many it takes another version of
the package (its `src` folder), in turns. It prints one table each, as in the card. Noise and coins
come from the operating system, so no run repeats another. What is in the file is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import capelet
from capelet.judge import verify
from capelet.judge.pairs import Plane
from capelet.mechanisms import (
    Gaussian,
    Laplace,
    PrivUnit,
    RandomisedResponse,
    TruncatedExponential,
    WordDropout,
    WordReplacement,
)
from capelet.mechanisms.specimens import PLANTED
from jobs import Row, append_rows, read_rows, run_jobs

PARTS = ("power", "alarms", "time")
DIMENSION, EPSILON, DELTA, RATE = 16, 1.0, 1e-5, 0.5
TIMED = ("laplace", "gaussian", "privunit", "randomised-response")
# Run by an interpreter of its own, so that it can be another version's. The first, small run loads
# what is loaded late.
TIMER = """
import sys, time
from capelet import verify
from capelet.mechanisms import Gaussian, Laplace, PrivUnit, RandomisedResponse
name, samples = sys.argv[1], int(sys.argv[2])
mechanism = {
    "laplace": lambda: Laplace(1.0),
    "gaussian": lambda: Gaussian(1.0, 1e-5),
    "privunit": lambda: PrivUnit(1.0),
    "randomised-response": lambda: RandomisedResponse(1.0, 4),
}[name]()
verify(mechanism, samples=2000)
clock = time.process_time()
verify(mechanism, samples=samples)
print(time.process_time() - clock)
"""


@dataclass(frozen=True)
class Subject:
    """A right mechanism, and what the judge is told of it."""

    mechanism: Callable[[Any], Any]
    options: dict[str, Any]


def drop_and_noise(texts: Sequence[str]) -> Any:
    """Words are left out with probability 1/2; what remains is e₁ if it has "good", else −e₁."""
    rests = WordDropout(RATE)(list(texts))
    signs = np.array([1.0 if "good" in rest.split() else -1.0 for rest in rests])
    return Laplace(EPSILON)(signs[:, None] * np.eye(1, 4))


def _words(step: Any) -> Subject:
    return Subject(step, {"pairs": Plane(EPSILON).pairs})


def subjects() -> dict[str, Subject]:
    """Every kind of noise that the judge can be given; a bottleneck draws one of m symbols."""
    table, plain = Plane(EPSILON).table, {"dimension": DIMENSION}
    mahalanobis = WordReplacement(EPSILON, table=table, metric="mahalanobis", lam=0.7)
    dropout = {
        "claimed": WordDropout(RATE).amplifies(Laplace(EPSILON).guarantee).epsilon,
        "pairs": [("a good film", "a bad film")],
    }
    return {
        "laplace": Subject(Laplace(EPSILON), plain),
        "gaussian": Subject(Gaussian(EPSILON, DELTA), plain),
        "privunit": Subject(PrivUnit(EPSILON), plain),
        "randomised-response, 4 symbols": Subject(RandomisedResponse(EPSILON, 4), {}),
        "randomised-response, 2 symbols": Subject(RandomisedResponse(EPSILON, 2), {}),
        "bottleneck, 10 symbols": Subject(RandomisedResponse(EPSILON, 10), {}),
        "word-replacement, euclidean": _words(WordReplacement(EPSILON, table=table)),
        "word-replacement, mahalanobis": _words(mahalanobis),
        "truncated-exponential": _words(TruncatedExponential(EPSILON, gamma=4.0, table=table)),
        "word-dropout, laplace": Subject(drop_and_noise, dropout),
    }


def measure(job: Row) -> Row:
    """One run of the judge."""
    if job["part"] == "power":
        subject = Subject(PLANTED[job["name"]](EPSILON), {"dimension": DIMENSION})
    else:
        subject = subjects()[job["name"]]
    clock = time.perf_counter()
    verdict = verify(
        subject.mechanism,
        samples=job["samples"],
        confidence=job["confidence"],
        **subject.options,
    )
    return {
        **job,
        "refuted": not verdict.passed,
        "claimed": verdict.claimed,
        "lower_bound": verdict.lower_bound,
        "event": verdict.event,
        "pair": verdict.pair.name,
        "hits": list(verdict.hits),
        "seconds": round(time.perf_counter() - clock, 2),
    }


def measure_time(job: Row, folders: dict[str, Path]) -> Row:
    """The seconds of one core that a `verify` takes, in an interpreter of its own."""
    environment = {**os.environ, "PYTHONPATH": str(folders[job["version"]]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TIMER, job["name"], str(job["samples"])]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {**job, "seconds": round(float(answer.stdout), 2)}


def jobs_of(arguments: argparse.Namespace) -> Iterator[Row]:
    """Every run that the tables need, run by run, so that an early stop leaves whole rounds."""
    plans = {
        "power": (PLANTED, arguments.power_runs, arguments.samples, 0.999),
        "alarms": (subjects(), arguments.alarm_runs, arguments.alarm_samples, 0.99),
    }
    names_asked = set(arguments.names or [*PLANTED, *subjects(), *TIMED])
    for part, (names, runs, samples, confidence) in plans.items():
        if part in arguments.parts:
            settings = {"samples": samples, "confidence": confidence}
            for run, name in itertools.product(range(runs), names):
                if name in names_asked:
                    yield {"part": part, "name": name, "run": run, **settings}
    if "time" in arguments.parts:
        versions = ("this", "other") if arguments.old else ("this",)
        for run, name in itertools.product(range(arguments.time_runs), TIMED):
            for version in versions if name in names_asked else ():
                size = {"samples": arguments.samples, "version": version}
                yield {"part": "time", "name": name, "run": run, **size}


def show_power(rows: Sequence[Row]) -> None:
    """The share of runs that refute each fault."""
    print("| fault | refuted | lower bound | seconds | worst event |\n|---|---|---|---|---|")
    complete = 0
    for name, group in _by_name(rows):
        share = sum(row["refuted"] for row in group)
        complete += share == len(group)
        bounds = [row["lower_bound"] for row in group]
        seconds = np.median([row["seconds"] for row in group])
        worst = max(group, key=lambda row: row["lower_bound"])
        cells = f"{share} of {len(group)} | {min(bounds):.3f}–{max(bounds):.3f} | {seconds:.1f}"
        print(f"| `{name}` | {cells} | {worst['event']} |")
    print(f"\n{complete} of {len(_by_name(rows))} faults were refuted in every run.\n")


def show_alarms(rows: Sequence[Row]) -> None:
    """How often a true claim was refuted."""
    print("| mechanism | refuted | share of the claim shown | seconds |\n|---|---|---|---|")
    for name, group in _by_name(rows):
        alarms = sum(row["refuted"] for row in group)
        share = np.median([row["lower_bound"] / row["claimed"] for row in group])
        seconds = np.median([row["seconds"] for row in group])
        print(f"| {name} | {alarms} of {len(group)} | {share:.3f} | {seconds:.1f} |")
    print()


def show_times(rows: Sequence[Row]) -> None:
    """Seconds of this version and of the other, and their ratio."""
    print("| mechanism | seconds | other version | ratio |\n|---|---|---|---|")
    for name, group in _by_name(rows):
        this, other = (
            [row["seconds"] for row in group if row["version"] == version]
            for version in ("this", "other")
        )
        # The least of several runs is disturbed least by whatever else the machine does.
        ratio = f"{min(other):.1f} | {min(this) / min(other):.2f}" if other else "– | –"
        print(f"| {name} | {min(this):.1f} | {ratio} |")
    print()


def _by_name(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    names = dict.fromkeys(row["name"] for row in rows)
    return [(name, [row for row in rows if row["name"] == name]) for name in names]


SHOW = {"power": show_power, "alarms": show_alarms, "time": show_times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--names", nargs="+", help="only these specimens or mechanisms")
    parser.add_argument("--samples", type=int, default=1_000_000, help="of power and time")
    parser.add_argument("--power-runs", type=int, default=5)
    parser.add_argument("--alarm-runs", type=int, default=200)
    parser.add_argument("--alarm-samples", type=int, default=100_000)
    parser.add_argument("--time-runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--old", type=Path, help="the src folder of another version, to time")
    parser.add_argument("--out", type=Path, default=Path("judge_power.jsonl"))
    arguments = parser.parse_args()
    rows = read_rows(arguments.out)
    plan = list(jobs_of(arguments))
    missing = [job for job in plan if not any(job.items() <= row.items() for row in rows)]
    print(f"{len(plan)} runs, {len(plan) - len(missing)} of them in {arguments.out}", flush=True)
    for row in append_rows(arguments.out, run_all(missing, arguments)):
        rows.append(row)
        print(f"{row['part']}: {row['name']}, run {row['run']} ({row['seconds']} s)", flush=True)
    for part in arguments.parts:
        group = [row for row in rows if any(job.items() <= row.items() for job in plan)]
        SHOW[part]([row for row in group if row["part"] == part])


def run_all(jobs: Sequence[Row], arguments: argparse.Namespace) -> Iterator[Row]:
    """Verdicts by as many processes as asked for; times one by one, when these are done."""
    verdicts = [job for job in jobs if job["part"] != "time"]
    yield from run_jobs(measure, verdicts, arguments.workers)
    folders = {"this": Path(capelet.__file__).parents[1], "other": arguments.old}
    yield from (measure_time(job, folders) for job in jobs if job["part"] == "time")


if __name__ == "__main__":
    main()
