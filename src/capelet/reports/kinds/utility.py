"""The task: how well the vectors, or a language model, still do their work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from capelet.findings import Finding, Findings
from capelet.findings.kinds import KINDS, reference_of
from capelet.reports.formatting import (
    attacker_name,
    figure,
    is_number,
    is_share,
    metric_name,
    percent,
)
from capelet.reports.kinds.fairness import FAIRNESS, Fairness, group_bars
from capelet.reports.kinds.families import family_table
from capelet.reports.kinds.generic import KindReport, Pair, name_with_method, pair_up
from capelet.reports.page import Section, Table, bars, section, text
from capelet.reports.verdict import first, targets

USE = "utility"
# A task is judged by what its users see; neighbours where there is no task.
ORDER = ("accuracy", "recall_at_10", "balanced_accuracy", "perplexity")


def judged_row(findings: Findings, target: str) -> Finding | None:
    """The row that a task is judged by: the strongest probe's accuracy, or neighbours kept."""
    rows = [
        row
        for row in findings.select(kind=USE, target=target)
        # Neighbours and perplexity have no probe.
        if row.metric in ORDER and row.attacker in (None, "strongest")
    ]
    return min(rows, key=lambda row: ORDER.index(row.metric), default=None)


class Utility(KindReport):
    """What the release is good for; fairness stands in the same section."""

    column = "task"

    def rows(self, findings: Findings) -> list[Finding]:
        rows = [judged_row(findings, target) for target in targets(findings, USE)]
        return [row for row in rows if row is not None and is_number(row.value)]

    def sentences(self, findings: Findings) -> list[str]:
        rows = [judged_row(findings, target) for target in targets(findings, USE)]
        return [_sentence(findings, row) for row in rows if row is not None]

    def clause(self, findings: Findings) -> str:
        return ""

    def section(self, findings: Findings) -> Section | None:
        shares = [row for row in self.rows(findings) if is_share(row.metric)]
        name = "Score of the task, from always naming the commonest class"
        rows = [self.bar(findings, row, row.target) for row in shares]
        blocks = [
            text([*self.sentences(findings), *Fairness(KINDS[FAIRNESS]).sentences(findings)]),
            bars(rows, name, *self.kind.caption),
            group_bars(findings),
        ]
        return section("task", self.kind.heading, blocks, "Task")

    def marks(self, findings: Findings, row: Finding) -> list[tuple[str, float | None]]:
        references = findings.select(kind=reference_of(USE), target=row.target, metric=row.metric)
        texts = [("tf-idf", r.value) for r in references if r.attacker == "tf-idf"]
        return [("majority", row.majority), ("ceiling", row.ceiling), *texts]

    def tables(self, findings: Findings) -> list[tuple[str, Table | None]]:
        return [
            ("The task", family_table(findings, USE, target)) for target in targets(findings, USE)
        ]

    def pairs(self, before: Findings, after: Findings) -> list[Pair]:
        """Task by task; what is counted in other units than points has a table of its own."""
        name = self.kind.comparison
        pairs = pair_up(USE, map(_by_task, (before, after)), name_with_method, name)
        return [
            pair if is_share(pair.metric) else replace(pair, table=f"{name}: {title}")
            for pair in pairs
            for title in (metric_name(pair.metric),)
        ]


def _by_task(findings: Findings) -> dict[tuple[str, Any], Finding]:
    """The judged row of each task, and of language models of each method."""
    methods = dict.fromkeys(row.parameters.get("method") for row in findings.select(kind=USE))
    rows = {
        (target, method): judged_row(_of_method(findings, method), target)
        for method in methods
        for target in targets(findings, USE)
    }
    return {key: row for key, row in rows.items() if row is not None}


def _of_method(findings: Findings, method: Any) -> Findings:
    return Findings(tuple(r for r in findings if r.parameters.get("method") == method))


def _sentence(findings: Findings, row: Finding) -> str:
    if row.metric == "perplexity":
        return f"Test perplexity: {row.value:.1f}."
    if row.metric == "recall_at_10":
        return (
            f"{figure(row)} of each victim’s ten nearest neighbours among the victims are still "
            "its neighbours."
        )
    sentence = f"{row.target}: {figure(row)} {metric_name(row.metric)}"
    if is_number(row.majority):
        sentence += f" against {percent(row.majority)} for always naming the commonest class"
    text = first(findings, kind=reference_of(USE), target=row.target, metric=row.metric)
    if text is not None:
        sentence += f"; {attacker_name(text.attacker)} gives {percent(text.value)}"
    sentence += "."
    # Said plainly, for a release that serves nothing leaks nothing either.
    if row.low is not None and row.majority is not None and row.low <= row.majority:
        sentence += " The vectors cannot be told from that guess: they do not serve this task."
    return sentence
