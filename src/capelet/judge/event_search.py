"""The search for bad pairs and bad events, and the count that judges the few it settles on.

Four families look for different faults, each on a share of the samples of its own. A round draws
outputs of both inputs, learns its statistics on a quarter of them and scores thresholds on the
rest; the next round has fewer settings and more outputs of each. What wins the last round of each
family is fixed, and counted on fresh outputs. So at most four tests are made, and each has its
share of the risk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from capelet.interfaces import Progress, silent
from capelet.judge.bounds import Claim, Sizes, Threshold, best_thresholds
from capelet.judge.calls import (
    CROWD,
    IN_COMPANY,
    SMALL,
    CallLayout,
    Coins,
    Draw,
    Source,
    View,
    join,
    views,
)
from capelet.judge.pairs import Pair
from capelet.judge.statistics import Inputs, Outputs, Reals, Statistic, statistics, values_of

FEWEST = 1500  # outputs of each input of a setting in a round
LEAST = 20  # outputs of each input, below which a view is not scored
# Small calls cost time by the call: so many for each of two rounds, and for the count.
FEWEST_CALLS, MOST_CALLS = 800, 1000


@dataclass(frozen=True)
class Family:
    """One way to look for faults: its plans, its pairs, its rounds, its share of the samples.

    `pairs` are places in the list of pairs; where there are none, it is the pair that the first
    family settled on. `survivors` are the settings, and the statistics of each, that a round hands
    on. `risk` is the share of 1 − confidence that its one count may use.
    """

    name: str
    plans: tuple[CallLayout, ...]
    pairs: tuple[int, ...]
    survivors: tuple[tuple[int, int], ...]
    samples: float
    risk: float
    is_plain: bool = True  # few statistics, each scored by its counts alone

    @property
    def rounds(self) -> int:
        return len(self.survivors) + 1


# Most samples and most of the risk go to the single outputs, where the margin is small: noise of
# 0.97 times its scale loses 1.03 for 1. What rows share, and what small calls leave bare, is gross
# where it is there at all. Pairs 0 and 4 are ±e₁ and 1000·e₁ with e₁. Rare rows are looked for on
# the worst pair: there the outputs that are counted for the first family count for them too.
FAMILIES = (
    Family(
        "search", (CROWD,), tuple(range(12)), ((8, 12), (4, 8), (2, 4)), 0.75, 0.7, is_plain=False
    ),
    Family("rare rows", (CROWD,), (), (), 0.15, 0.1),
    Family("rows in company", (IN_COMPANY,), (0, 4), ((8, 6),), 0.1, 0.1),
    # Eighty calls of each size tell what is worth more of them, and no more than that.
    Family("small calls", SMALL, (0, 4), ((6, 6),), 0.0, 0.1),
)


@dataclass(frozen=True, eq=False)
class Setting:
    """One pair in the calls of one plan, looked at in one way."""

    pair: Pair
    plan: CallLayout
    view: View

    @property
    def inputs(self) -> Inputs | None:
        pair = self.pair
        return None if isinstance(pair.first, str) else (pair.first, pair.second)


@dataclass(frozen=True, eq=False)
class Event:
    """A statistic and a threshold: all that is needed to count on fresh outputs."""

    setting: Setting
    name: str
    statistic: Statistic
    threshold: Threshold

    def sentence(self) -> str:
        """The event in words.

        A comparison of two vectors is of their difference, one of two texts of both together.
        """
        value, where = self.threshold.value, self.setting.view.phrase
        comparison = f"{'≥' if self.threshold.above else '<'} {value:.6g}"
        if not self.threshold.above and 0 < value < sys.float_info.min:
            comparison = "≤ 0"  # just above 0 there is no number to print
        return f"{self.name} {comparison}, where {where}"


@dataclass(frozen=True, eq=False)
class Finalist:
    """What a family settled on, and what it is to be counted with."""

    event: Event
    family: Family
    count: int  # rows, or small calls


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What the search settled on, and how much it tried."""

    finalists: list[Finalist]
    events: int


def search(
    source: Source, pairs: list[Pair], claim: Claim, draws: int, progress: Progress = silent
) -> SearchResult:
    """The events that look worst, one of each family, of about `draws` outputs of each input."""
    finalists, events = list[Finalist](), 0
    for family in FAMILIES:
        count = _budget(family, draws)
        own_pairs = [pairs[place] for place in family.pairs if place < len(pairs)]
        own_pairs = own_pairs or [_worst_pair(finalists, pairs)]
        winners, number = _search_family(source, family, own_pairs, claim, count, progress)
        events += number
        if winners:
            best = max(winners, key=lambda event: event.threshold.score)
            finalists.append(Finalist(best, family, _count_size(best.setting.plan, count)))
    return SearchResult(finalists, events)


def _worst_pair(finalists: list[Finalist], pairs: list[Pair]) -> Pair:
    """The pair of the worst event so far; the first one where none told its inputs apart.

    A mechanism may make one row of two inputs, by normalising both: no row is raw there.
    """
    best = finalists[0].event if finalists else None
    return best.setting.pair if best is not None and best.threshold.score > 0 else pairs[0]


def _budget(family: Family, draws: int) -> int:
    """Rows of both inputs together, or small calls, for the search of a family."""
    if family.plans == SMALL:
        return family.rounds * min(max(FEWEST_CALLS, draws // 25), MOST_CALLS)
    # In company a quarter of the rows, and of these the few that share something, are looked at.
    least = 4 * FEWEST if family.plans == (IN_COMPANY,) else 1
    return max(int(2 * draws * family.samples), least)


def _count_size(plan: CallLayout, budget: int) -> int:
    """Rows, or small calls, for the count of what a family settled on."""
    # A row in company has its public row in a second call; of small calls half are for the search's
    # second round.
    return budget if plan == CROWD else budget // 2


Looks = dict[tuple[Pair, CallLayout], dict[str, set[str]] | None]


def _search_family(
    source: Source, family: Family, pairs: list[Pair], claim: Claim, budget: int, progress: Progress
) -> tuple[list[Event], int]:
    """The events of the last round, and how many the first one tried."""
    looks: Looks = {(pair, plan): None for pair in pairs for plan in family.plans}
    first_events, events = 0, list[Event]()
    for turn in range(family.rounds):
        events = []
        for place, ((pair, plan), names) in enumerate(looks.items()):
            count = _round_size(plan, budget // (family.rounds * len(looks)))
            events += _look(source, pair, plan, names, Judgement(family, claim, budget), count)
            title = f"{family.name}, round {turn + 1} of {family.rounds}"
            progress(title, place + 1, len(looks))
        # The first round tries every event; later ones only try some of them again.
        first_events = first_events or len(events)
        if turn < len(family.survivors):
            looks = _survivors(events, *family.survivors[turn])
    return events, first_events


def _round_size(plan: CallLayout, share: int) -> int:
    """At least what a score needs."""
    if plan.name == "small":
        return max(2 * LEAST, share)
    # In company half of the rows are targets, and each needs its public row: of 3,000 rows a lag
    # has some four hundred outputs of each input.
    return max(2 * FEWEST, share if plan == CROWD else share // 2)


@dataclass(frozen=True)
class Judgement:
    """How the events of a family are scored."""

    family: Family
    claim: Claim
    budget: int

    def score(self, distance: float) -> Callable[[Reals, Reals, Sizes], Reals]:
        rank = self.claim.plain_score if self.family.is_plain else self.claim.score
        return lambda hits, misses, of: rank(hits, misses, of, distance)


def _look(
    source: Source,
    pair: Pair,
    plan: CallLayout,
    names: dict[str, set[str]] | None,
    judgement: Judgement,
    count: int,
) -> list[Event]:
    """The best threshold of each statistic in each view of one pair's calls."""
    learn = count // 4
    # What is learnt (likelihood ratios, modes) is learnt on other outputs than are scored, or a
    # statistic would score the noise it has memorised.
    lessons = list(source.draw(plan, pair, learn))
    is_text = isinstance(lessons[0].outputs, list)
    tables: dict[Setting, dict[str, Statistic]] = {}
    for view in views(plan, is_text):
        if names is None or view.phrase in names:
            setting = Setting(pair, plan, view)
            table = _table(setting, lessons, judgement.family.is_plain)
            if names is not None:
                table = {name: table[name] for name in table if name in names[view.phrase]}
            if table:
                tables[setting] = table
    columns = _columns(tables, source.draw(plan, pair, count - learn))
    score = judgement.score(pair.distance)
    events = []
    for setting, values, coins in columns:
        sides = _sides(values, coins)
        if sides is None:
            continue
        # Of rows in company only some have the public row that they are compared with.
        final = judgement.budget * len(coins) // (2 * (count - learn))
        smooth = not judgement.family.is_plain
        thresholds = best_thresholds(*sides, score, max(final, 1), extrapolate=smooth)
        named = zip(tables[setting].items(), thresholds, strict=True)
        events += [Event(setting, name, statistic, mark) for (name, statistic), mark in named]
    return events


def _table(setting: Setting, lessons: list[Draw], short: bool) -> dict[str, Statistic]:
    """The statistics of a view, learnt; none where a view has hardly an output of either input."""
    samples = [setting.view.sample(draw) for draw in lessons]
    outputs, coins = join([rows for rows, _ in samples]), _join_coins([c for _, c in samples])
    first, second = (_where(outputs, coins == side) for side in (0, 1))
    if min(len(first), len(second)) < 2:
        return {}
    return statistics(first, second, setting.inputs, short=short, own=setting.view.own)


def _columns(
    tables: dict[Setting, dict[str, Statistic]], draws: Iterator[Draw]
) -> Iterator[tuple[Setting, Reals, Coins]]:
    """For each setting a row for each statistic; the outputs are forgotten draw by draw."""
    blocks: dict[Setting, list[tuple[Reals, Coins]]] = {setting: [] for setting in tables}
    for draw in draws:
        for setting, table in tables.items():
            outputs, coins = setting.view.sample(draw)
            if len(coins):
                rows = [values_of(statistic, outputs) for statistic in table.values()]
                blocks[setting].append((np.stack(rows), coins))
    for setting, parts in blocks.items():
        if parts:
            values = np.concatenate([rows for rows, _ in parts], axis=1)
            yield setting, values, _join_coins([coins for _, coins in parts])


def _sides(values: Reals, coins: Coins) -> tuple[Reals, Reals] | None:
    """The values of each input, as many of one as of the other."""
    first, second = values[:, coins == 0], values[:, coins == 1]
    size = min(first.shape[1], second.shape[1])
    return (first[:, :size], second[:, :size]) if size >= LEAST // 2 else None


def _join_coins(parts: list[Coins]) -> Coins:
    return cast(Coins, np.concatenate(parts))


def _where(outputs: Outputs, mask: Any) -> Outputs:
    if isinstance(outputs, list):
        return [text for text, inside in zip(outputs, mask.tolist(), strict=True) if inside]
    return outputs[mask]


def _survivors(events: list[Event], settings: int, names: int) -> Looks:
    """The settings with the best events, and the best statistics of each, by their calls."""
    best: dict[Setting, set[str]] = {}
    for event in sorted(events, key=lambda event: event.threshold.score, reverse=True):
        if event.setting not in best and len(best) < settings:
            best[event.setting] = set()
        best_names = best.get(event.setting)
        if best_names is not None and len(best_names) < names:
            best_names.add(event.name)
    looks: Looks = {}
    for setting, own_names in best.items():
        by_view = looks.setdefault((setting.pair, setting.plan), {})
        assert by_view is not None
        by_view[setting.view.phrase] = own_names
    return looks


@dataclass(frozen=True)
class Tally:
    """How often an event came from the input that makes it likelier, and from the other."""

    hits: tuple[int, int]
    counts: tuple[int, int]


def count_hits(
    source: Source, finalists: list[Finalist], progress: Progress = silent
) -> list[Tally]:
    """Count each event on fresh outputs, each of one input or the other by its own coin.

    Events on one pair in calls of one plan are counted on the same outputs: that makes more of
    them for each, and the risks of the counts add up whether these are independent or not.
    """
    groups: dict[tuple[Pair, CallLayout], list[int]] = {}
    for place, final in enumerate(finalists):
        setting = final.event.setting
        groups.setdefault((setting.pair, setting.plan), []).append(place)
    tallies: dict[int, Tally] = {}
    for (pair, plan), places in groups.items():
        count = sum(finalists[place].count for place in places)
        counters = [_Counter(finalists[place].event) for place in places]
        title = f"count: {', '.join(finalists[place].family.name for place in places)}"
        calls = 0
        for draw in source.draw(plan, pair, count):
            for counter in counters:
                counter.add(draw)
            calls += len(draw.coins) // (draw.size if plan.name == "small" else 1)
            progress(title, calls, count)
        tallies |= {place: item.tally() for place, item in zip(places, counters, strict=True)}
    return [tallies[place] for place in range(len(finalists))]


class _Counter:
    """The running count of one event, by input."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self.hits, self.counts = [0, 0], [0, 0]

    def add(self, draw: Draw) -> None:
        outputs, coins = self.event.setting.view.sample(draw)
        if not len(coins):
            return
        values = values_of(self.event.statistic, outputs)
        for side in (0, 1):
            self.hits[side] += self.event.threshold.hits(values[coins == side])
            self.counts[side] += int(np.count_nonzero(coins == side))

    def tally(self) -> Tally:
        one, other = (1, 0) if self.event.threshold.from_second else (0, 1)
        return Tally((self.hits[one], self.hits[other]), (self.counts[one], self.counts[other]))
