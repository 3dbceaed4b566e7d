"""Cells of dual encoders and of membership: who learns from what, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.data.datasets import is_available
from capelet.errors import CapeletError
from capelet.findings import Findings
from capelet.studies.cell import compute
from capelet.studies.measurements.duals import OF_TEXTS, _halves
from capelet.studies.measurements.inputs import _with_few_texts
from capelet.studies.plan import StudyPlan

SIZES: dict[str, Any] = {
    "rows": 300, "epochs": 1, "width": 8, "dimension": 8, "vocabulary": 300, "fewest": 2,
}  # fmt: skip
FEW = {"multi-label": {"epochs": 1, "width": 16}}


def plan_of(kind: str, **settings: Any) -> StudyPlan:
    axes = {"corpus": ["reviews"], "seed": [1]}
    return StudyPlan.of({"kind": kind, "settings": {**SIZES, **settings}, "axes": axes})


def measure(plan: StudyPlan) -> Findings:
    outcome = compute(plan.cells()[0].cell)
    assert outcome.reason is None and outcome.measurement is not None
    return outcome.measurement.findings


def test_half_of_the_people_or_half_of_everybodys_texts_are_held_back() -> None:
    texts = np.array([f"text {row}" for row in range(40)] + ["text 3"], dtype=object)
    authors = np.array([f"a{row % 10}" for row in range(41)], dtype=object)
    corpus = Corpus("made here", texts=texts, author=authors)
    own, other = _halves(corpus, "authors", 0)
    assert not set(authors[own]) & set(authors[other]) and len(own) + len(other) == 41
    own, other = _halves(corpus, "texts", 0)
    # Most people are on both sides now; identical texts are not.
    assert len(set(authors[own]) & set(authors[other])) > 5
    assert not set(texts[own]) & set(texts[other])


def test_of_each_person_at_most_so_many_texts_are_taken() -> None:
    authors = np.array(["much"] * 30 + ["little"] * 2, dtype=object)
    corpus = Corpus(
        "made here", texts=np.array([f"t{i}" for i in range(32)], dtype=object), author=authors
    )
    few = _with_few_texts(corpus, 5)
    assert few.author is not None and few.texts is not None
    assert sorted(few.author) == ["little"] * 2 + ["much"] * 5
    # Not the first five, and the same five again.
    assert list(few.texts[:5]) != [f"t{i}" for i in range(5)]
    assert few.digest() == _with_few_texts(corpus, 5).digest()


def test_words_writers_and_the_text_itself_are_measured_beside_each_other() -> None:
    settings = {"attacks": ["multi-label", "sparse-coding"], "victims": 20, "options": FEW}
    findings = measure(
        plan_of("dual", **settings, unseen="texts", shots=2, writers=10, baseline=True)
    )
    words = findings.select(kind="inversion", metric="f1", target="words")
    assert {row.attacker for row in words} == {"multi-label", "sparse-coding"}
    assert {row.n for row in words} == {20}
    writers = findings.select(kind="authorship", metric="top5")
    assert {(row.target, row.attacker) for row in writers} == {
        (target, attacker) for target in ("author", OF_TEXTS) for attacker in ("linear", "mlp")
    }
    (text,) = findings.select(kind="authorship-reference", metric="top5")
    assert text.attacker == "text-cnn" and text.target == "author"


def test_a_task_that_is_another_here_is_a_failure_with_its_reason() -> None:
    if not is_available("trec"):
        pytest.skip("trec: not here; CAPELET_DATA names the folder it lies in")
    plan = plan_of("dual", attacks=[], shots=2, writers=10, tasks=["trec"])
    (row,) = measure(plan).select(kind="utility", target="trec")
    assert 0 < row.value < 1
    cell = plan.cells()[0].cell
    digests = {**cell.inputs["digests"], "task trec": "0" * 64}
    other = replace(cell, inputs={**cell.inputs, "digests": digests})
    assert other.key != cell.key
    assert "'trec' here is not the one of the plan" in str(compute(other).reason)


def test_sentences_that_trained_an_encoder_are_asked_for() -> None:
    if not is_available("blog"):
        pytest.skip("blog: not here; CAPELET_DATA names the folder it lies in")
    settings = {**SIZES, "rows": 150, "per_author": 4}
    axes = {"corpus": ["blog"], "model": ["lstm"], "seed": [0]}
    findings = measure(StudyPlan.of({"kind": "membership", "settings": settings, "axes": axes}))
    for target in ("pairs", "aggregates"):
        rows = findings.select(kind="membership", target=target, metric="advantage", subgroup=None)
        assert {row.attacker for row in rows} == {"dot", "cosine", "learned"}
    by_frequency = [row for row in findings if row.subgroup and row.target == "pairs"]
    assert {"decile 1 by word frequency"} <= {str(row.subgroup) for row in by_frequency}


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        ("dual", {"network": "lstn"}, "did you mean 'lstm'"),
        ("dual", {"tasks": ["trek"]}, "did you mean 'trec'"),
        ("dual", {"unseen": "text"}, "did you mean 'texts'"),
        ("dual", {"start": "glov"}, "did you mean 'glove'"),
        ("dual", {"attacks": ["multi-lable"]}, "did you mean 'multi-label'"),
        ("membership", {"model": "word3vec"}, "did you mean 'word2vec'"),
        ("membership", {"model": "glove", "width": 8}, "has no 'width'"),
    ],
)
def test_names_are_checked_before_anything_is_trained(
    kind: str, settings: dict[str, Any], sentence: str
) -> None:
    plan = plan_of(kind, **settings)
    with pytest.raises(CapeletError, match=sentence):
        plan.cells()
