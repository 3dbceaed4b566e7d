"""The pooled attack: bags of a person's texts, poolings, calibrated certainty."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.attacks.attribute import OutOfFold
from capelet.attacks.people import (
    FEWEST_TEACHERS,
    MEAN,
    MOMENTS,
    MOST_BAGS,
    POOLINGS,
    VOTE,
    Bags,
    People,
    attack_people,
    calibrate,
    draw_bags,
    log_probabilities,
    null_guesses,
    own_bags,
)
from capelet.findings.metrics import balanced_accuracy

CLASSES = 2


def random_of(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---- bags ----------------------------------------------------------------------------------------


def test_a_bag_holds_texts_of_one_person_and_each_text_stands_in_one() -> None:
    authors = np.repeat([0, 1, 2], [7, 4, 12])
    bags = draw_bags(np.arange(23), authors, 3, random_of(), most=2)
    assert bags.sizes.tolist() == [3] * 5  # 7 // 3, 4 // 3, and two of the four of the last
    assert sorted(bags.authors.tolist()) == [0, 0, 1, 2, 2]
    assert len(set(bags.rows.tolist())) == 15
    for bag, author in zip(np.split(bags.rows, bags.starts[1:]), bags.authors, strict=True):
        assert set(authors[bag].tolist()) == {author}


def test_people_with_fewer_texts_have_no_bag_and_all_texts_are_one() -> None:
    authors = np.repeat([0, 1], [2, 5])
    assert draw_bags(np.arange(7), authors, 3, random_of()).authors.tolist() == [1]
    everything = draw_bags(np.arange(7), authors, None, random_of())
    assert everything.sizes.tolist() == [2, 5]
    assert len(draw_bags(np.arange(7), authors, 20, random_of())) == 0


def test_own_people_with_few_texts_teach_only_where_others_are_few() -> None:
    many = np.repeat(np.arange(2 * FEWEST_TEACHERS), [5, 2] * FEWEST_TEACHERS)
    bags = own_bags(np.arange(len(many)), many, 5, random_of())
    assert set(bags.sizes.tolist()) == {5} and len(bags) == FEWEST_TEACHERS
    few = np.repeat(np.arange(8), [50, 2] * 4)
    short = own_bags(np.arange(len(few)), few, 5, random_of())
    assert sorted(set(short.sizes.tolist())) == [2, 5]
    assert (short.sizes == 5).sum() == 4 * MOST_BAGS


def test_means_and_moments_are_those_of_each_bag() -> None:
    values = random_of().normal(size=(9, 3))
    bags = Bags(np.array([4, 2, 8, 0]), np.array([0, 3]), np.array([0, 1]))
    assert bags.mean(values) == pytest.approx(np.stack([values[[4, 2, 8]].mean(0), values[0]]))
    spread = np.stack([values[[4, 2, 8]].std(0), np.zeros(3)])
    assert bags.moments(values)[:, 3:] == pytest.approx(spread, abs=1e-7)


# ---- the attack ----------------------------------------------------------------------------------


def crowd(
    shift: float = 0.0, spread: float = 1.0, texts: int = 20, people: int = 300, seed: int = 1
) -> tuple[People, np.ndarray, np.ndarray, np.ndarray]:
    """People of two classes whose texts differ in their mean (`shift`) or deviation (`spread`)."""
    random = random_of(seed)
    kind = random.integers(0, 2, people)
    authors = np.repeat(np.arange(people), texts)
    vectors = random.normal(size=(len(authors), 6))
    vectors[:, 0] = vectors[:, 0] * np.where(kind[authors], spread, 1.0) + shift * kind[authors]
    own = np.flatnonzero(authors < people // 2)
    victims = np.flatnonzero(authors >= people // 2)
    sides = (draw_bags(rows, authors, texts, random) for rows in (own, victims))
    group = People(*sides, authors, seed)
    # The right attacker of single texts, where classes differ by their mean.
    odds = shift * (vectors[:, 0] - shift / 2)
    probabilities = 1 / (1 + np.exp(np.stack([odds, -odds], axis=1)))
    logs, _ = log_probabilities(len(authors), CLASSES, [(np.arange(len(authors)), probabilities)])
    return group, kind[group.bags.authors], vectors, logs


def accuracy(group: People, codes: np.ndarray, scores: np.ndarray) -> float:
    return balanced_accuracy(codes[len(group.own) :], scores.argmax(axis=1))


def test_what_is_weak_in_a_text_is_strong_in_a_person() -> None:
    group, codes, vectors, logs = crowd(shift=0.5)
    result = attack_people(group, codes, CLASSES, vectors, logs)
    assert set(result.best) == set(POOLINGS)
    single = (logs.argmax(axis=1) == np.repeat(codes, 20)).mean()
    assert single < 0.63  # Φ(.25) = .599
    for name, least in ((VOTE, 0.83), (MEAN, 0.8), (result.strongest, 0.8)):  # Φ(.25·√20) = .868
        assert accuracy(group, codes, result.best[name].scored) > least
        assert result.quality[name] > least - 0.03


def test_a_spread_that_no_mean_shows_is_found_by_moments() -> None:
    group, codes, vectors, logs = crowd(spread=2.0)
    result = attack_people(group, codes, CLASSES, vectors, logs)
    assert result.strongest == MOMENTS
    assert accuracy(group, codes, result.best[MOMENTS].scored) > 0.9
    assert accuracy(group, codes, result.best[MEAN].scored) < 0.65


def test_nothing_is_found_in_noise_nor_with_permuted_people() -> None:
    scores, nulls = [], []
    for seed in range(12):
        group, codes, vectors, logs = crowd(people=120, texts=5, seed=seed)
        # An attacker of single texts that knows nothing is not certain of anything either.
        logs = np.log(random_of(seed).dirichlet([5, 5], size=len(vectors)))
        result = attack_people(group, codes, CLASSES, vectors, logs)
        scores.append(accuracy(group, codes, result.best[result.strongest].scored))
        leaky, codes, vectors, logs = crowd(shift=1.0, people=120, texts=5, seed=seed)
        result = attack_people(leaky, codes, CLASSES, vectors, logs)
        assert accuracy(leaky, codes, result.best[result.strongest].scored) > 0.8
        random_codes = random_of(seed).permutation(codes)
        nulls.append(accuracy(leaky, random_codes, null_guesses(result, random_codes, CLASSES)))
    # 60 victims, twelve times: a standard error of .019.
    assert np.mean(scores) == pytest.approx(0.5, abs=0.06)
    assert np.mean(nulls) == pytest.approx(0.5, abs=0.06)


# ---- certainty -----------------------------------------------------------------------------------


def test_calibrated_probabilities_mean_what_they_say() -> None:
    random = random_of(3)
    truth = (random.random(20_000) < 0.3).astype(np.intp)
    # Twice too sure, and as if classes were equally frequent.
    odds = 2.0 * (random.normal(size=20_000) + truth - 0.5)
    loud = 1 / (1 + np.exp(np.stack([odds, -odds], axis=1)))
    own, others = np.arange(10_000), np.arange(10_000, 20_000)
    result = calibrate(OutOfFold(own, loud[own]), truth, loud[others])
    for scores, is_right in ((result, True), (loud[others], False)):
        sure = scores.max(axis=1) >= 0.9
        hits = (scores.argmax(axis=1) == truth[others])[sure].mean()
        gap = abs(hits - scores.max(axis=1)[sure].mean())
        assert bool(gap < 0.02) is is_right


def test_the_same_mean_of_many_texts_is_surer_than_of_one() -> None:
    random = random_of(4)
    truth = random.integers(0, 2, 8000)
    texts = np.where(random.random(8000) < 0.5, 1, 16)
    odds = random.normal(size=8000) / np.sqrt(texts) + (truth - 0.5)
    mean = 1 / (1 + np.exp(np.stack([odds, -odds], axis=1)))
    own, others = np.arange(4000), np.arange(4000, 8000)
    result = calibrate(OutOfFold(own, mean[own]), truth, mean[others], texts)
    sure = result.max(axis=1) >= 0.95
    assert (result.argmax(axis=1) == truth[others])[sure].mean() > 0.95
    assert sure[texts[others] == 16].mean() > 0.5 > 0.1 > sure[texts[others] == 1].mean()
    # Who forgets how many they are is as sure of one text as of sixteen.
    forgetful = calibrate(OutOfFold(own, mean[own]), truth, mean[others])
    wrong = (forgetful.max(axis=1) >= 0.95) & (texts[others] == 1)
    assert (forgetful.argmax(axis=1) == truth[others])[wrong].mean() < 0.9


def test_one_class_alone_is_named_for_certain() -> None:
    result = calibrate(OutOfFold(np.arange(2), np.full((2, 2), 0.5)), np.array([1, 1]), np.eye(2))
    assert result.tolist() == [[0, 1], [0, 1]]
