"""Three outcomes at their borders, how many people decide, and the sides of a limit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import pytest

from capelet.findings import Finding
from capelet.findings.verdicts import (
    MARGIN,
    Figures,
    Judgement,
    Level,
    Outcome,
    Side,
    classify,
    side_of,
)

ROW = Finding("attribute-inference", "age", "balanced_accuracy", 0.5, chance=0.5, n=100)


def row(value: float, low: float | None, high: float | None, **more: object) -> Finding:
    return replace(ROW, value=value, low=low, high=high, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (0.66, 0.46, 0.86, Outcome.INCONCLUSIVE),
        (0.50, 0.46, 0.54, Outcome.NO_LEAK_FOUND),
        (0.50, 0.45, 0.549, Outcome.NO_LEAK_FOUND),
        (0.50, 0.45, 0.5499, Outcome.INCONCLUSIVE),  # printed as 55.0 %
        (0.50, 0.45, 0.55, Outcome.INCONCLUSIVE),  # an upper end at the margin is not under it
        (0.52, 0.48, 0.56, Outcome.INCONCLUSIVE),  # narrow, but a gain of six is not excluded
        (0.42, 0.32, 0.52, Outcome.INCONCLUSIVE),  # under the margin, but wide
        (0.40, 0.36, 0.44, Outcome.NO_LEAK_FOUND),
        (0.52, 0.501, 0.54, Outcome.LEAK),
        (0.52, 0.5, 0.54, Outcome.NO_LEAK_FOUND),
        (0.95, 0.88, 1.0, Outcome.LEAK),
    ],
)
def test_the_outcome_follows_the_whole_interval(
    value: float, low: float, high: float, expected: Outcome
) -> None:
    assert classify(row(value, low, high)).outcome is expected


def test_a_row_without_an_interval_or_a_base_is_inconclusive() -> None:
    for item in (row(0.9, None, None), row(0.9, 0.8, math.nan), row(0.9, 0.8, 1.0, chance=None)):
        assert classify(item).outcome is Outcome.INCONCLUSIVE
        assert classify(item).people_needed is None


def test_the_control_must_be_cleared_too() -> None:
    control = row(0.55, 0.5, 0.6)
    assert classify(row(0.7, 0.61, 0.79), control=control).outcome is Outcome.LEAK
    blocked = classify(row(0.7, 0.59, 0.81), control=control)
    assert blocked.outcome is Outcome.INCONCLUSIVE
    # 0.11 must shrink below 0.7 − 0.6 by so much that it is printed so.
    assert blocked.people_needed == 123


def test_the_base_may_be_another_than_chance() -> None:
    item = row(0.30, 0.27, 0.33, chance=None)
    assert classify(item, base=0.29).outcome is Outcome.NO_LEAK_FOUND
    assert classify(item, base=0.26).level == "slight"


@pytest.mark.parametrize("value", [0.45, 0.5, 0.51, 0.53, 0.56, 0.66])
def test_with_so_many_people_it_is_decided(value: float) -> None:
    """The interval shrinks with the root of the number; one person less leaves it open."""
    half = 0.2
    needed = classify(row(value, value - half, value + half)).people_needed
    assert needed is not None and needed > 100
    for people, is_decided in ((needed + 1, True), (needed - 2, False)):
        narrow = half * math.sqrt(100 / people)
        outcome = classify(row(value, value - narrow, value + narrow)).outcome
        assert (outcome is not Outcome.INCONCLUSIVE) is is_decided


def test_people_are_counted_where_the_finding_says_how_many() -> None:
    item = row(0.66, 0.46, 0.86, parameters={"people": 20})
    assert classify(item).people == 20 and classify(item).people_needed == 32


def test_each_level_has_its_outcome() -> None:
    nothing = Figures(None, None, None, None)
    assert [Judgement(level, nothing).outcome for level in get_args(Level)] == [
        "no leak found",
        "inconclusive",
        *["leak"] * 3,
    ]
    assert 0 < MARGIN < 0.1


def test_the_side_of_a_limit_needs_the_whole_interval() -> None:
    item = row(0.6, 0.56, 0.64)
    assert side_of(item, 0.05) is Side.OVER
    assert side_of(item, 0.06) is Side.UNCLEAR  # at the limit is not over it
    assert side_of(item, 0.14) is Side.UNCLEAR  # nor under it
    assert side_of(item, 0.15) is Side.UNDER
    constant = row(0.5, 0.5, 0.5, degenerate=True)
    assert side_of(constant, 0.15) is Side.UNCLEAR
    assert side_of(replace(constant, degenerate=False), 0.15) is Side.UNDER
    assert side_of(row(0.6, None, None), 0.15) is Side.UNCLEAR
