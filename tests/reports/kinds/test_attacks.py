"""Words, writers and training texts on the page: judged against base and control."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capelet.findings import Finding, Findings
from capelet.reports import all_verdicts, render_html, render_markdown, write_report
from capelet.reports.comparison import all_changes, change_summary
from capelet.reports.draw.bars import bars
from capelet.reports.kinds import report_of, reports_of, summary
from capelet.reports.page import Bars, Section, Text


def sections(findings: Findings) -> list[Section]:
    made = [report.section(findings) for report in reports_of(findings)]
    return [item for item in made if item is not None]


def pictures(section: Section) -> list[str]:
    return [str(bars(item.rows, item.name)) for item in section.blocks if isinstance(item, Bars)]


def sentences(section: Section) -> tuple[str, ...]:
    return next(item.sentences for item in section.blocks if isinstance(item, Text))


def word_rows(value: float, null: float = 0.18, attacker: str = "multi-label") -> list[Finding]:
    """What one attacker read, around this F1; the blind guess reaches 0.20."""
    shared: dict[str, Any] = {"attacker": attacker, "n": 400}
    about = {"auxiliary": 1500, "draws": 1, "vocabulary": 900, "access": "black-box"}
    rows = [
        Finding(
            "inversion", "words", metric, value + shift, value + shift - 0.01, value + shift + 0.01,
            majority=0.2, parameters=about, **shared,
        )
        for metric, shift in (("f1", 0.0), ("precision", 0.03), ("recall", -0.02))
    ]  # fmt: skip
    rows.append(Finding("inversion-null", "words", "f1", null, null - 0.01, null + 0.01, **shared))
    for place, band in enumerate(("rarest fifth of words", "most frequent fifth of words")):
        found = value - 0.2 + 0.4 * place
        rows.append(
            Finding(
                "inversion", "words", "recall", found, found - 0.02, found + 0.02,
                subgroup=band, **shared,
            )
        )  # fmt: skip
    return rows


def blind_row() -> Finding:
    return Finding(
        "inversion-reference", "words", "f1", 0.2, 0.19, 0.21, n=400, attacker="most-frequent"
    )


def writer_rows(value: float) -> list[Finding]:
    about = {"shots": 10, "writers": 100, "by_seed": [value]}
    rows = []
    for metric, chance in (("top1", 0.01), ("top5", 0.05)):
        for kind, attacker, got in (
            ("authorship", "linear", value),
            ("authorship-null", "linear", chance),
            ("authorship-reference", "text-cnn", 0.14),
        ):
            rows.append(
                Finding(
                    kind, "author", metric, got, got - 0.02, got + 0.02, chance=chance, n=4000,
                    attacker=attacker, parameters=about,
                )
            )  # fmt: skip
    return rows


def member_rows(value: float, width: float = 0.03) -> list[Finding]:
    rows = []
    tenths = [f"decile {number} by word frequency" for number in (1, 10)]
    for group, got in ((None, value), (tenths[0], value * 2), (tenths[1], 0.0)):
        for kind, shown in (("membership", got), ("membership-null", 0.002)):
            for metric in ("advantage", "auc"):
                level = 0.5 if metric == "auc" else 0.0
                rows.append(
                    Finding(
                        kind, "windows", metric, level + shown, level + shown - width,
                        level + shown + width, chance=level, n=900, attacker="window-cosine",
                        subgroup=group,
                    )
                )  # fmt: skip
    return rows


def examples(redacted: bool) -> dict[str, Any]:
    read: dict[str, Any] = {"named": 3, "right": 2, "f1": 0.5}
    item: dict[str, Any] = {"words": 5, "attackers": {"multi-label": read}}
    if not redacted:
        read |= {"right_words": ["rain", "<b>"], "wrong_words": ["sun"]}
        item["text"] = "It <script>alert(1)</script> rained | all day"
    return {"redacted": redacted, "examples": [item]}


@pytest.fixture
def found() -> Findings:
    """A run that found words, writers and training texts."""
    rows = (*word_rows(0.55), blind_row(), *writer_rows(0.4), *member_rows(0.2))
    return Findings(
        rows,
        {"data": {"name": "mails", "digest": "d"}, "encoder": {"fingerprint": "f"}},
        artefacts={"inversion_examples": examples(redacted=True)},
    )


@pytest.fixture
def nothing() -> Findings:
    """The same run after a protection that left nothing."""
    rows = (*word_rows(0.201, 0.2), blind_row(), *writer_rows(0.05), *member_rows(0.01))
    return Findings(
        rows, {"data": {"name": "mails", "digest": "d"}, "encoder": {"fingerprint": "f"}}
    )


def test_a_leak_is_judged_against_what_needs_no_vectors(found: Findings, nothing: Findings) -> None:
    levels = {verdict.target: verdict.level for verdict in all_verdicts(found)}
    assert levels == {"words": "strong", "writer": "strong", "training texts": "strong"}
    words = all_verdicts(found)[0]
    assert words.chance == 0.2 and words.gain == pytest.approx(0.35)
    assert "55 % (95 % interval 54–56 %) against 20 %" in words.sentence
    assert {verdict.level for verdict in all_verdicts(nothing)} == {"none"}
    assert "could not be told apart" in all_verdicts(nothing)[1].sentence


def test_a_score_that_the_control_reaches_too_is_no_leak() -> None:
    rows = Findings((*word_rows(0.55, null=0.545), blind_row()))
    assert all_verdicts(rows)[0].level == "inconclusive"


def test_the_score_of_membership_that_is_judged_was_fixed_beforehand() -> None:
    """A lucky score of few writers is shown, but it decides nothing."""
    luck = Finding(
        "membership", "aggregates", "advantage", 0.4, 0.2, 0.6, chance=0.0, attacker="dot", n=40
    )
    rows = Findings((*member_rows(0.01), luck))
    chosen = report_of("membership").strongest(rows)
    assert chosen is not None and chosen.target == "windows"
    assert all_verdicts(rows)[0].level == "none"
    drawn = pictures(sections(rows)[0])[0]
    assert "dot product" in drawn and "level-strong" not in drawn


def test_scores_of_one_target_stand_together() -> None:
    rows = [
        Finding("membership", target, "advantage", 0.1, 0.0, 0.2, chance=0.0, attacker=name, n=40)
        for name in ("dot", "cosine")
        for target in ("pairs", "aggregates")
    ]
    drawn = pictures(sections(Findings(tuple(rows)))[0])[0]
    assert drawn.count(">pairs<") == drawn.count(">aggregates<") == 1


def test_an_attacker_that_always_says_the_same_is_not_judged() -> None:
    still = Finding("inversion", "words", "f1", 0.4, 0.4, 0.4, majority=0.2, attacker="multi-set")
    chosen = report_of("inversion").strongest(Findings((*word_rows(0.3), still)))
    assert chosen is not None and chosen.attacker == "multi-label"


def test_the_whole_run_is_said_without_any_attribute(found: Findings, nothing: Findings) -> None:
    said = summary(found)
    assert said.startswith("53 % of a text’s words can be read back")
    assert "first five guesses of 100 for 40 %" in said and "advantage of 20 points" in said
    assert "no words could be read back" in summary(nothing).lower()
    page = render_html(found)
    assert "No private attribute was measured" not in page
    assert 'id="inversion"' in page and 'id="authorship"' in page and 'id="membership"' in page
    assert 'id="leakage"' not in page


def test_attributes_come_first_and_keep_their_page(findings: Findings, found: Findings) -> None:
    both = replace(findings, rows=(*findings.rows, *found.rows))
    assert [verdict.target for verdict in all_verdicts(both)][-3:] == [
        "words", "writer", "training texts",
    ]  # fmt: skip
    assert summary(both).startswith("The vectors give away")
    assert 'id="leakage"' in render_html(both)
    assert 'id="inversion"' not in render_html(findings)


def test_pictures_hold_value_base_and_control(found: Findings) -> None:
    words, writers, members = sections(found)
    assert [len(pictures(item)) for item in (words, writers, members)] == [2, 1, 2]
    drawn = pictures(words)[0]
    assert "always naming the most frequent words: 20.0 %" in drawn
    assert "paired with another text (control): 18.0 %" in drawn
    assert "the text itself (TextCNN): 14.0 %" in pictures(writers)[0]
    assert "rarest tenth" in pictures(members)[1]
    assert any(
        "rarest tenth of centre words the advantage is 40 %" in s for s in sentences(members)
    )


@pytest.mark.usefixtures("usual_umask")
def test_examples_are_numbers_unless_texts_were_asked_for(found: Findings, tmp_path: Path) -> None:
    page = write_report(found, tmp_path / "numbers")
    assert "2 of 3" in page.read_text() and "--show-texts" in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o644
    shown = replace(found, artefacts={"inversion_examples": examples(redacted=False)})
    page = write_report(shown, tmp_path / "texts")
    html, lines = page.read_text(), (page.parent / "report.md").read_text()
    assert "<script>" not in html and "&lt;script&gt;alert(1)&lt;/script&gt; rained" in html
    assert "<b>&lt;b&gt;</b>" in html and "<s>sun</s>" in html
    assert "<script>" not in lines and "rained \\| all day" in lines
    for name in ("report.html", "report.md", "artefacts/inversion_examples.json"):
        assert stat.S_IMODE((page.parent / name).stat().st_mode) == 0o600


def test_two_runs_say_what_protection_did(found: Findings, nothing: Findings) -> None:
    said = {change.target: change for change in all_changes(found, nothing)}
    assert said["words (multi-label)"].way == "better" and said["writer"].way == "better"
    assert said["training texts (windows, window similarity)"].way == "better"
    assert "F1 falls from 55.0 % to 20.1 %" in said["words (multi-label)"].sentence
    assert "leaked less in the second run" in change_summary(found, nothing)
    back = all_changes(nothing, found)
    assert {change.way for change in back} == {"worse"}
    assert {change.way for change in all_changes(found, found)} == {"unclear"}
    page = render_html(found, nothing)
    assert "Words read back: F1" in page and 'id="others"' in page
    assert "−35 points" not in page and "−34.9" in page
    assert "Words read back: F1" in render_markdown(found, nothing)


def test_tables_hold_every_attacker_and_its_controls(found: Findings) -> None:
    lines = render_markdown(found)
    for words in (
        "the most frequent words, always", "the text itself (TextCNN)", "| *shuffled labels* |",
        "| linear probe |", "rarest fifth of words", "most frequent tenth",
        "20.0 points (17.0–23.0)", "## Can the words be read back?",
    ):  # fmt: skip
        assert words in lines, words


def test_a_white_box_attacker_is_said_to_see_more(found: Findings) -> None:
    opened = [
        replace(row, parameters={**row.parameters, "access": "white-box"})
        for row in word_rows(0.5, attacker="sparse-coding")
    ]
    assert "no weights, no gradients" in render_markdown(found)
    assert "own weights or token table" in render_markdown(
        replace(found, rows=(*found.rows, *opened))
    )
