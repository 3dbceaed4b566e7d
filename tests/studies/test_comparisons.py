"""Differences in pairs: over splits against closed forms, over authors against known crowds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import nct, ttest_rel

from capelet.errors import DataError
from capelet.studies.comparisons import (
    Difference,
    adjust,
    compare_splits,
    compare_victims,
    standardised_effect,
)
from capelet.studies.documents import plain
from capelet.studies.rows import PseudonymGuesses, Row
from capelet.studies.statistics import CONDITIONAL

Array = np.ndarray[Any, Any]


def cell(method: str, values: list[float], **fields: Any) -> list[Row]:
    return [
        Row({"method": method}, seed, "attribute-inference", "gender", "accuracy", value, **fields)
        for seed, value in enumerate(values)
    ]


BEFORE = [0.71, 0.68, 0.74, 0.70, 0.66]
AFTER = [0.60, 0.61, 0.63, 0.58, 0.59]


def test_over_splits_it_is_the_paired_t_test() -> None:
    result = compare_splits(cell("fx", BEFORE), cell("cape", AFTER))
    test = ttest_rel(AFTER, BEFORE)
    assert (result.first, result.second) == ("method = fx", "method = cape")
    assert (result.unit, result.n) == ("split", 5)
    assert result.p == pytest.approx(test.pvalue)
    assert (result.low, result.high) == pytest.approx(tuple(test.confidence_interval()))
    assert result.effect is not None
    d_z = np.mean(np.subtract(AFTER, BEFORE)) / np.std(np.subtract(AFTER, BEFORE), ddof=1)
    # J(4) = Γ(2) / (√2 · Γ(1.5)), which is about 1 − 3/(4·4 − 1) = 0.8.
    assert result.effect.value == pytest.approx(d_z * 0.797885, abs=1e-4)
    assert result.effect.low < result.effect.value < result.effect.high < 0


def test_the_interval_of_hedges_g_holds_the_truth_in_95_of_100() -> None:
    pairs, truth = 8, 0.9
    draws = nct.rvs(
        pairs - 1, truth * np.sqrt(pairs), size=400, random_state=np.random.default_rng(1)
    )
    # Corrected and not, both by the same factor: the truth of g's interval is J·d_z.
    correction = standardised_effect(1.0, pairs).value * np.sqrt(pairs)
    effects = [standardised_effect(float(draw), pairs) for draw in draws]
    inside = [item.low <= truth * correction <= item.high for item in effects]
    assert 0.92 < np.mean(inside) < 0.98
    assert np.mean([item.low <= 0.0 <= item.high for item in effects]) < 0.5
    assert np.mean([item.value for item in effects]) == pytest.approx(truth, abs=0.05)


def test_degenerate_and_lone_splits_are_left_out_and_counted() -> None:
    before, after = cell("fx", BEFORE), cell("cape", AFTER)
    after[1] = replace(after[1], degenerate=True)
    result = compare_splits(before, [*after[:4], replace(after[4], seed=9)])
    assert result.n == 3
    assert result.exclusions.degenerate == 1
    assert set(result.exclusions.missing) == {"split 4", "split 9"}
    with pytest.raises(DataError, match="2 splits to compare, and 3 are needed"):
        compare_splits(before[:2], after[:1] + cell("cape", AFTER)[1:2])


def test_a_pair_whose_victims_are_of_one_class_is_counted_once() -> None:
    before, after = cell("fx", BEFORE), cell("cape", AFTER)
    for rows in (before, after):
        rows[1] = replace(rows[1], degenerate=True, single_class=True)
    result = compare_splits(before, after)
    assert (result.exclusions.degenerate, result.exclusions.single_class) == (0, 1)
    assert result.n == len(BEFORE) - 1


def test_splits_of_two_corpora_are_not_the_same_splits() -> None:
    rows = {
        (method, corpus): [
            replace(row, axes={"method": method, "corpus": corpus}) for row in cell(method, values)
        ]
        for method, values in (("fx", BEFORE), ("cape", AFTER))
        for corpus in ("stance", "blog")
    }
    sides = [rows[method, "stance"] + rows[method, "blog"] for method in ("fx", "cape")]
    assert compare_splits(*sides, blocks=["corpus"]).n == 10
    with pytest.raises(DataError, match="'corpus' varies"):
        compare_splits(*sides)


def test_equal_differences_are_refused() -> None:
    with pytest.raises(DataError, match="same in every split"):
        compare_splits(cell("a", [0.5, 0.6, 0.7]), cell("b", [0.6, 0.7, 0.8]))


def test_another_metric_is_refused() -> None:
    other = [replace(row, metric="auc") for row in cell("cape", AFTER)]
    with pytest.raises(DataError, match="one metric of one target"):
        compare_splits(cell("fx", BEFORE), other)


# ---------------------------------------------------------------------------------------------
# Over authors


def guessed(method: str, hits: Array, authors: Array, seed: int = 0) -> Row:
    """A cell whose attacker is right about these victims; the truth is all of class 0 or 1."""
    victims = np.array([f"v{place:05d}" for place in range(len(hits))])
    truth = np.arange(len(hits)) % 2
    guesses = PseudonymGuesses(victims, authors, truth, np.where(hits, truth, 1 - truth))
    value = float(np.mean(hits))
    return Row(
        {"method": method}, seed, "attribute-inference", "gender", "accuracy", value,
        guesses=guesses,
    )  # fmt: skip


def crowd(people: int, texts: int, random: np.random.Generator, gain: float) -> tuple[Row, Row]:
    """Texts of one person are hit or missed together, by both attackers alike."""
    authors = np.repeat([f"a{place:05d}" for place in range(people)], texts)
    ease = np.repeat(random.random(people), texts)
    return (
        guessed("fx", ease < 0.6, authors),
        guessed("cape", ease + 0.05 * random.normal(size=people * texts) < 0.6 + gain, authors),
    )


def test_over_authors_the_interval_is_of_people_not_of_texts() -> None:
    one, many = (
        compare_victims(*([row] for row in crowd(200, texts, np.random.default_rng(0), 0.1)))
        for texts in (1, 10)
    )
    assert one.n == many.n == 200 and one.unit == "author"
    # Ten times the texts of the same people: the interval stays about as wide.
    assert many.high - many.low > 0.5 * (one.high - one.low)
    before, after = crowd(200, 10, np.random.default_rng(0), 0.1)
    alone = np.array([f"x{place}" for place in range(2000)])
    lonely = [
        [replace(row, guesses=replace(row.guesses, authors=alone))]
        for row in (before, after)
        if row.guesses is not None
    ]
    texts_as_people = compare_victims(*lonely)
    assert texts_as_people.high - texts_as_people.low < 0.5 * (many.high - many.low)


def test_pairs_are_surer_than_two_intervals() -> None:
    before, after = crowd(300, 1, np.random.default_rng(2), 0.1)
    result = compare_victims([before], [after])
    hits = [row.guesses.truth == row.guesses.guess for row in (before, after) if row.guesses]
    apart = np.sqrt(sum(np.var(item) / 300 for item in hits))
    assert result.value == pytest.approx(after.value - before.value)
    assert result.high - result.low < 2 * 1.96 * apart
    assert result.low > 0 and result.p < 0.05


def test_the_interval_holds_the_truth_and_p_alarms_rarely() -> None:
    random = np.random.default_rng(4)
    results = [compare_victims(*crowd_pair) for crowd_pair in _nulls(random, 150)]
    assert np.mean([item.low <= 0 <= item.high for item in results]) >= 0.90
    assert 0.005 <= np.mean([item.p < 0.05 for item in results]) <= 0.10


def _nulls(random: np.random.Generator, count: int) -> list[tuple[list[Row], list[Row]]]:
    authors = np.array([f"a{place:03d}" for place in range(80)])
    return [
        tuple([guessed(name, random.random(80) < 0.6, authors)] for name in ("a", "b"))  # type: ignore[misc]
        for _ in range(count)
    ]


def test_a_person_in_two_splits_is_one_person() -> None:
    pairs = [crowd(100, 1, np.random.default_rng(7), 0.1) for _ in range(2)]
    twice = compare_victims(
        *([replace(pair[side], seed=seed) for seed, pair in enumerate(pairs)] for side in (0, 1))
    )
    once = compare_victims([pairs[0][0]], [pairs[0][1]])
    assert twice.n == once.n == 100
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))


def test_cells_with_other_victims_or_guesses_are_refused() -> None:
    before, after = crowd(50, 1, np.random.default_rng(0), 0.1)
    assert before.guesses is not None and after.guesses is not None
    names = np.array([f"w{place:05d}" for place in range(50)])
    stranger = replace(after, guesses=replace(after.guesses, victims=names))
    with pytest.raises(DataError, match="different victims in split 0"):
        compare_victims([before], [stranger])
    # The order of victims is of no account.
    order = np.random.default_rng(1).permutation(50)
    guesses = after.guesses
    permuted = PseudonymGuesses(
        guesses.victims[order], guesses.authors[order], guesses.truth[order], guesses.guess[order]
    )
    same = compare_victims([before], [replace(after, guesses=permuted)])
    assert same == compare_victims([before], [after])
    with pytest.raises(DataError, match="not of one measurement"):
        compare_victims([before], [replace(after, value=0.123)])
    with pytest.raises(DataError, match="no guesses"):
        compare_victims([before], [replace(after, guesses=None)])
    scores = [replace(row, metric="auc") for row in (before, after)]
    with pytest.raises(DataError, match="'auc' is not computed from the classes guessed"):
        compare_victims(scores[:1], scores[1:])


def test_identical_cells_do_not_differ() -> None:
    before, _ = crowd(50, 1, np.random.default_rng(0), 0.1)
    result = compare_victims([before], [replace(before, axes={"method": "copy"})])
    assert (result.value, result.low, result.high, result.p) == (0.0, 0.0, 0.0, 1.0)


# ---------------------------------------------------------------------------------------------
# Holm


def difference(p: float) -> Difference:
    return Difference("a", "b", "utility", "stars", "accuracy", "split", 0.1, 0.0, 0.2, p, 5)


def test_holm() -> None:
    """Holm by hand: 4·0.005, 3·0.011, 2·0.02 and 1·0.04, never falling."""
    family = adjust([difference(p) for p in (0.011, 0.04, 0.005, 0.02)])
    values = [item.p_holm for item in family]
    assert values == pytest.approx([0.033, 0.04, 0.02, 0.04])
    assert [item.p for item in family] == [0.011, 0.04, 0.005, 0.02]
    assert adjust([]) == ()


def test_the_record_is_json_without_anybody_in_it() -> None:
    before, after = crowd(50, 1, np.random.default_rng(0), 0.1)
    text = json.dumps(plain(compare_victims([before], [after])))
    assert "v0000" not in text and "a0000" not in text
    assert CONDITIONAL in json.loads(text)["note"]
