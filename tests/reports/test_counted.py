"""Without an author column texts are scored, not people; a paragraph names its attribute."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from capelet.cli.terminal import verdict_summaries
from capelet.findings import Finding, Findings
from capelet.reports.audit import audit_page
from capelet.reports.gates import Gates
from capelet.reports.kinds import all_verdicts
from capelet.reports.markdown import draw_markdown

WIDE: dict[str, Any] = {"value": 0.6, "low": 0.45, "high": 0.75, "chance": 0.5, "n": 40}
AUTHORS = {"rows": 400, "authors": 90}
NO_AUTHORS = {"rows": 400, "authors": None}


def row(kind: str, target: str, metric: str, attacker: str = "strongest", **fields: Any) -> Finding:
    values = {**WIDE, "majority": 0.5, "parameters": {"people": 40, "most_texts": 9}, **fields}
    return Finding(kind, target, metric, attacker=attacker, **values)


def run(data: dict[str, Any] | None) -> Findings:
    """A run in which nothing is decided, so that every sentence says how many would decide it."""
    rows = [
        *(row("attribute-inference", name, "balanced_accuracy") for name in ("gender", "age")),
        row("attribute-inference-null", "gender", "balanced_accuracy", low=0.55, high=0.65),
        row("inversion", "words", "f1", "multi-label", low=0.3, high=0.9),
        row("membership", "windows", "advantage", "window-cosine", value=0.1, low=-0.1, chance=0.0),
    ]
    if data is None or data["authors"]:
        rows += [row("person-inference", name, "balanced_accuracy") for name in ("gender", "age")]
    attributes = {name: {"classes": {"one": 200, "other": 200}} for name in ("gender", "age")}
    provenance = {} if data is None else {"data": data, "attributes": attributes}
    return Findings(tuple(rows), provenance)


def said(findings: Findings) -> str:
    """All sentences of a run: verdicts, gates, the terminal's JSON, the page."""
    rulings = Gates(0.1, 0.1, 60).rule(findings)
    return "\n".join(
        [
            *(item.sentence for item in all_verdicts(findings)),
            *(str(item) for item in verdict_summaries(all_verdicts(findings))),
            *(item.sentence for item in rulings),
            draw_markdown(audit_page(findings)),
        ]
    )


def test_without_authors_nothing_speaks_of_people() -> None:
    words = said(run(NO_AUTHORS))
    # The key of a number stays what it is; what it counts stands beside it.
    words = words.replace("'people':", "").replace("'people_needed':", "")
    assert "people" not in words and "writers among" not in words
    assert "texts among the victims would decide it" in words
    assert "Too few texts were scored: gender 40" in words and "'counted': 'texts'" in words


@pytest.mark.parametrize("data", [AUTHORS, None])
def test_with_authors_they_are_people(data: dict[str, Any] | None) -> None:
    words = said(run(data))
    assert "people among the victims would decide it" in words
    assert "Too few people were scored: gender 40" in words and "'counted': 'people'" in words
    assert "texts among the victims would decide it" not in words


def test_enough_texts_are_said_to_be_texts() -> None:
    (ruling,) = Gates(min_victims=40).rule(run(NO_AUTHORS))
    assert ruling.reason == "Texts scored: gender 40 and age 40."


def test_training_texts_are_counted_by_writers_where_these_are_known() -> None:
    for data, counted in ((AUTHORS, "writers"), (NO_AUTHORS, "texts")):
        (verdict,) = [item for item in all_verdicts(run(data)) if "training" in item.target]
        needed = re.search(r"About [\d,]+ (\w+) ", verdict.statement)
        assert needed is not None and needed[1] == counted


def test_every_paragraph_about_an_attribute_names_it() -> None:
    """Of a page on two attributes each paragraph with a score says whose it is."""
    findings = run(AUTHORS)
    page = draw_markdown(audit_page(findings))
    paragraphs = [part for part in re.split(r"\n\s*\n|\n[-*] ", page) if "95 % interval" in part]
    about = [part for part in paragraphs if "balanced accuracy (95" in part]
    assert len(about) >= 4
    for part in about:
        assert "gender" in part or "age" in part, part
    warnings = [word for item in all_verdicts(findings) for word in item.warnings]
    assert warnings and all(item.startswith("Warning about gender: ") for item in warnings)
    broken = replace(row("attribute-inference", "age", "balanced_accuracy"), ceiling=0.4)
    (verdict,) = all_verdicts(Findings((broken,)))
    assert verdict.warnings[0].startswith("Warning about age: the whole interval lies above")
