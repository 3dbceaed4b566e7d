"""The page on a private encoder: what leaked, what leaks now, the price, and what is proven."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from capelet.findings import Finding, Findings
from capelet.privacy.guarantees import NONE
from capelet.reports import write_protection
from capelet.reports.answers import answers, attribute_changes, lead
from capelet.reports.draw import pareto
from capelet.reports.frontier import search_sentences
from capelet.reports.html import draw_html
from capelet.reports.markdown import draw_markdown
from capelet.reports.protection import (
    both_bars,
    comfort,
    comfort_sentences,
    protection_page,
)


def changed(findings: Findings, **changes: Any) -> Findings:
    """The run with parts of what is said about its training replaced."""
    about = {**findings.provenance["protect"], **changes}
    return replace(findings, provenance={**findings.provenance, "protect": about})


def without_noise(findings: Findings) -> Findings:
    # As `protect` writes it of a map without noise.
    promise = replace(NONE, training=NONE)
    none = {**promise.to_json(), "sentence": promise.sentence()}
    return replace(findings, provenance={**findings.provenance, "guarantee": none})


def render_protection(before: Findings, after: Findings) -> str:
    return draw_html(protection_page(before, after))


def render_protection_markdown(before: Findings, after: Findings) -> str:
    return draw_markdown(protection_page(before, after))


def test_both_pages_are_written(findings: Findings, after: Findings, tmp_path: Path) -> None:
    page = write_protection(findings, after, tmp_path / "out")
    assert page == tmp_path / "out" / "report.html"
    assert (tmp_path / "out" / "report.md").read_text("utf-8").startswith("# A private encoder")
    assert sorted(item.name for item in page.parent.iterdir()) == ["report.html", "report.md"]


def test_the_lead_says_leak_price_and_promise(findings: Findings, after: Findings) -> None:
    said = lead(findings, after)
    assert "“gender” and “age group” leak less than before, but still leak;" in said
    assert "no leak of “region” was found, before or after" in said
    assert "The task “stars” goes from 86.1 % to 84.2 % (−1.9 points)." in said
    assert "Guaranteed is 8-local differential privacy for each text (proven)" in said


def test_nothing_changed_is_not_called_better(findings: Findings, after: Findings) -> None:
    same = replace(findings, provenance=without_noise(after).provenance)
    assert {item.target: item.kind for item in attribute_changes(findings, same)} == {
        "gender": "same",
        "age group": "same",
        "region": "quiet",
    }
    assert "“gender” and “age group” leak as before" in lead(findings, same)


def test_a_leak_that_rose_is_said_first(findings: Findings, after: Findings) -> None:
    assert lead(after, replace(findings, provenance=after.provenance)).startswith(
        "“gender” and “age group” leak more than before"
    )


def test_what_is_proven_and_what_is_measured_stand_apart(
    findings: Findings, after: Findings
) -> None:
    said = {item.title: item.text for item in answers(findings, after)}
    assert "8-local differential privacy" in said["What is guaranteed"]
    assert "rules out next to nothing" in said["What is guaranteed"]  # a ceiling of 99.96 %
    assert "differed between groups by up to 2.6 points" in said["What it costs"]
    bare = {item.title: item.text for item in answers(findings, without_noise(after))}
    assert bare["What is guaranteed"].startswith("Nothing.")
    for page in (render_protection, render_protection_markdown):
        shown = page(findings, without_noise(after))
        assert "no noise is added" in shown
        assert "released as they are" not in shown


def test_training_texts_are_not_private_unless_it_says_so(
    findings: Findings, after: Findings
) -> None:
    sentence = "A trained map is not private towards the texts it was trained on"
    trained = changed(after, private_towards_training_texts=True)
    for page in (render_protection, render_protection_markdown):
        assert sentence in page(findings, after) and "4,085 texts" in page(findings, after)
        assert sentence not in page(findings, trained)
        assert "it is private towards the texts it was trained on" in page(findings, trained)
        # It covers the map, and not what this very page tells of these texts.
        assert "and no ε covers them" in page(findings, trained)
        assert "and no ε covers them" not in page(findings, after)


def test_false_comfort_is_the_fresh_score_minus_its_own(after: Findings) -> None:
    table = comfort(after)
    assert table is not None
    cells = {line.cells[0]: line.cells[1:] for line in table.lines}
    # 0.5 + 0.4 · 0.284 = 61.4 % for the fresh attacker, 51 % for the defence's own.
    assert cells["gender"][1] == "51.0 %" and cells["gender"][3] == "+10.4"
    assert cells["gender"][2].startswith("61.4 % (")
    assert cells["region (held out)"][1] == "–"
    assert "10.4 points are false comfort" in comfort_sentences(after)[0]


def test_no_comfort_without_an_adversary_or_without_a_gap(
    findings: Findings, protected: Findings
) -> None:
    assert comfort(protected) is None and comfort_sentences(protected) == []
    assert "False comfort" not in render_protection(findings, protected)
    honest = Finding(
        "attribute-inference-reference",
        "gender",
        "balanced_accuracy",
        0.62,
        chance=0.5,
        attacker="joint-adversary",
    )
    said = comfort_sentences(replace(protected, rows=(*protected.rows, honest)))
    assert "did not deceive itself" in said[0]


def test_held_out_attributes_are_marked(findings: Findings, after: Findings) -> None:
    leaks, _ = both_bars(findings, after)
    assert {bar.group for bar in leaks} == {"gender", "age group", "region (held out)"}
    page = render_protection(findings, after)
    assert "the training never saw this attribute" in page
    assert "Held out from the training: region" in page
    seen = render_protection(findings, changed(after, hold_out=[]))
    assert "held out" not in seen.lower()


def test_neighbours_begin_at_all_of_them(findings: Findings, after: Findings) -> None:
    _, tasks = both_bars(findings, after)
    kept = [bar for bar in tasks if bar.group == "ten nearest neighbours kept"]
    assert [(bar.label, bar.value) for bar in kept] == [
        ("before, by definition", 1.0),
        ("after", 0.41),
    ]


def test_the_frontier_is_drawn_with_its_lines(findings: Findings, after: Findings) -> None:
    found = pareto.Frontier.read(after)
    assert found is not None and found.choice is not None
    drawn = str(pareto.picture(found))
    ElementTree.fromstring(drawn)
    assert drawn.count("<circle") == len(found.points) + 1  # the chosen one has a ring
    for kind in ("chance", "ceiling", "full", "wanted"):
        assert f'class="mark {kind}"' in drawn
    assert drawn in render_protection(findings, after)
    assert "λ = 0, ε = 4 (chosen)" in render_protection_markdown(findings, after)


def test_no_frontier_no_picture(findings: Findings, after: Findings) -> None:
    bare = {key: value for key, value in after.artefacts.items() if key != "frontier"}
    plain = replace(after, artefacts=bare)
    assert pareto.Frontier.read(plain) is None
    assert 'id="frontier"' not in render_protection(findings, plain)
    for broken in ({}, {"points": []}, {"points": [{"leakage": None, "utility": 0.5}]}, [1]):
        assert pareto.Frontier.read(replace(after, artefacts={"frontier": broken})) is None


@pytest.mark.parametrize(
    ("wanted", "chosen", "words"),
    [
        ({"max_leakage": 0.06}, True, "4 settings reach it; chosen was λ = 0, ε = 4"),
        ({"min_utility": 0.90}, False, "No setting reaches it. The nearest (λ = 0, ε = 8)"),
        ({"max_leakage": 0.01}, False, "misses it by 1.4 points"),
        ({}, True, "The chosen setting (λ = 0, ε = 4)"),
    ],
)
def test_what_was_asked_for_is_answered(
    after: Findings,
    frontier: Callable[..., dict[str, Any]],
    wanted: dict[str, float],
    chosen: bool,
    words: str,
) -> None:
    made = frontier(wanted=wanted)
    if not chosen:
        made["points"] = [{**point, "chosen": False} for point in made["points"]]
    found = pareto.Frontier.read(replace(after, artefacts={"frontier": made}))
    assert found is not None
    assert words in " ".join(search_sentences(found))
    ElementTree.fromstring(str(pareto.picture(found)))


def test_a_frontier_of_one_point_without_lines_is_drawn(after: Findings) -> None:
    point = {"leakage": -0.01, "utility": 0.7, "settings": {}, "chosen": True}
    found = pareto.Frontier.read(replace(after, artefacts={"frontier": {"points": [point]}}))
    assert found is not None
    ElementTree.fromstring(str(pareto.picture(found)))
    assert "nan" not in str(pareto.picture(found))


def test_user_text_is_escaped(findings: Findings, after: Findings) -> None:
    evil = "<script>alert(1)</script>|x"
    rows = tuple(replace(row, target=evil) if row.target == "gender" else row for row in after)
    made = after.artefacts["frontier"]
    points = [{**point, "settings": {evil: evil}} for point in made["points"]]
    bad = replace(
        changed(after, hold_out=[evil], method=evil),
        rows=rows,
        artefacts={**after.artefacts, "frontier": {**made, "points": points, "utility": evil}},
    )
    assert "<script" not in render_protection(findings, bad)
    written = render_protection_markdown(findings, bad)
    assert "<script" not in written
    for block in written.split("\n\n"):
        if block.startswith("|"):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(widths) == 1


def test_runs_without_anything_measured_have_a_page() -> None:
    empty = Findings(())
    assert "says nothing about leaks" in render_protection(empty, empty)
    assert "No private attribute was measured" in render_protection_markdown(empty, empty)
