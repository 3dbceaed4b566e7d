"""Noised numbers and words: right on average, and one unit cannot be told from its absence."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from capelet.errors import DataError
from capelet.language.counts import (
    count_bound,
    noisy_count,
    noisy_words,
    words_of_authors,
    words_of_texts,
)
from capelet.privacy.guarantees import gaussian_sigma


@pytest.mark.parametrize("seed", [None, 3])
def test_a_count_has_discrete_laplace_noise(seed: int | None) -> None:
    random = None if seed is None else np.random.default_rng(seed)
    draws = np.array([noisy_count(10_000, 0.5, random) for _ in range(4000)]) - 10_000
    decay = math.exp(-0.5)
    variance = 2 * decay / (1 - decay) ** 2
    assert abs(draws.mean()) < 5 * math.sqrt(variance / 4000)
    assert 0.8 < draws.var() / variance < 1.25
    # P(0) = (1 − e^−ε)/(1 + e^−ε).
    assert abs((draws == 0).mean() - (1 - decay) / (1 + decay)) < 0.04


def test_one_unit_more_changes_no_probability_by_more_than_epsilon() -> None:
    random = np.random.default_rng(0)
    size, epsilon = 40_000, 0.5
    draws = [np.array([noisy_count(n, epsilon, random) for _ in range(size)]) for n in (100, 101)]
    for value in range(97, 105):
        first, second = ((draw == value).mean() for draw in draws)
        assert abs(math.log(first / second)) < epsilon + 0.15


def test_a_count_is_at_least_one_and_its_bound_holds() -> None:
    random = np.random.default_rng(1)
    draws = [noisy_count(1, 0.05, random) for _ in range(300)]
    assert min(draws) == 1
    counts = [noisy_count(500, 0.05, random) for _ in range(2000)]
    assert min(counts) < 500  # the control: the count itself is no bound
    assert all(count_bound(count, 0.05) >= 500 for count in counts)


def test_a_word_of_one_unit_passes_the_threshold_with_probability_delta_at_most() -> None:
    """At a large δ it can be seen: k words of count 1 against δ/2."""
    random = np.random.default_rng(2)
    common, own = {"oak"}, {f"word{i}" for i in range(10)}
    epsilon, delta, most, passes = 1.0, 0.4, 10, 0
    for _ in range(3000):
        words = noisy_words([common] * 4000 + [own], most, epsilon, delta, random)
        assert "oak" in words  # the control
        passes += any(word != "oak" for word in words)
    assert passes / 3000 <= delta / 2 + 3 * math.sqrt(0.2 * 0.8 / 3000)
    assert passes  # the bound is not slack: such words do pass at this δ


def test_frequent_words_pass_and_come_first() -> None:
    units = [{"oak", "elm"} if i % 2 else {"oak", f"rare{i}"} for i in range(4000)]
    for random in (None, np.random.default_rng(0)):
        assert noisy_words(units, 2, 1.0, 1e-6, random) == ("oak", "elm")
    sigma = gaussian_sigma(1.0, 5e-7, math.sqrt(2))
    least = 1 + sigma * NormalDist().inv_cdf(1 - 5e-7 / 2)
    assert 30 < least < 60  # what "enough" is here
    with pytest.raises(DataError, match="often enough"):
        noisy_words(units[:10], 2, 1.0, 1e-6)


def test_a_unit_with_more_words_than_are_paid_for_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 2 are paid for"):
        noisy_words([{"a", "b", "c"}], 2, 1.0, 1e-6)


def test_the_words_of_an_author_depend_on_that_author_alone() -> None:
    texts = ["oak elm oak ash", "oak fir", "yew yew box", "box"]
    authors = ["ann", "ann", "bob", "bob"]
    both = words_of_authors(texts, authors, length=3, most=2)
    assert [len(words) for words in both] == [2, 2]
    assert "oak" in both[0] and both[1] == {"yew", "box"}
    assert words_of_authors(texts[:2], authors[:2], length=3, most=2) == both[:1]
    assert words_of_texts(texts, 3)[0] == {"oak", "elm"}  # `ash` is beyond the length
