"""Scores agree with scikit-learn, constants have their fingerprints, intervals cover."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as reference

from capelet.findings.metrics import (
    METRICS,
    Bootstrap,
    Guesses,
    balanced_accuracy,
    chance,
    majority,
    metrics_for,
    tpr_at,
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


# ---- ties, weights and intervals, by counting ----------------------------------------------------


def with_ties(rows: int = 80, seed: int = 3) -> Guesses:
    """Two classes whose scores take few values, so that most pairs of rows are tied."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, 2, rows)
    level = np.clip(random.integers(0, 4, rows) + truth, 0, 4) / 4
    return Guesses(truth, np.column_stack([1 - level, level]), np.arange(rows))


def test_ties_count_half_in_the_area() -> None:
    """P(a positive scores higher) + ½·P(equal), pair by pair."""
    item = with_ties()
    score = item.scores[:, 1]
    gaps = score[item.truth == 1][:, None] - score[item.truth == 0][None, :]
    assert (gaps == 0).mean() > 0.15
    value = Bootstrap(80, draws=5).score("auc", [item]).value
    assert value == pytest.approx((gaps > 0).mean() + (gaps == 0).mean() / 2)
    assert value == pytest.approx(reference.roc_auc_score(item.truth, score))
    assert value < (gaps >= 0).mean() - 0.05 and value > (gaps > 0).mean() + 0.05


def test_tied_rows_are_flagged_together_or_not_at_all() -> None:
    """A threshold cannot cut through equal scores: 3 false positives of 150 are 2 %."""
    truth = np.array([1] * 10 + [1] * 20 + [0] * 3 + [0] * 147)
    score = np.array([0.9] * 10 + [0.5] * 20 + [0.5] * 3 + [0.1] * 147)
    ones = np.ones((1, 180), dtype=np.float32)
    assert tpr_at(0.01, truth == 1, score, ones) == pytest.approx([10 / 30])
    assert tpr_at(0.02, truth == 1, score, ones) == pytest.approx([1.0])  # exactly at the rate
    assert tpr_at(0.0199, truth == 1, score, ones) == pytest.approx([10 / 30])
    assert tpr_at(0.0, truth == 1, np.zeros(180), ones) == pytest.approx([0.0])
    both = np.column_stack([1 - score, score])
    item = Guesses(truth, both, np.arange(180))
    assert Bootstrap(180, draws=3).score("tpr_at_1_fpr", [item]).value == pytest.approx(1 / 3)


def test_the_area_of_several_classes_is_the_mean_over_those_present() -> None:
    item = guesses(4, rows=120)
    some = item.truth != 2
    part = Guesses(item.truth[some], item.scores[some], np.arange(int(some.sum())))
    areas = [
        reference.roc_auc_score(part.truth == code, part.scores[:, code]) for code in (0, 1, 3)
    ]
    value = Bootstrap(len(part.truth), draws=3).score("auc", [part]).value
    assert value == pytest.approx(np.mean(areas))
    # Fewer rows than classes: the last class counts too.
    few = Guesses(
        np.array([0, 0, 3]), np.array([[1, 0, 0, 2], [2, 0, 0, 1], [0, 0, 0, 1.5]]), np.arange(3)
    )
    areas = [1.0, 0.5]
    assert Bootstrap(3, draws=3).score("auc", [few]).value == pytest.approx(np.mean(areas))


def test_classes_that_are_absent_do_not_count_in_means() -> None:
    truth, said = np.array([0, 0, 1, 1, 1]), np.array([0, 3, 1, 1, 0])
    item = Guesses(truth, np.eye(4)[said], np.arange(5))
    bootstrap = Bootstrap(5, draws=3)
    values = {name: bootstrap.score(name, [item]).value for name in METRICS[:4]}
    assert values["accuracy"] == pytest.approx(3 / 5)
    assert values["balanced_accuracy"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert balanced_accuracy(truth, said) == pytest.approx((1 / 2 + 2 / 3) / 2)
    f1 = [2 * 1 / (2 + 2), 2 * 2 / (3 + 2), 0.0]  # class 3 was guessed; class 2 is nowhere
    assert values["f1_macro"] == pytest.approx(np.mean(f1))
    assert values["f1_weighted"] == pytest.approx((2 * f1[0] + 3 * f1[1]) / 5)


def test_an_interval_is_the_percentiles_of_the_mean_over_seeds() -> None:
    """With the weights written out: nothing of the code but its random numbers is used."""
    items = [guesses(2, rows=40, seed=seed) for seed in (1, 2)]
    bootstrap = Bootstrap(40, draws=200, seed=5)
    weights = bootstrap.weights
    assert (weights[0] == 1).all() and weights.shape == (201, 40)
    assert set(np.unique(weights[1:])) > {0, 1, 2} and abs(weights[1:].mean() - 1) < 0.05
    hits = np.stack([item.predicted == item.truth for item in items])
    means = np.mean([(weights * hit).sum(axis=1) / weights.sum(axis=1) for hit in hits], axis=0)
    score = bootstrap.score("accuracy", items)
    assert score.value == pytest.approx(means[0], abs=1e-6)
    assert score.low == pytest.approx(np.quantile(means[1:], 0.025), abs=1e-6)
    assert score.high == pytest.approx(np.quantile(means[1:], 0.975), abs=1e-6)
    assert score.by_seed == pytest.approx(tuple(hits.mean(axis=1)))
    again, other = Bootstrap(40, draws=200, seed=5), Bootstrap(40, draws=200, seed=6)
    assert (again.weights == weights).all() and (other.weights != weights).any()
    assert Bootstrap(3).weights.shape == (501, 3)


def test_one_author_s_rows_are_drawn_together() -> None:
    unit = np.repeat(np.arange(4), 5)
    truth = np.array([0, 1, 0, 1])[unit]
    right = np.array([True, True, False, False])[unit]
    item = Guesses(truth, np.eye(2)[np.where(right, truth, 1 - truth)], unit)
    bootstrap = Bootstrap(4, draws=100)
    with np.errstate(invalid="ignore"):  # a draw may leave nobody
        shares = bootstrap.weights[1:, :2].sum(axis=1) / bootstrap.weights[1:].sum(axis=1)
    score = bootstrap.score("accuracy", [item])
    assert score.low == pytest.approx(np.nanquantile(shares, 0.025), abs=1e-6)
    assert score.high == pytest.approx(np.nanquantile(shares, 0.975), abs=1e-6)


def test_the_weights_of_many_different_victims_are_never_mixed_up() -> None:
    bootstrap = Bootstrap(30, draws=20)
    for seed in range(40):  # more than are remembered at once
        random = np.random.default_rng(seed)
        rows = random.permutation(30)[:20]
        truth = random.integers(0, 2, 20)
        item = Guesses(truth, np.eye(2)[random.integers(0, 2, 20)], rows)
        for _ in range(2):
            weights = bootstrap.weights[1:, rows]
            hits = (weights * (item.predicted == truth)).sum(axis=1) / weights.sum(axis=1)
            low = bootstrap.score("accuracy", [item]).low
            assert low == pytest.approx(np.quantile(hits, 0.025), abs=1e-6)


def test_the_gap_is_between_the_best_and_the_worst_and_its_interval_of_that_pair() -> None:
    groups = [[guesses(2, rows=60, skill=skill, seed=2)] for skill in (0.4, 5.0, 0.1)]
    bootstrap = Bootstrap(60, draws=300)
    weights = bootstrap.weights
    shares = []
    for (item,) in groups:
        hit = item.predicted == item.truth
        shares.append((weights * hit).sum(axis=1) / weights.sum(axis=1))
    order = np.argsort([share[0] for share in shares])
    gap = shares[order[-1]] - shares[order[0]]
    score = bootstrap.gap(groups)
    assert score.value == pytest.approx(gap[0], abs=1e-6)
    assert score.low == pytest.approx(np.quantile(gap[1:], 0.025), abs=1e-6)
    assert score.high == pytest.approx(np.quantile(gap[1:], 0.975), abs=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_what_the_commonest_class_reaches_is_what_a_constant_guess_scores(classes: int) -> None:
    truth = np.array([0, 1, 1, 1, 2, 2][: 4 if classes == 2 else 6])
    constant = Guesses(
        truth, np.eye(classes)[np.ones(len(truth), dtype=int)], np.arange(len(truth))
    )
    bootstrap = Bootstrap(len(truth), draws=3)
    for metric in ("accuracy", "balanced_accuracy", "f1_weighted", "f1_macro", "auc"):
        stated = majority(metric, truth, classes)
        assert bootstrap.score(metric, [constant]).value == pytest.approx(stated), metric
    assert majority("tpr_at_1_fpr", truth, classes) is None
    assert chance("accuracy", classes) == chance("balanced_accuracy", classes) == 1 / classes
    assert chance("auc", classes) == 0.5 and chance("tpr_at_1_fpr", classes) == 0.01
    assert chance("f1_weighted", classes) is None
    assert metrics_for(3) == METRICS[:5]
