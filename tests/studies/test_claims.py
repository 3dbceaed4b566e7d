"""Claims hold, fail or cannot be tested, by the interval over splits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from capelet.errors import CapeletError
from capelet.studies.claims import FAILS, HOLDS, UNTESTED, Claim
from capelet.studies.documents import read_entry
from capelet.studies.rows import Row

MEASURE = {"kind": "attribute-inference", "target": "gender", "metric": "balanced_accuracy"}


def value(method: str, seed: int, score: float, **axes: Any) -> Row:
    levels = {"method": method, "corpus": "tiny", **axes}
    kind, target, metric = MEASURE["kind"], MEASURE["target"], MEASURE["metric"]
    return Row(levels, seed, kind, target, metric, score)


def claim(**parts: Any) -> Claim:
    entry = {"text": "cape leaks less", "of": {"method": "cape"}, "than": {"method": "ldp"}}
    return read_entry(Claim, {**entry, "measure": MEASURE, **parts}, "claims")


def scores(ours: list[float], theirs: list[float]) -> list[Row]:
    pairs = enumerate(zip(ours, theirs, strict=True))
    return [v for s, (a, b) in pairs for v in (value("cape", s, a), value("ldp", s, b))]


CLEAR = scores([0.50, 0.61, 0.72], [0.60, 0.72, 0.82])


def test_a_direction_holds_fails_or_stays_open() -> None:
    # Splits differ much more than methods do; within a split the difference is plain.
    ruling = claim(relation="lower").rule(CLEAR)
    assert ruling.verdict == HOLDS and ruling.pairs == 3
    assert ruling.value == pytest.approx(-0.31 / 3)
    assert claim(relation="higher").rule(CLEAR).verdict == FAILS
    assert claim(relation="lower", margin=0.2).rule(CLEAR).verdict == FAILS
    open_scores = scores([0.5, 0.7, 0.6], [0.6, 0.6, 0.6])
    assert claim(relation="lower").rule(open_scores).verdict == UNTESTED


def test_equality_and_bands() -> None:
    same = scores([0.60, 0.71, 0.82], [0.601, 0.709, 0.821])
    assert claim(relation="equal", margin=0.02).rule(same).verdict == HOLDS
    assert claim(relation="equal", margin=0.02).rule(CLEAR).verdict == FAILS
    band = {"text": "near .6", "of": {"method": "cape"}, "measure": MEASURE, "relation": "within"}
    assert read_entry(Claim, {**band, "band": [0, 1]}, "claims").rule(CLEAR).verdict == HOLDS
    assert read_entry(Claim, {**band, "band": [2, 3]}, "claims").rule(CLEAR).verdict == FAILS


def test_the_same_difference_in_every_split_leaves_its_spread_unknown() -> None:
    # 2 canaries of 8 in each split: the next one may have 1 or 3.
    ruling = claim(relation="lower").rule(scores([0.0, 0.0, 0.0], [0.25, 0.25, 0.25]))
    assert ruling.verdict == UNTESTED and "spread" in ruling.why
    # Two releases that are guessed alike, victim by victim, are equal; a share of 1 may be reached.
    alike = scores([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
    assert claim(relation="equal", margin=0.02).rule(alike).verdict == HOLDS
    band = {"text": "all", "of": {"method": "ldp"}, "measure": MEASURE, "relation": "within"}
    whole = scores([0.5, 0.6, 0.7], [1.0, 1.0, 1.0])
    assert read_entry(Claim, {**band, "band": [0.9, 1.1]}, "claims").rule(whole).verdict == HOLDS


def test_one_split_shows_nothing_and_neither_does_another_measure() -> None:
    ruling = claim().rule(CLEAR[:2])
    assert ruling.verdict == UNTESTED and "1 split" in ruling.why
    other = claim(measure={**MEASURE, "target": "age"})
    assert other.rule(CLEAR).verdict == UNTESTED


def test_only_cells_that_else_are_the_same_are_compared() -> None:
    rows = [value("cape", s, 0.5 + s / 10, epsilon=8) for s in range(3)]
    rows += [value("ldp", s, 0.69 + s * 0.11, epsilon=8) for s in range(3)]
    # Another ε would turn the direction around, were it taken for the partner.
    rows += [value("ldp", s, 0.1, epsilon=1) for s in range(3)]
    ruling = claim().rule(rows)
    assert ruling.verdict == HOLDS and ruling.value == pytest.approx(-0.2)
    # "Unprotected" has no ε, and is the partner of every one.
    bare = [value("unprotected", s, 0.9) for s in range(3)]
    against = claim(than={"method": "unprotected"}).rule([*rows, *bare])
    assert against.pairs == 3 and against.value == pytest.approx(-0.3)


def test_a_side_may_name_its_own_kind_and_differences_may_be_shares() -> None:
    rows = [value("cape", s, 0.4 + s / 100) for s in range(3)]
    reference = "attribute-inference-reference"
    text = [replace(r, kind=reference, value=r.value / (1.99 + r.seed / 100)) for r in rows]
    sides = {"of": {"method": "cape"}, "than": {"kind": reference}}
    twice = claim(relation="within", band=[0.5, 2.0], scale="relative", **sides)
    ruling = twice.rule([*rows, *text])
    assert ruling.verdict == HOLDS and ruling.value == pytest.approx(1.0, abs=1e-4)
    # The control: without the scale it is a difference of 0.2, outside the band.
    assert claim(relation="within", band=[0.5, 2.0], **sides).rule([*rows, *text]).verdict == FAILS
    lower = claim(
        relation="lower",
        scale="relative",
        of={"kind": reference},
        than={"kind": "attribute-inference"},
    )
    assert lower.rule([*rows, *text]).value == pytest.approx(-0.5, abs=1e-4)
    # Of nothing nothing is a share.
    none = [replace(row, value=0.0) for row in text]
    assert twice.rule([*rows, *none]).pairs == 0


def test_what_cannot_be_tested_says_why_and_surprises_are_seen() -> None:
    ruling = claim(untestable="the corpus is not public", expected=UNTESTED).rule(CLEAR)
    assert (ruling.verdict, ruling.why) == (UNTESTED, "the corpus is not public")
    assert not ruling.surprising
    expected = claim(expected={"small": FAILS})
    assert expected.rule(CLEAR, "small").surprising
    assert not expected.rule(CLEAR, "full").surprising


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"relation": "lowr"}, "did you mean 'lower'"),
        ({"expected": "hold"}, "did you mean 'holds'"),
        ({"measure": {"kind": "utility"}}, "kind and metric"),
        ({"measure": {**MEASURE, "metrc": "f1"}}, "did you mean 'metric'"),
        ({"relation": "within"}, "band"),
        ({"band": [0, 1]}, "band"),
        ({"than": None, "relation": "within", "band": [0, 1], "scale": "relative"}, "band"),
        ({"scale": "relativ"}, "did you mean 'relative'"),
        ({"margn": 1}, "did you mean 'margin'"),
    ],
)
def test_slips_in_claims_are_refused(parts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CapeletError, match=sentence):
        claim(**parts)


def test_constant_guesses_count_for_a_task_and_not_for_a_secret() -> None:
    rows = [replace(row, degenerate=row.axes["method"] == "cape") for row in CLEAR]
    assert claim().rule(rows).verdict == UNTESTED
    task = [replace(row, kind="utility", target="stars") for row in rows]
    measure = {"kind": "utility", "target": "stars", "metric": "balanced_accuracy"}
    assert claim(measure=measure).rule(task).verdict == HOLDS


def test_victims_of_one_class_count_for_nothing() -> None:
    """Of them a constant guess is right always: neither a leak nor what a release is worth."""
    marks = {"degenerate": True, "single_class": True}
    rows = [replace(row, **(marks if row.seed == 2 else {})) for row in CLEAR]
    assert claim().rule(rows).pairs == 2 and claim().rule(CLEAR).pairs == 3
    task = [replace(row, kind="utility", target="stars") for row in rows]
    measure = {"kind": "utility", "target": "stars", "metric": "balanced_accuracy"}
    assert claim(measure=measure).rule(task).pairs == 2


def test_an_axis_that_a_side_does_not_have_can_be_named() -> None:
    rows = [value("none", s, 0.9) for s in range(3)]
    rows += [value("dpsgd", s, 0.5 + s / 100, epsilon=8) for s in range(3)]
    rows += [value("dpsgd", s, 0.8 + s / 100, noise=0.02) for s in range(3)]
    sides = {"of": {"method": "dpsgd", "epsilon": "–", "noise": 0.02}, "than": {"method": "none"}}
    assert claim(**sides).rule(rows).value == pytest.approx(-0.09)
    with_epsilon = {**sides, "of": {"method": "dpsgd", "epsilon": 8}}
    assert claim(**with_epsilon).rule(rows).value == pytest.approx(-0.39)


def test_subgroups_count_only_where_a_claim_names_them() -> None:
    rare = [
        replace(row, axes={**row.axes, "subgroup": "rare"}, value=1 - row.value) for row in CLEAR
    ]
    assert claim(relation="lower").rule([*CLEAR, *rare]).verdict == HOLDS
    sides = {
        "of": {"method": "cape", "subgroup": "rare"},
        "than": {"method": "ldp", "subgroup": "rare"},
    }
    assert claim(relation="higher", **sides).rule([*CLEAR, *rare]).verdict == HOLDS


def test_a_difference_beyond_that_of_other_cells_is_taken_split_by_split() -> None:
    rows = [
        value(method, seed, score + 0.1 * seed, encoder=encoder)
        for seed in range(3)
        for encoder, method, score in (
            ("large", "ldp", 0.60), ("large", "cape", 0.50 + 0.001 * seed),
            ("small", "ldp", 0.55), ("small", "cape", 0.53),
        )
    ]  # fmt: skip
    sides = {
        "of": {"method": "cape", "encoder": "large"},
        "than": {"method": "ldp", "encoder": "large"},
    }
    ruling = claim(**sides, beyond={"encoder": "small"}).rule(rows)
    # −0.10 of the large one, −0.02 of the small one.
    assert ruling.verdict == HOLDS and ruling.value == pytest.approx(-0.08 + 0.001)
    assert claim(**sides, beyond={"encoder": "small"}, margin=0.09).rule(rows).verdict == FAILS
    # The control: beyond itself there is nothing.
    itself = claim(**sides, beyond={"encoder": "large"}).rule(rows)
    assert itself.verdict == FAILS and itself.value == pytest.approx(0)
    with pytest.raises(CapeletError, match="nothing to compare"):
        claim(than=None, relation="within", band=[0, 1], beyond={"encoder": "small"})


def test_a_claim_is_about_the_attacker_that_was_chosen_unless_it_names_one() -> None:
    def candidates(name: str, shift: float) -> list[Row]:
        return [
            replace(
                row,
                value=row.value + shift * (1 + row.seed / 10),
                axes={**row.axes, "attacker": name},
                candidate=True,
            )
            for row in CLEAR
        ]

    choice = [replace(row, winner="undo") for row in CLEAR]
    # Candidates of `cape` that read much more would turn the verdict, were they counted.
    others = candidates("undo", 0.0) + candidates("logistic", 0.2)
    rows = choice + [row for row in others if row.axes["method"] == "cape"]
    assert claim(relation="lower").rule(rows) == claim(relation="lower").rule(choice)
    sides = {"of": {"method": "cape", "attacker": "undo"},
             "than": {"method": "cape", "attacker": "logistic"}}  # fmt: skip
    ruling = claim(relation="lower", **sides).rule(rows)
    assert ruling.verdict == HOLDS and ruling.value == pytest.approx(-0.22)
    strongest = claim(relation="lower", measure={**MEASURE, "attacker": "strongest"})
    assert strongest.rule(rows).value == claim(relation="lower").rule(choice).value
