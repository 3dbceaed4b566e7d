"""Texts of one person: exact against brute force, above every vote, below the plain sum."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from capelet.errors import CapeletError
from capelet.mechanisms import Gaussian, RandomisedResponse
from capelet.privacy.composition import (
    MOST_TEXTS,
    Bound,
    Normal,
    Response,
    for_author,
    median_and_most,
    person_ceiling,
)
from capelet.privacy.guarantees import (
    NONE,
    Guarantee,
    ceiling,
    ceiling_auc,
    ceiling_balanced,
    ceiling_top,
    gaussian_sigma,
    link_releases,
)


def balanced(classes: int) -> Bound:
    return lambda guarantee: ceiling_balanced(classes, guarantee)


def by_prior(*prior: float) -> Bound:
    return lambda guarantee: ceiling(prior, guarantee)


def response_law(epsilon: float, symbols: int) -> np.ndarray:
    """P(symbol | secret), secrets 0 and 1 among so many symbols."""
    law = np.ones((2, symbols))
    law[0, 0] = law[1, 1] = math.exp(epsilon)
    return law / law.sum(axis=1, keepdims=True)


def best_reader(law: np.ndarray, texts: int, prior: tuple[float, float]) -> float:
    """Bayes's rule on all sequences of outputs, one by one."""
    total = 0.0
    for outputs in itertools.product(range(law.shape[1]), repeat=texts):
        joint = [
            share * math.prod(row[o] for o in outputs)
            for share, row in zip(prior, law, strict=True)
        ]
        total += max(joint)
    return total


@pytest.mark.parametrize("prior", [(0.5, 0.5), (0.7, 0.3), (0.9, 0.1)])
@pytest.mark.parametrize(("symbols", "texts"), [(2, 1), (2, 3), (2, 8), (3, 2), (3, 5), (5, 4)])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_two_secrets_behind_randomised_response_are_exact(
    epsilon: float, symbols: int, texts: int, prior: tuple[float, float]
) -> None:
    noise = Response(epsilon, symbols=symbols)
    stated = person_ceiling(by_prior(*prior), Guarantee(epsilon), texts, [noise])
    exact = best_reader(response_law(epsilon, symbols), texts, prior)
    assert stated == pytest.approx(exact, abs=1e-7)


def test_it_is_half_of_one_plus_the_total_variation_of_two_multinomials() -> None:
    epsilon, symbols, texts = 0.8, 4, 6
    law = response_law(epsilon, symbols)
    variation = 0.0
    for counts in itertools.product(range(texts + 1), repeat=symbols):
        if sum(counts) == texts:
            ways = math.factorial(texts) / math.prod(math.factorial(c) for c in counts)
            one, two = (ways * math.prod(row**counts) for row in law)
            variation += abs(one - two) / 2
    noise = Response(epsilon, symbols=symbols)
    assert noise.delta(0.0, texts) == pytest.approx(variation, abs=1e-12)
    stated = person_ceiling(balanced(2), Guarantee(epsilon), texts, [noise])
    assert stated == pytest.approx((1 + variation) / 2, abs=1e-9)


def test_what_a_vote_over_twelve_texts_reached_is_permitted() -> None:
    """73 % from one text at ε = 1 was stated, and 95 % reached by a vote over 12 texts of each."""
    assert ceiling_balanced(2, Guarantee(1.0)) == pytest.approx(0.731, abs=1e-3)
    stated = person_ceiling(balanced(2), Guarantee(1.0), 12)
    assert stated == pytest.approx(0.952, abs=1e-3)


@pytest.mark.parametrize(("classes", "epsilon", "texts"), [(2, 1.0, 12), (4, 1.0, 7), (10, 2.0, 5)])
def test_no_vote_exceeds_it_and_for_two_classes_one_reaches_it(
    classes: int, epsilon: float, texts: int
) -> None:
    people = 20_000
    random = np.random.default_rng(0)
    secrets = random.integers(0, classes, people)
    step = RandomisedResponse(epsilon, classes)
    answers = step.labels(np.repeat(secrets, texts)).reshape(people, texts)
    votes = np.stack([(answers == c).sum(axis=1) for c in range(classes)], axis=1)
    guesses = (votes + random.random(votes.shape) / 2).argmax(axis=1)
    score = float((guesses == secrets).mean())
    stated = person_ceiling(balanced(classes), step.guarantee, texts, [step.noise])
    assert stated is not None
    slack = 3.5 * math.sqrt(stated * (1 - stated) / people)
    assert score <= stated + slack
    one = ceiling_balanced(classes, step.guarantee)
    assert (
        one is not None and score > one + 0.1
    )  # the ceiling of one text is no ceiling of a person
    if classes == 2:
        assert score == pytest.approx(stated, abs=slack)


def test_gaussian_noise_is_bounded_by_its_own_losses() -> None:
    """The best reader of r Gaussian releases of ±1: the sign of their mean."""
    step = Gaussian(epsilon=1.0, delta=1e-5)
    people, texts = 40_000, 30
    random = np.random.default_rng(1)
    signs = random.choice([-1.0, 1.0], people)
    means = signs + step.sigma / math.sqrt(texts) * random.normal(size=people)
    score = float((np.sign(means) == signs).mean())
    stated = person_ceiling(balanced(2), step.guarantee, texts, [step.noise])
    worst = person_ceiling(balanced(2), step.guarantee, texts)
    assert stated is not None and worst is not None
    assert score == pytest.approx(stated, abs=3.5 * math.sqrt(stated * (1 - stated) / people))
    # Φ(√r/σ) in closed form, and far below what the worst noise of that (ε, δ) permits.
    assert stated == pytest.approx(
        0.5 * (1 + math.erf(math.sqrt(texts / 2) / step.sigma)), abs=1e-6
    )
    assert stated < worst - 0.02


@pytest.mark.parametrize(
    "bound",
    [
        balanced(2),
        balanced(7),
        by_prior(0.6, 0.3, 0.1),
        ceiling_auc,
        lambda g: ceiling_top(3, 9, g),
    ],
)
@pytest.mark.parametrize("delta", [0.0, 1e-4, 0.02])
def test_it_lies_between_one_text_and_the_plain_sum_and_grows(bound: Bound, delta: float) -> None:
    guarantee = Guarantee(0.6, delta)
    scores = [person_ceiling(bound, guarantee, texts) for texts in (1, 2, 3, 5, 9, 20)]
    for texts, score in zip((1, 2, 3, 5, 9, 20), scores, strict=True):
        assert score is not None
        one, total = bound(guarantee), bound(link_releases(guarantee, texts))
        assert one is not None and total is not None
        assert one - 1e-9 <= score <= total + 1e-12
    assert all(less <= more + 1e-9 for less, more in itertools.pairwise(scores))  # type: ignore[operator]


def test_known_noise_never_states_more_than_unknown_noise() -> None:
    for symbols in (2, 3, 10):
        noise = Response(1.0, symbols=symbols)
        own_law = person_ceiling(balanced(4), Guarantee(1.0), 6, [noise])
        worst_law = person_ceiling(balanced(4), Guarantee(1.0), 6)
        assert own_law is not None and worst_law is not None
        assert own_law <= worst_law + 1e-12
    assert own_law < worst_law - 0.05


def test_the_curves_are_those_of_dp_accounting() -> None:
    """The oracle rounds losses up by its grid: it states a little more, never less."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    grid = 1e-4
    worst = pld.from_privacy_parameters(
        DifferentialPrivacyParameters(0.5, 1e-3), value_discretization_interval=grid
    )
    response = pld.from_randomized_response(
        5 / (math.exp(0.5) + 4), 5, value_discretization_interval=grid
    )
    normal = pld.from_gaussian_mechanism(2.0, value_discretization_interval=grid)
    for noise, oracle in (
        (Response(0.5, 1e-3), worst),
        (Response(0.5, symbols=5), response),
        (Normal(0.5), normal),
    ):
        for texts in (1, 4, 25):
            composed = oracle.self_compose(texts) if texts > 1 else oracle
            for epsilon in (0.0, 0.3, 1.0, 2.0):
                other = composed.get_delta_for_epsilon(epsilon)
                ours = noise.delta(epsilon, texts)
                assert ours <= other + 1e-9
                assert ours == pytest.approx(other, abs=texts * grid)


def test_no_ceiling_for_a_person_where_one_text_has_none() -> None:
    word = Guarantee(0.5, unit="word")
    for other in (NONE, Guarantee(1.0, status="broken"), Guarantee(1.0, status="claimed"), word):
        assert person_ceiling(balanced(2), other, 12) is None
    with pytest.raises(CapeletError, match="texts is 0"):
        person_ceiling(balanced(2), Guarantee(1.0), 0)


def test_an_author_guarantee_counts_once_however_many_texts_there_are() -> None:
    author = Guarantee(1.0, unit="author")
    assert person_ceiling(balanced(2), author, 500) == ceiling_balanced(2, Guarantee(1.0))
    assert for_author(author, 500) == author


def test_many_texts_are_fast_and_very_many_have_the_plain_sum() -> None:
    stated = person_ceiling(balanced(2), Guarantee(0.01), MOST_TEXTS)
    # √r·ε = 1: the total variation is that of two normals about one deviation apart.
    assert stated == pytest.approx(0.5 * (1 + math.erf(0.5 / math.sqrt(2))), abs=2e-3)
    beyond = person_ceiling(balanced(2), Guarantee(1e-4), MOST_TEXTS + 1)
    assert beyond == ceiling_balanced(2, Guarantee(1e-4 * (MOST_TEXTS + 1)))


# ---- authors -------------------------------------------------------------------------------------


def test_texts_of_an_author_add_up_to_a_guarantee_for_authors() -> None:
    total = for_author(Guarantee(0.5, 1e-6, caveat="c"), 12)
    assert (total.epsilon, total.delta, total.unit) == (6.0, pytest.approx(1.2e-5), "author")
    assert total.caveat == "c; authors of at most 12 texts"
    assert "for each author" in total.sentence()


def test_with_a_delta_the_author_has_a_smaller_epsilon() -> None:
    """The least ε' of the curve; for Gaussian noise it is that of one with √r the sensitivity."""
    tight = for_author(Guarantee(0.25), 80, delta=1e-6)
    assert tight.epsilon < 0.65 * 20.0 and tight.delta == 1e-6
    noise = Response(0.25)
    assert noise.delta(tight.epsilon, 80) <= 1e-6 < noise.delta(0.999 * tight.epsilon, 80)
    step = Gaussian(epsilon=0.5, delta=1e-6)
    own = for_author(step.guarantee, 20, 1e-5, [step.noise])
    assert gaussian_sigma(own.epsilon, 1e-5, 2 * math.sqrt(20)) == pytest.approx(
        step.sigma, rel=1e-6
    )
    # Nothing is private at a δ below the one that each text may lose.
    with pytest.raises(CapeletError, match="at least 2e-05"):
        for_author(Guarantee(1.0, 1e-6), 20, delta=1e-9)


@pytest.mark.parametrize(
    "guarantee",
    [
        NONE,
        Guarantee(1.0, unit="word"),
        Guarantee(1.0, notion="metric", unit="word", metric="euclidean"),
        Guarantee(1.0, 1e-6, "central", "record", neighbours="add-remove"),
    ],
    ids=lambda item: f"{item.notion} {item.unit}",
)
def test_other_guarantees_do_not_add_up_over_an_author(guarantee: Guarantee) -> None:
    with pytest.raises(CapeletError, match="does not add up over the texts of an author"):
        for_author(guarantee, 3)


def test_the_median_person_is_a_person() -> None:
    assert median_and_most([3]) == {"median": 3, "most": 3}
    assert median_and_most([1, 2]) == {"median": 2, "most": 2}
    assert median_and_most([5, 1, 9]) == {"median": 5, "most": 9}
