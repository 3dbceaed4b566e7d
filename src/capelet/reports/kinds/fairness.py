"""For whom the task works: its score in each subgroup, and the largest gap."""

from __future__ import annotations

from dataclasses import replace

from capelet.findings import Finding, Findings
from capelet.findings.kinds import KINDS
from capelet.reports.draw.bars import Bar
from capelet.reports.formatting import NOTHING, count, is_number, metric_name, points
from capelet.reports.kinds.generic import KindReport, Pair, cell, name_with_method, pair_up
from capelet.reports.page import Bars, Section, Table, bars, table_of

FAIRNESS = "fairness"
GAP = KINDS[FAIRNESS].metric


def gap_rows(findings: Findings) -> list[Finding]:
    rows = findings.select(kind=FAIRNESS, metric=GAP)
    return [row for row in rows if is_number(row.value)]


def group_bars(findings: Findings) -> Bars | None:
    """The task's accuracy in each subgroup, as dots, grouped by attribute."""
    rows = []
    for row in findings.select(kind=FAIRNESS, metric="accuracy"):
        # A class name may hold "=" too: only the first one parts.
        group, _, name = (row.subgroup or "").partition("=")
        if is_number(row.value):
            label = name or row.subgroup or row.target
            rows.append(Bar(label, row.value, row.low, row.high, group=group))
    return bars(rows, "Accuracy of the task in each subgroup", *KINDS[FAIRNESS].caption)


class Fairness(KindReport):
    """Its pictures stand beside the task's; a row per subgroup stands in the tables."""

    column = "attribute"

    def section(self, findings: Findings) -> Section | None:
        return None

    def sentences(self, findings: Findings) -> list[str]:
        """How unevenly the task works between the groups of an attribute."""
        return [
            f"Between the groups of {row.subgroup or row.target} the accuracy differs by up to "
            f"{points(row.value, 1)}."
            for row in gap_rows(findings)
        ]

    def tables(self, findings: Findings) -> list[tuple[str, Table | None]]:
        item = table_of(
            "The task by subgroup",
            findings.select(kind=FAIRNESS),
            {
                "subgroup": lambda row: (row.subgroup or NOTHING).replace("=", ": ", 1),
                "metric": lambda row: metric_name(row.metric),
                "value": cell,
                "texts": lambda row: count(row.n),
            },
            words=2,
            role=lambda row: "strong" if row.metric.endswith("_gap") else "",
        )
        return [("The task", item)]

    def pairs(self, before: Findings, after: Findings) -> list[Pair]:
        """The gaps; of language models the perplexity of each group. Not in the headlines."""
        titles = {
            GAP: self.kind.comparison,
            "perplexity": "Fairness: perplexity by group",
            "perplexity_ratio": "Fairness: perplexity against the baseline, by group",
        }
        pairs: list[Pair] = []
        for metric, title in titles.items():
            sides = (
                {
                    (
                        (row.subgroup or row.target).replace("=", ": ", 1),
                        row.parameters.get("method"),
                    ): row
                    for row in run.select(kind=FAIRNESS, metric=metric)
                }
                for run in (before, after)
            )
            pairs += pair_up(FAIRNESS, sides, name_with_method, title)
        return [replace(pair, headline=False) for pair in pairs]
