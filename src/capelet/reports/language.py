"""The page on a language model: what it remembers, and what that costs whom.

It shows one model, or several methods side by side (`parameters.method`).
"""

from __future__ import annotations

from capelet.findings import Finding, Findings
from capelet.findings.kinds import KINDS, split_kind
from capelet.reports import facts
from capelet.reports.facts import method_name
from capelet.reports.formatting import NOTHING, is_number, sentence_of
from capelet.reports.kinds import report_of, reports_of
from capelet.reports.kinds.extraction import (
    BITS,
    TAB,
    Extraction,
    canary_table,
    interval,
)
from capelet.reports.kinds.generic import KindReport, row_table
from capelet.reports.page import (
    Code,
    Facts,
    Line,
    Page,
    Table,
    Text,
    present,
    section,
    table,
    text,
)

LIMITS = (
    "An attack that fails is not a proof. Exposure is measured on made-up secrets of random words; "
    "real ones are easier to guess. The tab attack asks once and greedily. Only a guarantee bounds "
    "attackers that nobody tried, and DP-SGD’s covers one copy of a text: a secret that an author "
    "repeats is covered that many times less."
)


def is_of_language(findings: Findings) -> bool:
    """Whether these are findings on a language model, which have a page of their own."""
    return any(row.metric == "perplexity" or row.kind == "extraction" for row in findings)


def language_page(findings: Findings) -> Page:
    """Sentences, the curve of exposure, tables, and what they cannot say."""
    extraction = report_of("extraction")
    assert isinstance(extraction, Extraction)
    # Kinds with a report of their own are placed by hand; any other gets its plain section.
    others = [r.section(findings) for r in reports_of(findings) if type(r) is KindReport]
    command = str(findings.provenance.get("command") or "")
    model = facts.model_facts(findings)
    sections = [
        section("exposure", KINDS["extraction"].heading, [extraction.curves([(findings, "")])]),
        *others,
        section("tables", "Tables", language_tables(findings)),
        section("limits", "Limits", [text([LIMITS])]),
        section("provenance", "How to repeat it", [Code("", command)] if command else []),
    ]
    sentences = Text(tuple(model_sentences(findings)), "list")
    return Page(
        title="Language model: privacy report by Capelet",
        heading=("What the language model remembers", "", ""),
        lead="",
        header=(sentences, *([Facts(model)] if model else [])),
        sections=present(sections),
    )


def model_sentences(findings: Findings) -> list[str]:
    """What the attacks reached, one plain sentence each; the guarantee first."""
    sentences = []
    promise = str(facts.part(findings, "guarantee").get("sentence") or "")
    if promise:
        # "Promised: no guarantee" would be read as a promise.
        none = promise.startswith("no guarantee")
        sentences.append(f"{sentence_of(promise)}." if none else f"Promised: {promise}.")
    # Several models side by side have a promise each.
    for name, sentence in facts.part(findings, "guarantees").items():
        sentences.append(f"{sentence_of(method_name(name))} promises: {sentence}.")
    sentences += report_of("extraction").sentences(findings)
    for row in findings.select(kind="membership", metric="auc"):
        name = "its loss" if row.attacker == "loss" else "its loss against a reference model"
        # Above chance with its whole interval, or it is not said.
        sure = row.low is not None and row.low > 0.5
        whose = row.parameters.get("method")
        model = "" if whose is None else f"{sentence_of(method_name(whose))}: "
        question = f"{'whether' if model else 'Whether'} a text was trained on"
        sentences.append(
            f"{model}{question} is told by {name} with an AUC of {row.value:.2f} "
            f"({interval(row, 2)}; chance 0.5)" + ("." if sure else ": no better than chance.")
        )
    for row in findings.select(kind="utility", metric="perplexity"):
        # Several methods side by side say their perplexity in their own sentences.
        if row.parameters.get("method") is None:
            sentences.append(f"Test perplexity: {row.value:.1f}.")
    return sentences


def language_tables(findings: Findings) -> list[Table]:
    """Canaries, other attacks, and what privacy costs whom."""
    others = [
        row
        for row in findings
        if split_kind(row.kind)[0] == "membership" or row.target == "real texts"
    ]
    items = [canary_table(findings, metric) for metric in (BITS, TAB)]
    return [*present([*items, row_table("Other attacks", others), _costs(findings)])]


def _costs(findings: Findings) -> Table | None:
    times = facts.artefact(findings, "training_time")
    lines = [
        _cost(row, times.get(str(row.parameters.get("method"))) if row.subgroup is None else None)
        for row in findings
        if row.metric in ("perplexity", "perplexity_ratio")
    ]
    columns = ("method", "for whom", "measure", "value", "matched", "time per step")
    return table("What it costs", columns, lines, words=3)


def _cost(row: Finding, time: float | None) -> Line:
    whom = (row.subgroup or "all authors").replace("author size=", "authors with most texts: ")
    whom = whom.replace("most texts: smallest", "fewest texts").replace(": largest", "")
    ends = f" ({interval(row, 2)})" if is_number(row.low) else ""
    is_match = row.parameters.get("matched")
    return Line(
        (
            method_name(row.parameters.get("method")),
            whom,
            "times the baseline's" if row.metric == "perplexity_ratio" else "perplexity",
            f"{row.value:.2f}{ends}",
            NOTHING if is_match is None else ("yes" if is_match else "no"),
            NOTHING if time is None else f"{time:.2f} ×",
        )
    )
