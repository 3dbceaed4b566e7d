"""Each statistic by itself, on outputs small enough to reckon by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from capelet.judge import statistics as module
from capelet.judge.statistics import (
    BINS,
    MOST_COORDINATES,
    Likelihood,
    input_statistics,
    lowest_bit,
    statistics,
    text_statistics,
    values_of,
    vector_statistics,
)

FIRST = np.array([[1.0, 2.0, -4.0], [1.0, 0.5, 8.0], [3.0, 0.5, 8.0]])
SECOND = np.array([[0.0, 2.0, 1.0], [0.0, 2.0, 1.0], [2.0, 1.0, 9.0]])
ROWS = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
LEAN = np.array([2.0, -1.0, 0.0])


def read(name: str, lean: np.ndarray | None = LEAN) -> list[float]:
    table = vector_statistics(FIRST, SECOND, lean)
    return list(values_of(table[name], ROWS))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("coordinate 0", [1.0, 0.0]),
        ("coordinate 1", [-2.0, 3.0]),
        ("coordinate 0 minus coordinate 1", [3.0, -3.0]),
        ("coordinate 2 minus coordinate 0", [-0.5, 1.0]),
        ("the lowest set bit of coordinate 1", [1.0, 0.0]),
        ("the lowest set bit of coordinate 2", [-1.0, 0.0]),
        ("the projection on the pair's difference", [4.0, -3.0]),
        ("the projection on the signs of the pair's difference", [3.0, -3.0]),
        ("the agreement of signs with the pair's difference", [2.0, -1.0]),
        ("the lowest set bit of any coordinate", [-1.0, 0.0]),
        ("the highest of the lowest set bits", [1.0, 1100.0]),
        ("the largest coordinate", [1.0, 3.0]),
        ("the smallest coordinate", [-2.0, 0.0]),
        ("the range", [3.0, 3.0]),
        ("the largest magnitude", [2.0, 3.0]),
        ("the sum", [-0.5, 4.0]),
        ("the L1 length", [3.5, 4.0]),
        ("the L2 length", [math.sqrt(5.25), math.sqrt(10.0)]),
    ],
)
def test_what_is_read_off_a_vector(name: str, values: list[float]) -> None:
    assert read(name) == pytest.approx(values)


def test_the_difference_of_the_means_is_learnt() -> None:
    shift = FIRST.mean(axis=0) - SECOND.mean(axis=0)
    assert read("the projection on the difference of the means") == pytest.approx(ROWS @ shift)
    # Without a difference of the inputs, or with one of another width, it stands in for it.
    for lean in (None, np.ones(5)):
        assert read("the projection on the pair's difference", lean) == pytest.approx(ROWS @ shift)


def test_commonest_values_are_counted_where_a_value_repeats() -> None:
    """Of the first input 1, ½ and 8; of the second 0, 2 and 1. What never repeats is no mode."""
    rows = np.array([[1.0, 0.5, 8.0], [0.0, 2.0, 1.0], [1.0, 2.0, 8.0], [3.0, 1.0, 9.0]])
    table = vector_statistics(FIRST, SECOND, None)
    one = table["the coordinates at the commonest values of one input"](rows)
    other = table["the coordinates at the commonest values of the other"](rows)
    assert one.tolist() == [3, 0, 2, 0] and other.tolist() == [0, 3, 1, 0]
    single = vector_statistics(np.array([[1.0], [2.0]]), np.array([[5.0], [5.0]]), None)
    values = single["the coordinates at the commonest values of one input"](np.array([[1.0]]))
    assert values.tolist() == [0.0]


def test_the_place_of_the_largest_coordinate_has_its_ratio() -> None:
    """First: places 1, 2, 2; second: 1, 1, 2. Half a count is added to each."""
    table = vector_statistics(FIRST, SECOND, None)
    ratio = table["the likelihood ratio of the largest coordinate's place"]
    rows = np.eye(3)
    assert ratio(rows) == pytest.approx([0.0, math.log(1.5 / 2.5), math.log(2.5 / 1.5)])


def test_only_the_leading_coordinates_are_looked_at_one_by_one() -> None:
    width = MOST_COORDINATES + 4
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 50, width))
    first[:, 3] += 9.0  # its mean moves; the inputs differ in others
    lean = np.zeros(width)
    lean[5:19] = -1.0
    table = vector_statistics(first, second, lean)
    names = [name for name in table if name.startswith("coordinate ") and "minus" not in name]
    assert len(names) == MOST_COORDINATES == 16
    assert {"coordinate 3", *(f"coordinate {j}" for j in range(5, 19))} <= set(names)
    one = vector_statistics(first[:, :1], second[:, :1], None)
    assert "coordinate 0" in one and not any("minus" in name for name in one)


@pytest.mark.parametrize("value", [1.0, 0.75, -12.0, 2.0**-1074, 3 * 2.0**-1030, 1.7e308, 2.0**60])
def test_the_lowest_bit_is_the_largest_power_that_divides(value: float) -> None:
    bit = int(lowest_bit(np.array([value]))[0])
    numerator, denominator = value.as_integer_ratio()
    power = (numerator & -numerator).bit_length() - denominator.bit_length()
    assert bit == power
    assert lowest_bit(np.array([0.0])).tolist() == [module.ZERO]


def test_the_likelihood_ratio_adds_up_over_coordinates() -> None:
    """Two symbols a coordinate: ln((count + 1)/(count + 1)), by hand, summed."""
    first = np.repeat([[0.0, 5.0], [1.0, 5.0], [1.0, 7.0]], [10, 20, 30], axis=0)
    second = np.repeat([[0.0, 5.0], [1.0, 7.0]], [50, 10], axis=0)
    ratio = Likelihood(first, second)
    zero, one = math.log(11 / 51), math.log(51 / 11)
    five, seven = math.log(31 / 51), math.log(31 / 11)
    rows = np.array([[0.0, 5.0], [1.0, 5.0], [0.0, 7.0], [1.0, 7.0], [0.5, 6.0]])
    wanted = [zero + five, one + five, zero + seven, one + seven, zero + five]
    assert ratio(rows) == pytest.approx(wanted)
    assert ratio(np.array([[-9.0, 99.0]])) == pytest.approx([0.0 + seven])  # nobody was below 0


def test_the_likelihood_ratio_of_normals_is_nearly_linear() -> None:
    random = np.random.default_rng(2)
    first, second = random.normal(0.5, 1, (50_000, 1)), random.normal(-0.5, 1, (50_000, 1))
    ratio = Likelihood(first, second)
    points = np.array([[-1.0], [0.0], [1.0]])
    assert ratio(points) == pytest.approx([-1.0, 0.0, 1.0], abs=0.15)
    grid = np.linspace(-3, 3, 400)[:, None]
    assert len(np.unique(ratio(grid))) in (BINS - 1, BINS, BINS + 1)
    assert (np.diff(ratio(grid)) >= -0.2).all()


def test_what_overflows_to_no_number_counts_as_zero() -> None:
    huge = np.array([[1.7e308, -1.7e308, 0.0]])
    assert values_of(lambda rows: rows[:, 0] * 10 + rows[:, 1] * 10, huge).tolist() == [0.0]
    assert values_of(lambda rows: rows[:, 0] * 10, huge).tolist() == [math.inf]
    both = np.full((4, 2), 1.7e308)
    table = vector_statistics(both, -both, None)  # the means overflow
    assert np.isfinite(values_of(table["coordinate 0"], both)).all()


# ---- texts ---------------------------------------------------------------------------------------


def test_ratios_of_texts_words_and_lengths() -> None:
    first, second = ["a b", "a b", "b c"], ["b a", "c"]
    table = text_statistics(first, second)
    texts = ["a b", "b a", "new", "c"]

    def half(one: float, other: float) -> float:
        return math.log((one + 0.5) / (other + 0.5))

    whole = table["the likelihood ratio of the whole text"](texts)
    assert whole == pytest.approx([half(2, 0), half(0, 1), 0.0, half(0, 1)])
    placed = table["the likelihood ratio of its words in their places"](texts)
    wanted = [half(2, 0) + half(2, 0), half(1, 1) + half(0, 1), 0.0, half(0, 1)]
    assert placed == pytest.approx(wanted)
    anywhere = table["the likelihood ratio of its words in any place"](["a a b", "c", "new"])
    assert anywhere == pytest.approx([half(2, 1) + half(3, 1), half(1, 1), 0.0])
    assert table["the number of words"](["a  b", "", "c"]).tolist() == [2.0, 0.0, 1.0]
    assert table["the number of characters"](["a  b", "", "c"]).tolist() == [4.0, 0.0, 1.0]
    assert set(statistics(first, second, None)) == set(table)
    assert "coordinate 0" in statistics(FIRST, SECOND, (LEAN, 0 * LEAN))


# ---- known inputs, and the short table -----------------------------------------------------------


def test_the_distance_from_an_input_is_zero_at_the_input_itself() -> None:
    """As it is, or divided by its L1 or L2 length; else the largest difference of a coordinate."""
    inputs = (np.array([3.0, 4.0]), np.array([0.0, 0.0]))
    table = input_statistics(inputs)
    rows = np.array([[3.0, 4.0], [3 / 7, 4 / 7], [0.6, 0.8], [0.0, 0.0], [3.0, 6.0]])
    first = table["the distance from the pair's first input"](rows)
    assert first[:3] == pytest.approx([0.0, 0.0, 0.0]) and first[4] == pytest.approx(2.0)
    assert first[3] == pytest.approx(4 / 7)
    second = table["the distance from the pair's second input"](rows)
    assert second[3] == 0.0 and second[0] == 4.0


def test_inputs_are_compared_only_with_the_target_s_own_outputs() -> None:
    inputs = (np.zeros(3), np.ones(3))
    name = "the distance from the pair's first input"
    assert name in statistics(FIRST, SECOND, inputs)
    assert name not in statistics(FIRST, SECOND, inputs, own=False)
    assert name not in statistics(FIRST, SECOND, None)
    assert name not in statistics(FIRST, SECOND, (np.zeros(2), np.ones(2)))


def test_the_short_table_has_one_of_each_sort() -> None:
    short, full = (
        statistics(FIRST, SECOND, (LEAN, 0 * LEAN), short=short, own=False)
        for short in (True, False)
    )
    assert len(short) < 10 < len(full)
    for name in ("coordinate 0", "the projection on the pair's difference", "the L2 length"):
        assert short[name](ROWS) == pytest.approx(full[name](ROWS))
    ratio = "the likelihood ratio of the leading coordinates"
    assert short[ratio](ROWS) == pytest.approx(Likelihood(FIRST, SECOND)(ROWS))
    equal = short["the leading coordinates at the commonest values of one input"]
    assert equal(np.array([[1.0, 0.5, 8.0], [0.0, 0.0, 8.0]])).tolist() == [3.0, 1.0]
