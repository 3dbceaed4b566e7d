"""Attributes of people: what all texts of one give away together, by how many there are."""

from __future__ import annotations

from dataclasses import replace

from capelet.findings import Finding, Findings
from capelet.findings.kinds import KINDS, control_of
from capelet.findings.verdicts import Figures, Judgement, Outcome, classify
from capelet.reports.ceilings import ALMOST_ALL, at_most
from capelet.reports.draw.bars import Bar
from capelet.reports.formatting import (
    count,
    is_number,
    join_names,
    percent,
    score,
    span,
)
from capelet.reports.kinds.attribute_inference import LEAK, strongest
from capelet.reports.kinds.families import winner_sentence
from capelet.reports.kinds.generic import KindReport, Pair, cell, pair_up
from capelet.reports.page import Bars, Block, Line, Passage, Table, bars, table, text
from capelet.reports.verdict import against, first, value_of

PERSON = "person-inference"
PRIMARY = KINDS[PERSON].metric
_COLUMNS = {
    "tpr_at_1_fpr": "found at 1 % false alarms",
    "certain_share": "read with near certainty",
    "certain_hit_rate": "right among those",
}


class PersonInference(KindReport):
    """The pooled attack; each attribute is judged by the row of all texts of a person."""

    column = "attribute"
    method = Passage(
        "People",
        "Where authors are known and an attribute is the same in all texts of each, an attacker "
        "also pools the texts of a person: guesses of single texts (a vote), or the vectors "
        "themselves (their mean, and how they spread). Which pooling is used is chosen by "
        "cross-validation over the attacker’s own people. Scores count people, and intervals are "
        "over people; with “5 texts”, five texts of each person who has so many are drawn. Near "
        "certainty is a probability of 95 % or more, calibrated on the attacker’s own people. In "
        "the control, the attribute is permuted over people.",
    )

    def classify(self, findings: Findings, row: Finding) -> Judgement:
        """By chance alone: this attacker was chosen before any victim was looked at."""
        return classify(row)

    def judged(self, findings: Findings) -> list[Finding]:
        return self.rows(findings)

    def target(self, row: Finding) -> str:
        return f"{row.target} of a person"

    def opening(self, findings: Findings, row: Finding, figures: Figures) -> str:
        most = count(row.parameters.get("most_texts"))
        score_words = against(figures, " balanced accuracy")
        return f"{self.target(row)}: from all texts of each (up to {most}) {score_words} by chance"

    def additions(self, findings: Findings, row: Finding, digits: int) -> list[str]:
        return [
            self._by_size(findings, row),
            _certainty(findings, row),
            _ceiling(row),
            winner_sentence(row),
        ]

    def _by_texts(self, findings: Findings, row: Finding) -> list[Finding]:
        """The attack on so many texts of each person, and last on all of them."""
        return [*self.parts(findings, row, row.metric), row]

    def _by_size(self, findings: Findings, row: Finding) -> str:
        """What fewer texts give, and one text at a time."""
        clauses = [
            f"{percent(item.value)} from {item.subgroup}"
            for item in self.parts(findings, row, row.metric)
        ]
        if not clauses:
            return ""
        each = strongest(findings, row.target)
        alone = f"; texts taken one by one give {percent(each.value)}" if each else ""
        return f"It reaches {join_names(clauses)}{alone}."

    def clause(self, findings: Findings) -> str:
        names = [
            f"“{row.target}” ({verdict.value_words})"
            for row, verdict in zip(self.rows(findings), self.verdicts(findings), strict=True)
            if verdict.outcome == Outcome.LEAK
        ]
        return f"all texts of a person together give away {join_names(names)}" if names else ""

    def remarks(self, findings: Findings) -> list[str]:
        """The controls, an attribute each."""
        pairs = [(row, self.control(findings, row)) for row in self.rows(findings)]
        scores = [f"{row.target} {percent(null.value, 1)}" for row, null in pairs if null]
        return [f"Control ({self.kind.control}): {join_names(scores)}."] if scores else []

    def blocks(self, findings: Findings) -> list[Block | None]:
        if not self.rows(findings):
            return []
        return [text(self.sentences(findings)), self.bars(findings), self._table(findings)]

    def bars(self, findings: Findings) -> Bars | None:
        items: list[Bar] = []
        rows = self.rows(findings)
        for row in rows:
            group = row.target if len(rows) > 1 else ""
            for item in self._by_texts(findings, row):
                bar = self.bar(findings, item, item.subgroup or "all texts", group)
                items.append(replace(bar, start=row.chance))
        return bars(items, self.kind.heading, *self.kind.caption)

    def _table(self, findings: Findings) -> Table | None:
        """A line for each attribute and number of texts, single texts above."""
        lines = []
        for row in self.rows(findings):
            if (each := strongest(findings, row.target)) is not None:
                lines.append(self._line(findings, each, "texts one by one"))
            for item in self._by_texts(findings, row):
                lines.append(self._line(findings, item, item.subgroup or "all texts"))
        columns = ("attribute", "texts of a person", "balanced accuracy", "permuted", "ceiling")
        note = (
            "With 95 % intervals over people; means over all seeds. The ceiling is that of so many "
            "texts of one person; of all texts, that of the person with most. The first line of an "
            "attribute counts texts, the others people."
        )
        title = "Accuracy by number of texts"
        return table(title, (*columns, *_COLUMNS.values(), "victims"), lines, note, words=2)

    def _line(self, findings: Findings, row: Finding, texts: str) -> Line:
        same = {"target": row.target, "subgroup": row.subgroup}
        chosen = {"kind": row.kind, "attacker": "strongest", **same}
        cells = [cell(first(findings, metric=metric, **chosen)) for metric in _COLUMNS]
        null = first(findings, kind=control_of(row.kind), metric=row.metric, **same)
        bounds = (score(row.metric, value) for value in (value_of(null), row.ceiling))
        role = "control" if row.kind == LEAK else ""
        return Line((row.target, texts, cell(row), *bounds, *cells, count(row.n)), role)

    def tables(self, findings: Findings) -> list[tuple[str, Table | None]]:
        return []  # they stand in its section

    def pairs(self, before: Findings, after: Findings) -> list[Pair]:
        """Both runs by attribute and number of texts; all texts alone are a headline."""
        sides = (
            {
                (item.target, item.subgroup): item
                for row in self.rows(run)
                for item in self._by_texts(run, row)
            }
            for run in (before, after)
        )
        pairs = pair_up(self.kind.name, sides, _pair_name, self.kind.comparison)
        return [
            replace(pair, headline=all(row is None or row.subgroup is None for row in pair.rows))
            for pair in pairs
        ]


def _pair_name(key: tuple[str, str | None]) -> str:
    target, texts = key
    return f"{target} of a person, {texts or 'all texts'}"


def _certainty(findings: Findings, row: Finding) -> str:
    """Of how many people the attacker is nearly certain, and whether rightly."""
    share, hits = (
        first(findings, kind=row.kind, target=row.target, metric=metric, subgroup=None)
        for metric in ("certain_share", "certain_hit_rate")
    )
    if share is None or not is_number(share.value):
        return ""
    if hits is None or not is_number(hits.value):
        return "It is nearly certain about nobody."
    interval = span(hits.low, hits.high)
    return (
        f"It is nearly certain about {percent(share.value, 1)} of them, and right about "
        f"{percent(hits.value)} of those{f' ({interval})' if interval else ''}."
    )


def _ceiling(row: Finding) -> str:
    if not is_number(row.ceiling):
        return ""
    texts = count(row.parameters.get("most_texts"))
    if row.ceiling >= ALMOST_ALL:
        return f"Of {texts} texts of a person the guarantee rules out almost nothing."
    return f"From {texts} texts the guarantee permits nobody more than {at_most(row.ceiling)}."
