"""What a score with its interval shows: a leak, no leak, or neither; the one place that decides.

Page, terminal, Markdown, gates and searches all ask here, so that they cannot contradict each
other. Three outcomes:

- *leak*: the whole 95 % interval lies above what needs no vectors (and above the control's);
- *no leak found*: the interval is narrow (half its width at most `MARGIN`) and its upper end lies
  less than `MARGIN` above chance, so that a larger leak would have been seen by these attackers;
- *inconclusive*: all else. A wide interval that reaches chance is lack of data, not a result.

A limit (a gate, a wish) is read the same way: shown to be kept, shown to be broken, or neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from capelet.findings.finding import Finding

Level = Literal["none", "inconclusive", "slight", "clear", "strong"]
LEVELS: tuple[Level, ...] = ("none", "inconclusive", "slight", "clear", "strong")
# The gain that an interval must be able to exclude before "no leak found" is said: below five
# points a leak is called slight.
MARGIN = 0.05
# Gains over chance at which a leak is called clear, and strong: one reader in twenty, one in seven.
CLEAR_FROM, STRONG_FROM = 0.05, 0.15
# 0.55 − 0.5 is a little more than 0.05 in binary fractions, 1/3 + 0.05 − 1/3 a little less.
_DIGITS = 9


class Outcome(StrEnum):
    """What was shown, in the words that every report uses."""

    LEAK = "leak"
    INCONCLUSIVE = "inconclusive"
    NO_LEAK_FOUND = "no leak found"


@dataclass(frozen=True)
class Judgement:
    """The outcome, how large a leak is, and how many people would decide what is not decided.

    `people` are those who were scored; `people_needed` is None where the outcome is clear, and
    where more of the same people would not settle it.
    """

    outcome: Outcome
    level: Level
    people: int | None = None
    people_needed: int | None = None


def outcome_of(level: Level) -> Outcome:
    """The outcome that a level belongs to."""
    if level == "none":
        return Outcome.NO_LEAK_FOUND
    return Outcome.INCONCLUSIVE if level == "inconclusive" else Outcome.LEAK


def classify(row: Finding, base: float | None = None, control: Finding | None = None) -> Judgement:
    """What a row shows against `base` (its chance, unless given) and against its control.

    Constant guesses (`degenerate`) are at chance by construction: they never show that there is no
    leak. They do not hide one either, should other seeds lie above chance.
    """
    people, base = people_of(row), row.chance if base is None else base
    ends = _ends(row)
    if ends is None or base is None:
        # One number without an interval cannot be told from luck.
        return Judgement(Outcome.INCONCLUSIVE, "inconclusive", people)
    value, low, high = ends
    floor = max(base, _top(control))
    if low > floor:
        return Judgement(Outcome.LEAK, _strength(value - base), people)
    if not row.degenerate and _is_tight(low, high, base):
        return Judgement(Outcome.NO_LEAK_FOUND, "none", people)
    target = None if row.degenerate else _people_needed(ends, base, floor, people)
    return Judgement(Outcome.INCONCLUSIVE, "inconclusive", people, target)


class Side(StrEnum):
    """On which side of a limit the gain over chance was shown to lie."""

    UNDER = "under"
    OVER = "over"
    UNCLEAR = "unclear"


def side_of(row: Finding, limit: float) -> Side:
    """Where the whole 95 % interval of the gain over chance lies: under a limit, over it, on both.

    >>> row = Finding("attribute-inference", "age", "balanced_accuracy", 0.66, 0.46, 0.86, 0.5)
    >>> str(side_of(row, 0.1)), str(side_of(row, 0.4))
    ('unclear', 'under')
    """
    ends = _ends(row)
    if ends is None or row.chance is None:
        return Side.UNCLEAR
    _, low, high = (round(end - row.chance, _DIGITS) for end in ends)
    if low > limit:
        return Side.OVER
    # Constant guesses lie at chance whatever the vectors hold.
    return Side.UNDER if high < limit and not row.degenerate else Side.UNCLEAR


def people_of(row: Finding) -> int | None:
    """How many different people were scored over all seeds; texts, where findings do not say."""
    people = row.parameters.get("people", row.n)
    return people if isinstance(people, int) else None


def _ends(row: Finding) -> tuple[float, float, float] | None:
    if row.low is None or row.high is None:
        return None
    ends = (row.value, row.low, row.high)
    # A finding that was read from JSON may hold null for what was not finite.
    if any(end is None or not math.isfinite(end) for end in ends):
        return None
    return ends


def _top(control: Finding | None) -> float:
    """The upper end of the control: the best of several attackers must clear it too."""
    if control is None:
        return -math.inf
    top = control.value if control.high is None else control.high
    return top if top is not None and math.isfinite(top) else -math.inf


def _strength(gain: float) -> Level:
    gain = round(gain, _DIGITS)
    return "slight" if gain < CLEAR_FROM else "clear" if gain < STRONG_FROM else "strong"


def _is_tight(low: float, high: float, base: float) -> bool:
    half, room = (high - low) / 2, high - base
    return round(half, _DIGITS) <= MARGIN and round(room, _DIGITS) < MARGIN


def _people_needed(
    ends: tuple[float, float, float], base: float, floor: float, people: int | None
) -> int | None:
    """How many people would decide it, if the score stayed where it is.

    An interval shrinks with the root of the number of people. Two ways lead out: the lower end
    rises above the floor (a leak), or the upper end falls below the margin (no leak found); the
    shorter one counts.
    """
    value, low, high = ends
    if people is None or high <= low:
        return None
    factors = []
    if value > floor:
        factors.append((value - low) / (value - floor))
    room = MARGIN - (value - base)
    if room > 0:
        factors.append(max((high - low) / 2 / MARGIN, (high - value) / room))
    if not factors:
        return None
    # One more at least: with these people it was not decided.
    return max(people + 1, math.ceil(people * min(factors) ** 2))
