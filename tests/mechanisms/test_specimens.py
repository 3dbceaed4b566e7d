"""Each specimen leaks what it says; the sound mechanism, asked the same question, does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from capelet.errors import CapeletError, DataError
from capelet.mechanisms import MECHANISMS
from capelet.mechanisms.specimens import (
    SPECIMENS,
    BatchRange,
    FixedSeed,
    FloatLaplace,
    HalfNoise,
    L2Laplace,
    OneScalarPerRow,
    ReusedNoise,
    RowRange,
    SharedNoise,
    Specimen,
)
from capelet.mechanisms.vectors import Laplace
from capelet.privacy.guarantees import ceiling
from capelet.release import PrivateEncoder

Mechanism = Callable[[Any], npt.NDArray[Any]]
every = pytest.mark.parametrize("name", SPECIMENS)
ROWS = np.random.default_rng(0).normal(size=(6, 16))


def l1(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return rows / np.abs(rows).sum(axis=1, keepdims=True)


def loss(
    mechanism: Mechanism, one: Any, other: Any, event: Callable[[Any], Any], count: int = 100_000
) -> float:
    """ln P(event | one)/P(event | other), by counting."""
    seen = [event(mechanism(np.repeat([row], count, axis=0))).mean() for row in (one, other)]
    return math.log(seen[0] / max(seen[1], 1 / count))


@every
def test_a_specimen_is_marked_broken_and_kept_apart(name: str) -> None:
    specimen = SPECIMENS[name](1.0)
    assert specimen.guarantee.status == "broken"
    assert ceiling([0.5, 0.5], specimen.guarantee) is None
    assert specimen.describe() == {"step": f"specimen:{name}", "epsilon": 1.0}
    assert name not in MECHANISMS
    assert not any(issubclass(made, Specimen) for made in MECHANISMS.values())  # type: ignore[arg-type]
    assert len(specimen.source) > 20
    assert len(specimen.leaks) > 20


@every
def test_a_specimen_is_a_step_like_any_other(name: str) -> None:
    specimen = SPECIMENS[name](1.0)
    assert specimen(ROWS).shape == ROWS.shape
    assert specimen(np.zeros((0, 3))).shape == (0, 3)
    assert np.isfinite(specimen(np.zeros((2, 3)))).all()
    release = PrivateEncoder(specimen).release(ROWS)
    assert release.guarantee.status == "broken"
    with pytest.raises(DataError, match="NaN"):
        specimen(np.full((1, 2), np.nan))
    with pytest.raises(CapeletError, match="epsilon is"):
        SPECIMENS[name](0)


def test_one_scalar_per_row_comes_off_exactly() -> None:
    def stripped(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return rows - rows.min(axis=1, keepdims=True)

    clean = stripped(ROWS) / np.ptp(ROWS, axis=1, keepdims=True)
    assert np.allclose(stripped(OneScalarPerRow(0.1)(ROWS)), clean)
    assert not np.allclose(stripped(Laplace(0.1)(ROWS)), clean, atol=1.0)


def test_a_range_of_zero_to_one_costs_d_epsilon() -> None:
    d, epsilon = 16, 0.5
    one, other = np.tile([0.0, 1.0], d // 2), np.tile([1.0, 0.0], d // 2)
    sign = np.sign(one - other)

    def event(out: Any) -> Any:
        return ((out - 0.5) * sign).sum(axis=1) > d / 2

    for broken in (RowRange, BatchRange):
        assert loss(broken(epsilon), one, other, event) > 3 * epsilon
    assert loss(Laplace(epsilon), one, other, lambda out: (out * sign).sum(axis=1) > 0) < epsilon


def test_a_range_over_the_batch_tells_one_row_from_the_scale_of_another() -> None:
    calm, loud = np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 1000.0]])
    epsilon = 50.0
    assert abs(BatchRange(epsilon)(calm)[0, 1] - 1.0) < 0.5
    assert abs(BatchRange(epsilon)(loud)[0, 1]) < 0.5
    sound = [Laplace(epsilon)(rows)[0, 1] for rows in (calm, loud)]
    assert max(abs(value - 1.0) for value in sound) < 1.0


def test_shared_noise_cancels_between_rows() -> None:
    def gap(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return rows[1:] - rows[0]

    assert np.allclose(gap(SharedNoise(0.1)(ROWS)), gap(l1(ROWS)))
    assert not np.allclose(gap(Laplace(0.1)(ROWS)), gap(l1(ROWS)), atol=1.0)


@pytest.mark.parametrize("broken", [ReusedNoise, FixedSeed])
def test_repeated_noise_cancels_between_calls(broken: Callable[[float], Specimen]) -> None:
    layer, sound = broken(0.1), Laplace(0.1)
    other = ROWS[::-1]
    assert np.allclose(layer(ROWS) - layer(other), l1(ROWS) - l1(other))
    assert not np.allclose(sound(ROWS) - sound(other), l1(ROWS) - l1(other), atol=1.0)


def test_l2_normalised_rows_cost_root_d_epsilon() -> None:
    d, epsilon = 64, 0.5
    one = np.full(d, 1 / math.sqrt(d))

    def event(out: Any) -> Any:
        return np.sign(out).sum(axis=1) > 2.5 * math.sqrt(d)

    # The loss of this one event; the supremum over events is √d·ε = 4.
    assert loss(L2Laplace(epsilon), one, -one, event) > 2 * epsilon
    assert loss(Laplace(epsilon), one, -one, event) < epsilon


def test_half_the_noise_costs_twice_epsilon() -> None:
    unit, epsilon = np.eye(2)[0], 1.0
    assert loss(HalfNoise(epsilon), unit, -unit, lambda out: out[:, 0] >= 1) > 1.7 * epsilon
    assert loss(Laplace(epsilon), unit, -unit, lambda out: out[:, 0] >= 1) < 1.1 * epsilon


def test_float_noise_tells_the_centre_by_values_that_another_centre_never_has() -> None:
    """Rows (1, 0) and (0, 1): is the first coordinate a multiple of 2^−53?"""

    def coarse(out: Any) -> Any:
        scaled = out[:, 0] * 2.0**53
        return scaled == np.floor(scaled)

    def share(mechanism: Mechanism, row: Any) -> float:
        return float(coarse(mechanism(np.repeat([row], 100_000, axis=0))).mean())

    one, zero = np.eye(2)
    assert share(FloatLaplace(2.0), one) - share(FloatLaplace(2.0), zero) > 0.2
    assert share(Laplace(2.0), one) == share(Laplace(2.0), zero) == 1.0
