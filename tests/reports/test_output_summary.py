"""What leaves: every word rests on a fact of the findings, and a missing fact takes words away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from capelet.findings import Finding, Findings
from capelet.reports import render_html, render_markdown, what_leaves
from capelet.reports.html import draw_html
from capelet.reports.markdown import draw_markdown
from capelet.reports.protection import protection_page

ENCODER = {"step": "encoder", "name": "minilm"}
RESPONSE = {"step": "randomised-response", "epsilon": 4.0, "classes": 5}
STARS = {"name": "stars", "classes": {str(star): 100 for star in range(1, 6)}}


def make_release(
    *steps: Mapping[str, Any],
    recall: tuple[float, float, float] | None = None,
    **provenance: Any,
) -> Findings:
    """Findings of a release through these steps, and nothing that was not asked for."""
    rows = (Finding("utility", "neighbours", "recall_at_10", *recall),) if recall else ()
    return Findings(rows, provenance, {"steps": [dict(step) for step in steps]})


def trained_for(keep: str) -> dict[str, Any]:
    return {"method": "bottleneck", "settings": {"keep": keep}}


MAP = {"step": "map", "file": "map.safetensors"}
NOISE = {"step": "laplace", "epsilon": 8.0}
WORDS = {"step": "word-replacement", "epsilon": 10.0}


@pytest.mark.parametrize(
    ("findings", "phrase"),
    [
        (make_release(ENCODER, MAP, RESPONSE), "one of 5 symbols"),
        (
            make_release(ENCODER, MAP, RESPONSE, label=STARS, protect=trained_for("task")),
            "one of 5 symbols (a noisy guess of “stars”)",
        ),
        (
            make_release(
                ENCODER, MAP, {**RESPONSE, "classes": 3}, label=STARS, protect=trained_for("task")
            ),
            "one of 3 symbols (a noisy guess of “stars”, which has 5 classes)",
        ),
        (make_release(ENCODER, MAP, release={"dimension": 64}), "64 numbers"),
        (make_release(ENCODER, MAP, NOISE, release={"dimension": 4}), "4 noisy numbers"),
        (make_release(ENCODER, NOISE, MAP, release={"dimension": 64}), "64 numbers"),
        (
            make_release(ENCODER, NOISE, release={"dimension": 384}, recall=(0.02, 0.01, 0.03)),
            "384 noisy numbers, 2 % of neighbours kept: not for search",
        ),
        (
            make_release(ENCODER, MAP, release={"dimension": 384}, recall=(0.82, 0.81, 0.83)),
            "384 numbers, 82 % of neighbours kept",
        ),
        (
            make_release(WORDS, ENCODER, MAP, release={"dimension": 64}),
            "64 numbers, made from a text with replaced words",
        ),
    ],
)
def test_the_phrase_says_what_is_known(findings: Findings, phrase: str) -> None:
    assert what_leaves(findings) == phrase


def test_whoever_audits_may_name_another_label_than_the_training_had() -> None:
    """Without the account of the training nobody knows what the symbols were trained for."""
    assert what_leaves(make_release(ENCODER, RESPONSE, label=STARS)) == "one of 5 symbols"
    kept = make_release(ENCODER, RESPONSE, label=STARS, protect=trained_for("neighbours"))
    assert what_leaves(kept) == "one of 5 symbols"


def test_unfit_for_search_is_said_only_where_it_was_shown() -> None:
    unsure = make_release(ENCODER, MAP, release={"dimension": 64}, recall=(0.45, 0.38, 0.52))
    assert what_leaves(unsure) == "64 numbers, 45 % of neighbours kept"
    sure = make_release(ENCODER, MAP, release={"dimension": 64}, recall=(0.45, 0.41, 0.49))
    assert what_leaves(sure).endswith("45 % of neighbours kept: not for search")


def test_findings_of_a_single_attack_say_less() -> None:
    """They note no width of the release; the encoder's own width may not be the release's."""
    attack = {"encoder": {"dimension": 384}}
    assert what_leaves(make_release(ENCODER, MAP, **attack)) == ""
    assert what_leaves(make_release(ENCODER, MAP, recall=(0.41, 0.40, 0.42), **attack)) == (
        "numbers, 41 % of neighbours kept: not for search"
    )
    projection = {"step": "projection", "dimension": 16}
    assert what_leaves(make_release(ENCODER, projection, **attack)) == "16 numbers"
    for precision, noun in (("binary", "signs"), ("int8", "rounded numbers")):
        rounding = {"step": "rounding", "precision": precision, "dimension": 16}
        assert what_leaves(make_release(ENCODER, rounding, **attack)) == f"16 {noun}"


def test_a_plain_encoder_and_foreign_findings_say_nothing() -> None:
    assert what_leaves(make_release(ENCODER, release={"dimension": 384})) == ""
    for recipe in ({}, {"steps": None}, {"steps": ["laplace"]}, {"network": "lstm"}):
        assert what_leaves(Findings((), {}, recipe)) == ""
    odd = Findings((), {"release": "64", "label": 3}, {"steps": [{"step": 4, "dimension": "x"}]})
    assert what_leaves(odd) == ""


def test_a_label_cannot_smuggle_markup_in(findings: Findings, after: Findings) -> None:
    label = {"name": "<b>x</b>", "classes": {"a": 1, "b": 1}}
    about = {**after.provenance["protect"], "settings": {"keep": "task"}}
    hostile = replace(
        after,
        provenance={**after.provenance, "label": label, "protect": about},
        recipe={"steps": [ENCODER, {**RESPONSE, "classes": 2}]},
    )
    assert "“<b>x</b>”" in what_leaves(hostile)  # as it was written; pages escape
    for draw in (draw_html, draw_markdown):
        page = draw(protection_page(findings, hostile))
        assert "<b>x" not in page and "&lt;b&gt;x" in page


def test_both_pages_begin_with_it(findings: Findings, after: Findings) -> None:
    phrase = "41 % of neighbours kept"
    for draw in (draw_html, draw_markdown):
        page = draw(protection_page(findings, after)).replace("\u00a0", " ")
        assert page.index("What leaves") < page.index(phrase) < page.index("leak less than before")
    audit = replace(after, recipe={"steps": [ENCODER, RESPONSE]})
    for render in (render_html, render_markdown):
        page = render(audit).replace("\u00a0", " ")
        assert page.index("one of 5 symbols") < page.index("The vectors give away")
        # The control: nothing protects this run.
        assert "What leaves" not in render(findings)
