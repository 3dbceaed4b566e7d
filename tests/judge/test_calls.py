"""What is put into a call, and what is looked at: with mechanisms that are certain."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from capelet.errors import CapeletError, DataError
from capelet.judge import calls as module
from capelet.judge.calls import (
    CALLS,
    CELLS,
    COMPANY,
    CROWD,
    IN_COMPANY,
    LAGS,
    PUBLIC,
    SIZES,
    SMALL,
    CallLayout,
    Draw,
    Source,
    View,
    views,
)
from capelet.judge.pairs import Pair

ONE, TWO = np.array([1.0, 0.0]), np.array([0.0, 1.0])
PAIR = Pair("one and two", ONE, TWO)
TEXTS = Pair("texts", "a", "b", 2.0)


class Recorder:
    """Returns what it is given, with the number of the call added; remembers every batch."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def __call__(self, batch: Any) -> Any:
        self.batches.append(batch)
        if isinstance(batch, list):
            return [f"{text}{len(self.batches)}" for text in batch]
        return batch + 10.0 * len(self.batches)


def draws(plan: CallLayout, count: int, pair: Pair = PAIR) -> tuple[list[Draw], Recorder]:
    recorder = Recorder()
    return list(Source(recorder).draw(plan, pair, count)), recorder


# ---- calls ---------------------------------------------------------------------------------------


def test_in_a_crowd_every_row_has_the_input_of_its_coin() -> None:
    parts, recorder = draws(CROWD, 1003)
    assert len(parts) == CALLS and sum(len(draw.coins) for draw in parts) == 1003
    for number, (draw, batch) in enumerate(zip(parts, recorder.batches, strict=True), start=1):
        assert set(draw.coins.tolist()) == {0, 1}
        assert np.array_equal(batch, np.where(draw.coins[:, None] == 0, ONE, TWO))
        assert np.array_equal(draw.outputs, batch + 10 * number)
    coins = np.concatenate([draw.coins for draw in parts])
    assert abs(coins.mean() - 0.5) < 0.1
    assert [len(draw.coins) for draw in draws(CROWD, 7)[0]] == [2, 2, 2, 1]


def test_in_company_half_are_targets_and_the_rest_and_another_call_are_public() -> None:
    parts, recorder = draws(IN_COMPANY, 2 * COMPANY)
    (draw,) = parts  # two calls, looked at together
    assert draw.size == COMPANY and len(draw.coins) == 2 * COMPANY
    again = np.asarray(draw.again).reshape(2, COMPANY, 2)
    for place, coins in enumerate(draw.coins.reshape(2, COMPANY)):
        # The public call is made first, so that the mechanism's state does not depend on coins.
        public, mixed = recorder.batches[2 * place : 2 * place + 2]
        assert (public == TWO).all()
        assert np.array_equal(mixed, np.where(coins[:, None] == 0, ONE, TWO))
        assert abs((coins == PUBLIC).mean() - 0.5) < 0.1
        assert abs((coins == 0).mean() - 0.25) < 0.1
        assert np.array_equal(again[place], public + 10 * (2 * place + 1))


def test_calls_of_different_sizes_are_looked_at_apart() -> None:
    parts, _ = draws(IN_COMPANY, COMPANY + 10)
    assert [(draw.size, len(draw.coins)) for draw in parts] == [(COMPANY, COMPANY), (10, 10)]


@pytest.mark.parametrize("plan", SMALL)
def test_a_small_call_has_one_target_which_comes_first(plan: CallLayout) -> None:
    parts, recorder = draws(plan, 60)
    assert [len(batch) for batch in recorder.batches] == [plan.size] * 60
    coins = np.concatenate([draw.coins for draw in parts]).reshape(60, plan.size)
    assert set(coins[:, 0].tolist()) == {0, 1} and (coins[:, 1:] == PUBLIC).all()
    outputs = np.concatenate([np.asarray(draw.outputs) for draw in parts])
    firsts = outputs.reshape(60, plan.size, 2)[:, 0] - 10 * np.arange(1, 61)[:, None]
    assert np.array_equal(firsts, np.where(coins[:, :1] == 0, ONE, TWO))
    # In the call itself the target may stand anywhere.
    places = {int(np.argmax(batch[:, 0])) for batch in recorder.batches if batch[:, 0].any()}
    assert plan.size == 1 or len(places) > 1


def test_two_calls_with_one_coin_changed_differ_in_one_row() -> None:
    """The theorem that all bounds rest on: neighbouring calls are neighbours of one row."""
    recorder = Recorder()
    source = Source(recorder)
    coins = np.array([0, 1, PUBLIC, 1, PUBLIC], dtype=np.int8)
    other = coins.copy()
    other[1] = 0
    source._call(PAIR, coins)
    source._call(PAIR, other)
    differs = (recorder.batches[0] != recorder.batches[1]).any(axis=1)
    assert differs.tolist() == [False, True, False, False, False]


def test_a_call_holds_no_more_cells_than_it_may() -> None:
    wide = Pair("wide", np.zeros(CELLS // 4), np.ones(CELLS // 4))
    assert [draw.size for draw in draws(CROWD, 30, wide)[0]] == [4] * 7 + [2]
    long = Pair("long", "x" * (CELLS // 2 - 1), "y")
    assert [draw.size for draw in draws(CROWD, 10, long)[0]] == [2] * 5
    huge = Pair("huge", np.zeros(2 * CELLS), np.ones(2 * CELLS))
    assert [draw.size for draw in draws(CROWD, 2, huge)[0]] == [1, 1]


def test_small_calls_are_merged_and_nothing_is_lost() -> None:
    small = [
        Draw(np.full((2, 1), float(n)), np.array([0, PUBLIC], dtype=np.int8), 2) for n in range(5)
    ]
    merged = list(module._merge(iter(small), rows=4))
    assert [len(draw.coins) for draw in merged] == [4, 4, 2] and {d.size for d in merged} == {2}
    values = np.concatenate([np.asarray(draw.outputs) for draw in merged]).ravel()
    assert values.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert module.join([["a"], ["b", "c"]]) == ["a", "b", "c"]
    assert list(module._merge(iter([]))) == []


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
        list(Source(lambda _: {}["x"]).draw(CROWD, PAIR, 20))


# ---- views ---------------------------------------------------------------------------------------

# Two targets (rows 0 and 3) among public rows, one call of five; the values are the row numbers.
COINS = np.array([0, PUBLIC, PUBLIC, 1, PUBLIC], dtype=np.int8)
ROWS = np.array([[1.0, 5.0], [2.0, -3.0], [4.0, 4.0], [8.0, 0.0], [8.0, 0.0]])
DRAW = Draw(ROWS, COINS, 5, np.array([1.0, 1.0]), again=ROWS[::-1] * np.array([1.0, 10.0]))


def view(phrase: str, plan: CallLayout = IN_COMPANY) -> View:
    (match,) = [item for item in views(plan, is_text=False) if item.phrase == phrase]
    return match


def look(phrase: str, draw: Draw = DRAW, plan: CallLayout = IN_COMPANY) -> tuple[Any, list[int]]:
    outputs, coins = view(phrase, plan).sample(draw)
    return np.asarray(outputs).tolist(), coins.tolist()


def test_a_target_is_compared_with_public_rows_at_its_lag_only() -> None:
    beside = "a public text beside it in one call"
    assert look(f"it is compared with {beside}") == ([[-1.0, 8.0], [0.0, 0.0]], [0, 1])
    assert look(f"it is added to {beside}") == ([[3.0, 2.0], [16.0, 0.0]], [0, 1])
    # Minus the public input (1, 1), times the signs of the public row's own noise.
    assert look(f"it is signed like {beside}") == ([[0.0, -4.0], [7.0, 1.0]], [0, 1])
    two = look("it is compared with a public text 2 rows further in one call")
    assert two == ([[-3.0, 1.0]], [0])  # the other target has nothing two rows further
    assert look("it is compared with a public text 3 rows further in one call") == ([], [])
    seen = look("the output of a public text beside it in one call is seen")
    assert seen == ([[2.0, -3.0], [8.0, 0.0]], [0, 1])


def test_a_comparison_never_leaves_its_call() -> None:
    stacked = Draw(ROWS[:4], np.array([PUBLIC, 0, PUBLIC, 1], dtype=np.int8), 2, ONE)
    phrase = "it is compared with the next text in calls of 2 rows"
    assert look(phrase, stacked, CallLayout("small", 2))[1] == []
    first = Draw(ROWS[:4], np.array([0, PUBLIC, 1, PUBLIC], dtype=np.int8), 2, ONE)
    assert look(phrase, first, CallLayout("small", 2)) == ([[-1.0, 8.0], [-4.0, 4.0]], [0, 1])


def test_triples_need_two_public_rows() -> None:
    phrase = "it and the public texts 1 and 2 rows further are added up, signed +−"
    assert look(phrase) == ([[-1.0, -2.0]], [0])


def test_another_call_is_compared_row_by_row() -> None:
    phrase = "it is compared with a public text in the same row of another call"
    assert look(phrase) == ([[-7.0, 5.0], [6.0, 30.0]], [0, 1])


def test_exact_repeats_are_counted_here_and_in_another_call() -> None:
    """Columns: as it is here, negated here, as it is there, negated there."""
    phrase = "exact repeats among public texts are counted"
    assert look(phrase) == ([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 2.0, 0.0]], [0, 1])
    rows = np.array([[0.0, 2.0], [-0.0, -2.0], [1.0, 1.0]])
    draw = Draw(rows, np.array([0, PUBLIC, PUBLIC], dtype=np.int8), 3, ONE, again=rows[:2])
    assert look(phrase, draw)[0] == [[0.0, 1.0, 1.0, 1.0]]  # the two zeros are one value


def test_in_order_a_target_meets_the_public_row_below_it() -> None:
    phrase = "it is compared with the public text next below it in order"
    # The first target is the least of all; the other has a public row of 4 below it.
    assert look(phrase) == ([[4.0, -4.0]], [1])


def test_a_small_call_is_added_up_and_its_other_rows_averaged() -> None:
    plan = CallLayout("small", 3)
    rows = np.arange(12.0).reshape(6, 2)
    coins = np.array([0, PUBLIC, PUBLIC, 1, PUBLIC, PUBLIC], dtype=np.int8)
    draw = Draw(rows, coins, 3, ONE)
    total = look("all outputs are added up in calls of 3 rows", draw, plan)
    assert total == ([[6.0, 9.0], [24.0, 27.0]], [0, 1])
    others = look("the outputs of all other texts are averaged in calls of 3 rows", draw, plan)
    assert others == ([[3.0, 4.0], [9.0, 10.0]], [0, 1])
    assert look("the output in calls of 3 rows is seen", draw, plan)[0] == rows[[0, 3]].tolist()
    assert [item.phrase for item in views(CallLayout("small", 1), False)] == [
        "the output of a call of one row is seen"
    ]


def test_texts_are_compared_by_putting_both_into_one() -> None:
    coins = np.array([0, PUBLIC], dtype=np.int8)
    draw = Draw(["a1", "b1"], coins, 2, "b", again=["b2", "b2"])
    seen = [tuple(item.sample(draw)[0]) for item in views(IN_COMPANY, is_text=True)]
    assert seen == [("a1 | b1",), (), (), ("b1",), ("a1 | b2",)]
    small = [tuple(item.sample(draw)[0]) for item in views(CallLayout("small", 2), is_text=True)]
    assert small == [("a1",), ("a1 | b1",), ("b1",)]
    assert views(CROWD, True) == views(CROWD, False)


def test_differences_that_overflow_are_cut() -> None:
    most = np.finfo(float).max
    rows = np.array([[most, 1.0], [-most, 3.0]])
    draw = Draw(rows, np.array([0, PUBLIC], dtype=np.int8), 2, ONE)
    phrase = "it is compared with a public text beside it in one call"
    assert look(phrase, draw)[0] == [[most, -2.0]]


def test_every_view_has_a_name_of_its_own_and_the_classes_that_were_asked_for() -> None:
    for plan in (CROWD, IN_COMPANY, *SMALL):
        phrases = [item.phrase for item in views(plan, is_text=False)]
        assert len(set(phrases)) == len(phrases)
    assert {1, 2, 64} <= set(LAGS) and {1, 2, 7, 33} <= set(SIZES)
    assert max(LAGS) < COMPANY // 2


def same_noise(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return rows + np.random.default_rng().normal(size=(1, rows.shape[1]))


def test_shared_noise_shows_in_a_comparison_and_not_in_the_row_itself() -> None:
    """The control of the whole file: the same outputs, one view blind and the other certain."""
    parts = list(Source(same_noise).draw(IN_COMPANY, PAIR, 4096))
    gaps = [
        view("it is compared with a public text beside it in one call").sample(d) for d in parts
    ]
    for outputs, coins in gaps:
        assert np.allclose(outputs, np.where(coins[:, None] == 0, ONE - TWO, 0.0))
