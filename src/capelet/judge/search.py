"""The search for a bad pair and a bad event, and the count that judges the one it settles on.

Four rounds, each with fewer settings and more draws of each. A round draws outputs of both inputs,
learns its statistics on a quarter of them and scores thresholds on the rest. What wins the last
round is fixed, and counted on fresh outputs: one test, so nothing needs correcting for the number
tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from capelet.errors import CapeletError, DataError
from capelet.interfaces import Progress, silent
from capelet.judge.bounds import Claim, Sizes, Threshold, best_thresholds
from capelet.judge.pairs import Pair
from capelet.judge.statistics import Outputs, Reals, Statistic, statistics, values_of

Layout = Literal["alone", "bystander", "beside", "again"]

# What is observed, as a phrase after "where". Of equals, the later wins: what comes out of one draw
# per call, or of the same draws in each, shows in the last two for sure, in the others by luck.
LAYOUTS: dict[Layout, str] = {
    "alone": "the output of the text itself is seen",
    "bystander": "the output of another, fixed text beside it in one call is seen",
    "again": "it is compared with a fixed text in the same row of another call",
    "beside": "it is compared with a fixed text beside it in one call",
}
CALLS = 5  # at least so many calls for a sample: what one call shares must not pass for a pattern
CELLS = 1 << 19  # floats, or characters, or thereabouts, in one call
IN_ALL_LAYOUTS = 5  # pairs looked at in every layout; the others alone
SURVIVORS = ((10, 12), (4, 8), (2, 4))  # of each round but the last: settings, statistics of each
FEWEST = 900  # draws of a setting in a round


@dataclass(frozen=True, eq=False)
class Setting:
    """One pair, looked at in one way."""

    pair: Pair
    layout: Layout

    @property
    def lean(self) -> Reals | None:
        pair = self.pair
        return None if isinstance(pair.first, str) else np.asarray(pair.first - pair.second)


@dataclass(frozen=True, eq=False)
class Event:
    """A statistic and a threshold: all that is needed to count on fresh outputs."""

    setting: Setting
    name: str
    statistic: Statistic
    threshold: Threshold

    @property
    def rank(self) -> tuple[float, int]:
        return self.threshold.score, list(LAYOUTS).index(self.setting.layout)

    def sentence(self) -> str:
        """The event in words.

        A comparison of two vectors is of their difference, one of two texts of both together.
        """
        sign = "≥" if self.threshold.above else "<"
        where = LAYOUTS[self.setting.layout]
        return f"{self.name} {sign} {self.threshold.value:.6g}, where {where}"


@dataclass(frozen=True)
class Source:
    """Outputs of a mechanism, checked: right in number, shape and value."""

    mechanism: Callable[[Any], Any]

    def sample(self, setting: Setting, which: int, count: int) -> Iterator[Outputs]:
        """`count` outputs of the first (0) or second (1) input, one block per call or two."""
        pair = setting.pair
        text, reference = (pair.first, pair.second)[which], pair.second
        size = len(text) + 1 if isinstance(text, str) else text.size
        # Few rows a call, for memory; many calls, since noise may be shared within one.
        most = max(1, min(-(-count // CALLS), CELLS // size))
        for start in range(0, count, most):
            rows = min(most, count - start)
            if setting.layout == "alone":
                yield self._call([text], rows)
            elif setting.layout == "again":
                yield _compare(self._call([text], rows), self._call([reference], rows))
            else:
                both = self._call([text, reference], rows)
                own, other = both[0::2], both[1::2]
                yield other if setting.layout == "bystander" else _compare(own, other)

    def _call(self, inputs: list[Any], times: int) -> Any:
        """What the mechanism makes of the inputs, one after the other, so many times."""
        batch: Any = inputs * times
        if not isinstance(inputs[0], str):
            batch = np.tile(np.stack(inputs), (times, 1))
        count = len(batch)
        try:
            out = self.mechanism(batch)
        except Exception as error:
            raise CapeletError(
                f"the mechanism raised {type(error).__name__} on {count} inputs: {error}"
            ) from error
        width = None if isinstance(inputs[0], str) else inputs[0].size
        return _check_outputs(out, count, width)


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


def _compare(own: Outputs, other: Outputs) -> Outputs:
    """Vectors by their difference, texts by putting both into one."""
    if isinstance(own, list) and isinstance(other, list):
        return [f"{one} | {two}" for one, two in zip(own, other, strict=True)]
    # Two finite outputs may lie farther apart than the largest float.
    with np.errstate(over="ignore"):
        gap = np.asarray(own) - np.asarray(other)
    return np.clip(gap, -np.finfo(float).max, np.finfo(float).max)


# ---- the search ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Worst:
    """What the search settled on, and how much it tried."""

    event: Event
    settings: int
    events: int


def search(
    source: Source, pairs: list[Pair], claim: Claim, draws: int, progress: Progress = silent
) -> Worst:
    """The event that looks worst after four rounds, of about `draws` outputs of each side."""
    settings = [
        Setting(pair, layout)
        for place, pair in enumerate(pairs)
        for layout in LAYOUTS
        if layout == "alone" or place < IN_ALL_LAYOUTS
    ]
    candidates: dict[Setting, set[str] | None] = dict.fromkeys(settings)
    total = 0
    events: list[Event] = []
    rounds = len(SURVIVORS) + 1
    for turn in range(rounds):
        count = max(FEWEST, draws // (rounds * len(candidates)))
        events = []
        for place, (setting, names) in enumerate(candidates.items()):
            events += _round(source, setting, names, claim, count, draws)
            progress(f"search {turn + 1} of {rounds}", place + 1, len(candidates))
        # The first round tries every event; later ones only try some of them again.
        total = total or len(events)
        if turn < len(SURVIVORS):
            candidates = _survivors(events, *SURVIVORS[turn])
    return Worst(max(events, key=lambda event: event.rank), len(settings), total)


def _round(
    source: Source,
    setting: Setting,
    names: set[str] | None,
    claim: Claim,
    count: int,
    final: int,
) -> list[Event]:
    """The best threshold of each statistic in one setting."""
    learn = count // 4
    # What is learnt (likelihood ratios, modes) is learnt on other outputs than are scored, or a
    # statistic would score the noise it has memorised.
    samples = [_join(source.sample(setting, which, learn)) for which in (0, 1)]
    table = statistics(samples[0], samples[1], setting.lean)
    if names is not None:
        table = {name: statistic for name, statistic in table.items() if name in names}
    values = [_columns(source, setting, which, count - learn, table) for which in (0, 1)]
    distance = setting.pair.distance

    def score(hits: Reals, misses: Reals, of: Sizes) -> Reals:
        return claim.score(hits, misses, of, distance)

    thresholds = best_thresholds(values[0], values[1], score, final)
    return [
        Event(setting, name, statistic, threshold)
        for (name, statistic), threshold in zip(table.items(), thresholds, strict=True)
    ]


def _columns(
    source: Source, setting: Setting, which: int, count: int, table: dict[str, Statistic]
) -> Reals:
    """A row for each statistic of `count` outputs, which are forgotten block by block."""
    columns = np.empty((len(table), count))
    start = 0
    for outputs in _merge(source.sample(setting, which, count)):
        for row, statistic in zip(columns, table.values(), strict=True):
            row[start : start + len(outputs)] = values_of(statistic, outputs)
        start += len(outputs)
    return columns


def _merge(blocks: Iterator[Outputs]) -> Iterator[Outputs]:
    """The same outputs in fewer blocks: a statistic costs little more for 4,096 than for one."""
    waiting: list[Outputs] = []
    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) >= 4096:
            yield _join(waiting)
            waiting = []
    if waiting:
        yield _join(waiting)


def _join(blocks: Iterable[Outputs]) -> Outputs:
    parts = list(blocks)
    if isinstance(parts[0], list):
        return [text for part in parts for text in part]
    return np.concatenate([np.asarray(part) for part in parts])


def _survivors(events: list[Event], settings: int, names: int) -> dict[Setting, set[str] | None]:
    """The settings with the best events, and the best statistics of each."""
    survivors: dict[Setting, set[str] | None] = {}
    for event in sorted(events, key=lambda event: event.rank, reverse=True):
        if event.setting not in survivors and len(survivors) < settings:
            survivors[event.setting] = set()
        best = survivors.get(event.setting)
        if best is not None and len(best) < names:
            best.add(event.name)
    return survivors


def count_hits(
    source: Source, event: Event, count: int, progress: Progress = silent
) -> tuple[int, int]:
    """How often the event came from the input that makes it likelier, and from the other."""
    hits = [0, 0]
    for which in (0, 1):
        total = 0
        for outputs in source.sample(event.setting, which, count):
            hits[which] += event.threshold.hits(values_of(event.statistic, outputs))
            total += len(outputs)
            progress("count", which * count + total, 2 * count)
    return (hits[1], hits[0]) if event.threshold.from_second else (hits[0], hits[1])
