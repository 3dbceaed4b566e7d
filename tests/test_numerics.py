"""Products rounded once, against exact sums; whole numbers, lengths and shares."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from capelet import numerics
from capelet.numerics import affine, row_lengths, sign_product, softmax, unit_rows

pytestmark = pytest.mark.numerical

RANDOM = np.random.default_rng(11)


def exact(row: np.ndarray, weights: np.ndarray, bias: np.float32) -> np.float32:
    """The sum of fractions, rounded to float64 and then to float32."""
    total = sum(
        (Fraction(float(x)) * Fraction(float(w)) for x, w in zip(row, weights, strict=True)),
        Fraction(float(bias)),
    )
    return np.float32(float(total))


def matrix(*shape: int, spread: float = 0.0) -> np.ndarray:
    return (RANDOM.normal(size=shape) * 2.0 ** (spread * RANDOM.normal(size=shape))).astype("f4")


@pytest.mark.parametrize("spread", [0.0, 4.0, 20.0])
@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_every_value_is_the_exact_sum_rounded_once(width: int, spread: float) -> None:
    rows, weight = matrix(20, width, spread=spread), matrix(9, width, spread=spread)
    bias = matrix(9, spread=spread)
    expected = [[exact(row, w, b) for w, b in zip(weight, bias, strict=True)] for row in rows]
    assert np.array_equal(affine(rows, weight, bias), np.array(expected, dtype=np.float32))


def test_sums_that_cancel_or_lie_between_two_floats_are_added_exactly() -> None:
    """Where no float64 product could tell: ties, and what is left of 10³⁰ − 10³⁰."""
    rows = np.array([[1e30, 1.0, -1e30], [1.0, 2.0**-24, 0.0], [1.0, 2.0**-24, 2.0**-80]], "f4")
    weight, bias = np.ones((1, 3), dtype=np.float32), np.zeros(1, dtype=np.float32)
    assert affine(rows, weight, bias)[:2, 0].tolist() == [1.0, 1.0]
    for row, value in zip(rows, affine(rows, weight, bias), strict=True):
        assert value[0] == exact(row, weight[0], bias[0])


def test_few_different_rows_are_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One-hot rows: sums of two short numbers lie between two floats often."""
    sums: list[int] = []

    def counted(numbers: tuple[float, ...]) -> float:
        sums.append(1)
        return sum(map(Fraction, numbers), Fraction())  # type: ignore[return-value]

    weight, bias = matrix(200, 10), matrix(200)
    hot = np.eye(10, dtype=np.float32)
    expected = affine(hot, weight, bias)
    monkeypatch.setattr(numerics.math, "fsum", lambda numbers: float(counted(numbers)))
    codes = RANDOM.integers(0, 10, 5000)
    assert np.array_equal(affine(hot[codes], weight, bias), expected[codes])
    assert 0 < len(sums) <= 2 * 10 * 200


def test_zeros_that_meet_zeros_are_not_added_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows after a ReLU through a diagonal: their lengths say nothing of what is added."""
    rows = np.maximum(matrix(300, 64), 0)
    weight = np.eye(64, dtype=np.float32) * matrix(64)
    calls: list[int] = []
    monkeypatch.setattr(numerics.math, "fsum", lambda numbers: calls.append(1) or sum(numbers))
    expected = rows * weight.diagonal()
    assert np.array_equal(affine(rows, weight, np.zeros(64, "f4")), expected)
    assert not calls


def test_what_overflows_is_as_in_a_plain_product_and_takes_nobody_along() -> None:
    rows = np.array([[np.inf, -np.inf], [3e38, 3e38], [1.0, 2.0]], dtype=np.float32)
    out = affine(rows, np.ones((1, 2), "f4"), np.zeros(1, "f4")).ravel()
    assert np.isnan(out[0]) and out[1] == np.inf and out[2] == 3.0
    assert unit_rows(np.array([[3e38, 3e38]], "f4")) == pytest.approx(np.sqrt([[0.5, 0.5]]))


def test_zero_has_one_sign_and_the_ends_of_float32_are_kept() -> None:
    weight, bias = np.ones((1, 2), dtype=np.float32), np.zeros(1, dtype=np.float32)
    zeros = affine(np.array([[-0.0, -0.0], [1.0, -1.0]], "f4"), weight, -bias)
    assert not np.signbit(zeros).any()
    most = np.finfo(np.float32).max
    assert affine(np.array([[most, 0], [most, most]], "f4"), weight, bias).ravel().tolist() == [
        most,
        np.inf,
    ]
    least = np.float32(1e-45)
    assert affine(np.array([[least, 0]], "f4"), weight, bias)[0, 0] == least
    assert affine(np.zeros((0, 2), "f4"), weight, bias).shape == (0, 1)


def test_products_of_signs_are_whole_and_near_the_plain_ones() -> None:
    rows = RANDOM.uniform(-1, 1, (50, 384))
    signs = np.where(RANDOM.random((384, 20)) < 0.5, -1.0, 1.0)
    sums = sign_product(rows, signs)
    assert np.abs(sums - rows @ signs).max() < 384 * 2.0**-43
    assert np.array_equal(sums * 2.0**43, np.rint(sums * 2.0**43))
    assert np.array_equal(sign_product(np.ones((1, 1)), np.ones((1, 1))), np.ones((1, 1)))


def test_lengths_units_and_shares() -> None:
    rows = matrix(30, 7)
    assert row_lengths(rows) == pytest.approx(np.linalg.norm(rows, axis=1, keepdims=True))
    assert np.linalg.norm(unit_rows(rows), axis=1) == pytest.approx(np.ones(30), abs=1e-6)
    assert not unit_rows(np.zeros((1, 3), "f4")).any()
    assert softmax(rows).sum(axis=1) == pytest.approx(np.ones(30), abs=1e-6)
