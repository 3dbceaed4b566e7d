"""Ceilings are exact: linear programs reach them, planted attackers do too, and nobody more.

A channel is (ε, δ)-private when, for every ordered pair of secrets z and z', the sum over outputs
of max(0, Q(o|z) − e^ε·Q(o|z')) is at most δ. With a slack variable for each term that is linear,
and so is the score of a guesser who names what the output says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_array

from capelet.mechanisms import RandomisedResponse
from capelet.privacy.guarantees import (
    Guarantee,
    ceiling,
    ceiling_advantage,
    ceiling_auc,
    ceiling_balanced,
    ceiling_top,
)

CASES = 120


def best_channel(reward: np.ndarray, epsilon: float, delta: float) -> float:
    """The most that Σ reward(z, o)·Q(o|z) can be under (ε, δ)-local privacy of z."""
    secrets, outputs = reward.shape
    pairs = list(itertools.permutations(range(secrets), 2))
    size = secrets * outputs
    entries: list[tuple[int, int, float]] = []
    limits: list[float] = []
    for number, (one, other) in enumerate(pairs):
        slack = size + number * outputs
        for output in range(outputs):
            line = len(limits)
            entries += [(line, one * outputs + output, 1.0)]
            entries += [(line, other * outputs + output, -math.exp(epsilon))]
            entries += [(line, slack + output, -1.0)]
            limits.append(0.0)
        entries += [(len(limits), slack + output, 1.0) for output in range(outputs)]
        limits.append(delta)
    lines, columns, values = zip(*entries, strict=True)
    width = size + len(pairs) * outputs
    private = coo_array((values, (lines, columns)), shape=(len(limits), width))
    sums = np.zeros((secrets, width))
    for secret in range(secrets):
        sums[secret, secret * outputs : (secret + 1) * outputs] = 1.0
    cost = np.concatenate([-reward.ravel(), np.zeros(width - size)])
    result = linprog(cost, private, limits, sums, np.ones(secrets), method="highs")
    assert result.status == 0
    return -float(result.fun)


def random_case(random: np.random.Generator, most: int = 5) -> tuple[int, float, float]:
    """Classes, ε and δ; a third of the cases is pure."""
    delta = random.choice([0.0, 10 ** random.uniform(-4, -1), random.uniform(0.05, 0.6)])
    return int(random.integers(2, most + 1)), float(random.uniform(0.05, 4.0)), float(delta)


def test_accuracy_equals_the_linear_program_for_any_prior() -> None:
    random = np.random.default_rng(0)
    for _ in range(CASES):
        classes, epsilon, delta = random_case(random)
        prior = random.dirichlet(np.full(classes, random.choice([0.4, 1.0, 5.0])))
        best = best_channel(np.diag(prior), epsilon, delta)
        assert ceiling(prior.tolist(), Guarantee(epsilon, delta)) == pytest.approx(best, abs=1e-7)


def test_balanced_accuracy_equals_the_linear_program() -> None:
    random = np.random.default_rng(1)
    for _ in range(CASES):
        classes, epsilon, delta = random_case(random, most=6)
        best = best_channel(np.eye(classes) / classes, epsilon, delta)
        assert ceiling_balanced(classes, Guarantee(epsilon, delta)) == pytest.approx(best, abs=1e-7)


def subsets(classes: int, n: int) -> np.ndarray:
    """1 where a secret is in a set of n: the reward of who names the n of a set, equally likely."""
    sets = list(itertools.combinations(range(classes), n))
    return np.array([[float(z in some) / classes for some in sets] for z in range(classes)])


def test_top_n_equals_the_linear_program() -> None:
    random = np.random.default_rng(2)
    for _ in range(CASES):
        classes, epsilon, delta = random_case(random)
        n = int(random.integers(1, classes + 1))
        best = best_channel(subsets(classes, n), epsilon, delta)
        stated = ceiling_top(n, classes, Guarantee(epsilon, delta))
        assert stated == pytest.approx(best, abs=1e-7), (n, classes, epsilon, delta)


def test_what_was_stated_of_top_n_before_is_exceeded() -> None:
    """The control: δ + (1 − δ)·(the ceiling of ε) is less than the program reaches for n > 1."""
    best = best_channel(subsets(4, 2), 0.7, 0.2)
    pure = ceiling_top(2, 4, Guarantee(0.7))
    assert pure is not None and best > 0.2 + 0.8 * pure + 0.03
    assert ceiling_top(2, 4, Guarantee(0.7, 0.2)) == pytest.approx(best, abs=1e-7)


def test_advantage_equals_the_linear_program() -> None:
    """TPR − FPR of a test: reward 1 where the secret is said, −1 where it is said wrongly."""
    random = np.random.default_rng(3)
    reward = np.array([[1.0, 0.0], [-1.0, 0.0]])
    for _ in range(CASES):
        _, epsilon, delta = random_case(random)
        best = best_channel(reward, epsilon, delta)
        assert ceiling_advantage(Guarantee(epsilon, delta)) == pytest.approx(best, abs=1e-7)


def best_auc(masses: np.ndarray, epsilon: float, delta: float) -> float:
    """The largest AUC where class 0 gives the outputs these masses, by a program over class 1.

    Outputs are ordered by how much they speak for class 1; a tie counts one half.
    """
    k = len(masses)
    cost = -(1.0 - np.cumsum(masses) + masses / 2)
    # Variables: Q(o|1), and the slacks of both directions.
    one, none = np.eye(k), np.zeros((k, k))
    lines = [np.hstack([one, -one, none]), np.hstack([-math.exp(epsilon) * one, none, -one])]
    limits = [math.exp(epsilon) * masses, -masses]
    for place in (1, 2):
        line = np.zeros((1, 3 * k))
        line[0, place * k : (place + 1) * k] = 1.0
        lines, limits = [*lines, line], [*limits, np.array([delta])]
    whole = np.zeros((1, 3 * k))
    whole[0, :k] = 1.0
    result = linprog(
        np.concatenate([cost, np.zeros(2 * k)]),
        np.vstack(lines),
        np.concatenate(limits),
        whole,
        [1.0],
        method="highs",
    )
    assert result.status == 0
    return -float(result.fun)


def test_auc_equals_the_linear_program() -> None:
    random = np.random.default_rng(4)
    for _ in range(CASES):
        _, epsilon, delta = random_case(random)
        stated = ceiling_auc(Guarantee(epsilon, delta))
        assert stated is not None
        # Any outputs: never more. The corners of the trade-off curve among them: exactly that.
        cuts = np.sort(random.uniform(size=6))
        some = np.diff(np.concatenate([[0.0, 0.0], cuts, [1.0]]))
        assert best_auc(some, epsilon, delta) <= stated + 1e-9
        corners = [(1 - delta) / (1 + math.exp(epsilon)), 1 - delta]
        exact = np.diff(np.sort(np.concatenate([[0.0, 0.0], cuts, corners, [1.0]])))
        assert best_auc(exact, epsilon, delta) == pytest.approx(stated, abs=1e-7)


# ---- planted attackers ---------------------------------------------------------------------------

DRAWS = 200_000


def three_sigma(score: float) -> float:
    return 3.5 * math.sqrt(score * (1 - score) / DRAWS)


@pytest.mark.parametrize("prior", [[0.5, 0.5], [0.4, 0.3, 0.2, 0.1], [0.1] * 10])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_randomised_response_reaches_the_ceiling_and_no_other_reader_exceeds_it(
    prior: list[float], epsilon: float
) -> None:
    """Over the m commonest classes, m the best number; its reader names what came out."""
    random = np.random.default_rng(5)
    secrets = random.choice(len(prior), DRAWS, p=prior)
    stated = ceiling(prior, Guarantee(epsilon))
    assert stated is not None
    scores = [prior[0]]
    for m in range(2, len(prior) + 1):
        # Who is not among the m commonest is sent as one of them: the guess is wrong anyway.
        words = np.where(secrets < m, secrets, random.integers(0, m, DRAWS))
        guesses = RandomisedResponse(epsilon, m).labels(words)
        scores.append(float((guesses == secrets).mean()))
    assert max(scores) == pytest.approx(stated, abs=three_sigma(stated))
    assert all(score <= stated + three_sigma(stated) for score in scores)


def choose_subsets(
    secrets: np.ndarray, classes: int, n: int, hit: float, random: np.random.Generator
) -> np.ndarray:
    """Subset selection: a set of n that holds the secret with probability `hit`, else uniform."""
    order = random.random((len(secrets), classes))
    # A random order of all classes, with the secret first (in the set) or last (not in it).
    inside = random.random(len(secrets)) < hit
    order[np.arange(len(secrets)), secrets] = np.where(inside, -1.0, 2.0)
    return np.argsort(order, axis=1)[:, :n]


@pytest.mark.parametrize(("n", "classes"), [(1, 5), (3, 10), (5, 20)])
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_subset_selection_reaches_the_ceiling_of_top_n(n: int, classes: int, delta: float) -> None:
    """Its sets are (ε, δ)-private, no less, when the secret is in them as often as the ceiling."""
    random = np.random.default_rng(6)
    epsilon = 1.0
    stated = ceiling_top(n, classes, Guarantee(epsilon, delta))
    assert stated is not None
    assert hockey_stick(hit_law(n, classes, stated), epsilon) == pytest.approx(delta, abs=1e-12)
    secrets = random.integers(0, classes, DRAWS)
    sets = choose_subsets(secrets, classes, n, stated, random)
    hits = (sets == secrets[:, None]).any(axis=1)
    assert float(hits.mean()) == pytest.approx(stated, abs=three_sigma(stated))


def hit_law(n: int, classes: int, hit: float) -> tuple[np.ndarray, np.ndarray]:
    """P(set | z) for two secrets, by kind of set: both in, one, the other, none (all alike)."""
    inside = math.comb(classes - 1, n - 1)
    outside = math.comb(classes - 1, n)
    a, b = hit / inside, (1 - hit) / outside if outside else 0.0
    both = math.comb(classes - 2, n - 2) if n > 1 else 0
    single = math.comb(classes - 2, n - 1)
    neither = math.comb(classes - 2, n)
    counts = np.array([both, single, single, neither], dtype=float)
    return counts * np.array([a, a, b, b]), counts * np.array([a, b, a, b])


def hockey_stick(laws: tuple[np.ndarray, np.ndarray], epsilon: float) -> float:
    one, other = laws
    return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())


def random_channel(random: np.random.Generator, classes: int, outputs: int) -> np.ndarray:
    return random.dirichlet(np.full(outputs, random.choice([0.3, 1.0, 5.0])), size=classes)


def scores_of(channel: np.ndarray) -> dict[str, float]:
    """What the best readers of a channel reach, classes equally likely."""
    classes = len(channel)
    ranks = np.sort(channel, axis=0)[::-1]
    one, other = channel[0], channel[1]
    with np.errstate(divide="ignore"):
        order = np.argsort(-np.log(one / np.maximum(other, 1e-300)))
    false = other[order]
    area = float(one[order] @ (1.0 - np.cumsum(false) + false / 2))
    return {
        "balanced": float(ranks[0].sum()) / classes,
        "top2": float(ranks[:2].sum()) / classes,
        "auc": area,
        "advantage": float(np.maximum(one - other, 0.0).sum()),
    }


def test_no_channel_exceeds_the_ceilings_of_its_own_guarantee() -> None:
    """Random channels, each with its own curve of (ε, δ): every point of it must bound them."""
    random = np.random.default_rng(7)
    for _ in range(CASES):
        classes = int(random.integers(2, 6))
        channel = random_channel(random, classes, int(random.integers(2, 8)))
        scores = scores_of(channel)
        for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
            pairs = itertools.permutations(channel, 2)
            delta = min(1.0, max(hockey_stick(pair, epsilon) for pair in pairs))
            guarantee = Guarantee(epsilon, delta)
            bounds: dict[str, Any] = {
                "balanced": ceiling_balanced(classes, guarantee),
                "top2": ceiling_top(2, classes, guarantee),
                "auc": ceiling_auc(guarantee),
                "advantage": ceiling_advantage(guarantee),
            }
            for name, score in scores.items():
                assert score <= bounds[name] + 1e-9, (name, epsilon, delta)


def test_a_prior_that_is_guessed_blindly_is_no_leak() -> None:
    """At a tiny ε the ceiling of accuracy is the commonest class, whatever the prior."""
    random = np.random.default_rng(8)
    priors: Sequence[np.ndarray] = [random.dirichlet(np.ones(4)) for _ in range(20)]
    for prior in priors:
        stated = ceiling(prior.tolist(), Guarantee(1e-9))
        assert stated == pytest.approx(prior.max(), abs=1e-8)
