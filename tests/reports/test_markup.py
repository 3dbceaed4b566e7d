"""What users wrote is inert on every page and in every Markdown file.

Class names, attribute names, data names, groups of authors, methods and texts hold markup; an HTML
parser must find no element of it, nor may it in what a Markdown renderer makes of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from capelet.findings import Finding, Findings
from capelet.reports import render_html, render_markdown
from capelet.reports.html import draw_html
from capelet.reports.markdown import draw_markdown, escape
from capelet.reports.protection import protection_page

EVIL = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>|`x` **b** [l](http://h/l) "
    "![i](http://h/i) https://h.example www.h.example\n\n# h\n<svg onload=a>\n"
)


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links |= {value or "" for name, value in attrs if name in ("href", "src")}

    def handle_data(self, data: str) -> None:
        self.text += data


NAMED_BY_USERS = {
    *("attributes", "classes", "curves", "colours", "attackers", "settings", "versions"),
    "training_time",
}
"""Mappings whose keys are names that a user chose."""


def poison(content: Any, key: str = "") -> Any:
    """Every text replaced by markup, and every name that a user chose."""
    if isinstance(content, dict):
        names = key in NAMED_BY_USERS
        return {
            EVIL if names else name: value if name in ("notion", "status") else poison(value, name)
            for name, value in content.items()
        }
    if isinstance(content, list | tuple):
        return [poison(item) for item in content]
    return EVIL if isinstance(content, str) else content


def rendered(text: str) -> str:
    """What a renderer that lets HTML through makes of Markdown."""
    markdown_it = pytest.importorskip("markdown_it", reason="no Markdown renderer to check with")
    renderer = markdown_it.MarkdownIt("commonmark", {"html": True})
    return str(renderer.enable(["table", "strikethrough"]).render(text))


def evil(findings: Findings) -> Findings:
    """The run with markup wherever a user's word can stand; kinds and metrics stay."""
    rows = tuple(
        replace(
            row,
            target=EVIL if row.kind.startswith(("attribute", "utility")) else row.target,
            subgroup=f"{EVIL}={EVIL}" if row.kind == "fairness" else row.subgroup,
            attacker=EVIL if row.attacker in ("tab", "loss", "multi-label") else row.attacker,
            parameters={**row.parameters, "method": EVIL}
            if "method" in row.parameters
            else row.parameters,
        )
        for row in findings
    )
    return Findings(
        rows,
        poison(dict(findings.provenance)),
        poison(dict(findings.recipe)),
        poison(dict(findings.artefacts)),
    )


def words_run() -> Findings:
    rows = [
        Finding("inversion", "words", metric, 0.5, 0.48, 0.52, majority=0.2, attacker="multi-label")
        for metric in ("f1", "recall", "precision", "bleu")
    ]
    rows.append(replace(rows[1], subgroup=EVIL))
    reading = {"named": 2, "right": 1, "f1": 0.5, "right_words": ["x"], "wrong_words": ["y"]}
    examples = [{"words": 2, "text": "x", "attackers": {"multi-label": reading}}]
    return Findings(
        tuple(rows),
        {"data": {"name": "mails"}, "warnings": ["w"], "command": "capelet invert"},
        artefacts={"inversion_examples": {"redacted": False, "examples": examples}},
    )


def member_run() -> Findings:
    row = Finding("membership", EVIL, "advantage", 0.2, 0.17, 0.23, chance=0.0, attacker=EVIL)
    return Findings((row, replace(row, subgroup=EVIL)), {"data": {"name": "mails"}})


def language_run() -> Findings:
    rows = [
        Finding(
            "extraction" if level else "extraction-null", "canaries", "exposure_bits", 3.0, 2.0,
            4.0,
            chance=1.44, attacker="exposure", subgroup=EVIL,
            parameters={"repetitions": level, "method": "own"},
        )
        for level in (0, 5)
    ]  # fmt: skip
    about = {"method": "own"}
    rows += [
        Finding("extraction", "real texts", "accuracy", 0.1, 0.0, 0.2, n=9, attacker="tab"),
        Finding("membership", "training texts", "auc", 0.6, 0.5, 0.7, chance=0.5, attacker="loss"),
        Finding("utility", "next word", "perplexity", 90.0, 86.0, 94.0, parameters=about),
        Finding("fairness", "next word", "perplexity", 90.0, 86.0, 94.0, subgroup="city=x"),
    ]
    provenance = {"data": {"name": "x", "n": 3}, "guarantee": {"sentence": "x"}, "command": "x"}
    recipe = {"network": "x", "method": {"name": "x"}}
    return Findings(tuple(rows), provenance, recipe, {"training_time": {"own": 1.0}})


@pytest.fixture(
    params=["audit", "comparison", "protection", "words", "members", "language", "languages"]
)
def both(request: pytest.FixtureRequest, findings: Findings, after: Findings) -> tuple[str, str]:
    """HTML and Markdown of each kind of page, with markup in all that a user wrote."""
    if request.param == "protection":
        page = protection_page(evil(findings), evil(after))
        return draw_html(page), draw_markdown(page)
    runs: dict[str, Callable[[], tuple[Findings, ...]]] = {
        "audit": lambda: (evil(after),),
        "comparison": lambda: (evil(findings), evil(after)),
        "words": lambda: (evil(words_run()),),
        "members": lambda: (evil(member_run()),),
        "language": lambda: (evil(language_run()),),
        "languages": lambda: (evil(language_run()), evil(language_run())),
    }
    made = runs[request.param]()
    return render_html(*made), render_markdown(*made)


def test_the_page_holds_no_element_of_a_user(both: tuple[str, str]) -> None:
    seen = Tags(both[0])
    assert not seen.tags & {"script", "img", "iframe"}
    assert not any(name.startswith("on") for name in seen.attributes)
    assert all(link.startswith("#") for link in seen.links)
    assert "<script>alert(1)</script>" in seen.text  # it is there, as text


def test_the_markdown_holds_no_element_of_a_user(both: tuple[str, str]) -> None:
    markdown_it = pytest.importorskip("markdown_it", reason="no Markdown renderer to check with")
    renderer = markdown_it.MarkdownIt("commonmark", {"html": True}).enable(
        ["table", "strikethrough"]
    )
    seen = Tags(renderer.render(both[1]))
    allowed = {"h1", "h2", "h3", "h4", "p", "ul", "li", "strong", "em", "blockquote", "pre", "code"}
    assert seen.tags <= allowed | {"table", "thead", "tbody", "tr", "th", "td"}
    assert "<script>alert(1)</script>" in seen.text
    outside = [line for line in both[1].splitlines() if not line.startswith("    ")]
    assert not any("<" in line or "://" in line or "www." in line for line in outside)
    for block in both[1].split("\n\n"):
        if block.startswith("|"):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(widths) == 1


def test_the_check_can_fail() -> None:
    assert {"script", "a", "img"} <= Tags(rendered(f"- x {EVIL}")).tags
    assert Tags(rendered(f"- {escape(EVIL)}")).tags == {"ul", "li"}


@pytest.mark.parametrize("text", ["# a", "- a", "+ a", "1. a", "2) a", "---", "===", "> a", " a"])
def test_a_line_of_text_stays_a_line_of_text(text: str) -> None:
    seen = Tags(rendered(escape(text)))
    assert seen.tags == {"p"} and seen.text.strip() == text.strip()
