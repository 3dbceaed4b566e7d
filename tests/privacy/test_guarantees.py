"""Guarantees add up as they should, refuse what does not add up, and bound what they say."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq, linprog

from capelet.errors import CapeletError
from capelet.privacy.guarantees import (
    NONE,
    Guarantee,
    ceiling,
    ceiling_advantage,
    ceiling_auc,
    ceiling_balanced,
    ceiling_top,
    chain,
    check_count,
    check_number,
    compose,
    epsilon_for,
    gaussian_delta,
    gaussian_sigma,
    laplace_scale,
    least_epsilon,
    link_releases,
    parallel,
    whole_text,
)

BAD = [0, -1.0, math.nan, math.inf, -math.inf, "1", True, None, [1.0], np.bool_(True)]
SKEWED = [0.744, 0.15, 0.05, 0.03, 0.026]


@pytest.mark.parametrize("value", BAD, ids=repr)
def test_a_bad_epsilon_is_refused_with_what_was_found(value: object) -> None:
    with pytest.raises(CapeletError, match="epsilon is"):
        Guarantee(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1e-9, 1.5, math.nan, math.inf, "0", False, None], ids=repr)
def test_a_bad_delta_is_refused_with_what_was_found(value: object) -> None:
    with pytest.raises(CapeletError, match="delta is"):
        Guarantee(1.0, delta=value)  # type: ignore[arg-type]


def test_the_ends_of_a_range_belong_to_it_unless_it_is_open_below() -> None:
    assert check_number("x", 1, 1.0, 2.0) == 1.0 and check_number("x", 2.0, 1.0, 2.0) == 2.0
    assert check_number("x", 1.0 + 1e-9, 1.0, 2.0, open_low=True) == 1.0 + 1e-9
    assert isinstance(check_number("x", np.int64(2), 1.0, 2.0), float)
    with pytest.raises(CapeletError, match=r"x is 1\.0; .* more than 1 and at most 2"):
        check_number("x", 1.0, 1.0, 2.0, open_low=True)
    with pytest.raises(CapeletError, match=r"x is 0\.9; .* at least 1 and at most 2"):
        check_number("x", 0.9, 1.0, 2.0)
    with pytest.raises(CapeletError, match=r"x is 2\.1"):
        check_number("x", 2.1, 1.0, 2.0)
    with pytest.raises(CapeletError, match="at least 0 and finite"):
        check_number("x", math.inf, 0.0, 1e300)


def test_a_count_is_a_whole_number_from_its_least_on() -> None:
    assert check_count("n", 1) == 1 and check_count("n", np.int32(5), least=5) == 5
    for value, least in ((0, 1), (4, 5), (1.0, 1), (True, 1), ("1", 1), (None, 1)):
        with pytest.raises(CapeletError, match=f"n is .*at least {least}"):
            check_count("n", value, least)


def test_the_ends_of_epsilon_and_delta_are_allowed() -> None:
    assert Guarantee(np.finfo(float).max, 1.0).delta == 1.0
    assert Guarantee(5e-324).epsilon > 0
    assert Guarantee(2).epsilon == 2.0 and isinstance(Guarantee(2).epsilon, float)


def test_numpy_numbers_are_numbers() -> None:
    assert Guarantee(np.float32(2.0), delta=np.float64(0.0)) == Guarantee(2.0)  # type: ignore[arg-type]


def test_sentences_name_all_that_matters() -> None:
    metric = Guarantee(20, notion="metric", unit="word", metric="euclidean")
    assert "per unit of euclidean distance for each word" in metric.sentence()
    central = Guarantee(1, 1e-5, "central", "record", neighbours="add-remove")
    assert "under add-remove neighbours" in central.sentence()
    assert "(proven; in theory)" in Guarantee(1, caveat="in theory").sentence()
    assert NONE.sentence().startswith("no guarantee")
    plain = "2-local differential privacy for each text (proven)"
    assert Guarantee(2.0).sentence() == plain
    assert Guarantee(2.0, 1e-5).sentence() == plain.replace("2-", "(2, 1e-05)-")


# ---- composition ---------------------------------------------------------------------------------


def test_releases_about_one_person_add_and_about_several_take_the_largest() -> None:
    parts = [Guarantee(1.0, 1e-6), Guarantee(2.0, 1e-7, status="claimed")]
    together = compose(parts)
    assert (together.epsilon, together.delta) == (3.0, pytest.approx(1.1e-6))
    assert together.status == "claimed"
    assert parallel(parts).epsilon == 2.0
    assert parallel(parts).delta == 1e-6
    assert link_releases(Guarantee(0.5), 4).epsilon == 2.0


def test_one_release_without_a_guarantee_leaves_none() -> None:
    assert compose([Guarantee(1.0), NONE]) == NONE == parallel([NONE]) == compose([])


def test_a_broken_part_breaks_the_whole() -> None:
    assert compose([Guarantee(1.0), Guarantee(1.0, status="broken")]).status == "broken"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Guarantee(1), Guarantee(1, unit="word")),
        (Guarantee(1), Guarantee(1, notion="central", unit="record", neighbours="replace")),
        (
            Guarantee(1, notion="metric", metric="euclidean"),
            Guarantee(1, notion="metric", metric="mahalanobis"),
        ),
        (
            Guarantee(1, notion="central", unit="record", neighbours="replace"),
            Guarantee(1, notion="central", unit="record", neighbours="add-remove"),
        ),
        (Guarantee(1, notion="metric"), Guarantee(1, notion="metric")),
        (Guarantee(1, notion="central"), Guarantee(1, notion="central")),
    ],
)
def test_unlike_things_do_not_add_up(one: Guarantee, other: Guarantee) -> None:
    for rule in (compose, parallel):
        with pytest.raises(CapeletError, match="add up"):
            rule([one, other])


def test_a_text_covers_its_words_but_not_the_other_way_round() -> None:
    text, word = Guarantee(2.0), Guarantee(1.0, unit="word")
    assert compose([text.for_unit("word"), word]) == Guarantee(3.0, unit="word")
    with pytest.raises(CapeletError, match="coarser unit"):
        word.for_unit("text")
    with pytest.raises(CapeletError, match="coarser unit"):
        text.for_unit("record")


def test_m_words_cost_m_epsilon_and_delta_grows_as_group_privacy_demands() -> None:
    word = Guarantee(0.5, 1e-6, unit="word")
    three = word.for_words(3)
    assert three.epsilon == 1.5
    assert three.delta == pytest.approx(1e-6 * (1 + math.exp(0.5) + math.exp(1.0)))
    assert three.unit == "text"
    with pytest.raises(CapeletError, match="unit 'word'"):
        Guarantee(1.0).for_words(3)


def test_in_a_chain_the_strongest_holds() -> None:
    assert chain([Guarantee(3.0), Guarantee(1.0), NONE]).epsilon == 1.0
    assert chain([NONE]) == NONE
    word = Guarantee(0.1, notion="metric", unit="word", metric="euclidean")
    assert chain([word, Guarantee(8.0)]) == Guarantee(8.0)
    assert chain([Guarantee(1.0, status="broken"), Guarantee(9.0)]).epsilon == 9.0


def test_delta_never_passes_one() -> None:
    assert compose([Guarantee(1.0, 0.7), Guarantee(1.0, 0.6)]).delta == 1.0
    assert parallel([Guarantee(1.0, 0.7), Guarantee(1.0, 0.6)]).delta == 0.7
    assert Guarantee(5.0, 0.1, unit="word").for_words(3).delta == 1.0
    assert Guarantee(5.0, unit="word").for_words(3).delta == 0.0
    # e^(count·ε) alone would overflow.
    assert Guarantee(500.0, 1e-300, unit="word").for_words(4).delta == 1.0


def test_one_word_costs_what_one_word_costs() -> None:
    word = Guarantee(0.5, 1e-6, unit="word")
    assert word.for_words(1) == Guarantee(0.5, 1e-6)
    for count in (0, -1, 1.5, True):
        with pytest.raises(CapeletError, match="count is"):
            word.for_words(count)  # type: ignore[arg-type]
    metric = Guarantee(1.0, notion="metric", unit="word", metric="L2")
    with pytest.raises(CapeletError, match="unit 'word'"):
        metric.for_words(2)


def test_only_local_guarantees_cover_finer_units() -> None:
    metric = Guarantee(1.0, notion="metric", metric="L2")
    assert metric.for_unit("text") == metric  # its own unit it covers, of course
    with pytest.raises(CapeletError, match="coarser unit"):
        metric.for_unit("word")
    with pytest.raises(CapeletError, match="coarser unit"):
        Guarantee(1.0, notion="central", unit="record", neighbours="replace").for_unit("word")


def test_caveats_are_joined_once_each() -> None:
    parts = [Guarantee(1.0, caveat="a"), Guarantee(1.0), Guarantee(1.0, caveat="b")]
    assert compose([*parts, parts[0]]).caveat == "a; b"
    assert parallel(parts[1:]).caveat == "b"


def test_one_part_alone_needs_no_metric_and_no_neighbours() -> None:
    for alone in (Guarantee(1.0, notion="metric"), Guarantee(1.0, notion="central")):
        assert compose([alone]) == alone == parallel([alone])
        with pytest.raises(CapeletError, match="add up only when they name one"):
            link_releases(alone, 2)
    named = Guarantee(1.0, notion="metric", metric="L2")
    assert link_releases(named, 3).epsilon == 3.0
    with pytest.raises(CapeletError, match="releases is 0"):
        link_releases(named, 0)


def test_what_counts_first_in_a_chain() -> None:
    """Status before notion before unit before ε before δ."""
    order = [
        Guarantee(1.0, 1e-6),
        Guarantee(1.0, 1e-5),
        Guarantee(2.0),
        Guarantee(1.0, unit="word"),
        Guarantee(0.5, notion="central", unit="record", neighbours="replace"),
        Guarantee(0.1, notion="metric", unit="word", metric="L2"),
        Guarantee(0.1, status="claimed"),
        Guarantee(0.01, status="broken"),
    ]
    for place in range(len(order)):
        rest = order[place:]
        assert chain(rest) == chain(rest[::-1]) == order[place]


# ---- ceilings ------------------------------------------------------------------------------------


def best_accuracy(prior: list[float], epsilon: float, delta: float) -> float:
    """The best expected score of a guess, by linear programming over all channels to guesses."""
    k = len(prior)
    cost = -np.array([prior[z] if z == g else 0.0 for z in range(k) for g in range(k)])
    rows, bounds = [], []
    sets = [s for size in range(1, k) for s in itertools.combinations(range(k), size)]
    events = sets if delta else [(g,) for g in range(k)]
    for one, other in itertools.permutations(range(k), 2):
        for event in events:
            row = np.zeros((k, k))
            row[one, list(event)] = 1.0
            row[other, list(event)] -= math.exp(epsilon)
            rows.append(row.ravel())
            bounds.append(delta)
    sums = np.kron(np.eye(k), np.ones(k))
    found = linprog(cost, np.array(rows), bounds, sums, np.ones(k), method="highs")
    return -float(found.fun)


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.2])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(
    "prior", [[0.5, 0.5], [0.9, 0.1], [0.6, 0.3, 0.1], [0.25] * 4, [0.4, 0.3, 0.2, 0.1]]
)
def test_the_ceiling_is_the_optimum_of_the_linear_programme(
    prior: list[float], epsilon: float, delta: float
) -> None:
    stated = ceiling(prior, Guarantee(epsilon, delta))
    assert stated == pytest.approx(best_accuracy(prior, epsilon, delta), abs=1e-7)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=5), st.floats(0.05, 6.0))
def test_the_ceiling_is_the_optimum_for_any_prior(counts: list[int], epsilon: float) -> None:
    prior = [count / sum(counts) for count in counts]
    stated = ceiling(prior, Guarantee(epsilon))
    assert stated == pytest.approx(best_accuracy(prior, epsilon, 0.0), abs=1e-7)


def test_the_check_values_of_the_ceiling() -> None:
    for epsilon, wanted in ((0.1, 0.744), (1.0, 0.744), (2.0, 0.787), (4.0, 0.932)):
        assert ceiling(SKEWED, Guarantee(epsilon)) == pytest.approx(wanted, abs=6e-4)
    for epsilon, wanted in ((1.0, 0.232), (2.0, 0.451), (4.0, 0.858)):
        assert ceiling_balanced(10, Guarantee(epsilon)) == pytest.approx(wanted, abs=6e-4)
    assert ceiling(SKEWED, Guarantee(5000.0)) == pytest.approx(1.0)


def test_the_ceilings_of_auc_advantage_and_top_n() -> None:
    local, loose = Guarantee(1.0), Guarantee(1.0, 0.01)
    e = math.e
    assert ceiling_auc(local) == pytest.approx(e / (1 + e))
    assert ceiling_auc(loose) == pytest.approx(1 - 0.99**2 / (1 + e))
    assert ceiling_auc(Guarantee(5000.0)) == 1.0
    assert ceiling_advantage(loose) == pytest.approx((e - 1 + 0.02) / (e + 1))
    # Advantage and two-class accuracy are the same bound.
    two = ceiling([0.5, 0.5], loose)
    assert two is not None
    assert ceiling_advantage(loose) == pytest.approx(2 * two - 1)
    assert ceiling_top(1, 10, local) == pytest.approx(ceiling_balanced(10, local))
    assert ceiling_top(5, 100, local) == pytest.approx(5 * e / (5 * e + 95))
    assert ceiling_top(12, 10, local) == 1.0


def test_no_ceiling_without_a_proven_local_guarantee_for_texts() -> None:
    word = Guarantee(0.5, unit="word")
    metric = Guarantee(0.5, notion="metric", unit="word", metric="euclidean")
    for other in (NONE, Guarantee(1.0, status="broken"), word, metric):
        assert ceiling(SKEWED, other) is None
        assert ceiling_auc(other) is None
        assert ceiling_advantage(other) is None
        assert ceiling_top(1, 3, other) is None
    assert whole_text(word, words=4) == Guarantee(2.0)
    assert whole_text(metric, diameter=6.0) == Guarantee(3.0)
    assert whole_text(metric) is None


def best_auc(epsilon: float, delta: float) -> float:
    """The area under the largest ROC curve that (ε, δ) permits, point by point."""
    false = np.linspace(0.0, 1.0, 200_001)
    upper = np.minimum(delta + math.exp(epsilon) * false, 1.0)
    lower = 1.0 - math.exp(-epsilon) * (1.0 - delta - false)
    true = np.clip(np.minimum(upper, lower), 0.0, 1.0)
    return float(np.trapezoid(true, false))


@pytest.mark.parametrize("delta", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_ceiling_of_auc_is_the_area_under_the_trade_off_curve(
    epsilon: float, delta: float
) -> None:
    stated = ceiling_auc(Guarantee(epsilon, delta))
    assert stated == pytest.approx(best_auc(epsilon, delta), abs=1e-6)
    advantage = ceiling_advantage(Guarantee(epsilon, delta))
    false = np.linspace(0.0, 1.0, 100_001)
    gaps = np.minimum(delta + math.exp(epsilon) * false, 1) - false
    gaps = np.minimum(gaps, 1 - math.exp(-epsilon) * (1 - delta - false) - false)
    assert advantage == pytest.approx(float(gaps.max()), abs=1e-4)


def test_no_guess_of_no_class_is_refused() -> None:
    for arguments in ((0, 3), (1, 0)):
        with pytest.raises(CapeletError, match="at least 1"):
            ceiling_top(*arguments, Guarantee(1.0))


def test_what_a_guarantee_implies_for_a_whole_text() -> None:
    word = Guarantee(0.5, unit="word", caveat="c")
    assert whole_text(word) is None
    # What hides all texts of an author hides each of them.
    assert whole_text(Guarantee(0.5, unit="author")) == Guarantee(0.5)
    assert whole_text(word, words=1) == Guarantee(0.5, caveat="c")
    metric = Guarantee(0.5, notion="metric", unit="word", metric="L2", caveat="c")
    assert whole_text(metric, diameter=0.25) == Guarantee(0.125, caveat="c")
    assert whole_text(metric, words=3) is None
    loose = Guarantee(0.5, 1e-6, notion="metric", unit="word", metric="L2")
    assert whole_text(loose, diameter=2.0) is None  # how δ grows with the distance is not known
    central = Guarantee(0.5, notion="central", unit="record", neighbours="replace")
    assert whole_text(central, words=3, diameter=1.0) is None
    for status in ("claimed", "broken"):
        assert whole_text(Guarantee(0.5, status=status)) is None  # type: ignore[arg-type]
    with pytest.raises(CapeletError, match="diameter is 0"):
        whole_text(metric, diameter=0.0)
    with pytest.raises(CapeletError, match="classes is 0"):
        ceiling_balanced(0, Guarantee(1.0))


def test_shares_of_a_prior_may_miss_one_by_rounding_but_not_by_more() -> None:
    assert ceiling([0.5, 0.5 + 5e-7], Guarantee(1.0)) == pytest.approx(math.e / (1 + math.e), 1e-5)
    for off in (2e-6, -2e-6):
        with pytest.raises(CapeletError, match="must add up to 1; they add up to"):
            ceiling([0.5, 0.5 + off], Guarantee(1.0))
    assert ceiling([1.0, 0.0], Guarantee(1.0)) == 1.0  # an empty class is a class


@pytest.mark.parametrize("prior", [[], [0.5, 0.6], [1.5, -0.5], [math.nan, 1.0]], ids=repr)
def test_what_is_no_prior_is_refused(prior: list[float]) -> None:
    with pytest.raises(CapeletError, match="prior"):
        ceiling(prior, Guarantee(1.0))


# ---- calibration ---------------------------------------------------------------------------------


def test_the_least_epsilon_that_can_beat_the_majority() -> None:
    least = least_epsilon(SKEWED)
    assert ceiling(SKEWED, Guarantee(least)) == pytest.approx(0.744)
    assert ceiling(SKEWED, Guarantee(least * 1.01)) > 0.7441  # type: ignore[operator]
    assert least_epsilon([0.525, 0.475]) == pytest.approx(0.1, abs=1e-3)
    assert least_epsilon([1.0]) == math.inf


@pytest.mark.parametrize("accuracy", [0.75, 0.8, 0.9, 0.99])
def test_epsilon_for_inverts_the_ceiling(accuracy: float) -> None:
    epsilon = epsilon_for(SKEWED, accuracy)
    assert ceiling(SKEWED, Guarantee(epsilon)) == pytest.approx(accuracy)
    assert epsilon_for(SKEWED, 0.7) == 0.0
    assert epsilon_for(SKEWED, 1.0) == math.inf


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_sigma_gives_the_delta_asked_for_and_not_less_noise(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta, sensitivity=3.0)
    reached = gaussian_delta(sigma, epsilon, sensitivity=3.0)
    assert reached <= delta
    assert reached == pytest.approx(delta, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("delta", [0.02, 0.2])
def test_sigma_is_the_root_rounded_up_by_a_billionth(epsilon: float, delta: float) -> None:
    def excess(sigma: float) -> float:
        gap = 1 / (2 * sigma)
        one, other = stats.norm.cdf([gap - epsilon * sigma, -gap - epsilon * sigma])
        return float(one - math.exp(epsilon) * other - delta)

    root = brentq(excess, 0.05, 50.0, xtol=1e-14, rtol=1e-14)
    for sensitivity in (1.0, 0.25):
        sigma = gaussian_sigma(epsilon, delta, sensitivity)
        assert 0.9e-9 < sigma / (root * sensitivity) - 1 < 1.1e-9
    for bad in BAD:
        with pytest.raises(CapeletError, match="sensitivity is"):
            gaussian_sigma(epsilon, delta, bad)  # type: ignore[arg-type]
        with pytest.raises(CapeletError, match="sensitivity is"):
            laplace_scale(epsilon, bad)  # type: ignore[arg-type]


def test_the_least_and_the_largest_target() -> None:
    assert gaussian_sigma(1.0, 1 - 2.0**-53) < 0.2
    assert gaussian_sigma(0.01, 1e-300) > 100
    with pytest.raises(CapeletError, match=r"delta is 1\.0"):
        gaussian_sigma(1.0, 1.0)
    assert laplace_scale(0.5, sensitivity=0.25) == 0.5
    assert epsilon_for([0.6, 0.4], 0.6) == 0.0 and epsilon_for([0.6, 0.4], 0.0) == 0.0
    assert epsilon_for([0.5, 0.5], 1.0) == math.inf
    assert epsilon_for([0.5, 0.3, 0.2], 0.5 + 1e-12) == pytest.approx(math.log(5 / 3), abs=1e-9)
    assert least_epsilon([1.0, 0.0]) == math.inf and least_epsilon([0.5, 0.5]) == 0.0
    with pytest.raises(CapeletError, match=r"accuracy is 1\.1"):
        epsilon_for([0.5, 0.5], 1.1)


def test_delta_agrees_with_the_integral_it_stands_for() -> None:
    sigma, epsilon = 1.3, 0.7
    x = np.linspace(-15, 16, 2_000_001)
    density = np.exp(-(x**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
    shifted = np.exp(-((x - 1) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
    excess = np.maximum(density - math.exp(epsilon) * shifted, 0).sum() * (x[1] - x[0])
    assert gaussian_delta(sigma, epsilon) == pytest.approx(float(excess), rel=1e-6)


def test_laplace_scale_and_bad_targets() -> None:
    assert laplace_scale(8.0) == 0.25
    for value in BAD:
        with pytest.raises(CapeletError, match="epsilon is"):
            laplace_scale(value)  # type: ignore[arg-type]
        with pytest.raises(CapeletError, match="delta is"):
            gaussian_sigma(1.0, value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "guarantee",
    [
        Guarantee(2.0, 1e-6, caveat="on a grid"),
        NONE,
        Guarantee(2.0, training=NONE),
        Guarantee(2.0, training=Guarantee(4.0, 1e-6, "central", "author", neighbours="replace")),
    ],
)
def test_a_guarantee_comes_back_from_json_as_it_was(guarantee: Guarantee) -> None:
    content = json.loads(json.dumps(guarantee.to_json(), allow_nan=False))
    assert Guarantee.from_json(content) == guarantee
    for name in content:  # one that lacks a field is none
        with pytest.raises(CapeletError, match="is not a guarantee"):
            Guarantee.from_json({key: value for key, value in content.items() if key != name})


def test_texts_that_trained_are_told_from_texts_that_pass() -> None:
    trained = Guarantee(4.0, 1e-6, "central", "author", neighbours="replace")
    sentence = Guarantee(2.0, training=trained).sentence()
    assert "for each text that passes" in sentence and "training texts: (4, 1e-06)" in sentence
    assert "training" not in Guarantee(2.0).sentence()


def test_two_trainings_add_up_and_one_without_a_promise_leaves_none() -> None:
    trained = Guarantee(4.0, 1e-6, "central", "text", neighbours="replace")
    both = compose([Guarantee(1.0, training=trained), Guarantee(2.0, training=trained)])
    assert both.epsilon == 3.0 and both.training is not None and both.training.epsilon == 8.0
    none = compose([Guarantee(1.0, training=trained), Guarantee(2.0, training=NONE)])
    assert none.training == NONE and compose([Guarantee(1.0), Guarantee(2.0)]).training is None
