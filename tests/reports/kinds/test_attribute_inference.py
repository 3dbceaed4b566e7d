"""Verdicts say what the numbers say: levels at their boundaries, controls, honest words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from capelet.findings import Finding, Findings
from capelet.reports import overall, verdicts
from capelet.reports.kinds import report_of
from capelet.reports.kinds.attribute_inference import needs, unmeasured_attributes

Leak = Callable[..., Finding]
tasks, gaps = (report_of(kind).sentences for kind in ("utility", "fairness"))


def level(
    leak: Leak, value: float, low: float | None, chance: float = 0.5, degenerate: bool = False
) -> str:
    row = leak("gender", value, low=low, high=value + 0.01, chance=chance, degenerate=degenerate)
    (verdict,) = verdicts(Findings((row,)))
    return verdict.level


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (0.01, "slight"),
        (0.049, "slight"),
        (0.05, "clear"),
        (0.149, "clear"),
        (0.15, "strong"),
        (0.4, "strong"),
    ],
)
@pytest.mark.parametrize("chance", [0.5, 1 / 3, 0.2, 0.1])
def test_the_level_follows_the_gain_whatever_chance_is(
    leak: Leak, gain: float, expected: str, chance: float
) -> None:
    assert level(leak, chance + gain, low=chance + gain / 2, chance=chance) == expected


def test_an_interval_that_reaches_chance_is_no_leak_shown(leak: Leak) -> None:
    assert level(leak, 0.7, low=0.5) == "inconclusive"
    assert level(leak, 0.7, low=0.499) == "inconclusive"
    assert level(leak, 0.7, low=0.501) == "strong"
    assert level(leak, 0.4, low=0.35) == "none"


def test_constant_guesses_are_inconclusive_and_no_evidence(leak: Leak) -> None:
    row = leak("gender", 0.5, low=0.5, high=0.5, degenerate=True)
    (verdict,) = verdicts(Findings((row,)))
    assert verdict.level == "inconclusive" and verdict.people_needed is None
    assert verdict.title == "inconclusive, all guesses the same"
    assert "no evidence that there is no leak" in verdict.sentence


def test_one_constant_seed_of_five_does_not_hide_a_leak(leak: Leak) -> None:
    by_seed = [0.97, 0.97, 0.97, 0.5, 0.97]
    about = {"by_seed": by_seed, "constant_seeds": 1}
    row = leak("gender", 0.88, low=0.85, high=0.91, parameters=about)
    (verdict,) = verdicts(Findings((row,)))
    assert verdict.title == "strong leak"
    assert "In 1 of 5 seeds it gave every text the same answer." in verdict.sentence
    # Nor does a flag on the row as a whole.
    (flagged,) = verdicts(Findings((replace(row, degenerate=True, parameters={}),)))
    assert flagged.title == "strong leak"


def test_a_wide_interval_is_inconclusive_and_says_how_many_people_it_takes(leak: Leak) -> None:
    row = leak("gender", 0.66, low=0.46, high=0.86, n=40)
    (verdict,) = verdicts(Findings((row,)))
    assert verdict.title == verdict.outcome == "inconclusive"
    assert "inconclusive: the interval leaves room for a gain of up to 36 points" in (
        verdict.sentence
    )
    # 0.2 must become less than the gain of 0.16: 40 · (0.2 / 0.16)² = 62.5.
    assert verdict.people_needed == 63
    assert "About 63 people among the victims would decide it" in verdict.sentence
    assert overall(Findings((row,))) == "Whether “gender” leaks is inconclusive."


def test_without_an_interval_nothing_is_shown(leak: Leak) -> None:
    for value in (0.7, 0.5):
        row = leak("gender", value, low=None, high=None)
        (verdict,) = verdicts(Findings((row,)))
        assert verdict.level == "inconclusive" and "without an interval" in verdict.sentence


def test_the_sentence_of_a_strong_leak(findings: Findings) -> None:
    gender = verdicts(findings)[0]
    assert gender.sentence == (
        "gender: 78 % balanced accuracy (95 % interval 76–81 %) against 50 % by chance; "
        "the attacker gains 28 points. "
        "The predicted task label alone gives 55 %, the text itself 81 %."
    )
    assert gender.title == "strong leak"
    assert gender.gain == pytest.approx(0.284)
    assert gender.figures.low_gain == pytest.approx(0.26)


def test_no_leak_found_names_the_room_that_the_interval_leaves(findings: Findings) -> None:
    region = verdicts(findings)[2]
    assert region.level == "none"
    assert "no leak found, but the interval leaves room for a gain of up to 2.5 points" in (
        region.sentence
    )


def test_a_gain_never_contradicts_the_rounded_numbers_beside_it(leak: Leak) -> None:
    row = leak("age", 0.715, low=0.7, high=0.73, chance=1 / 3)
    (verdict,) = verdicts(Findings((row,)))
    # 72 − 33 is 39, and 38.2 rounds to 38: with a decimal they agree.
    assert "71.5 % balanced accuracy" in verdict.sentence
    assert "against 33.3 % by chance; the attacker gains 38.2 points" in verdict.sentence


def _with_null(leak: Leak, value: float, low: float, high: float) -> Findings:
    null = leak("gender", value, low=low, high=high, kind="attribute-inference-null")
    return Findings((leak("gender", 0.7), null))


@pytest.mark.parametrize(
    ("value", "low", "high", "warns"),
    [
        (0.504, 0.48, 0.53, False),
        (0.52, 0.501, 0.54, True),  # above chance beyond doubt, however little
        (0.54, 0.49, 0.59, False),  # far, but the interval includes chance
        (0.425, 0.398, 0.451, False),  # below chance, however far, nothing leaks
        (0.48, 0.47, 0.49, False),
    ],
)
def test_a_null_control_above_chance_warns(
    leak: Leak, value: float, low: float, high: float, warns: bool
) -> None:
    run = _with_null(leak, value, low, high)
    (verdict,) = verdicts(run)
    assert bool(verdict.warnings) is warns
    assert ("The protocol leaks" in verdict.sentence) is warns
    assert ("There is a warning about “gender”" in overall(run)) is warns


def test_a_score_above_the_ceiling_warns_that_the_guarantee_fails(leak: Leak) -> None:
    (verdict,) = verdicts(Findings((leak("gender", 0.9, low=0.88, ceiling=0.73),)))
    assert "The guarantee does not hold as stated" in verdict.sentence
    (verdict,) = verdicts(Findings((leak("gender", 0.7, low=0.68, ceiling=0.73),)))
    assert "permits nobody more than 73 %" in verdict.sentence
    assert not verdict.warnings


def test_the_overall_sentence_names_every_attribute_once(leak: Leak, findings: Findings) -> None:
    assert overall(findings) == (
        "The vectors give away “gender” strongly and “age group” clearly; "
        "no leak of “region” was found."
    )
    assert "not proof" in overall(Findings((leak("gender", 0.5),)))
    assert "says nothing about leaks" in overall(Findings(()))


def test_a_mean_over_seeds_goes_before_single_seeds_and_subgroups(leak: Leak) -> None:
    rows = (
        leak("gender", 0.9, seed=3),
        leak("gender", 0.8, subgroup="age=old"),
        leak("gender", 0.7),
    )
    (verdict,) = verdicts(Findings(rows))
    assert verdict.value == 0.7


def test_needs_are_read_off_the_learning_curve(leak: Leak, findings: Findings) -> None:
    gender, age, region = needs(findings)
    assert gender.startswith("gender: 20 labelled texts per class and logistic regression")
    assert age.startswith("age group: 20 labelled texts")
    assert region == "region: no leak found with all of the attacker’s labelled texts."
    curve = {"labels_per_class": [10, 50], "value": [0.51, 0.52], "chance": 0.5}
    slow = Findings(
        (leak("gender", 0.8),), artefacts={"learning_curve": {"curves": {"gender": curve}}}
    )
    assert "50 labelled texts per class give logistic regression less than half" in needs(slow)[0]


def test_tasks_and_gaps_in_words(findings: Findings) -> None:
    assert tasks(findings) == [
        "stars: 86 % (95 % interval 84–88 %) accuracy against 61 % for always naming the "
        "commonest class; the text itself (TF-IDF) gives 89 %."
    ]
    assert gaps(findings)[0] == (
        "Between the groups of gender the accuracy differs by up to 2.6 points."
    )
    useless = Finding(
        "utility", "stars", "accuracy", 0.61, 0.59, 0.63, majority=0.61, attacker="strongest"
    )
    assert "do not serve this task" in tasks(Findings((useless,)))[0]
    kept = Finding("utility", "neighbours", "recall_at_10", 0.42)
    assert tasks(Findings((kept,))) == [
        "42 % of each victim’s ten nearest neighbours among the victims are still its neighbours."
    ]


def test_attributes_without_a_measurement_are_named(findings: Findings) -> None:
    assert unmeasured_attributes(findings) == []
    asked = {**findings.provenance, "attributes": {"gender": {}, "income": {}}}
    assert unmeasured_attributes(replace(findings, provenance=asked)) == ["income"]
