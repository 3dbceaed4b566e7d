"""What a paper says, as something that cells can hold or refute.

    [[claims]]
    text = "CAPE leaks less than noise alone"
    of = { method = "cape" }
    than = { method = "ldp" }
    measure = { kind = "attribute-inference", target = "gender", metric = "balanced_accuracy" }
    relation = "lower"                # lower · higher · equal
    margin = 0.02                     # by so much at least; of `equal`, at most
    expected = { small = "fails", full = "fails" }

Cells are compared in pairs that differ in nothing but what the claim names: the same corpus, the
same encoder, the same split. The interval is Student's over the mean difference of each split. A
claim *holds* where the whole interval lies on its side of the margin, *fails* where none of it
does, and else *cannot be tested here*: too few splits, no difference that they could show, or the
very same one in each, which leaves its spread unknown.
Without `than` the values of `of` themselves are held against a `band`.

With `beyond = { encoder = "small" }` the same difference among those other cells is taken off,
split by split: that a method takes more from a large encoder's attacker than from a small one's.

A side may name its own kind, target or metric (a network on the text is a reference, and no
attacker), and `–` for an axis that it does not have. With `scale = "relative"` a difference is a
share of `than`: 0.5 is half as much again, and a `lower` with the margin 0.3 is at least 30 %
lower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from capelet.errors import CapeletError, did_you_mean
from capelet.studies.documents import (
    FAILS,
    HOLDS,
    UNTESTED,
    VERDICTS,
    Number,
    Sentence,
    Verdict,
    Word,
    check_keys,
)
from capelet.studies.rows import Row, count_of, has_level, is_asked_for
from capelet.studies.statistics import student

RELATIONS = ("lower", "higher", "equal", "within")
SCALES = ("absolute", "relative")
_MEASURE = ("kind", "target", "metric", "attacker")


@dataclass(frozen=True)
class Ruling:
    """What the cells say of a claim: its verdict, the estimate with its interval, and why.

    What a plan expects is for its build, and in no file of results.
    """

    text: Sentence
    verdict: Verdict
    expected: str | None = None
    value: Number | None = None
    low: Number | None = None
    high: Number | None = None
    pairs: int = 0
    why: Sentence = ""
    metric: Word = ""
    relation: Word = ""
    scale: Word = "absolute"

    @property
    def surprising(self) -> bool:
        """Whether the plan expects another verdict."""
        return self.expected is not None and self.expected != self.verdict


@dataclass(frozen=True)
class Claim:
    """A direction, an equality or a band over cells; or, with a reason, none that we can test."""

    text: str = ""
    relation: str = "lower"
    of: Mapping[str, Any] = field(default_factory=dict)
    than: Mapping[str, Any] | None = None
    beyond: Mapping[str, Any] | None = None
    measure: Mapping[str, Any] = field(default_factory=dict)
    margin: float = 0.0
    band: tuple[float, float] | None = None
    expected: Mapping[str, str] = field(default_factory=dict)
    untestable: str = ""
    scale: str = "absolute"

    def __post_init__(self) -> None:
        if isinstance(self.expected, str):
            expected = dict.fromkeys(("small", "full"), self.expected)
            object.__setattr__(self, "expected", expected)
        if not self.text:
            raise CapeletError("each of the [[claims]] of a plan needs a text")
        for verdict in self.expected.values():
            _check_word("expects", verdict, VERDICTS)
        if not self.untestable:
            self._check_terms()

    def _check_terms(self) -> None:
        """What can be wrong with the comparison itself."""
        _check_word("has the relation", self.relation, RELATIONS)
        _check_word("has the scale", self.scale, SCALES)
        check_keys(self.measure, _MEASURE, "a measure")
        if "kind" not in self.measure or "metric" not in self.measure:
            raise CapeletError(f"the claim {self.text!r} needs a measure with kind and metric")
        if self.beyond is not None and self.than is None:
            raise CapeletError(f"the claim {self.text!r} has a `beyond` and nothing to compare")
        has_band = self.band is not None
        is_alone = self.than is None and (not has_band or self.scale == "relative")
        if (self.relation == "within") != has_band or is_alone:
            raise CapeletError(
                f"the claim {self.text!r} compares (`than`), or is `within` a `band` without it"
            )

    def rule(self, values: Sequence[Row], size: str = "full") -> Ruling:
        """The verdict on the values of a study."""
        expected = self.expected.get(size)
        if self.untestable:
            return Ruling(self.text, UNTESTED, expected, why=self.untestable)
        by_split = self._by_split(values)
        if len(by_split) < 2:
            why = f"{count_of(len(by_split), 'split')} to compare"
            return Ruling(self.text, UNTESTED, expected, pairs=len(by_split), why=why)
        score = student(by_split)
        mean, low, high = score.value, score.low, score.high
        verdict = self._verdict(low, high)
        why = "the interval leaves both open" if verdict == UNTESTED else ""
        if self.than is not None and low == high and mean:
            # As of few canaries: 2 of 8 in every split. Student's interval would have no width.
            verdict, why = UNTESTED, "every split has the same difference: its spread is unknown"
        return Ruling(
            self.text, verdict, expected, mean, low, high, len(by_split), why,
            str(self.measure["metric"]), self.relation, self.scale,
        )  # fmt: skip

    def _by_split(self, values: Sequence[Row]) -> list[float]:
        """The mean difference of each split, less that of the same split among other cells."""
        means = _means(self._differences(values))
        if self.beyond is None or self.than is None:
            return list(means.values())
        other = replace(
            self, of={**self.of, **self.beyond}, than={**self.than, **self.beyond}, beyond=None
        )
        others = _means(other._differences(values))
        return [means[seed] - others[seed] for seed in means if seed in others]

    def _measures(self, item: Row, side: Mapping[str, Any]) -> bool:
        """Whether the row is one of this side: the claim's measure, but for what the side names."""
        # "The attacker" of a claim is the one that was chosen before victims were scored.
        if not is_asked_for(item, {*self.measure, *self.of, *(self.than or {})}):
            return False
        # All of them together, unless the claim is about one of them.
        sides = {**(self.than or {}), **self.of}
        if "subgroup" in item.axes and "subgroup" not in sides:
            return False
        wish = {**self.measure, **side}
        same = all(has_level(item, name, level) for name, level in wish.items())
        # A constant guess of a secret tells of the prior and not of the attacker. Of a task it is
        # what a useless release is worth, and that is the cost which a claim may be about; but of
        # victims of one class a constant guess would be the best, and no cost at all.
        is_cost = item.kind == "utility" and not item.single_class
        return same and (not item.degenerate or is_cost)

    def _differences(self, values: Sequence[Row]) -> list[tuple[int, float]]:
        """By split: a value of `of`, less that of `than` in the cell that else is the same."""
        ours = [item for item in values if self._measures(item, self.of)]
        if self.than is None:
            return [(item.seed, item.value) for item in ours]
        # Whatever either side names may differ; an axis that only one side has (ε) may too.
        free = {*self.of, *self.than}
        theirs: dict[tuple[Any, ...], float] = {}
        for item in values:
            if self._measures(item, self.than):
                theirs.setdefault(_rest(item, free), item.value)
        pairs = []
        for item in ours:
            place = _rest(item, free)
            if place not in theirs:
                # "Unprotected" has neither ε nor λ: it is the partner of every setting.
                place = _partner(place, theirs)
            if place in theirs:
                pairs.append((item.seed, self._compare(item.value, theirs[place])))
        return pairs

    def _compare(self, value: float, other: float) -> float:
        if self.scale == "absolute":
            return value - other
        # Nothing is a share of zero: no number, and left out.
        return value / other - 1 if other else math.nan

    def _verdict(self, low: float, high: float) -> str:
        if self.relation in ("equal", "within"):
            left, right = self.band if self.band is not None else (-self.margin, self.margin)
            if left <= low and high <= right:
                return HOLDS
            return FAILS if high < left or low > right else UNTESTED
        # "Lower" is "higher" with the sign turned.
        if self.relation == "lower":
            low, high = -high, -low
        if low > self.margin:
            return HOLDS
        return FAILS if high <= self.margin else UNTESTED


def _check_word(what: str, word: str, words: Sequence[str]) -> None:
    if word not in words:
        raise CapeletError(f"a claim {what} {word!r}; {did_you_mean(word, words)}")


def _rest(item: Row, free: set[str]) -> tuple[Any, ...]:
    """All that a cell shares with its partner: the split, the target, and the other axes."""
    axes = tuple(sorted((k, str(v)) for k, v in item.axes.items() if k not in free))
    return (item.seed, None if "target" in free else item.target, axes)


def _partner(place: tuple[Any, ...], theirs: Mapping[tuple[Any, ...], float]) -> tuple[Any, ...]:
    """The only cell of the other side whose axes are all among this one's."""
    seed, target, axes = place
    fitting = [
        other
        for other in theirs
        if other[:2] == (seed, target)
        and (set(other[2]) <= set(axes) or set(axes) <= set(other[2]))
    ]
    return fitting[0] if len(fitting) == 1 else place


def _means(pairs: Sequence[tuple[int, float]]) -> dict[int, float]:
    """The mean of each split: pairs of one split share their people and are no repetitions."""
    by_split: dict[int, list[float]] = {}
    for seed, value in pairs:
        if math.isfinite(value):
            by_split.setdefault(seed, []).append(value)
    return {seed: fmean(values) for seed, values in by_split.items()}
