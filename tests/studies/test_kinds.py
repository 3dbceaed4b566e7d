"""Every kind of study measures a cell, from its inputs alone; what it cannot do it says."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capelet.errors import CapeletError
from capelet.studies.cell import compute
from capelet.studies.kinds import KINDS
from capelet.studies.plan import StudyPlan

pytest.importorskip("wordllama", reason="the extra words is not installed")
REVIEWS: dict[str, Any] = {"corpus": ["reviews"], "seed": [3]}
FEW_EPOCHS = {"multi-label": {"epochs": 1}, "multi-set": {"epochs": 1}}
LAPLACE = [{"step": "laplace", "epsilon": 64.0}]
PLANS: dict[str, dict[str, Any]] = {
    "invert": {
        "settings": {"rows": 200, "encoder": "wordllama", "options": FEW_EPOCHS},
        "axes": {**REVIEWS, "release": ["noisy"]},
        "releases": {"noisy": {"steps": LAPLACE}},
    },
    "authorship": {
        "settings": {"encoder": "wordllama", "shots": 3, "writers": 10},
        "axes": REVIEWS,
    },
    "membership": {
        "settings": {"rows": 200, "epochs": 1, "dimension": 8, "least": 2},
        "axes": {**REVIEWS, "model": ["glove"]},
    },
    "dual": {
        "settings": {
            "rows": 300, "epochs": 1, "width": 8, "dimension": 8, "options": FEW_EPOCHS,
            "shots": 2, "writers": 10, "fewest": 2,
        },
        "axes": {**REVIEWS, "lambda_words": [1.0]},
    },
    "geometry": {
        "settings": {"rows": 300, "encoder": "wordllama", "clouds": {"noisy": LAPLACE}},
        "axes": REVIEWS,
    },
    "language": {
        "settings": {
            "rows": 300, "epochs": 1, "width": 8, "vocabulary": 300, "samples": 1100,
            "canaries": [1, 5], "per_level": 3,
        },
        "axes": {**REVIEWS, "method": ["none"]},
    },
}  # fmt: skip


def test_every_kind_is_tested_here_or_with_attributes() -> None:
    assert set(PLANS) | {"protect", "audit"} == set(KINDS)


@pytest.mark.parametrize("kind", PLANS)
def test_a_cell_is_a_function_of_its_inputs(kind: str) -> None:
    (item,) = StudyPlan.of({"kind": kind, **PLANS[kind]}).cells()
    # As a worker gets it: through a pipe.
    cell = pickle.loads(pickle.dumps(item.cell))
    assert cell.key == item.cell.key
    first, second = compute(item.cell), compute(cell)
    assert first.reason is None and first.measurement is not None
    assert second.measurement is not None
    text = first.measurement.findings.to_json()
    assert text == second.measurement.findings.to_json()
    assert {row.seed for row in first.measurement.findings} == {3}
    expected = {
        "invert": "inversion", "dual": "inversion", "language": "extraction",
        "geometry": "deviation",
    }  # fmt: skip
    assert expected.get(kind, kind) in {row.kind for row in first.measurement.findings}


def test_noisy_releases_are_attacked_through_their_noise(plan: Callable[..., StudyPlan]) -> None:
    steps = {"noisy": {"steps": [{"step": "laplace", "epsilon": 0.5}]}}
    study = plan(
        kind="audit",
        settings={"encoder": "wordllama", "attackers": ["logistic"]},
        axes={"corpus": ["tiny"], "seed": [0], "release": ["raw", "noisy"]},
        releases=steps,
    )
    outcomes = [compute(item.cell).measurement for item in study.cells()]
    scores = [
        item.findings.value(
            kind="attribute-inference", metric="balanced_accuracy", attacker="strongest"
        )
        for item in outcomes
        if item is not None
    ]
    assert scores[0] > 0.8 and scores[1] < 0.7


def test_a_promise_to_those_who_train_is_a_setting_and_its_noise_can_be_repeated() -> None:
    settings = {
        "rows": 1000, "encoder": "wordllama", "method": "bottleneck", "epsilon": 8,
        "split": "keyed", "attackers": ["logistic"],
    }  # fmt: skip
    study = {"kind": "protect", "settings": settings, "axes": {**REVIEWS, "train_epsilon": [0.2]}}

    def task(**parts: Any) -> tuple[float, str]:
        _, item = StudyPlan.of({**study, **parts}).cells()  # the first one is "unprotected"
        measurement = compute(item.cell).measurement
        assert measurement is not None
        findings = measurement.findings
        return findings.select(kind="utility", metric="accuracy")[0].value, findings.to_json()

    first, text = task()
    assert task() == (first, text)
    # At so small an ε little is learnt: the control is the same map, trained without a promise.
    assert task(axes=REVIEWS)[0] > first + 0.2
    for wrong, words in (
        ({"axes": {**REVIEWS, "unit": ["author"]}}, "belong to train_epsilon"),
        ({"axes": {**study["axes"], "unit": ["writer"]}}, "the unit is 'writer'"),
        ({"settings": {**settings, "method": "leace", "epsilon": None}}, "cannot be trained with"),
        ({"settings": {**settings, "keep": "neighbours"}}, "a private training keeps a task"),
        # What is unprotected would have other parts.
        ({"settings": {**settings, "split": "auto"}}, "split = 'keyed'"),
    ):
        with pytest.raises(CapeletError, match=words):
            StudyPlan.of({**study, **wrong}).cells()


def test_a_corpus_or_an_encoder_that_is_another_here_is_a_failure_with_its_reason(
    plan: Callable[..., StudyPlan],
) -> None:
    cell = plan().cells()[0].cell
    other = replace(cell, inputs={**cell.inputs, "digests": {"corpus": "0" * 64}})
    assert "is not the one of the plan (its content differs)" in str(compute(other).reason)
    encoder = replace(cell, inputs={**cell.inputs, "fingerprint": "0" * 64})
    assert "its fingerprint differs" in str(compute(encoder).reason)


def test_a_fault_names_its_place_and_quotes_nothing(
    plan: Callable[..., StudyPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message of an unforeseen error may quote a text; its type and line cannot."""

    def fail(cell: Any) -> Any:
        raise ValueError("the text 'my secret diary' is odd")

    monkeypatch.setitem(KINDS, "audit", replace(KINDS["audit"], measure=fail))
    reason = compute(plan().cells()[0].cell).reason
    assert reason is not None and "ValueError at cell.py" in reason and "diary" not in reason


def test_a_split_by_official_parts_reads_their_column(
    plan: Callable[..., StudyPlan], document: Callable[..., dict[str, Any]], tmp_path: Any
) -> None:
    corpora = document()["corpora"]
    lines = Path(corpora["tiny"]["file"]).read_text().splitlines()
    parts = ["part", *(("train", "train", "test")[row % 3] for row in range(len(lines) - 1))]
    file = tmp_path / "parts.csv"
    file.write_text("\n".join(f"{a},{b}" for a, b in zip(lines, parts, strict=True)) + "\n")
    entry = {"tiny": {**corpora["tiny"], "file": str(file)}}
    settings = {"encoder": "wordllama", "attackers": ["logistic"], "split": "column:part"}
    study = plan(
        kind="audit", settings=settings, axes={"corpus": ["tiny"], "seed": [0]}, corpora=entry
    )
    outcome = compute(study.cells()[0].cell)
    assert outcome.reason is None and outcome.measurement is not None
    # Every third row is for test, and so a victim.
    assert {len(item.rows) for item in outcome.measurement.guesses} == {66}


@pytest.mark.parametrize("clouds", [{}, {"bare": ()}, {"original": LAPLACE}])
def test_a_cloud_needs_steps_and_a_name_of_its_own(clouds: dict[str, object]) -> None:
    inputs = {"corpus": "reviews", "clouds": clouds}
    with pytest.raises(CapeletError, match="needs clouds, each with its steps"):
        KINDS["geometry"].complete("geometry", inputs)
    # The control: with steps and a name of its own it is taken.
    KINDS["geometry"].complete("geometry", {**inputs, "clouds": {"noisy": LAPLACE}})
