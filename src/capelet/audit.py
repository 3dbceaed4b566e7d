"""The audit: what does a release give away, and what is it good for?

For each seed the corpus is split into defender, attacker and victims. Task probes train on the
defender's part, fresh attackers on the attacker's part, and every score is taken on victims. Beside
every leak stand its controls: chance, majority, a permuted-label null, the ceiling of the guarantee,
and two references (the predicted task label alone; a TF-IDF attacker on the text).
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from capelet.attacks.attribute import Family, Parts, Secret, View, attack, families, few_labels
from capelet.corpus import PARTS, Corpus, Rows, Split
from capelet.encoders import cached
from capelet.errors import DataError
from capelet.evaluation.fairness import subgroups
from capelet.evaluation.geometry import tsne
from capelet.evaluation.references import TextAttacker, from_predicted_label, permuted
from capelet.evaluation.utility import neighbour_recall
from capelet.findings import Finding, Findings
from capelet.guarantees import Guarantee, ceiling, ceiling_auc
from capelet.interfaces import Encoder, Progress, Vectors, silent
from capelet.labels import Attribute, attribute, attributes, derive
from capelet.metrics import Bootstrap, Codes, Floats, Guesses, chance, majority, metrics_for
from capelet.release import PrivateEncoder, Release
from capelet.splits import SHARES, group_rows, identical, linked, near_duplicates, split

LABELS_PER_CLASS = (10, 20, 30, 40, 50)
NULLS = 4
"""Permutations per seed: enough that the null of a rare attribute is not itself a lottery."""
DEFAULT_ENCODER = "minilm"


def audit(
    corpus: Corpus,
    private: PrivateEncoder | Encoder | str | None = None,
    *,
    seeds: int = 5,
    split_kind: str = "auto",
    attackers: Sequence[str] = (),
    derived: Sequence[str] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
    cache: bool = True,
    progress: Progress = silent,
) -> Findings:
    """Measure what a release of this corpus leaks and what it is worth.

    Example: `audit(capelet.load("reviews"), "minilm")`. Without `private`, ready vectors are
    audited as they are, and texts through the default encoder.
    """
    clock = Clock()
    tried = families(attackers)
    plan = Plan.of(corpus, seeds, split_kind, derived, bins)
    encoder = _private_encoder(corpus, private, cache)
    inputs = _inputs(corpus, encoder)
    with clock("encoding"):
        release = encoder.release(inputs, progress)
    with clock("attacks"):
        tally = Tally()
        work = len(plan.splits) * plan.targets
        for parts in plan.splits:
            for _ in measure(plan, release.vectors, parts, tried, tally):
                tally.done += 1
                progress("attacking", tally.done, work)
    with clock("scores"):
        rows = _findings(plan, release, tally)
        if encoder.protects:
            original = encoder.unprotected().release(inputs, progress).vectors
            rows.append(_neighbours(plan, original, release))
        artefacts = _artefacts(plan, release, tally)
    provenance = _provenance(plan, encoder, release, clock)
    return Findings(tuple(rows), provenance, release.recipe, artefacts)


# ------------------------------------------------------------------------------------ the plan


@dataclass(frozen=True, eq=False)
class Plan:
    """What will be measured: the secrets, the task, the splits, and who counts as one person."""

    corpus: Corpus
    secrets: tuple[Attribute, ...]
    label: Attribute | None
    splits: tuple[Split, ...]
    units: Codes
    warnings: tuple[str, ...]

    @property
    def targets(self) -> int:
        return len(self.secrets) + (self.label is not None)

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        seeds: int = 5,
        split_kind: str = "auto",
        derived: Sequence[str] = (),
        bins: Mapping[str, Sequence[float]] | None = None,
    ) -> Plan:
        """Check everything that can be wrong with the data before anything is encoded."""
        if seeds < 1:
            raise DataError(f"seeds must be at least 1, and is {seeds}")
        corpus = corpus.with_private(derive(corpus, derived)) if derived else corpus
        unknown = set(bins or {}) - {*corpus.private, corpus.label_name}
        if unknown:
            raise DataError(f"--bins names {sorted(unknown)[0]!r}, which is not among the columns")
        secrets = tuple(attributes(corpus.private, bins))
        label = None
        if corpus.label is not None:
            name = corpus.label_name or "label"
            label = attribute(name, corpus.label, (bins or {}).get(name))
        if not secrets and label is None:
            raise DataError(
                "there is nothing to measure: name private columns (--private), a task label "
                "(--label), or let presence attributes be read off the texts (--derive names,number)"
            )
        balance = [*secrets, *([label] if label else [])]
        parts = tuple(split(corpus, split_kind, seed, balance) for seed in range(seeds))
        return cls(corpus, secrets, label, parts, group_rows(corpus), _warnings(secrets, label))


def _warnings(secrets: Sequence[Attribute], label: Attribute | None) -> tuple[str, ...]:
    found = []
    for secret in secrets:
        if label is not None and _same(label, secret):
            found.append(
                f"the label {label.name!r} and the private attribute {secret.name!r} are the same: "
                "the task is the leak"
            )
    return tuple(found)


def _same(one: Attribute, other: Attribute) -> bool:
    """Whether two attributes cut the rows into the same classes."""
    pairs = set(zip(one.codes.tolist(), other.codes.tolist(), strict=True))
    return len(pairs) == len(set(one.codes.tolist())) == len(set(other.codes.tolist()))


def _private_encoder(
    corpus: Corpus, private: PrivateEncoder | Encoder | str | None, cache: bool
) -> PrivateEncoder:
    if isinstance(private, PrivateEncoder):
        chosen = private
    elif private is not None:
        chosen = PrivateEncoder(private)
    else:
        chosen = PrivateEncoder() if corpus.vectors is not None else PrivateEncoder(DEFAULT_ENCODER)
    if not cache:
        return chosen
    return PrivateEncoder(
        *[cached(step) if isinstance(step, Encoder) else step for step in chosen.steps]
    )


def _inputs(corpus: Corpus, encoder: PrivateEncoder) -> Any:
    inputs = corpus.texts if encoder.consumes == "texts" else corpus.vectors
    if inputs is None:
        raise DataError(
            f"the encoder consumes {encoder.consumes}, and {corpus.name!r} holds none; "
            "name the column with --text or --vectors"
        )
    return inputs


# ----------------------------------------------------------------------------- the measurement


@dataclass(eq=False)
class Tally:
    """Guesses gathered over seeds, by (kind, target, attacker)."""

    guesses: dict[tuple[str, str, str], list[Guesses]] = field(
        default_factory=lambda: defaultdict(list)
    )
    chosen: dict[tuple[str, str], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    curves: dict[tuple[str, int], list[Guesses]] = field(default_factory=lambda: defaultdict(list))
    task_rows: list[Rows] = field(default_factory=list)
    done: int = 0


def measure(
    plan: Plan, vectors: Vectors, parts: Split, tried: Sequence[Family], tally: Tally
) -> Iterator[None]:
    """Attack one split; yields after each target so that progress can be shown."""
    predicted = None
    if plan.label is not None:
        predicted = _task(plan, plan.label, vectors, parts, tried, tally)
        yield
    shared: dict[bytes, tuple[View, TextAttacker | None]] = {}
    for secret in plan.secrets:
        view, text = _view(plan, vectors, parts, "attacker", secret, shared)
        _secret(plan, secret, view, text, tried, tally, predicted)
        yield


def _view(
    plan: Plan,
    vectors: Vectors,
    parts: Split,
    part: str,
    target: Attribute,
    shared: dict[bytes, tuple[View, TextAttacker | None]],
) -> tuple[View, TextAttacker | None]:
    """The view of the rows on which the target is known; one for all targets known alike."""
    known = target.codes >= 0
    key = part.encode() + known.tobytes()
    if key not in shared:
        fit, tune = (rows[known[rows]] for rows in parts.training(part))
        scored = parts.victims[known[parts.victims]]
        if not len(fit) or not len(tune) or not len(scored):
            raise DataError(
                f"{target.name!r} is known on too few rows to be split: "
                f"{len(fit) + len(tune)} in the {part}'s part, {len(scored)} among the victims"
            )
        view = View(vectors, fit, tune, scored, parts.seed)
        texts = plan.corpus.texts
        shared[key] = (view, TextAttacker(texts, view) if texts is not None else None)
    return shared[key]


def _task(
    plan: Plan,
    label: Attribute,
    vectors: Vectors,
    parts: Split,
    tried: Sequence[Family],
    tally: Tally,
) -> Codes:
    """Probe the task on the defender's part; returns the label predicted for every other row."""
    view, text = _view(plan, vectors, parts, "defender", label, {})
    rest = np.setdiff1d(np.concatenate([parts.attacker, parts.victims]), view.rows.scored)
    wide = View(
        vectors, view.rows.fit, view.rows.tune, np.concatenate([view.rows.scored, rest]), parts.seed
    )
    codes = np.where(label.codes < 0, 0, label.codes)
    task = Secret(wide, codes, len(label.classes), balanced=False)
    result = attack(wide, task, tried)
    scored = view.rows.scored
    count, truth, units = len(scored), label.codes[scored], plan.units[scored]
    for name, candidate in result.best.items():
        tally.guesses["utility", label.name, name].append(
            Guesses(truth, candidate.scored[:count], units)
        )
    best = result.best[result.strongest]
    tally.guesses["utility", label.name, "strongest"].append(
        Guesses(truth, best.scored[:count], units)
    )
    tally.chosen["utility", label.name][result.strongest] += 1
    tally.task_rows.append(scored)
    if text is not None:
        narrow = Secret(view, label.codes, len(label.classes), balanced=False)
        tally.guesses["utility-reference", label.name, "tf-idf"].append(
            Guesses(truth, text.probabilities(narrow), units)
        )
    predicted = np.full(len(plan.corpus), -1, dtype=np.intp)
    predicted[wide.rows.scored] = best.scored.argmax(axis=1)
    return predicted


def _secret(
    plan: Plan,
    secret: Attribute,
    view: View,
    text: TextAttacker | None,
    tried: Sequence[Family],
    tally: Tally,
    predicted: Codes | None,
) -> None:
    """Attack one attribute on one split, with its null, its references and its learning curve."""
    target = Secret(view, secret.codes, len(secret.classes))
    scored = view.rows.scored
    truth, units = secret.codes[scored], plan.units[scored]

    def add(kind: str, attacker: str, scores: Floats, truth: Codes = truth) -> None:
        tally.guesses[kind, secret.name, attacker].append(Guesses(truth, scores, units))

    result = attack(view, target, tried)
    for name, candidate in result.best.items():
        add("attribute-inference", name, candidate.scored)
    best = result.best[result.strongest]
    add("attribute-inference", "strongest", best.scored)
    tally.chosen["attribute-inference", secret.name][result.strongest] += 1

    family = next(item for item in tried if item.name == result.family)
    settings = result.best[result.family].settings
    random = np.random.default_rng([view.seed, 0x40])
    for _ in range(NULLS):
        dealt = permuted(secret.codes, plan.units, random)
        null = family.fit(view, Secret(view, dealt, len(secret.classes)), settings)
        add("attribute-inference-null", "strongest", null.scored, dealt[scored])
    if predicted is not None and plan.label is not None:
        said = Parts(*(predicted[rows] for rows in view.rows))
        scores = from_predicted_label(said, target, len(plan.label.classes))
        add("attribute-inference-reference", "predicted-label", scores)
    if text is not None:
        add("attribute-inference-reference", "tf-idf", text.probabilities(target))
    for count in LABELS_PER_CLASS:
        scores_or_none = few_labels(view, target, count)
        if scores_or_none is not None:
            tally.curves[secret.name, count].append(Guesses(truth, scores_or_none, units))


# --------------------------------------------------------------------------------- the findings


def _findings(plan: Plan, release: Release, tally: Tally) -> list[Finding]:
    bootstrap = Bootstrap(int(plan.units.max()) + 1)
    targets = {item.name: item for item in plan.secrets}
    if plan.label is not None:
        targets[plan.label.name] = plan.label
    rows: list[Finding] = []
    for (kind, name, attacker), guesses in tally.guesses.items():
        target = plan.label if kind.startswith("utility") and plan.label else targets[name]
        controls = kind.endswith(("-null", "-reference"))
        wanted = ("accuracy", "balanced_accuracy") if controls else metrics_for(len(target.classes))
        chosen = tally.chosen.get((kind, name)) if attacker == "strongest" else None
        for metric in wanted:
            rows.append(
                _finding(kind, target, attacker, metric, guesses, bootstrap, release, chosen)
            )
    if plan.label is not None:
        task = tally.guesses["utility", plan.label.name, "strongest"]
        for secret in plan.secrets:
            rows += subgroups(plan.label.name, task, tally.task_rows, secret, bootstrap)
    return rows


def _finding(
    kind: str,
    target: Attribute,
    attacker: str,
    metric: str,
    guesses: Sequence[Guesses],
    bootstrap: Bootstrap,
    release: Release,
    chosen: Counter[str] | None,
) -> Finding:
    score = bootstrap.score(metric, guesses)
    classes = len(target.classes)
    often = [majority(metric, item.truth, classes) for item in guesses]
    known = [value for value in often if value is not None]
    parameters: dict[str, Any] = {"by_seed": list(score.by_seed)}
    if chosen:
        parameters["chosen"] = dict(chosen)
    return Finding(
        kind,
        target.name,
        metric,
        score.value,
        score.low,
        score.high,
        chance=chance(metric, classes),
        majority=float(np.mean(known)) if known else None,
        ceiling=_ceiling(metric, target, release.guarantee),
        n=round(np.mean([len(item.truth) for item in guesses])),
        attacker=attacker,
        degenerate=any(item.degenerate for item in guesses),
        parameters=parameters,
        recipe_hash=release.recipe_hash,
    )


def _ceiling(metric: str, target: Attribute, guarantee: Guarantee) -> float | None:
    classes = len(target.classes)
    if metric == "accuracy":
        return ceiling(target.prior(), guarantee)
    if metric == "balanced_accuracy":
        return ceiling([1 / classes] * classes, guarantee)
    return ceiling_auc(guarantee) if metric == "auc" and classes == 2 else None


def _neighbours(plan: Plan, original: Vectors, release: Release) -> Finding:
    """Label-free utility: do the victims keep their ten nearest neighbours?"""
    by_seed = [
        float(neighbour_recall(original[parts.victims], release.vectors[parts.victims]).mean())
        for parts in plan.splits
    ]
    victims = plan.splits[0].victims
    each = neighbour_recall(original[victims], release.vectors[victims])
    half = 1.96 * float(each.std()) / np.sqrt(len(each))
    value = float(np.mean(by_seed))
    return Finding(
        "utility",
        "neighbours",
        "recall_at_10",
        value,
        value - half,
        value + half,
        chance=10 / (len(victims) - 1),
        n=len(victims),
        parameters={"by_seed": by_seed},
        recipe_hash=release.recipe_hash,
    )


def _artefacts(plan: Plan, release: Release, tally: Tally) -> dict[str, Any]:
    bootstrap = Bootstrap(int(plan.units.max()) + 1)
    curves: dict[str, dict[str, Any]] = {}
    for (name, count), guesses in tally.curves.items():
        score = bootstrap.score("balanced_accuracy", guesses)
        curve = curves.setdefault(
            name, {"labels_per_class": [], "value": [], "low": [], "high": [], "chance": None}
        )
        curve["chance"] = 1 / guesses[0].scores.shape[1]
        curve["labels_per_class"].append(count)
        for key in ("value", "low", "high"):
            curve[key].append(getattr(score, key))
    shown = [*plan.secrets, *([plan.label] if plan.label else [])]
    return {
        "learning_curve": {
            "attacker": "logistic",
            "metric": "balanced_accuracy",
            "curves": curves,
        },
        "tsne": tsne(release.vectors, plan.splits[0].victims, shown, seed=0),
    }


# ------------------------------------------------------------------------------ the provenance


class Clock:
    """Seconds spent in each part of the work."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - start, 3)

    def total(self) -> float:
        return round(time.perf_counter() - self.began, 3)


def _provenance(
    plan: Plan, encoder: PrivateEncoder, release: Release, clock: Clock
) -> dict[str, Any]:
    corpus, model = plan.corpus, encoder.encoder
    truncated = (
        int(model.truncated(corpus.texts).sum())
        if model is not None and corpus.texts is not None
        else 0
    )
    return {
        "capelet": importlib.metadata.version("capelet"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": {
            "name": corpus.name,
            "rows": len(corpus),
            "digest": corpus.digest(),
            "authors": None if corpus.author is None else len(set(corpus.author)),
            "duplicates": _duplicates(plan),
            "truncated": truncated,
            "where": corpus.where,
        },
        "attributes": {item.name: _described(item) for item in plan.secrets},
        "label": None if plan.label is None else {"name": plan.label.name, **_described(plan.label)},
        "encoder": _encoder(model, release),
        "cache": str(folder) if (folder := getattr(model, "folder", None)) else None,
        "split": {
            "kind": plan.splits[0].kind,
            "shares": SHARES,
            "sizes": {part: len(getattr(plan.splits[0], part)) for part in PARTS},
            "seeds": [parts.seed for parts in plan.splits],
        },
        "guarantee": {**asdict(release.guarantee), "sentence": release.guarantee.sentence()},
        "versions": _versions(),
        "warnings": list(plan.warnings),
        "seconds": {**clock.seconds, "total": clock.total()},
    }


def _described(item: Attribute) -> dict[str, Any]:
    return {"classes": item.counts(), "missing": item.missing, "notes": list(item.notes)}


def _encoder(model: Encoder | None, release: Release) -> dict[str, Any]:
    if model is None:
        return {"name": "ready vectors", "dimension": release.vectors.shape[1]}
    return {
        "name": model.name,
        "backend": model.backend,
        "fingerprint": model.fingerprint,
        "dimension": model.dimension,
    }


def _duplicates(plan: Plan) -> dict[str, Any]:
    """How many rows repeat an earlier one, exactly and nearly, and how many of these cross parts."""
    same = identical(plan.corpus)
    repeated = len(same) - len(np.unique(same))
    if plan.corpus.texts is None:
        return {"identical": repeated, "near": None, "victims_near_attacker": None}
    near = near_duplicates(plan.corpus.texts)
    return {
        "identical": repeated,
        "near": len(near) - len(np.unique(near)),
        "victims_near_attacker": linked(plan.splits[0], near),
    }


def _versions() -> dict[str, str]:
    packages = ("numpy", "scipy", "scikit-learn", "torch", "sentence-transformers", "onnxruntime")
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
