"""Cells that share splits: false alarms and power of three analyses, as the page quotes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from studies.shared_splits import CASES, NULL, OWN, POWER, alarm_rates

PAGE = Path(__file__).parents[2] / "docs/explanation/splits-as-blocks.md"


def test_nulls_and_power_in_short() -> None:
    """So few that only a broken analysis fails: a right one does once in thousands of seeds."""
    _, blocked, repeated = alarm_rates(NULL, 40)
    assert blocked <= 0.20 and repeated <= 0.20
    plain, blocked, _ = alarm_rates(POWER, 40)
    assert blocked >= 0.55 and plain <= 0.10


@pytest.mark.slow
def test_a_thousand_simulations_of_each_case() -> None:
    """The figures of the page, to its digits, and the bounds that make them good or bad."""
    rates = {case: alarm_rates(case, 1000) for case in CASES}
    text = PAGE.read_text("utf-8")
    for case, values in rates.items():
        assert f"| {case.name} | {' | '.join(f'{value:.3f}' for value in values)} |" in text
    plain, blocked, repeated = rates[NULL]
    # The plain analysis never alarms, which is no virtue: see its power.
    assert plain <= 0.005 and 0.03 <= blocked <= 0.07 and 0.03 <= repeated <= 0.07
    plain, blocked, _ = rates[POWER]
    assert 0.75 <= blocked <= 0.85 and plain <= 0.03
    # What the block alone does not bear, and repeated measures do.
    _, blocked, repeated = rates[OWN]
    assert blocked > 0.15 and 0.03 <= repeated <= 0.07
