"""Original and released vectors: in words, in a table and in one map, alone and side by side."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

from capelet.findings import Finding, Findings
from capelet.reports import render_html, render_markdown
from capelet.reports.kinds import report_of
from capelet.reports.kinds.deviation import CAUTION


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).replace("\u00a0", " ").split())


def told(value: float, low: float) -> Findings:
    row = Finding("deviation", "vectors", "separability", value, low, value + 0.01, chance=0.5)
    return Findings((row,))


@pytest.mark.parametrize(
    ("value", "low", "said"),
    [
        (0.997, 0.99, "can nearly always be told"),
        (0.70, 0.66, "can in part be told"),
        (0.51, 0.49, "could not be told"),
        (0.5, 0.5, "could not be told"),
    ],
)
def test_the_sentence_follows_the_interval(value: float, low: float, said: str) -> None:
    (sentence,) = report_of("deviation").sentences(told(value, low))
    assert said in sentence and "guessing reaches 50 %" in sentence


def test_a_run_without_protection_has_no_such_section(findings: Findings) -> None:
    assert report_of("deviation").section(findings) is None
    assert 'id="shift"' not in render_html(findings)
    assert "Original and released" not in render_markdown(findings)


def test_the_page_shows_the_map_the_numbers_and_their_controls(protected: Findings) -> None:
    page = render_html(protected)
    said = words(page)
    assert "Original and released vectors in one map." in said
    assert "300 of 1,640 victims" in said
    assert "original 300" in said and "released 300" in said
    assert "told apart 99.7 % 99.5–99.9 50.0 % 50.3 %" in said
    assert "Euclidean distance 7.041 7.020–7.060" in said
    assert "means over 8,170 texts" in said and "1,640 victims per seed" in said
    assert "cosine distance of 0.853" in said and CAUTION in said
    assert said.count("Deviation of the vectors") == 1  # not once more among the other tables
    assert page.index('id="map"') < page.index('id="shift"') < page.index('id="tables"')
    assert "For each word 7.31-local differential privacy" in said
    text = render_markdown(protected)
    assert "## Original and released vectors" in text and "| told apart |" in text
    assert CAUTION in text
    assert "7.31-local differential privacy for each word" in text


def test_two_runs_stand_side_by_side(findings: Findings, protected: Findings) -> None:
    other = replace(
        protected, rows=(*findings.rows, *told(0.56, 0.53).rows), artefacts=protected.artefacts
    )
    page = render_html(protected, other)
    assert page.count("coloured by original or released") == 2
    assert page.count(CAUTION) == 1 and "Before: laplace ε = 8.0" in words(page)
    assert "told apart 99.7 % 99.5–99.9 56.0 % 53.0–57.0" in words(page)
    assert "| told apart |" in render_markdown(protected, other)
    one = words(render_html(findings, protected))
    assert "No map: this run released the vectors as they are" in one
    assert "told apart – 99.7 %" in one


@pytest.mark.parametrize(
    "artefact",
    [None, {}, {"points": []}, {"points": [[0, 1]], "released": None}, {"released": [True]}],
)
def test_a_broken_map_leaves_the_numbers(protected: Findings, artefact: object) -> None:
    made = replace(protected, artefacts={"tsne_shift": artefact})
    said = words(render_html(made))
    assert "Deviation of the vectors" in said and "in one map" not in said
