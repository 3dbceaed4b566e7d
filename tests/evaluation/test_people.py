"""People in an audit: a leak that is weak in a text and strong in a person, and its controls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.evaluation.ceilings import bound_of
from capelet.evaluation.plan import Plan, author_numbers, changing_authors
from capelet.findings import Finding, Findings
from capelet.findings.verdicts import Outcome
from capelet.mechanisms import Gaussian
from capelet.privacy.composition import person_ceiling
from capelet.release import PrivateEncoder
from capelet.reports import all_verdicts
from capelet.workflows.audit import audit

PEOPLE, KIND = 400, "person-inference"


def column(values: Any) -> np.ndarray:
    return np.array([None if item is None else str(item) for item in values], dtype=object)


def crowd(shift: float, author: bool = True, seed: int = 0) -> Corpus:
    """400 people with 4 to 24 texts, one of two genders, in one coordinate of eight."""
    random = np.random.default_rng(seed)
    who = np.repeat(np.arange(PEOPLE), random.integers(4, 25, PEOPLE))
    gender = random.integers(0, 2, PEOPLE)
    vectors = random.normal(size=(len(who), 8)).astype(np.float32)
    vectors[:, 0] += shift * gender[who]
    mood = (vectors[:, 1] > 0).astype(int)  # of a text, not of a person
    return Corpus(
        "crowd",
        vectors=vectors,
        private={"gender": column(gender[who]), "mood": column(mood)},
        author=column(who) if author else None,
    )


def run(corpus: Corpus, encoder: Any = None) -> Findings:
    return audit(corpus, encoder, seeds=2, attackers=["logistic"], cache=False)


@pytest.fixture(scope="module")
def leak() -> Findings:
    return run(crowd(0.6, seed=1))


@pytest.fixture(scope="module")
def noise() -> Findings:
    return run(crowd(0.0))


def row(findings: Findings, subgroup: str | None, metric: str = "balanced_accuracy") -> Finding:
    (one,) = findings.select(kind=KIND, target="gender", subgroup=subgroup, metric=metric)
    return one


def null(findings: Findings, subgroup: str | None) -> Finding:
    (one,) = findings.select(
        kind=f"{KIND}-null", target="gender", subgroup=subgroup, metric="balanced_accuracy"
    )
    return one


def test_a_person_tells_more_than_a_text_and_many_texts_more_than_few(leak: Findings) -> None:
    (text,) = leak.select(
        kind="attribute-inference", target="gender", attacker="strongest",
        metric="balanced_accuracy",
    )  # fmt: skip
    one, five, twenty = (row(leak, name) for name in ("1 text", "5 texts", "20 texts"))
    everything = row(leak, None)
    # Φ(.3) = .62 of a text, Φ(.3·√5) = .75 of five, Φ(.3·√20) = .91 of twenty.
    assert text.value == pytest.approx(0.618, abs=0.03)
    assert one.value == pytest.approx(0.618, abs=0.1)
    assert five.value == pytest.approx(0.749, abs=0.1)
    assert twenty.value == pytest.approx(0.91, abs=0.1)
    assert everything.low is not None and everything.low > 0.7
    for item in (one, five, twenty, everything):
        assert item.low is not None and item.high is not None
        assert item.low < item.value < item.high


def test_victims_are_people_who_have_so_many_texts(leak: Findings) -> None:
    one, five, twenty, everything = (row(leak, n) for n in ("1 text", "5 texts", "20 texts", None))
    assert one.n == everything.n == PEOPLE // 5
    assert one.n is not None and five.n is not None and twenty.n is not None
    assert one.n > five.n > twenty.n > 0
    assert [item.parameters["texts"] for item in (one, five, twenty, everything)] == [
        1, 5, 20, "all",
    ]  # fmt: skip
    assert everything.parameters["most_texts"] == 24 and five.parameters["most_texts"] == 5
    assert sum(everything.parameters["chosen"].values()) == 2


def test_nothing_is_found_in_noise_and_nulls_lie_at_chance(leak: Findings, noise: Findings) -> None:
    for name in ("1 text", "5 texts", None):
        assert null(leak, name).value == pytest.approx(0.5, abs=0.08)
    item = row(noise, None)
    assert item.low is not None and item.low < 0.5
    outcomes = {verdict.target: verdict.outcome for verdict in all_verdicts(noise)}
    assert outcomes["gender of a person"] != Outcome.LEAK


def test_verdict_and_page_name_the_person(leak: Findings) -> None:
    verdict = next(v for v in all_verdicts(leak) if v.target == "gender of a person")
    assert verdict.outcome == Outcome.LEAK
    assert "from all texts of each (up to 24)" in verdict.statement
    assert "from 1 text" in verdict.statement and "taken one by one give" in verdict.statement


def test_an_attribute_of_texts_is_left_out_with_a_note(leak: Findings) -> None:
    assert not leak.select(kind=KIND, target="mood")
    notes = leak.provenance["attributes"]["mood"]["notes"]
    assert any("texts of a person are not pooled" in note for note in notes)
    assert not leak.provenance["attributes"]["gender"]["notes"]


def test_without_authors_there_are_no_people_but_texts_read_for_certain() -> None:
    findings = run(crowd(6.0, author=False))
    assert not findings.select(kind=KIND)
    share = findings.value(kind="attribute-inference", target="gender", metric="certain_share")
    hits = findings.value(kind="attribute-inference", target="gender", metric="certain_hit_rate")
    assert share > 0.95 and hits > 0.98


def test_near_certainty_of_people_grows_with_their_texts_and_is_right() -> None:
    findings = run(crowd(1.0))
    shares = [row(findings, name, "certain_share").value for name in ("1 text", "5 texts", None)]
    assert shares[0] < shares[1] < shares[2]
    assert row(findings, None, "certain_hit_rate").value > 0.9
    assert row(findings, None, "tpr_at_1_fpr").value > row(findings, "1 text", "tpr_at_1_fpr").value


def test_the_ceiling_is_that_of_so_many_texts() -> None:
    step = Gaussian(epsilon=1.0, delta=1e-5)
    findings = audit(crowd(0.4), PrivateEncoder(step), seeds=1, attackers=["logistic"])
    bound = bound_of("balanced_accuracy", [np.array([0, 1])], 2)
    assert bound is not None
    ceilings = [row(findings, name).ceiling for name in ("1 text", "5 texts", "20 texts", None)]
    for ceiling, texts in zip(ceilings, (2, 5, 20, 24), strict=True):
        assert ceiling == pytest.approx(person_ceiling(bound, step.guarantee, texts, [step.noise]))
    # One text permits no more than two, though (ε, δ) alone would say so.
    assert ceilings == sorted(ceilings)  # type: ignore[type-var]
    assert ceilings[0] < bound(step.guarantee)  # type: ignore[operator]


def test_an_author_of_two_classes_is_counted_and_nobody_is_no_author() -> None:
    source = Corpus("few", texts=column("abcd"), author=np.array(["x", None, "x", None], object))
    authors = author_numbers(source)
    assert authors is not None and authors.tolist() == [0, -1, 0, -1]
    assert changing_authors(np.array([0, 0, 0, 1]), authors) == 0
    assert changing_authors(np.array([0, 0, 1, 1]), authors) == 1
    assert author_numbers(Corpus("few", texts=column("ab"))) is None


def test_people_with_one_text_each_are_texts() -> None:
    random = np.random.default_rng(0)
    corpus = Corpus(
        "single",
        vectors=random.normal(size=(300, 3)).astype(np.float32),
        private={"gender": column(random.integers(0, 2, 300))},
        author=column(range(300)),
    )
    assert not Plan.of(corpus, seeds=1).secrets[0].notes
    assert not run(corpus).select(kind=KIND)
