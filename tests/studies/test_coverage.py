"""Verdicts of simulated audits: no false alarm, no false comfort; and intervals that cover."""

from __future__ import annotations

import pytest
from studies.coverage import Verdicts, coverage, outcomes

from capelet.findings.verdicts import Outcome


def test_audits_without_a_leak_announce_none() -> None:
    """200 audits: at most 5 % say "leak"; with 40 victims the rest is inconclusive."""
    few = outcomes(Verdicts(40, 0.0, "no leak"), 200)
    assert few[Outcome.LEAK] <= 0.05 and few[Outcome.INCONCLUSIVE] >= 0.95
    many = outcomes(Verdicts(200, 0.0, "no leak"), 100)
    assert many[Outcome.LEAK] <= 0.05 and many[Outcome.NO_LEAK_FOUND] >= 0.5


def test_forty_victims_do_not_clear_a_weak_leak_and_show_a_planted_one() -> None:
    weak = outcomes(Verdicts(40, 0.1, "weak leak"), 100)
    assert weak[Outcome.NO_LEAK_FOUND] == 0 and weak[Outcome.INCONCLUSIVE] >= 0.7
    planted = outcomes(Verdicts(40, 1.645, "planted leak of 95 %"), 50)
    assert planted[Outcome.LEAK] == 1


@pytest.mark.parametrize("case", ["subgroups, four, equal", "words, distances, bits", "neighbours"])
def test_intervals_cover(case: str) -> None:
    """At 300 simulations 95 % may come out as 92."""
    for name, share, _ in coverage(case, 200, 300):
        assert share >= 0.915, name
