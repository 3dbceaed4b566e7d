"""Several texts of one person through the same noise: what they give away together.

A guarantee for each text says nothing about a person who wrote more than one: whoever can tie r
releases to one secret may take a vote over them. ε adds up to r·ε, which is true and loose. Tight
is the *privacy loss distribution* of the noise: for the worst pair of inputs, the law of the log
ratio of both output densities. Losses of independent releases add, and the law of their sum gives
a curve δ(ε'): all r releases together are (ε', δ(ε'))-private for every ε' at once.

Two kinds of noise have such a law in closed form, so nothing is discretised here:

- `Response`, randomised response. Over two symbols it is the worst of *all* (ε, δ)-local noise
  (Kairouz, Oh, Viswanath 2015, theorem 3.3), and so bounds Laplace noise, PrivUnit and the rest.
- `Normal`, Gaussian noise: r of them are one with √r times the sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from capelet.errors import CapeletError
from capelet.privacy.guarantees import (
    Guarantee,
    check_count,
    check_number,
    gaussian_delta,
    whole_text,
)

Floats = npt.NDArray[np.floating[Any]]
# A score that a guarantee bounds: `ceiling_auc`, or `ceiling` with its prior filled in.
Bound = Callable[[Guarantee], float | None]

# Of more texts than this only r·ε is said: the law of their losses has r + 1 terms.
MOST_TEXTS = 10_000
# Beyond this ε' every ceiling is 1 to seventeen digits, so the curve need not be followed there.
ENOUGH = 40.0
# Points of the curve that are tried before the best is refined. Each of them is a true bound.
POINTS = 300
# Stands for ε' = 0, where δ is the total variation; a guarantee needs a positive ε.
LEAST = 1e-12


class Noise(Protocol):
    """What can say how private r of its releases are together; hashable, since it is cached."""

    def __hash__(self) -> int: ...

    def delta(self, epsilon: float, texts: int) -> float:
        """δ at ε' of so many releases, each of another text of one person."""


@dataclass(frozen=True)
class Response:
    """Randomised response over so many symbols; with probability `failure` it tells everything.

    The loss of one release is ε, −ε or, where a third symbol came out, 0. So the loss of r is a
    multiple of ε, and its law is a power of that of one.

    >>> round(Response(1.0).delta(0.0, 1), 3)  # (e − 1)/(e + 1)
    0.462
    """

    epsilon: float
    failure: float = 0.0
    symbols: int = 2

    def delta(self, epsilon: float, texts: int) -> float:
        probabilities = _response_law(self.epsilon, self.symbols, texts)
        # Only positive losses count at ε' ≥ 0: Σ P(L)·max(0, 1 − e^(ε' − L)).
        losses = self.epsilon * np.arange(len(probabilities))
        gains = -np.expm1(np.minimum(epsilon - losses, 0.0))
        # 1 − (1 − δ)^r: one release that tells everything is enough.
        failure = -math.expm1(texts * math.log1p(-self.failure)) if self.failure < 1 else 1.0
        return min(1.0, failure + (1.0 - failure) * float(probabilities @ gains))


@dataclass(frozen=True)
class Normal:
    """Gaussian noise; `ratio` is its sensitivity over σ, and that of r releases √r times as much.

    (Dong, Roth, Su 2022, corollary 2: G_μ composed r times is G_√r·μ.)

    >>> round(Normal(2.0).delta(0.0, 1), 3)  # 2Φ(1) − 1
    0.683
    """

    ratio: float

    def delta(self, epsilon: float, texts: int) -> float:
        return gaussian_delta(1.0, epsilon, self.ratio * math.sqrt(texts))


@lru_cache(maxsize=256)
def _response_law(epsilon: float, symbols: int, texts: int) -> Floats:
    """P(the sum of `texts` losses is j·ε) for j = 0 … texts; negative sums are left out."""
    odds = math.exp(-epsilon)
    right = 1.0 / (1.0 + (symbols - 1) * odds)
    # The other secret's symbol, any third symbol, the true one: losses −ε, 0 and ε.
    law = _power(np.array([odds * right, (symbols - 2) * odds * right, right]), texts)
    return np.asarray(law[texts:])


def _power(law: Floats, times: int) -> Floats:
    """The law of a sum of so many independent variables of this law, by repeated squaring."""
    result = np.ones(1)
    while times:
        if times & 1:
            result = np.convolve(result, law)
        times >>= 1
        law = np.convolve(law, law) if times else law
    return result


# ---- the ceiling for a person --------------------------------------------------------------------


def person_ceiling(
    bound: Bound, guarantee: Guarantee, texts: int, noises: Iterable[Noise] = ()
) -> float | None:
    """The best score of anyone who holds the releases of `texts` texts of one person.

    `bound` is the score's ceiling under a guarantee, such as `ceiling_auc`. It holds at every point
    of the curve (ε', δ(ε')), so the least over the curve is taken; r·ε is one of its points. Give
    the `noises` of the release where they are known: their own losses are smaller than the worst
    that (ε, δ) permits. For two classes, and the noise `Response`, no smaller number is true. None
    where one text has no ceiling.

    >>> from capelet.privacy.guarantees import ceiling_balanced
    >>> round(person_ceiling(lambda item: ceiling_balanced(2, item), Guarantee(1.0), 12), 3)
    0.952
    """
    local = whole_text(guarantee)
    check_count("texts", texts)
    # An author guarantee already speaks of all texts of a person, however many.
    if local is None or texts == 1 or guarantee.unit == "author":
        return bound(guarantee)
    total = local.repeated(texts)
    plain = bound(total)
    if plain is None or texts > MOST_TEXTS:
        return plain
    laws: list[Noise] = [Response(local.epsilon, local.delta), *noises]
    return min(plain, *(_least(bound, noise, texts, total.epsilon) for noise in laws))


@lru_cache(maxsize=1024)  # many attackers are held against the same ceiling
def _least(bound: Bound, noise: Noise, texts: int, most: float) -> float:
    """The least of the bound along the curve of a noise."""
    from scipy.optimize import minimize_scalar

    def at(epsilon: float) -> float:
        score = bound(Guarantee(epsilon, min(1.0, max(0.0, noise.delta(epsilon, texts)))))
        return 1.0 if score is None else score

    places = np.linspace(LEAST, max(LEAST, min(most, ENOUGH)), POINTS)
    scores = [at(float(place)) for place in places]
    best = int(np.argmin(scores))
    # Between two neighbours of the best place: kinks of a ceiling lie between the points.
    ends = places[max(best - 1, 0)], places[min(best + 1, POINTS - 1)]
    if ends[0] == ends[1]:
        return scores[best]
    minimum = minimize_scalar(at, bounds=ends, method="bounded", options={"xatol": 1e-10})
    return float(min(scores[best], minimum.fun))


# ---- the guarantee for an author -----------------------------------------------------------------


def for_author(
    guarantee: Guarantee, texts: int, delta: float | None = None, noises: Iterable[Noise] = ()
) -> Guarantee:
    """What a guarantee for each text promises each author of at most `texts` texts.

    Without `delta` ε and δ add. With it, the least ε' at which all texts together are (ε', δ)-
    private, by the losses of the `noises`, or of the worst noise that the guarantee permits.

    >>> for_author(Guarantee(0.25), 80).epsilon
    20.0
    >>> round(for_author(Guarantee(0.25), 80, delta=1e-6).epsilon, 1)
    12.0
    """
    check_count("texts", texts)
    if guarantee.notion == "local" and guarantee.unit == "author":
        return guarantee
    if guarantee.notion != "local" or guarantee.unit != "text":
        raise CapeletError(
            f"a {guarantee.notion} guarantee for each {guarantee.unit} does not add up over the "
            "texts of an author; only a local one for each text does"
        )
    # Without a bound on the number of texts no finite ε covers a person.
    limit = f"authors of at most {texts} texts"
    total = replace(guarantee.with_caveat(limit).repeated(texts), unit="author")
    if delta is None or texts > MOST_TEXTS:
        return total
    share = check_number("delta", delta, 0.0, 1.0)
    laws: list[Noise] = [Response(guarantee.epsilon, guarantee.delta), *noises]
    costs = [_epsilon_at(noise, share, texts, total.epsilon) for noise in laws]
    if min(costs) == math.inf:
        raise CapeletError(
            f"{texts} texts cannot be private at delta {share:g}: each may lose "
            f"{guarantee.delta:g}; give a delta of at least {total.delta:g}"
        )
    return replace(total, epsilon=max(min(costs), LEAST), delta=share)


def _epsilon_at(noise: Noise, delta: float, texts: int, most: float) -> float:
    """The least ε' whose δ is small enough, a billionth rounded up; infinite without one."""
    if noise.delta(most, texts) > delta:
        return math.inf
    low, high = 0.0, most
    if noise.delta(low, texts) <= delta:
        return low
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if noise.delta(middle, texts) > delta else (low, middle)
    # The upper end: its δ has been computed.
    return high


def median_and_most(counts: Sequence[int]) -> dict[str, int]:
    """How many texts the median person has (the larger middle one) and the person with most.

    >>> median_and_most([1, 1, 12, 40])
    {'median': 12, 'most': 40}
    """
    ranking = sorted(counts)
    return {"median": ranking[len(ranking) // 2], "most": ranking[-1]}
