"""Choosing: what can be had of utility at which leakage, and the point that a user asked for.

Settings are tried one after another (optuna), all inside the defender's part of the first split:
a defence learns on some of its rows, attackers spy on others, and both are judged on the rest. No
attacker's row and no victim is looked at, so what `protect` measures afterwards is fresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from capelet.attacks.attribute import Family, Secret, View, attack, families, one_thread
from capelet.data.corpus import Rows, Split
from capelet.data.labels import Attribute
from capelet.defences import Settings, fit, method
from capelet.defences.training import Part
from capelet.errors import CapeletError, MissingExtra
from capelet.evaluation.plan import Plan
from capelet.evaluation.utility import neighbour_recall
from capelet.findings.metrics import balanced_accuracy
from capelet.interfaces import Progress, Vectors, silent
from capelet.privacy.guarantees import Guarantee, ceiling_balanced, checked, checked_count

SHARES = (0.6, 0.8)
"""Up to 0.6 of the rows to fit on are learnt from, up to 0.8 spied on, the rest judged."""
SPIES = ("logistic", "kernel")


class NoPoint(CapeletError):
    """No setting that was tried meets the wish; the sentence says how near the search came."""


@dataclass(frozen=True)
class Point:
    """Settings, the worst attribute's gain over chance, and what the release is worth."""

    settings: Mapping[str, float | int]
    leakage: float
    utility: float


@dataclass(frozen=True, eq=False)
class Frontier:
    """All points that were tried, and the one that was asked for, if there is one."""

    points: tuple[Point, ...]
    unprotected: Point
    chosen: Point | None
    wanted: Mapping[str, float]
    utility_name: str
    ceiling: float | None

    def artefact(self) -> dict[str, Any]:
        """For the report."""
        return {
            "points": [
                {
                    "leakage": point.leakage,
                    "utility": point.utility,
                    "settings": dict(point.settings),
                    "chosen": point is self.chosen,
                }
                for point in self.points
            ],
            "unprotected": {
                "leakage": self.unprotected.leakage,
                "utility": self.unprotected.utility,
            },
            "chance": 0.0,
            "ceiling": self.ceiling,
            "wanted": dict(self.wanted),
            "leakage": "gain over chance in balanced accuracy, worst attribute",
            "utility": self.utility_name,
        }

    def picked(self) -> dict[str, Any]:
        """The settings that were asked for; `NoPoint` where none will do."""
        if self.chosen is None:
            raise NoPoint(self.nearest())
        return dict(self.chosen.settings)

    def nearest(self) -> str:
        """How near the search came, where no point meets the wish."""
        if "max_leakage" in self.wanted:
            best = min(self.points, key=lambda point: point.leakage)
            return (
                f"no setting tried keeps the attacker's gain at or below "
                f"{self.wanted['max_leakage']:g}; the nearest gains {best.leakage:.3f} "
                f"at {self.utility_name} {best.utility:.3f} ({_listed(best.settings)})"
            )
        best = max(self.points, key=lambda point: point.utility)
        return (
            f"no setting tried reaches {self.utility_name} {self.wanted['min_utility']:g}; "
            f"the nearest has {best.utility:.3f}, where the attacker gains {best.leakage:.3f} "
            f"({_listed(best.settings)})"
        )


def part_of(plan: Plan, parts: Split, vectors: Vectors, against: Sequence[Attribute]) -> Part:
    """What a defence may see of a split: the defender's rows, renumbered from 0."""
    rows = parts.defender
    place = np.full(len(plan.corpus), -1, dtype=np.intp)
    place[rows] = np.arange(len(rows))
    fit_rows, tune_rows = (place[some] for some in parts.training("defender"))

    def held(item: Attribute) -> Attribute:
        return replace(item, codes=item.codes[rows])

    task = held(plan.label) if plan.label is not None else None
    texts = plan.corpus.texts[rows].tolist() if plan.corpus.texts is not None else None
    secrets = tuple(held(item) for item in against)
    return Part(vectors[rows], fit_rows, tune_rows, task, secrets, texts)


def search(
    plan: Plan,
    vectors: Vectors,
    original: Vectors,
    against: Sequence[Attribute],
    name: str,
    settings: Settings,
    *,
    max_leakage: float | None = None,
    min_utility: float | None = None,
    fixed: Sequence[str] = (),
    trials: int = 20,
    progress: Progress = silent,
) -> Frontier:
    """Try settings of a method and pick the best that meets the wish.

    `fixed` are the settings that the user chose; the others are searched. `vectors` is what the
    defence is given, `original` what the unprotected encoder gives.
    """
    wanted = _wanted(max_leakage, min_utility)
    bench = _Bench(plan, vectors, original, against, settings)
    points: list[Point] = []

    def tried(chosen: Mapping[str, Any]) -> tuple[float, float]:
        point = bench.point(name, replace(settings, **chosen), chosen)
        points.append(point)
        progress("searching", len(points), trials)
        return point.leakage, point.utility

    _optimise(_space(name, settings, fixed), tried, checked_count("trials", trials))
    epsilon = settings.epsilon if "epsilon" in fixed else None
    top = ceiling_balanced(2, Guarantee(epsilon)) if epsilon else None
    return Frontier(
        tuple(points),
        bench.unprotected(),
        _chosen(points, wanted),
        wanted,
        bench.utility_name,
        None if top is None else top - 0.5,
    )


def _wanted(max_leakage: float | None, min_utility: float | None) -> dict[str, float]:
    if max_leakage is not None and min_utility is not None:
        raise CapeletError("give --max-leakage or --min-utility, not both")
    if max_leakage is not None:
        return {"max_leakage": checked("max-leakage", max_leakage, 0.0, 1.0)}
    if min_utility is not None:
        return {"min_utility": checked("min-utility", min_utility, 0.0, 1.0)}
    return {}


def _chosen(points: Sequence[Point], wanted: Mapping[str, float]) -> Point | None:
    """The most useful point that leaks little enough, or the least leaky that is useful enough."""
    if "max_leakage" in wanted:
        fit_for = [point for point in points if point.leakage <= wanted["max_leakage"]]
        return max(fit_for, key=lambda point: point.utility, default=None)
    if "min_utility" in wanted:
        fit_for = [point for point in points if point.utility >= wanted["min_utility"]]
        return min(fit_for, key=lambda point: point.leakage, default=None)
    return None


def _space(name: str, settings: Settings, fixed: Sequence[str]) -> dict[str, Any]:
    """What may vary: (low, high) on a logarithmic scale, or a list."""
    space = method(name).space(settings.keep)
    return {key: value for key, value in space.items() if key not in fixed}


def _optimise(space: Mapping[str, Any], tried: Any, trials: int) -> None:
    try:
        import optuna
    except ImportError:
        raise MissingExtra("the search for settings", "protect") from None

    def objective(trial: Any) -> tuple[float, float]:
        chosen: dict[str, float | int] = {}
        for key, values in space.items():
            if isinstance(values, list):
                chosen[key] = trial.suggest_categorical(key, values)
            else:
                drawn = trial.suggest_float(key, *values, log=True)
                chosen[key] = float(f"{drawn:.2g}")
        pair: tuple[float, float] = tried(chosen)
        return pair

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        directions=["minimize", "maximize"], sampler=optuna.samplers.TPESampler(seed=0)
    )
    study.optimize(objective, n_trials=trials if space else 1)


class _Bench:
    """The defender's part of the first split, cut into rows to learn, to spy on and to judge."""

    def __init__(
        self,
        plan: Plan,
        vectors: Vectors,
        original: Vectors,
        against: Sequence[Attribute],
        settings: Settings,
    ) -> None:
        parts = plan.splits[0]
        self.part = part_of(plan, parts, vectors, against)
        self.original = original[parts.defender]
        self.seed = parts.seed
        units = plan.units[parts.defender]
        place = np.random.default_rng([parts.seed, 0xF0]).random(int(units.max()) + 1)
        share = place[units[self.part.fit]]
        rows = self.part.fit
        self.learn = rows[share < SHARES[0]]
        self.spy = rows[(share >= SHARES[0]) & (share < SHARES[1])]
        self.judge = rows[share >= SHARES[1]]
        self.neighbours = settings.keep == "neighbours" or self.part.task is None
        task = self.part.task
        self.utility_name = (
            "recall of ten neighbours"
            if self.neighbours or task is None
            else f"accuracy of {task.name}"
        )

    def point(self, name: str, settings: Settings, chosen: Mapping[str, float | int]) -> Point:
        learner = replace(self.part, fit=self.learn)
        made = fit(name, learner, settings)
        return self._judged(made.release(self.part.vectors, self.part.texts), chosen)

    def unprotected(self) -> Point:
        return self._judged(self.original, {})

    def _judged(self, released: Vectors, chosen: Mapping[str, float | int]) -> Point:
        with one_thread():
            leaks = [self._gain(released, item) for item in self.part.secrets]
            return Point(chosen, max(leaks, default=0.0), self._utility(released))

    def _gain(self, released: Vectors, item: Attribute) -> float:
        spies, judged = _known(item, self.spy), _known(item, self.judge)
        score = self._score(released, item, spies, judged, families(SPIES), balanced=True)
        return score - 1 / len(item.classes)

    def _utility(self, released: Vectors) -> float:
        task = self.part.task
        if self.neighbours or task is None:
            return float(neighbour_recall(self.original[self.judge], released[self.judge]).mean())
        learn, judged = _known(task, self.learn), _known(task, self.judge)
        return self._score(released, task, learn, judged, families(SPIES), balanced=False)

    def _score(
        self,
        released: Vectors,
        item: Attribute,
        rows: Rows,
        judged: Rows,
        tried: Sequence[Family],
        balanced: bool,
    ) -> float:
        cut = max(len(rows) // 10, 1)
        view = View(released, rows[cut:], rows[:cut], judged, self.seed)
        secret = Secret(view, item.codes, len(item.classes), balanced=balanced)
        result = attack(view, secret, tried)
        said = result.best[result.strongest].scored.argmax(axis=1)
        if balanced:
            return float(balanced_accuracy(secret.codes.scored, said))
        return float((secret.codes.scored == said).mean())


def _known(item: Attribute, rows: Rows) -> Rows:
    return rows[item.codes[rows] >= 0]


def _listed(settings: Mapping[str, float | int]) -> str:
    return ", ".join(f"{key} {value:.3g}" for key, value in settings.items()) or "nothing to choose"
