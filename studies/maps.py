"""Maps against every attacker: what those read who hold vectors, pairs of them, or the folder.

    python studies/maps.py stance ag_entities blog trustpilot --vectors maps --workers 16

For each split the defence learns on the defender's part; all families of attackers of vectors, and
the adaptive ones (`pairs`, `undo`, `likelihood`), read the victims; the strongest is chosen on the
attacker's own rows. `--vectors` is a folder of ready vectors, NAME.npz with `vectors`, `label`,
`author` (both optional) and `private.SECRET`; what is missing there is made with `--encoder`.
Every line of `--out` is one measurement; a second run makes only what is missing. `leace` in part
goes that share of the way; `noise` is Gaussian and leaves half of the neighbours; `transport` moves
each text from its guessed class to the barycentre of all. `--rows` and `--methods` make it small.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capelet.attacks.attribute import Draws, Secret, View, attack, families
from capelet.data.corpus import Corpus, Split
from capelet.data.datasets import load
from capelet.data.labels import Attribute, add_derived
from capelet.defences import Settings, fit
from capelet.evaluation.access import Redraw
from capelet.evaluation.adaptive import AdaptiveAttackers, Insider, holds, strongest_of
from capelet.evaluation.plan import Plan
from capelet.evaluation.utility import neighbour_recall
from capelet.findings.metrics import balanced_accuracy
from capelet.interfaces import Vectors
from capelet.mechanisms import Gaussian
from capelet.numerics import one_thread
from capelet.release import PrivateEncoder
from capelet.release.maps import Map, affine
from capelet.workflows.training import part_of
from jobs import append_rows, read_rows, run_jobs
from pictures import Panel, draw_panels

SECRETS = {
    "ag_entities": ("entity_0", "entity_1", "entity_2"),
    "stance": ("gender",),
    "blog": ("gender", "age_group"),
    "trustpilot": ("gender",),
}
POINTS: dict[str, tuple[float, ...]] = {
    "raw": (0.0,),
    "leace": (1.0, 0.7),
    "gr": (1.0,),
    "gr+": (0.5, 1.0, 2.0),
    "transport": (1.0,),
    "noise": (0.5,),
    "bottleneck": (4.0,),
}
"""λ; of `leace` the share, of `noise` the recall to reach, of the bottleneck ε."""


@dataclass(frozen=True)
class Job:
    """One measurement: a method at one strength, on one of so many splits of a set."""

    name: str
    file: Path
    rows: int | None
    splits: int
    place: int
    method: str
    strength: float
    device: str


def prepare(name: str, file: Path, encoder: str, rows: int | None) -> None:
    """Write the ready vectors of a set: `blog` has topics as its task, `trustpilot` is English."""
    from capelet.workflows.audit import private_encoder

    corpus = load(name)
    some = np.arange(len(corpus))
    label = corpus.label
    if name == "blog":
        label = add_derived(corpus, ["topics"]).label.astype(str)
        some = np.flatnonzero(label != "None")
    elif name == "trustpilot":
        some = np.flatnonzero(_languages() == "en")
    some = _spread(some, rows)
    vectors = private_encoder(corpus, encoder, True).release(corpus.texts[some].tolist()).vectors
    columns = {f"private.{key}": corpus.private[key][some].astype(str) for key in SECRETS[name]}
    if label is not None:
        columns["label"] = label[some].astype(str)
    if corpus.author is not None:
        columns["author"] = corpus.author[some].astype(str)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, vectors=vectors.astype(np.float32), **columns)


def _languages() -> Any:
    import pyarrow.parquet as parquet

    table = parquet.read_table(Path(os.environ["CAPELET_DATA"]) / "trustpilot.parquet")
    return np.array(table["language"].to_pylist())


def _spread(rows: Any, most: int | None) -> Any:
    """All rows, or some, evenly spaced so that every class takes part."""
    if most is None or most >= len(rows):
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(int)]


def corpus_of(job: Job) -> Corpus:
    content = np.load(job.file)
    rows = _spread(np.arange(len(content["vectors"])), job.rows)

    def column(key: str) -> Any:
        return content[key][rows].astype(object) if key in content else None

    private = {key: column(f"private.{key}") for key in SECRETS[job.name]}
    label = column("label")
    return Corpus(
        job.name, vectors=content["vectors"][rows], private=private, author=column("author"),
        label=label, label_name=None if label is None else "task",
    )  # fmt: skip


def steps_of(job: Job, plan: Plan, parts: Split, x: Vectors) -> tuple[Any, ...]:
    """The vector steps of this method, learnt on the defender's part."""
    if job.method == "raw":
        return ()
    if job.method == "noise":
        return (halving_noise(x[parts.defender], job.strength),)
    part = part_of(plan, parts, x, plan.secrets)
    if job.method == "transport":
        return (Transport(part.vectors, [item.codes for item in plan.secrets], parts.defender),)
    schedule = replace(Settings().schedule, seed=parts.seed, device=job.device)
    if job.method == "bottleneck":
        settings = Settings(epsilon=job.strength, schedule=schedule)
        return tuple(fit("bottleneck", part, settings).steps)
    lam = None if job.method == "leace" else job.strength
    steps = fit(
        job.method, part, Settings(adversary_weight=lam, keep="neighbours", schedule=schedule)
    ).steps
    if job.method == "leace" and job.strength < 1:
        (layer,) = steps[0].layers
        share, same = job.strength, np.eye(len(layer.bias))
        return (Map((affine(share * layer.weight + (1 - share) * same, share * layer.bias),)),)
    return tuple(steps)


def halving_noise(x: Vectors, recall: float) -> Gaussian:
    """Gaussian noise at the ε that leaves this recall of neighbours on some of the own rows."""
    rows = _spread(np.arange(len(x)), 1500)
    low, high = 1.0, 1e5
    for _ in range(16):  # by halves on a logarithmic scale: ε to one part in ten thousand
        middle = float(np.sqrt(low * high))
        reached = neighbour_recall(x[rows], Gaussian(middle, 1e-5)(x[rows])).mean()
        low, high = (low, middle) if reached > recall else (middle, high)
    return Gaussian(float(f"{high:.3g}"), 1e-5)


class Transport:
    """x ↦ m̄ + A_c(x − μ_c), c the class that is *guessed*: many-to-one.

    A_c is the optimal-transport map from the Gaussian of class c to the Wasserstein barycentre B of
    all classes, so that means and covariances become equal; B is the fixed point of
    B = B^−½(Σ w_c (B^½ Σ_c B^½)^½)² B^−½. A class is one value of every secret together. On the
    rows that it learnt from, classes are guessed out of fold.
    """

    consumes, emits, guarantee = "vectors", "vectors", None
    ROUNDS = 12

    def __init__(self, x: Vectors, secrets: list[Any], rows: Any) -> None:
        from sklearn.model_selection import cross_val_predict
        from sklearn.svm import SVC

        x = x.astype(np.float64)
        joint = np.unique(np.stack([codes[rows] for codes in secrets], axis=1), axis=0,
                          return_inverse=True)[1].ravel()  # fmt: skip
        counts = np.bincount(joint)
        joint = np.where(counts[joint] < 8, counts.argmax(), joint)  # too few to have a Gaussian
        self.guesser = SVC(C=3.0, class_weight="balanced")
        guesses = cross_val_predict(self.guesser, x, joint, cv=4)
        self.guesser.fit(x, joint)
        whole = np.cov(x.T)
        self.means, covariances, weights = {}, {}, {}
        for code in np.unique(guesses):
            some = x[guesses == code]
            trust = 0.9 * len(some) / (len(some) + x.shape[1]) if len(some) > 8 else 0.0
            own = np.cov(some.T) if trust else 0.0
            covariances[code] = trust * own + (1 - trust) * whole
            self.means[code], weights[code] = some.mean(axis=0), len(some) / len(x)
        centre = whole
        for _ in range(self.ROUNDS):
            root, inverse = _roots(centre)
            inner = sum(weights[c] * _roots(root @ s @ root)[0] for c, s in covariances.items())
            centre = inverse @ inner @ inner @ inverse
        self.middle = sum(weights[c] * mean for c, mean in self.means.items())
        self.maps = {}
        for code, covariance in covariances.items():
            root, inverse = _roots(covariance)
            self.maps[code] = inverse @ _roots(root @ centre @ root)[0] @ inverse

    def describe(self) -> dict[str, Any]:
        return {"step": "transport"}

    def __call__(self, batch: Any) -> Vectors:
        x = np.asarray(batch, dtype=np.float64)
        guesses = self.guesser.predict(x)
        released = np.tile(self.middle, (len(x), 1))
        for code, apply in self.maps.items():
            some = guesses == code
            released[some] = self.middle + (x[some] - self.means[code]) @ apply
        return released.astype(np.float32)


def _roots(matrix: Any) -> tuple[Any, Any]:
    """The root of a covariance and its inverse; what is below rounding is lifted to it."""
    values, axes = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-7 * values[-1])
    return (axes * np.sqrt(values)) @ axes.T, (axes / np.sqrt(values)) @ axes.T


def read(
    plan: Plan, z: Vectors, secret: Attribute, parts: Split, private: PrivateEncoder,
    adaptive: AdaptiveAttackers | None,
) -> dict[str, Any]:  # fmt: skip
    """Balanced accuracy of every attacker on the victims, and who was chosen on own rows."""
    present = secret.codes >= 0
    own = parts.attacker[present[parts.attacker]]
    victims = parts.victims[present[parts.victims]]
    view = View(z, own, own[:0], victims, parts.seed, plan.units)
    codes = np.where(present, secret.codes, 0)
    # Whoever can call a noisy release passes own texts as often as that helps.
    redraw = Redraw(private, plan.corpus.vectors)
    draws = Draws(view, redraw, redraw.most) if private.draws else None
    result = attack(view, Secret(view, codes, len(secret.classes)), families(()), draws)
    insiders = {} if adaptive is None else adaptive.guesses(secret)
    choice = strongest_of(result, insiders, codes)
    scores = {
        name: round(float(balanced_accuracy(codes[victims], item.scored.argmax(axis=1))), 4)
        for name, item in {**result.best, **insiders}.items()
    }
    return {"strongest": scores[choice], "winner": choice, "holds": holds(choice), "by": scores}


def measure(job: Job) -> dict[str, Any]:
    start = time.monotonic()
    corpus = corpus_of(job)
    plan = Plan.of(corpus, job.splits, "balanced")
    parts, x = plan.splits[job.place], corpus.vectors
    with one_thread():
        private = PrivateEncoder(*steps_of(job, plan, parts, x))
        z = private.release(x).vectors
        seconds = time.monotonic() - start
        insider = Insider.of(private, x) if private.protects else None
        adaptive = AdaptiveAttackers(plan, parts, z, insider) if insider else None
        leak = {item.name: read(plan, z, item, parts, private, adaptive) for item in plan.secrets}
        recall = float(neighbour_recall(x[parts.victims], z[parts.victims]).mean())
    return {
        "set": job.name, "split": job.place, "method": job.method, "strength": job.strength,
        "recall": round(recall, 4), "leak": leak,
        "seconds": [round(seconds, 1), round(time.monotonic() - start, 1)],
    }  # fmt: skip


def show(measurements: list[dict[str, Any]]) -> None:
    """A table in Markdown for each set: means over splits, and the deviation of the mean leak."""
    for name in sorted({item["set"] for item in measurements}):
        groups: dict[tuple[str, float], list[dict[str, Any]]] = defaultdict(list)
        for item in measurements:
            if item["set"] == name:
                groups[item["method"], item["strength"]].append(item)
        secrets = list(next(iter(groups.values()))[0]["leak"])
        columns = ["method", "recall@10", *secrets, "mean", "±", "vectors", "highest", "won by"]
        print(f"\n`{name}`\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        for key in sorted(groups, key=lambda item: (list(POINTS).index(item[0]), -item[1])):
            print(f"| {' | '.join(_cells(key, groups[key], secrets))} |")


def _cells(key: tuple[str, float], items: list[dict[str, Any]], secrets: list[str]) -> list[str]:
    leaks = np.array([[item["leak"][one]["strongest"] for one in secrets] for item in items])
    scores = [item["leak"][one]["by"] for item in items for one in secrets]
    # Picked on the victims, hence a little high: the best of those who hold vectors alone, which is
    # what one would have believed at most, and the best of all.
    plain = np.mean([max(v for k, v in some.items() if holds(k) == "vectors") for some in scores])
    highest = np.mean([max(some.values()) for some in scores])
    winners: dict[str, int] = defaultdict(int)
    for item in items:
        for one in secrets:
            winners[item["leak"][one]["winner"]] += 1
    means = leaks.mean(axis=1)
    error = f"{means.std(ddof=1) / len(means) ** 0.5:.3f}" if len(means) > 1 else ""
    figures = [np.mean([item["recall"] for item in items]), *leaks.mean(axis=0), means.mean()]
    ranking = sorted(winners.items(), key=lambda pair: -pair[1])
    won = ", ".join(f"{name} × {count}" for name, count in ranking)
    title = f"`{key[0]}`" if key[0] == "raw" else f"`{key[0]}`, {key[1]:g}"
    cells = [f"{value:.3f}" for value in figures]
    return [title, *cells, error, f"{plain:.3f}", f"{highest:.3f}", won]


def panel(measurements: list[dict[str, Any]], name: str) -> Panel:
    """Leak against recall; every line begins at the raw vectors."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for method in ("leace", "gr", "gr+", "noise", "transport"):
        points = defaultdict(list)
        for item in measurements:
            if item["set"] == name and item["method"] in (method, "raw"):
                leak = np.mean([max(one["by"].values()) for one in item["leak"].values()])
                points[item["method"], item["strength"]].append((item["recall"], leak))
        if len(points) > 1:
            means = (np.mean(some, axis=0) for some in points.values())
            lines[method] = sorted((float(recall), float(leak)) for recall, leak in means)
    return Panel(name, "recall@10 of neighbours", "highest of all attackers", lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", choices=SECRETS)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=POINTS, default=list(POINTS))
    parser.add_argument("--rows", type=int, help="of each set, at most")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("maps.jsonl"))
    parser.add_argument("--vectors", type=Path, default=Path("maps"), help="a folder of .npz files")
    parser.add_argument("--encoder", default="minilm", help="for sets that are not there yet")
    parser.add_argument("--picture", type=Path, help="an SVG file to write")
    parser.add_argument("--device", default="cpu", help="on which maps are trained")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing new after these")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    files = {name: arguments.vectors / f"{name}.npz" for name in arguments.sets}
    for name, file in files.items():
        if not file.is_file():
            prepare(name, file, arguments.encoder, arguments.rows)
    measurements = read_rows(arguments.out)
    ready = {(row["set"], row["split"], row["method"], row["strength"]) for row in measurements}
    jobs = [
        Job(name, files[name], arguments.rows, arguments.splits, place, method, strength,
            arguments.device)
        for place in range(arguments.splits)
        for name in arguments.sets
        for method in arguments.methods
        for strength in POINTS[method]
        if (name, place, method, strength) not in ready
        # A bottleneck serves a task, and these reviews have none.
        and not (method == "bottleneck" and "label" not in np.load(files[name]))
    ]  # fmt: skip
    rows = run_jobs(measure, jobs, arguments.workers, deadline)
    measurements += append_rows(arguments.out, rows)
    show(measurements)
    if arguments.picture:
        panels = [panel(measurements, name) for name in arguments.sets]
        arguments.picture.write_text(draw_panels(panels), "utf-8")


if __name__ == "__main__":
    main()
