"""The samplers have the distribution they state, in the bulk, in the tail and in the lowest bits.

A statistical test fails here only when two independent samples both miss p > 1e-4.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from capelet.errors import CapeletError
from capelet.mechanisms import sampling
from capelet.mechanisms.sampling import (
    Cells,
    Stream,
    discrete_gaussian,
    discrete_laplace,
    exp_bounds,
    geometric,
    keep_or_change,
    rounded_gaussian,
)

Pmf = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


def p_value(draws: npt.NDArray[np.int64], pmf: Pmf, reach: int) -> float:
    """Chi-square of the draws against an exact pmf on −reach … reach, the rest in one cell."""
    values = np.arange(-reach, reach + 1)
    expected = pmf(values) * draws.size
    counts = np.array([np.count_nonzero(draws == v) for v in values], dtype=float)
    kept = expected >= 10
    observed = np.append(counts[kept], draws.size - counts[kept].sum())
    wanted = np.append(expected[kept], draws.size - expected[kept].sum())
    if wanted[-1] < 10:
        observed, wanted = observed[:-1], wanted[:-1]
        wanted *= observed.sum() / wanted.sum()
    return float(stats.chisquare(observed, wanted, sum_check=False).pvalue)


def holds(p: Callable[[], float]) -> bool:
    return p() > 1e-4 or p() > 1e-4


def laplace_pmf(scale: float) -> Pmf:
    q = math.exp(-1 / scale)
    return lambda values: (1 - q) / (1 + q) * q ** np.abs(values)


def gaussian_pmf(sigma: float) -> Pmf:
    far = np.arange(-int(12 * sigma) - 9, int(12 * sigma) + 10)
    total = np.exp(-(far**2) / (2 * sigma**2)).sum()
    return lambda values: np.exp(-(values**2) / (2 * sigma**2)) / total


def rounded_pmf(sigma: float) -> Pmf:
    return lambda v: stats.norm.cdf((v + 0.5) / sigma) - stats.norm.cdf((v - 0.5) / sigma)


# ---- distributions -------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 31.9])
def test_discrete_laplace_has_its_pmf(scale: float) -> None:
    def p() -> float:
        return p_value(discrete_laplace(1_000_000, scale), laplace_pmf(scale), int(9 * scale) + 3)

    assert holds(p)


@pytest.mark.parametrize("scale", [700.0, 2.0**18, 2.0**21, 2.0**26, 2.0**40 / 3])
def test_discrete_laplace_of_several_digits_has_its_distribution(scale: float) -> None:
    def p() -> float:
        draws = discrete_laplace(300_000, scale)
        # Uniform within a step: floor(|g|/step) is geometric again, and g mod 256 nearly uniform.
        q = math.exp(-1 / scale)
        edges = np.round(-scale * np.log(1 - np.arange(1, 50) / 50))
        share = np.diff([0.0, *(1 - q**edges * (2 / (1 + q))), 1.0])
        counts = np.bincount(np.searchsorted(edges, np.abs(draws), side="right"), minlength=50)
        bulk = stats.chisquare(counts, share * draws.size, sum_check=False).pvalue
        signs = stats.binomtest(int((draws > 0).sum()), int((draws != 0).sum())).pvalue
        low = stats.chisquare(np.bincount(draws % 256, minlength=256)).pvalue
        return min(float(bulk), float(signs), float(low) if scale > 2**20 else 1.0)

    assert holds(p)


def test_the_tail_beyond_the_escape_is_there_and_has_its_weight() -> None:
    scale = 31.9  # one digit: past 254 every draw has escaped at least once
    draws = np.abs(discrete_laplace(2_000_000, scale))
    beyond, far = int((draws >= 255).sum()), int((draws >= 280).sum())
    q = math.exp(-1 / scale)
    expected = 2_000_000 * 2 * q**255 / (1 + q)
    assert abs(beyond - expected) < 6 * math.sqrt(expected)
    assert abs(far / beyond - q**25) < 6 * math.sqrt(q**25 / beyond)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 6.5])
@pytest.mark.parametrize(
    ("draw", "pmf", "other"),
    [(discrete_gaussian, gaussian_pmf, rounded_pmf), (rounded_gaussian, rounded_pmf, gaussian_pmf)],
)
def test_gaussians_have_their_pmf_and_not_each_others(
    draw: Callable[..., npt.NDArray[np.int64]],
    pmf: Callable[[float], Pmf],
    other: Callable[[float], Pmf],
    sigma: float,
) -> None:
    reach = int(6 * sigma) + 2
    assert holds(lambda: p_value(draw(1_000_000, sigma), pmf(sigma), reach))
    if sigma <= 1:
        assert p_value(draw(1_000_000, sigma), other(sigma), reach) < 1e-4


@pytest.mark.parametrize("draw", [discrete_gaussian, rounded_gaussian])
def test_wide_gaussians_are_normal(draw: Callable[..., npt.NDArray[np.int64]]) -> None:
    sigma = 2.0**20 / 3
    assert holds(lambda: float(stats.kstest(draw(100_000, sigma) / sigma, "norm").pvalue))


@pytest.mark.parametrize(
    ("draw", "pmf"), [(discrete_gaussian, gaussian_pmf), (rounded_gaussian, rounded_pmf)]
)
def test_the_exact_coin_gives_the_same_distribution(
    draw: Callable[..., npt.NDArray[np.int64]],
    pmf: Callable[[float], Pmf],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "MARGIN", 2.0)  # nothing is sure: every coin is tossed exactly
    assert holds(lambda: p_value(draw(4_000, 1.7), pmf(1.7), 8))


@pytest.mark.parametrize("scale", [3.7, 900.0])
def test_the_same_marginal_as_opendp(scale: float) -> None:
    dp = pytest.importorskip("opendp.prelude", reason="the oracle, opendp, is not installed")
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    oracle = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=scale)

    def p() -> float:
        theirs, ours = np.array(oracle([0] * 30_000)), discrete_laplace(300_000, scale)
        edges = np.unique(np.quantile(theirs, np.linspace(0, 1, 41)[1:-1]))
        table = [np.bincount(np.searchsorted(edges, x), minlength=40) for x in (theirs, ours)]
        seen = np.array(table)
        return float(stats.chi2_contingency(seen[:, seen.sum(axis=0) > 0]).pvalue)

    assert holds(p)


# ---- lowest bits ---------------------------------------------------------------------------------


def advantage(zero: npt.NDArray[Any], one: npt.NDArray[Any]) -> float:
    """How much better than chance the three lowest bits tell two samples apart.

    The residue is chosen on one half of each sample and counted on the other.
    """
    seen = [
        [np.bincount(np.floor(half).astype(np.int64) % 8, minlength=8) / half.size for half in x]
        for x in (np.split(zero, 2), np.split(one, 2))
    ]
    best = int(np.argmax(np.abs(seen[0][0] - seen[1][0])))
    return float(abs(seen[0][1][best] - seen[1][1][best]))


def test_the_lowest_bits_tell_nothing_where_float_noise_tells_the_centre() -> None:
    count, k = 400_000, 18
    ours = [centre * 2**k + discrete_laplace(count, 2**k) for centre in (0, 1)]
    rng = np.random.default_rng()
    floats = [(centre + rng.laplace(0.0, 1.0, count)) * 2.0**56 for centre in (0, 1)]
    assert advantage(*ours) < 0.005
    assert advantage(*floats) > 0.2


# ---- exactness -----------------------------------------------------------------------------------


def test_the_edges_of_digits_are_exact_to_the_last_bit() -> None:
    scale = Fraction(2**21, 7)
    sampler = geometric(scale)
    with localcontext() as context:
        context.prec = 120
        for place, cells in enumerate(sampler._cells):
            r = (-Decimal(256**place) * 7 / Decimal(2**21)).exp()
            top = place == len(sampler._cells) - 1
            for i in (1, 2, 100, cells.count - 1):
                edge = (1 - r**i) / (1 if top else 1 - r**256)
                assert int(cells._edges[i - 1]) == int(edge * 2**64)
                assert cells._boundary(i, 192) == int(edge * 2**192)


def test_digits_multiply_to_the_geometric_distribution() -> None:
    scale = Fraction(5000)
    cells = geometric(scale)._cells
    assert len(cells) == 2
    low = np.diff([0.0, *(cells[0]._edges / 2.0**64), 1.0])
    high = np.diff([0.0, *(cells[1]._edges / 2.0**64), 1.0])
    together = np.outer(high[:-1], low).ravel()
    n = np.arange(together.size)
    wanted = -np.expm1(-1 / 5000) * np.exp(-n / 5000)
    assert np.allclose(together, wanted, rtol=1e-9, atol=1e-18)


class Scripted(Stream):
    """A stream that gives the words it was told, and counts."""

    def __init__(self, *words: int) -> None:
        super().__init__()
        self.script = list(words)

    def words(self, kind: type[np.unsignedinteger[Any]], *shape: int) -> npt.NDArray[Any]:
        count = math.prod(shape)
        given, self.script = self.script[:count], self.script[count:]
        return np.array(given, dtype=kind).reshape(shape)


@pytest.mark.parametrize(("next_bits", "cell"), [(0, 0), (2**64 - 1, 1)])
def test_a_tie_of_64_bits_is_broken_by_further_bits(next_bits: int, cell: int) -> None:
    coin = keep_or_change(Fraction(1), 1)
    edge = coin._boundary(1, 64)
    first, rest = edge >> 48, (edge & (2**48 - 1)) << 16
    stream = Scripted(first, rest, next_bits)
    assert coin.draw(1, stream).tolist() == [cell]
    assert stream.script == []


def test_a_tie_of_128_bits_is_broken_too() -> None:
    coin = keep_or_change(Fraction(1), 1)
    edge = coin._boundary(1, 128)
    words = [(edge >> 112), ((edge >> 64) & (2**48 - 1)) << 16, edge & (2**64 - 1), 2**64 - 1]
    assert coin.draw(1, Scripted(*words)).tolist() == [1]


def test_a_coin_on_the_edge_is_decided_by_further_bits() -> None:
    sigma = Fraction(2)
    chance = exp_bounds((1 - sigma * sigma / 3) ** 2 / (2 * sigma * sigma), 160)[0] >> 96
    # U agrees with the probability in 64 bits; the next word says on which side it lies.
    for fresh, kept in ((0, True), (2**64 - 1, False)):
        stream = Scripted(fresh, 0)
        assert sampling._keep(1, None, chance, sigma, stream) is kept
        assert stream.script == []
    assert sampling._keep(1, None, chance - 4, sigma, Scripted())
    assert not sampling._keep(1, None, chance + 4, sigma, Scripted())


def test_a_coarse_table_gives_the_same_cells_as_a_fine_one() -> None:
    edges = [Fraction(1, 3), Fraction(5, 7)]

    def boundary(i: int, bits: int) -> int:
        return math.floor(edges[i - 1] * 2**bits)

    for prefix in (1, 15, 16):
        cells = Cells(3, boundary, prefix).draw(200_000, Stream())
        counts = np.bincount(cells, minlength=3)
        wanted = np.array([1 / 3, 5 / 7 - 1 / 3, 2 / 7]) * cells.size
        assert stats.chisquare(counts, wanted).pvalue > 1e-6


@settings(max_examples=50, deadline=None)
@given(st.fractions(0, 300), st.integers(1, 300))
def test_bounds_of_the_exponential_enclose_it(exponent: Fraction, bits: int) -> None:
    low, high = exp_bounds(exponent, bits)
    with localcontext() as context:
        context.prec = 400
        ratio = Decimal(exponent.numerator) / Decimal(exponent.denominator)
        exact = (-ratio).exp() * 2**bits
    assert low <= exact <= high <= low + 3


# ---- randomness ----------------------------------------------------------------------------------


def test_no_seed_repeats_a_draw() -> None:
    np.random.seed(0)
    first = discrete_laplace(64, 2.0**18)
    np.random.seed(0)
    assert not np.array_equal(first, discrete_laplace(64, 2.0**18))
    with pytest.raises(TypeError):
        Stream(42)  # type: ignore[call-arg]


def test_a_forked_child_draws_noise_of_its_own() -> None:
    stream = Stream()
    stream.words(np.uint64, 4)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads
        child = os.fork()
    if child == 0:
        os.write(write, discrete_laplace(16, 2.0**18, stream).tobytes())
        os._exit(0)
    ours = discrete_laplace(16, 2.0**18, stream)
    theirs = np.frombuffer(os.read(read, 128), dtype=np.int64)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    assert theirs.size == 16
    assert not np.array_equal(ours, theirs)


def test_bits_of_the_stream_are_balanced_and_whole_numbers_uniform() -> None:
    words = Stream().words(np.uint64, 300_000)  # more than one block of the cipher
    ones = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 6 * 0.5 / math.sqrt(64 * 300_000)
    counts = np.bincount(Stream().below(7, 70_000), minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-6
    uniform = Stream().uniform(1000)
    assert 0 < uniform.min() < uniform.max() < 1


# ---- arguments -----------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.tuples(st.integers(0, 9), st.integers(0, 9)), st.sampled_from([0.5, 20.0, 2.0**30]))
def test_any_shape_is_filled_with_integers(shape: tuple[int, int], scale: float) -> None:
    for draw in (discrete_laplace, discrete_gaussian, rounded_gaussian):
        noise = draw(shape, scale)
        assert noise.shape == shape
        assert noise.dtype == np.int64


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "1", True, 2.0**60], ids=repr)
def test_a_bad_scale_is_refused(value: Any) -> None:
    with pytest.raises(CapeletError, match="scale is"):
        discrete_laplace(3, value)
    for draw in (discrete_gaussian, rounded_gaussian):
        with pytest.raises(CapeletError, match="sigma is"):
            draw(3, value)


def test_a_coin_that_hardly_ever_turns_is_made_at_once() -> None:
    """The first bits of 1/(1 + m·e^(−ε)) without its digits: on both sides of where it begins."""
    for epsilon in (40, 44, 45, 46, 50):
        coin = keep_or_change(Fraction(epsilon), 3)
        with localcontext() as context:
            context.prec = 80
            exact = int(2**64 / (1 + 3 * Decimal(-epsilon).exp()))
        assert coin._boundary(1, 64) == exact
    for large in (1e5, 1e6):
        assert not keep_or_change(Fraction(large), 3).draw(1000, Stream()).any()
