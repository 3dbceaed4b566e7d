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
    CELL,
    PLANTED,
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
def test_a_specimen_has_a_docstring_that_says_what_is_wrong(name: str) -> None:
    text = type(SPECIMENS[name](1.0)).__doc__
    assert text is not None and text.endswith(".") and text != Specimen.__doc__


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


# ---- planted: one fault each, and nothing else ---------------------------------------------------


def residue(mechanism: Mechanism, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The noise of a planted specimen on L1-unit rows, in cells of its grid: whole numbers."""
    cells = (mechanism(rows) - l1(rows)) / CELL
    assert np.abs(cells - np.rint(cells)).max() < 1e-6
    return np.rint(cells)


UNIT_ROWS = np.tile(np.eye(16)[0], (256, 1))


@pytest.mark.parametrize("name", PLANTED)
def test_planted_noise_is_exact_and_of_about_its_scale(name: str) -> None:
    """What a planted specimen lacks is what it says: its noise lies on a grid, at scale 2/ε."""
    noise = residue(PLANTED[name](1.0), UNIT_ROWS) * CELL
    assert 1.6 < np.abs(noise).mean() < 2.4  # mean |Lap(2)| = 2; 4,096 draws


@pytest.mark.parametrize(("name", "share"), [("scale-0.9", 0.9), ("scale-0.97", 0.97)])
def test_a_scale_is_short_by_its_share(name: str, share: float) -> None:
    noise = residue(PLANTED[name](1.0), np.tile(np.eye(16)[0], (20_000, 1))) * CELL
    assert np.abs(noise).mean() == pytest.approx(2 * share, rel=0.01)


def test_other_balls_hold_longer_rows() -> None:
    long = np.ones((1, 16))
    epsilon = 1e5  # hardly any noise: what is left is the clipped row
    norms = {name: np.abs(PLANTED[name](epsilon)(long)).sum() for name in ("l2-clip", "linf-clip")}
    assert norms["l2-clip"] == pytest.approx(4.0, abs=0.01)
    assert norms["linf-clip"] == pytest.approx(16.0, abs=0.01)
    assert np.abs(Laplace(epsilon)(long)).sum() == pytest.approx(1.0, abs=0.01)


def test_a_long_row_shrinks_its_neighbours() -> None:
    rows = np.vstack([1000 * np.eye(4)[0], np.eye(4)[1]])
    specimen = PLANTED["batch-scale"](1e5)
    assert specimen(rows)[1, 1] == pytest.approx(0.001, abs=0.01)
    assert specimen(rows[1:])[0, 1] == pytest.approx(1.0, abs=0.01)


def test_the_lowest_bit_is_the_sign() -> None:
    cells = PLANTED["low-bit"](1.0)(ROWS) / CELL
    assert np.array_equal(cells % 2 == 1, ROWS > 0)


@pytest.mark.parametrize(
    ("name", "lag", "sign"),
    [("antithetic-neighbours", 1, -1), ("shared-at-2", 2, 1), ("shared-at-64", 64, 1)],
)
def test_noise_is_tied_to_another_row(name: str, lag: int, sign: int) -> None:
    noise = residue(PLANTED[name](1.0), UNIT_ROWS)
    first = np.arange(256) // lag % 2 == 0
    assert np.array_equal(noise[~first], sign * noise[first])
    assert len(np.unique(noise[first], axis=0)) == 128  # and to no other
    sound = residue(PLANTED["scale-0.9"](1.0), UNIT_ROWS)
    assert not (sound[~first] == sign * sound[first]).all(axis=1).any()


def test_a_pool_repeats_within_and_across_calls() -> None:
    pool = PLANTED["noise-pool"](1.0)
    calls = [residue(pool, np.tile(np.eye(4)[0], (8192, 1))) for _ in range(2)]
    assert len(np.unique(np.vstack(calls), axis=0)) <= 4096
    assert len(np.unique(calls[0], axis=0)) > 3000


def test_a_raw_row_comes_once_in_a_thousand() -> None:
    noise = residue(PLANTED["raw-row"](1.0), np.tile(np.eye(4)[0], (50_000, 1)))
    assert 15 <= (noise == 0).all(axis=1).sum() <= 100  # 50 are expected


@pytest.mark.parametrize(
    ("name", "bare", "covered"),
    [("no-noise-for-one-row", [1], [2, 7]), ("no-noise-below-32", [1, 31], [32, 33])],
)
def test_small_calls_are_bare(name: str, bare: list[int], covered: list[int]) -> None:
    for size in bare:
        assert not residue(PLANTED[name](1.0), UNIT_ROWS[:size]).any()
    for size in covered:
        assert residue(PLANTED[name](1.0), UNIT_ROWS[:size]).all(axis=1).any()


def test_noise_of_a_call_adds_up_to_nothing() -> None:
    specimen = PLANTED["zero-sum"](1.0)
    assert not residue(specimen, UNIT_ROWS).sum(axis=0).any()
    assert residue(specimen, UNIT_ROWS[:1]).any()  # one row alone has its noise
    assert residue(PLANTED["scale-0.9"](1.0), UNIT_ROWS).sum(axis=0).all()
