"""Each decision of the samplers, bit by bit: scripted words in, exact arithmetic beside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from capelet.errors import CapeletError
from capelet.mechanisms import sampling
from capelet.mechanisms.sampling import (
    Cells,
    Geometric,
    Stream,
    discrete_gaussian,
    discrete_laplace,
    exp_bounds,
    keep_or_change,
    rounded_gaussian,
)

EDGES = [Fraction(1, 3), Fraction(5, 7), Fraction(8, 9)]
TOP = 2**64 - 1


class Scripted(Stream):
    """A stream that gives the words of its script, one request after the other."""

    def __init__(self, *script: list[int]) -> None:
        super().__init__()
        self.script = list(script)

    def words(self, kind: type[np.unsignedinteger[Any]], *shape: int) -> npt.NDArray[Any]:
        if not math.prod(shape):
            return np.empty(shape, dtype=kind)
        return np.array(self.script.pop(0), dtype=kind).reshape(shape)


def rational(i: int, bits: int) -> int:
    return math.floor(EDGES[i - 1] * 2**bits)


def exp(exponent: Fraction) -> Fraction:
    """e^−exponent to 400 digits."""
    with localcontext() as context:
        context.prec = 400
        ratio = Decimal(exponent.numerator) / Decimal(exponent.denominator)
        return Fraction((-ratio).exp())


# ---- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", [1, 3, 8, 15, 16])
def test_a_prefix_is_decided_exactly_when_no_edge_lies_in_its_interval(prefix: int) -> None:
    table = Cells(4, rational, prefix).table
    assert len(table) == 2**prefix
    for place in {0, 1, 2**prefix - 1, *(math.floor(edge * 2**prefix) for edge in EDGES)}:
        low, high = Fraction(place, 2**prefix), Fraction(place + 1, 2**prefix)
        below = sum(edge <= low for edge in EDGES)
        inside = any(low <= edge < high for edge in EDGES)
        assert table[place] == (-1 if inside else below)
    assert np.count_nonzero(table < 0) == len({math.floor(edge * 2**prefix) for edge in EDGES})


def test_a_prefix_that_starts_at_an_edge_is_left_undecided() -> None:
    halves = Cells(2, lambda _, bits: 1 << (bits - 1), prefix=4)
    assert halves.table.tolist() == [0] * 8 + [-1] + [1] * 7
    # At the bit pattern of the edge itself only further bits can tell; here they say: above.
    assert halves.draw(1, Scripted([8 << 12], [0], [0], [1])).tolist() == [1]


def test_an_edge_at_the_last_pattern_of_an_interval_is_still_inside_it() -> None:
    edge = (5 << 60) - 1
    cells = Cells(2, lambda _, bits: edge << (bits - 64), prefix=4)
    assert cells.table.tolist() == [0] * 4 + [-1] + [1] * 11


def test_an_enclosure_too_wide_to_tell_is_narrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loose bounds at first: the edge must not be taken from either of them."""
    right, precisions = exp_bounds, []

    def loose(exponent: Fraction, bits: int) -> tuple[int, int]:
        precisions.append(bits)
        low, high = right(exponent, bits)
        slack = 1 << (bits - 20) if bits < 300 else 0
        return max(low - slack, 0), min(high + slack, 1 << bits)

    monkeypatch.setattr(sampling, "exp_bounds", loose)
    edges = sampling._digit_edges(Fraction(1, 50), 256)
    top = sampling._digit_edges(Fraction(1, 3), None)
    coin = sampling.keep_or_change(Fraction(2), 3)
    r, whole, third = exp(Fraction(1, 50)), exp(Fraction(256, 50)), exp(Fraction(1, 3))
    assert edges(7, 64) == math.floor((1 - r**7) / (1 - whole) * 2**64)
    assert top(5, 64) == math.floor((1 - third**5) * 2**64)
    assert coin._boundary(1, 64) == math.floor(1 / (1 + 3 * exp(Fraction(2))) * 2**64)
    assert min(precisions) < 300 < max(precisions)


def test_further_bits_put_a_value_on_the_right_side_of_its_edge() -> None:
    cells = Cells(4, rational)
    for number, edge in enumerate(EDGES):
        whole = math.floor(edge * 2**64)
        for shift, cell in ((-1, number), (1, number + 1)):
            value = whole + shift
            stream = Scripted([value >> 48], [(value & (2**48 - 1)) << 16])
            assert cells.draw(1, stream).tolist() == [cell]
            assert not stream.script
        # Equal in 64 bits: the next 64 decide, and the edge's own are 2/3, 5/7 … of 2^64.
        for fresh, cell in ((0, number), (TOP, number + 1)):
            stream = Scripted([whole >> 48], [(whole & (2**48 - 1)) << 16], [fresh])
            assert cells.draw(1, stream).tolist() == [cell]
            assert not stream.script


def test_many_uniforms_are_settled_each_for_itself() -> None:
    cells = Cells(4, rational)
    random = np.random.default_rng(0)
    tight = [math.floor(edge * 2**16) for edge in EDGES]
    prefixes = np.concatenate([random.integers(0, 2**16, 200), tight * 20]).astype(np.uint16)
    unsure = np.flatnonzero(cells.table[prefixes] < 0)
    more = random.integers(0, 2**63, unsure.size, dtype=np.uint64) << np.uint64(1)
    rest = dict(zip(unsure.tolist(), (more >> np.uint64(16)).tolist(), strict=True))
    out = cells.settle(prefixes, Scripted(more.tolist()))
    for place, prefix in enumerate(prefixes.tolist()):
        value = Fraction((prefix << 48) | rest.get(place, 0), 2**64)
        assert out[place] == sum(edge < value for edge in EDGES)


@pytest.mark.parametrize("others", [1, 7])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(3), Fraction(50)])
def test_the_coin_of_randomised_response_is_exact(epsilon: Fraction, others: int) -> None:
    coin = keep_or_change(epsilon, others)
    chance = 1 / (1 + others * exp(epsilon))
    for bits in (8, 64, 200):
        assert coin._boundary(1, bits) == math.floor(chance * 2**bits)
    assert coin.count == 2


# ---- the stream ----------------------------------------------------------------------------------


def test_uniform_floats_lie_between_the_ends() -> None:
    ends = Scripted([0, TOP, 1 << 63]).uniform(3).tolist()
    assert ends == [2.0**-54, 1 - 2.0**-53 + 2.0**-54, 0.5 + 2.0**-54]
    assert Stream().uniform(2, 3).shape == (2, 3)


def test_words_past_the_last_multiple_are_drawn_again() -> None:
    last = 2**64 // 3 * 3 - 1
    assert Scripted([last, 4]).below(3, 2).tolist() == [2, 1]
    stream = Scripted([last + 1, 4], [last + 1], [3])
    assert stream.below(3, 2).tolist() == [0, 1]
    assert not stream.script
    assert Scripted([TOP]).below(1 << 32, 1).tolist() == [2**32 - 1]  # no word is too many


def test_a_stream_goes_on_and_does_not_repeat_itself() -> None:
    stream = Stream()
    first, second = stream.words(np.uint64, 1000), stream.words(np.uint64, 1000)
    assert len(np.unique(np.concatenate([first, second]))) == 2000
    long = stream.words(np.uint8, (1 << 20) + 5)
    assert long[-5:].tolist() != [0] * 5 and len(np.unique(long)) == 256


# ---- geometric digits ----------------------------------------------------------------------------


def test_how_many_digits_a_scale_needs() -> None:
    for scale, places in ((32, 1), (33, 2), (8192, 2), (8193, 3), (2**21, 3), (2**21 + 1, 4)):
        sampler = Geometric(Fraction(scale))
        assert len(sampler._cells) == places
        assert sampler._tables[0].dtype == (np.int32 if places <= 3 else np.int64)
    assert Geometric(Fraction(1))._cells[-1].count == 66  # 64 scales, and the escape
    assert Geometric(Fraction(32))._cells[-1].count == 256


def test_sixteen_bits_give_a_digit_and_a_sign() -> None:
    """All words of one digit: each magnitude as often as its exact probability says."""
    sampler = Geometric(Fraction(2))
    words = np.arange(1 << 16)
    table = sampler._tables[0]
    decided = table[words] >= 0
    r = math.exp(-0.5)
    for magnitude in range(4):
        times = np.count_nonzero(table[words][decided] == magnitude)
        assert abs(times - (1 - r) * r**magnitude * 2**16) <= 4
    some = words[decided][::97]
    total, minus = sampler.draw(len(some), Scripted(some.tolist()))
    assert minus.tolist() == (some & 1).tolist()
    edges = [1 - r**i for i in range(1, 40)]
    assert total.tolist() == np.searchsorted(edges, (some >> 1) / 2**15, side="right").tolist()


def test_an_escape_adds_and_draws_again() -> None:
    sampler = Geometric(Fraction(1))  # one digit; cell 65 is the escape
    escape = [[0xFFFE], [TOP], [TOP]]  # past 1 − e^−65, which agrees with 1 in 64 bits
    total, minus = sampler.draw(1, Scripted(*escape, *escape, [0]))
    assert total.tolist() == [130] and minus.tolist() == [0]
    total, _ = sampler.draw(1, Scripted(*escape, [0]))
    assert total.tolist() == [65]


def test_an_escape_of_two_digits_adds_to_the_upper_one() -> None:
    sampler = Geometric(Fraction(64))
    assert [cells.count for cells in sampler._cells] == [256, 18]
    total, _ = sampler.draw(1, Scripted([0, 0xFFFE], [TOP], [TOP], [0]))
    assert total.tolist() == [17 << 8]


def test_digits_stand_in_their_places() -> None:
    sampler = Geometric(Fraction(5000))  # two digits
    low, high = sampler._tables
    words = [[300, 40_000], [20_000, 3]]
    total, minus = sampler.draw(2, Scripted([*words[0], *words[1]]))
    assert total.tolist() == [low[300] + high[20_000], low[40_000] + high[3]]
    assert high[20_000] % 256 == 0 and high[20_000] > 0 and low[40_000] < 256
    assert minus.tolist() == [0, 1]


def test_a_draw_too_wide_for_its_type_widens_the_whole() -> None:
    sampler = Geometric(Fraction(2**21))  # three digits in 32 bits
    top = sampler._cells[-1]
    escapes = [[0xFFFE]] * 80
    total, _ = sampler.draw(1, Scripted([0, 0, 0xFFFE], *escapes, [0]))
    assert total.dtype == np.int64
    assert total.tolist() == [81 * (top.count - 1) << 16]
    small, _ = sampler.draw(1, Scripted([0, 0, 0]))
    assert small.dtype == np.int32 and small.tolist() == [0]


def test_a_magnitude_saturates_and_does_not_wrap() -> None:
    sampler = Geometric(Fraction(2**53))
    first = [0] * (len(sampler._cells) - 1) + [0xFFFE]
    total, _ = sampler.draw(1, Scripted(first, *[[0xFFFE]] * 80, [0]))
    assert total.tolist() == [sampling.LARGEST]


def test_minus_zero_is_drawn_again() -> None:
    sampler = Geometric(Fraction(1))
    # 0 with a minus, then 1 with a minus; a plain 0 stays.
    one = int(0.7 * 2**15) << 1
    assert sampler.with_sign(1, Scripted([1], [one | 1])).tolist() == [-1]
    assert sampler.with_sign(2, Scripted([0, one])).tolist() == [0, 1]
    assert sampler.with_sign(1, Scripted([1], [1], [0])).tolist() == [0]


# ---- enclosures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(700), Fraction(10**9)])
def test_the_enclosure_of_the_exponential_is_three_wide(exponent: Fraction) -> None:
    for bits in (1, 64, 1000):
        low, high = exp_bounds(exponent, bits)
        exact = exp(exponent) * 2**bits if exponent < 10**6 else Fraction(0)
        assert 0 <= low <= exact < high <= low + 3
        assert low >= exact - 2  # not merely zero


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian, rounded_gaussian])
def test_scales_are_taken_as_the_rationals_they_are(draw: Callable[..., Any]) -> None:
    least = 2.0**-10 if draw is discrete_laplace else 0.25
    assert draw(4, least).shape == (4,) and draw(4, Fraction(least)).shape == (4,)
    assert draw(4, 2.0**50).shape == (4,)
    for bad in (least / 2, Fraction(least) / 2, 2.0**51, Fraction(2**51)):
        with pytest.raises(CapeletError, match=r"(scale|sigma) is"):
            draw(4, bad)
    exact = sampling._rational("scale", Fraction(1, 3), 0.25)
    assert exact == Fraction(1, 3) and sampling._rational("scale", 0.1, 0.05) == Fraction(0.1)


# ---- the coin of rejection -----------------------------------------------------------------------


def gamma(magnitude: int, fraction: Fraction, sigma: Fraction) -> Fraction:
    scale = math.floor(sigma) + 1
    centre = magnitude + fraction - sigma**2 / scale
    return centre**2 / (2 * sigma**2) + fraction / scale


@pytest.mark.parametrize("sigma", [Fraction(2), Fraction(7, 3), Fraction(1, 3)])
@pytest.mark.parametrize("with_part", [False, True])
def test_the_exact_coin_agrees_with_the_probability(sigma: Fraction, with_part: bool) -> None:
    random = np.random.default_rng(1)
    for magnitude in range(4):
        part = int(random.integers(1 << 32)) if with_part else None
        fraction = Fraction(part or 0, 1 << 32)
        chance = math.floor(exp(gamma(magnitude, fraction, sigma)) * 2**64)
        margin = (1 << 36) if with_part else 4  # F is known to 32 bits only
        for uniform, keeps in ((chance - margin, True), (chance + margin, False)):
            if 0 <= uniform <= TOP:
                stream = Scripted()  # nothing more needs to be drawn
                assert sampling._keep(magnitude, part, uniform, sigma, stream) is keeps


def test_fresh_bits_of_both_uniforms_decide_a_close_coin() -> None:
    sigma, part = Fraction(2), 1 << 31
    low = math.floor(exp(gamma(1, Fraction(part + 1, 1 << 32), sigma)) * 2**64)
    high = math.floor(exp(gamma(1, Fraction(part, 1 << 32), sigma)) * 2**64)
    assert low + 10 < high
    middle = (low + high) // 2
    # γ grows with F: small further bits of F keep, large ones do not.
    for fresh, keeps in ((0, True), (TOP, False)):
        stream = Scripted([1 << 63, fresh])
        assert sampling._keep(1, part, middle, sigma, stream) is keeps
        assert not stream.script


@pytest.mark.parametrize(("fresh", "keeps"), [(0, True), (TOP, False)])
def test_a_coin_that_floats_cannot_settle_is_tossed_exactly(fresh: int, keeps: bool) -> None:
    """U agrees with the probability in all 64 bits: only the exact coin can know."""
    sigma = Fraction(2)
    chance = math.floor(exp(gamma(1, Fraction(0), sigma)) * 2**64)
    stream = Scripted([chance], [fresh, 0])
    kept = sampling._keeps(np.array([1]), None, sigma, stream)
    assert kept.tolist() == [keeps]
    assert not stream.script


def test_floats_decide_only_outside_the_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    tossed: list[int] = []

    def toss(magnitude: int, part: int | None, uniform: int, *_: object) -> bool:
        tossed.append(uniform)
        return True

    monkeypatch.setattr(sampling, "_keep", toss)
    sigma = Fraction(7, 3)
    chance = math.floor(exp(gamma(2, Fraction(0), sigma)) * 2**64)
    near, far = 1 << (64 - 31), 1 << (64 - 29)
    uniforms = [chance - near, chance + near, chance - far, chance + far]
    kept = sampling._keeps(np.full(4, 2), None, sigma, Scripted(uniforms))
    assert tossed == uniforms[:2]
    assert kept.tolist() == [True, True, True, False]
    part = np.array([1 << 30, 3 << 30], dtype=np.uint32)
    both = [math.floor(exp(gamma(2, Fraction(n, 4), sigma)) * 2**64) for n in (1, 3)]
    tossed.clear()
    wide = Scripted([both[0] + far, both[1] - far])
    assert sampling._keeps(np.full(2, 2), part, sigma, wide).tolist() == [False, True]
    assert not tossed
    assert sampling._keeps(np.full(2, 2), part, sigma, Scripted(both)).tolist() == [True, True]
    assert tossed == both


def test_the_first_bit_of_the_fraction_rounds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """G + F with F ≥ ½ rounds to G + 1; the sign is that of the proposal."""

    def all_of_them(magnitude: npt.NDArray[Any], *_: object) -> npt.NDArray[np.bool_]:
        return np.ones(magnitude.size, dtype=bool)

    monkeypatch.setattr(sampling, "_keeps", all_of_them)
    sampler = sampling.geometric(Fraction(3))
    words = [0, 1, 0, 1] + [0] * 15
    parts = [0, 0, 1 << 31, 1 << 31] + [0] * 15
    out = sampling._normal(2, Fraction(2), True, Scripted([0] * 19, [0] * 19))
    assert out.tolist() == [0, 0]
    stream = Scripted(words + [0] * 3, parts + [0] * 3)
    assert sampling._normal(4, Fraction(2), True, stream).tolist() == [0, 0, 1, -1]
    assert sampler is sampling.geometric(Fraction(3))
    assert sampling._normal(0, Fraction(2), True, Scripted()).tolist() == []
