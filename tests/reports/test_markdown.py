"""The Markdown report: tables with equal columns, no HTML from users, all that the page says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from capelet.findings import Findings
from capelet.reports import render_markdown, verdicts
from capelet.reports.markdown import escape, table
from capelet.reports.page import Line, Table


def _tables(text: str) -> list[list[str]]:
    blocks = text.split("\n\n")
    return [block.splitlines() for block in blocks if block.startswith("|")]


def _columns(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def test_all_lines_of_a_table_have_equal_columns(findings: Findings, protected: Findings) -> None:
    for text in (render_markdown(findings), render_markdown(findings, protected)):
        found = _tables(text)
        assert len(found) >= 3
        for lines in found:
            assert len({_columns(line) for line in lines}) == 1
            assert re.fullmatch(r"\|( -{3}:? \|)+", lines[1])


def test_the_verdicts_stand_at_the_top(findings: Findings) -> None:
    text = render_markdown(findings)
    for verdict in verdicts(findings):
        assert f"**{verdict.title}** · {verdict.sentence}" in text
    parts = [line for line in text.splitlines() if line.startswith("## ")]
    assert parts == [
        "## Verdicts",
        "## What the attacker needed",
        "## Does the task still work?",
        "## Tables",
        "## Method",
        "## Limits",
        "## Provenance",
        "## How to repeat it",
        "## Recipe",
    ]
    assert findings.provenance["data"]["digest"] in text


def test_user_text_cannot_break_a_table() -> None:
    evil = "a|b\n| c <b>bold</b> `code` [link](x) _em_ snake_case"
    shown = table(Table("t", ("name", "n"), (Line((evil, "1")),)))
    (lines,) = _tables(shown)
    assert {_columns(line) for line in lines} == {2}
    assert "<b>" not in shown and "snake_case" in shown
    assert escape("[x](y)") == "\\[x\\](y)"


@pytest.mark.parametrize("names", [["income"], ["income", "city"]])
def test_what_was_asked_but_not_measured_is_said(findings: Findings, names: list[str]) -> None:
    asked = {**findings.provenance, "attributes": {name: {} for name in names}}
    text = render_markdown(replace(findings, provenance=asked))
    assert f"Asked for, but not measured: {', '.join(names)}." in text
