"""At equal utility: straight lines between measured settings, and nothing beyond them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from capelet.errors import DataError
from capelet.studies.rows import PseudonymGuesses, Row
from capelet.studies.sweeps import Sweep, compare_at_utility

Curve = Callable[[float], float]
SPLITS = 6


def sweep(
    name: str,
    settings: list[float],
    utility: Curve,
    leakage: Curve,
    noise: float = 0.004,
    seed: int | None = None,
) -> Sweep:
    """A method whose task and leakage are these functions of ε, with some noise per split."""
    random = np.random.default_rng(len(name) if seed is None else seed)
    rows: dict[str, list[Row]] = {"utility": [], "attribute-inference": []}
    for epsilon in settings:
        for seed in range(SPLITS):
            axes = {"method": name, "epsilon": epsilon}
            for kind, curve in (("utility", utility), ("attribute-inference", leakage)):
                value = curve(epsilon) + noise * random.normal()
                rows[kind].append(Row(axes, seed, kind, kind, "accuracy", value))
    return Sweep(name, "epsilon", rows["utility"], rows["attribute-inference"])


def test_the_leakage_is_read_at_the_same_task_score() -> None:
    """Lines in ε: at a task score of 0.7 one leaks 0.60 and the other 0.65."""
    first = sweep("ldp", [1, 2, 4], lambda e: 0.5 + 0.1 * e, lambda e: 0.5 + 0.05 * e, 1e-9)
    second = sweep("cape", [1, 3], lambda e: 0.6 + 0.05 * e, lambda e: 0.55 + 0.05 * e, 1e-9)
    result = compare_at_utility(first, second, 0.7)
    assert result.first_leakage[0] == pytest.approx(0.60, abs=1e-6)
    assert result.second_leakage[0] == pytest.approx(0.65, abs=1e-6)
    assert result.difference == pytest.approx((0.05, 0.05, 0.05), abs=1e-6)
    assert (result.unit, result.n) == ("split", SPLITS)


def test_the_interval_has_the_noise_of_the_splits() -> None:
    curves = (lambda e: 0.5 + 0.1 * e), (lambda e: 0.5 + 0.05 * e)
    widths = []
    for noise in (0.002, 0.008):
        result = compare_at_utility(
            sweep("ldp", [1, 2, 4], *curves, noise), sweep("other", [1, 2, 4], *curves, noise), 0.75
        )
        low, high = result.difference[1:]
        assert low < 0 < high
        widths.append(high - low)
    assert widths[1] > 2 * widths[0]


def test_the_interval_holds_the_truth_in_95_of_100() -> None:
    """At any task score the second leaks 5 points more; the control asks for 8."""
    differences = [
        compare_at_utility(
            sweep("a", [1, 2, 4], lambda e: 0.5 + 0.1 * e, lambda e: 0.50, 0.02, 2 * trial),
            sweep("b", [1, 2, 4], lambda e: 0.5 + 0.1 * e, lambda e: 0.55, 0.02, 2 * trial + 1),
            0.75,
        ).difference
        for trial in range(200)
    ]
    assert 0.91 <= np.mean([low <= 0.05 <= high for _, low, high in differences]) <= 0.99
    assert np.mean([low <= 0.08 <= high for _, low, high in differences]) < 0.8


def test_extrapolation_is_refused() -> None:
    first = sweep("ldp", [1, 2, 4], lambda e: 0.5 + 0.1 * e, lambda e: 0.5 + 0.05 * e)
    second = sweep("cape", [1, 3], lambda e: 0.6 + 0.05 * e, lambda e: 0.55)
    with pytest.raises(DataError, match=r"0\.800 lies outside what 'cape' reaches"):
        compare_at_utility(first, second, 0.8)
    with pytest.raises(DataError, match=r"lies too near an end of what 'cape' reaches"):
        compare_at_utility(
            first, second, np.mean([row.value for row in second.utility[-6:]]) - 1e-4
        )


def test_a_single_setting_is_the_level() -> None:
    single = sweep("leace", [0.0], lambda e: 0.75, lambda e: 0.55)
    line = sweep("ldp", [1, 2, 4], lambda e: 0.5 + 0.1 * e, lambda e: 0.5 + 0.05 * e)
    result = compare_at_utility(single, line)
    assert result.utility == pytest.approx(0.75, abs=0.01)
    assert result.first_leakage[0] == pytest.approx(0.55, abs=0.01)
    assert result.difference[0] == pytest.approx(0.625 - 0.55, abs=0.01)
    with pytest.raises(DataError, match="has 3 settings; say at which"):
        compare_at_utility(line, single)
    with pytest.raises(DataError, match="lies outside what 'leace'"):
        compare_at_utility(line, single, 0.7)


def test_constant_attackers_shorten_the_sweep() -> None:
    first = sweep("ldp", [1, 2, 4], lambda e: 0.5 + 0.1 * e, lambda e: 0.5 + 0.05 * e)
    constant = [
        replace(row, degenerate=True) if row.axes["epsilon"] == 1 else row for row in first.leakage
    ]
    shorter = replace(first, leakage=constant)
    assert compare_at_utility(shorter, first, 0.8).degenerate == 1
    assert compare_at_utility(first, first, 0.65).degenerate == 0
    with pytest.raises(DataError, match="outside"):
        compare_at_utility(shorter, first, 0.65)


def test_a_split_whose_victims_are_of_one_class_is_left_out_of_both_methods() -> None:
    """Its victims are the same at every setting: else no setting would be left."""
    first = sweep("ldp", [1, 2, 4], lambda e: 0.5 + 0.1 * e, lambda e: 0.5 + 0.05 * e)
    second = sweep("cape", [1, 2, 4], lambda e: 0.5 + 0.1 * e, lambda e: 0.5 + 0.04 * e)

    def marked(item: Sweep) -> Sweep:
        leakage = [
            replace(row, degenerate=True, single_class=True, value=1.0) if row.seed == 0 else row
            for row in item.leakage
        ]
        return replace(item, leakage=leakage)

    result = compare_at_utility(marked(first), marked(second), 0.7)
    assert (result.single_class, result.degenerate, result.n) == (1, 0, SPLITS - 1)
    without = compare_at_utility(first.without({(0,)}, ()), second.without({(0,)}, ()), 0.7)
    assert result.difference == without.difference and without.single_class == 0
    with pytest.raises(DataError, match="no rows to analyse"):
        compare_at_utility(
            *(item.without({(seed,) for seed in range(SPLITS)}, ()) for item in (first, second)),
            0.7,
        )


def test_what_cannot_be_compared_is_refused() -> None:
    first = sweep("ldp", [1, 2, 4], lambda e: 0.5 + 0.1 * e, lambda e: 0.5 + 0.05 * e)
    with pytest.raises(DataError, match="lacks some of the splits"):
        compare_at_utility(first, replace(first, leakage=first.leakage[1:]), 0.7)
    names = [
        replace(row, axes={**row.axes, "epsilon": f"e{row.axes['epsilon']}"})
        for row in first.utility
    ]
    with pytest.raises(DataError, match="no order to go along"):
        compare_at_utility(replace(first, utility=names), first, 0.7)
    few = Sweep(
        "few",
        "epsilon",
        *([row for row in rows if row.seed < 3] for rows in (first.utility, first.leakage)),
    )
    with pytest.raises(DataError, match="3 splits to resample, and 5 are needed"):
        compare_at_utility(few, few, 0.7)


def test_with_guesses_people_are_resampled() -> None:
    random = np.random.default_rng(0)
    people = np.array([f"a{place:03d}" for place in range(400)])
    truth = random.integers(0, 2, 400)
    ease = {"utility": random.random(400), "attribute-inference": random.random(400)}

    def row(kind: str, epsilon: float, share: float) -> Row:
        guess = np.where(ease[kind] < share, truth, 1 - truth)
        value = float(np.mean(guess == truth))
        guesses = PseudonymGuesses(people, people, truth, guess)
        axes = {"epsilon": epsilon}
        return Row(axes, 0, kind, kind, "accuracy", value, guesses=guesses)

    def method(name: str, leak: float) -> Sweep:
        return Sweep(
            name,
            "epsilon",
            [row("utility", step, 0.6 + 0.1 * step) for step in (0.0, 1.0, 2.0)],
            [row("attribute-inference", step, leak + 0.1 * step) for step in (0.0, 1.0, 2.0)],
        )

    result = compare_at_utility(method("a", 0.5), method("b", 0.6), 0.7)
    assert (result.unit, result.n) == ("author", 400)
    value, low, high = result.difference
    assert low < value < high and low > 0
    assert value == pytest.approx(0.1, abs=0.04)
