"""Two inputs that a private mechanism must not tell apart: the corners where wrong ones do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.errors import CapeletError, DataError
from capelet.privacy.guarantees import check_number

Distance = float | Callable[[Any, Any], float]

# For word steps of a recipe: one word against another, common enough for any vocabulary.
WORDS = (("good", "bad"), ("he", "she"), ("yes", "no"))


GRID = 6  # the small table of words reaches so many steps from its middle


@dataclass(frozen=True, eq=False)
class Pair:
    """Two inputs, the distance between them, and a name for people."""

    name: str
    first: Any
    second: Any
    distance: float = 1.0


def corners(dimension: int) -> list[Pair]:
    """The pairs tried for a mechanism on vectors of this width.

    ±e₁ is worst where rows are L1-normalised, ±1/√d where they are L2-normalised and the noise is
    for L1, complementary 0/1 vectors where rows are stretched to [0, 1]; e₁ and e₂ differ in the
    lowest bits of a float sum; 1000·e₁ finds a missing normalisation. The first five are also tried
    beside other rows and in other calls.

    >>> [pair.name for pair in corners(2)][:2]
    ['e₁ and −e₁', 'e₁ and e₂']
    """
    unit = np.eye(dimension)
    dense = np.full(dimension, 1 / math.sqrt(dimension))
    even = np.arange(dimension) % 2.0
    half = (np.arange(dimension) < dimension // 2).astype(np.float64)
    signs = (2 * even - 1) / math.sqrt(dimension)
    one_flip = dense * (1 - 2 * unit[0])
    some = np.random.default_rng(0).normal(size=dimension)  # a public direction like any other
    pairs = [
        Pair("e₁ and −e₁", unit[0], -unit[0]),
        Pair("e₁ and e₂", unit[0], unit[1 % dimension]),
        Pair("1/√d everywhere and −1/√d everywhere", dense, -dense),
        Pair("e₁ and 1/√d everywhere", unit[0], dense),
        Pair("1000·e₁ and e₁", 1000 * unit[0], unit[0]),
        Pair("0, 1, 0, 1 … and 1, 0, 1, 0 …", even, 1 - even),
        Pair("first half and second half", half, 1 - half),
        Pair("alternating signs and their negatives", signs, -signs),
        Pair("1/√d everywhere and one sign flipped", dense, one_flip),
        Pair("the zero vector and −e₁", 0 * unit[0], -unit[0]),
        Pair("1000·e₁ and −1000·e₁", 1000 * unit[0], -1000 * unit[0]),
        Pair("a dense direction and its negative", some, -some),
    ]
    return [pair for pair in pairs if not np.array_equal(pair.first, pair.second)]


@dataclass(frozen=True, eq=False)
class Plane:
    """A small public table of words in the plane, to judge a word mechanism on.

    One step along the second axis costs ε·d = 1, one along the first 1.5, so that the middle words
    are told apart by what a few hundred thousand draws can show.
    """

    epsilon: float

    @property
    def places(self) -> dict[str, tuple[float, float]]:
        steps = range(-GRID, GRID + 1)
        spots = [(1.5 * x / self.epsilon, y / self.epsilon) for x in steps for y in steps]
        return {f"w{number}": spot for number, spot in enumerate(spots)}

    @property
    def table(self) -> tuple[list[str], npt.NDArray[np.float64]]:
        return list(self.places), np.array(list(self.places.values()))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Words on either side of the middle, along each axis."""
        side, middle = 2 * GRID + 1, (2 * GRID + 1) ** 2 // 2
        return [(f"w{middle - gap}", f"w{middle + gap}") for gap in (1, side)]


def own_pairs(pairs: Sequence[tuple[Any, Any]], distance: Distance | None) -> list[Pair]:
    """The user's own pairs, checked, each with its distance (1 where none is given)."""
    checked_pairs = []
    for place, pair in enumerate(pairs):
        if isinstance(pair, str) or len(pair) != 2:
            raise CapeletError(f"pair {place} is {pair!r}; pairs must be given as [(input, input)]")
        first, second = pair
        if isinstance(first, str) != isinstance(second, str):
            raise CapeletError(f"pair {place} mixes a text and a vector")
        apart = distance(first, second) if callable(distance) else distance
        span = 1.0 if apart is None else check_number("distance", apart, 0, 1e300, open_low=True)
        checked_pairs.append(_pair(place, first, second, span))
    if not checked_pairs:
        raise CapeletError("pairs is empty; give at least one pair of inputs")
    if len({_kind(pair.first) for pair in checked_pairs}) > 1:
        raise CapeletError("pairs must be all texts, or all vectors of one width")
    return checked_pairs


def _pair(place: int, first: Any, second: Any, distance: float) -> Pair:
    if isinstance(first, str):
        if first == second:
            raise CapeletError(f"pair {place} holds the same text twice: {first!r}")
        return Pair(f"{_short(first)} and {_short(second)}", first, second, distance)
    rows: list[npt.NDArray[np.float64]] = [
        np.asarray(row, dtype=np.float64) for row in (first, second)
    ]
    if rows[0].ndim != 1 or rows[0].shape != rows[1].shape or not np.isfinite(rows).all():
        raise DataError(f"pair {place} must be two finite vectors of one width")
    if np.array_equal(rows[0], rows[1]):
        raise CapeletError(f"pair {place} holds the same vector twice")
    return Pair(f"the given pair {place}", rows[0], rows[1], distance)


def _kind(value: Any) -> Any:
    return "text" if isinstance(value, str) else value.shape


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
