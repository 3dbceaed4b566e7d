"""Two methods at equal utility: what each leaks where their task scores are the same.

A method that is private because it is useless would win any table of leakage alone. Each method is
measured along one of its settings (ε, λ); between two settings that were measured its leakage is
read by a straight line, at the same task score for both. Beyond the ends nothing was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.findings.intervals import percentile
from capelet.findings.metrics import Floats
from capelet.studies.documents import Count, Number, Sentence, Triple, Word
from capelet.studies.resampling import People, Splits, Unit, units_of
from capelet.studies.rows import Level, Row, gather, level_of, split_of
from capelet.studies.statistics import CONDITIONAL

# A few resampled sweeps may end just short of the level; more of them, and the ends of the interval
# would be those of another question.
MOST_BEYOND = 0.05


@dataclass(frozen=True)
class MatchedComparison:
    """Two methods at equal utility, each along `axis`: levels of both sides, and the two measures.

    `at` is the task score; without it the first has a single setting, whose score it is.
    """

    first: Mapping[str, Level]
    second: Mapping[str, Level]
    axis: str
    utility: Mapping[str, Level]
    leakage: Mapping[str, Level]
    at: float | None = None

    def check(self, axes: Sequence[str]) -> None:
        """Both sides go along an axis of the plan; a slip would show only on the finished page."""
        for side in (self.first, self.second):
            if not isinstance(side, Mapping) or not side:
                raise CapeletError("a side of a comparison at equal utility names its levels")
        for name in (self.axis, *self.first, *self.second):
            if name not in axes:
                raise CapeletError(
                    f"a comparison at equal utility names {name!r}, which is no axis of the plan; "
                    f"{did_you_mean(str(name), axes)}"
                )


@dataclass(frozen=True)
class Sweep:
    """A method along one of its settings: rows of its task and of what leaks, at each setting."""

    name: str
    axis: str
    utility: Sequence[Row]
    leakage: Sequence[Row]

    @property
    def rows(self) -> list[Row]:
        return [*self.utility, *self.leakage]

    def without(self, splits: set[tuple[Level, ...]], blocks: Sequence[str]) -> Sweep:
        """The sweep on the other splits."""
        utility, leakage = (
            [row for row in rows if split_of(row, blocks) not in splits]
            for rows in (self.utility, self.leakage)
        )
        return replace(self, utility=utility, leakage=leakage)


@dataclass(frozen=True)
class MatchedDifference:
    """The leakage of two methods where their task scores are equal, and second minus first.

    Each is value, low and high. `utility` is the task score at which they are compared.
    """

    first: Word
    second: Word
    target: Word
    metric: Word
    utility: Number
    first_leakage: Triple
    second_leakage: Triple
    difference: Triple
    unit: Unit
    n: Count
    degenerate: Count = 0
    note: Sentence = CONDITIONAL
    single_class: Count = 0


def compare_at_utility(
    first: Sweep, second: Sweep, utility: float | None = None, blocks: Sequence[str] = ()
) -> MatchedDifference:
    """What two methods leak at the same task score, between the settings that were measured.

    `utility` may be left out where the first has a single setting, whose own score is then the
    level. Beyond the ends of a sweep nothing was measured, and nothing is said. Authors are
    resampled where every row has its guesses, else splits.
    """
    # Victims are those of the split, whatever the setting: where they are all of one class, the
    # split shows nothing of either method.
    single = {split_of(row, blocks) for row in (*first.rows, *second.rows) if row.single_class}
    first, second = (sweep.without(single, blocks) for sweep in (first, second))
    rows = [*first.rows, *second.rows]
    for sweep in (first, second):
        _check_splits(sweep, {split_of(row, blocks) for row in rows}, blocks)
    units = units_of(rows, blocks)
    lines = [_Line.trace(sweep, units) for sweep in (first, second)]
    if utility is not None:
        level = np.full(len(lines[0].utility[0]), utility)
    elif len(lines[0].settings) == 1:
        level = lines[0].utility[0]
    else:
        raise DataError(
            f"{first.name!r} has {len(lines[0].settings)} settings; say at which task score both "
            "are compared"
        )
    leakage = [line.leakage_at(level) for line in lines]
    scores = [percentile(item, people=units.count) for item in leakage]
    score = percentile(leakage[1] - leakage[0], people=units.count)
    sample = first.leakage[0]
    return MatchedDifference(
        first.name,
        second.name,
        sample.target,
        sample.metric,
        float(level[0]),
        scores[0].ends,
        scores[1].ends,
        score.ends,
        units.unit,
        units.count,
        sum(line.degenerate for line in lines),
        single_class=len(single),
    )


@dataclass(frozen=True, eq=False)
class _Line:
    """A sweep under all draws: utility and leakage, one row per setting, in the order of it."""

    name: str
    settings: tuple[float, ...]
    utility: tuple[Floats, ...]
    leakage: tuple[Floats, ...]
    degenerate: int

    @classmethod
    def trace(cls, sweep: Sweep, units: People | Splits) -> _Line:
        """The draws at each setting that both the task and the attacker have."""
        by_setting = [_by_setting(rows, sweep) for rows in (sweep.utility, sweep.leakage)]
        settings = sorted(set(by_setting[0]) & set(by_setting[1]))
        # A constant guess leaks nothing and shows nothing; the setting goes, and is counted.
        constant = [item for item in settings if any(row.degenerate for row in by_setting[1][item])]
        settings = [item for item in settings if item not in constant]
        if not settings:
            raise DataError(f"{sweep.name!r} has no setting with both a task and an attacker")
        utility, leakage = (
            tuple(units.mean(rows[item]) for item in settings) for rows in by_setting
        )
        return cls(sweep.name, tuple(settings), utility, leakage, len(constant))

    def leakage_at(self, level: Floats) -> Floats:
        """The leakage where the task score is `level`, by straight lines along the sweep."""
        if len(self.settings) == 1 and np.array_equal(self.utility[0], level):
            return self.leakage[0]
        draws = _cross(np.stack(self.utility), np.stack(self.leakage), level)
        ends = [float(values[0]) for values in self.utility]
        if np.isnan(draws[0]) or np.isnan(draws[1:]).mean() > MOST_BEYOND:
            nearness = "lies outside" if np.isnan(draws[0]) else "lies too near an end of"
            raise DataError(
                f"a task score of {level[0]:.3f} {nearness} what {self.name!r} reaches "
                f"({min(ends):.3f} to {max(ends):.3f}); choose one within, or measure more settings"
            )
        return draws


def _cross(utility: Floats, leakage: Floats, level: Floats) -> Floats:
    """Leakage at the crossings of a level, draw by draw; NaN where a sweep never crosses it.

    Noise may let a sweep cross a level twice. The mean of the crossings is taken: the least of them
    would be picked by luck.
    """
    before, after = utility[:-1], utility[1:]
    crosses = (before - level) * (after - level) <= 0
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(after == before, 0.5, (level - before) / (after - before))
        places = leakage[:-1] + share * (leakage[1:] - leakage[:-1])
        return np.asarray(np.where(crosses, places, 0.0).sum(axis=0) / crosses.sum(axis=0))


def _check_splits(sweep: Sweep, splits: set[tuple[Level, ...]], blocks: Sequence[str]) -> None:
    """Every setting on every split, or a hard split would count for some settings only."""
    for rows in (sweep.utility, sweep.leakage):
        # Also refuses two values of one setting in one split.
        gather(rows, [sweep.axis], blocks)
        for setting, group in _by_setting(rows, sweep).items():
            if {split_of(row, blocks) for row in group} != splits:
                raise DataError(
                    f"{sweep.name!r} at {sweep.axis} = {setting:g} lacks some of the splits; "
                    "measure both methods on the same splits"
                )


def _by_setting(rows: Sequence[Row], sweep: Sweep) -> dict[float, list[Row]]:
    """The rows at each setting; a value that is no number is as good as none."""
    groups: dict[float, list[Row]] = {}
    for row in rows:
        if not math.isfinite(row.value):
            continue
        setting = level_of(row, sweep.axis)
        if isinstance(setting, str) or setting is None:
            # Between names there is nothing to interpolate; a single setting needs no number.
            if len({level_of(item, sweep.axis) for item in rows}) > 1:
                raise DataError(
                    f"{sweep.axis!r} of {sweep.name!r} is no number in every row, so its settings "
                    "have no order to go along"
                )
            setting = 0.0
        groups.setdefault(float(setting), []).append(row)
    return groups
