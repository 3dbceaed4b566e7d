"""Rows of a study: one measurement of one cell, and which of them may be compared.

A cell is one split of one combination of axes. Cells that share a split share its people, so that
they rise and fall together: a comparison is made within splits, never between them. `gather` puts
rows into such a design, counts what is left out of it, and refuses what no test could bear.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.errors import DataError, did_you_mean
from capelet.findings.finding import Finding, Findings
from capelet.studies.documents import AttackerName, Axes, Count, Flag, Number, Value, Word

Level = str | float
# A combination of levels, and the split that it was measured in.
Place = tuple[tuple[Level, ...], tuple[Level, ...]]
# Fields of a row that can stand for an axis: a table of attributes has its targets as columns.
FIELDS = ("kind", "target", "metric")
# Of a finding only what its own part chose is a row: the best on victims would be picked by luck.
ATTACKER, STRONGEST = "attacker", "strongest"
CHOICE = (None, STRONGEST)
# The level of a row on an axis that it does not have.
ABSENT = "–"
# Why a cell may be degenerate.
CONSTANT_GUESSES, SINGLE_CLASS = "constant guesses", "victims of one class"
# Metrics that the class guessed decides; others rank victims by scores, which no store keeps.
OF_GUESSES = ("accuracy", "balanced_accuracy", "f1_weighted", "f1_macro")


@dataclass(frozen=True, eq=False)
class PseudonymGuesses:
    """The class guessed of each victim of a cell, under pseudonyms; it never leaves the store.

    `authors` groups victims by person (or by identical texts). The same person has the same
    pseudonym in every cell, so that cells can be compared in pairs.
    """

    victims: npt.NDArray[Any]
    authors: npt.NDArray[Any]
    truth: npt.NDArray[np.integer[Any]]
    guess: npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Row:
    """One measurement of one cell; `seed` names the split.

    A `degenerate` one tells nothing: its guesses are constant or, with `single_class`, its victims
    are all of one class, so that balanced accuracy is the recall of that class alone, which a
    constant guess drives to 1. `winner` is the attacker that was chosen in this split, and `holds`
    what it had beside labels. A `candidate` is one of those among whom the choice was made: it is
    shown where attackers are compared, and nowhere else, since the best of them on victims would be
    picked by luck.
    """

    axes: Axes
    seed: Count
    kind: Word
    target: Word
    metric: Word
    value: Value
    degenerate: Flag = False
    chance: Number | None = None
    guesses: PseudonymGuesses | None = None
    winner: AttackerName | None = None
    holds: AttackerName | None = None
    candidate: Flag = False
    single_class: Flag = False

    @property
    def is_usable(self) -> bool:
        """Whether it has a number that tells something."""
        return math.isfinite(self.value) and not self.degenerate


@dataclass(frozen=True)
class Exclusions:
    """What a result is without: cells that tell nothing, for either reason, and missing ones.

    >>> Exclusions(2, ("cape, split 1",)).sentence
    '2 degenerate cells left out (constant guesses); 1 cell without a value (cape, split 1).'
    >>> Exclusions(single_class=1).sentence
    '1 degenerate cell left out (victims of one class).'
    """

    degenerate: Count = 0
    missing: tuple[Word, ...] = ()
    single_class: Count = 0

    @classmethod
    def of(cls, groups: Iterable[Sequence[Row]], missing: tuple[str, ...] = ()) -> Exclusions:
        """The degenerate ones among groups that stay or go together, each counted once."""
        single, constant = 0, 0
        for group in groups:
            # One class among the victims is the reason of whatever was guessed of them.
            is_single = any(row.single_class for row in group)
            single += is_single
            constant += not is_single and any(row.degenerate for row in group)
        return cls(constant, missing, single)

    @property
    def sentence(self) -> str:
        reasons = ((self.degenerate, CONSTANT_GUESSES), (self.single_class, SINGLE_CLASS))
        parts = [
            f"{count_of(count, 'degenerate cell')} left out ({reason})"
            for count, reason in reasons
            if count
        ]
        if self.missing:
            parts.append(
                f"{count_of(len(self.missing), 'cell')} without a value ({_listing(self.missing)})"
            )
        return "; ".join(parts) + "." if parts else ""


@dataclass(frozen=True)
class Design:
    """Values by combination and split, at most one each, and what was left out."""

    factors: tuple[str, ...]
    values: Mapping[Place, float]
    exclusions: Exclusions

    @property
    def splits(self) -> int:
        return len({split for _, split in self.values})

    def levels(self, place: int) -> tuple[Level, ...]:
        """The levels of a factor, in the order of the rows."""
        return tuple(dict.fromkeys(levels[place] for levels, _ in self.values))


def rows_of(
    findings: Findings, axes: Mapping[str, Level], seed: int, guesses: Any = None
) -> list[Row]:
    """The measurements of a cell's findings as rows: of the attacker chosen on its own part.

    `guesses` is the cell's table in the store, if it has one: kind, target, victim, unit (both
    pseudonyms), truth and guess.
    """
    by_target = {} if guesses is None else _guesses_by_target(guesses)
    single = single_class_targets(findings)
    return [
        replace(
            row_of(item, axes, seed, item.target in single),
            guesses=by_target.get((item.kind, item.target)) if item.metric in OF_GUESSES else None,
            # One name has all the counts: a cell has one split.
            winner=next(iter(item.parameters.get("chosen", {})), None),
        )
        for item in findings
        if item.attacker in CHOICE and item.subgroup is None
    ]


def row_of(item: Finding, axes: Mapping[str, Level], seed: int, single_class: bool) -> Row:
    """A finding of a cell as a row; one whose victims are all of a `single_class` tells nothing."""
    return Row(
        axes,
        seed,
        item.kind,
        item.target,
        item.metric,
        item.value,
        item.degenerate or single_class,
        item.chance,
        holds=item.parameters.get("holds"),
        single_class=single_class,
    )


def single_class_targets(findings: Findings) -> set[str]:
    """The targets whose victims are all of one class.

    Findings have no counts of classes, but `majority` of the accuracy is the share of the commonest
    class among victims: whoever names it always is always right where there is no other.
    """
    return {
        item.target
        for item in findings
        if item.metric == "accuracy" and item.majority == 1.0 and item.subgroup is None
    }


def _guesses_by_target(table: Any) -> dict[tuple[str, str], PseudonymGuesses]:
    """The guesses of an Arrow table, by kind and target."""
    columns = {
        name: np.asarray(table.column(name).to_pylist())
        for name in ("kind", "target", "victim", "unit", "truth", "guess")
    }
    pairs = dict.fromkeys(zip(columns["kind"].tolist(), columns["target"].tolist(), strict=True))
    result = {}
    for kind, target in pairs:
        own = (columns["kind"] == kind) & (columns["target"] == target)
        arrays = (columns[name][own] for name in ("victim", "unit", "truth", "guess"))
        result[kind, target] = PseudonymGuesses(*arrays)
    return result


def pick(rows: Iterable[Row], **levels: Level) -> list[Row]:
    """The rows that have all these levels.

    >>> rows = [Row({"method": name}, 0, "utility", "stars", "accuracy", 0.8) for name in "ab"]
    >>> [row.axes["method"] for row in pick(rows, method="a", metric="accuracy")]
    ['a']
    """
    return [
        row
        for row in rows
        if is_asked_for(row, levels)
        and all(has_level(row, name, level) for name, level in levels.items())
    ]


def is_asked_for(row: Row, names: Container[str]) -> bool:
    """Whether somebody who names these axes means the row: candidates only by their attacker."""
    return not row.candidate or ATTACKER in names


def level_of(row: Row, axis: str) -> Level | None:
    """The row's level on an axis, which may be one of `FIELDS`; None where it has no such axis."""
    if axis == ATTACKER and row.winner is not None:
        return STRONGEST
    return getattr(row, axis) if axis in FIELDS else row.axes.get(axis)


def has_level(row: Row, axis: str, level: Level) -> bool:
    """Whether the row has this level on the axis; `–` is that of rows without the axis.

    >>> row = Row({"method": "none"}, 0, "utility", "stars", "accuracy", 0.8)
    >>> has_level(row, "method", "none"), has_level(row, "epsilon", "–")
    (True, True)
    """
    return _level(row, axis) == level


def split_of(row: Row, blocks: Sequence[str]) -> tuple[Level, ...]:
    """The split of a row: split 0 of one corpus is not split 0 of another, which `blocks` says."""
    return (*(_level(row, name) for name in blocks), row.seed)


def gather(rows: Sequence[Row], factors: Sequence[str], blocks: Sequence[str] = ()) -> Design:
    """The rows as a design of these factors, within splits.

    Degenerate cells and values that are no number are left out and counted. Refused: no rows, an
    axis that nobody has, and two values for one combination in one split, which would count the
    same people twice.
    """
    _check_axes(rows, (*factors, *blocks))
    _check_single(rows, factors, blocks)
    values: dict[Place, Row] = {}
    for row in rows:
        place = tuple(_level(row, name) for name in factors), split_of(row, blocks)
        if place in values:
            raise DataError(
                f"{_name(*place)} has two values; give each cell once, or name the axis in which "
                "they differ as a factor"
            )
        values[place] = row
    return Design(
        tuple(factors),
        {place: row.value for place, row in values.items() if row.is_usable},
        Exclusions.of(([row] for row in values.values()), _missing(values, len(factors))),
    )


def _missing(values: Mapping[Place, Row], factors: int) -> tuple[str, ...]:
    """Every combination of the levels that occur should have a value in every split."""
    levels = [dict.fromkeys(place[0][i] for place in values) for i in range(factors)]
    splits = dict.fromkeys(place[1] for place in values)
    places = itertools.product(itertools.product(*levels), splits)
    # A value that is no number was tried, and gave nothing: the same as none.
    return tuple(
        _name(*place)
        for place in places
        if place not in values
        or not (values[place].degenerate or math.isfinite(values[place].value))
    )


def _check_axes(rows: Sequence[Row], names: Sequence[str]) -> None:
    if not rows:
        raise DataError("there are no rows to analyse; choose axes and a metric that the study has")
    axes = {name for row in rows for name in row.axes} | set(FIELDS)
    for name in names:
        if name not in axes:
            raise DataError(f"no row has the axis {name!r}; {did_you_mean(name, axes)}")


def _check_single(rows: Sequence[Row], factors: Sequence[str], blocks: Sequence[str]) -> None:
    """Outside the factors nothing may vary within a combination: means would mix unlike things."""
    others = {name for row in rows for name in row.axes} | set(FIELDS)
    others -= {*factors, *blocks}
    level_by_key: dict[tuple[Any, ...], Level | None] = {}
    for row in rows:
        combination = tuple(level_of(row, name) for name in factors)
        for name in sorted(others):
            # One metric of one target for all; settings of a method may go with the method.
            key = (name,) if name in FIELDS else (name, combination)
            if level_by_key.setdefault(key, level_of(row, name)) != level_of(row, name):
                raise DataError(
                    f"{name!r} varies among these rows; choose one of its levels, or name it as a "
                    "factor, or as a block where it decides the split"
                )


def _level(row: Row, axis: str) -> Level:
    level = level_of(row, axis)
    # Methods without such a setting are a level of their own, not a gap.
    return ABSENT if level is None else level


def _name(levels: Sequence[Level], split: Sequence[Level]) -> str:
    """`cape, 0.1, split 3`."""
    return ", ".join([*map(format_level, levels), f"split {' '.join(map(format_level, split))}"])


def format_level(level: Level) -> str:
    """A level as a reader writes it: numbers without trailing zeros.

    >>> format_level(1.0), format_level("cape")
    ('1', 'cape')
    """
    return level if isinstance(level, str) else f"{level:g}"


def count_of(count: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _listing(names: Sequence[str], most: int = 5) -> str:
    more = len(names) - most
    return "; ".join(names[:most]) + (f"; and {more} more" if more > 0 else "")
