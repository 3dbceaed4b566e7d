"""Numbers read off what a mechanism emits: with a threshold, each of them is an event.

A statistic maps outputs to one number each. Some are fixed (a coordinate, the largest entry, the
lowest set bit of a float); others are learnt from outputs of both inputs that are used for nothing
else (a likelihood ratio over all coordinates, over symbols, over words).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
Outputs = Reals | list[str]
Statistic = Callable[[Any], Reals]

MOST_COORDINATES = 16  # looked at one by one; all of them enter projections and likelihoods
BINS = 24
ZERO = 1100.0  # where the lowest set bit of 0 is put: beyond every float


Inputs = tuple[Reals, Reals]


def statistics(
    first: Outputs, second: Outputs, inputs: Inputs | None, *, short: bool = False, own: bool = True
) -> dict[str, Statistic]:
    """All statistics for outputs like these, by name; `inputs` are the pair, where it is vectors.

    `short` leaves out what is looked at coordinate by coordinate: for many views of one call. `own`
    says that outputs are the target's, and so may be compared with the inputs themselves.
    """
    if isinstance(first, list) and isinstance(second, list):
        return text_statistics(first, second)
    rows = np.asarray(first), np.asarray(second)
    lean = None if inputs is None else inputs[0] - inputs[1]
    table = (short_statistics if short else vector_statistics)(*rows, lean)
    if own and inputs is not None and inputs[0].size == rows[0].shape[1]:
        table |= input_statistics(inputs)
    return table


def values_of(statistic: Statistic, outputs: Outputs) -> Reals:
    """The statistic of every output; what overflows to no number counts as 0."""
    with np.errstate(all="ignore"):
        values = np.asarray(statistic(outputs), dtype=np.float64)
    return np.where(np.isnan(values), 0.0, values)


# ---- vectors -------------------------------------------------------------------------------------


def vector_statistics(first: Reals, second: Reals, lean: Reals | None) -> dict[str, Statistic]:
    """Coordinates and their differences, projections, extremes, exact values, lowest bits."""
    toward, shift = _directions(first, second, lean)
    leading = _leading(toward, shift)
    table: dict[str, Statistic] = {}
    for place, j in enumerate(leading):
        table[f"coordinate {j}"] = partial(_coordinate, j)
        table[f"the lowest set bit of coordinate {j}"] = partial(_bit, j)
        if (i := leading[place - 1]) != j:
            table[f"coordinate {i} minus coordinate {j}"] = partial(_gap, i, j)
    table |= {
        "the projection on the pair's difference": partial(_projection, toward),
        "the projection on the signs of the pair's difference": partial(
            _projection, np.sign(toward)
        ),
        "the projection on the difference of the means": partial(_projection, shift),
        "the agreement of signs with the pair's difference": partial(_agreement, np.sign(toward)),
        "the lowest set bit of any coordinate": lambda rows: lowest_bit(rows).min(axis=1),
        "the highest of the lowest set bits": lambda rows: lowest_bit(rows).max(axis=1),
        "the coordinates at the commonest values of one input": partial(_equal, _modes(first)),
        "the coordinates at the commonest values of the other": partial(_equal, _modes(second)),
        "the likelihood ratio of the largest coordinate's place": _of_places(first, second),
        "the likelihood ratio of all coordinates": Likelihood(first, second),
    }
    return table | _LENGTHS | _EXTREMES


def short_statistics(first: Reals, second: Reals, lean: Reals | None) -> dict[str, Statistic]:
    """One of each sort: a coordinate, a projection, lengths, exact values, a likelihood ratio."""
    toward, shift = _directions(first, second, lean)
    places = sorted({int(np.abs(values).argmax()) for values in (toward, shift)})
    # What is learnt costs time with every coordinate, and a call has some sixty views.
    leading = _leading(toward, shift)
    one, other = first[:, leading], second[:, leading]
    return {f"coordinate {j}": partial(_coordinate, j) for j in places} | {
        "the projection on the pair's difference": partial(_projection, toward),
        "the leading coordinates at the commonest values of one input": partial(
            _of_columns, leading, partial(_equal, _modes(one))
        ),
        "the leading coordinates at the commonest values of the other": partial(
            _of_columns, leading, partial(_equal, _modes(other))
        ),
        "the likelihood ratio of the leading coordinates": partial(
            _of_columns, leading, Likelihood(one, other)
        ),
        **_LENGTHS,
    }


def input_statistics(inputs: Inputs) -> dict[str, Statistic]:
    """How near an output lies to each input, as it is or normalised: 0 where it is the input."""
    names = ("first", "second")
    return {
        f"the distance from the pair's {name} input": partial(_input_distance, _images(row))
        for name, row in zip(names, inputs, strict=True)
    }


_LENGTHS: dict[str, Statistic] = {
    "the largest magnitude": lambda rows: np.abs(rows).max(axis=1),
    "the L2 length": lambda rows: np.sqrt((rows * rows).sum(axis=1)),
}
_EXTREMES: dict[str, Statistic] = {
    "the largest coordinate": lambda rows: rows.max(axis=1),
    "the smallest coordinate": lambda rows: rows.min(axis=1),
    "the range": lambda rows: np.ptp(rows, axis=1),
    "the sum": lambda rows: rows.sum(axis=1),
    "the L1 length": lambda rows: np.abs(rows).sum(axis=1),
}


def lowest_bit(values: Reals) -> Reals:
    """The exponent of the lowest set bit: x is a multiple of 2^that, and of nothing coarser.

    Float noise around 1 leaves only multiples of 2^−53; around 0 it leaves finer ones too. That
    alone tells the two apart (Mironov 2012).

    >>> lowest_bit(np.array([1.0, 0.75, 3 * 2.0**-60, 0.0])).tolist()
    [0.0, -2.0, -60.0, 1100.0]
    """
    fraction, exponent = np.frexp(values)
    # The mantissa as an integer of 53 bits; x & −x keeps the lowest bit that is set.
    whole = (fraction * 2.0**53).astype(np.int64)
    lowest = (whole & -whole).astype(np.float64)
    return np.where(lowest == 0, ZERO, exponent - 54.0 + np.frexp(lowest)[1])


class Likelihood:
    """The log-likelihood ratio as if coordinates were independent, from histograms.

    Where the noise is independent per coordinate this is, up to the width of the bins, the best
    statistic that there is (Neyman and Pearson).
    """

    def __init__(self, first: Reals, second: Reals) -> None:
        self._edges: list[Reals] = []
        self._ratios: list[Reals] = []
        for one, other in zip(first.T, second.T, strict=True):
            values = np.sort(np.concatenate([one, other]))
            edges = np.unique(values[np.linspace(0, values.size - 1, BINS + 1).astype(np.int64)])
            counts = [
                np.bincount(np.searchsorted(edges, side, side="right"), minlength=edges.size + 1)
                for side in (one, other)
            ]
            self._edges.append(edges)
            # One output more in each bin: an empty one must not prove an infinite ratio.
            self._ratios.append(np.log((counts[0] + 1.0) / (counts[1] + 1.0)))

    def __call__(self, rows: Reals) -> Reals:
        total = np.zeros(len(rows))
        for column, edges, ratios in zip(rows.T, self._edges, self._ratios, strict=True):
            total += ratios[np.searchsorted(edges, column, side="right")]
        return total


def _directions(first: Reals, second: Reals, lean: Reals | None) -> tuple[Reals, Reals]:
    """The difference of the inputs, where outputs have their width, and that of the means."""
    with np.errstate(all="ignore"):
        shift = np.nan_to_num(first.mean(axis=0) - second.mean(axis=0))
    return (shift if lean is None or lean.shape != shift.shape else lean), shift


def _leading(toward: Reals, shift: Reals) -> list[int]:
    """The coordinates in which the inputs, and then the mean outputs, differ most."""
    # `lexsort` takes the last key first: the inputs' difference, then that of the outputs.
    order = np.lexsort((-np.abs(shift), -np.abs(toward)))
    return sorted(order[:MOST_COORDINATES].tolist())


def _images(row: Reals) -> list[Reals]:
    """What a mechanism may take a row for before its noise: itself, or its L1 or L2 direction."""
    norms = (1.0, np.abs(row).sum(), np.linalg.norm(row))
    return [row / norm for norm in norms if norm > 0]


def _input_distance(images: Sequence[Reals], rows: Reals) -> Reals:
    distances = [np.abs(rows - image).max(axis=1) for image in images]
    return np.asarray(np.min(distances, axis=0))


def _coordinate(j: int, rows: Reals) -> Reals:
    return rows[:, j]


def _of_columns(columns: list[int], statistic: Statistic, rows: Reals) -> Reals:
    return statistic(rows[:, columns])


def _bit(j: int, rows: Reals) -> Reals:
    return lowest_bit(rows[:, j])


def _gap(i: int, j: int, rows: Reals) -> Reals:
    return rows[:, i] - rows[:, j]


def _projection(direction: Reals, rows: Reals) -> Reals:
    return rows @ direction


def _agreement(signs: Reals, rows: Reals) -> Reals:
    return np.sign(rows) @ signs


def _equal(values: Reals, rows: Reals) -> Reals:
    return np.asarray((rows == values).sum(axis=1), dtype=np.float64)


def _modes(rows: Reals) -> Reals:
    """The commonest exact value of each coordinate; NaN, equal to nothing, where none repeats."""
    modes = np.full(rows.shape[1], np.nan)
    for j, column in enumerate(rows.T):
        values, counts = np.unique(column, return_counts=True)
        if counts.max() > 1:
            modes[j] = values[counts.argmax()]
    return modes


def _of_places(first: Reals, second: Reals) -> Statistic:
    # Where each entry is noised as if it were alone, the largest one gives the input away.
    ratios = _ratios(first.argmax(axis=1).tolist(), second.argmax(axis=1).tolist())
    table = np.array([ratios.get(j, 0.0) for j in range(first.shape[1])])
    return lambda rows: table[rows.argmax(axis=1)]


def _ratios(first: Iterable[Hashable], second: Iterable[Hashable]) -> dict[Hashable, float]:
    """Symbol → smoothed log-likelihood ratio."""
    counts = Counter(first), Counter(second)
    symbols = dict.fromkeys([*counts[0], *counts[1]])
    # Half an output more on each side: one that was seen once must not prove infinity.
    return {s: float(np.log((counts[0][s] + 0.5) / (counts[1][s] + 0.5))) for s in symbols}


# ---- texts ---------------------------------------------------------------------------------------


def text_statistics(first: Sequence[str], second: Sequence[str]) -> dict[str, Statistic]:
    """Likelihood ratios of whole texts, of words by place and anywhere; lengths."""
    whole = _ratios(first, second)
    by_place = _ratios(_each(_by_place, first), _each(_by_place, second))
    anywhere = _ratios(_each(_anywhere, first), _each(_anywhere, second))
    return {
        "the likelihood ratio of the whole text": partial(_lookup, whole),
        "the likelihood ratio of its words in their places": partial(_total, by_place, _by_place),
        "the likelihood ratio of its words in any place": partial(_total, anywhere, _anywhere),
        "the number of words": lambda texts: np.array([float(len(t.split())) for t in texts]),
        "the number of characters": lambda texts: np.array([float(len(t)) for t in texts]),
    }


def _by_place(text: str) -> Iterable[Hashable]:
    return enumerate(text.split())


def _anywhere(text: str) -> Iterable[Hashable]:
    return dict.fromkeys(text.split())  # each word once, in the order of the text: sums repeat


def _each(split: Callable[[str], Iterable[Hashable]], texts: Sequence[str]) -> Iterable[Hashable]:
    return (symbol for text in texts for symbol in split(text))


def _lookup(ratios: dict[Hashable, float], texts: Sequence[str]) -> Reals:
    return np.array([ratios.get(text, 0.0) for text in texts])


def _total(
    ratios: dict[Hashable, float], split: Callable[[str], Iterable[Hashable]], texts: Sequence[str]
) -> Reals:
    return np.array([sum(ratios.get(symbol, 0.0) for symbol in split(text)) for text in texts])
