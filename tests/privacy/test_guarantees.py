"""Guarantees add up as they should, refuse what does not add up, and bound what they say."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

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
    compose,
    epsilon_for,
    gaussian_delta,
    gaussian_sigma,
    laplace_scale,
    least_epsilon,
    linked,
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


def test_numpy_numbers_are_numbers() -> None:
    assert Guarantee(np.float32(2.0), delta=np.float64(0.0)) == Guarantee(2.0)  # type: ignore[arg-type]


def test_sentences_name_all_that_matters() -> None:
    metric = Guarantee(20, notion="metric", unit="word", metric="euclidean")
    assert "per unit of euclidean distance for each word" in metric.sentence()
    central = Guarantee(1, 1e-5, "central", "record", neighbours="add-remove")
    assert "under add-remove neighbours" in central.sentence()
    assert "(proven; in theory)" in Guarantee(1, caveat="in theory").sentence()
    assert NONE.sentence().startswith("no guarantee")


# ---- composition ---------------------------------------------------------------------------------


def test_releases_about_one_person_add_and_about_several_take_the_largest() -> None:
    parts = [Guarantee(1.0, 1e-6), Guarantee(2.0, 1e-7, status="claimed")]
    together = compose(parts)
    assert (together.epsilon, together.delta) == (3.0, pytest.approx(1.1e-6))
    assert together.status == "claimed"
    assert parallel(parts).epsilon == 2.0
    assert parallel(parts).delta == 1e-6
    assert linked(Guarantee(0.5), 4).epsilon == 2.0


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
