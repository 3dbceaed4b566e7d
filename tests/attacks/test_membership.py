"""Members are told from others where a model remembers, and not where it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capelet.attacks.membership import (
    RARE,
    AuxiliaryScores,
    LearnedSimilarity,
    aggregate,
    by_tenth,
    match_frequencies,
    membership_findings,
    pair_scores,
    tenths_of_words,
    threshold_of,
    window_scores,
    windows_of,
)
from capelet.errors import DataError
from capelet.findings import Finding, Findings
from invented import TRAINING, texts_of_words


def value(rows: list[Finding], metric: str, kind: str = "membership") -> float:
    return Findings(tuple(rows)).value(kind=kind, metric=metric)


# ---- scores against their definitions


def test_scores_of_a_known_shift_reach_their_closed_forms() -> None:
    from scipy.stats import norm

    random = np.random.default_rng(0)
    rows_in_all = 3 * RARE
    member = random.random(rows_in_all) < 0.5
    scores = random.normal(size=rows_in_all) + 1.0 * member
    auxiliary = np.arange(rows_in_all) < 2000
    rows = membership_findings([AuxiliaryScores(scores, auxiliary)], member, attacker="shift")
    assert value(rows, "auc") == pytest.approx(norm.cdf(2**-0.5), abs=0.02)
    assert value(rows, "advantage") == pytest.approx(2 * norm.cdf(0.5) - 1, abs=0.03)
    assert value(rows, "tpr_at_1_fpr") == pytest.approx(norm.sf(norm.isf(0.01) - 1), abs=0.04)
    assert value(rows, "tpr_at_01_fpr") == pytest.approx(norm.sf(norm.isf(0.001) - 1), abs=0.03)
    assert value(rows, "advantage", "membership-null") == pytest.approx(0.0, abs=0.05)


def test_rare_false_alarms_are_not_spoken_of_among_few() -> None:
    random = np.random.default_rng(0)
    member = random.random(600) < 0.5
    trial = AuxiliaryScores(random.normal(size=600), np.arange(600) < 200)
    rows = membership_findings([trial], member, attacker="x")
    assert {row.metric for row in rows} == {"advantage", "auc", "tpr_at_1_fpr"}


def test_the_interval_covers_which_writers_are_known() -> None:
    """Few writers, each with scores of their own: another third of them gives another threshold."""
    random = np.random.default_rng(3)
    unit = np.repeat(np.arange(18), 30)
    member = unit % 2 == 0
    scores = random.normal(size=18)[unit] + 0.4 * member + 0.3 * random.normal(size=len(unit))
    trials = []
    for _ in range(5):
        few = [random.permutation(np.arange(side, 18, 2))[:3] for side in (0, 1)]
        trials.append(AuxiliaryScores(scores, np.isin(unit, np.concatenate(few))))

    def advantage(some: list[AuxiliaryScores]) -> Finding:
        rows = membership_findings(some, member, attacker="x", units=unit)
        return next(row for row in rows if row.metric == "advantage" and row.kind == "membership")

    whole, each = advantage(trials), [advantage([trial]) for trial in trials]
    assert whole.parameters["by_choice"] == pytest.approx([row.value for row in each])
    assert whole.value == pytest.approx(np.mean([row.value for row in each]))
    assert whole.parameters["people"] == 18
    assert whole.low is not None and whole.high is not None
    # The choices themselves differ widely, and all lie within.
    values = [row.value for row in each]
    assert max(values) - min(values) > 0.1
    assert whole.low <= min(values) and max(values) <= whole.high


def test_the_threshold_is_chosen_off_the_test_set() -> None:
    """On noise the best threshold of the scored rows would give .63·√(2/n); ours gives none."""
    found, luck = [], []
    for seed in range(30):
        random = np.random.default_rng(seed)
        member, scores = np.arange(300) % 2 == 0, random.normal(size=300)
        auxiliary = np.arange(300) < 100
        found.append(
            value(
                membership_findings([AuxiliaryScores(scores, auxiliary)], member, attacker="n"),
                "advantage",
            )
        )
        told = scores[100:] >= threshold_of(scores[100:], member[100:])
        luck.append(told[member[100:]].mean() - told[~member[100:]].mean())
    assert np.mean(found) == pytest.approx(0.0, abs=0.03)
    assert np.mean(luck) > 0.05


def test_windows_by_hand() -> None:
    windows = windows_of([["a", "x", "b", "c"], ["c", "a"]], [True, False], ["a", "b", "c"], size=1)
    assert windows.centre.tolist() == [0, 1, 2, 2, 0]  # x is unknown and left out
    assert windows.context.tolist() == [[-1, 1], [0, 2], [1, -1], [-1, 0], [2, -1]]
    assert windows.member.tolist() == [True, True, True, False, False]
    table = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    scores = window_scores(table, windows)
    assert scores[0] == pytest.approx(0.0)
    assert scores[1] == pytest.approx((0 + 2**-0.5) / 2)


def test_matching_leaves_each_word_as_often_on_both_sides() -> None:
    texts = texts_of_words(400)
    member = np.arange(400) < 100
    windows = match_frequencies(
        windows_of(texts, member, [f"w{n}" for n in range(600)], 2), per_word=7
    )
    inside = np.bincount(windows.centre[windows.member], minlength=600)
    outside = np.bincount(windows.centre[~windows.member], minlength=600)
    assert inside.tolist() == outside.tolist()
    assert inside.max() == 7


def test_pairs_and_aggregates() -> None:
    first, second = np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([[2.0, 1.0], [0.0, 5.0]])
    assert pair_scores(first, second).tolist() == [4.0, 0.0]
    assert pair_scores(first, second, "cosine")[0] == pytest.approx(0.8)
    means, names = aggregate(np.array([1.0, 3.0, 5.0]), np.array(["a", "b", "a"]))
    assert (means.tolist(), names.tolist()) == ([3.0, 3.0], ["a", "b"])
    with pytest.raises(DataError, match="similarity"):
        pair_scores(first, second, "angle")


def test_a_learned_similarity_finds_the_one_direction_that_tells() -> None:
    """Members agree in one coordinate of 24, drowned by the others for a plain cosine."""
    random = np.random.default_rng(1)
    member = np.arange(1200) % 2 == 0
    first, second = random.normal(size=(2, 1200, 24))
    second[member, 5] = first[member, 5]
    known = np.arange(1200) < 800
    plain = pair_scores(first, second, "cosine")
    fitted = LearnedSimilarity(width=8).fit(first[known], second[known], member[known])
    learned = fitted(first, second)

    def auc(scores: np.ndarray) -> float:
        return value(
            membership_findings([AuxiliaryScores(scores, known)], member, attacker="x"), "auc"
        )

    assert auc(learned) > auc(plain) + 0.05
    blind = LearnedSimilarity(width=8).fit(first[known], second[known], np.roll(member, 1)[known])
    shuffled = np.random.default_rng(2).permutation(member)
    none = value(
        membership_findings([AuxiliaryScores(blind(first, second), known)], shuffled, attacker="x"),
        "auc",
    )
    assert none == pytest.approx(0.5, abs=0.07)


# ---- models that remember


def remembered(model: Any, seen: int) -> list[Finding]:
    texts = texts_of_words(2400)
    member = np.arange(2400) < seen
    windows = match_frequencies(windows_of(texts, member, model[0], 3))
    auxiliary = (np.random.default_rng(4).random(2400) < 0.33)[windows.text]
    scores = window_scores(model[1], windows)
    counts = np.zeros(len(model[0]), dtype=np.int64)
    np.add.at(counts, windows_of(texts, member, model[0], 3).centre, 1)
    tenths = tenths_of_words(windows.centre, counts)
    trials = [AuxiliaryScores(scores, auxiliary)]
    return by_tenth(trials, tenths, windows.member, windows.text, attacker="window-cosine")


def by_subgroup(rows: list[Finding]) -> dict[str, float]:
    return {
        str(row.subgroup): row.value
        for row in rows
        if row.kind == "membership" and row.metric == "auc"
    }


def test_windows_of_rare_words_are_remembered_and_of_frequent_ones_not() -> None:
    half = TRAINING.fit(texts_of_words(2400)[:1200])
    found = by_subgroup(remembered(half, 1200))
    assert found["decile 1 by word frequency"] > 0.6
    assert found["decile 10 by word frequency"] < 0.56


def test_a_model_that_saw_neither_half_tells_nothing() -> None:
    other = TRAINING.fit(texts_of_words(1200, seed=9))
    found = by_subgroup(remembered(other, 1200))
    assert found["decile 1 by word frequency"] == pytest.approx(0.5, abs=0.06)


# ---- bad input


def test_bad_input_is_said_in_one_sentence() -> None:
    with pytest.raises(DataError, match="needs members and non-members"):
        windows_of([["a", "b"]], [True], ["a", "b"])
    with pytest.raises(DataError, match="do not match"):
        windows_of([["a", "b"]], [True, False], ["a", "b"])
    with pytest.raises(DataError, match="another language"):
        windows_of([["x"], ["y"]], [True, False], ["a", "b"])
    member, scores = np.arange(8) % 2 == 0, np.arange(8.0)
    with pytest.raises(DataError, match="auxiliary and scored at once"):
        membership_findings(
            [AuxiliaryScores(scores, np.arange(8) < 4)],
            member,
            attacker="x",
            units=np.arange(8) % 2,
        )
