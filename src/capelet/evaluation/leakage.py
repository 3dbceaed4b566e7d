"""Attackers and task probes over all seeds of a plan, and the findings that come of them.

For each seed, task probes train on the defender's part and fresh attackers on the attacker's part;
every score is taken on victims. Beside every leak stand its controls.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

import numpy as np

from capelet.attacks.attribute import (
    COMMITTEE,
    Draws,
    Family,
    Parts,
    Secret,
    View,
    attack,
    few_labels,
    fit_candidate,
)
from capelet.attacks.outcomes import TABLE, OutcomeTable, attack_outcomes
from capelet.data.corpus import Rows, Split
from capelet.data.labels import Attribute
from capelet.errors import DataError
from capelet.evaluation.access import NO_ACCESS, Access
from capelet.evaluation.adaptive import (
    AdaptiveAttackers,
    holds,
    strongest_of,
)
from capelet.evaluation.fairness import subgroups
from capelet.evaluation.people import (
    PeopleTally,
    TextAttack,
    attack_by_people,
    gather,
    people_findings,
)
from capelet.evaluation.plan import Plan
from capelet.evaluation.references import NULLS as NULLS
from capelet.evaluation.references import TextAttacker, from_predicted_label, permute
from capelet.evaluation.scores import Scoring
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap
from capelet.findings.metrics import (
    Codes,
    Floats,
    Guesses,
    metrics_for,
    score,
    scores_together,
)
from capelet.interfaces import Progress, Vectors
from capelet.numerics import one_thread
from capelet.release import Release

S = TypeVar("S")
T = TypeVar("T")

# The few-shot range of Song and Raghunathan (2020): 10 to 50 labels.
LABELS_PER_CLASS = (10, 20, 30, 40, 50)
# Verdicts are made of these, and controls are read under no others.
VERDICT_METRICS = ("accuracy", "balanced_accuracy")
# Splits attacked in parallel; each holds the kernels of one split in memory.
MOST_WORKERS = 4


@dataclass(eq=False)
class Tally:
    """Guesses gathered over seeds, by (kind, target, attacker)."""

    guesses: dict[tuple[str, str, str], list[Guesses]] = field(
        default_factory=lambda: defaultdict(list)
    )
    winners: dict[tuple[str, str], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    draws: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    curves: dict[tuple[str, int], list[Guesses]] = field(default_factory=lambda: defaultdict(list))
    task_rows: list[Rows] = field(default_factory=list)
    people: PeopleTally = field(default_factory=PeopleTally)

    def add(self, other: Tally) -> None:
        """Take in what another seed gathered."""
        for name in ("guesses", "winners", "draws", "curves"):
            gather(getattr(self, name), getattr(other, name))
        self.task_rows += other.task_rows
        self.people.add(other.people)


def attack_all(
    plan: Plan,
    vectors_by_split: Sequence[Vectors],
    progress: Progress,
    access: Sequence[Access] = (),
    *,
    controls: bool = True,
) -> Tally:
    """All seeds, as many in parallel as there are cores; the result does not depend on how many.

    `vectors_by_split` are those of all rows, for each split: a trained release differs by split.
    `access` is what attackers may use beside the vectors of each; nothing where it is empty.
    Without `controls` only the attackers and the task's probe are asked, as a search needs it.
    """
    counter = count(1)
    work = len(plan.splits) * plan.targets

    def tick() -> None:
        progress("attacking", next(counter), work)

    def one(place: int) -> Tally:
        own = access[place] if access else NO_ACCESS
        parts, vectors = plan.splits[place], vectors_by_split[place]
        return attack_split(plan, vectors, parts, tick, own, controls=controls)

    total = Tally()
    for tally in in_threads(one, range(len(plan.splits)), plan.protocol.threads):
        total.add(tally)
    return total


def in_threads(
    work: Callable[[S], T], items: Sequence[S], threads: int | None = None
) -> Iterator[T]:
    """The work on each item, in order, with so many threads, or one for each core."""
    # Threads, not processes: the arithmetic is outside Python's lock, and vectors are shared.
    workers = min(threads or min(os.cpu_count() or 1, MOST_WORKERS), len(items))
    with one_thread(), ThreadPoolExecutor(workers) as pool:
        yield from pool.map(work, items)


def attack_split(
    plan: Plan,
    vectors: Vectors,
    parts: Split,
    tick: Callable[[], None] = lambda: None,
    access: Access = NO_ACCESS,
    *,
    controls: bool = True,
) -> Tally:
    """Attack one split; `tick` is called after each target so that progress can be shown.

    Attackers of secrets draw their own texts as often as it helps them, if `access` permits. The
    task does not: its user has one draw of each text, and may make no other.
    """
    split = _SplitAttack(plan, vectors, parts, access)
    labels = None
    if plan.label is not None:
        labels = split.probe_task(plan.label)
        tick()
    for secret in plan.secrets:
        if any(parts is item for item in plan.scored_splits(secret)):
            attempt = split.attack_secret(secret)
            if controls:
                split.add_controls(attempt, labels)
        tick()
    return split.tally


def attempts_on(plan: Plan, vectors: Vectors, access: Access) -> tuple[Tally, list[TextAttack]]:
    """The attack on each secret of the first split, kept so that it can read other vectors too."""
    split = _SplitAttack(plan, vectors, plan.splits[0], access)
    with one_thread():
        attempts = [split.attack_secret(item) for item in plan.secrets]
    return split.tally, attempts


class _SplitAttack:
    """Everything that is measured on one split, with what its targets share made once."""

    def __init__(self, plan: Plan, vectors: Vectors, parts: Split, access: Access) -> None:
        self.plan, self.vectors, self.parts = plan, vectors, parts
        self.redraw, self.outcomes = access.redraw, access.outcomes
        # The pairs and the noise of a finite release tell nothing that its table does not.
        insider = None if self.outcomes else access.insider
        self.insiders = AdaptiveAttackers(plan, parts, vectors, insider) if insider else None
        self.tally = Tally()
        self._views: dict[bytes, tuple[View, TextAttacker | None]] = {}
        self._draws: dict[int, Draws] = {}

    def _view(self, part: str, target: Attribute) -> tuple[View, TextAttacker | None]:
        """The view of the rows on which the target is known; one for all targets known alike."""
        # A missing value is nobody's class: such rows neither teach nor score this target.
        present = target.codes >= 0
        key = part.encode() + present.tobytes()
        if key not in self._views:
            own = getattr(self.parts, part)
            own = own[present[own]]
            victims = self.parts.victims[present[self.parts.victims]]
            # Cross-validation holds rows back: one alone leaves nothing to learn from.
            if len(own) < 2 or not len(victims):
                raise DataError(
                    f"{target.name!r} is known on too few rows to be split: "
                    f"{len(own)} in the {part}'s part, {len(victims)} among the victims"
                )
            view = View(self.vectors, own, own[:0], victims, self.parts.seed, self.plan.units)
            texts = self.plan.corpus.texts
            self._views[key] = (view, TextAttacker(texts, view) if texts is not None else None)
        return self._views[key]

    def _draws_of(self, view: View) -> Draws | None:
        if self.redraw is None:
            return None
        again = self.redraw.afresh()
        return self._draws.setdefault(id(view), Draws(view, again, again.most))

    def probe_task(self, label: Attribute) -> Codes:
        """Probe the task on the defender's part; returns the label predicted for other rows."""
        view, text = self._view("defender", label)
        # The label is predicted for all of the attacker's rows and victims, also where the truth
        # is missing: a user of the release would have it for each.
        parts, victims = self.parts, view.rows.scored
        rest = np.setdiff1d(np.concatenate([parts.attacker, parts.victims]), victims)
        scored = np.concatenate([victims, rest])
        units = self.plan.units
        wide = View(self.vectors, view.rows.fit, view.rows.tune, scored, parts.seed, units)
        # A stand-in that is never scored: these rows follow the victims, and are cut off below.
        codes = np.maximum(label.codes, 0)
        # A task is judged by plain accuracy, so its classes are not weighed.
        task = Secret(wide, codes, len(label.classes), balanced=False)
        result = attack(wide, task, self.plan.attackers)
        best = result.best[result.strongest]
        named = {**result.best, "strongest": best}
        truth = label.codes[victims]
        for name, candidate in named.items():
            guesses = Guesses(truth, candidate.scored[: len(victims)], units[victims])
            self.tally.guesses["utility", label.name, name].append(guesses)
        self.tally.winners["utility", label.name][result.strongest] += 1
        self.tally.task_rows.append(victims)
        if text is not None:
            narrow = Secret(view, label.codes, len(label.classes), balanced=False)
            reference = Guesses(truth, text.probabilities(narrow), units[victims])
            self.tally.guesses["utility-reference", label.name, "tf-idf"].append(reference)
        labels = np.full(len(self.plan.corpus), -1, dtype=np.intp)
        labels[scored] = best.scored.argmax(axis=1)
        return labels

    def attack_secret(self, secret: Attribute) -> TextAttack:
        """Attack one attribute, with all attackers of single texts.

        Of a release that takes few values the strongest attacker is the table of its outcomes;
        the others stand beside it.
        """
        tally = self.tally
        view, _ = self._view("attacker", secret)
        target = Secret(view, secret.codes, len(secret.classes))
        draws = self._draws_of(view)
        attackers: Sequence[Family] = self.plan.attackers
        adaptive = self.insiders.guesses(secret) if self.insiders else {}
        result = attack(view, target, attackers, draws)
        named = {name: candidate.scored for name, candidate in result.best.items()}
        named |= {name: guess.scored for name, guess in adaptive.items()}
        if self.outcomes:
            table = OutcomeTable(self.outcomes)
            attackers, result = [table], attack_outcomes(view, target, table, draws)
            named[TABLE] = result.best[TABLE].scored
        strongest = strongest_of(result, adaptive, secret.codes)
        winner = adaptive[strongest] if strongest in adaptive else result.best[strongest]
        for name, scores in {**named, "strongest": winner.scored}.items():
            self._add("attribute-inference", secret, name, scores)
        tally.winners["attribute-inference", secret.name][strongest] += 1
        tally.draws["attribute-inference", secret.name].append(result.view.draws)
        family = next(item for item in attackers if item.name == result.family)
        return TextAttack(self.plan, secret, view, family, result, adaptive)

    def add_controls(self, attempt: TextAttack, labels: Codes | None) -> None:
        """What stands beside an attack: people, its null, its references, its learning curve."""
        plan, tally, secret = self.plan, self.tally, attempt.secret
        view, text = self._view("attacker", secret)
        target = Secret(view, secret.codes, len(secret.classes))
        tally.people.add(attack_by_people(attempt))
        # The null has the best family with the settings that cross-validation chose, fitted on all
        # of the attacker's rows and draws: as strong an attacker, with nothing to learn.
        family, wide = attempt.family, attempt.result.view
        settings = attempt.result.best[family.name].settings
        random = np.random.default_rng([view.seed, 0x40])
        for _ in range(NULLS):
            codes = permute(secret.codes, plan.units, random)
            null = fit_candidate(family, wide, Secret(wide, codes, target.classes), settings)
            self._add("attribute-inference-null", secret, "strongest", null.scored, codes)
        if labels is not None and plan.label is not None:
            label_parts = Parts(*(labels[rows] for rows in view.rows))
            scores = from_predicted_label(label_parts, target, len(plan.label.classes))
            self._add("attribute-inference-reference", secret, "predicted-label", scores)
        if text is not None:
            scores = text.probabilities(target)
            self._add("attribute-inference-reference", secret, "tf-idf", scores)
        for number in LABELS_PER_CLASS:
            few = few_labels(view, target, number)
            if few is not None:
                tally.curves[secret.name, number].append(self._guesses(secret, few))

    def _add(
        self,
        kind: str,
        secret: Attribute,
        attacker: str,
        scores: Floats,
        codes: Codes | None = None,
    ) -> None:
        guesses = self._guesses(secret, scores, codes)
        self.tally.guesses[kind, secret.name, attacker].append(guesses)

    def _guesses(self, secret: Attribute, scores: Floats, codes: Codes | None = None) -> Guesses:
        """Scores of the victims whose secret is known, beside the truth or a null's codes."""
        victims = self._view("attacker", secret)[0].rows.scored
        truth = (secret.codes if codes is None else codes)[victims]
        return Guesses(truth, scores, self.plan.units[victims])


def findings_of(plan: Plan, release: Release, tally: Tally) -> list[Finding]:
    """All findings of a tally, each with its interval, its controls and its ceilings."""
    scoring = Scoring.of(plan, release)
    targets = {item.name: item for item in plan.secrets}
    rows: list[Finding] = []
    for (kind, name, attacker), guesses in tally.guesses.items():
        target = plan.label if kind.startswith("utility") and plan.label else targets[name]
        winners = tally.winners.get((kind, name)) if attacker == "strongest" else None
        is_exact = TABLE in (winners or (attacker,))
        about: dict[str, Any] = {}
        if kind == "attribute-inference":
            about["holds"] = holds(attacker, winners)
            if left_out := len(plan.splits) - len(plan.scored_splits(target)):
                about["one_class_seeds"] = left_out
        # Controls are read beside a score and need no more than these.
        is_control = kind.endswith(("-null", "-reference"))
        all_metrics = metrics_for(len(target.classes), plan.protocol.metrics)
        for metric in VERDICT_METRICS if is_control else all_metrics:
            row = scoring.finding(kind, target, attacker, metric, guesses, is_exact)
            choice = (
                _choice(tally, kind, name, metric, scoring.bootstrap)
                if attacker == "strongest"
                else {}
            )
            rows.append(replace(row, parameters={**row.parameters, **choice, **about}))
    rows += people_findings(tally.people, targets, scoring)
    if plan.label is not None:
        task = tally.guesses["utility", plan.label.name, "strongest"]
        for secret in plan.secrets:
            rows += subgroups(plan.label.name, task, tally.task_rows, secret, scoring)
    return rows


def _choice(
    tally: Tally, kind: str, target: str, metric: str, bootstrap: Bootstrap
) -> dict[str, Any]:
    """Who was strongest on how many seeds, and which single family is best on the victims.

    That family was picked by its score, so its interval is one of all families at once.
    """
    choice: dict[str, Any] = {}
    if winners := tally.winners.get((kind, target)):
        choice["chosen"] = dict(winners)
    draws = tally.draws.get((kind, target), [])
    if any(number > 1 for number in draws):
        choice["draws"] = draws
    single = {
        attacker: guesses
        for (kind_of, name, attacker), guesses in tally.guesses.items()
        if (kind_of, name) == (kind, target) and attacker not in ("strongest", COMMITTEE)
    }
    # Under the metrics that verdicts are made of; the others would double the time of scoring.
    if len(single) > 1 and metric in VERDICT_METRICS:
        scores = scores_together(metric, single, bootstrap)
        best = max(scores, key=lambda name: scores[name].value)
        low, high = scores[best].low, scores[best].high
        choice["best_family"] = {
            "attacker": best, "value": scores[best].value, "low": low, "high": high,
        }  # fmt: skip
    return choice


def learning_curve(plan: Plan, tally: Tally) -> dict[str, Any]:
    """What an attacker reaches who knows only so many labels of each class."""
    bootstrap = Bootstrap.over(plan.units)
    curves: dict[str, dict[str, Any]] = {}
    for (name, labels), guesses in tally.curves.items():
        interval = score("balanced_accuracy", guesses, bootstrap)
        curve = curves.setdefault(
            name, {"labels_per_class": [], "value": [], "low": [], "high": []}
        )
        curve["chance"] = 1 / guesses[0].scores.shape[1]
        curve["labels_per_class"].append(labels)
        for key in ("value", "low", "high"):
            curve[key].append(getattr(interval, key))
    return {"attacker": "logistic", "metric": "balanced_accuracy", "curves": curves}
