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
does, and else *cannot be tested here*: too few splits, or no difference that they could show.
Without `than` the values of `of` themselves are held against a `band`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from capelet.errors import CapeletError, did_you_mean
from capelet.studies.documents import FAILS, HOLDS, UNTESTED, VERDICTS
from capelet.studies.rows import ATTACKER, Row, is_asked_for, level_of
from capelet.studies.statistics import student

RELATIONS = ("lower", "higher", "equal", "within")
_KEYS = (
    "text", "of", "than", "measure", "relation", "margin", "band", "expected", "untestable",
)  # fmt: skip
_MEASURE = ("kind", "target", "metric", "attacker")


@dataclass(frozen=True)
class Ruling:
    """What the cells say of a claim: its verdict, the estimate with its interval, and why."""

    text: str
    verdict: str
    expected: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    why: str = ""
    metric: str = ""
    relation: str = ""

    @property
    def surprising(self) -> bool:
        """Whether the plan expects another verdict."""
        return self.expected is not None and self.expected != self.verdict


@dataclass(frozen=True)
class Claim:
    """A direction, an equality or a band over cells; or, with a reason, none that we can test."""

    text: str
    relation: str = "lower"
    of: Mapping[str, Any] = field(default_factory=dict)
    than: Mapping[str, Any] | None = None
    measure: Mapping[str, Any] = field(default_factory=dict)
    margin: float = 0.0
    band: tuple[float, float] | None = None
    expected: Mapping[str, str] = field(default_factory=dict)
    untestable: str = ""

    @classmethod
    def parse(cls, entry: Any) -> Claim:
        """A claim as it stands in a plan; a `CapeletError` says what is wrong with it."""
        if not isinstance(entry, Mapping) or not str(entry.get("text", "")):
            raise CapeletError("each of the [[claims]] of a plan needs a text")
        for key in entry:
            if key not in _KEYS:
                raise CapeletError(f"a claim has no {key!r}; {did_you_mean(key, _KEYS)}")
        expected = entry.get("expected", {})
        if isinstance(expected, str):
            expected = dict.fromkeys(("small", "full"), expected)
        band = tuple(entry["band"]) if "band" in entry else None
        claim = cls(**{**entry, "band": band, "expected": expected})
        claim.check()
        return claim

    def check(self) -> None:
        for verdict in self.expected.values():
            if verdict not in VERDICTS:
                hint = did_you_mean(verdict, VERDICTS)
                raise CapeletError(f"a claim expects {verdict!r}, which is no verdict; {hint}")
        if self.untestable:
            return
        if self.relation not in RELATIONS:
            hint = did_you_mean(self.relation, RELATIONS)
            raise CapeletError(f"a claim has the relation {self.relation!r}; {hint}")
        for key in self.measure:
            if key not in _MEASURE:
                raise CapeletError(f"a measure has no {key!r}; {did_you_mean(key, _MEASURE)}")
        if "kind" not in self.measure or "metric" not in self.measure:
            raise CapeletError(f"the claim {self.text!r} needs a measure with kind and metric")
        if (self.relation == "within") != (self.than is None and self.band is not None):
            raise CapeletError(
                f"the claim {self.text!r} compares (`than`), or is `within` a `band` without it"
            )

    def rule(self, values: Sequence[Row], size: str = "full") -> Ruling:
        """The verdict on the values of a study."""
        expected = self.expected.get(size)
        if self.untestable:
            return Ruling(self.text, UNTESTED, expected, why=self.untestable)
        relevant = [item for item in values if self._measures(item)]
        by_split = _means(self._differences(relevant))
        if len(by_split) < 2:
            number = f"{len(by_split)} split" + ("" if len(by_split) == 1 else "s")
            return Ruling(
                self.text, UNTESTED, expected, pairs=len(by_split), why=f"{number} to compare"
            )
        score = student(by_split)
        mean, low, high = score.value, score.low, score.high
        verdict = self._verdict(low, high)
        why = "the interval leaves both open" if verdict == UNTESTED else ""
        return Ruling(
            self.text, verdict, expected, mean, low, high, len(by_split), why,
            str(self.measure["metric"]), self.relation,
        )  # fmt: skip

    def _measures(self, item: Row) -> bool:
        # "The attacker" of a claim is the one that was chosen before victims were scored.
        if not is_asked_for(item, {*self.measure, *self.of, *(self.than or {})}):
            return False
        wish = dict(self.measure)
        attacker = wish.pop("attacker", None)
        if attacker is not None and level_of(item, ATTACKER) != attacker:
            return False
        # All of them together, unless the claim is about one of them.
        sides = {**(self.than or {}), **self.of}
        if "subgroup" in item.axes and "subgroup" not in sides:
            return False
        same = all(getattr(item, key) == level for key, level in wish.items())
        # A constant guess of a secret tells of the prior and not of the attacker. Of a task it is
        # what a useless release is worth, and that is the cost which a claim may be about.
        return same and (not item.degenerate or item.kind == "utility")

    def _differences(self, values: Sequence[Row]) -> list[tuple[int, float]]:
        """By split: a value of `of`, less that of `than` in the cell that else is the same."""
        ours = [item for item in values if _has(item, self.of)]
        if self.than is None:
            return [(item.seed, item.value) for item in ours]
        # Whatever either side names may differ; an axis that only one side has (ε) may too.
        free = {*self.of, *self.than}
        theirs: dict[tuple[Any, ...], float] = {}
        for item in values:
            if _has(item, self.than):
                theirs.setdefault(_rest(item, free), item.value)
        pairs = []
        for item in ours:
            place = _rest(item, free)
            if place not in theirs:
                # "Unprotected" has neither ε nor λ: it is the partner of every setting.
                place = _partner(place, theirs)
            if place in theirs:
                pairs.append((item.seed, item.value - theirs[place]))
        return pairs

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


def _has(item: Row, levels: Mapping[str, Any]) -> bool:
    return all(level_of(item, name) == level for name, level in levels.items())


def _rest(item: Row, free: set[str]) -> tuple[Any, ...]:
    """All that a cell shares with its partner: the split, the target, and the other axes."""
    axes = tuple(sorted((k, str(v)) for k, v in item.axes.items() if k not in free))
    return (item.seed, item.target, axes)


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


def _means(pairs: Sequence[tuple[int, float]]) -> list[float]:
    """The mean of each split: pairs of one split share their people and are no repetitions."""
    by_split: dict[int, list[float]] = {}
    for seed, value in pairs:
        if math.isfinite(value):
            by_split.setdefault(seed, []).append(value)
    return [fmean(values) for values in by_split.values()]
