"""What pages say of people: a line for each number of texts, a verdict for each attribute."""

from __future__ import annotations

from typing import Any

from capelet.findings import Finding, Findings
from capelet.findings.verdicts import Outcome
from capelet.reports.audit import audit_page
from capelet.reports.kinds import all_verdicts, report_of, summary
from capelet.reports.markdown import draw_markdown

KIND = "person-inference"


def person(value: float, subgroup: str | None = None, **fields: Any) -> Finding:
    row: dict[str, Any] = {
        "kind": KIND, "target": "gender", "metric": "balanced_accuracy", "low": value - 0.03,
        "high": value + 0.03, "chance": 0.5, "n": 200, "attacker": "strongest",
        "parameters": {"people": 400, "most_texts": 30, "texts": "all"},
    }  # fmt: skip
    return Finding(value=value, subgroup=subgroup, **{**row, **fields})


def run(value: float = 0.8, **fields: Any) -> Findings:
    return Findings(
        (
            Finding(
                "attribute-inference", "gender", "balanced_accuracy", 0.6, 0.58, 0.62, 0.5,
                n=900, attacker="strongest",
            ),
            person(0.61, "1 text"),
            person(0.7, "5 texts"),
            person(value, **fields),
            person(0.5, kind=f"{KIND}-null"),
            person(0.12, metric="certain_share", chance=None),
            person(0.96, metric="certain_hit_rate", chance=None),
        )
    )  # fmt: skip


def test_the_verdict_says_what_few_and_many_texts_give() -> None:
    of_text, of_person = all_verdicts(run())
    assert of_text.target == "gender"
    assert of_person.target == "gender of a person" and of_person.outcome == Outcome.LEAK
    for words in (
        "from all texts of each (up to 30) 80 % balanced accuracy (95 % interval 77–83 %)",
        "the attacker gains 30 points",
        "61 % from 1 text and 70 % from 5 texts; texts taken one by one give 60 %",
        "nearly certain about 12.0 % of them, and right about 96 % of those (93–99 %)",
    ):
        assert words in of_person.statement
    assert "together give away “gender” (80 %)" in summary(run())


def test_people_at_chance_are_no_leak_and_a_wide_interval_is_inconclusive() -> None:
    near = all_verdicts(run(0.505))[1]
    assert near.outcome == Outcome.NO_LEAK_FOUND and "no leak found" in near.statement
    wide = all_verdicts(run(0.6, low=0.45, high=0.75))[1]
    assert wide.outcome == Outcome.INCONCLUSIVE and "inconclusive" in wide.statement
    for findings in (run(0.505), run(0.6, low=0.45, high=0.75)):
        assert "together give away" not in summary(findings)


def test_a_ceiling_is_that_of_many_texts() -> None:
    assert "From 30 texts the guarantee permits nobody more than 90 %." in (
        all_verdicts(run(ceiling=0.9))[1].statement
    )
    assert "rules out almost nothing" in all_verdicts(run(ceiling=0.999))[1].statement


def test_the_page_has_a_line_for_each_number_of_texts() -> None:
    page = draw_markdown(audit_page(run()))
    for texts in ("1 text", "5 texts", "all texts"):
        assert f"| gender | {texts} |" in page
    assert "| *gender* | texts one by one |" in page
    assert "12.0 % (9.0–15.0)" in page and "labels permuted over people" in page


def test_two_runs_are_compared_by_number_of_texts() -> None:
    pairs = report_of(KIND).pairs(run(0.8), run(0.7))
    assert [pair.name for pair in pairs] == [
        "gender of a person, 1 text",
        "gender of a person, 5 texts",
        "gender of a person, all texts",
    ]
    assert [pair.headline for pair in pairs] == [False, False, True]
