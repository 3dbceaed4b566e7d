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

from capelet.attacks.attribute import Family, Secret, View, attack, families, one_thread
from capelet.attacks.outcomes import OutcomeTable, countable
from capelet.data.corpus import Rows, Split
from capelet.data.labels import Attribute
from capelet.defences import Defence, Settings, fit, method
from capelet.defences.fitting import Part
from capelet.errors import CapeletError, MissingExtra, name_field
from capelet.evaluation.ceilings import bound_of
from capelet.evaluation.plan import Plan
from capelet.evaluation.scores import with_unseen
from capelet.evaluation.utility import neighbour_recall
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap
from capelet.findings.metrics import Codes, Floats, Guesses, score
from capelet.findings.verdicts import Side, side_of
from capelet.interfaces import Encoder, Progress, Step, Vectors, silent
from capelet.privacy.guarantees import Guarantee, ceiling_balanced, check_count, check_number
from capelet.release import PrivateEncoder


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


def part_of(plan: Plan, parts: Split, vectors: Vectors, against: Sequence[Attribute]) -> Part:
    """What a defence may see of a split: the defender's rows, renumbered from 0."""
    rows = parts.defender
    place = np.full(len(plan.corpus), -1, dtype=np.intp)
    place[rows] = np.arange(len(rows))
    fit_rows, tune_rows = (place[some] for some in parts.training("defender"))

    def of_part(item: Attribute) -> Attribute:
        return replace(item, codes=item.codes[rows])

    task = of_part(plan.label) if plan.label is not None else None
    texts = plan.corpus.texts[rows].tolist() if plan.corpus.texts is not None else None
    secrets = tuple(of_part(item) for item in against)
    return Part(vectors[rows], fit_rows, tune_rows, task, secrets, texts)


def steps_with(defence: Defence, encoder: Sequence[Step]) -> tuple[Encoder | Step, ...]:
    """The steps of a fitted method behind those of the encoder, or behind the one it has learnt."""
    own_encoder = defence.encoder
    return (*(encoder if own_encoder is None else (own_encoder,)), *defence.steps)


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
    attackers: Sequence[str] = (),
    trials: int = 20,
    progress: Progress = silent,
) -> Frontier:
    """Try settings of a method and pick the best that meets the wish.

    What is None in the settings is searched, the others were chosen by the user. `vectors` is what
    the defence is given, `original` what the unprotected encoder gives.
    """
    wish = _wish(max_leakage, min_utility)
    bench = _Bench(plan, vectors, original, against, settings, attackers)
    points: list[Point] = []

    def evaluate(choice: Mapping[str, Any]) -> tuple[float, float]:
        point = bench.point(name, replace(settings, **choice), choice)
        points.append(point)
        progress("searching", len(points), trials)
        return point.leakage, point.utility

    _optimise(_space(name, settings), evaluate, check_count("trials", trials))
    guarantee = _common_guarantee(points)
    return Frontier(
        tuple(points),
        bench.baseline(),
        _best_point(points, wish),
        wish,
        bench.utility_name,
        None if guarantee is None else _most_gain(guarantee, against),
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
        return {"max_leakage": check_number("max-leakage", max_leakage, 0.0, 1.0)}
    if min_utility is not None:
        return {"min_utility": check_number("min-utility", min_utility, 0.0, 1.0)}
    return {}


def _best_point(points: Sequence[Point], wish: Mapping[str, float]) -> Point | None:
    """The most useful point that leaks little enough, or the least leaky that is useful enough."""
    if "max_leakage" in wish:
        candidates = [point for point in points if point.bound <= wish["max_leakage"]]
        return max(candidates, key=lambda point: point.utility, default=None)
    if "min_utility" in wish:
        candidates = [point for point in points if point.utility >= wish["min_utility"]]
        return min(candidates, key=lambda point: point.leakage, default=None)
    return None


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


class _Bench:
    """The defender's part of the first split, cut into rows to learn, to attack and to test on."""

    def __init__(
        self,
        plan: Plan,
        vectors: Vectors,
        original: Vectors,
        against: Sequence[Attribute],
        settings: Settings,
        attackers: Sequence[str],
    ) -> None:
        parts, inner = plan.splits[0], plan.search_split(against)
        # The families that will judge the result: the search must not reward what blinds some.
        self.families = families(attackers)
        self.part = part_of(plan, parts, vectors, against)
        self.original = original[parts.defender]
        self.seed = parts.seed
        self.units = plan.units[parts.defender]
        # A part numbers the defender's rows from 0.
        place = np.full(len(plan.corpus), -1, dtype=np.intp)
        place[parts.defender] = np.arange(len(parts.defender))
        self.learn_rows = place[inner.training("defender")[0]]
        self.attack_rows, self.test_rows = place[inner.attacker], place[inner.victims]
        self.neighbours = settings.keep == "neighbours" or self.part.task is None
        task = self.part.task
        self.utility_name = (
            "recall of ten neighbours"
            if self.neighbours or task is None
            else f"accuracy of {task.name}"
        )

    def point(self, name: str, settings: Settings, choice: Mapping[str, float | int]) -> Point:
        learner = replace(self.part, fit=self.learn_rows)
        defence = fit(name, learner, settings)
        # The vector steps of what would ship, from vectors that were encoded once for all points.
        private = PrivateEncoder(*steps_with(defence, ()))
        inputs = self.part.vectors if private.encoder is None else self.part.texts
        assert inputs is not None
        release = private.release(inputs)
        # As in the audit that follows: a release of few values is read by its table.
        point = self._point(release.vectors, choice, countable(private.outcomes))
        return replace(point, guarantee=release.guarantee)

    def utility_ceiling(self, guarantee: Guarantee) -> float | None:
        """The best accuracy of the task from one text; None where utility is another."""
        task = self.part.task
        if self.neighbours or task is None:
            return None
        # The class shares of the rows that score it.
        codes = task.codes[_rows_with(task, self.test_rows)]
        bound = bound_of("accuracy", [codes], len(task.classes))
        return None if bound is None else bound(guarantee)

    def baseline(self) -> Point:
        return self._point(self.original, {})

    def _point(
        self,
        vectors: Vectors,
        settings: Mapping[str, float | int],
        outcomes: int | None = None,
    ) -> Point:
        with one_thread():
            # The worst attribute counts: a mean would let one secret pay for another.
            leaks = [self._gain(vectors, item, outcomes) for item in self.part.secrets]
            leakage = max((gain for gain, _ in leaks), default=0.0)
            upper = max((top for _, top in leaks), default=0.0)
            return Point(settings, leakage, self._utility(vectors), upper=upper)

    def _gain(
        self, vectors: Vectors, item: Attribute, outcomes: int | None = None
    ) -> tuple[float, float]:
        """The strongest attacker's gain over chance, and the upper end of its interval."""
        attack_rows = _rows_with(item, self.attack_rows)
        test_rows = _rows_with(item, self.test_rows)
        readers = [OutcomeTable(outcomes)] if outcomes else self.families
        truth, scores = self._attack(vectors, item, attack_rows, test_rows, readers)
        people = np.unique(self.units[test_rows], return_inverse=True)[1]
        guesses = Guesses(truth, scores, people)
        interval = score("balanced_accuracy", [guesses], Bootstrap.over(people))
        if outcomes and guesses.degenerate:
            interval = with_unseen(interval, [guesses])
        chance = 1 / len(item.classes)
        # A class without a row to score has no accuracy, and nothing is shown of it.
        upper = interval.high if np.isfinite(interval.high) else 1.0
        return interval.value - chance, upper - chance

    def _utility(self, vectors: Vectors) -> float:
        task = self.part.task
        if self.neighbours or task is None:
            return float(
                neighbour_recall(self.original[self.test_rows], vectors[self.test_rows]).mean()
            )
        learn_rows = _rows_with(task, self.learn_rows)
        test_rows = _rows_with(task, self.test_rows)
        truth, scores = self._attack(vectors, task, learn_rows, test_rows, None)
        return float((truth == scores.argmax(axis=1)).mean())

    def _attack(
        self,
        vectors: Vectors,
        item: Attribute,
        rows: Rows,
        test_rows: Rows,
        readers: Sequence[Family] | None,
    ) -> tuple[Codes, Floats]:
        """What is true of the rows to score, and what the strongest of these says of them.

        Without readers of a secret it is the task, whose classes are not weighed.
        """
        # Settings are chosen by cross-validation: no row is spared for that.
        # Folds go by person, as in an audit.
        view = View(vectors, rows, rows[:0], test_rows, self.seed, self.units)
        secret = Secret(view, item.codes, len(item.classes), balanced=readers is not None)
        result = attack(view, secret, readers or self.families)
        return secret.codes.scored, result.best[result.strongest].scored


def _rows_with(item: Attribute, rows: Rows) -> Rows:
    return rows[item.codes[rows] >= 0]


def _settings_line(settings: Mapping[str, float | int]) -> str:
    return ", ".join(f"{key} {value:.3g}" for key, value in settings.items()) or "nothing to choose"
