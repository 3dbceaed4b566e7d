"""Which rows share a call, and what of its outputs is looked at together.

In every call each *target* row holds one of the pair's two inputs, by a fair coin that the
mechanism never sees; all other rows are *public*: they hold the second input, whatever the coins
say. Two calls that differ in one coin differ in one row, so whatever is read off a whole call
(a difference of two rows, a sum of all, an exact repeat) is covered by the claim for one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.errors import CapeletError, DataError
from capelet.judge.pairs import Pair
from capelet.judge.statistics import Outputs, Reals

Coins = npt.NDArray[np.int8]

PUBLIC = -1  # in place of a coin: this row holds the second input, and everybody knows it
CALLS = 5  # at least so many calls for a sample: what one call shares must not pass for a pattern
CELLS = 1 << 19  # floats, or characters, or thereabouts, in one call
COMPANY = 1024  # rows of a call in company: four times the longest lag
LAGS = (1, 2, 3, 4, 7, 8, 16, 32, 33, 64, 128, 256)
SIGN_LAGS = (1, 2, 4, 64)
LAGS_OF_TEXTS = (1, 2, 64)
SIZES = (1, 2, 7, 33, 256)  # rows of a small call


@dataclass(frozen=True)
class CallLayout:
    """How inputs share calls.

    `crowd`: as many rows as memory lets, each a target. `company`: half of the rows are targets,
    the others public, and a second call of public rows follows. `small`: calls of `size` rows, of
    which one is a target.
    """

    name: str
    size: int = 0

    @property
    def phrase(self) -> str:
        return {1: " of a call of one row"}.get(
            self.size, f" in calls of {self.size} rows" if self.size else ""
        )


CROWD, IN_COMPANY = CallLayout("crowd"), CallLayout("company")
SMALL = tuple(CallLayout("small", size) for size in SIZES)


@dataclass(frozen=True, eq=False)
class Draw:
    """Outputs of one call, or of several small ones of equal `size`, with the coin of each row.

    `again` are the outputs of as many further calls in which every row was public, `public` its
    input.
    """

    outputs: Outputs
    coins: Coins
    size: int
    public: Any = None
    again: Outputs | None = None

    def rows(self, index: npt.NDArray[np.int64]) -> Outputs:
        return _take(self.outputs, index)


@dataclass(frozen=True)
class Source:
    """Outputs of a mechanism, checked: right in number, shape and value."""

    mechanism: Callable[[Any], Any]

    def draw(self, plan: CallLayout, pair: Pair, count: int) -> Iterator[Draw]:
        """Calls under this plan: `count` rows in a crowd or in company, or so many small calls."""
        # The coins' generator is seeded by the operating system: the bound needs coins that are
        # independent of each other and of the mechanism's own noise.
        random = np.random.default_rng()
        if plan.name == "small":
            yield from _merge(self._small(plan, pair, count, random))
            return
        width = len(pair.first) + 1 if isinstance(pair.first, str) else pair.first.size
        # Few rows a call, for memory; many calls, since noise may be shared within one.
        most = -(-count // CALLS) if plan == CROWD else COMPANY
        most = max(1, min(most, CELLS // width))
        sizes = [min(most, count - start) for start in range(0, count, most)]
        if plan == CROWD:
            yield from self._crowd(pair, sizes, random)
        else:
            yield from _merge(self._company(pair, sizes, random))

    def _crowd(
        self, pair: Pair, sizes: Sequence[int], random: np.random.Generator
    ) -> Iterator[Draw]:
        for rows in sizes:
            coins = random.integers(0, 2, rows, dtype=np.int8)
            yield Draw(self._call(pair, coins), coins, rows, pair.second)

    def _company(
        self, pair: Pair, sizes: Sequence[int], random: np.random.Generator
    ) -> Iterator[Draw]:
        """Half of the rows are targets; a call of public rows only follows each call."""
        for rows in sizes:
            coins = random.integers(0, 2, rows, dtype=np.int8)
            coins[random.random(rows) < 0.5] = PUBLIC
            again = self._call(pair, np.full(rows, PUBLIC, dtype=np.int8))
            yield Draw(self._call(pair, coins), coins, rows, pair.second, again)

    def _small(
        self, plan: CallLayout, pair: Pair, count: int, random: np.random.Generator
    ) -> Iterator[Draw]:
        """One target in each call, in a random place; it comes first in what is handed on."""
        for _ in range(count):
            coins = np.full(plan.size, PUBLIC, dtype=np.int8)
            place = int(random.integers(plan.size))
            coins[place] = random.integers(2)
            order = (np.arange(plan.size) + place) % plan.size
            outputs = _take(self._call(pair, coins), order)
            yield Draw(outputs, coins[order], plan.size, pair.second)

    def _call(self, pair: Pair, coins: Coins) -> Outputs:
        """What the mechanism makes of the first input where the coin is 0, else of the second."""
        inputs = (pair.first, pair.second)
        is_text = isinstance(pair.first, str)
        places = np.where(coins == 0, 0, 1)
        batch: Any = [inputs[p] for p in places.tolist()] if is_text else np.stack(inputs)[places]
        try:
            out = self.mechanism(batch)
        except Exception as error:
            raise CapeletError(
                f"the mechanism raised {type(error).__name__} on {len(coins)} inputs: {error}"
            ) from error
        return _check_outputs(out, len(coins), None if is_text else pair.first.size)


def _check_outputs(out: Any, count: int, width: int | None) -> Outputs:
    """The outputs as floats or as a list of texts, or an error that says what came instead."""
    if width is None and isinstance(out, list | tuple) and all(isinstance(t, str) for t in out):
        if len(out) != count:
            raise DataError(f"the mechanism made {len(out)} texts of {count}; it must keep each")
        return list(out)
    try:
        rows = np.asarray(out)
    except ValueError as error:
        raise DataError(f"the mechanism must return an array; {error}") from error
    shape = (count, width if width is not None else "any width")
    fits = rows.ndim == 2 and len(rows) == count and rows.shape[1] > 0
    if not fits or (width is not None and rows.shape[1] != width):
        raise DataError(
            f"the mechanism must return an array of shape {shape}; found shape {rows.shape}"
        )
    if rows.dtype.kind not in "fiub":
        raise DataError(f"the mechanism must return numbers; found the type {rows.dtype}")
    reals = rows.astype(np.float64)
    if not np.isfinite(reals).all():
        raise DataError("the mechanism returned NaN or infinity for finite inputs")
    return reals


def _take(outputs: Outputs, index: npt.NDArray[np.int64]) -> Outputs:
    if isinstance(outputs, list):
        return [outputs[place] for place in index.tolist()]
    return outputs[index]


def _merge(draws: Iterable[Draw], rows: int = 8192) -> Iterator[Draw]:
    """The same calls in fewer draws: a statistic costs little more for 8,192 rows than for one."""
    waiting: list[Draw] = []
    for draw in draws:
        # A row's place in its call is told by the size, so only calls of one size are joined.
        if waiting and waiting[0].size != draw.size:
            yield _stack(waiting)
            waiting = []
        waiting.append(draw)
        if len(waiting) * draw.size >= rows:
            yield _stack(waiting)
            waiting = []
    if waiting:
        yield _stack(waiting)


def _stack(draws: Sequence[Draw]) -> Draw:
    coins = np.concatenate([draw.coins for draw in draws])
    public = [draw.again for draw in draws if draw.again is not None]
    return replace(
        draws[0],
        outputs=join([draw.outputs for draw in draws]),
        coins=coins,
        again=join(public) if public else None,
    )


def join(parts: Sequence[Outputs]) -> Outputs:
    """Outputs one after the other."""
    if isinstance(parts[0], list):
        return [text for part in parts for text in part]
    return np.concatenate([np.asarray(part) for part in parts])


# ---- views ---------------------------------------------------------------------------------------


Sample = tuple[Outputs, Coins]


@dataclass(frozen=True)
class View:
    """What is looked at for each target of a draw: one output, a vector or a text, and its coin.

    `own` says that this is the target's output itself, in its own coordinates.
    """

    phrase: str
    sample: Callable[[Draw], Sample]
    own: bool = False


def _targets(draw: Draw, *public_lags: int) -> npt.NDArray[np.int64]:
    """The targets for which the rows so many places further are there, and public."""
    size, count = draw.size, len(draw.coins)
    index = np.flatnonzero(draw.coins != PUBLIC)
    for lag in public_lags:
        index = index[index % size + lag < size]  # within the same call
        index = index[draw.coins[(index + lag) % count] == PUBLIC]
    return index


def _own(draw: Draw) -> Sample:
    index = _targets(draw)
    return draw.rows(index), draw.coins[index]


def _bystander(lag: int, draw: Draw) -> Sample:
    index = _targets(draw, lag)
    return draw.rows(index + lag), draw.coins[index]


def _beside(lag: int, compare: Callable[..., Outputs], draw: Draw) -> Sample:
    index = _targets(draw, lag)
    outputs = compare(draw.rows(index), draw.rows(index + lag), draw.public)
    return outputs, draw.coins[index]


def _again(compare: Callable[..., Outputs], draw: Draw) -> Sample:
    index = _targets(draw)
    assert draw.again is not None
    return compare(draw.rows(index), _take(draw.again, index), draw.public), draw.coins[index]


def _triple(lag: int, signs: tuple[int, int], draw: Draw) -> Sample:
    index = _targets(draw, lag, 2 * lag)
    rows = np.asarray(draw.outputs)
    total = rows[index] + signs[0] * rows[index + lag] + signs[1] * rows[index + 2 * lag]
    return _cut(total), draw.coins[index]


def _call_sum(draw: Draw) -> Sample:
    """The sum of all rows of a small call: what zero-sum noise leaves of the target."""
    rows = np.asarray(draw.outputs).reshape(-1, draw.size, np.shape(draw.outputs)[1])
    return _cut(rows.sum(axis=1)), draw.coins[:: draw.size]


def _others_mean(draw: Draw) -> Sample:
    """The mean of the public rows of a small call: a scale taken from the batch moves them all."""
    rows = np.asarray(draw.outputs).reshape(-1, draw.size, np.shape(draw.outputs)[1])
    return _cut(rows[:, 1:].mean(axis=1)), draw.coins[:: draw.size]


def _repeats(draw: Draw) -> Sample:
    """How many public rows equal the target's, or its negative, bit by bit; here and in `again`."""
    index = _targets(draw)
    rows, again = np.asarray(draw.outputs), np.asarray(draw.again)
    own = rows[index]
    groups = (rows[draw.coins == PUBLIC], again)
    counts = [_occurrences(sign * own, group) for group in groups for sign in (1.0, -1.0)]
    return np.stack(counts, axis=1), draw.coins[index]


def _occurrences(rows: Reals, group: Reals) -> Reals:
    # 0.0 + −0.0 = 0.0: the two zeros are one value, but not the same bytes.
    both = np.ascontiguousarray(np.concatenate([group, rows]) + 0.0)
    keys = both.view(f"V{both.shape[1] * both.itemsize}").ravel()
    _, names = np.unique(keys, return_inverse=True)
    frequencies = np.bincount(names[: len(group)], minlength=names.max(initial=0) + 1)
    return np.asarray(frequencies[names[len(group) :]], dtype=np.float64)


def _sorted_gap(draw: Draw) -> Sample:
    """The target minus the public row next below it in the order of a first coordinate."""
    rows = np.asarray(draw.outputs)
    order = np.argsort(rows[:, 0], kind="stable")
    is_public = draw.coins[order] == PUBLIC
    # The place of the last public row so far, in order; −1 where none is yet.
    last = np.maximum.accumulate(np.where(is_public, np.arange(len(order)), -1))
    places = np.flatnonzero(~is_public & (last >= 0))
    targets, below = order[places], order[last[places]]
    return _cut(rows[targets] - rows[below]), draw.coins[targets]


def _difference(own: Outputs, other: Outputs, public: Any) -> Outputs:
    """Vectors by their difference, texts by putting both into one."""
    if isinstance(own, list) and isinstance(other, list):
        return [f"{one} | {two}" for one, two in zip(own, other, strict=True)]
    with np.errstate(over="ignore"):
        return _cut(np.asarray(own) - np.asarray(other))


def _sum(own: Outputs, other: Outputs, public: Any) -> Outputs:
    with np.errstate(over="ignore"):
        return _cut(np.asarray(own) + np.asarray(other))


def _signed(own: Outputs, other: Outputs, public: Any) -> Outputs:
    """The target's distance from the public input, with the signs of the public row's own noise."""
    centre = public if not isinstance(public, str) and len(public) == np.shape(own)[1] else 0.0
    with np.errstate(over="ignore"):
        return _cut((np.asarray(own) - centre) * np.sign(np.asarray(other) - centre))


def _cut(values: Reals) -> Reals:
    # Two finite outputs may lie farther apart than the largest float.
    return np.nan_to_num(values, nan=0.0)


_OWN = View("the output of the text itself is seen", _own, own=True)


def views(plan: CallLayout, is_text: bool) -> list[View]:
    """What can be looked at in the calls of a plan.

    `is_text` says that outputs are texts, which have neither differences nor sums: two of them are
    put into one.
    """
    if plan == CROWD:
        return [_OWN]
    if plan.name == "small":
        return _small_views(plan, is_text)
    lags = LAGS_OF_TEXTS if is_text else LAGS
    both = [_lag_view(lag, "compared with", _difference) for lag in lags]
    both += [
        View("the output of a public text beside it in one call is seen", partial(_bystander, 1)),
        View(
            "it is compared with a public text in the same row of another call",
            partial(_again, _difference),
        ),
    ]
    return both if is_text else both + _vector_views()


def _small_views(plan: CallLayout, is_text: bool) -> list[View]:
    table = [View(f"the output{plan.phrase} is seen", _own, own=True)]
    if plan.size == 1:
        return table
    table += [
        View(f"it is compared with the next text{plan.phrase}", partial(_beside, 1, _difference)),
        View(f"the output of the next text{plan.phrase} is seen", partial(_bystander, 1)),
    ]
    if not is_text:
        table += [
            View(f"all outputs are added up{plan.phrase}", _call_sum),
            View(f"the outputs of all other texts are averaged{plan.phrase}", _others_mean),
        ]
    return table


def _vector_views() -> list[View]:
    again = "the same row of another call"
    table = [_lag_view(lag, "added to", _sum) for lag in LAGS]
    table += [_lag_view(lag, "signed like", _signed) for lag in SIGN_LAGS]
    table += [
        View(
            f"it and the public texts {lag} and {2 * lag} rows further are added up, "
            f"signed {_mark(one)}{_mark(two)}",
            partial(_triple, lag, (one, two)),
        )
        for lag in (1, 2)
        for one in (1, -1)
        for two in (1, -1)
    ]
    return [
        *table,
        View(f"it is added to a public text in {again}", partial(_again, _sum)),
        View(f"it is signed like a public text in {again}", partial(_again, _signed)),
        View("exact repeats among public texts are counted", _repeats),
        View("it is compared with the public text next below it in order", _sorted_gap),
    ]


def _mark(sign: int) -> str:
    return "+" if sign > 0 else "−"


def _lag_view(lag: int, verb: str, compare: Callable[..., Outputs]) -> View:
    where = "beside it" if lag == 1 else f"{lag} rows further"
    return View(f"it is {verb} a public text {where} in one call", partial(_beside, lag, compare))
