"""Rows of findings: what the attacker chose on its own part, and nothing picked on victims."""

from __future__ import annotations

import math

import numpy as np
import pyarrow
import pytest

from capelet.errors import DataError
from capelet.findings import Finding, Findings
from capelet.findings.metrics import majority
from capelet.studies.rows import Row, format_level, gather, pick, rows_of


def test_rows_of_findings() -> None:
    leak = ("attribute-inference", "gender", "accuracy")
    findings = Findings(
        (
            Finding(*leak, 0.7, chance=0.5, attacker="strongest"),
            Finding(*leak, 0.8, attacker="mlp"),
            Finding("utility", "stars", "accuracy", 0.9, degenerate=True),
            Finding("fairness", "gender", "accuracy", 0.6, subgroup="f"),
        )
    )
    rows = rows_of(findings, {"method": "cape"}, 3)
    assert [(row.kind, row.value, row.seed) for row in rows] == [
        ("attribute-inference", 0.7, 3),
        ("utility", 0.9, 3),
    ]
    assert [row.degenerate for row in rows] == [False, True]
    assert rows[0].chance == 0.5 and rows[0].guesses is None


def test_victims_of_one_class_make_every_row_of_their_target_degenerate() -> None:
    """Balanced accuracy is then the recall of one class; `majority` of the accuracy tells."""
    gender = ("attribute-inference", "gender")
    share = majority("accuracy", np.array([1, 1, 1]), 2)
    assert share == 1.0
    findings = Findings(
        (
            Finding(*gender, "accuracy", 0.9, majority=share, attacker="strongest"),
            Finding(*gender, "balanced_accuracy", 0.9, majority=0.5, attacker="strongest"),
            Finding("attribute-inference", "age", "accuracy", 0.9, majority=0.99),
            # A subgroup of one class is no cell of one class.
            Finding("fairness", "stars", "accuracy", 1.0, majority=1.0, subgroup="f"),
            Finding("utility", "stars", "accuracy", 0.9, majority=0.6),
        )
    )
    rows = rows_of(findings, {}, 0)
    marks = [(row.target, row.degenerate, row.single_class) for row in rows]
    assert marks == [
        ("gender", True, True), ("gender", True, True), ("age", False, False),
        ("stars", False, False),
    ]  # fmt: skip
    constant = Row({}, 1, *gender, "accuracy", 0.5, degenerate=True)
    exclusions = gather([rows[0], constant], ()).exclusions
    assert (exclusions.degenerate, exclusions.single_class) == (1, 1)
    assert exclusions.sentence == (
        "1 degenerate cell left out (constant guesses); "
        "1 degenerate cell left out (victims of one class)."
    )


def test_rows_with_the_guesses_of_the_store() -> None:
    """Each target has its own victims; a metric of scores has none to go with it."""
    table = pyarrow.table(
        {
            "kind": ["attribute-inference"] * 2 + ["utility"],
            "target": ["gender"] * 2 + ["stars"],
            "victim": ["v1", "v2", "v1"],
            "unit": ["u1", "u1", "u1"],
            "truth": [0, 1, 2],
            "guess": [0, 0, 2],
        }
    )
    findings = Findings(
        (
            Finding("attribute-inference", "gender", "accuracy", 0.5, attacker="strongest"),
            Finding("attribute-inference", "gender", "auc", 0.5, attacker="strongest"),
            Finding("utility", "stars", "accuracy", 1.0),
            Finding("attribute-inference", "age", "accuracy", 0.5, attacker="strongest"),
        )
    )
    gender, area, stars, age = rows_of(findings, {"method": "cape"}, 0, table)
    assert gender.guesses is not None and gender.guesses.guess.tolist() == [0, 0]
    assert gender.guesses.victims.tolist() == ["v1", "v2"]
    assert stars.guesses is not None and stars.guesses.authors.tolist() == ["u1"]
    assert area.guesses is None and age.guesses is None


def test_a_value_that_is_no_number_is_a_missing_cell() -> None:
    rows = [
        Row({"method": name}, seed, "utility", "stars", "accuracy", 0.8)
        for name in ("a", "b")
        for seed in (0, 1)
    ]
    broken = Row({"method": "b"}, 1, "utility", "stars", "accuracy", math.nan)
    design = gather([*rows[:3], broken], ["method"])
    assert len(design.values) == 3
    assert design.exclusions.missing == ("b, split 1",)
    assert gather(rows, ["method"]).exclusions.sentence == ""


def test_settings_may_go_with_their_method() -> None:
    """ε belongs to the noise: a method without it is no gap, two ε in one method are refused."""

    def row(method: str, epsilon: float | None, seed: int) -> Row:
        axes = {"method": method} | ({} if epsilon is None else {"epsilon": epsilon})
        return Row(axes, seed, "utility", "stars", "accuracy", 0.8)

    rows = [row("fx", None, 0), row("ldp", 8.0, 0), row("fx", None, 1), row("ldp", 8.0, 1)]
    assert gather(rows, ["method"]).splits == 2
    assert gather(rows, ["method", "epsilon"]).levels(1) == ("–", 8.0)
    with pytest.raises(DataError, match="'epsilon' varies"):
        gather([*rows, row("ldp", 1.0, 2)], ["method"])


def test_pick_and_names() -> None:
    rows = [Row({"method": name}, 0, "utility", "stars", "accuracy", 0.8) for name in "ab"]
    assert pick(rows, method="b", target="stars") == rows[1:]
    assert pick(rows, encoder="minilm") == []
    assert (format_level(0.1), format_level(8), format_level("fx")) == ("0.1", "8", "fx")
