"""What a score with its interval shows: a leak, no leak, or neither; the one place that decides.

Page, terminal, Markdown, gates and searches all ask here, so that they cannot contradict each
other. Three outcomes:

- *leak*: the whole 95 % interval lies above what needs no vectors (and above the control's);
- *no leak found*: the interval is narrow (half its width at most `MARGIN`) and its upper end lies
  less than `MARGIN` above chance, so that a larger leak would have been seen by these attackers;
- *inconclusive*: all else. A wide interval that reaches chance is lack of data, not a result.

A limit (a gate, a wish) is read the same way: shown to be kept, shown to be broken, or neither.
All is decided on figures as they are printed, so that a reader who checks a sentence by hand finds
what it says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from capelet.findings.finding import Finding

Level = Literal["none", "inconclusive", "slight", "clear", "strong"]
# The gain that an interval must be able to exclude before "no leak found" is said: below five
# points a leak is called slight.
MARGIN = 0.05
# Gains over chance at which a leak is called clear, and strong: one reader in twenty, one in seven.
CLEAR_FROM, STRONG_FROM = 0.05, 0.15
# Figures are shares in tenths of a per cent; whole per cents do where they say the same.
TENTHS, WHOLE = 3, 2
# A gain below two points is lost in whole per cents.
SMALL = 0.02


class Outcome(StrEnum):
    """What was shown, in the words that every report uses."""

    LEAK = "leak"
    INCONCLUSIVE = "inconclusive"
    NO_LEAK_FOUND = "no leak found"


def rounded(number: float, digits: int = 0) -> float:
    """To so many decimals, halves away from zero, as every report prints a number.

    >>> rounded(12.5), rounded(-0.6496, 3)
    (13.0, -0.65)
    """
    scale = 10**digits
    # Not round(), which takes halves to even; 1e-9 for halves that binary fractions just miss.
    return math.copysign(math.floor(abs(number) * scale + 0.5 + 1e-9) / scale, number)


@dataclass(frozen=True)
class Figures:
    """A score, its interval and what needs no vectors, rounded; None for what is not known.

    `decimals` are those of the per cents that a sentence prints.
    """

    value: float | None
    low: float | None
    high: float | None
    base: float | None
    decimals: int = 1

    @classmethod
    def of(cls, row: Finding, base: float | None = None, digits: int = TENTHS) -> Figures:
        """A row's figures against `base`, its chance unless given."""
        numbers = (row.value, row.low, row.high, row.chance if base is None else base)
        # A finding that was read from JSON may hold null for what was not finite.
        value, low, high, chance = (
            rounded(n, digits) if n is not None and math.isfinite(n) else None for n in numbers
        )
        return cls(value, low, high, chance)

    @property
    def gain(self) -> float | None:
        return self._over_base(self.value)

    @property
    def low_gain(self) -> float | None:
        return self._over_base(self.low)

    @property
    def high_gain(self) -> float | None:
        return self._over_base(self.high)

    def _over_base(self, number: float | None) -> float | None:
        # 0.55 − 0.5 is a little more than 0.05 in binary fractions.
        return None if number is None or self.base is None else rounded(number - self.base, TENTHS)


@dataclass(frozen=True)
class Judgement:
    """The outcome, how large a leak is, and how many people would decide what is not decided.

    `people` are those who were scored; `people_needed` is None where the outcome is clear, and
    where more of the same people would not settle it.
    """

    level: Level
    figures: Figures
    people: int | None = None
    people_needed: int | None = None

    @property
    def outcome(self) -> Outcome:
        if self.level == "none":
            return Outcome.NO_LEAK_FOUND
        return Outcome.INCONCLUSIVE if self.level == "inconclusive" else Outcome.LEAK


def classify(row: Finding, base: float | None = None, control: Finding | None = None) -> Judgement:
    """What a row shows against `base` (its chance, unless given) and against its control.

    Constant guesses (`degenerate`) are at chance by construction: they never show that there is no
    leak. They do not hide one either, should other seeds lie above chance.
    """
    figures = Figures.of(row, base)
    top = _top(control)
    level = _level(figures, top, row.degenerate)
    people = people_of(row)
    needed = None
    if level == "inconclusive" and not row.degenerate:
        needed = _people_needed(figures, top, people)
    whole = Figures.of(row, base, WHOLE)
    if _level(whole, top, row.degenerate) == level and _reads_alike(figures, whole):
        figures = replace(figures, decimals=0)
    return Judgement(level, figures, people, needed)


def _level(figures: Figures, top: float, degenerate: bool) -> Level:
    value, low, high, base = figures.value, figures.low, figures.high, figures.base
    if value is None or low is None or high is None or base is None:
        # One number without an interval cannot be told from luck.
        return "inconclusive"
    if low > max(base, top):
        gain = rounded(value - base, TENTHS)
        return "slight" if gain < CLEAR_FROM else "clear" if gain < STRONG_FROM else "strong"
    width, room = rounded(high - low, TENTHS), rounded(high - base, TENTHS)
    is_tight = width <= 2 * MARGIN and room < MARGIN
    return "none" if is_tight and not degenerate else "inconclusive"


def _reads_alike(figures: Figures, whole: Figures) -> bool:
    """Whether whole per cents hide no small gain, and are what the tenths and gains round to."""
    names = ("value", "low", "high", "base", "gain", "high_gain")
    pairs = [(getattr(figures, name), getattr(whole, name)) for name in names]
    is_small = figures.gain is not None and abs(figures.gain) < SMALL
    return not is_small and all(a is None or rounded(a, WHOLE) == b for a, b in pairs)


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
    figures = Figures.of(row)
    if figures.low_gain is None or figures.high_gain is None:
        return Side.UNCLEAR
    if figures.low_gain > limit:
        return Side.OVER
    # Constant guesses lie at chance whatever the vectors hold.
    return Side.UNDER if figures.high_gain < limit and not row.degenerate else Side.UNCLEAR


def people_of(row: Finding) -> int | None:
    """How many different people were scored over all seeds; texts, where findings do not say."""
    people = row.parameters.get("people", row.n)
    return people if isinstance(people, int) else None


def _top(control: Finding | None) -> float:
    """The upper end of the control: the best of several attackers must clear it too."""
    if control is None:
        return -math.inf
    figures = Figures.of(control)
    top = figures.value if figures.high is None else figures.high
    return -math.inf if top is None else top


def _people_needed(figures: Figures, top: float, people: int | None) -> int | None:
    """How many people would decide it, if the score stayed where it is.

    An interval shrinks with the root of the number of people. Two ways lead out: the lower end
    rises above the floor (a leak), or the upper end falls below the margin (no leak found); the
    shorter one counts.
    """
    value, low, high, base = figures.value, figures.low, figures.high, figures.base
    if people is None or value is None or low is None or high is None or base is None:
        return None
    if high <= low:
        return None
    # An end is beyond a border once it is printed so, which half a step does.
    step = 10**-TENTHS / 2
    factors = []
    if value - max(base, top) > step:
        factors.append((value - low) / (value - max(base, top) - step))
    room = MARGIN - (value - base) - step
    if room > 0:
        factors.append(max((high - low) / 2 / (MARGIN + step), (high - value) / room))
    if not factors:
        return None
    # One more at least: with these people it was not decided.
    return max(people + 1, math.ceil(people * min(factors) ** 2))
