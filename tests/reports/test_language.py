"""The report on language models: curves, controls and sentences, from findings alone."""

from __future__ import annotations

from capelet.findings import Finding, Findings
from capelet.reports import render_html, render_markdown
from capelet.reports.html import draw_html
from capelet.reports.kinds import report_of
from capelet.reports.kinds.extraction import series
from capelet.reports.language import language_page, language_tables, model_sentences


def canary(level: int, bits: float, method: str | None = None) -> Finding:
    about = {"repetitions": level, "extrapolated": 2 if level == 50 else 0}
    return Finding(
        "extraction" if level else "extraction-null",
        "canaries",
        "exposure_bits",
        bits,
        bits - 1,
        bits + 1,
        chance=1.44,
        attacker="exposure",
        subgroup=f"repetitions={level}",
        parameters={**about, "method": method} if method else about,
    )


ONE = Findings((canary(0, 1.5), canary(1, 3.0), canary(50, 31.0)))
SEVERAL = Findings(
    tuple(
        row
        for method, most in (("none", 31.0), ("triplet", 12.0), ("<b>own</b>", 2.0))
        for row in (
            canary(0, 1.4, method),
            canary(1, 2.0, method),
            canary(50, most, method),
            Finding("utility", "next word", "perplexity", 90.0, parameters={"method": method}),
        )
    ),
    artefacts={"training_time": {"none": 1.0, "triplet": 1.02}},
)


def test_one_model_gets_a_sentence_a_curve_and_its_control() -> None:
    assert "repeated 50 times is remembered: exposure 31.0 bits" in model_sentences(ONE)[0]
    assert [item.levels for item in series(report_of("extraction"), ONE)] == [
        (1, 50)
    ]  # the control is not on the curve
    table = language_tables(ONE)[0]
    assert table.lines[0].cells[0] == "never (control)" and table.lines[0].role == "control"
    assert "2 extrapolated" in table.lines[-1].cells[1]


def test_a_model_that_forgets_is_said_to() -> None:
    forgetting = Findings((canary(50, 2.0),))
    assert "is hardly remembered" in model_sentences(forgetting)[0]


def test_several_methods_are_set_side_by_side() -> None:
    page = render_html(SEVERAL)
    assert page.count("<polyline") == 3
    assert "<b>own</b>" not in page and "&lt;b&gt;own" in page
    assert "1.02 ×" in render_markdown(SEVERAL)


def test_a_page_without_canaries_has_no_picture() -> None:
    only = Findings((Finding("membership", "training texts", "auc", 0.7, 0.6, 0.8, chance=0.5),))
    assert "<polyline" not in draw_html(language_page(only))
    assert "AUC of 0.70" in model_sentences(only)[0]
