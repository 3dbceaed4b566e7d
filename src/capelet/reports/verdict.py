"""A verdict: what an attacker learnt, in plain words, and how much of a leak that is.

A verdict only reads, subtracts what needs no vectors and rounds; every number in it stands in the
findings. "No leak found" is said when the interval includes chance, and never as "no leak".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from capelet.findings import Finding, Findings
from capelet.reports.words import decimal, is_number, points

Level = Literal["none", "slight", "clear", "strong"]
LEVELS: tuple[Level, ...] = ("none", "slight", "clear", "strong")
# Gains over chance at which a leak is called clear, and strong: one reader in twenty, one in seven.
SLIGHT, CLEAR = 0.05, 0.15


@dataclass(frozen=True)
class Verdict:
    """What the strongest attacker learnt about one attribute, against chance.

    `statement` is the verdict, `warnings` say why it may not be trusted, `sentence` is both. What
    `chance` is the score of is said by `base`: the words of a text have a better one than chance.
    """

    target: str
    level: Level
    statement: str
    warnings: tuple[str, ...]
    value: float | None
    low: float | None
    high: float | None
    chance: float | None
    gain: float | None
    low_gain: float | None
    high_gain: float | None
    predicted_label: float | None = None
    text: float | None = None
    null: float | None = None
    ceiling: float | None = None
    degenerate: bool = False
    base: str = "by chance"

    @property
    def sentence(self) -> str:
        return " ".join((self.statement, *self.warnings))

    @property
    def title(self) -> str:
        """The level in two words, as a label on the verdict."""
        if self.degenerate:
            return "no leak found, all guesses the same"
        return "no leak found" if self.level == "none" else f"{self.level} leak"


def first(findings: Findings, **fields: Any) -> Finding | None:
    """The row that matches, a mean over seeds and all subgroups before a part of them."""
    rows = findings.select(**fields)
    # Means over seeds and all victims first; a single seed or a subgroup only where nothing else
    # is.
    rows.sort(key=lambda row: (row.seed is not None, row.subgroup is not None))
    return rows[0] if rows else None


def targets(findings: Findings, kind: str) -> list[str]:
    """The targets of a kind in the order in which they were measured."""
    return list(dict.fromkeys(row.target for row in findings if row.kind == kind))


def level_of(row: Finding) -> Level:
    """`none` when the interval includes chance or the guesses are constant, else by the gain."""
    gain = minus(row.value, row.chance)
    # Judged by the lower end: a gain within the interval's width may be chance.
    floor = row.low if is_number(row.low) else row.value
    if gain is None or floor is None or row.chance is None or row.degenerate:
        return "none"
    if floor <= row.chance:
        return "none"
    gain = round(gain, 9)  # 0.55 − 0.5 is a little more, 1/3 + 0.05 − 1/3 a little less
    return "slight" if gain < SLIGHT else "clear" if gain < CLEAR else "strong"


def gain_in_points(value: float | None, base: float | None, digits: int = 0) -> str:
    """The gain, with a decimal where the rounded numbers beside it would seem to contradict it."""
    gain = minus(value, base)
    if gain is None or value is None or base is None:
        return points(None)
    # 78 % against 50 % must not be called 27 points because 77.6 − 50.4 is 27.2.
    words = int(decimal(100 * gain).replace("−", "-"))
    beside = round(100 * value) - round(100 * base)
    return points(gain, digits if words == beside else 1)


def value_of(row: Finding | None) -> float | None:
    """The row's number; None where there is no row or no number."""
    return row.value if row is not None and is_number(row.value) else None


def minus(value: float | None, base: float | None) -> float | None:
    """The difference; None where one of the two is unknown."""
    if value is None or base is None or not (is_number(value) and is_number(base)):
        return None
    return value - base
