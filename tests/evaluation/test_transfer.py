"""Attackers taught by another corpus: what carries over is read, what does not is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.errors import DataError
from capelet.evaluation.plan import Plan
from capelet.evaluation.transfer import AUXILIARY, Auxiliary
from capelet.findings import Finding, Findings
from capelet.mechanisms import Gaussian
from capelet.release import PrivateEncoder
from capelet.workflows.audit import audit


def column(values: Any) -> np.ndarray:
    return np.array([str(item) for item in values], dtype=object)


def store(axis: int, seed: int, names: str = "fm", rows: int = 900, name: str = "") -> Corpus:
    """Vectors whose gender lies along one axis."""
    random = np.random.default_rng(seed)
    gender = random.integers(0, 2, rows)
    vectors = random.normal(size=(rows, 4)).astype(np.float32)
    vectors[:, axis] += 2.0 * gender
    return Corpus(
        name or f"store {seed}",
        vectors=vectors,
        private={"gender": column(np.array(list(names))[gender])},
    )


def run(corpus: Corpus, auxiliary: Corpus | None, encoder: Any = None) -> Findings:
    return audit(corpus, encoder, seeds=2, attackers=["logistic"], auxiliary=auxiliary)


def score(findings: Findings, attacker: str) -> Finding:
    (row,) = findings.select(
        kind="attribute-inference", metric="balanced_accuracy", attacker=attacker
    )
    return row


def test_labels_from_elsewhere_read_what_both_stores_share_and_nothing_else() -> None:
    victims = store(0, seed=1)
    same, other = run(victims, store(0, seed=2)), run(victims, store(1, seed=3))
    # Φ(1) = .84, whoever teaches; along another axis there is nothing to carry over.
    assert score(same, AUXILIARY).value == pytest.approx(0.84, abs=0.04)
    assert score(other, AUXILIARY).value == pytest.approx(0.5, abs=0.06)
    for findings in (same, other):
        assert score(findings, "strongest").value == pytest.approx(0.84, abs=0.04)


def test_the_ordinary_figures_stay_as_they_are() -> None:
    victims = store(0, seed=1)
    alone, beside = run(victims, None), run(victims, store(0, seed=2))
    others = [row for row in beside if row.attacker != AUXILIARY]
    assert [row.value for row in others] == [row.value for row in alone]
    assert "auxiliary" not in alone.provenance


def test_findings_say_who_taught() -> None:
    findings = run(store(0, seed=1), store(0, seed=2, rows=500))
    row = score(findings, AUXILIARY)
    assert row.parameters["holds"] == "vectors"
    assert row.parameters["auxiliary"] == {"name": "store 2", "texts": 500}
    assert row.low is not None and row.low < row.value
    origin = findings.provenance["auxiliary"]
    assert (origin["name"], origin["rows"], origin["overlap"]) == ("store 2", 500, 0)


def test_noise_is_drawn_for_the_texts_from_elsewhere_too() -> None:
    step = PrivateEncoder(Gaussian(epsilon=30.0, delta=1e-5))
    findings = run(store(0, seed=1), store(0, seed=2), step)
    row = score(findings, AUXILIARY)
    assert 0.55 < row.value < 0.84 and row.ceiling is not None


def test_rows_of_the_audited_data_do_not_teach() -> None:
    victims, others = store(0, seed=1), store(0, seed=2, rows=300)
    assert victims.vectors is not None and others.vectors is not None
    both = Corpus(
        "both",
        vectors=np.concatenate([victims.vectors[:400], others.vectors]),
        private={
            "gender": np.concatenate([victims.private["gender"][:400], others.private["gender"]])
        },
    )
    plan = Plan.of(victims, seeds=1)
    taught = Auxiliary.of(both, plan)
    assert (len(taught.corpus), taught.overlap) == (300, 400)
    with pytest.raises(DataError, match="900 of 900 auxiliary rows are rows of the audited data"):
        Auxiliary.of(victims, plan)


def test_classes_keep_the_order_of_the_audited_data() -> None:
    plan = Plan.of(store(0, seed=1), seeds=1)
    other = store(0, seed=2)
    (secret,) = Auxiliary.of(other, plan).secrets
    assert secret.classes == plan.secrets[0].classes == ("f", "m")
    assert [secret.classes[code] for code in secret.codes] == other.private["gender"].tolist()


@pytest.mark.parametrize("names", ["fw", "xy"])
def test_other_class_names_are_refused_by_counts_alone(names: str) -> None:
    plan = Plan.of(store(0, seed=1), seeds=1)
    with pytest.raises(DataError, match="2 classes in the audited data and 2 in the") as refusal:
        Auxiliary.of(store(0, seed=2, names=names), plan)
    assert f"{len(set(names) & set('fm'))} of them by the same name" in str(refusal.value)


def test_no_shared_attribute_and_no_shared_kind_of_data_are_refused() -> None:
    plan = Plan.of(store(0, seed=1), seeds=1)
    other = store(0, seed=2)
    renamed = replace(other, private={"sex": other.private["gender"]})
    with pytest.raises(DataError, match="found 'sex' there, and 'gender' here"):
        Auxiliary.of(renamed, plan)
    texts = Corpus("texts", texts=column(range(900)), private=other.private)
    with pytest.raises(DataError, match="both hold texts, or both ready vectors"):
        Auxiliary.of(texts, plan)


def test_without_attributes_there_is_nothing_to_teach() -> None:
    corpus = replace(store(0, seed=1), author=column(np.arange(900) // 20))
    with pytest.raises(DataError, match="teach attackers of attributes"):
        audit(corpus, attacks=["authorship"], auxiliary=store(0, seed=2))
