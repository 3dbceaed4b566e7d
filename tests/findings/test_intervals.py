"""Intervals cover, are wider where authors agree with themselves, and follow one rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import capelet
from capelet.findings import intervals
from capelet.findings.intervals import (
    Bootstrap,
    Score,
    group_weights,
    largest_difference,
    mean_of,
    mean_over_seeds,
    normal_mean,
    percentile,
    share_interval,
    simultaneous,
    weighted_means,
)
from capelet.findings.metrics import Guesses, score


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """200 samples of a guesser that is right in 70 % of the cases."""
    random = np.random.default_rng(0)
    inside = 0
    for seed in range(200):
        truth = random.integers(0, 2, 150)
        right = random.random(150) < 0.7
        scores = np.eye(2)[np.where(right, truth, 1 - truth)]
        item = Guesses(truth, scores, np.arange(150))
        reached = score("accuracy", [item], Bootstrap(150, draws=200, seed=seed))
        inside += reached.low <= 0.7 <= reached.high
    assert 180 <= inside <= 199


def test_intervals_by_author_are_wider_when_authors_agree_with_themselves() -> None:
    random = np.random.default_rng(0)
    author = np.repeat(np.arange(30), 20)
    truth = random.integers(0, 2, 30)[author]
    right = (random.random(30) < 0.6)[author]
    scores = np.eye(2)[np.where(right, truth, 1 - truth)]
    by_row = score("accuracy", [Guesses(truth, scores, np.arange(600))], Bootstrap(600))
    by_author = score("accuracy", [Guesses(truth, scores, author)], Bootstrap(30))
    assert by_author.high - by_author.low > 2 * (by_row.high - by_row.low)


def test_the_first_draw_is_the_data_as_they_are() -> None:
    values = np.random.default_rng(1).random(40)
    groups = np.repeat(["b", "a", "d", "c"], 10)
    draws = weighted_means(group_weights(groups), values)
    assert draws[0] == pytest.approx(values.mean()) and len(draws) == intervals.DRAWS + 1
    assert percentile(draws).low < values.mean() < percentile(draws).high


def test_groups_are_resampled_whole() -> None:
    weights = group_weights(np.array([7, 3, 7, 3, 3]))
    assert (weights[:, 0] == weights[:, 2]).all() and (weights[:, 1] == weights[:, 4]).all()
    assert (weights[:, 0] != weights[:, 1]).any(), "the control"


def test_a_ratio_of_sums_is_no_mean_of_ratios() -> None:
    right, whole = np.array([1.0, 0.0]), np.array([1.0, 3.0])
    assert weighted_means(np.ones((1, 2)), right, whole)[0] == 0.25


def test_draws_without_anyone_are_passed_over() -> None:
    reached = percentile(np.array([0.5, np.nan, 0.4, 0.4, np.nan]))
    assert reached.ends == (0.5, 0.4, 0.4)
    nobody = percentile(np.array([0.5, np.nan]))
    assert nobody.value == 0.5 and np.isnan(nobody.low) and np.isnan(nobody.high)


def test_one_person_in_many_seeds_is_one_person() -> None:
    """The same victims in five seeds tell no more than in one; other victims would."""
    random = np.random.default_rng(2)
    values = random.random((5, 50))
    bootstrap = Bootstrap(250)
    width = {}
    for name, shift in (("same", 0), ("others", 50)):
        seeds = [
            weighted_means(bootstrap.of(np.arange(50) + shift * seed), values[0])
            for seed in range(5)
        ]
        reached = mean_over_seeds(seeds)
        assert reached.by_seed == pytest.approx([values[0].mean()] * 5)
        width[name] = reached.high - reached.low
    assert 0.3 < width["others"] / width["same"] < 0.6  # 1/sqrt(5) is 0.45


def test_the_normal_interval_is_the_limit_of_the_bootstrap() -> None:
    hits = (np.random.default_rng(3).random(2000) < 0.8).astype(float)
    bootstrap = percentile(weighted_means(group_weights(np.arange(2000)), hits))
    assert normal_mean(hits).ends == pytest.approx(bootstrap.ends, abs=0.003)
    # Of ten hits in ten Wilson leaves room for one miss in four: n/(n + z²) is 0.722.
    assert normal_mean(np.ones(10)).ends == pytest.approx((1.0, 0.7224, 1.0), abs=1e-4)


def test_no_hit_at_all_is_no_certainty() -> None:
    """None among 200 people leaves room for 1.9 %; a bootstrap alone leaves none."""
    weights = group_weights(np.arange(200))
    nothing = weighted_means(weights, np.zeros(200))
    assert percentile(nothing).ends == (0.0, 0.0, 0.0)
    assert share_interval(nothing, 200).ends == pytest.approx((0.0, 0.0, 0.0188), abs=1e-4)
    # Constant guesses have a score between 0 and 1 that never varies: no width is added to it.
    assert share_interval(np.full(501, 0.5), 200).ends == (0.5, 0.5, 0.5)


def test_away_from_the_ends_a_share_has_the_interval_of_the_bootstrap() -> None:
    hits = (np.random.default_rng(4).random(900) < 0.6).astype(float)
    draws = weighted_means(group_weights(np.arange(900)), hits)
    assert share_interval(draws, 900).ends == pytest.approx(percentile(draws).ends, abs=0.003)


def test_few_people_widen_an_interval_as_students_t_does() -> None:
    draws = np.array([0.5, *np.linspace(0.4, 0.6, 999)])
    plain = percentile(draws)
    for people, t in ((5, 2.776), (20, 2.093), (200, 1.972)):
        wide = percentile(draws, people=people)
        factor = t / 1.96 * np.sqrt(people / (people - 1))
        assert (wide.high - 0.5) / (plain.high - 0.5) == pytest.approx(factor, rel=0.02)


def test_the_largest_of_many_equal_differences_is_none() -> None:
    """Of four equal groups the widest pair is chosen by luck; its interval must allow for that."""
    random = np.random.default_rng(5)
    weights = Bootstrap(400, draws=300).weights
    covered = {"pair": 0, "all": 0}
    for _ in range(200):
        hits = random.random(400) < 0.8
        means = np.stack([weighted_means(weights[:, k::4], hits[k::4]) for k in range(4)])
        best, worst = means[:, 0].argmax(), means[:, 0].argmin()
        covered["pair"] += percentile(means[best] - means[worst]).low <= 0
        covered["all"] += largest_difference(means).low <= 0
    assert covered["pair"] < 175 and covered["all"] >= 185


def test_the_best_of_several_is_covered_where_they_are_tied() -> None:
    """Five equal guessers, the luckiest shown; the control is the bootstrap of the maximum."""
    random = np.random.default_rng(4)
    inside, by_maximum = 0, 0
    for seed in range(400):
        hits = (random.random((5, 200)) < 0.6).astype(float)
        weights = Bootstrap(200, draws=200, seed=seed).weights
        draws = [weighted_means(weights, row) for row in hits]
        best = max(simultaneous(draws), key=lambda item: item.value)
        inside += best.low <= 0.6 <= best.high
        plain = percentile(np.max(draws, axis=0))
        by_maximum += plain.low <= 0.6 <= plain.high
    assert inside >= 0.93 * 400 > 0.85 * 400 > by_maximum


def test_simultaneous_intervals_are_wider_and_all_hold_at_once() -> None:
    hits = (np.random.default_rng(5).random((4, 300)) < 0.7).astype(float)
    draws = [weighted_means(Bootstrap(300).weights, row) for row in hits]
    together, single = simultaneous(draws), [percentile(item) for item in draws]
    for one, other in zip(together, single, strict=True):
        assert one.value == other.value and one.low < other.low < other.high < one.high
    (alone,) = simultaneous(draws[:1])
    assert (alone.low, alone.high) == pytest.approx((single[0].low, single[0].high), abs=0.01)
    constant = simultaneous([np.ones(501), draws[0]])[0]
    assert constant.ends == (1.0, 1.0, 1.0)
    gaps = np.where(np.arange(501) % 7 == 3, np.nan, draws[0])
    assert simultaneous([gaps])[0].low == pytest.approx(alone.low, abs=0.01)


def test_half_widths_of_independent_scores_add_by_squares() -> None:
    whole = mean_of([Score(0.2, 0.1, 0.3), Score(0.4, 0.3, 0.5)])
    assert whole.value == pytest.approx(0.3)
    assert whole.high - whole.value == pytest.approx(np.sqrt(0.1**2 + 0.1**2) / 2)


def test_no_other_module_makes_an_interval() -> None:
    """The control is the module of intervals itself."""

    def makes_intervals(path: Path) -> bool:
        code = path.read_text(encoding="utf-8")
        return "0.975" in code or "1.96" in code

    home = Path(intervals.__file__)
    assert makes_intervals(home)
    source = Path(capelet.__file__).parent
    assert not [path for path in source.rglob("*.py") if path != home and makes_intervals(path)]
