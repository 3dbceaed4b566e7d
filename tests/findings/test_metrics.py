"""Scores agree with scikit-learn, constants have their fingerprints, intervals cover."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as reference

from capelet.errors import CapeletError
from capelet.findings.intervals import Bootstrap
from capelet.findings.metrics import (
    METRICS,
    Guesses,
    accuracy_gap,
    chance,
    majority,
    metrics_for,
    replicates,
    score,
)


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
    said = item.predictions
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
        assert score(metric, [item], bootstrap).value == pytest.approx(value, abs=1e-9), metric


def test_tpr_at_one_percent_is_read_off_the_roc_curve() -> None:
    item = guesses(2, rows=1000)
    false, true, _ = reference.roc_curve(item.truth, item.scores[:, 1], drop_intermediate=False)
    expected = true[false <= 0.01].max()
    assert score("tpr_at_1_fpr", [item], Bootstrap(1000, draws=5)).value == pytest.approx(expected)


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
            direct = score(metric, [copy], Bootstrap(int(times.sum()), draws=1)).value
            assert replicates(metric, item, bootstrap.weights[[draw]])[0] == pytest.approx(direct)


def test_a_constant_guess_is_degenerate_and_has_its_fingerprint() -> None:
    truth = np.array([0] * 75 + [1] * 25)
    constant = Guesses(truth, np.tile([1.0, 0.0], (100, 1)), np.arange(100))
    assert constant.degenerate and not guesses(2).degenerate
    bootstrap = Bootstrap(100, draws=10)
    for metric in ("accuracy", "balanced_accuracy", "f1_weighted", "f1_macro", "auc"):
        assert score(metric, [constant], bootstrap).value == pytest.approx(
            majority(metric, truth, 2)
        ), metric
    assert majority("f1_weighted", truth, 2) == pytest.approx(2 * 0.75**2 / 1.75)


def test_chance() -> None:
    assert chance("balanced_accuracy", 4) == 0.25 and chance("auc", 4) == 0.5
    assert chance("f1_macro", 2) is None and "tpr_at_1_fpr" not in metrics_for(3)
    assert metrics_for(2) == tuple(METRICS)


def test_an_unknown_metric_is_refused_by_name() -> None:
    item = guesses(2)
    with pytest.raises(CapeletError, match=r"no metric 'f1_makro'.*f1_macro"):
        score("f1_makro", [item], Bootstrap(300, draws=2))
    with pytest.raises(CapeletError, match="no metric"):
        chance("precision", 2)
    assert score("f1_macro", [item], Bootstrap(300, draws=2)).value > 0, "the control"


def test_every_metric_is_one_record() -> None:
    assert all(name == metric.name for name, metric in METRICS.items())
    assert all(metric.measure.success == "rises" for metric in METRICS.values())


def test_gap_between_subgroups() -> None:
    good, bad = guesses(2, skill=9.0), guesses(2, skill=0.2)
    gap = accuracy_gap([[good], [bad]], Bootstrap(300))
    accuracy = [float((item.predictions == item.truth).mean()) for item in (good, bad)]
    assert gap.value == pytest.approx(accuracy[0] - accuracy[1]) and gap.low > 0
