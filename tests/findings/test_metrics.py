"""Scores agree with scikit-learn, constants have their fingerprints, intervals cover."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as reference

from capelet.findings.metrics import METRICS, Bootstrap, Guesses, chance, majority, metrics_for


def guesses(classes: int, rows: int = 300, skill: float = 1.0, seed: int = 0) -> Guesses:
    random = np.random.default_rng(seed)
    truth = random.choice(
        classes, size=rows, p=np.arange(1, classes + 1) / (classes * (classes + 1) / 2)
    )
    scores = np.round(random.random((rows, classes)), 2)  # ties on purpose
    scores[np.arange(rows), truth] += skill * random.random(rows)
    return Guesses(truth, scores / scores.sum(axis=1, keepdims=True), np.arange(rows))


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_agree_with_scikit_learn(classes: int) -> None:
    item = guesses(classes)
    said = item.predicted
    scores = item.scores[:, 1] if classes == 2 else item.scores
    expected = {
        "accuracy": reference.accuracy_score(item.truth, said),
        "balanced_accuracy": reference.balanced_accuracy_score(item.truth, said),
        "f1_weighted": reference.f1_score(item.truth, said, average="weighted"),
        "f1_macro": reference.f1_score(item.truth, said, average="macro"),
        "auc": reference.roc_auc_score(item.truth, scores, multi_class="ovr"),
    }
    bootstrap = Bootstrap(300, draws=20)
    for metric, value in expected.items():
        assert bootstrap.score(metric, [item]).value == pytest.approx(value, abs=1e-9), metric


def test_tpr_at_one_percent_is_read_off_the_roc_curve() -> None:
    item = guesses(2, rows=1000)
    false, true, _ = reference.roc_curve(item.truth, item.scores[:, 1], drop_intermediate=False)
    expected = true[false <= 0.01].max()
    assert Bootstrap(1000, draws=5).score("tpr_at_1_fpr", [item]).value == pytest.approx(expected)


def test_weights_are_repetitions() -> None:
    """A bootstrap weight of two is the same as the row standing there twice."""
    item = guesses(3, rows=60)
    bootstrap = Bootstrap(60, draws=3, seed=1)
    for draw in (1, 2, 3):
        times = bootstrap.weights[draw].astype(int)
        copy = Guesses(
            np.repeat(item.truth, times),
            np.repeat(item.scores, times, axis=0),
            np.arange(times.sum()),
        )
        for metric in metrics_for(3):
            from capelet.findings.metrics import _metric

            direct = Bootstrap(int(times.sum()), draws=1).score(metric, [copy]).value
            assert _metric(metric, item, bootstrap.weights[[draw]])[0] == pytest.approx(direct)


def test_a_constant_guess_is_degenerate_and_has_its_fingerprint() -> None:
    truth = np.array([0] * 75 + [1] * 25)
    constant = Guesses(truth, np.tile([1.0, 0.0], (100, 1)), np.arange(100))
    assert constant.degenerate and not guesses(2).degenerate
    bootstrap = Bootstrap(100, draws=10)
    for metric in ("accuracy", "balanced_accuracy", "f1_weighted", "f1_macro", "auc"):
        assert bootstrap.score(metric, [constant]).value == pytest.approx(
            majority(metric, truth, 2)
        ), metric
    assert majority("f1_weighted", truth, 2) == pytest.approx(2 * 0.75**2 / 1.75)


def test_chance() -> None:
    assert chance("balanced_accuracy", 4) == 0.25 and chance("auc", 4) == 0.5
    assert chance("f1_macro", 2) is None and "tpr_at_1_fpr" not in metrics_for(3)
    assert metrics_for(2) == METRICS


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """200 samples of a guesser that is right in 70 % of the cases."""
    random = np.random.default_rng(0)
    inside = 0
    for seed in range(200):
        truth = random.integers(0, 2, 150)
        right = random.random(150) < 0.7
        scores = np.eye(2)[np.where(right, truth, 1 - truth)]
        score = Bootstrap(150, draws=200, seed=seed).score(
            "accuracy", [Guesses(truth, scores, np.arange(150))]
        )
        inside += score.low <= 0.7 <= score.high
    assert 180 <= inside <= 199


def test_intervals_by_author_are_wider_when_authors_agree_with_themselves() -> None:
    random = np.random.default_rng(0)
    author = np.repeat(np.arange(30), 20)
    truth = random.integers(0, 2, 30)[author]
    right = (random.random(30) < 0.6)[author]
    scores = np.eye(2)[np.where(right, truth, 1 - truth)]
    by_row = Bootstrap(600).score("accuracy", [Guesses(truth, scores, np.arange(600))])
    by_author = Bootstrap(30).score("accuracy", [Guesses(truth, scores, author)])
    assert by_author.high - by_author.low > 2 * (by_row.high - by_row.low)


def test_gap_between_subgroups() -> None:
    good, bad = guesses(2, skill=9.0), guesses(2, skill=0.2)
    gap = Bootstrap(300).gap([[good], [bad]])
    accuracy = [float((item.predicted == item.truth).mean()) for item in (good, bad)]
    assert gap.value == pytest.approx(accuracy[0] - accuracy[1]) and gap.low > 0
