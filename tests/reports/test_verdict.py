"""A sentence holds for whoever checks it by hand: level, gain, interval and chance as printed."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capelet.findings import Finding, Findings
from capelet.reports.gates import Gates
from capelet.reports.kinds import all_verdicts
from capelet.reports.verdict import Verdict

ROWS = {
    "attribute-inference": Finding(
        "attribute-inference", "age", "balanced_accuracy", 0.5, n=400, attacker="strongest"
    ),
    "person-inference": Finding(
        "person-inference", "age", "balanced_accuracy", 0.5, n=400, attacker="strongest"
    ),
    "inversion": Finding("inversion", "words", "f1", 0.5, n=400, attacker="multi-label"),
    "authorship": Finding("authorship", "writer", "top5", 0.5, n=400, attacker="linear"),
}
NUMBER = r"(−?[\d.]+)"
PRINTED = re.compile(rf"{NUMBER} %[a-z ]* \(95 % interval {NUMBER}–{NUMBER} %\) against {NUMBER} %")
GAIN = re.compile(rf"the attacker gains {NUMBER} point")
ROOM = re.compile(rf"room for a gain of up to {NUMBER} point")

shares = st.floats(0, 1)
# A busy machine may take longer for one of them than hypothesis allows.
in_any_time = settings(deadline=None)


def verdict_of(kind: str, value: float, low: float, high: float, chance: float) -> Verdict:
    row = replace(ROWS[kind], value=value, low=low, high=high, chance=chance, majority=chance)
    (verdict,) = all_verdicts(Findings((row,)))
    return verdict


def number(printed: str) -> Decimal:
    return Decimal(printed.replace("−", "-"))


@pytest.mark.parametrize("kind", ROWS)
@in_any_time
@given(
    numbers=st.tuples(shares, shares, shares).map(sorted),
    chance=st.one_of(shares, st.integers(2, 12).map(lambda classes: 1 / classes)),
)
@example(numbers=[0.63, 0.6496, 0.67], chance=0.5)  # 65.0 % printed, and 15 points are strong
@example(numbers=[0.505, 0.5496, 0.59], chance=0.5)
@example(numbers=[0.48, 0.5, 0.5496], chance=0.5)
@example(numbers=[0.5004, 0.55, 0.6], chance=0.5)  # a lower end that is printed as chance
@example(numbers=[0.45, 0.4833, 0.51], chance=1 / 3)
def test_the_printed_figures_say_what_the_level_says(
    kind: str, numbers: list[float], chance: float
) -> None:
    low, value, high = numbers
    verdict = verdict_of(kind, value, low, high, chance)
    found = PRINTED.search(verdict.statement)
    assert found is not None
    value_, low_, high_, chance_ = map(number, found.groups())
    gain = value_ - chance_
    if low_ > chance_:
        expected = "slight" if gain < 5 else "clear" if gain < 15 else "strong"
    else:
        is_tight = high_ - low_ <= 10 and high_ - chance_ < 5
        expected = "none" if is_tight else "inconclusive"
    assert verdict.level == expected
    # The number of people is read off the same figures: only what is open has one.
    assert verdict.people_needed is None or expected == "inconclusive"
    for pattern, difference in ((GAIN, gain), (ROOM, high_ - chance_)):
        if printed := pattern.search(verdict.statement):
            assert number(printed[1]) == difference
    # For machines the same figures, and cards show those of the sentence.
    assert verdict.gain is not None and verdict.value is not None and verdict.chance is not None
    assert verdict.gain == pytest.approx(verdict.value - verdict.chance, abs=1e-9)
    assert (verdict.value_words, verdict.chance_words) == (f"{found[1]} %", f"{found[4]} %")


@in_any_time
@given(numbers=st.tuples(shares, shares, shares).map(sorted), limit=st.integers(1, 40))
@example(numbers=[0.5996, 0.62, 0.64], limit=10)
@example(numbers=[0.56, 0.58, 0.5996], limit=10)
def test_a_gate_rules_by_the_figures_that_it_prints(numbers: list[float], limit: int) -> None:
    low, value, high = numbers
    row = replace(ROWS["attribute-inference"], value=value, low=low, high=high, chance=0.5)
    (ruling,) = Gates(require_under=limit / 100).rule(Findings((row,)))
    if printed := re.search(rf"at least {NUMBER} point", ruling.reason):
        assert ruling.decision.name == "FAILED" and number(printed[1]) > limit
    else:
        printed = re.search(rf"at most {NUMBER} point", ruling.reason)
        assert printed is not None
        assert (number(printed[1]) < limit) == (ruling.decision.name == "PASSED")
