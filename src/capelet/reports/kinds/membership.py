"""Training texts: can they be told from others, by similarity or by a language model's loss?

Scores of membership are many and some of few writers, so the one to judge is fixed beforehand:
choosing by looking would find luck.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from capelet.findings import Finding, Findings
from capelet.findings.verdicts import Figures, Outcome
from capelet.reports.facts import scored_units
from capelet.reports.formatting import (
    attacker_name,
    count,
    percent,
    points,
    span,
)
from capelet.reports.kinds.generic import OTHERS, KindReport, Pair, cell
from capelet.reports.kinds.inversion import GROUP
from capelet.reports.page import Block, Line, Passage, Table, table, text
from capelet.reports.verdict import Verdict

# Windows of words hold most pairs; of sentences the learned similarity is what training made alike.
ORDER = (
    ("windows", "window-cosine"),
    ("pairs", "learned"),
    ("pairs", "cosine"),
    ("pairs", "dot"),
)
SOURCES = {
    "windows": "the similarity of words within a window",
    "pairs": "the similarity of neighbouring sentences",
    "aggregates": "the similarity of all neighbouring sentences of a text or writer",
    "training texts": "the model’s loss",
}


# What falls into tenths, and by what, where findings are by frequency.
CENTRES = ("centre words", "the centre word is")
TENTHS = {"pairs": ("pairs by their words", "the words of a pair are")}


class Membership(KindReport):
    """Whether a text was trained on, judged by one score that is named beforehand."""

    metrics = ("advantage", "auc", "tpr_at_1_fpr", "tpr_at_01_fpr")
    part_control = "permuted"
    method = Passage(
        "Training texts",
        "What stood in one context in training is more alike afterwards. The similarity of words "
        "in a window, or of neighbouring sentences, is compared with a threshold. It is chosen on "
        "other texts; intervals are over texts or writers; the control permutes membership. "
        "Words are matched in frequency between members and others.",
    )

    def counted(self, findings: Findings) -> str:
        return "texts" if scored_units(findings) == "texts" else "writers"

    def strongest(self, findings: Findings) -> Finding | None:
        # The first of the order that was measured, whatever its score is.
        order = {key: place for place, key in enumerate(ORDER)}
        return min(
            self.rows(findings),
            key=lambda row: order.get((row.target, row.attacker or ""), len(ORDER)),
            default=None,
        )

    endings: ClassVar = {
        Outcome.LEAK: ". Chance is 0.",
        Outcome.INCONCLUSIVE: ". Chance is 0: whether training texts can be told is inconclusive.",
        Outcome.NO_LEAK_FOUND: ". That cannot be told from chance, which is no proof that it never "
        "can.",
    }
    clauses: ClassVar = {
        Outcome.INCONCLUSIVE: "whether training texts can be told from others is inconclusive",
        Outcome.NO_LEAK_FOUND: "training texts could not be told from others",
    }

    def opening(self, findings: Findings, row: Finding, figures: Figures) -> str:
        interval = span(figures.low, figures.high, 1).removesuffix(" %")
        source = SOURCES.get(row.target, f"the similarity of {row.target}")
        return (
            f"training texts: told from {source} with an advantage of {points(figures.value, 1)}"
            f"{f' (95 % interval {interval})' if interval else ''}: so much oftener is a member "
            "taken for one than another text is"
        )

    def leak_clause(self, findings: Findings, verdict: Verdict) -> str:
        advantage = points(verdict.value, verdict.figures.decimals)
        return f"training texts are told from others with an advantage of {advantage}"

    def control_remark(self, null: Finding) -> str:
        return f"Control: with membership permuted the advantage is {percent(null.value, 1)}."

    def details(self, findings: Findings, row: Finding) -> list[str]:
        tenths = self.parts(findings, row, row.metric)
        return [
            f"In the rarest tenth of {tenths_of(row.target)[0]} the advantage is "
            f"{percent(tenths[0].value)}, in the most frequent {percent(tenths[-1].value)}."
            for _ in tenths[:1]
        ]

    def choice_remark(self, row: Finding, number: int) -> str:
        return (
            f"Judged is {attacker_name(row.attacker)} on {row.target}, as fixed beforehand; of "
            f"{number} scores one or the other is high by luck."
        )

    def blocks(self, findings: Findings) -> list[Block | None]:
        row = self.strongest(findings)
        if row is None:
            return []
        caption = (
            f"Advantage of {attacker_name(row.attacker)} by how frequent "
            f"{tenths_of(row.target)[1]}, each tenth with a threshold of its own."
        )
        title = "Rare words are remembered."
        tenths = self.part_bars(findings, row, row.metric, title, caption)
        return [text(self.sentences(findings)), self.bars(findings), tenths]

    def part_name(self, subgroup: str | None) -> str:
        """`rarest tenth`, `tenth 2` … `most frequent tenth`, from the finding's subgroup.

        >>> from capelet.findings.kinds import KINDS
        >>> Membership(KINDS["membership"]).part_name("decile 1 by word frequency")
        'rarest tenth'
        """
        number = "".join(sign for sign in subgroup or "" if sign.isdigit())
        return {"1": "rarest tenth", "10": "most frequent tenth"}.get(number, f"tenth {number}")

    def tone(self, findings: Findings, row: Finding) -> str:
        """Scores that are not judged stay neutral."""
        return super().tone(findings, row) if row == self.strongest(findings) else "accent"

    def pairs(self, before: Findings, after: Findings) -> list[Pair]:
        """All scores, and those that are judged as headlines."""
        rows = [self.strongest(run) for run in (before, after)]
        return [
            replace(pair, headline=any(row is not None and row in rows for row in pair.rows))
            for pair in super().pairs(before, after)
        ]

    def pair_name(self, target: str, attacker: str | None) -> str:
        return f"{self.kind.subject} ({target}, {attacker_name(attacker)})"

    # ---- tables --------------------------------------------------------------------------------

    def tables(self, findings: Findings) -> list[tuple[str, Table | None]]:
        rows = findings.select(kind=self.kind.name, metric=self.kind.metric)
        items, measure = tenths_of(next((row.target for row in rows if row.subgroup), "windows"))
        note = f"Advantage in points; each tenth of the {items} has its own threshold."
        title = f"Training texts, by how frequent {measure}"
        tenths = self.part_table(findings, self.kind.metric, title, items, note)
        return [(GROUP, self._scores(findings)), (GROUP, tenths), (OTHERS, self.rest(findings))]

    def _scores(self, findings: Findings) -> Table | None:
        lines = []
        for row in self.rows(findings):
            rows = findings.select(
                kind=row.kind, target=row.target, attacker=row.attacker, subgroup=None
            )
            by_metric = {item.metric: item for item in rows}
            cells = [cell(by_metric.get(metric)) for metric in self.metrics]
            null = cell(self.control(findings, row))
            name = attacker_name(row.attacker)
            lines.append(Line((row.target, name, *cells, null, count(row.n))))
        columns = ("target", "attacker", "advantage", "AUC", "found at 1 % false alarms")
        more = ("found at 0.1 %", "advantage, membership permuted", "scored")
        note = (
            "Advantage: true minus false positives, in points, at a threshold that was chosen on "
            "other texts. Chance is 0 points and an AUC of 0.5."
        )
        return table("Training texts", (*columns, *more), lines, note, 2)


def tenths_of(target: str) -> tuple[str, str]:
    """What falls into tenths, and whose frequency decides into which."""
    return TENTHS.get(target, CENTRES)
