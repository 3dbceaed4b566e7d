"""What counts prove, against exact binomial sums; cuts and tails against brute force."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from capelet.judge import bounds
from capelet.judge.bounds import (
    TAIL,
    Claim,
    Sizes,
    Threshold,
    best_thresholds,
    epsilon_of,
    interval_ends,
)
from capelet.privacy.guarantees import gaussian_sigma

Reals = npt.NDArray[np.float64]


# ---- the interval --------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "misses", "count"), [(7, 2, 10), (1, 9, 10), (50, 49, 50)])
def test_the_ends_are_where_the_binomial_tail_is_half_the_risk(
    hits: int, misses: int, count: int
) -> None:
    low, high = interval_ends(hits, misses, (count, count), 0.05)
    assert stats.binom.sf(hits - 1, count, low) == pytest.approx(0.025)
    assert stats.binom.cdf(misses, count, high) == pytest.approx(0.025)
    exact = stats.binomtest(hits, count).proportion_ci(0.95, method="exact")
    assert low == pytest.approx(exact.low)


def test_no_hit_and_nothing_but_misses_prove_nothing() -> None:
    for count in (1, 10, 1000):
        assert interval_ends(0, count, (count, count), 0.05) == (0.0, 1.0)
        for tradeoff in ("any", "gaussian"):
            claim = Claim(1.0, 1e-5 if tradeoff == "gaussian" else 0.0, 0.95, tradeoff)  # type: ignore[arg-type]
            assert claim.proven(0, count, (count, count)) == 0.0
        assert Claim(1.0, 0.0, 0.95).proven(0, 0, (count, count)) == 0.0
        assert Claim(1.0, 0.0, 0.95).proven(count, count, (count, count)) == 0.0


def test_what_counts_prove_by_hand() -> None:
    claim, sizes = Claim(1.0, 0.0, 0.9), (100, 110)
    # The least chance p of a right guess for which 90 of 100 are no surprise; e^ε is its odds.
    low = stats.binomtest(90, 100, alternative="greater").proportion_ci(0.9, method="exact").low
    assert claim.proven(90, 10, sizes) == pytest.approx(math.log(low / (1 - low)))
    assert stats.binom.sf(89, 100, low) == pytest.approx(0.1)
    assert claim.proven(90, 10, sizes, distance=2.0) == claim.proven(90, 10, sizes) / 2
    assert claim.proven(10, 90, sizes) == 0.0  # never below 0
    loose = Claim(1.0, 0.2, 0.9)
    low, high = interval_ends(90, 10, sizes, 0.1)
    assert loose.proven(90, 10, sizes) == pytest.approx(math.log((low - 0.2) / high))
    for delta in (low, 0.95):
        assert Claim(1.0, delta, 0.9).proven(90, 10, sizes) == 0.0
    assert claim.reach(200) == claim.proven(100, 0, (100, 100))
    assert claim.reach(200, 4.0) == pytest.approx(claim.reach(200) / 4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_no_dependence_between_rows_makes_a_true_claim_fail(epsilon: float) -> None:
    """Steinke, Nasr and Jagielski 2023: also where guesses come in lumps that move together."""
    random = np.random.default_rng(0)
    claim, chance = Claim(epsilon, 0.0, 0.9), math.exp(epsilon) / (1 + math.exp(epsilon))
    wrong = 0
    for _ in range(3000):
        # A hostile law within the claim: how many guesses come next depends on how many were right.
        right = total = 0
        for _ in range(6):
            size = 5 if 2 * right < total else 40
            right, total = right + random.binomial(size, chance), total + size
        wrong += claim.proven(right, total - right, (total, total)) > epsilon
    assert wrong <= 0.1 * 3000 + 3 * math.sqrt(3000 * 0.09)


def test_under_the_gaussian_trade_off_a_count_bounds_the_distance_of_two_normals() -> None:
    claim = Claim(1.0, 1e-5, 0.9, "gaussian")
    low, high = interval_ends(900, 100, (1000, 1000), 0.1)
    gap = float(stats.norm.ppf(low) - stats.norm.ppf(high))
    proven = claim.proven(900, 100, (1000, 1000))
    assert proven == pytest.approx(epsilon_of(gap, 1e-5))
    assert gaussian_sigma(proven, 1e-5) == pytest.approx(1 / gap, rel=1e-6)
    assert epsilon_of(gap, 1e-5) < epsilon_of(gap, 1e-7)
    for epsilon in (1e-3, 0.3, 1.0, 40.0):
        assert epsilon_of(1 / gaussian_sigma(epsilon, 0.01), 0.01) == pytest.approx(epsilon)
    # Far apart: δ(ε) of normals two apart is ½ where it says.
    far = epsilon_of(2.0, 0.5)
    one, other = stats.norm.cdf([1 - far / 2, -1 - far / 2])
    assert one - math.exp(far) * other == pytest.approx(0.5) and far > 0.5
    # δ = total variation of the two normals: then any ε is enough.
    total = 2 * stats.norm.cdf(0.5) - 1
    assert epsilon_of(1.0, total * 1.0001) == 0.0 < epsilon_of(1.0, total * 0.9999)


@pytest.mark.parametrize("count", [30, 1000])
def test_wilson_s_interval_solves_its_quadratic(count: int) -> None:
    """p is an end when (share − p)² = z²·p(1 − p)/count, with z = 4."""
    for hits in (0, 1, count // 3, count - 1, count):
        low, high = (float(end) for end in bounds._wilson(hits, count))
        for end in (low, high):
            if 0 < end < 1:
                assert (hits / count - end) ** 2 == pytest.approx(16 * end * (1 - end) / count)
        assert 0 <= low <= hits / count + 1e-15 and hits / count - 1e-15 <= high <= 1
        assert (low < 1e-12) == (hits == 0) and (high > 1 - 1e-12) == (hits == count)


# ---- the score that ranks ------------------------------------------------------------------------


def test_the_score_of_plain_counts_is_the_ratio_of_wilson_s_ends() -> None:
    of = Sizes(1000, 5000)
    claim = Claim(1.0, 0.0, 0.95)
    hits, misses = np.array([500.0, 800.0]), np.array([100.0, TAIL])
    low, high = bounds._wilson(hits, 1000)[0], bounds._wilson(misses, 1000)[1]
    assert claim.score(hits, misses, of, 1.0) == pytest.approx(np.log(low / high))
    assert claim.score(hits, misses, of, 2.0) == pytest.approx(np.log(low / high) / 2)
    loose = Claim(1.0, 0.1, 0.95)
    assert loose.score(hits, misses, of, 1.0) == pytest.approx(np.log((low - 0.1) / high))
    assert loose.score(np.array([5.0]), np.array([1.0]), of, 1.0).tolist() == [-math.inf]
    normal = Claim(1.0, 1e-5, 0.95, "gaussian")
    gaps = stats.norm.ppf(low) - stats.norm.ppf(high)
    assert normal.score(hits, misses, of, 1.0) == pytest.approx(gaps)


def test_few_misses_are_an_extrapolation_believed_at_the_size_of_the_count() -> None:
    of = Sizes(1000, 5000)
    claim = Claim(1.0, 0.0, 0.95)
    score = claim.score(np.array([500.0]), np.array([2.0]), of, 1.0)
    low = bounds._wilson(500, 1000)[0]
    high = bounds._wilson(2.5 * 2.0 * 5, 5000)[1]
    assert score == pytest.approx(np.log(low / high))
    # Rare hits justify no extrapolation: ten misses are reckoned with instead.
    rare = claim.score(np.array([49.0]), np.array([2.0]), of, 1.0)
    ends = bounds._wilson(49, 1000)[0], bounds._wilson(TAIL, 1000)[1]
    assert rare == pytest.approx(np.log(ends[0] / ends[1]))
    common = claim.score(np.array([50.0]), np.array([2.0]), of, 1.0)
    assert common == pytest.approx(np.log(bounds._wilson(50, 1000)[0] / high))
    # An extrapolation cannot pass the whole count.
    few = Sizes(1000, 4)
    most = claim.score(np.array([500.0]), np.array([9.0]), few, 1.0)
    high = bounds._wilson(min(2.5 * 9 * 4 / 1000, 4), 4)[1]
    assert most == pytest.approx(np.log(low / high))


def test_plain_counts_are_taken_off_by_two_deviations() -> None:
    """`score` sees nothing in 40 of 100,000 against none; `plain_score` does."""
    of, claim = Sizes(100_000, 100_000), Claim(1.0, 0.0, 0.95)
    hits, misses = np.array([40.0, 4.0, 400.0]), np.array([0.0, 0.0, 100.0])
    low = hits - 2 * np.sqrt(hits)
    plain_scores = claim.plain_score(hits, misses, of, 1.0)
    assert plain_scores[0] == pytest.approx(math.log(low[0] / 1)) and plain_scores[0] > 3
    assert plain_scores[1] == -math.inf
    assert plain_scores[2] == pytest.approx(math.log(360 / 121))
    assert claim.plain_score(hits, misses, of, 2.0)[0] == pytest.approx(plain_scores[0] / 2)
    assert claim.score(hits[:1], misses[:1], of, 1.0)[0] < 0.5
    normal = Claim(1.0, 1e-5, 0.95, "gaussian").plain_score(hits, misses, of, 1.0)
    gap = stats.norm.ppf(low[0] / 1e5) - stats.norm.ppf(1 / 1e5)
    assert normal[0] == pytest.approx(gap)


# ---- cuts ----------------------------------------------------------------------------------------


def plain(hits: Reals, misses: Reals, of: Sizes) -> Reals:
    """A score that only counts: how many more hits than misses."""
    return np.asarray(hits - misses, dtype=np.float64)


def test_an_event_counts_what_falls_into_it() -> None:
    values = np.array([1.0, 2.0, 2.0, 3.0])
    assert Threshold(0.0, 2.0, above=True, from_second=False).hits(values) == 3
    assert Threshold(0.0, 2.0, above=False, from_second=False).hits(values) == 1


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("from_second", [True, False])
def test_the_best_cut_is_found_on_its_side_and_in_its_order(above: bool, from_second: bool) -> None:
    """One sample lies apart: the cut must fall between, and say which input it belongs to."""
    random = np.random.default_rng(0)
    near, far = random.normal(size=400), random.normal(size=400)
    far[:300] += 50.0 if above else -50.0
    values = (near, far) if from_second else (far, near)
    (best,) = best_thresholds(values[0][None], values[1][None], plain, 400)
    # 300 more on the outer side; the inner side, with the order swapped, is as good.
    assert best.hits(values[best.from_second]) - best.hits(values[not best.from_second]) >= 295
    assert best.score >= 280
    inner = best.above != above
    assert best.from_second is (from_second != inner)


def test_the_score_is_told_both_sizes() -> None:
    sizes: list[Sizes] = []

    def score(hits: Reals, misses: Reals, of: Sizes) -> Reals:
        sizes.append(of)
        return hits - misses

    best_thresholds(np.zeros((1, 60)), np.ones((1, 60)), score, 777)
    assert set(sizes) == {Sizes(search=60, final=777)} and len(sizes) == 4


def test_each_statistic_has_its_own_cut() -> None:
    random = np.random.default_rng(1)
    first, second = random.normal(size=(2, 3, 200))
    first[0] += 9.0
    second[2] += 9.0
    one, middle, other = best_thresholds(first, second, plain, 200)
    assert one.score > 180 and other.score > 180 and middle.score < 60
    assert one.hits(first[0] if not one.from_second else second[0]) > 180
    assert other.hits(first[2] if not other.from_second else second[2]) > 180


def test_plain_misses_lie_on_a_line_between_two_values() -> None:
    """A threshold at the edge of what was seen will have a miss; far inside the gap it has none."""
    values = np.array([[1.0, 3.0, 3.0, 7.0]])
    marks = np.array([[0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0]])
    at_least = 4 - bounds._ranks(values, marks)
    assert bounds._without_steps(values, marks, at_least).tolist() == [
        [4.0, 4.0, 3.5, 3.0, 1.25, 1.0, 0.5, 0.0]
    ]
    # Seen from below, `<` leaves out the value itself, which is reckoned with all the same.
    below = bounds._without_steps(-values[:, ::-1], -marks, 4 - at_least)
    assert below.tolist() == [[0.0, 1.0, 1.5, 2.0, 3.75, 4.0, 4.0, 4.0]]


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("from_second", [True, False])
def test_a_value_that_stands_alone_is_an_event_by_itself(above: bool, from_second: bool) -> None:
    """Thirty exact zeros among distances: the threshold takes these, and no more than these."""
    random = np.random.default_rng(0)
    sides = random.uniform(0.001, 4.0, size=(2, 1, 3000)) * (-1 if above else 1)
    sides[int(from_second), 0, :30] = 0.0

    def score(hits: Reals, misses: Reals, of: Sizes) -> Reals:
        return Claim(1.0, 0.0, 0.99).plain_score(hits, misses, of, 1.0)

    (best,) = best_thresholds(sides[0], sides[1], score, 3000, extrapolate=False)
    assert (best.above, best.from_second) == (above, from_second)
    assert best.hits(sides[int(from_second)]) == 30 and best.hits(sides[1 - from_second]) == 0
    # At least 0, or less than the number next to 0.
    assert best.value == 0.0 if above else 0 < best.value < 1e-300
    low = 30 - 2 * math.sqrt(30)  # against a miss that is on the way
    assert math.log(low / 4) < best.score <= math.log(low)


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("from_second", [True, False])
def test_a_tail_is_carried_on_towards_its_own_side(above: bool, from_second: bool) -> None:
    """Exponential laws, one four times as wide: beyond x lie e^−x of one and e^(−x/4) of it."""
    sign = 1.0 if above else -1.0
    near = -np.log1p(-(np.arange(4000) + 0.5) / 4000)[None]
    sides = (sign * near, sign * 4 * near)
    if not from_second:
        sides = sides[::-1]

    def ratio(hits: Reals, misses: Reals, of: Sizes) -> Reals:
        """Only events of a tenth of the outputs at least count."""
        return np.where(hits >= 400, np.log(np.maximum(hits, 1) / np.maximum(misses, 1e-9)), -9.0)

    (best,) = best_thresholds(*sides, ratio, 4000)
    assert (best.above, best.from_second) == (above, from_second)
    # A tenth lies beyond 4·ln 10, where a ten-thousandth of the other law lies: none was seen.
    assert sign * best.value == pytest.approx(4 * math.log(10), abs=0.3)
    assert best.score == pytest.approx(3 * math.log(10), abs=0.4)


def test_ranks_count_the_values_below() -> None:
    rows = np.array([[1.0, 2.0, 2.0, 5.0], [0.0, 0.0, 1.0, 9.0]])
    marks = np.array([[0.0, 2.0, 6.0], [0.0, 1.0, 9.0]])
    assert bounds._ranks(rows, marks).tolist() == [[0, 1, 4], [0, 2, 3]]


def test_thresholds_are_tried_everywhere_and_densely_at_both_ends() -> None:
    for count in (1, 10, 48, 49, 225, 10_000):
        places = bounds._places(count)
        assert places[0] == 0 and places[-1] == count - 1
        assert (np.diff(places) > 0).all()
        if count <= 48:
            assert places.tolist() == list(range(count))
        else:
            assert np.diff(places).max() <= math.ceil(count / 48)
            assert len(places) <= 49 + 2 * 16
            assert {1, 2, count - 2, count - 3} <= set(places.tolist())


# ---- tails ---------------------------------------------------------------------------------------


def test_an_exponential_tail_is_carried_on_as_it_falls() -> None:
    """Quantiles of an exponential law: beyond x lie size·e^−x of them, also where none is left."""
    size = 10_000
    values = -np.log1p(-(np.arange(size) + 0.5) / size)[None]
    marks = np.array([[1.0, 5.0, 8.0, 12.0, 20.0]])
    counts = size - bounds._ranks(values, marks)
    beyond = bounds._tail(values, marks, counts)
    assert beyond[0, :2] == pytest.approx(counts[0, :2])
    exact = size * np.exp(-marks[0, 2:])
    assert beyond[0, 2:] == pytest.approx(exact, rel=0.35)


def test_stragglers_and_single_values_beyond_the_tail() -> None:
    size = 2000
    outer = size // 50
    values = np.arange(size, dtype=np.float64)[None].copy()
    marks = np.array([[size + 500.0]])
    none = np.zeros((1, 1))
    fall = math.log(outer / TAIL) * (size + 500 - (size - TAIL)) / (outer - TAIL)
    assert bounds._tail(values, marks, none)[0, 0] == pytest.approx(TAIL * math.exp(-fall))
    # A few seen far out outweigh a smooth tail; at TAIL and more the count itself is taken.
    assert bounds._tail(values, marks, none + 3)[0, 0] == 3
    assert bounds._tail(values, marks, none + TAIL)[0, 0] == TAIL
    # The far end is one value: hardly anything beyond it, unless something was seen there.
    atom = values.copy()
    atom[0, -outer:] = size
    assert bounds._tail(atom, marks, none)[0, 0] == 0.4
    assert bounds._tail(atom, marks, none + 2)[0, 0] == TAIL
    edge = values.copy()
    edge[0, -outer:-1] = size  # one value but for the last: no tail to read a rate from
    edge[0, -1] = size + 1
    assert bounds._tail(edge, marks, none)[0, 0] == TAIL


def test_too_few_values_have_no_tail() -> None:
    """Below 4·TAIL outputs nothing is extrapolated: TAIL are reckoned with at least."""
    for size, extrapolated in ((4 * TAIL - 1, False), (4 * TAIL, True)):
        values = np.arange(size, dtype=np.float64)[None]
        beyond = bounds._tail(values, np.array([[size * 3.0]]), np.zeros((1, 1)))[0, 0]
        assert bool(beyond < TAIL) is extrapolated
    counts = np.array([[3.0, 25.0]])
    few = np.arange(30, dtype=np.float64)[None]
    assert bounds._tail(few, np.array([[27.0, 5.0]]), counts).tolist() == [[TAIL, 25.0]]
