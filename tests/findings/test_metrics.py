"""Scores agree with scikit-learn, constants have their fingerprints, intervals cover."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as reference

from capelet.errors import CapeletError
from capelet.findings.intervals import Bootstrap, largest_difference, share_interval
from capelet.findings.metrics import (
    METRICS,
    OTHER_METRICS,
    Guesses,
    accuracy_gap,
    balanced_accuracy,
    certain_hit_rate,
    certain_share,
    chance,
    check_metrics,
    majority,
    metrics_for,
    replicates,
    score,
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
    assert metrics_for(2, OTHER_METRICS) == tuple(METRICS)


def test_an_unknown_metric_is_refused_by_name() -> None:
    item = guesses(2)
    with pytest.raises(CapeletError, match=r"no metric 'f1_makro'.*f1_macro"):
        score("f1_makro", [item], Bootstrap(300, draws=2))
    with pytest.raises(CapeletError, match="no metric"):
        chance("precision", 2)
    assert score("f1_macro", [item], Bootstrap(300, draws=2)).value > 0, "the control"


def test_every_metric_is_one_record() -> None:
    assert all(name == metric.name for name, metric in METRICS.items())
    for name, metric in METRICS.items():  # a complement falls as an attacker succeeds
        assert metric.measure.success == ("falls" if "privacy" in name else "rises")


def test_gap_between_subgroups() -> None:
    good, bad = guesses(2, skill=9.0), guesses(2, skill=0.2)
    gap = accuracy_gap([[good], [bad]], Bootstrap(300))
    accuracy = [float((item.predictions == item.truth).mean()) for item in (good, bad)]
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
    level = item.scores[:, 1]
    gaps = level[item.truth == 1][:, None] - level[item.truth == 0][None, :]
    assert (gaps == 0).mean() > 0.15
    value = score("auc", [item], Bootstrap(80, draws=5)).value
    assert value == pytest.approx((gaps > 0).mean() + (gaps == 0).mean() / 2)
    assert value == pytest.approx(reference.roc_auc_score(item.truth, level))
    assert value < (gaps >= 0).mean() - 0.05 and value > (gaps > 0).mean() + 0.05


def test_tied_rows_are_flagged_together_or_not_at_all() -> None:
    """A threshold cannot cut through equal scores: 3 false positives of 150 are 2 %."""
    truth = np.array([1] * 10 + [1] * 20 + [0] * 3 + [0] * 147)
    level = np.array([0.9] * 10 + [0.5] * 20 + [0.5] * 3 + [0.1] * 147)
    ones = np.ones((1, 180), dtype=np.float32)
    assert tpr_at(0.01, truth == 1, level, ones) == pytest.approx([10 / 30])
    assert tpr_at(0.02, truth == 1, level, ones) == pytest.approx([1.0])  # exactly at the rate
    assert tpr_at(0.0199, truth == 1, level, ones) == pytest.approx([10 / 30])
    assert tpr_at(0.0, truth == 1, np.zeros(180), ones) == pytest.approx([0.0])
    both = np.column_stack([1 - level, level])
    item = Guesses(truth, both, np.arange(180))
    assert score("tpr_at_1_fpr", [item], Bootstrap(180, draws=3)).value == pytest.approx(1 / 3)


def test_the_area_of_several_classes_is_the_mean_over_those_present() -> None:
    item = guesses(4, rows=120)
    some = item.truth != 2
    part = Guesses(item.truth[some], item.scores[some], np.arange(int(some.sum())))
    areas = [
        reference.roc_auc_score(part.truth == code, part.scores[:, code]) for code in (0, 1, 3)
    ]
    value = score("auc", [part], Bootstrap(len(part.truth), draws=3)).value
    assert value == pytest.approx(np.mean(areas))
    # Fewer rows than classes: the last class counts too.
    few = Guesses(
        np.array([0, 0, 3]), np.array([[1, 0, 0, 2], [2, 0, 0, 1], [0, 0, 0, 1.5]]), np.arange(3)
    )
    areas = [1.0, 0.5]
    assert score("auc", [few], Bootstrap(3, draws=3)).value == pytest.approx(np.mean(areas))


def test_classes_that_are_absent_do_not_count_in_means() -> None:
    truth, said = np.array([0, 0, 1, 1, 1]), np.array([0, 3, 1, 1, 0])
    item = Guesses(truth, np.eye(4)[said], np.arange(5))
    bootstrap = Bootstrap(5, draws=3)
    values = {name: score(name, [item], bootstrap).value for name in list(METRICS)[:4]}
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
    hits = np.stack([item.predictions == item.truth for item in items])
    means = np.mean([(weights * hit).sum(axis=1) / weights.sum(axis=1) for hit in hits], axis=0)
    result = score("accuracy", items, bootstrap)
    assert result.value == pytest.approx(means[0], abs=1e-6)
    expected = share_interval(means, 40)
    assert result.low == pytest.approx(expected.low, abs=1e-6)
    assert result.high == pytest.approx(expected.high, abs=1e-6)
    # A little wider than the percentiles: 40 people are few, and 88 % is near the end.
    assert 0 < np.quantile(means[1:], 0.025) - result.low < 0.03
    assert 0 < result.high - np.quantile(means[1:], 0.975) < 0.03
    assert result.by_seed == pytest.approx(tuple(hits.mean(axis=1)))
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
    result = score("accuracy", [item], bootstrap)
    expected = share_interval(np.array([0.5, *shares]), 4)
    assert result.low == pytest.approx(expected.low, abs=1e-6)
    assert result.high == pytest.approx(expected.high, abs=1e-6)


def test_the_weights_of_many_different_victims_are_never_mixed_up() -> None:
    bootstrap = Bootstrap(30, draws=20)
    for seed in range(40):  # more than are remembered at once
        random = np.random.default_rng(seed)
        rows = random.permutation(30)[:20]
        truth = random.integers(0, 2, 20)
        item = Guesses(truth, np.eye(2)[random.integers(0, 2, 20)], rows)
        for _ in range(2):
            weights = bootstrap.weights[1:, rows]
            hits = (weights * (item.predictions == truth)).sum(axis=1) / weights.sum(axis=1)
            low = score("accuracy", [item], bootstrap).low
            value = (item.predictions == truth).mean()
            expected = share_interval(np.array([value, *hits]), 20).low
            assert low == pytest.approx(expected, abs=1e-6)


def test_the_gap_is_between_the_best_and_the_worst_and_allows_for_the_choice() -> None:
    groups = [[guesses(2, rows=60, skill=skill, seed=2)] for skill in (0.4, 5.0, 0.1)]
    bootstrap = Bootstrap(60, draws=300)
    weights = bootstrap.weights
    shares = []
    for (item,) in groups:
        hit = item.predictions == item.truth
        shares.append((weights * hit).sum(axis=1) / weights.sum(axis=1))
    order = np.argsort([share[0] for share in shares])
    gap = shares[order[-1]] - shares[order[0]]
    result = accuracy_gap(groups, bootstrap)
    assert result.value == pytest.approx(gap[0], abs=1e-6)
    assert result.ends == pytest.approx(largest_difference(np.stack(shares)).ends, abs=1e-6)
    assert result.low < np.quantile(gap[1:], 0.025) and result.high > np.quantile(gap[1:], 0.975)


@pytest.mark.parametrize("classes", [2, 3])
def test_what_the_commonest_class_reaches_is_what_a_constant_guess_scores(classes: int) -> None:
    truth = np.array([0, 1, 1, 1, 2, 2][: 4 if classes == 2 else 6])
    constant = Guesses(
        truth, np.eye(classes)[np.ones(len(truth), dtype=int)], np.arange(len(truth))
    )
    bootstrap = Bootstrap(len(truth), draws=3)
    for metric in ("accuracy", "balanced_accuracy", "f1_weighted", "f1_macro", "auc"):
        stated = majority(metric, truth, classes)
        assert score(metric, [constant], bootstrap).value == pytest.approx(stated), metric
    assert majority("tpr_at_1_fpr", truth, classes) is None
    assert chance("accuracy", classes) == chance("balanced_accuracy", classes) == 1 / classes
    assert chance("auc", classes) == 0.5 and chance("tpr_at_1_fpr", classes) == 0.01
    assert chance("f1_weighted", classes) is None
    assert metrics_for(3) == tuple(METRICS)[:5]


def test_certainty_is_a_share_of_victims_and_its_hit_rate_is_of_those() -> None:
    scores = np.array([[0.97, 0.03], [0.04, 0.96], [0.95, 0.05], [0.6, 0.4], [0.5, 0.5]])
    item = Guesses(np.array([0, 0, 0, 1, 1]), scores, np.arange(5))
    bootstrap = Bootstrap(5)
    assert certain_share([item], bootstrap).value == pytest.approx(3 / 5)
    hits = certain_hit_rate([item], bootstrap)
    assert hits is not None and hits.value == pytest.approx(2 / 3)
    assert hits.low < 2 / 3 < hits.high
    doubt = Guesses(item.truth, np.full((5, 2), 0.5), item.unit)
    assert certain_share([doubt], bootstrap).value == 0
    assert certain_hit_rate([doubt], bootstrap) is None
    # A seed without anybody certain does not spoil the others.
    assert certain_hit_rate([doubt, item], bootstrap).value == pytest.approx(2 / 3)  # type: ignore[union-attr]


# ---- on demand -----------------------------------------------------------------------------------


def test_metrics_on_demand_are_complements_and_recalls() -> None:
    truth = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    named = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 0])  # 4 of 6 absent, 3 of 4 present
    guesses = Guesses(truth, np.eye(2)[named], np.arange(10))
    alike = np.ones((1, 10))
    values = {name: METRICS[name].compute(guesses, alike)[0] for name in OTHER_METRICS}
    precision, recall = 3 / 5, 3 / 4
    assert values == pytest.approx(
        {
            "empirical_privacy": 0.3,
            "empirical_privacy_f1": 1 - 2 * precision * recall / (precision + recall),
            "recall_present": 3 / 4,
            "recall_absent": 4 / 6,
        }
    )
    # A constant attacker has the complement of the majority, and finds nobody of the other class.
    constant = Guesses(truth, np.eye(2)[np.zeros(10, dtype=int)], np.arange(10))
    assert METRICS["empirical_privacy"].compute(constant, alike)[0] == pytest.approx(0.4)
    assert METRICS["empirical_privacy"].majority(0.6, 2) == pytest.approx(0.4)
    assert METRICS["empirical_privacy_f1"].compute(constant, alike)[0] == 1.0
    assert METRICS["recall_present"].compute(constant, alike)[0] == 0.0


def test_metrics_on_demand_are_not_among_the_usual() -> None:
    assert not {*metrics_for(2)} & {*OTHER_METRICS}
    assert {*metrics_for(2, OTHER_METRICS)} == {*METRICS}
    assert {*metrics_for(3, OTHER_METRICS)} - {*metrics_for(3)} == {"empirical_privacy"}
    with pytest.raises(CapeletError, match="did you mean 'recall_present'"):
        check_metrics(["recall_presence"])
