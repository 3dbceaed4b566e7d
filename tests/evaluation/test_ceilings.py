"""Ceilings beside scores: of the victims' own classes, and of persons with many texts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.evaluation.ceilings import Ceilings, TopBound, bound_of, noises_of, texts_per_person
from capelet.evaluation.leakage import Tally, findings_of
from capelet.evaluation.plan import Plan
from capelet.findings import Finding
from capelet.findings.metrics import Guesses
from capelet.mechanisms import Gaussian, Laplace, RandomisedResponse
from capelet.privacy.composition import Normal, Response, person_ceiling
from capelet.privacy.guarantees import NONE, Guarantee, ceiling, ceiling_auc, ceiling_balanced
from capelet.release import PrivateEncoder, Release

PEOPLE, TEXTS = 60, 12


def column(values: Any) -> np.ndarray:
    return np.array([None if item is None else str(item) for item in values], dtype=object)


def corpus_of_people(author: bool = True) -> Corpus:
    """60 people with 12 texts each, one of two genders; and one person with 40 texts."""
    people = np.concatenate([np.repeat(np.arange(PEOPLE), TEXTS), np.full(40, PEOPLE)])
    return Corpus(
        "people",
        vectors=np.random.default_rng(0).normal(size=(len(people), 2)).astype(np.float32),
        private={"gender": column(people % 2)},
        author=column(people) if author else None,
    )


def release_of(corpus: Corpus, *steps: Any) -> Release:
    private = PrivateEncoder(*steps)
    assert corpus.vectors is not None
    return Release(corpus.vectors, private.guarantee, private.recipe)


def findings_for(corpus: Corpus, release: Release) -> list[Finding]:
    """The findings of an attacker that is always right."""
    plan = Plan.of(corpus, seeds=1)
    victims, tally = plan.splits[0].victims, Tally()
    truth = plan.secrets[0].codes[victims]
    for kind in ("attribute-inference", "attribute-inference-null"):
        guesses = Guesses(truth, np.eye(2)[truth], plan.units[victims])
        tally.guesses[kind, "gender", "strongest"].append(guesses)
    return findings_of(plan, release, tally)


def test_texts_per_person_are_of_those_who_are_known() -> None:
    assert texts_per_person(corpus_of_people()) == {"median": 12, "most": 40}
    assert texts_per_person(corpus_of_people(author=False)) is None
    some = Corpus("some", texts=column("abcd"), author=column(["x", None, None, "x"]))
    assert texts_per_person(some) == {"median": 2, "most": 2}
    none = Corpus("none", texts=column("ab"), author=column([None, None]))
    assert texts_per_person(none) is None


def test_the_noise_of_a_recipe_is_that_of_its_steps() -> None:
    recipe = PrivateEncoder(Laplace(1.0), RandomisedResponse(2.0, 3), Gaussian(1.0, 1e-5)).recipe
    assert noises_of(recipe) == (
        Response(2.0, symbols=3),
        Normal(2.0 / Gaussian(1.0, 1e-5).sigma),
    )
    # The losses of Laplace noise in many dimensions are not in closed form: the worst noise counts.
    assert noises_of(PrivateEncoder(Laplace(1.0)).recipe) == ()
    assert noises_of({}) == noises_of({"steps": [{"step": "map", "file": "a"}]}) == ()


def test_a_finding_says_what_one_text_and_what_a_person_permits() -> None:
    corpus = corpus_of_people()
    rows = findings_for(corpus, release_of(corpus, RandomisedResponse(1.0, 2)))
    row = next(
        r for r in rows if r.kind == "attribute-inference" and r.metric == "balanced_accuracy"
    )
    assert row.ceiling == pytest.approx(0.731, abs=1e-3)
    assert row.parameters["texts_per_person"] == {"median": 12, "most": 40}
    permitted = row.parameters["person_ceiling"]
    assert permitted["median"] == pytest.approx(0.952, abs=1e-3)
    assert 0.99 < permitted["most"] < 1.0
    auc = next(r for r in rows if r.kind == "attribute-inference" and r.metric == "auc")
    assert auc.ceiling == ceiling_auc(Guarantee(1.0))
    assert auc.ceiling < auc.parameters["person_ceiling"]["median"] < 1
    f1 = next(r for r in rows if r.kind == "attribute-inference" and r.metric == "f1_macro")
    assert f1.ceiling is None and "person_ceiling" not in f1.parameters
    # The control is no attack on a person.
    null = next(r for r in rows if r.kind == "attribute-inference-null")
    assert null.ceiling is not None and "person_ceiling" not in null.parameters


def test_the_noise_that_was_used_permits_less_than_the_worst() -> None:
    corpus = corpus_of_people()
    bound = bound_of("balanced_accuracy", [np.array([0, 1])], 2)
    exact, worst = (
        Ceilings.of(release_of(corpus, step), corpus).for_person(bound)["person_ceiling"]["median"]
        for step in (RandomisedResponse(1.0, 8), Laplace(1.0))
    )
    assert exact < worst - 0.05


def test_nothing_is_said_of_persons_where_there_is_no_author_or_no_ceiling() -> None:
    unknown = corpus_of_people(author=False)
    for corpus, steps in ((unknown, [Laplace(1.0)]), (corpus_of_people(), [])):
        rows = findings_for(corpus, release_of(corpus, *steps))
        assert all("person_ceiling" not in row.parameters for row in rows)
        assert all("texts_per_person" not in row.parameters for row in rows)
    assert Ceilings(NONE, (), {"median": 2, "most": 3}).for_person(ceiling_auc) == {}


def test_the_ceiling_of_accuracy_has_the_victims_classes() -> None:
    """Victims of whom 9 in 10 are of one class: naming it always is permitted at any ε."""
    skewed = np.array([0] * 90 + [1] * 10)
    even = np.array([0, 1] * 50)
    tiny = Guarantee(0.01)
    one = bound_of("accuracy", [skewed], 2)
    assert one is not None and one(tiny) == pytest.approx(0.9)
    both = bound_of("accuracy", [skewed, even], 2)
    assert both is not None
    assert both(tiny) == pytest.approx((0.9 + ceiling([0.5, 0.5], tiny)) / 2)  # type: ignore[operator]
    # Of classes without a victim no mean is taken, so they are no classes of the bound.
    balanced = bound_of("balanced_accuracy", [skewed], 3)
    assert balanced is not None and balanced(tiny) == ceiling_balanced(2, tiny)


def test_a_person_among_many_is_bounded_by_the_curve_too() -> None:
    bound = TopBound(5, 100)
    one = bound(Guarantee(0.5))
    e = math.exp(0.5)
    assert one == pytest.approx(5 * e / (5 * e + 95))
    many = person_ceiling(bound, Guarantee(0.5), 20)
    total = bound(Guarantee(10.0))
    assert many is not None and one is not None and total is not None
    assert one < many < total
