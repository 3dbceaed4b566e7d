"""Every vector mechanism: shapes, types, refusals, exact sensitivity, stated error and noise."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import integrate, stats

from capelet.errors import CapeletError, DataError
from capelet.mechanisms import MECHANISMS, sampling, vectors
from capelet.mechanisms.rounding import PRECISIONS, Rounding
from capelet.mechanisms.vectors import (
    Gaussian,
    Laplace,
    PrivUnit,
    Projection,
    RandomisedResponse,
    l1_grid,
    l2_grid,
    signs,
    spherical_cap,
)
from capelet.privacy.guarantees import Guarantee, ceiling, gaussian_delta
from capelet.release import PrivateEncoder

WIDTH = 4
STEPS = [
    Laplace(epsilon=1, dimension=WIDTH),
    Gaussian(epsilon=1, delta=1e-5, dimension=WIDTH),
    Gaussian(epsilon=1, delta=1e-5, clip=0.5, dimension=WIDTH),
    PrivUnit(epsilon=1, dimension=WIDTH),
    RandomisedResponse(epsilon=1, classes=WIDTH),
    Projection(dimension=2),
    *map(Rounding, PRECISIONS),
]
NOISY = [step for step in STEPS if step.guarantee is not None]
BAD = [0, -1.0, math.nan, math.inf, "1", True, None, 1e9]

every_step = pytest.mark.parametrize("step", STEPS, ids=lambda s: repr(s))
every_noise = pytest.mark.parametrize("step", NOISY, ids=lambda s: repr(s))


@st.composite
def batches(draw: st.DrawFn) -> npt.NDArray[Any]:
    """Finite rows of any float type: denormal, huge, zero, non-contiguous, reversed."""
    kind = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    elements = st.floats(allow_nan=False, allow_infinity=False, width=np.dtype(kind).itemsize * 8)  # type: ignore[arg-type]
    shape = (draw(st.integers(0, 5)), 2 * WIDTH)
    rows = draw(hnp.arrays(kind, shape, elements=elements))
    view = draw(st.sampled_from(["every other", "reversed", "fortran", "plain"]))
    if view == "every other":
        return rows[:, ::2]
    if view == "reversed":
        return rows[::-1, WIDTH - 1 :: -1]
    part = rows[:, :WIDTH]
    return np.asfortranarray(part) if view == "fortran" else np.ascontiguousarray(part)


# ---- the contract --------------------------------------------------------------------------------


@every_step
@settings(max_examples=40, deadline=None)
@given(rows=batches())
def test_shape_type_and_finiteness(step: Any, rows: npt.NDArray[Any]) -> None:
    before = rows.copy()
    out = step(rows)
    width = step.dimension if isinstance(step, Projection) else WIDTH
    assert out.shape == (len(rows), width)
    assert out.dtype == (np.float64 if rows.dtype == np.float64 else np.float32)
    assert np.isfinite(out).all()
    assert np.array_equal(rows, before)


@every_step
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_before_anything_is_drawn(
    step: Any, bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*_: object) -> None:
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(sampling.Stream, "words", drawn)
    rows = np.ones((5, WIDTH), dtype=np.float32)
    rows[3, 1] = bad
    with pytest.raises(DataError, match="row 3 holds NaN or infinity"):
        step(rows)


@every_step
@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (np.ones(WIDTH), "found shape"),
        (np.ones((2, WIDTH, 1)), "found shape"),
        (np.ones((2, 0)), "found shape"),
        (np.array([["a"] * WIDTH]), "must be numbers"),
        (np.ones((2, WIDTH), dtype=complex), "must be numbers"),
        (np.ones((2, WIDTH), dtype=bool), "must be numbers"),
        (np.full((2, WIDTH), np.longdouble("1e4000")), "NaN or infinity"),
    ],
)
def test_what_is_no_batch_of_vectors_is_refused(step: Any, batch: Any, found: str) -> None:
    with pytest.raises(DataError, match=found):
        step(batch)


@every_noise
def test_a_wrong_width_is_refused(step: Any) -> None:
    with pytest.raises(DataError, match=f"must have {WIDTH} coordinates; found {WIDTH + 1}"):
        step(np.ones((2, WIDTH + 1)))


@every_step
def test_whole_numbers_lists_and_longdoubles_are_taken(step: Any) -> None:
    for batch in ([[1, 0, 0, 0]], np.eye(WIDTH, dtype=np.int8), np.eye(WIDTH, dtype=np.longdouble)):
        assert np.isfinite(step(batch)).all()


@every_step
def test_a_step_is_frozen_described_and_fits_an_encoder(step: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        step.epsilon = 3.0
    described = step.describe()
    name = described.pop("step")
    assert MECHANISMS[name](**described) == step
    assert None not in described.values()
    private = PrivateEncoder(step)
    release = private.release(np.eye(WIDTH))
    assert release.vectors.shape[0] == WIDTH


@every_noise
def test_noise_is_fresh_for_every_row_and_every_call(step: Any) -> None:
    rows = np.ones((64, WIDTH))
    first, second = step(rows), step(rows)
    assert len(np.unique(first, axis=0)) > 1
    assert not np.array_equal(first, second)


@every_noise
def test_the_guarantee_states_the_arguments(step: Any) -> None:
    assert step.guarantee.epsilon == 1.0
    assert step.guarantee.delta == getattr(step, "delta", 0.0)
    assert (step.guarantee.notion, step.guarantee.unit) == ("local", "text")
    assert step.guarantee.status == "proven"
    assert ("real arithmetic" in step.guarantee.sentence()) == isinstance(step, PrivUnit)


@pytest.mark.parametrize("value", BAD, ids=repr)
def test_bad_arguments_are_refused(value: Any) -> None:
    for make in (
        Laplace,
        PrivUnit,
        lambda e: Gaussian(e, 1e-5),
        lambda e: RandomisedResponse(e, 3),
    ):
        with pytest.raises(CapeletError, match="epsilon is"):
            make(value)
    with pytest.raises(CapeletError, match="delta is"):
        Gaussian(1.0, value)
    for count in (0, -1, 2.5, "3", True):
        with pytest.raises(CapeletError, match="whole number"):
            Laplace(1.0, dimension=count)
        with pytest.raises(CapeletError, match="whole number"):
            Projection(count)
        with pytest.raises(CapeletError, match="whole number"):
            RandomisedResponse(1.0, count)
    for clip in (0, -1.0, math.nan, math.inf, "1", True):
        with pytest.raises(CapeletError, match="clip is"):
            Gaussian(1.0, 1e-5, clip=clip)


def test_nothing_takes_a_seed() -> None:
    for name, make in MECHANISMS.items():
        arguments = {field.name for field in dataclasses.fields(make)}  # type: ignore[arg-type]
        assert "seed" not in arguments, name


# ---- the grid ------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(rows=batches(), k=st.integers(16, 40))
def test_rows_stay_in_the_l1_ball_in_integers(rows: npt.NDArray[Any], k: int) -> None:
    cells = l1_grid(rows, k)
    for row in cells.tolist():
        assert 0 < sum(abs(n) for n in row) <= 2**k


@settings(max_examples=150, deadline=None)
@given(rows=batches(), k=st.integers(16, 22), clip=st.sampled_from([None, 1e-20, 1.0, 1e20]))
def test_rows_stay_in_the_l2_ball_in_integers(
    rows: npt.NDArray[Any], k: int, clip: float | None
) -> None:
    for row in l2_grid(rows, k, clip).tolist():
        assert sum(n * n for n in row) <= 4**k


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("width", [3, 7, 384, 5000])
def test_the_balls_hold_in_high_dimension(kind: type[Any], width: int) -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [rng.normal(size=(50, width)), np.ones((1, width)), rng.random((50, width))]
    )
    for order in ("C", "F"):
        given_rows = np.asarray(rows, dtype=kind, order=order)  # type: ignore[call-overload]
        assert int(np.abs(l1_grid(given_rows, 40)).sum(axis=1).max()) <= 2**40
        assert int((l2_grid(given_rows, 22, None) ** 2).sum(axis=1).max()) <= 4**22


def test_truncation_is_towards_zero_and_zero_rows_become_the_first_unit_vector() -> None:
    assert l1_grid(np.array([[1.0, -1.0, 1.0]]), 16).tolist() == [[21845, -21845, 21845]]
    assert l1_grid(np.zeros((1, 3)), 16).tolist() == [[2**16, 0, 0]]
    assert l1_grid(np.array([[5e-324, 0.0, 0.0]]), 16).tolist() == [[2**16, 0, 0]]
    assert l1_grid(np.array([[1.7e308, -1.7e308]]), 16).tolist() == [[2**15, -(2**15)]]
    assert l2_grid(np.zeros((1, 3)), 16, None).tolist() == [[2**16, 0, 0]]
    assert l2_grid(np.zeros((1, 3)), 16, 2.0).tolist() == [[0, 0, 0]]
    assert l2_grid(np.array([[1.0, 0.0], [9.0, 0.0]]), 16, 2.0).tolist() == [[2**15, 0], [2**16, 0]]


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.1, 1.0, 8.0, 1e3, 1e6])
def test_released_values_lie_on_the_grid_and_the_grid_is_far_finer_than_the_noise(
    epsilon: float,
) -> None:
    step = Laplace(epsilon)
    assert 2.0**-step.grid <= 2 / epsilon * 2.0**-17
    out = step(np.random.default_rng(0).normal(size=(20, 8))) * 2.0**step.grid
    assert np.array_equal(out, np.rint(out))


@pytest.mark.parametrize("scale", [0.9, 1.0, 1.7, 3.99, 4.0])
def test_the_grid_is_between_two_to_the_minus_19_and_18_of_the_scale(scale: float) -> None:
    for power in range(-15, 3):
        k = vectors.grid(scale * 2.0**power, most=60)
        if k > 16:
            assert 2.0**-19 < 2.0**-k / (scale * 2.0**power) <= 2.0**-18
    assert vectors.grid(1e9, most=60) == 16 and vectors.grid(1e-9, most=22) == 22
    assert Laplace(1e6).grid == 37 and Gaussian(1.0, 1e-5).grid == 16
    assert Laplace(1e-9).grid == 16 and Gaussian(1e6, 0.5).grid == 22


def test_the_ends_of_all_arguments() -> None:
    for make in (Laplace, lambda e: Gaussian(e, 1e-5), lambda e: RandomisedResponse(e, 2)):
        assert make(1e-9).epsilon == 1e-9 and make(1e6).epsilon == 1e6
        for value in (9e-10, 1.1e6):
            with pytest.raises(CapeletError, match="epsilon is"):
                make(value)
    assert PrivUnit(200).epsilon == 200.0
    with pytest.raises(CapeletError, match="epsilon is"):
        PrivUnit(201.0)
    assert Gaussian(1.0, 0.5).delta == 0.5 and Gaussian(1.0, 1e-30).delta == 1e-30
    for value in (0.51, 9e-31):
        with pytest.raises(CapeletError, match="delta is"):
            Gaussian(1.0, value)
    assert Gaussian(1.0, 0.1, clip=1e20).clip == 1e20 and Gaussian(1.0, 0.1, clip=1e-20).clip
    for value in (2e20, 9e-21):
        with pytest.raises(CapeletError, match="clip is"):
            Gaussian(1.0, 0.1, clip=value)
    assert Laplace(1.0, dimension=1).dimension == Gaussian(1.0, 0.1, dimension=1).dimension == 1
    assert PrivUnit(1.0, dimension=2).dimension == 2
    with pytest.raises(CapeletError, match="dimension is 1"):
        PrivUnit(1.0, dimension=1)
    assert RandomisedResponse(1.0, 2).classes == 2 and Projection(1).dimension == 1


def test_sums_that_saturate_are_cut_and_others_are_not() -> None:
    half = sampling.LARGEST // 2
    cells = np.array([[half + 5, -half - 5, half - 1, -7]])
    out = np.empty((1, 4))
    vectors._emit(cells, 0.5, out)
    assert cells.tolist() == [[half, -half, half - 1, -7]]
    assert out.tolist() == [[half / 2, -half / 2, (half - 1) / 2, -3.5]]


def test_a_row_outside_the_ball_is_never_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """A net below the proof: were the normalisation wrong, nothing would leave."""
    right = vectors._unit

    def too_long(rows: Any) -> Any:
        return right(rows) * np.array([[1.001], [0.5], [1.0]])

    monkeypatch.setattr(vectors, "_unit", too_long)
    with pytest.raises(AssertionError, match="left the L2 ball"):
        Gaussian(1.0, 1e-5)(np.eye(3))


def test_directions_of_any_size_and_type() -> None:
    for scale in (1.0, 1e-300, 1e300):
        rows = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]]) * scale
        assert vectors._unit(rows) == pytest.approx(np.array([[0.6, 0.8, 0.0], [1.0, 0.0, 0.0]]))
    rows32 = np.array([[3e38, -3e38]], dtype=np.float32)
    assert vectors._unit(rows32) == pytest.approx(np.array([[1, -1]]) / math.sqrt(2))
    # A clip shortens long rows to the bound and leaves short ones.
    rows = np.array([[0.3, 0.4], [30.0, 40.0], [0.0, 0.0]])
    cells = l2_grid(rows, 16, 2.0) / 2.0**16 * 2.0
    assert cells == pytest.approx(np.array([[0.3, 0.4], [1.2, 1.6], [0.0, 0.0]]), abs=1e-4)
    assert l2_grid(np.empty((0, 3)), 16, None).shape == l1_grid(np.empty((0, 3)), 16).shape


def test_a_projection_is_the_product_at_any_size() -> None:
    rows = np.random.default_rng(1).normal(size=(4, 6))
    for scale in (1.0, 1e-200, 1e200):
        expected = rows * scale @ signs(6, 3) / math.sqrt(3)
        assert Projection(3)(rows * scale) == pytest.approx(expected)
    most = np.finfo(np.float64).max
    assert np.abs(Projection(2)(np.full((1, 64), most))).max() <= most
    assert np.isfinite(Projection(2)(np.full((1, 64), 3e38, dtype=np.float32))).all()


# ---- what the noise does -------------------------------------------------------------------------


def test_laplace_noise_has_scale_two_over_epsilon_around_the_normalised_row() -> None:
    row = np.array([[3.0, -1.0, 0.0]])
    out = Laplace(4.0)(np.repeat(row, 100_000, axis=0))
    centred = out - row / 4.0
    assert stats.kstest(centred.ravel() / 0.5, "laplace").pvalue > 1e-5
    assert np.abs(np.corrcoef(centred.T) - np.eye(3)).max() < 0.02


def test_laplace_keeps_its_epsilon_at_the_worst_pair_and_uses_it_up() -> None:
    epsilon = 1.0
    rows = np.repeat(np.array([[1.0, 0.0], [-1.0, 0.0]]), 400_000, axis=0)
    high = Laplace(epsilon)(rows)[:, 0] >= 1.0
    loss = math.log(high[:400_000].mean() / high[400_000:].mean())
    assert loss == pytest.approx(epsilon, abs=0.03)


def test_gaussian_noise_has_the_sigma_of_its_delta() -> None:
    for clip, row in ((None, [[0.6, 0.8]]), (5.0, [[3.0, 4.0]])):
        step = Gaussian(1.0, 1e-5, clip=clip)
        assert gaussian_delta(step.sigma, 1.0, sensitivity=2.0) <= 1e-5
        out = step(np.repeat(np.array(row), 50_000, axis=0)) - np.array(row)
        scaled = out.ravel() / (step.sigma * (clip or 1.0))
        assert stats.kstest(scaled, "norm").pvalue > 1e-5


def test_privunit_is_unbiased_with_the_error_it_calculates() -> None:
    for epsilon, width in ((1.0, 8), (4.0, 3), (8.0, 64)):
        unit = np.full(width, 1 / math.sqrt(width))
        out = PrivUnit(epsilon)(np.repeat(unit[None], 60_000, axis=0))
        mean = spherical_cap(epsilon, width).mean
        assert np.abs(out.mean(axis=0) - unit).max() < 6 / (mean * math.sqrt(60_000))
        assert ((out - unit) ** 2).sum(axis=1).mean() == pytest.approx(1 / mean**2 - 1, rel=0.05)


def test_privunit_puts_e_to_the_epsilon_between_cap_and_complement() -> None:
    cap = spherical_cap(2.0, 5)
    ratio = (cap.inside / cap.share) / ((1 - cap.inside) / (1 - cap.share))
    assert math.log(ratio) == pytest.approx(2.0, abs=1e-9)
    # and the sampler follows: how often V falls into the cap of the opposite direction
    height = 1 - 2 * stats.beta.ppf(cap.share, cap.shape, cap.shape)
    unit = np.eye(5)[:1]
    dots = PrivUnit(2.0)(np.repeat(unit, 400_000, axis=0))[:, 0] * cap.mean
    assert (dots >= height - 1e-5).mean() == pytest.approx(cap.inside, abs=0.005)
    low = (dots <= -height).mean()
    assert low == pytest.approx(cap.share * (1 - cap.inside) / (1 - cap.share), abs=0.005)


def along_the_sphere(width: int, exponent: float | None = None) -> Any:
    """The law of ⟨v, u⟩ for v uniform on the sphere: the density is ∝ (1 − t²)^((width − 3)/2).

    From the area of a slice, not from the code under test; another exponent for the control.
    """
    shape = (width - 1) / 2 if exponent is None else exponent
    return stats.beta(shape, shape, loc=-1, scale=2)


def mixture(cap: Any, law: Any) -> Any:
    """The distribution function of ⟨V, u⟩: the law, tilted by p inside the cap."""
    gamma = law.isf(cap.share)

    def cdf(t: Any) -> Any:
        outside = np.minimum(law.cdf(t), 1 - cap.share) / (1 - cap.share)
        inside = np.maximum(law.cdf(t) - (1 - cap.share), 0) / cap.share
        assert law.cdf(gamma) == pytest.approx(1 - cap.share)
        return (1 - cap.inside) * outside + cap.inside * inside

    return cdf


@pytest.mark.parametrize(("epsilon", "width"), [(1.0, 2), (2.0, 5), (4.0, 12)])
def test_privunit_follows_the_law_of_the_sphere_and_no_other(epsilon: float, width: int) -> None:
    """With (width − 2)/2 for (width − 1)/2 the loss would be 5 where ε = 2 is claimed."""
    cap = spherical_cap(epsilon, width)
    unit = np.full(width, 1 / math.sqrt(width))

    def p_value(law: Any) -> float:
        dots = PrivUnit(epsilon)(np.repeat(unit[None], 20_000, axis=0)) @ unit * cap.mean
        return float(stats.kstest(dots, mixture(cap, law)).pvalue)

    law = along_the_sphere(width)
    assert p_value(law) > 1e-4 or p_value(law) > 1e-4
    if width > 2:
        assert p_value(along_the_sphere(width, (width - 2) / 2)) < 1e-4
    # The same law, from normalised normal vectors.
    normal = np.random.default_rng(0).normal(size=(20_000, width))
    dots = normal @ unit / np.linalg.norm(normal, axis=1)
    assert stats.kstest(dots, law.cdf).pvalue > 1e-4


@pytest.mark.parametrize(("epsilon", "width"), [(0.5, 2), (2.0, 5), (8.0, 40)])
def test_the_cap_is_the_best_of_its_kind(epsilon: float, width: int) -> None:
    """m by integration, for the stated share and for others; p from ε alone."""
    law = along_the_sphere(width)

    def mean(share: float) -> tuple[float, float]:
        odds = math.exp(epsilon) * share / (1 - share)
        inside = odds / (1 + odds)
        gamma = law.isf(share)
        # By the angle: slices of the sphere have the area sin^(width − 2).
        cap_part = integrate.quad(
            lambda a: math.cos(a) * math.sin(a) ** (width - 2), 0, math.acos(gamma)
        )
        whole = integrate.quad(lambda a: math.sin(a) ** (width - 2), 0, math.pi)
        upper = cap_part[0] / whole[0]
        return inside, inside * upper / share - (1 - inside) * upper / (1 - share)

    cap = spherical_cap(epsilon, width)
    inside, best = mean(cap.share)
    assert cap.inside == pytest.approx(inside, rel=1e-9)
    assert cap.mean == pytest.approx(best, rel=1e-5)
    others = np.exp(np.linspace(-epsilon - 7.5, math.log(0.5), 60))
    assert max(mean(float(share))[1] for share in others) <= cap.mean * (1 + 1e-6)


def test_the_direction_across_is_uniform_and_independent() -> None:
    out = PrivUnit(3.0)(np.repeat(np.eye(1, 4), 40_000, axis=0))
    cap = spherical_cap(3.0, 4)
    assert np.linalg.norm(out * cap.mean, axis=1) == pytest.approx(1.0, abs=1e-5)
    across = out[:, 1:] / np.linalg.norm(out[:, 1:], axis=1, keepdims=True)
    for j in range(3):  # on the sphere in three dimensions each coordinate is uniform
        assert stats.kstest(across[:, j], stats.uniform(-1, 2).cdf).pvalue > 1e-5
    assert np.abs(np.corrcoef(np.column_stack([out[:, 0], across]).T) - np.eye(4)).max() < 0.03
    steps = out * cap.mean * 2.0**20
    assert np.abs(steps - np.rint(steps)).max() < 1e-3  # multiples of 2^−20/m


def test_a_cap_of_a_large_epsilon_can_still_be_missed() -> None:
    for width in (2, 3, 768):
        for epsilon in (1e-9, 50.0, 200.0):
            cap = spherical_cap(epsilon, width)
            assert 0 < cap.share <= 0.5 and 0 < cap.inside <= 1 - 2.0**-31
            assert 0 < cap.mean <= 1
    with pytest.raises(DataError, match="two coordinates or more"):
        PrivUnit(1.0)(np.ones((2, 1)))


def test_privunit_beats_laplace_by_the_order_of_the_dimension() -> None:
    width, epsilon = 256, 8.0
    privunit = 1 / spherical_cap(epsilon, width).mean ** 2 - 1
    laplace = width * 2 * (2 * math.sqrt(width) / epsilon) ** 2  # for L2-unit vectors
    assert privunit < 4 * width / epsilon
    assert laplace / privunit > 100


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 0.5), (3, 1.0), (10, 4.0)])
def test_randomised_response_attains_the_ceiling(classes: int, epsilon: float) -> None:
    step = RandomisedResponse(epsilon, classes)
    truth = np.arange(300_000) % classes
    out = step.labels(truth)
    best = ceiling([1 / classes] * classes, Guarantee(epsilon))
    assert (out == truth).mean() == pytest.approx(best, abs=0.005)
    wrong = (out - truth)[out != truth] % classes
    if classes > 2:
        assert stats.chisquare(np.bincount(wrong, minlength=classes)[1:]).pvalue > 1e-6
    hot = step(np.eye(classes)[truth[:50]])
    assert np.array_equal(np.sort(hot, axis=1)[:, -1], np.ones(50))
    assert np.array_equal(hot.sum(axis=1), np.ones(50))


def test_randomised_response_refuses_labels_it_does_not_know() -> None:
    step = RandomisedResponse(1.0, 3)
    for labels in ([0, 3], [-1], [0.5], [[0]], ["a"]):
        with pytest.raises(DataError, match="labels must"):
            step.labels(np.array(labels))


def test_the_projection_is_public_fixed_and_keeps_distances() -> None:
    matrix = signs(384, 64)
    # Written down once: a release made elsewhere, or by another version, uses the same matrix.
    assert (signs(4, 3) > 0).astype(int).tolist() == [[0, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 1]]
    assert np.array_equal(np.abs(matrix), np.ones((384, 64)))
    assert not matrix.flags.writeable
    rows = np.random.default_rng(0).normal(size=(30, 384))
    near = Projection(64)(rows)
    ratios = [
        np.linalg.norm(near[a] - near[b]) / np.linalg.norm(rows[a] - rows[b])
        for a, b in itertools.combinations(range(30), 2)
    ]
    assert 0.55 < min(ratios) < max(ratios) < 1.45
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.05)
    assert Projection(64).guarantee is None


def test_a_projection_before_the_noise_keeps_the_guarantee() -> None:
    private = PrivateEncoder(Projection(8), Laplace(2.0, dimension=8))
    release = private.release(np.random.default_rng(0).normal(size=(5, 100)))
    assert release.vectors.shape == (5, 8)
    assert release.guarantee == Guarantee(2.0)


def test_large_batches_cross_blocks_without_a_seam() -> None:
    rows = np.zeros((vectors.SPAN // 50, 100), dtype=np.float32)
    rows[:, 1] = 1.0
    out = Laplace(1e6)(rows)
    assert np.abs(out - rows).max() < 1e-4
    wide = np.eye(1, vectors.SPAN + 3, dtype=np.float32)  # a row wider than a block
    assert np.abs(Laplace(1e6)(wide) - wide).max() < 1e-4
    blocks = [rows[part] for part in vectors._parts(rows)]
    assert len(blocks) == 3 and np.concatenate(blocks).shape == rows.shape


def test_densities_are_those_of_the_textbooks() -> None:
    """Differences of ln p(z|x) between two inputs, against densities written here by hand."""
    from scipy.stats import laplace, norm

    inputs = np.array([[3.0, 4.0], [-1.0, 0.0]], dtype=np.float32)
    released = np.array([[0.9, -0.4], [2.0, 1.5], [-0.3, 0.2]], dtype=np.float32)

    def by_hand(law: Any, centres: Any) -> Any:
        return law.logpdf(released[:, None, :] - np.array(centres)).sum(axis=2)

    def differences(logs: Any) -> Any:
        return logs[:, 0] - logs[:, 1]

    one = Laplace(1.5)
    expected = by_hand(laplace(scale=2 / 1.5), [[3 / 7, 4 / 7], [-1.0, 0.0]])
    found = differences(one.log_density(released, inputs))
    np.testing.assert_allclose(found, differences(expected), atol=1e-4)
    for clip, centres in ((None, [[0.6, 0.8], [-1, 0]]), (2.0, [[1.2, 1.6], [-1, 0]])):
        two = Gaussian(1.0, 1e-3, clip=clip)
        expected = by_hand(norm(scale=two.sigma * (clip or 1.0)), centres)
        found = differences(two.log_density(released, inputs))
        np.testing.assert_allclose(found, differences(expected), atol=1e-4)


def test_the_density_of_a_symbol_is_epsilon_higher_where_it_is_kept() -> None:
    logs = RandomisedResponse(2.5, 3).log_density(np.eye(3)[[0, 2]], np.eye(3)[[0, 1]])
    np.testing.assert_allclose(logs, [[2.5, 0.0], [0.0, 0.0]])


def test_the_density_of_a_direction_has_two_levels_and_its_cap_has_its_chance() -> None:
    """Of what is released for x, the share on the higher level is the chance of the cap."""
    mechanism = PrivUnit(2.0)
    x = np.zeros((4000, 8), dtype=np.float32)
    x[:, 0] = 2.0
    released = mechanism(x)
    logs = mechanism.log_density(released, x[:1]).ravel()
    levels = np.unique(logs.round(9))
    assert len(levels) == 2 and np.ptp(levels) == pytest.approx(2.0, abs=1e-6)
    cap = spherical_cap(2.0, 8)
    inside = (logs > levels.mean()).mean()
    # Six standard errors of 4,000 draws.
    assert inside == pytest.approx(cap.inside, abs=6 * 0.5 / np.sqrt(4000))
    # Densities are relative to the uniform law: the two levels average to one over the sphere.
    total = cap.share * np.exp(levels[1]) + (1 - cap.share) * np.exp(levels[0])
    assert total == pytest.approx(1.0, abs=1e-9)
