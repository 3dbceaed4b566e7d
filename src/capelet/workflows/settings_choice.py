"""Choosing: what can be had of utility at which leakage, and the point that a user asked for.

Settings are tried one after another (optuna), all inside the defender's part of the first split:
a defence learns on some of its rows, attackers on others, and both are scored on the rest. No
attacker's row and no victim is used, and with a search the victims are the same in all seeds, so
what `protect` measures afterwards is fresh. A wish for little leakage is judged by the upper end of
the interval and by all families of attackers, here and again on the victims (`check_wish`): a
choice among many would else find a lucky one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from capelet.data.labels import Attribute
from capelet.defences import Defence, Settings, fit, method
from capelet.errors import CapeletError, MissingExtra, name_field
from capelet.evaluation.ceilings import bound_of
from capelet.evaluation.leakage import Tally
from capelet.evaluation.measure import Released, guess, worst_case
from capelet.evaluation.utility import neighbour_recall
from capelet.findings import Finding
from capelet.findings.verdicts import Side, side_of
from capelet.interfaces import Vectors
from capelet.privacy.guarantees import Guarantee, ceiling_balanced, check_count, check_number
from capelet.release import PrivateEncoder
from capelet.workflows.training import TrainingJob, part_of, steps_with

# So many points are attacked as an audit does; it takes several times as long as a trial.
CONFIRMED = 3
# Settings to try, where nobody chose.
TRIALS = 20


class TargetNotMet(CapeletError):
    """No setting that was tried meets the wish; the sentence says how near the search came."""


@dataclass(frozen=True)
class Point:
    """Settings, the worst attribute's gain over chance, and what the release is worth.

    `guarantee` is that of the release; None of what is not protected. `upper` is the upper end of
    the gain's 95 % interval, on the attribute where that is most.
    """

    settings: Mapping[str, float | int]
    leakage: float
    utility: float
    guarantee: Guarantee | None = None
    upper: float | None = None

    @property
    def bound(self) -> float:
        """What the gain was shown to lie under; the gain itself where there is no interval."""
        return self.leakage if self.upper is None else self.upper


@dataclass(frozen=True, eq=False)
class Frontier:
    """All points that were tried, and the one that was asked for, if there is one.

    `ceiling` is the most that anyone can gain over chance from one text, on the attribute where
    that is most; `utility_ceiling` the best accuracy of the task. None where points differ in ε,
    or where their guarantee bounds nothing.
    """

    points: tuple[Point, ...]
    baseline: Point
    choice: Point | None
    wish: Mapping[str, float]
    utility_name: str
    ceiling: float | None
    utility_ceiling: float | None = None

    def artefact(self) -> dict[str, Any]:
        """For the report."""
        return {
            "points": [
                {
                    "leakage": point.leakage,
                    "utility": point.utility,
                    "settings": dict(point.settings),
                    "chosen": point is self.choice,
                    **({} if point.upper is None else {"upper": point.upper}),
                }
                for point in self.points
            ],
            "unprotected": {
                "leakage": self.baseline.leakage,
                "utility": self.baseline.utility,
            },
            "chance": 0.0,
            "ceiling": self.ceiling,
            "utility_ceiling": self.utility_ceiling,
            "wanted": dict(self.wish),
            "leakage": "gain over chance in balanced accuracy, worst attribute",
            "utility": self.utility_name,
        }

    def best_settings(self) -> dict[str, Any]:
        """The settings that were asked for; `TargetNotMet` where none will do."""
        if self.choice is None:
            raise TargetNotMet(self.nearest())
        return dict(self.choice.settings)

    def nearest(self) -> str:
        """How near the search came, where no point meets the wish."""
        if "max_leakage" in self.wish:
            return (
                f"no setting tried was shown to keep the attacker's gain at or below "
                f"{self.wish['max_leakage']:g}; {self.best_found()}"
            )
        best = max(self.points, key=lambda point: point.utility)
        return (
            f"no setting tried reaches {self.utility_name} {self.wish['min_utility']:g}; "
            f"the nearest has {best.utility:.3f}, where the attacker gains {best.leakage:.3f} "
            f"({_settings_line(best.settings)})"
        )

    def best_found(self) -> str:
        """The point that leaks least, in words."""
        best = min(self.points, key=lambda point: (point.bound, -point.utility))
        room = "" if best.upper is None else f" (at most {best.upper:.3f} with 95 % confidence)"
        return (
            f"the nearest gains {best.leakage:.3f}{room} at {self.utility_name} "
            f"{best.utility:.3f} ({_settings_line(best.settings)})"
        )


def check_wish(frontier: Frontier, rows: Sequence[Finding]) -> None:
    """Refuse (`TargetNotMet`) what fresh attackers on fresh victims do not show to be kept."""
    limit = frontier.wish.get("max_leakage")
    if limit is None:
        return
    violations = [row for row in rows if side_of(row, limit) is not Side.UNDER]
    if not violations:
        return
    gains = ", ".join(f"{row.target} {_gain_words(row)}" for row in violations)
    raise TargetNotMet(
        f"{name_field('max_leakage', f'{limit:g}')} is not met: on victims that the search had not "
        f"seen, attackers gain over chance on {gains}; nothing was written. In the search "
        f"{frontier.best_found()}"
    )


def _gain_words(row: Finding) -> str:
    chance = row.chance or 0.0
    if row.high is None:
        return f"{row.value - chance:.3f}"
    return f"{row.value - chance:.3f} (at most {row.high - chance:.3f} with 95 % confidence)"


def search(
    job: TrainingJob,
    vectors: Vectors,
    original: Vectors,
    *,
    max_leakage: float | None = None,
    min_utility: float | None = None,
    trials: int | None = None,
) -> Frontier:
    """Try settings of a method that nobody chose, and pick the best that meets the wish.

    `vectors` of all rows are what the defence is given, `original` what the encoder gives without
    it.
    Every trial is attacked from its vectors alone. Those that would be chosen, three at most, are
    then released as they would ship, and attacked as an audit does, by redraws and insiders too:
    the first that still meets the wish is the choice.
    """
    wish = _wish(max_leakage, min_utility)
    bench = _Trials(job, vectors, original)
    most = check_count("trials", TRIALS if trials is None else trials)

    def evaluate(choice: Mapping[str, Any]) -> tuple[float, float]:
        point = bench.point(choice)
        job.progress("searching", len(bench.points), most)
        return point.leakage, point.utility

    _optimise(_space(job.name, job.settings), evaluate, most)
    confirmed = map(bench.confirm, _best_points(bench.points, wish))
    choice = next((point for point in confirmed if _best_points([point], wish)), None)
    guarantee = _common_guarantee(bench.points)
    return Frontier(
        tuple(bench.points),
        bench.baseline(),
        choice,
        wish,
        bench.utility_name,
        None if guarantee is None else _most_gain(guarantee, job.against),
        None if guarantee is None else bench.utility_ceiling(guarantee),
    )


def _common_guarantee(points: Sequence[Point]) -> Guarantee | None:
    """The guarantee of all points; None where they differ, and so have no common ceiling."""
    promises = {point.guarantee for point in points}
    return promises.pop() if len(promises) == 1 else None


def _most_gain(guarantee: Guarantee, secrets: Sequence[Attribute]) -> float | None:
    """The most that anyone gains over chance from one text, on the worst attribute.

    The gain e^ε/(e^ε + m − 1) − 1/m depends on the number m of classes, and not by growing alone:
    at ε = 4 ten classes permit 0.758 and two 0.482, at ε = 1 ten permit 0.132 and two 0.231.
    """
    sizes = {len(item.classes) for item in secrets}
    tops = {size: ceiling_balanced(size, guarantee) for size in sizes}
    return max((top - 1 / size for size, top in tops.items() if top is not None), default=None)


def _wish(max_leakage: float | None, min_utility: float | None) -> dict[str, float]:
    if max_leakage is not None and min_utility is not None:
        raise CapeletError(
            f"give {name_field('max_leakage')} or {name_field('min_utility')}, not both"
        )
    if max_leakage is not None:
        return {"max_leakage": check_number(name_field("max_leakage"), max_leakage, 0.0, 1.0)}
    if min_utility is not None:
        return {"min_utility": check_number(name_field("min_utility"), min_utility, 0.0, 1.0)}
    return {}


def _best_points(points: Sequence[Point], wish: Mapping[str, float]) -> list[Point]:
    """At most three: the most useful that leak little enough, or the least leaky of the useful."""
    if "max_leakage" in wish:
        fit = [point for point in points if point.bound <= wish["max_leakage"]]
        return sorted(fit, key=lambda point: -point.utility)[:CONFIRMED]
    if "min_utility" in wish:
        fit = [point for point in points if point.utility >= wish["min_utility"]]
        return sorted(fit, key=lambda point: point.leakage)[:CONFIRMED]
    return []


def _space(name: str, settings: Settings) -> dict[str, Any]:
    """What may vary: (low, high) on a logarithmic scale, or a list."""
    space = method(name).space(settings.keep)
    return {key: value for key, value in space.items() if getattr(settings, key) is None}


def _optimise(space: Mapping[str, Any], evaluate: Any, trials: int) -> None:
    try:
        import optuna
    except ImportError:
        raise MissingExtra("the search for settings", "protect") from None

    def objective(trial: Any) -> tuple[float, float]:
        settings: dict[str, float | int] = {}
        for key, values in space.items():
            if isinstance(values, list):
                settings[key] = trial.suggest_categorical(key, values)
            else:
                value = trial.suggest_float(key, *values, log=True)
                settings[key] = float(f"{value:.2g}")  # what a user could have typed
        pair: tuple[float, float] = evaluate(settings)
        return pair

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Seeded, so that the same corpus gives the same search.
    study = optuna.create_study(
        directions=["minimize", "maximize"], sampler=optuna.samplers.TPESampler(seed=0)
    )
    # With nothing to vary, every trial would be the same.
    study.optimize(objective, n_trials=trials if space else 1)


class _Trials:
    """The points of a search: a defence that learns on some rows, attackers on others, all scored.

    The rows are the first defender's, as `Plan.search_split` cuts them.
    """

    def __init__(self, job: TrainingJob, vectors: Vectors, original: Vectors) -> None:
        self.job, self.vectors, self.original = job, vectors, original
        self.points: list[Point] = []
        self._defences: dict[int, Defence] = {}
        inner, label = job.plan.search_split(job.against), job.plan.label
        self.neighbours = job.settings.keep == "neighbours" or label is None
        # Of texts nothing is asked: what they say themselves is the same in every trial.
        corpus = replace(job.plan.corpus, texts=None, author=None, vectors=original)
        self.plan = replace(
            job.plan,
            corpus=corpus,
            secrets=job.against,
            label=None if self.neighbours else label,
            splits=(inner,),
        )
        self.part = part_of(job.plan, inner, vectors, job.against)
        self.utility_name = (
            "recall of ten neighbours"
            if self.neighbours or label is None
            else f"accuracy of {label.name}"
        )

    def point(self, choice: Mapping[str, Any]) -> Point:
        """A trial, from vectors that were encoded once for all of them."""
        job = self.job
        defence = fit(job.name, self.part, replace(job.settings, **choice))
        private = PrivateEncoder(*steps_with(defence, ()))
        inputs = self.vectors if private.encoder is None else job.inputs
        released = Released.of([private], inputs, self.original)
        point = self._point(released, choice)
        self._defences[len(self.points)] = defence
        self.points.append(point)
        return point

    def confirm(self, point: Point) -> Point:
        """The point as an audit would find it: what ships, attacked by all who can.

        What it is worth does not depend on who attacks, and was measured in its trial.
        """
        place = self.points.index(point)
        private = self.job.ship(self._defences[place])
        released = Released.of([private], self.job.inputs, self.original)
        # Without the task: its probe takes as long as two attributes.
        tally = guess(replace(self.plan, label=None), released)
        leakage, upper = self._worst(released, tally)
        self.points[place] = replace(point, leakage=leakage, upper=upper)
        return self.points[place]

    def utility_ceiling(self, guarantee: Guarantee) -> float | None:
        """The best accuracy of the task from one text; None where utility is another."""
        label = self.plan.label
        if label is None:
            return None
        # The class shares of the rows that score it.
        codes = label.codes[self.plan.splits[0].victims]
        bound = bound_of("accuracy", [codes[codes >= 0]], len(label.classes))
        return None if bound is None else bound(guarantee)

    def baseline(self) -> Point:
        return self._point(Released.of([PrivateEncoder()], self.original), {})

    def _point(self, released: Released, settings: Mapping[str, float | int]) -> Point:
        """What attackers read from the vectors alone, and what these are worth."""
        tally = guess(self.plan, released, from_vectors_alone=True)
        leakage, upper = self._worst(released, tally)
        utility = self._utility(tally, released.first.vectors)
        return Point(settings, leakage, utility, released.first.guarantee, upper)

    def _worst(self, released: Released, tally: Tally) -> tuple[float, float]:
        """The gain over chance and its upper end, each of the attribute where it is most.

        A mean would let one secret pay for another.
        """
        rows = [worst_case(self.plan, released, tally, item) for item in self.plan.secrets]
        gains, tops = zip(*map(_gain_of, rows), strict=True) if rows else ((0.0,), (0.0,))
        return max(gains), max(tops)

    def _utility(self, tally: Tally, vectors: Vectors) -> float:
        label, rows = self.plan.label, self.plan.splits[0].victims
        if label is None:
            return float(neighbour_recall(self.original[rows], vectors[rows]).mean())
        (guesses,) = tally.guesses["utility", label.name, "strongest"]
        return float((guesses.truth == guesses.predictions).mean())


def _gain_of(row: Finding) -> tuple[float, float]:
    """The gain over chance, and the upper end of its interval."""
    chance = row.chance or 0.0
    # A class without a row to score has no accuracy, and nothing is shown of it.
    upper = row.high if row.high is not None and np.isfinite(row.high) else 1.0
    return row.value - chance, upper - chance


def _settings_line(settings: Mapping[str, float | int]) -> str:
    return ", ".join(f"{key} {value:.3g}" for key, value in settings.items()) or "nothing to choose"
