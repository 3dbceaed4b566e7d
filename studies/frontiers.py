"""General-purpose protection: what is left of neighbours and task at which leak, method by method.

    python studies/frontiers.py stance ag_entities blog --splits 5 --jobs 2 --out frontiers.jsonl

For each split the defence learns on the defender's part, and fresh attackers of every family read
the victims' released vectors. `leace` is also shown in part (that share of the way from the vector
to the erased one), and the task's own posteriors are the trivial point. Every line of the file is
one measurement; a second run makes only what is missing. Claim: at equal recall of neighbours
`gr+` leaks less to the strongest attacker than `gr` and `leace`. `--picture` draws the lines;
`--rows` and `--methods` make it small.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from capelet.attacks.attribute import Secret, View, attack, families, one_thread
from capelet.data.corpus import Corpus, Rows, Split
from capelet.data.datasets import load
from capelet.data.labels import Attribute, add_derived
from capelet.defences import Settings, fit
from capelet.evaluation.plan import Plan
from capelet.evaluation.utility import neighbour_recall
from capelet.findings.metrics import Codes, balanced_accuracy
from capelet.interfaces import Vectors
from capelet.release import PrivateEncoder
from capelet.workflows.search import part_of
from pictures import Panel, draw_panels

POINTS: dict[str, tuple[float, ...]] = {
    "unprotected": (0.0,),
    "posteriors": (0.0,),
    "gr+": (0.2, 0.4, 1.0, 2.5, 5.0),
    "leace": (0.4, 0.7, 1.0),
    "gr": (0.1, 0.3, 1.0),
}
"""The λ of each method; of `leace` the share."""


@dataclass(frozen=True)
class Source:
    """One set, at most so many of its rows, and the folder that keeps its vectors."""

    name: str
    folder: Path
    rows: int | None = None

    def file(self, what: str) -> Path:
        """Vectors of some rows are not those of all: the number is part of the file's name."""
        return self.folder / f"{what}{'' if self.rows is None else f'-{self.rows}'}.npy"

    def choose(self, rows: Rows) -> Rows:
        """All rows, or some, evenly spaced so that every class takes part."""
        if self.rows is None or self.rows >= len(rows):
            return rows
        return rows[np.linspace(0, len(rows) - 1, self.rows).astype(int)]


@dataclass(frozen=True)
class Job:
    """One measurement: a method at one strength, on one of so many splits."""

    source: Source
    splits: int
    place: int
    method: str
    strength: float


def prepare(source: Source) -> tuple[Corpus, Vectors]:
    """The set with the secrets that are fought, and MiniLM's vectors of it, kept in a folder.

    `blog` has topics as its task, and is cut down to the posts that have one.
    """
    name = source.name
    corpus = load(name)
    if name == "blog":
        topics = _load_or_make(
            source.file("blog-topics"), lambda: add_derived(corpus, ["topics"]).label.astype(str)
        )
        rows = source.choose(np.flatnonzero(topics != "None"))
        secrets = {key: corpus.private[key][rows] for key in ("gender", "age_group")}
        corpus = replace(
            corpus, texts=corpus.texts[rows], label_name="topic",
            label=topics[rows].astype(object), private=secrets, author=corpus.author[rows],
        )  # fmt: skip
    else:
        names = ["gender"] if name == "stance" else ["entity_0", "entity_1", "entity_2"]
        rows = source.choose(np.arange(len(corpus)))
        corpus = replace(
            corpus, texts=corpus.texts[rows], label=corpus.label[rows],
            private={key: corpus.private[key][rows] for key in names},
            author=None if corpus.author is None else corpus.author[rows],
        )  # fmt: skip
    return corpus, _load_or_make(source.file(name), lambda: encode(corpus))


def _load_or_make(file: Path, make: Callable[[], Any]) -> Any:
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, make())
    return np.load(file)


def encode(corpus: Corpus) -> Vectors:
    from capelet.workflows.audit import private_encoder

    return private_encoder(corpus, "minilm", True).release(corpus.texts).vectors


def release(method: str, strength: float, plan: Plan, parts: Split, x: Vectors) -> Vectors:
    """All rows as this method would release them, learnt on the defender's part."""
    if method == "unprotected":
        return x
    part = part_of(plan, parts, x, plan.secrets)
    if method == "posteriors":
        from sklearn.linear_model import LogisticRegression

        codes = part.task.codes
        probe = LogisticRegression(C=10, max_iter=500).fit(
            part.vectors[codes >= 0], codes[codes >= 0]
        )
        return probe.predict_proba(x).astype(np.float32)
    schedule = replace(Settings().schedule, seed=parts.seed)
    settings = Settings(
        lam=None if method == "leace" else strength, keep="neighbours", schedule=schedule
    )
    made = PrivateEncoder(*fit(method, part, settings).steps).release(x).vectors
    return ((1 - strength) * x + strength * made).astype(np.float32) if method == "leace" else made


def read(
    z: Vectors, target: Attribute, parts: Split, part: str, units: Codes, balanced: bool
) -> dict[str, float]:
    """What each family reaches on the victims; `strongest` is picked on the attacker's own rows."""
    labelled = target.codes >= 0
    own, victims = (rows[labelled[rows]] for rows in (getattr(parts, part), parts.victims))
    view = View(z, own, own[:0], victims, parts.seed, units)
    codes = np.where(labelled, target.codes, 0)
    secret = Secret(view, codes, len(target.classes), balanced=balanced)
    result = attack(view, secret, families(()))
    truth = target.codes[victims]
    guesses = {name: best.scored.argmax(axis=1) for name, best in result.best.items()}
    scores = {
        name: balanced_accuracy(truth, guess) if balanced else float(np.mean(truth == guess))
        for name, guess in guesses.items()
    }
    return {name: round(float(value), 4) for name, value in scores.items()} | {
        "strongest": round(float(scores[result.strongest]), 4)
    }


def measure(job: Job) -> dict[str, Any]:
    start = time.monotonic()
    corpus, x = prepare(job.source)
    plan = Plan.of(corpus, job.splits)
    parts = plan.splits[job.place]
    z = release(job.method, job.strength, plan, parts, x)
    training_seconds = time.monotonic() - start
    with one_thread():
        leak = {
            item.name: read(z, item, parts, "attacker", plan.units, True) for item in plan.secrets
        }
        task = read(z, plan.label, parts, "defender", plan.units, False)
    recall = float(neighbour_recall(x[parts.victims], z[parts.victims]).mean())
    return {
        "set": job.source.name, "split": job.place, "method": job.method, "strength": job.strength,
        "recall": round(recall, 4), "task": task["strongest"], "leak": leak,
        "seconds": [round(training_seconds, 1), round(time.monotonic() - start, 1)],
    }  # fmt: skip


Row = tuple[str, float, float, float, dict[str, float], float]


def summary(measurements: list[dict[str, Any]], name: str) -> list[Row]:
    """(method, strength, recall, task, leak by secret, mean leak) over the splits."""
    groups: dict[tuple[str, float], list[dict[str, Any]]] = defaultdict(list)
    for item in measurements:
        if item["set"] == name:
            groups[item["method"], item["strength"]].append(item)
    rows = []
    for (method, strength), some in groups.items():
        leak = {
            key: float(np.mean([item["leak"][key]["strongest"] for item in some]))
            for key in some[0]["leak"]
        }
        recall, task = (float(np.mean([item[key] for item in some])) for key in ("recall", "task"))
        rows.append((method, strength, recall, task, leak, float(np.mean(list(leak.values())))))
    return sorted(rows, key=lambda row: (list(POINTS).index(row[0]), -row[2]))


def against(
    measurements: list[dict[str, Any]], name: str, strength: float, other: str
) -> list[float]:
    """On each split: the leak of `gr+` less that of the other method at the same recall.

    The other's line goes through its points and no protection; a split on which it does not reach
    down to this recall is left out.
    """
    differences = []
    for place in sorted({item["split"] for item in measurements if item["set"] == name}):
        here = [item for item in measurements if (item["set"], item["split"]) == (name, place)]
        own = [item for item in here if (item["method"], item["strength"]) == ("gr+", strength)]
        line = sorted(
            (item["recall"], leak_of(item))
            for item in here
            if item["method"] in (other, "unprotected")
        )
        if own and len(line) > 1 and own[0]["recall"] >= line[0][0]:
            there = np.interp(own[0]["recall"], *zip(*line, strict=True))
            differences.append(leak_of(own[0]) - float(there))
    return differences


def leak_of(item: dict[str, Any]) -> float:
    return float(np.mean([scores["strongest"] for scores in item["leak"].values()]))


def describe_differences(differences: list[float]) -> str:
    """Their mean and its standard error, and on how many splits the difference is below 0."""
    if not differences:
        return ""
    below, count = sum(value < 0 for value in differences), len(differences)
    error = f" ± {np.std(differences, ddof=1) / count**0.5:.3f}" if count > 1 else ""
    return f"{np.mean(differences):+.3f}{error} ({below} of {count})"


def title_of(method: str, strength: float) -> str:
    if method == "unprotected":
        return method
    if method == "posteriors":
        return "*the task's posteriors*"
    if method == "leace":
        return f"`leace`, {100 * strength:.0f} % of the way"
    return f"`{method}`, λ = {strength:g}"


def show(measurements: list[dict[str, Any]]) -> None:
    """A table in Markdown for each set; the last columns are the claim."""
    for name in sorted({item["set"] for item in measurements}):
        rows = summary(measurements, name)
        columns = ["method", "recall@10", "task", *rows[0][4], "mean", "to `gr`", "to `leace`"]
        print(f"\n`{name}`\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        for method, strength, recall, task, leak, mean in rows:
            cells = [f"{figure:.3f}" for figure in (recall, task, *leak.values(), mean)]
            for other in ("gr", "leace"):
                cells.append(
                    describe_differences(against(measurements, name, strength, other))
                    if method == "gr+"
                    else ""
                )
            print(f"| {' | '.join([title_of(method, strength), *cells])} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", choices=["stance", "ag_entities", "blog"])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=POINTS, default=list(POINTS))
    parser.add_argument("--rows", type=int, help="of each set, at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("frontiers.jsonl"))
    parser.add_argument("--vectors", type=Path, default=Path("frontiers"), help="a folder for them")
    parser.add_argument("--picture", type=Path, help="an SVG file to write")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing new after these")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    sources = [Source(name, arguments.vectors, arguments.rows) for name in arguments.sets]
    for source in sources:
        prepare(source)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # each process has one core
    lines = arguments.out.read_text().splitlines() if arguments.out.is_file() else []
    measurements = [json.loads(line) for line in lines]
    ready = {(row["set"], row["split"], row["method"], row["strength"]) for row in measurements}
    jobs = [
        Job(source, arguments.splits, place, method, strength)
        for place in range(arguments.splits)
        for source in sources
        for method in arguments.methods
        for strength in POINTS[method]
        if (source.name, place, method, strength) not in ready
    ]
    with arguments.out.open("a") as file:
        for row in run_jobs(jobs, arguments.jobs, deadline):
            measurements.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    show(measurements)
    if arguments.picture:
        panels = [panel(measurements, name) for name in arguments.sets]
        arguments.picture.write_text(draw_panels(panels))


def run_jobs(jobs: list[Job], processes: int, deadline: float) -> Iterator[dict[str, Any]]:
    """Each measurement as it is ready; after the deadline nothing new begins."""
    if processes == 1:
        for job in jobs:
            if time.monotonic() > deadline:
                return
            yield measure(job)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting, left = set(), list(jobs)
        while left or waiting:
            while left and len(waiting) < processes + 1:
                if time.monotonic() > deadline:
                    left = []
                else:
                    waiting.add(pool.submit(measure, left.pop(0)))
            if not waiting:
                break
            first = next(as_completed(waiting))
            waiting.remove(first)
            yield first.result()


def panel(measurements: list[dict[str, Any]], name: str) -> Panel:
    rows = summary(measurements, name)
    lines = {
        method: [(row[2], row[5]) for row in rows if row[0] in (method, "unprotected")]
        for method in ("gr", "leace", "gr+")
    }
    return Panel(name, "recall@10 of neighbours", "strongest attacker", lines)


if __name__ == "__main__":
    main()
