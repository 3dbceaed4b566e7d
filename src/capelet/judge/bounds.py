"""How much privacy loss a count of outcomes proves, and with which confidence.

Each output is of the first or of the second input by a fair coin. Seeing an event is guessing the
coin, and under ε-privacy no guess is right with a chance above e^ε/(1 + e^ε), whatever else is
known of the other rows and their coins. So of k + l guesses the number k of right ones is at most
binomial with that chance, however the rows of a call depend on each other (Steinke, Nasr and
Jagielski 2023, for pure privacy), and one exact (Clopper and Pearson) end gives ε.
With δ the loss is ln((p − δ)/q), with p the lower and q the upper end of two such intervals; that
takes the outputs as independent, which is part of the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from capelet.privacy.guarantees import gaussian_delta

Tradeoff = Literal["any", "gaussian"]
Reals = npt.NDArray[np.float64]


TAIL = 10  # outputs beyond a threshold; with fewer the tail is extrapolated
DOUBT = 2.5  # so many times the extrapolated tail is reckoned with
UNSEEN = 0.4  # outputs reckoned with beyond a far end that is one single value
COMMON = 0.05  # the least share of hits that justifies extrapolating the misses


@dataclass(frozen=True)
class Sizes:
    """How many outputs of each input the search has at hand, and how many will be counted."""

    search: int
    final: int


@dataclass(frozen=True)
class Claim:
    """What is being judged: (ε, δ) per unit of distance, and what the bound may assume.

    Under the trade-off `any` nothing is assumed. Under `gaussian` the mechanism is taken to be
    dominated by two normals μ apart, as additive normal noise is: every event then bounds μ, and
    μ gives ε at δ (Dong, Roth and Su 2022). That needs far fewer draws than events of chance δ.
    """

    epsilon: float
    delta: float
    confidence: float
    tradeoff: Tradeoff = "any"

    def proven(
        self, hits: int, misses: int, counts: tuple[int, int], distance: float = 1.0
    ) -> float:
        """The ε per unit of distance that the counts prove; 0 where they prove nothing.

        `counts` are the outputs of the input that hits and of the other, told apart by coins.

        >>> round(Claim(1.0, 0.0, 0.95).proven(500, 0, (1000, 1000)), 2)
        5.11
        """
        risk = 1.0 - self.confidence
        if self.tradeoff == "any" and self.delta == 0.0:
            return odds_bound(hits, misses, risk) / distance
        low, high = interval_ends(hits, misses, counts, risk)
        if self.tradeoff == "gaussian":
            return epsilon_of(_normal_gap(low, high), self.delta)
        return max(0.0, math.log((low - self.delta) / high)) / distance if low > self.delta else 0.0

    def reach(self, count: int, distance: float = 1.0) -> float:
        """The most that `count` outputs of both inputs could prove, however bad the mechanism."""
        half = count // 2
        return self.proven(half, 0, (half, half), distance)

    def with_share(self, share: float) -> Claim:
        """The same claim with this share of its risk: several tests share one confidence."""
        return replace(self, confidence=1.0 - share * (1.0 - self.confidence))

    def plain_score(self, hits: Reals, misses: Reals, of: Sizes, distance: float) -> Reals:
        """A stand-in for `proven` on counts alone, for few outputs and for rare events.

        `score` reckons with ten misses at least, which hides what happens once in a thousand rows
        or what sixty calls show. Here two deviations of a Poisson count, and one output, are
        reckoned with.
        """
        low = np.maximum(hits - 2 * np.sqrt(hits), 0.0) / of.search
        high = np.minimum((misses + 2 * np.sqrt(misses) + 1) / of.search, 1.0)
        if self.tradeoff == "gaussian":
            return np.asarray(_normal_gap(low, high))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(low - self.delta, 0.0) / high) / distance)

    def score(self, hits: Reals, misses: Reals, of: Sizes, distance: float) -> Reals:
        """A stand-in for `proven` on whole arrays: to rank events, not to judge.

        `hits` are counts of the search, and so are `misses` down to TAIL of them. Fewer are an
        extrapolation, taken DOUBT times and then believed at the size of the final count; else no
        search could tell a loss that only the final count has the outputs to show.
        """
        low = _wilson(hits, of.search)[0]
        enough = (misses >= TAIL) | (hits < COMMON * of.search)
        high = np.where(
            enough,
            _wilson(np.maximum(misses, TAIL), of.search)[1],
            _wilson(np.minimum(DOUBT * misses * of.final / of.search, of.final), of.final)[1],
        )
        if self.tradeoff == "gaussian":
            return np.asarray(_normal_gap(low, high))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(np.maximum(low - self.delta, 0.0) / high) / distance
        return np.asarray(ratio, dtype=np.float64)


def odds_bound(hits: int, misses: int, risk: float) -> float:
    """The ε that `hits` right guesses among `hits + misses` prove; 0 where they prove nothing."""
    from scipy.special import betaincinv

    if not hits:
        return 0.0
    # Clopper and Pearson (1934) by quantiles of the beta law; its odds are e^ε at most.
    low = float(betaincinv(hits, misses + 1, risk))
    return max(0.0, math.log(low / (1.0 - low))) if low > 0.0 else 0.0


def interval_ends(
    hits: int, misses: int, counts: tuple[int, int], risk: float
) -> tuple[float, float]:
    """The least p of `hits` and the largest q of `misses`, wrong together at most `risk` often."""
    from scipy.special import betaincinv

    # Half the risk for each end.
    one, other = counts
    low = float(betaincinv(hits, one - hits + 1, risk / 2)) if hits else 0.0
    high = float(betaincinv(misses + 1, other - misses, 1 - risk / 2)) if misses < other else 1.0
    return low, high


def epsilon_of(gap: float, delta: float) -> float:
    """The ε at δ of two unit normals that lie `gap` apart; 0 where δ covers the whole of it.

    >>> round(epsilon_of(1 / 3.7306, 1e-5), 2)
    1.0
    """
    if gap <= 0.0 or gaussian_delta(1.0 / gap, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0  # δ falls as ε grows: enclose, then bisect; the lower end is what holds
    while gaussian_delta(1.0 / gap, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(1 / gap, middle) > delta else (low, middle)
    return low


def _normal_gap(low: Any, high: Any) -> Any:
    from scipy.special import ndtri

    # μ of one event: between N(0, 1) and N(μ, 1), Φ⁻¹(p) − Φ⁻¹(q) is at most μ (Dong, Roth and Su
    # 2022, Gaussian trade-off).
    return ndtri(low) - ndtri(high)


def _wilson(hits: Any, count: int, z: float = 4.0) -> tuple[Reals, Reals]:
    # Wilson's score interval: no quantile to invert, so it serves for whole arrays of thresholds.
    share = np.asarray(hits, dtype=np.float64) / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half_width = np.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    half_width *= z / (1 + z * z / count)
    return np.maximum(centre - half_width, 0.0), np.minimum(centre + half_width, 1.0)


@dataclass(frozen=True)
class Threshold:
    """The value that makes a statistic an event, and from which input the event comes more."""

    score: float
    value: float
    above: bool
    from_second: bool

    def hits(self, values: Reals) -> int:
        """How many of the values fall into the event."""
        inside = values >= self.value if self.above else values < self.value
        return int(np.count_nonzero(inside))


def best_thresholds(
    first: Reals,
    second: Reals,
    score: Callable[[Reals, Reals, Sizes], Reals],
    final: int,
    *,
    extrapolate: bool = True,
) -> list[Threshold]:
    """For each row, a statistic: the threshold, side and order of the inputs that score best.

    With `extrapolate` few misses are not taken as counted, but as the tail makes them; else they
    are read off a distribution function without steps.
    """
    of = Sizes(first.shape[1], final)
    # Sorted once, each threshold's count is a rank: thousands of them cost one search.
    ascending = np.sort(first, axis=1), np.sort(second, axis=1)
    marks = np.hstack([values[:, _places(of.search)] for values in ascending])
    if not extrapolate:
        # `<` leaves out the value itself: just above it lies the event that is this value alone.
        marks = np.hstack([marks, np.nextafter(marks, np.inf)])
    over = [of.search - _ranks(values, marks) for values in ascending]
    under = [of.search - counts for counts in over]
    tail = _tail if extrapolate else _without_steps
    tails = [
        [tail(values, marks, counts) for values, counts in zip(ascending, over, strict=True)],
        [tail(-v[:, ::-1], -marks, n) for v, n in zip(ascending, under, strict=True)],
    ]
    rows = np.arange(len(marks))
    cases = []
    for above, counts, beyond in ((True, over, tails[0]), (False, under, tails[1])):
        for one, other in ((0, 1), (1, 0)):
            scores = score(counts[one], beyond[other], of)
            best = scores.argmax(axis=1)
            peaks = zip(scores[rows, best].tolist(), marks[rows, best].tolist(), strict=True)
            cases.append([Threshold(value, mark, above, one == 1) for value, mark in peaks])
    return [max(row, key=lambda case: case.score) for row in zip(*cases, strict=True)]


def _ranks(ascending: Reals, marks: Reals) -> Reals:
    """How many values of each row lie below each of its marks."""
    pairs = zip(ascending, marks, strict=True)
    counts = [np.searchsorted(row, mark, side="left") for row, mark in pairs]
    return np.array(counts, dtype=np.float64)


def _tail(ascending: Reals, marks: Reals, counts: Reals) -> Reals:
    """The number of values beyond each mark, carried on exponentially where few values are.

    An exponential tail is right for Laplace noise and too heavy, so cautious, for normal noise.
    Where the far end is one single value, hardly anything is taken to lie beyond it.
    """
    size = ascending.shape[1]
    outer = max(size // 50, 2 * TAIL)
    if size < 2 * outer:
        return np.maximum(counts, TAIL)
    start, edge, end = (ascending[:, [-place]] for place in (outer, TAIL, 1))
    # The rate of the tail is read off two order statistics: outer/TAIL outputs lie between them.
    with np.errstate(all="ignore"):
        fall = np.log(outer / TAIL) * (marks - edge) / (edge - start)
        beyond = TAIL * np.exp(-np.maximum(np.nan_to_num(fall, nan=0.0), 0.0))
    atom = np.where((end == start) & (counts == 0), UNSEEN, float(TAIL))
    beyond = np.maximum(beyond, counts)  # a few stragglers far out are no smooth tail
    return np.where(counts >= TAIL, counts, np.where(edge > start, beyond, atom))


def _without_steps(ascending: Reals, marks: Reals, counts: Reals) -> Reals:
    """The number of values beyond each mark, between two values by linear interpolation.

    A threshold at the very edge of what was seen has no miss yet, and will have some among other
    outputs: one that lies farther from the edge is preferred. Beyond the last value the function
    falls to 0 where the farthest mark lies.
    """
    size, farthest = ascending.shape[1], marks.max(axis=1, keepdims=True)
    values = np.hstack([ascending, np.maximum(farthest, ascending[:, -1:])])
    # `counts` values lie at the mark or beyond: the next one below it has the place before them.
    place = (size - counts).astype(np.int64)
    above = np.take_along_axis(values, place, axis=1)
    below = np.take_along_axis(values, np.maximum(place - 1, 0), axis=1)
    with np.errstate(all="ignore"):
        share = np.nan_to_num((above - marks) / (above - below), nan=0.0)
    return np.where(place > 0, counts + np.clip(share, 0.0, 1.0), counts)


@lru_cache(maxsize=64)
def _places(count: int) -> npt.NDArray[np.int64]:
    """Ranks to try as thresholds: evenly, and ever closer together towards both ends."""
    even = np.linspace(0, count - 1, 49)
    near = np.geomspace(1, count / 48, 16) if count > 48 else np.arange(count)
    ranks = np.concatenate([even, near, count - 1 - near]).astype(np.int64)
    return np.unique(np.clip(ranks, 0, count - 1))
