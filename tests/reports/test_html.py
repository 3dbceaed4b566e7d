"""The page stands alone, escapes what users wrote, and carries every number of its pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from capelet.findings import Finding, Findings
from capelet.reports import render_html, render_markdown, verdicts, write_comparison, write_report
from capelet.reports.formatting import percent

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}\x00"
VOID = {"meta", "br", "img", "hr", "input", "link"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that every tag is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def plain(page: str) -> str:
    """The words of the page, with ordinary spaces."""
    return " ".join(Reader(page).text.replace("\u00a0", " ").split())


def pictures(page: str) -> list[ElementTree.Element]:
    """Every outer SVG, read by a strict XML parser."""
    parts = _outer(page)
    assert parts
    return [ElementTree.fromstring(part) for part in parts]


def _outer(page: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"<svg\b|</svg>", page):
        if match[0] == "<svg":
            start = match.start() if depth == 0 else start
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                parts.append(page[start : match.end()])
    return parts


@pytest.fixture(scope="module")
def page(findings: Findings) -> str:
    return render_html(findings)


@pytest.fixture(scope="module")
def both(findings: Findings, protected: Findings) -> str:
    return render_html(findings, protected)


@pytest.mark.parametrize("which", ["page", "both"])
def test_nothing_is_fetched_and_nothing_runs(which: str, request: pytest.FixtureRequest) -> None:
    content: str = request.getfixturevalue(which)
    reader = Reader(content)
    for tag, attributes in reader.tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "embed", "base"}
        assert "src" not in attributes and "srcset" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "url(" not in content and "@import" not in content
    assert "http://" not in content and "https://" not in content
    anchors = [a["href"] for tag, a in reader.tags if tag == "a" and a.get("href")]
    names = {a.get("id") for _, a in reader.tags}
    assert anchors and all(anchor[1:] in names for anchor in anchors if anchor)


@pytest.mark.parametrize("which", ["page", "both"])
def test_no_template_language_is_left_over(which: str, request: pytest.FixtureRequest) -> None:
    content: str = request.getfixturevalue(which)
    assert not re.search(r"\{\{|\}\}|\{%|%\}|\bUndefined\b|>None<|\bnan\b", content)


def test_every_picture_is_well_formed_and_says_what_it_shows(page: str) -> None:
    shown = [picture for picture in pictures(page) if picture.get("role") == "img"]
    assert len(shown) == 3 + 1 + 1 + 1 + 3  # curves, leaks, task, groups, maps
    for picture in shown:
        assert len(picture.get("aria-label") or "") > 20
    titles = [title.text for picture in shown for title in picture.iter("title")]
    assert "gender: 78.4 %, 95 % interval 76.0–80.6 %" in titles
    assert "chance: 33.3 %" in titles


def test_the_verdicts_come_first_and_word_for_word(page: str, findings: Findings) -> None:
    words = plain(page)
    for verdict in verdicts(findings):
        assert verdict.statement in words
    order = [
        'id="verdicts"',
        'id="attacker"',
        'id="leakage"',
        'id="task"',
        'id="map"',
        'id="tables"',
        'id="method"',
        'id="limits"',
        'id="provenance"',
        'id="sign-off"',
    ]
    places = [page.index(mark) for mark in order]
    assert places == sorted(places)


def test_every_number_of_a_picture_is_printed(page: str, findings: Findings) -> None:
    words = plain(page)
    for row in findings:
        if row.metric in ("balanced_accuracy", "accuracy"):
            assert percent(row.value, 1) in words
    for curve in findings.artefacts["learning_curve"]["curves"].values():
        for value in curve["value"]:
            assert percent(value, 1) in words
    for name, classes in findings.artefacts["tsne"]["colours"].items():
        for group in {item for item in classes if item is not None}:
            assert f"{group} {classes.count(group)}" in words, name


def test_provenance_is_complete(page: str, findings: Findings) -> None:
    words = plain(page)
    for part in (
        findings.provenance["data"]["digest"],
        findings.provenance["encoder"]["fingerprint"],
        findings.provenance["command"],
        "15 November 2026, 09:00 UTC",
        "0, 1, 2, 3, 4",
        "scikit-learn 1.6.0",
        "capelet 0.1.0",
        "5f0c2a91",
        "3 min 20 s",
        "cut into thirds at 28 and 41",
        *findings.provenance["warnings"],
    ):
        assert part in words


def _renamed(findings: Findings) -> Findings:
    rows = tuple(
        replace(
            row,
            target=EVIL if row.target == "gender" else row.target,
            subgroup=f"{EVIL}={EVIL}" if row.subgroup else None,
        )
        for row in findings
    )
    artefacts = dict(findings.artefacts)
    curves = artefacts["learning_curve"]["curves"]
    artefacts["learning_curve"] = {
        "curves": {EVIL: curves["gender"]},
        "attacker": EVIL,
        "metric": EVIL,
    }
    tsne = artefacts["tsne"]
    artefacts["tsne"] = {**tsne, "colours": {EVIL: [EVIL] * len(tsne["points"])}}
    provenance = {
        **findings.provenance,
        "warnings": [EVIL],
        "command": EVIL,
        "created": EVIL,
        "data": {**findings.provenance["data"], "name": EVIL, "where": EVIL},
        "attributes": {EVIL: {"classes": {EVIL: 3}, "missing": 1, "notes": [EVIL]}},
        "encoder": {"name": EVIL, "fingerprint": EVIL},
        "versions": {EVIL: EVIL},
        "guarantee": {"sentence": EVIL},
        "label": {"name": EVIL, "classes": {EVIL: 2}},
    }
    other = Finding("inversion", EVIL, "f1_macro", 0.4, attacker=EVIL, subgroup=EVIL)
    return Findings((*rows, other), provenance, {"step": EVIL}, artefacts)


def test_what_users_wrote_cannot_become_markup(findings: Findings) -> None:
    evil = _renamed(findings)
    for page in (render_html(evil), render_html(evil, evil)):
        reader = Reader(page)
        assert not {tag for tag, _ in reader.tags} & {"script", "img"}
        assert not any(name.startswith("on") for _, given in reader.tags for name in given)
        assert "<script>alert(1)</script>" in reader.text
        pictures(page)
    for text in (render_markdown(evil), render_markdown(evil, evil)):
        outside = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
        assert "<script" not in outside and "<img" not in outside


def test_the_shortest_findings_make_a_page() -> None:
    words = plain(render_html(Findings(())))
    assert "says nothing about leaks" in words
    assert "share no attribute" in plain(render_html(Findings(()), Findings(())))


@pytest.mark.parametrize(
    "missing",
    [
        "data",
        "encoder",
        "split",
        "guarantee",
        "label",
        "attributes",
        "seconds",
        "versions",
        "created",
        "command",
        "warnings",
        "capelet",
    ],
)
def test_a_missing_part_of_the_provenance_is_tolerated(findings: Findings, missing: str) -> None:
    without = {key: value for key, value in findings.provenance.items() if key != missing}
    for provenance in (without, {**without, missing: None}, {**without, missing: {}}):
        if (
            missing in ("created", "command", "capelet", "warnings")
            and provenance.get(missing) == {}
        ):
            continue
        made = replace(findings, provenance=provenance)
        assert "strong leak" in plain(render_html(made))
        assert "strong leak" in render_markdown(made)
        render_html(made, findings)


@pytest.mark.parametrize(
    "artefacts",
    [
        {},
        {"learning_curve": None, "tsne": None},
        {"learning_curve": {}, "tsne": {}},
        {"learning_curve": {"curves": {"gender": {}, "age group": None}}, "tsne": {"points": []}},
        {
            "learning_curve": {"curves": {"gender": {"labels_per_class": [10], "value": [0.6]}}},
            "tsne": {"points": [[0, 0]], "colours": {"gender": [None], "region": None}},
        },
        {
            "learning_curve": {
                "curves": {
                    "gender": {
                        "labels_per_class": [10, 5000],
                        "value": [None, 0.6],
                        "low": [0.5, None],
                    }
                }
            }
        },
    ],
)
def test_missing_artefacts_are_tolerated(findings: Findings, artefacts: dict[str, Any]) -> None:
    made = replace(findings, artefacts=artefacts)
    page = render_html(made)
    assert "strong leak" in plain(page)
    pictures(page)
    render_markdown(made)


def test_later_kinds_of_findings_have_their_table(findings: Findings) -> None:
    rows = (
        Finding("inversion", "words", "f1_macro", 0.41, 0.39, 0.43, attacker="multiset", n=500),
        Finding("inversion-null", "words", "f1_macro", 0.02, attacker="multiset"),
        Finding("deviation", "vectors", "euclidean", 783.24),
    )
    made = Findings((*findings.rows, *rows), findings.provenance)
    words = plain(render_html(made))
    assert "Inversion: words read back from vectors" in words
    assert "41.0 % 39.0–43.0" in words
    assert "words (paired with another text)" in words
    assert "Deviation of the vectors" in words and "783.2" in words
    assert "Not measured: reading words back" not in words


def test_many_classes_share_the_last_colour(findings: Findings) -> None:
    classes = [f"city {i % 12:02d}" for i in range(240)]
    points = [[float(i), float(i % 7)] for i in range(240)]
    tsne = {"points": points, "colours": {"city": classes}, "shown": 240, "of": 240}
    words = plain(render_html(replace(findings, artefacts={"tsne": tsne})))
    assert "5 rarer classes 100" in words


def test_saved_findings_make_the_same_report(findings: Findings, tmp_path: Path) -> None:
    page = write_report(findings, tmp_path / "run")
    assert page == tmp_path / "run" / "report.html"
    assert {item.name for item in page.parent.iterdir()} == {
        "report.html",
        "report.md",
        "findings.json",
        "artefacts",
    }
    again = Findings.load(page.parent)
    assert render_html(again) == page.read_text(encoding="utf-8")
    assert render_markdown(again) == (page.parent / "report.md").read_text(encoding="utf-8")


def test_values_that_are_not_numbers_print_as_a_dash(
    findings: Findings, leak: Callable[..., Finding], tmp_path: Path
) -> None:
    rows = (*findings.rows, leak("income", float("nan"), low=None, high=None))
    made = replace(findings, rows=rows)
    write_report(made, tmp_path)
    assert "income: – balanced accuracy" in plain(render_html(made))
    assert render_html(Findings.load(tmp_path)) == render_html(made)


def test_a_comparison_says_what_changed(both: str, findings: Findings, protected: Findings) -> None:
    words = plain(both)
    assert "gender: balanced accuracy falls from 78.4 % to 61.4 % (17.0 points)" in words
    assert "the intervals do not overlap" in words
    assert "“gender” and “age group” leaked less in the second run" in words
    assert "for the task “stars” no difference is beyond doubt" in words
    assert "Not quite comparable" not in words
    assert words.count("Before") >= 3 and words.count("After") >= 3
    bars = next(p for p in pictures(both) if "both runs" in (p.get("aria-label") or ""))
    assert "gender, after: 61 %" in (bars.get("aria-label") or "")


def test_runs_on_different_data_are_not_quite_comparable(
    findings: Findings, run: Callable[..., Findings]
) -> None:
    data = {**findings.provenance["data"], "digest": "other"}
    split = {**findings.provenance["split"], "seeds": [7]}
    other = run(shift=1.4, accuracy=0.7, changes={"data": data, "split": split})
    words = plain(render_html(findings, other))
    assert "The two runs measured different data" in words
    assert "split the data differently" in words
    assert "First run" in words and "Second run" in words
    assert "leaked more in the second run" in words and "the task “stars” lost" in words


def test_a_comparison_is_written_beside_the_reports(
    findings: Findings, protected: Findings, tmp_path: Path
) -> None:
    page = write_comparison(findings, protected, tmp_path / "both")
    assert page.name == "comparison.html"
    assert page.read_text(encoding="utf-8") == render_html(findings, protected)
    assert (page.parent / "comparison.md").is_file()
