"""The search with mechanisms that are certain: what is called, compared, kept and counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from capelet.errors import CapeletError, DataError
from capelet.judge import search as module
from capelet.judge.bounds import Claim, Threshold
from capelet.judge.pairs import Pair
from capelet.judge.search import CALLS, CELLS, LAYOUTS, Event, Setting, Source, count_hits, search

ONE, TWO = np.array([1.0, 0.0]), np.array([0.0, 1.0])
PAIR = Pair("one and two", ONE, TWO)
TEXTS = Pair("texts", "a", "b", 2.0)
CLAIM = Claim(1.0, 0.0, 0.99)


class Recorder:
    """Returns what it is given, with the number of the call added; remembers every batch."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def __call__(self, batch: Any) -> Any:
        self.batches.append(batch)
        if isinstance(batch, list):
            return [f"{text}{len(self.batches)}" for text in batch]
        return batch + 10.0 * len(self.batches)


def outputs(layout: Any, which: int, count: int, pair: Pair = PAIR) -> tuple[list[Any], Recorder]:
    recorder = Recorder()
    return list(Source(recorder).sample(Setting(pair, layout), which, count)), recorder


# ---- outputs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_alone_the_text_s_own_output_is_seen(which: int) -> None:
    blocks, recorder = outputs("alone", which, 7)
    text = (ONE, TWO)[which]
    assert [len(block) for block in blocks] == [2, 2, 2, 1]  # at least CALLS calls where it can be
    for number, (block, batch) in enumerate(zip(blocks, recorder.batches, strict=True), start=1):
        assert (batch == text).all() and (block == text + 10 * number).all()
    assert len(outputs("alone", which, 1000)[0]) == CALLS


@pytest.mark.parametrize("which", [0, 1])
def test_beside_and_bystander_share_a_call_with_the_second_input(which: int) -> None:
    text = (ONE, TWO)[which]
    blocks, recorder = outputs("beside", which, 10)
    assert all(
        (batch[0::2] == text).all() and (batch[1::2] == TWO).all() for batch in recorder.batches
    )
    assert all((block == text - TWO).all() for block in blocks)  # the call's number cancels
    assert sum(map(len, blocks)) == 10
    blocks, _ = outputs("bystander", which, 10)
    for number, block in enumerate(blocks, start=1):
        assert (block == TWO + 10 * number).all()


def test_again_is_compared_with_the_same_row_of_another_call() -> None:
    blocks, recorder = outputs("again", 0, 10)
    assert len(recorder.batches) == 2 * len(blocks)
    assert all((block == ONE - TWO - 10).all() for block in blocks)


def test_texts_are_compared_by_putting_both_into_one() -> None:
    blocks, _ = outputs("alone", 1, 5, TEXTS)
    assert blocks == [["b1"], ["b2"], ["b3"], ["b4"], ["b5"]]
    blocks, _ = outputs("beside", 0, 5, TEXTS)
    assert blocks[0] == ["a1 | b1"]
    blocks, _ = outputs("again", 0, 5, TEXTS)
    assert blocks[1] == ["a3 | b4"]
    blocks, _ = outputs("bystander", 0, 5, TEXTS)
    assert blocks[0] == ["b1"]


def test_a_call_holds_no_more_cells_than_it_may() -> None:
    wide = Pair("wide", np.zeros(CELLS // 4), np.ones(CELLS // 4))
    blocks, recorder = outputs("alone", 0, 30, wide)
    assert max(len(batch) for batch in recorder.batches) == 4
    assert sum(map(len, blocks)) == 30
    long = Pair("long", "x" * (CELLS // 2 - 1), "y")
    assert [len(block) for block in outputs("alone", 0, 30, long)[0]] == [2] * 15
    huge = Pair("huge", np.zeros(2 * CELLS), np.ones(2 * CELLS))
    assert [len(block) for block in outputs("alone", 0, 2, huge)[0]] == [1, 1]


def test_differences_that_overflow_are_cut() -> None:
    most = np.finfo(float).max
    gap = module._compare(np.array([[most, 1.0]]), np.array([[-most, 3.0]]))
    assert np.asarray(gap).tolist() == [[most, -2.0]]


@pytest.mark.parametrize(
    ("result", "count", "width", "message"),
    [
        (["a"], 2, None, "made 1 texts of 2"),
        (["a", 1], 2, None, "found shape|numbers"),
        (["a", "b"], 2, 3, "found shape"),
        (np.ones((2, 3)), 3, 3, r"of shape \(3, 3\); found shape \(2, 3\)"),
        (np.ones((2, 3)), 2, 4, r"of shape \(2, 4\); found shape \(2, 3\)"),
        (np.ones((2, 0)), 2, None, "any width"),
        (np.ones(2), 2, None, "found shape"),
        ([[1.0], [1.0, 2.0]], 2, None, "must return an array"),
        (np.array([["a"], ["b"]]), 2, None, "must return numbers"),
        (np.array([[1.0], [np.nan]]), 2, None, "NaN or infinity"),
        (np.array([[1.0], [np.inf]]), 2, 1, "NaN or infinity"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(
    result: Any, count: int, width: int | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        module._check_outputs(result, count, width)


def test_outputs_that_fit_are_taken() -> None:
    assert module._check_outputs(("a", "b"), 2, None) == ["a", "b"]
    for kind in (np.float32, np.int8, np.uint16, bool):
        out = module._check_outputs(np.ones((2, 3), dtype=kind), 2, None)
        assert np.asarray(out).dtype == np.float64 and np.shape(out) == (2, 3)
    with pytest.raises(CapeletError, match="raised KeyError on 4 inputs"):
        list(Source(lambda _: {}["x"]).sample(Setting(PAIR, "alone"), 0, 20))


def test_small_blocks_are_merged_and_nothing_is_lost() -> None:
    blocks = [np.full((size, 1), float(size)) for size in (4095, 1, 4096, 3, 5000, 2)]
    merged = list(module._merge(iter(blocks)))
    assert [len(block) for block in merged] == [4096, 4096, 5003, 2]
    assert np.array_equal(np.concatenate(merged), np.concatenate(blocks))
    assert list(module._merge(iter([["a"], ["b", "c"]]))) == [["a", "b", "c"]]
    assert list(module._merge(iter([]))) == []


# ---- rounds --------------------------------------------------------------------------------------


def event(setting: Setting, name: str, score: float) -> Event:
    return Event(setting, name, lambda rows: rows[:, 0], Threshold(score, 0.5, True, False))


def test_the_best_settings_survive_with_their_best_statistics() -> None:
    settings = [Setting(PAIR, "alone") for _ in range(3)]
    events = [
        event(settings[0], "a", 1.0),
        event(settings[0], "b", 3.0),
        event(settings[0], "c", 2.0),
        event(settings[1], "a", 2.5),
        event(settings[2], "a", 0.5),
    ]
    survivors = module._survivors(events, 2, 2)
    assert survivors == {settings[0]: {"b", "c"}, settings[1]: {"a"}}
    assert module._survivors(events, 9, 9)[settings[2]] == {"a"}


def test_of_equals_the_layout_that_shows_for_sure_wins() -> None:
    order = [event(Setting(PAIR, layout), "a", 1.0).rank for layout in LAYOUTS]
    assert order == sorted(order) and len(set(order)) == 4
    better = event(Setting(PAIR, "alone"), "a", 1.1)
    assert better.rank > order[-1]


def sign_flip(share: float) -> Any:
    """e₁ or −e₁ as they come, flipped with this probability: a loss of ln((1 − share)/share)."""
    random = np.random.default_rng(0)

    def mechanism(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        flips = np.where(random.random((len(rows), 1)) < share, -1.0, 1.0)
        return np.sign(rows[:, :1] - 0.5) * flips * np.ones((1, rows.shape[1]))

    return mechanism


def test_the_search_finds_the_pair_and_the_event_that_leak() -> None:
    same = Pair("nothing", np.array([1.0, 0.0]), np.array([1.0, 5.0]))
    reports: list[tuple[str, int, int]] = []
    pairs = [same] * 6 + [PAIR]
    worst = search(
        Source(sign_flip(0.1)), pairs, CLAIM, 4000, lambda *report: reports.append(report)
    )
    assert worst.event.setting.pair is PAIR and worst.event.setting.layout == "alone"
    assert worst.settings == 5 * 4 + 2  # five pairs in every layout, the others alone
    first = [report for report in reports if report[0] == "search 1 of 4"]
    assert first[-1][1:] == (22, 22) and reports[-1] == ("search 4 of 4", 2, 2)
    assert [total for text, place, total in reports if place == 1] == [22, 10, 4, 2]
    assert worst.events > 22 * 10
    assert worst.event.threshold.score == pytest.approx(np.log(0.9 / 0.1), abs=0.5)


def test_a_round_learns_on_a_quarter_and_scores_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def learn(first: Any, second: Any, lean: Any) -> Any:
        sizes.extend([len(first), len(second)])
        assert np.array_equal(lean, ONE - TWO)
        return {"x": lambda rows: rows[:, 0], "y": lambda rows: rows[:, 1]}

    monkeypatch.setattr(module, "statistics", learn)
    recorder = Recorder()
    setting = Setting(PAIR, "alone")
    events = module._round(Source(recorder), setting, None, CLAIM, 100, 500)
    assert sizes == [25, 25]
    assert sum(map(len, recorder.batches)) == 200
    assert [item.name for item in events] == ["x", "y"]
    assert all(item.setting is setting for item in events)
    (only,) = module._round(Source(recorder), setting, {"y"}, CLAIM, 100, 500)
    assert only.name == "y" and only.statistic(np.array([[1.0, 2.0]])).tolist() == [2.0]
    per_unit = Setting(Pair("far", ONE, TWO, distance=4.0), "alone")
    monkeypatch.setattr(module, "statistics", lambda *_: {"x": lambda rows: rows[:, 0] % 10})
    scores = [
        module._round(Source(Recorder()), item, None, CLAIM, 400, 500)[0].threshold.score
        for item in (setting, per_unit)
    ]
    assert scores[1] == pytest.approx(scores[0] / 4) and scores[0] > 1


def test_a_setting_is_never_drawn_less_than_the_fewest() -> None:
    recorder = Recorder()
    search(Source(recorder), [PAIR], CLAIM, 10)
    calls = [len(batch) for batch in recorder.batches]
    assert sum(calls[: 4 * CALLS]) >= 2 * module.FEWEST


# ---- the count -----------------------------------------------------------------------------------


@pytest.mark.parametrize("from_second", [False, True])
def test_hits_are_counted_of_both_and_told_in_order(from_second: bool) -> None:
    reports: list[tuple[str, int, int]] = []
    threshold = Threshold(1.0, 0.5, above=True, from_second=from_second)
    chosen = Event(Setting(PAIR, "alone"), "x", lambda rows: rows[:, 0], threshold)
    source = Source(lambda rows: rows)
    hits = count_hits(source, chosen, 30, lambda *report: reports.append(report))
    assert hits == ((0, 30) if from_second else (30, 0))
    assert reports[0] == ("count", 6, 60) and reports[-1] == ("count", 60, 60)
    assert ("count", 30, 60) in reports and len(reports) == 10


def test_events_are_told_in_words() -> None:
    above = event(Setting(PAIR, "beside"), "the sum", 1.0)
    assert above.sentence() == f"the sum ≥ 0.5, where {LAYOUTS['beside']}"
    below = Event(
        Setting(PAIR, "alone"), "the sum", above.statistic, Threshold(1.0, 0.5, False, False)
    )
    assert below.sentence().startswith("the sum < 0.5, where the output of the text itself")
    assert Setting(TEXTS, "alone").lean is None
