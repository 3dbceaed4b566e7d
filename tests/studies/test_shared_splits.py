"""Cells that share splits: false alarms and power of three analyses, as the page quotes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from studies.shared_splits import CASES, NULL, OWN, POWER, SPREAD, Case, alarm_rates

PAGE = Path(__file__).parents[2] / "docs/explanation/splits-as-blocks.md"


def test_nulls_and_power_in_short() -> None:
    """So few that only a broken analysis fails: a right one does once in thousands of seeds."""
    _, blocked, repeated = alarm_rates(NULL, 40)
    assert blocked <= 0.20 and repeated <= 0.20
    plain, blocked, _ = alarm_rates(POWER, 40)
    assert blocked >= 0.55 and plain <= 0.10


# What a thousand simulations must give: plain, with the block, repeated measures. That the plain
# analysis never alarms is no virtue, as its power shows. Of what the block alone does not bear,
# nothing good is claimed.
BOUNDS = {
    NULL: ((0.0, 0.005), (0.03, 0.07), (0.03, 0.07)),
    POWER: ((0.0, 0.03), (0.75, 0.85), (0.70, 0.82)),
    OWN: ((0.0, 0.05), (0.15, 0.30), (0.03, 0.07)),
    SPREAD: ((0.0, 0.02), (0.05, 0.12), (0.05, 0.12)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_thousand_simulations(case: Case) -> None:
    """The figures of the page, to its digits, and the bounds that make them good or bad."""
    rates = alarm_rates(case, 1000)
    line = f"| {case.name} | {' | '.join(f'{rate:.3f}' for rate in rates)} |"
    assert line in PAGE.read_text("utf-8")
    for rate, (low, high) in zip(rates, BOUNDS[case], strict=True):
        assert low <= rate <= high
