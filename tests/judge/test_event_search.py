"""The search with mechanisms that are certain: which events survive, win, and are counted."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from capelet.judge import event_search as module
from capelet.judge.bounds import Claim, Threshold
from capelet.judge.calls import CROWD, IN_COMPANY, PUBLIC, SMALL, Draw, Source, View, views
from capelet.judge.event_search import (
    FAMILIES,
    Event,
    Family,
    Finalist,
    Setting,
    count_hits,
    search,
)
from capelet.judge.pairs import Pair

ONE, TWO = np.array([1.0, 0.0]), np.array([0.0, 1.0])
PAIR = Pair("one and two", ONE, TWO)
TEXTS = Pair("texts", "a", "b", 2.0)
CLAIM = Claim(1.0, 0.0, 0.99)
MAIN, RARE, COMPANY, CALLS = FAMILIES
(OWN,) = views(CROWD, is_text=False)


@pytest.fixture(autouse=True)
def seed_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins that fall alike in every run of a test: no figure here is a matter of the draw."""
    seeded, numbers = np.random.default_rng, itertools.count()
    monkeypatch.setattr("capelet.judge.calls.np.random.default_rng", lambda: seeded(next(numbers)))


class Recorder:
    """Returns what it is given; remembers every batch."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def __call__(self, batch: Any) -> Any:
        self.batches.append(batch)
        return batch


def setting(pair: Pair = PAIR, view: View = OWN) -> Setting:
    return Setting(pair, CROWD, view)


def event(where: Setting, name: str, score: float) -> Event:
    return Event(where, name, lambda rows: rows[:, 0], Threshold(score, 0.5, True, False))


# ---- families ------------------------------------------------------------------------------------


def test_families_share_the_samples_and_the_risk() -> None:
    assert sum(family.samples for family in FAMILIES) == pytest.approx(1.0)
    assert sum(family.risk for family in FAMILIES) == pytest.approx(1.0)
    assert RARE.plans == MAIN.plans == (CROWD,) and CALLS.plans == SMALL
    assert [family.is_plain for family in FAMILIES] == [False, True, True, True]
    assert [module._budget(family, 500_000) for family in FAMILIES] == [
        750_000,
        150_000,
        100_000,
        2 * module.MOST_CALLS,
    ]
    assert module._budget(CALLS, 500) == 2 * module.FEWEST_CALLS
    sizes = [module._count_size(plan, 100) for plan in (CROWD, IN_COMPANY, SMALL[0])]
    assert sizes == [100, 50, 50]


def test_the_families_are_as_the_card_says() -> None:
    """Pairs, settings and statistics that each round hands on; eighty small calls of each size."""
    assert [family.name for family in FAMILIES] == [
        "search",
        "rare rows",
        "rows in company",
        "small calls",
    ]
    assert [family.pairs for family in FAMILIES] == [tuple(range(12)), (), (0, 4), (0, 4)]
    assert [family.survivors for family in FAMILIES] == [
        ((8, 12), (4, 8), (2, 4)),
        (),
        ((8, 6),),
        ((6, 6),),
    ]
    assert [family.rounds for family in FAMILIES] == [4, 1, 2, 2]
    assert [family.samples for family in FAMILIES] == [0.75, 0.15, 0.1, 0.0]
    assert [family.risk for family in FAMILIES] == [0.7, 0.1, 0.1, 0.1]


def test_a_round_and_a_family_have_what_they_need_at_least() -> None:
    budgets = [module._budget(CALLS, draws) for draws in (0, 20_000, 22_500, 25_000, 99_000)]
    assert budgets == [1600, 1600, 1800, 2000, 2000]
    assert [module._budget(COMPANY, draws) for draws in (0, 30_000, 40_000)] == [6000, 6000, 8000]
    assert [module._budget(RARE, draws) for draws in (0, 1000)] == [1, 300]
    small = SMALL[0]
    assert [module._round_size(small, share) for share in (0, 40, 41)] == [40, 40, 41]
    assert [module._round_size(CROWD, share) for share in (0, 3000, 3001)] == [3000, 3000, 3001]
    shares = (0, 6000, 6002)
    assert [module._round_size(IN_COMPANY, share) for share in shares] == [3000, 3000, 3001]


def test_a_claim_with_a_share_of_its_risk_proves_less() -> None:
    assert CLAIM.with_share(0.1).confidence == pytest.approx(0.999)
    whole, part = (claim.proven(90, 10, (100, 100)) for claim in (CLAIM, CLAIM.with_share(0.1)))
    assert part < whole


# ---- rounds --------------------------------------------------------------------------------------


def test_the_best_settings_survive_with_their_best_statistics() -> None:
    far = Pair("far", ONE, 5 * TWO)
    other = View("elsewhere", OWN.sample)
    settings = [setting(), setting(far), setting(PAIR, other)]
    events = [
        event(settings[0], "a", 1.0),
        event(settings[0], "b", 3.0),
        event(settings[0], "c", 2.0),
        event(settings[1], "a", 2.5),
        event(settings[2], "a", 0.5),
    ]
    looks = module._survivors(events, 2, 2)
    assert looks == {(PAIR, CROWD): {OWN.phrase: {"b", "c"}}, (far, CROWD): {OWN.phrase: {"a"}}}
    # Two views of one pair's calls share the calls.
    both = module._survivors(events, 9, 9)
    assert both[PAIR, CROWD] == {OWN.phrase: {"a", "b", "c"}, "elsewhere": {"a"}}


def sign_flip(share: float) -> Any:
    """e₁ or −e₁ as they come, flipped with this probability: a loss of ln((1 − share)/share)."""
    random = np.random.Generator(np.random.PCG64(0))

    def mechanism(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        flips = np.where(random.random((len(rows), 1)) < share, -1.0, 1.0)
        return np.sign(rows[:, :1] - 0.5) * flips * np.ones((1, rows.shape[1]))

    return mechanism


def test_the_search_finds_the_pair_and_the_event_that_leak() -> None:
    same = Pair("nothing", np.array([1.0, 0.0]), np.array([1.0, 5.0]))
    reports: list[tuple[str, int, int]] = []
    pairs = [same] * 6 + [PAIR]
    pairs = [replace(pair, name=f"{pair.name} {n}") for n, pair in enumerate(pairs)]
    worst = search(
        Source(sign_flip(0.1)), pairs, CLAIM, 4000, lambda *report: reports.append(report)
    )
    main = next(final for final in worst.finalists if final.family is MAIN)
    assert main.event.setting.pair is pairs[6] and main.count == 6000
    first = [report for report in reports if report[0] == "search, round 1 of 4"]
    assert first[-1][1:] == (7, 7)
    assert {title for title, _, _ in reports} >= {
        "search, round 4 of 4",
        "rows in company, round 2 of 2",
        "rare rows, round 1 of 1",
        "small calls, round 2 of 2",
    }
    # Rare rows are looked for on that pair, and counted with it.
    rare = next(final for final in worst.finalists if final.family is RARE)
    assert rare.event.setting.pair is pairs[6]
    assert worst.events > 7 * 10
    assert np.log(0.9 / 0.1) - 0.8 < main.event.threshold.score < np.log(0.9 / 0.1)


def test_a_round_learns_on_a_quarter_and_scores_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def learn(first: Any, second: Any, inputs: Any, **options: Any) -> Any:
        sizes.append(len(first) + len(second))
        assert np.array_equal(inputs, (ONE, TWO))
        assert options == {"short": False, "own": True}
        return {"x": lambda rows: rows[:, 0], "y": lambda rows: rows[:, 1]}

    monkeypatch.setattr(module, "statistics", learn)
    recorder = Recorder()
    scoring = module.Judgement(MAIN, CLAIM, 500)
    events = module._look(Source(recorder), PAIR, CROWD, None, scoring, 200)
    assert sizes == [50] and sum(map(len, recorder.batches)) == 200
    assert [item.name for item in events] == ["x", "y"]
    assert all(item.setting.pair is PAIR for item in events)
    names = {OWN.phrase: {"y"}}
    (only,) = module._look(Source(recorder), PAIR, CROWD, names, scoring, 200)
    assert only.name == "y" and only.statistic(np.array([[1.0, 2.0]])).tolist() == [2.0]
    assert module._look(Source(recorder), PAIR, CROWD, {"other": {"y"}}, scoring, 200) == []
    assert module._look(Source(recorder), PAIR, CROWD, None, scoring, 24) == []  # nine of each


def test_thresholds_are_scored_for_the_size_of_the_final_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """150 of 200 outputs are scored; of 3,000 to be counted half are of each input."""
    calls: list[tuple[int, int, bool]] = []

    def spy(first: Any, second: Any, score: Any, final: int, *, extrapolate: bool) -> Any:
        assert first.shape == second.shape and score is not None
        calls.append((first.shape[1], final, extrapolate))
        return [Threshold(0.0, 0.0, True, False)] * len(first)

    monkeypatch.setattr(module, "best_thresholds", spy)
    for family, budget in ((MAIN, 3000), (RARE, 3000), (RARE, 1)):
        scoring = module.Judgement(family, CLAIM, budget)
        module._look(Source(lambda rows: rows), PAIR, CROWD, None, scoring, 200)
    assert [call[1:] for call in calls] == [(1500, True), (1500, False), (1, False)]
    assert all(50 < size <= 75 for size, _, _ in calls)


def test_a_score_is_per_unit_of_distance() -> None:
    far = replace(PAIR, distance=4.0)
    scores = []
    for pair in (PAIR, far):
        scoring = module.Judgement(replace(MAIN, is_plain=True), CLAIM, 4000)
        events = module._look(Source(lambda rows: rows), pair, CROWD, None, scoring, 4000)
        scores.append(max(item.threshold.score for item in events))
    assert scores[1] == pytest.approx(scores[0] / 4, rel=0.1) and scores[0] > 1


def test_rare_events_win_only_where_they_are_looked_for() -> None:
    """Once in a hundred the row itself, else a fair sign: `score` reckons with ten misses."""
    random = np.random.Generator(np.random.PCG64(1))

    def seldom(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        raw = random.random((len(rows), 1)) < 0.01
        return np.where(raw, rows, random.integers(5, 7, size=rows.shape))

    best = {}
    for family in (MAIN, RARE):
        scoring = module.Judgement(family, CLAIM, 8000)
        events = module._look(Source(seldom), PAIR, CROWD, None, scoring, 8000)
        best[family.name] = max(item.threshold.score for item in events)
    assert best[RARE.name] > 1.0 > best[MAIN.name]


def test_a_setting_is_never_drawn_less_than_the_fewest() -> None:
    recorder = Recorder()
    search(Source(recorder), [PAIR], CLAIM, 10)
    rows = sum(map(len, recorder.batches)) - sum(len(b) for b in recorder.batches if len(b) <= 256)
    assert rows >= (4 + 2 + 1) * 1.5 * module.FEWEST
    small = [len(batch) for batch in recorder.batches if len(batch) in (1, 2, 7, 33)]
    assert len(small) >= 4 * 2 * module.LEAST


# ---- the count -----------------------------------------------------------------------------------


@pytest.mark.parametrize("from_second", [False, True])
def test_hits_are_counted_of_both_and_told_in_order(from_second: bool) -> None:
    reports: list[tuple[str, int, int]] = []
    threshold = Threshold(1.0, 0.5, above=True, from_second=from_second)
    final = Finalist(Event(setting(), "x", lambda rows: rows[:, 0], threshold), MAIN, 3000)
    source = Source(lambda rows: rows)
    (tally,) = count_hits(source, [final], lambda *report: reports.append(report))
    first, second = tally.counts
    assert first + second == 3000 and 1300 < first < 1700
    assert tally.hits == ((0, second) if from_second else (first, 0))
    assert reports[0] == ("count: search", 600, 3000) and reports[-1][1:] == (3000, 3000)


def test_company_and_small_calls_are_counted_by_their_targets() -> None:
    threshold = Threshold(1.0, 0.5, above=True, from_second=False)
    recorder = Recorder()
    where = Setting(PAIR, IN_COMPANY, views(IN_COMPANY, False)[0])
    final = Finalist(Event(where, "x", lambda rows: rows[:, 0], threshold), COMPANY, 4000)
    (tally,) = count_hits(Source(recorder), [final])
    assert sum(map(len, recorder.batches)) == 8000  # both calls together
    assert 800 < sum(tally.counts) < 1200 and tally.hits == (tally.counts[0], 0)
    where = Setting(PAIR, SMALL[2], views(SMALL[2], False)[0])
    final = Finalist(Event(where, "x", lambda rows: rows[:, 0], threshold), CALLS, 300)
    (tally,) = count_hits(Source(lambda rows: rows), [final])
    assert sum(tally.counts) == 300


def test_events_on_one_pair_are_counted_on_all_outputs_of_it() -> None:
    def final(pair: Pair, family: Family, count: int, value: float) -> Finalist:
        threshold = Threshold(1.0, value, above=True, from_second=False)
        return Finalist(
            Event(setting(pair), "x", lambda rows: rows[:, 0], threshold), family, count
        )

    recorder = Recorder()
    reports: list[tuple[str, int, int]] = []
    finalists = [final(PAIR, MAIN, 3000, 0.5), final(replace(PAIR), COMPANY, 100, 0.5)]
    finalists.append(final(PAIR, RARE, 500, 2.0))
    tallies = count_hits(Source(recorder), finalists, lambda *report: reports.append(report))
    assert [sum(tally.counts) for tally in tallies] == [3500, 100, 3500]
    assert sum(map(len, recorder.batches)) == 3600
    assert tallies[0].hits == (tallies[0].counts[0], 0) and tallies[2].hits == (0, 0)
    assert {title for title, _, _ in reports} == {
        "count: search, rare rows",
        "count: rows in company",
    }


def test_without_a_worst_pair_rare_rows_are_looked_for_on_the_first() -> None:
    far = Pair("far", ONE, 5 * TWO)
    assert module._worst_pair([], [PAIR, far]) is PAIR
    for score, pair in ((0.1, far), (-0.1, PAIR)):
        finalist = Finalist(event(setting(far), "x", score), MAIN, 10)
        assert module._worst_pair([finalist], [PAIR, far]) is pair


def test_events_are_told_in_words() -> None:
    above = event(setting(), "the sum", 1.0)
    assert above.sentence() == "the sum ≥ 0.5, where the output of the text itself is seen"
    below = Event(setting(), "the sum", above.statistic, Threshold(1.0, 0.5, False, False))
    assert below.sentence().startswith("the sum < 0.5, where the output of the text itself")
    assert setting(TEXTS).inputs is None
    tiny = Threshold(1.0, float(np.nextafter(0.0, 1.0)), False, False)
    assert Event(setting(), "the sum", above.statistic, tiny).sentence().startswith("the sum ≤ 0,")


def test_a_view_without_outputs_has_no_events() -> None:
    lonely = Draw(np.ones((2, 2)), np.array([0, PUBLIC], dtype=np.int8), 2, ONE)
    assert module._table(setting(), [lonely], True) == {}
    assert module._sides(np.ones((1, 12)), np.zeros(12, dtype=np.int8)) is None
    coins = np.repeat(np.array([0, 1], dtype=np.int8), [10, 12])
    sides = module._sides(np.arange(22.0)[None], coins)  # ten of each are enough
    assert sides is not None
    assert [side.tolist() for side in sides] == [[[*range(10)]], [[*range(10, 20)]]]
    assert module._sides(np.arange(22.0)[None, 1:], coins[1:]) is None
    for counts, empty in (((2, 2), False), ((1, 9), True), ((9, 1), True)):
        coins = np.repeat(np.array([0, 1], dtype=np.int8), counts)
        draw = Draw(np.arange(2.0 * sum(counts)).reshape(-1, 2), coins, 1, ONE)
        assert (module._table(setting(), [draw], True) == {}) is empty
    assert isinstance(MAIN, Family)
