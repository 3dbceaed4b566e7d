"""The table of outcomes is exact where a release takes few values: a finding even when constant."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import capelet
from capelet.attacks.attribute import Candidate, Secret, View, attack
from capelet.attacks.outcomes import MOST_OUTCOMES, OutcomeTable, attack_outcomes, countable
from capelet.data.corpus import Corpus
from capelet.errors import DataError
from capelet.evaluation.access import Access, access_of
from capelet.evaluation.leakage import attack_all, findings_of
from capelet.evaluation.plan import Plan
from capelet.findings import Finding, Findings
from capelet.findings.verdicts import Outcome, classify
from capelet.interfaces import silent
from capelet.mechanisms import Laplace, Projection, RandomisedResponse
from capelet.release import PrivateEncoder
from capelet.release.seeded import SeededEncoder
from capelet.reports.answers import answers
from capelet.reports.audit import audit_page
from capelet.reports.kinds.attribute_inference import verdicts
from capelet.reports.markdown import draw_markdown

ROWS = 1500


def corpus(told: float, rows: int = ROWS, classes: int = 2) -> Corpus:
    """Scores of three symbols; a share `told` of the texts has the symbol of its secret."""
    random = np.random.default_rng(3)
    secret = random.integers(0, classes, rows)
    symbol = np.where(random.random(rows) < told, secret, random.integers(0, 3, rows))
    names = np.array([f"class {code}" for code in secret], dtype=object)
    # Different scores of each text: equal vectors would be kept together by a split.
    vectors = np.eye(3, dtype=np.float32)[symbol] + random.random((rows, 3), dtype=np.float32) / 4
    return Corpus("made", texts=None, vectors=vectors, private={"secret": names})


class Constant:
    """A fitted attacker that has learnt nothing, and names the first class always."""

    name = "constant"
    grid = ({},)

    def fit(self, view: View, secret: Secret, settings: Any) -> Candidate:
        parts = (np.tile(np.eye(secret.classes)[0], (len(rows), 1)) for rows in view.rows[1:])
        return Candidate(settings, *parts)


def measured(source: Corpus, *steps: Any, seeds: int = 2) -> list[Finding]:
    """The findings of a release that a constant guesser attacks."""
    plan, private = Plan.of(source, seeds=seeds), PrivateEncoder(*steps)
    encoders = [SeededEncoder.of(private, parts.seed) for parts in plan.splits]
    releases = [item.release(source.vectors) for item in encoders]
    access = access_of(encoders, source.vectors, source.vectors)
    vectors = [item.vectors for item in releases]
    tally = attack_all(replace(plan, attackers=(Constant(),)), vectors, silent, access)
    return findings_of(plan, releases[0], tally)


def row_of(rows: list[Finding], attacker: str = "strongest", kind: str = "") -> Finding:
    (row,) = (
        row
        for row in rows
        if (row.kind, row.attacker) == ("attribute-inference" + kind, attacker)
        and row.metric == "balanced_accuracy"
    )
    return row


# ---- the table -----------------------------------------------------------------------------------


def view_of(values: list[int], own: int) -> View:
    vectors = np.array(values, dtype=np.float32)[:, None]
    rows = np.arange(len(values))
    return View(vectors, rows[:own], rows[:0], rows[own:], seed=0)


def test_the_guess_is_the_class_in_which_the_value_is_commonest() -> None:
    """By shares, not by counts: value 1 is commoner among the few of the rare class."""
    values = [0] * 60 + [1] * 30 + [0] * 3 + [1] * 7
    codes = np.array([0] * 90 + [1] * 10 + [0, 0, 0])
    view = view_of([*values, 0, 1, 2], own=100)
    candidate = OutcomeTable(3).fit(view, Secret(view, codes, 2), {})
    assert candidate.scored.argmax(axis=1)[:2].tolist() == [0, 1]
    # P(1|rare) = 7/10 against 3/9: classes weigh alike, half a row of 100 more in each cell.
    own = 50 * np.array([30 / 90, 7 / 10]) + 0.5
    np.testing.assert_allclose(candidate.scored[1], own / own.sum(), atol=1e-6)
    # Of a value that no own row had nothing is known.
    np.testing.assert_allclose(candidate.scored[2], 0.5, atol=1e-6)


def test_values_that_are_equal_in_all_classes_are_not_all_guessed_alike() -> None:
    view = view_of([0, 1] * 20 + [0, 1], own=40)
    codes = np.array([0, 0, 1, 1] * 10 + [0, 1])
    scored = OutcomeTable(2).fit(view, Secret(view, codes, 2), {}).scored
    assert set(scored.argmax(axis=1)) == {0, 1}


def test_more_values_than_the_step_says_are_refused() -> None:
    view = view_of([0, 1, 2, 3], own=3)
    with pytest.raises(DataError, match="at most 2 values, and 4 different ones"):
        OutcomeTable(2).fit(view, Secret(view, np.array([0, 1, 0, 1]), 2), {})


def test_zero_is_one_value_whatever_its_sign() -> None:
    view = view_of([0, 1, 0, 1], own=2)
    view.vectors.scored[0] = -0.0
    guesses = OutcomeTable(2).fit(view, Secret(view, np.array([0, 1, 0, 1]), 2), {}).scored
    assert guesses.argmax(axis=1).tolist() == [0, 1]


def test_the_table_reads_what_the_best_possible_attacker_reads() -> None:
    """(1/m)·Σ_v max_c P(v|c), of symbols that are the secret with probability 0.4, else a third."""
    source = corpus(told=0.4, rows=40_000)
    assert source.vectors is not None
    secret = np.array([int(str(name)[-1]) for name in source.private["secret"]])
    rows = np.arange(len(secret))
    view = View(source.vectors.round(), rows[:20_000], rows[:0], rows[20_000:], seed=0)
    result = attack_outcomes(view, Secret(view, secret, 2), OutcomeTable(3))
    best = (0.4 + 0.6 / 3) * 2 + 0.6 / 3
    assert result.strongest == "outcomes"
    assert result.quality["outcomes"] == pytest.approx(best / 2, abs=0.015)


def test_only_so_many_values_can_be_counted() -> None:
    assert countable(MOST_OUTCOMES) == 64 and countable(65) is None and countable(None) is None


# ---- what a recipe says --------------------------------------------------------------------------


def test_a_recipe_says_whether_its_release_takes_few_values(tmp_path: Any) -> None:
    label = RandomisedResponse(1.0, 3)
    assert PrivateEncoder(label).outcomes == 3
    assert PrivateEncoder(label, Projection(8), Projection(4)).outcomes == 3
    assert PrivateEncoder(Projection(3), label).outcomes == 3
    assert SeededEncoder.of(PrivateEncoder(label, Projection(8)), 1).outcomes == 3
    for steps in ((), (Laplace(1.0),), (label, Laplace(1.0)), (Projection(3),)):
        assert PrivateEncoder(*steps).outcomes is None
    file = tmp_path / "recipe.toml"
    file.write_text(PrivateEncoder(label, Projection(8)).to_recipe())
    assert PrivateEncoder.from_recipe(file).outcomes == 3
    # What is audited is known from the steps, never from what happened to be released.
    (finite,) = access_of([PrivateEncoder(label)], np.eye(3), None)
    (ready,) = access_of([PrivateEncoder()], np.eye(3), None)
    assert (finite.outcomes, ready.outcomes, Access().outcomes) == (3, None, None)


def test_a_step_that_may_mix_rows_has_no_bound_of_those_before_it() -> None:
    class Ranks:
        consumes = emits = "vectors"
        guarantee = None

        def __call__(self, batch: Any) -> Any:
            return batch.argsort(axis=0)

    assert PrivateEncoder(RandomisedResponse(1.0, 3), Ranks()).outcomes is None  # type: ignore[arg-type]


# ---- findings ------------------------------------------------------------------------------------


def test_a_planted_leak_is_found_where_a_fitted_attacker_learns_nothing() -> None:
    rows = measured(corpus(told=0.6), RandomisedResponse(6.0, 3))
    strongest = row_of(rows)
    assert classify(strongest).outcome is Outcome.LEAK
    assert strongest.parameters["chosen"] == {"outcomes": 2}
    # The constant guesser stands beside it, and is what it is.
    assert row_of(rows, "constant").degenerate and row_of(rows, "constant").value == 0.5
    assert row_of(rows, "outcomes").value == strongest.value
    null = row_of(rows, kind="-null")
    assert null.low is not None and null.low <= 0.5


def test_gaining_nothing_is_a_finding_on_a_finite_release_and_none_on_an_infinite_one() -> None:
    source = corpus(told=0.0, rows=6000)
    finite = row_of(measured(source, RandomisedResponse(1.0, 3)))
    assert not finite.degenerate and classify(finite).outcome is Outcome.NO_LEAK_FOUND
    infinite = row_of(measured(source, Laplace(1.0)))
    assert infinite.degenerate and classify(infinite).outcome is Outcome.INCONCLUSIVE


def test_a_map_behind_a_finite_release_changes_nothing() -> None:
    source = corpus(told=0.6)
    plain = row_of(measured(source, RandomisedResponse(6.0, 3)))
    mapped = row_of(measured(source, RandomisedResponse(6.0, 3), Projection(5)))
    assert classify(mapped).outcome is Outcome.LEAK
    assert mapped.value == pytest.approx(plain.value, abs=0.03)


class OneValue:
    """A step after which every text is the same."""

    consumes = emits = "vectors"
    guarantee = None
    isolates_rows = True
    outcomes = 1

    def __call__(self, batch: Any) -> Any:
        return np.ones((len(batch), 2), dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        return {"step": "one"}


def test_one_value_for_all_shows_no_leak_with_room_for_values_that_did_not_come() -> None:
    (row,) = [row_of(measured(corpus(told=1.0), OneValue()))]
    assert (row.value, row.low, row.degenerate) == (0.5, 0.5, False)
    # Wilson's interval of none of the victims of each class: 300 of 1,500, of two classes.
    people = row.parameters["people"]
    assert row.high == pytest.approx(0.5 + 3.8415 / (people / 2 + 3.8415), rel=0.1)
    assert classify(row).outcome is Outcome.NO_LEAK_FOUND
    few = row_of(measured(corpus(told=1.0, rows=60), OneValue()))
    assert classify(few).outcome is Outcome.INCONCLUSIVE


def test_three_classes_behind_two_symbols_are_not_called_too_wide() -> None:
    """The demo's case: ages in thirds, a symbol of two, and 33.3–33.3 beside "too wide"."""
    source = corpus(told=0.0, rows=6000, classes=3)
    before = Findings(tuple(measured(source, RandomisedResponse(4.0, 3))))
    after = Findings(tuple(measured(source, OneValue())))
    assert [item.outcome for item in verdicts(after)] == [Outcome.NO_LEAK_FOUND]
    words = " ".join(str(item) for item in answers(before, after))
    assert "too wide" not in words
    # On an infinite release constant guesses are named for what they are.
    constant = Findings(tuple(measured(source, Laplace(1.0))))
    said = " ".join(str(item) for item in answers(before, constant))
    assert "too wide" not in said and "the same answer" in said


def test_an_audit_of_a_noisy_label_is_read_by_the_table() -> None:
    """The door: what a user calls, with an attacker named."""
    source = corpus(told=0.6)
    private = PrivateEncoder(RandomisedResponse(3.0, 3))
    findings = capelet.audit(source, private, seeds=1, attackers=("logistic",))
    (verdict,) = verdicts(findings)
    assert verdict.outcome is Outcome.LEAK and "table" in verdict.sentence
    row = row_of(list(findings))
    assert row.parameters["draws"] == [16] and not math.isnan(row.value)
    ((name, times),) = row.parameters["chosen"].items()
    assert (name, times) == ("outcomes", 1)


def test_a_page_says_that_the_table_is_exact_and_was_not_chosen() -> None:
    findings = Findings(tuple(measured(corpus(told=0.6), RandomisedResponse(6.0, 3))))
    page = draw_markdown(audit_page(findings))
    assert "Strongest: the table of outcomes, which is exact" in page
    assert "here the strongest is the table of how often each value" in page
    # The table is none of the families that are chosen among.
    assert "attackers learn to name" in page and "families of attackers" not in page
    fitted = Findings(tuple(measured(corpus(told=0.6), Laplace(50.0))))
    assert "the table of" not in draw_markdown(audit_page(fitted))


def test_fitted_attackers_keep_their_way_on_infinite_releases() -> None:
    source = corpus(told=0.6)
    assert source.vectors is not None
    secret = np.array([int(str(name)[-1]) for name in source.private["secret"]])
    rows = np.arange(ROWS)
    view = View(source.vectors, rows[:900], rows[:0], rows[900:], seed=0)
    assert attack(view, Secret(view, secret, 2), [Constant()]).strongest == "constant"  # type: ignore[list-item]
