"""Every attacker finds a planted leak, finds nothing in noise, and looks at no victim."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from capelet.attacks.attribute import (
    COMMITTEE,
    FAMILIES,
    Candidate,
    Perceptron,
    Result,
    Secret,
    View,
    attack,
    families,
    few_labels,
)
from capelet.errors import CapeletError
from capelet.findings.metrics import balanced_accuracy

ROWS = 1500
FIT, TUNE, SCORED = np.arange(700), np.arange(700, 800), np.arange(800, ROWS)


def world(
    shift: float, share: float = 0.5, seed: int = 0, kind: str = "linear"
) -> tuple[View, np.ndarray]:
    """Vectors in which a secret is planted; the best balanced accuracy is Φ(shift / 2)."""
    random = np.random.default_rng(seed)
    secret = (random.random(ROWS) < share).astype(np.intp)
    vectors = random.normal(size=(ROWS, 12)).astype(np.float32)
    if kind == "linear":
        vectors[:, 0] += shift * secret
    else:  # no linear probe can see it: the secret is whether two signs agree
        signs = random.choice([-1.0, 1.0], size=ROWS)
        vectors[:, 0] = shift * signs + 0.5 * vectors[:, 0]
        vectors[:, 1] = shift * signs * (2 * secret - 1) + 0.5 * vectors[:, 1]
    return View(vectors, FIT, TUNE, SCORED, seed), secret


def reached(name: str, view: View, codes: np.ndarray, classes: int = 2) -> float:
    secret = Secret(view, codes, classes)
    best = attack(view, secret, families([name])).best[name]
    return balanced_accuracy(secret.codes.scored, best.scored.argmax(axis=1))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_planted_leak_is_found_and_the_optimum_is_not_passed(name: str) -> None:
    view, codes = world(shift=2.0)
    optimum = norm.cdf(1.0)
    assert optimum - 0.09 < reached(name, view, codes) < optimum + 0.03


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_rare_secret_is_found_too(name: str) -> None:
    view, codes = world(shift=3.0, share=0.06)
    assert reached(name, view, codes) > 0.7  # 42 rows have it; the optimum is 0.93


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_nothing_is_found_in_noise(name: str) -> None:
    scores = [reached(name, *world(shift=0.0, seed=seed)) for seed in range(8)]
    assert np.mean(scores) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("name", ["mlp", "boosting", "knn", "kernel"])
def test_what_linear_probes_cannot_see_is_found_by_the_others(name: str) -> None:
    view, codes = world(shift=2.0, kind="agreement")
    assert reached("logistic", view, codes) < 0.6
    assert reached(name, view, codes) > 0.85


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_probabilities_and_many_classes(name: str) -> None:
    random = np.random.default_rng(3)
    codes = random.integers(0, 4, ROWS)
    codes[:700][codes[:700] == 3] = 2  # the attacker never saw the last class
    vectors = random.normal(size=(ROWS, 6)).astype(np.float32)
    vectors[np.arange(ROWS), codes] += 3
    view = View(vectors, FIT, TUNE, SCORED, 0)
    secret = Secret(view, codes, 4)
    for settings in FAMILIES[name].grid:
        candidate = FAMILIES[name].fit(view, secret, settings)
        assert candidate.scored.shape == (len(SCORED), 4) and candidate.tune.shape == (100, 4)
        assert (candidate.scored >= 0).all()
        np.testing.assert_allclose(candidate.scored.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_truth_about_victims_changes_nothing(name: str) -> None:
    view, codes = world(shift=1.0)
    lie = codes.copy()
    lie[SCORED] = 1 - lie[SCORED]
    settings = FAMILIES[name].grid[0]
    one, two = (FAMILIES[name].fit(view, Secret(view, item, 2), settings) for item in (codes, lie))
    np.testing.assert_array_equal(one.scored, two.scored)


def test_victims_change_no_preparation() -> None:
    """Means, axes and landmarks are learnt on the rows to fit on."""
    view, _ = world(shift=1.0)
    vectors = np.concatenate([view.vectors.fit, view.vectors.tune, 100 + view.vectors.scored])
    other = View(vectors, FIT, TUNE, SCORED, 0)
    np.testing.assert_array_equal(view.standard.fit, other.standard.fit)
    np.testing.assert_array_equal(view.kernel(1.0).tune, other.kernel(1.0).tune)
    np.testing.assert_array_equal(view.levels.tune, other.levels.tune)


def test_dead_and_huge_coordinates_break_nothing() -> None:
    view, codes = world(shift=3.0)
    vectors = np.concatenate(list(view.vectors))
    vectors[:, 5] = 7.0
    vectors[:, 6] *= 1e12
    vectors[:, 7] *= 1e-12
    view = View(vectors, FIT, TUNE, SCORED, 0)
    for name in ("logistic", "mlp", "boosting"):
        assert reached(name, view, codes) > 0.8


def test_depth_and_width_are_arguments() -> None:
    view, codes = world(shift=3.0)
    deep = Perceptron(depth=3, width=50)
    candidate = deep.fit(view, Secret(view, codes, 2), deep.grid[0])
    assert candidate.settings == {"depth": 3, "width": 50}
    assert balanced_accuracy(codes[SCORED], candidate.scored.argmax(axis=1)) > 0.85


def made_up(quality: dict[str, float], rows: int) -> Result:
    nothing = Candidate({}, np.zeros((rows, 2)), np.zeros((0, 2)))
    return Result(dict.fromkeys(quality, nothing), quality, rows)


def test_the_committee_is_chosen_unless_clearly_beaten() -> None:
    assert made_up({"a": 0.71, "b": 0.6, COMMITTEE: 0.7}, rows=100).strongest == COMMITTEE
    assert made_up({"a": 0.90, "b": 0.6, COMMITTEE: 0.7}, rows=100).strongest == "a"
    assert made_up({"a": 0.6, "b": 0.8, COMMITTEE: 0.7}, rows=100).family == "b"
    assert made_up({"a": 0.6}, rows=100).strongest == "a"


def test_few_labels() -> None:
    view, codes = world(shift=4.0)
    secret = Secret(view, codes, 2)
    few, more = (few_labels(view, secret, count) for count in (2, 50))
    assert few is not None and more is not None
    assert balanced_accuracy(codes[SCORED], more.argmax(axis=1)) > 0.9
    assert few_labels(view, secret, 10_000) is None


def test_a_task_probe_is_not_balanced() -> None:
    view, codes = world(shift=0.0, share=0.2)
    task = Secret(view, codes, 2, balanced=False)
    assert (task.weights.fit == 1).all()
    constant = np.tile([1.0, 0.0], (len(TUNE), 1))
    assert task.quality(constant) == pytest.approx((codes[TUNE] == 0).mean())
    assert Secret(view, codes, 2).quality(constant) == 0.5


def test_unknown_families_are_said() -> None:
    with pytest.raises(CapeletError, match="did you mean 'kernel'"):
        families(["kernl"])
