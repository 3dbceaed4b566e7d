"""Gates: closed by what was shown, inconclusive for lack of data, and honest in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from capelet.errors import DataError
from capelet.findings import Finding, Findings
from capelet.reports.gates import Decision, Gates, Ruling, decide

Leak = Callable[..., Finding]


def only(gates: Gates, *rows: Finding, asked: tuple[str, ...] = ()) -> Ruling:
    origin = {"attributes": {name: {} for name in asked}}
    (ruling,) = gates.rule(Findings(rows, origin))
    return ruling


def test_fail_over_keeps_its_meaning_and_says_what_it_cannot(leak: Leak) -> None:
    wide = leak("gender", 0.66, low=0.46, high=0.86, n=40)
    passed = only(Gates(fail_over=0.1), wide)
    assert passed.decision is Decision.PASSED
    assert "gender (at most 36.0 points)" in passed.sentence
    assert "none was shown to gain less" in passed.sentence
    failed = only(Gates(fail_over=0.1), wide, leak("age", 0.8))
    assert failed.decision is Decision.FAILED and failed.attributes == ("age",)
    assert "age (at least 27.0 points)" in failed.sentence
    narrow = only(Gates(fail_over=0.1), leak("age", 0.52))
    assert "all were shown to gain less: age (at most 5.0 points)" in narrow.sentence


def test_require_under_passes_only_what_was_shown(leak: Leak) -> None:
    gates = Gates(require_under=0.1)
    assert only(gates, leak("age", 0.52)).decision is Decision.PASSED
    assert only(gates, leak("age", 0.8)).decision is Decision.FAILED
    wide = only(gates, leak("age", 0.52), leak("gender", 0.66, low=0.46, high=0.86, n=40))
    assert wide.decision is Decision.INCONCLUSIVE and wide.attributes == ("gender",)
    assert "About 63 people among the victims" in wide.sentence
    both = only(gates, leak("age", 0.8), leak("gender", 0.66, low=0.46, high=0.86))
    assert both.decision is Decision.FAILED
    constant = only(gates, leak("age", 0.5, low=0.5, high=0.5, degenerate=True))
    assert constant.decision is Decision.INCONCLUSIVE
    assert "all guesses the same" in constant.sentence


def test_what_was_asked_for_and_not_measured_does_not_pass(leak: Leak) -> None:
    gates = Gates(require_under=0.1)
    ruling = only(gates, leak("age", 0.52), asked=("age", "income"))
    assert ruling.decision is Decision.INCONCLUSIVE and "Not measured: income" in ruling.sentence
    assert only(gates).decision is Decision.INCONCLUSIVE


def test_too_few_people_are_inconclusive(leak: Leak) -> None:
    gates = Gates(min_victims=200)
    few = only(gates, leak("age", 0.52, n=900, parameters={"people": 40}))
    assert few.decision is Decision.INCONCLUSIVE and "age 40" in few.sentence
    assert only(gates, leak("age", 0.52, parameters={"people": 200})).decision is Decision.PASSED


def test_a_failure_counts_more_than_what_is_not_known(leak: Leak) -> None:
    rows = Findings((leak("age", 0.8, parameters={"people": 40}),))
    rulings = Gates(0.1, 0.1, 200).rule(rows)
    assert [int(item.decision) for item in rulings] == [1, 1, 3]
    assert decide(rulings) is Decision.FAILED
    assert decide(rulings[2:]) is Decision.INCONCLUSIVE and decide([]) is Decision.PASSED


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"fail_over": 1.0}, "fail_over= is a gain"),
        ({"require_under": -0.1}, "require_under= is a gain"),
        ({"require_under": 0.0}, "which no interval can lie under"),
        ({"min_victims": 0}, "min_victims= must be at least 1"),
    ],
)
def test_a_gate_that_can_never_act_is_refused(limits: dict[str, float], words: str) -> None:
    with pytest.raises(DataError, match=words):
        Gates(**limits)  # type: ignore[arg-type]
