"""No ceiling without "from one text", and beside it what a person's texts permit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from capelet.findings import Finding, Findings
from capelet.reports import render_html, render_markdown
from capelet.reports.answers import answers
from capelet.reports.ceilings import ceiling_sentence, person_ceilings
from capelet.reports.draw import pareto
from capelet.reports.frontier import search_table
from capelet.reports.kinds.attribute_inference import verdicts

Leak = Callable[..., Finding]


def persons(median: int, most: int, *ceilings: float) -> dict[str, Any]:
    return {
        "texts_per_person": {"median": median, "most": most},
        "person_ceiling": dict(zip(("median", "most"), ceilings, strict=True)),
    }


def test_the_sentence_says_from_how_many_texts(leak: Leak) -> None:
    row = leak("gender", 0.7, ceiling=0.731, parameters=persons(12, 40, 0.952, 0.9991))
    assert ceiling_sentence(row) == (
        "From one text the guarantee permits nobody more than 73 %; from 12 texts, as the median "
        "author has, 95 %; from 40 texts, as the author with most texts has, almost everything."
    )
    (verdict,) = verdicts(Findings((row,)))
    assert ceiling_sentence(row) in verdict.sentence
    nobody = leak("gender", 0.7, ceiling=0.731)
    assert ceiling_sentence(nobody) == "From one text the guarantee permits nobody more than 73 %."


@pytest.mark.parametrize(
    ("median", "most", "texts"), [(1, 1, []), (1, 9, [9]), (4, 4, [4]), (4, 9, [4, 9])]
)
def test_equal_numbers_stand_once_and_one_text_is_no_person(
    leak: Leak, median: int, most: int, texts: list[int]
) -> None:
    row = leak("gender", 0.6, ceiling=0.7, parameters=persons(median, most, 0.8, 0.9))
    assert [item.texts for item in person_ceilings(row)] == texts


def test_what_bounds_nothing_is_not_said_as_a_number(leak: Leak) -> None:
    assert ceiling_sentence(leak("gender", 0.6)) == ""
    loose = leak("gender", 0.6, ceiling=0.9996, parameters=persons(3, 9, 1.0, 1.0))
    assert ceiling_sentence(loose) == (
        "The guarantee alone rules out almost nothing here (ceiling above 99 % from one text)."
    )


@pytest.mark.parametrize("content", [None, 3, [], {"median": None}, {"median": "x"}])
def test_other_peoples_findings_are_read_as_none(leak: Leak, content: Any) -> None:
    broken = {"texts_per_person": content, "person_ceiling": content}
    assert person_ceilings(leak("gender", 0.6, ceiling=0.7, parameters=broken)) == []


def with_persons(findings: Findings) -> Findings:
    """The run with ceilings: 73 % from one text, 95 % from 12, all from 40."""
    rows = [
        replace(
            row,
            ceiling=0.731,
            parameters={**row.parameters, **persons(12, 40, 0.952, 0.9991)},
        )
        if row.kind == "attribute-inference" and row.metric == "balanced_accuracy"
        else row
        for row in findings
    ]
    return replace(findings, rows=tuple(rows))


def test_page_and_markdown_show_persons_beside_the_ceiling(protected: Findings) -> None:
    run = with_persons(protected)
    for page in (render_html(run).replace("\u00a0", " "), render_markdown(run)):
        assert "From one text the guarantee permits nobody more than 73 %; from 12 texts" in page
        assert "ceiling, from one text" in page
        assert "ceiling, from 12 texts (the median author)" in page
        assert "ceiling, from 40 texts (the author with most texts)" in page
        assert "95.2 %" in page
    plain = render_markdown(protected)
    assert "the median author)" not in plain and "ceiling, from one text" in plain


def test_no_page_has_a_ceiling_without_its_one_text(protected: Findings) -> None:
    for sentence in render_markdown(with_persons(protected)).replace("\n", " ").split(". "):
        if "permits" in sentence or "nobody can reach" in sentence:
            assert "one text" in sentence, sentence


def test_what_is_guaranteed_says_it_for_persons(protected: Findings) -> None:
    run = with_persons(protected)
    words = {item.title: item.text for item in answers(run, run)}["What is guaranteed"]
    assert "From one text nobody reaches more balanced accuracy than: “gender” 73 %" in words
    assert "From 12 texts of one person, as the median author has: “gender” 95 %" in words
    assert "From 40 texts of one person, as the author with most texts has" in words


def frontier(**changes: Any) -> Findings:
    content = {"points": [{"leakage": 0.1, "utility": 0.7, "settings": {}}], "ceiling": 0.758}
    return Findings((), artefacts={"frontier": {**content, **changes}})


def test_the_frontier_s_line_is_of_one_text_and_the_task_has_its_own() -> None:
    both = pareto.Frontier.read(frontier(utility_ceiling=0.858))
    assert both is not None
    drawn = str(pareto.picture(both))
    assert "most leakage from one text at this ε: 75.8 points" in drawn
    assert "most utility from one text at this ε: 85.8 %" in drawn
    assert ("ceiling", "ceiling of ε: nobody can go beyond it from one text") in pareto.legend(both)
    assert search_table(both).lines[-1].cells[0] == "ceiling of ε, from one text"
    assert search_table(both).lines[-1].cells[1:] == ("75.8 points", "85.8 %")
    # A frontier whose points differ in ε has no line for the task.
    without = pareto.Frontier.read(frontier())
    assert without is not None and without.utility_ceiling is None
    assert "most utility" not in str(pareto.picture(without))
