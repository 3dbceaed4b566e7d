"""Rounding as vector stores do it: known errors, no noise, and no word of a guarantee."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.errors import CapeletError
from capelet.mechanisms import Laplace, Rounding
from capelet.release import PrivateEncoder

ROWS = np.random.default_rng(0).normal(size=(50, 384)).astype(np.float32)


@pytest.mark.parametrize(("precision", "error"), [("fp16", 2**-11), ("int8", 1 / 254)])
def test_a_coordinate_moves_by_half_a_level_at_most(precision: str, error: float) -> None:
    rounded = Rounding(precision)(ROWS)
    # Of a half the level follows the number itself, of a byte the largest of its row.
    scale = np.abs(ROWS) if precision == "fp16" else np.abs(ROWS).max(axis=1, keepdims=True)
    assert np.all(np.abs(rounded - ROWS) <= scale * error * 1.001)
    assert np.abs(rounded - ROWS).max() > 0


def test_levels() -> None:
    peaks = np.abs(ROWS).max(axis=1, keepdims=True)
    levels = Rounding("int8")(ROWS) / peaks * 127
    assert np.allclose(levels, np.rint(levels), atol=1e-3) and np.abs(levels).max() <= 127.001
    assert set(np.unique(Rounding("binary")(ROWS))) == {-1.0, 1.0}
    assert np.array_equal(Rounding("binary")(ROWS) > 0, ROWS >= 0)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """Else two releases of one text would differ, and tell who else was released."""
    for precision in ("fp16", "int8", "binary"):
        step = Rounding(precision)
        assert np.array_equal(step(ROWS)[:1], step(ROWS[:1]))


def test_zeros_and_extremes_stay_finite() -> None:
    rows = np.array([[0.0, 0.0], [1e300, -1e300], [5e-324, 0.0]])
    for precision in ("fp16", "int8", "binary"):
        assert np.isfinite(Rounding(precision)(rows)).all()
    assert not Rounding("int8")(rows)[0].any()


def test_it_promises_nothing_and_keeps_what_the_noise_promised() -> None:
    assert Rounding("binary").guarantee is None
    assert PrivateEncoder(Rounding("int8")).guarantee.status == "none"
    # What follows the noise is post-processing.
    assert PrivateEncoder(Laplace(2.0), Rounding("int8")).guarantee.epsilon == 2.0


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(CapeletError, match="did you mean 'int8'"):
        Rounding("int4")
