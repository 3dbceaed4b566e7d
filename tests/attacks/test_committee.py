"""The committee calibrates its members, listens to the better ones, and judges itself fairly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

from capelet.attacks.attribute import COMMITTEE, Secret, View, attack, families
from capelet.attacks.committee import cross_fit, learn_weights, pool
from capelet.attacks.views import folds_of
from capelet.findings.metrics import balanced_accuracy

RANDOM = np.random.default_rng(0)
CODES = RANDOM.integers(0, 2, 2000)


def sure(evidence: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Probabilities of two classes from log-odds, sharper or flatter than they should be."""
    one = 1 / (1 + np.exp(-evidence / temperature))
    return np.stack([1 - one, one], axis=1)


def evidence(strength: float, seed: int) -> np.ndarray:
    """Log-odds of N(±strength/2, 1): honest ones are strength·x."""
    noise = np.random.default_rng(seed).normal(size=len(CODES))
    return np.asarray(strength * (noise + strength * (CODES - 0.5)))


@pytest.mark.parametrize("temperature", [0.2, 5.0])
def test_one_member_alone_is_temperature_scaling(temperature: float) -> None:
    odds = evidence(1.0, 1)
    weights = learn_weights([sure(odds, temperature)], CODES, np.ones(len(CODES)))
    assert weights[0] == pytest.approx(temperature, rel=0.25)
    pooled = pool([sure(odds, temperature)], weights)
    assert np.abs(pooled - sure(odds)).max() < 0.12


def test_independent_members_are_added_and_useless_ones_are_not_heard() -> None:
    one, other, nothing = (
        evidence(1.0, 1),
        evidence(1.0, 2),
        np.random.default_rng(3).normal(size=len(CODES)),
    )
    members = [sure(one), sure(other), sure(3 * nothing)]
    weights = learn_weights(members, CODES, np.ones(len(CODES)))
    assert weights[:2] == pytest.approx([1, 1], abs=0.25) and weights[2] < 0.05
    # The control: a plain mean is drowned by whoever is loud and knows nothing.
    plain = np.mean(members, axis=0).argmax(axis=1)
    pooled = pool(members, weights).argmax(axis=1)
    assert balanced_accuracy(CODES, pooled) > balanced_accuracy(CODES, plain) + 0.04


def test_a_member_that_says_never_is_not_taken_at_its_word() -> None:
    pooled = pool([np.array([[1.0, 0.0]]), np.array([[0.4, 0.6]])], np.array([1.0, 1.0]))
    assert 0 < pooled[0, 1] < 1 and pooled.sum() == pytest.approx(1)


def test_pooling_by_hand() -> None:
    """P(c) ∝ Π p_m(c)^w_m, with no probability below a ten-thousandth."""
    one, other = np.array([[0.9, 0.1], [0.5, 0.5]]), np.array([[0.2, 0.8], [1.0, 0.0]])
    pooled = pool([one, other], np.array([2.0, 0.5]))
    for row in range(2):
        odds = (one[row, 1] / one[row, 0]) ** 2
        odds *= (max(other[row, 1], 1e-4) / other[row, 0]) ** 0.5
        assert pooled[row] == pytest.approx([1 / (1 + odds), odds / (1 + odds)])


def test_the_weights_minimise_the_loss_with_one_row_s_pull_to_equal_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against a grid: −Σ v_i·ln P(code_i) + ½·‖w − ½‖² for two members and six weighed rows."""
    members = [sure(np.array([1.0, -2, 3, 1, -1, 2])), sure(np.array([2.0, 1, 2, -1, 1, -3]))]
    codes, row_weights = np.array([1, 0, 1, 0, 1, 0]), np.array([1.0, 2, 1, 3, 1, 0.5])

    def loss(weights: np.ndarray) -> float:
        chances = pool(members, weights)[np.arange(6), codes]
        return float(-row_weights @ np.log(chances) + ((weights - 0.5) ** 2).sum() / 2)

    def check(objective: Any, start: np.ndarray, **options: Any) -> Any:
        """The value is the loss, and the gradient its slope."""
        for point in (start, np.array([0.2, 1.3])):
            value, gradient = objective(point)
            steps = 1e-5 * np.eye(2)
            slope = [(loss(point + step) - loss(point - step)) / 2e-5 for step in steps]
            assert value == pytest.approx(loss(point)) and gradient == pytest.approx(slope)
        return plain(objective, start, **options)

    plain = scipy.optimize.minimize
    monkeypatch.setattr("scipy.optimize.minimize", check)
    weights = learn_weights(members, codes, row_weights)
    monkeypatch.undo()
    grid = np.stack(np.meshgrid(*[np.linspace(0, 2, 81)] * 2), axis=-1).reshape(-1, 2)
    best = min(grid, key=loss)
    assert weights == pytest.approx(best, abs=0.03) and loss(weights) <= loss(best) + 1e-6
    assert (weights > 0).all()
    # Rows of no weight say nothing: equal weights. A member that is always wrong gets none.
    assert learn_weights(members, codes, np.zeros(6)) == pytest.approx([0.5, 0.5])
    wrong = sure(np.where(codes == 1, -3.0, 3.0))
    assert learn_weights([wrong, members[0]], codes, 9 * row_weights)[0] == 0.0


def test_weights_are_learnt_on_other_folds_than_they_are_judged_on() -> None:
    view = View(np.zeros((2000, 1)), np.arange(2000), np.arange(0), np.arange(0), 0)
    secret = Secret(view, CODES, 2, balanced=False)
    folds = folds_of(view, secret)
    members = [sure(evidence(1.0, 1)), sure(evidence(0.5, 2), 3.0)]
    pooled = cross_fit(members, secret, folds)
    fold = folds[0]
    lie = CODES.copy()
    lie[fold.outside] = 1 - lie[fold.outside]
    other = cross_fit(members, Secret(view, lie, 2, balanced=False), folds)
    np.testing.assert_allclose(pooled[fold.outside], other[fold.outside], rtol=1e-3)
    assert not np.allclose(pooled[folds[1].outside], other[folds[1].outside], rtol=1e-3)
    alone = cross_fit(members[:1], secret, folds)
    np.testing.assert_allclose(alone.argmax(axis=1), members[0].argmax(axis=1))


def test_the_committee_of_a_planted_leak_is_as_good_as_its_best_member() -> None:
    random = np.random.default_rng(5)
    codes = random.integers(0, 2, 1500)
    vectors = random.normal(size=(1500, 12))
    vectors[:, 0] += 1.5 * codes
    view = View(vectors, np.arange(700), np.arange(0), np.arange(700, 1500), 0)
    secret = Secret(view, codes, 2)
    result = attack(view, secret, families(["logistic", "knn", "kernel"]))
    committee = result.best[COMMITTEE]
    assert set(committee.settings["members"]) <= {"logistic", "knn", "kernel"}
    score = balanced_accuracy(codes[700:], committee.scored.argmax(axis=1))
    best = max(
        balanced_accuracy(codes[700:], item.scored.argmax(axis=1)) for item in result.best.values()
    )
    assert score > best - 0.02
