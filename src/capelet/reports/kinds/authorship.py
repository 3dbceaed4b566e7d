"""Writers: who of many wrote a text, from a few known texts of each."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from capelet.findings import Finding, Findings
from capelet.findings.verdicts import Figures, Outcome
from capelet.reports.ceilings import ceiling_sentence
from capelet.reports.formatting import count, is_number, percent
from capelet.reports.kinds.families import family_table
from capelet.reports.kinds.generic import OTHERS, KindReport
from capelet.reports.kinds.inversion import GROUP
from capelet.reports.page import Bars, Block, Passage, Table, bars, text
from capelet.reports.verdict import Verdict, against, value_of

# Five guesses, as in the paper: a short list of suspects is what an attacker needs.
GUESSES = {"top1": "the first guess", "top5": "the first five guesses"}


class Authorship(KindReport):
    """The writer of a text among many, judged by the first five guesses."""

    metrics = ("top1", "top5")
    method = Passage(
        "Writers",
        "The attacker knows a few texts of each writer, fits a linear probe on their vectors, and "
        "names the writer of other texts. Each seed draws its own writers and texts; intervals "
        "are over writers. Beside it: chance, the same attack on shuffled labels, and a network "
        "(TextCNN) that reads the texts themselves.",
    )

    endings: ClassVar = {
        Outcome.LEAK: ".",
        Outcome.INCONCLUSIVE: "; whether writers can be told apart is inconclusive.",
        Outcome.NO_LEAK_FOUND: "; writers could not be told apart.",
    }
    clauses: ClassVar = {
        Outcome.INCONCLUSIVE: "whether writers can be told apart is inconclusive",
        Outcome.NO_LEAK_FOUND: "writers could not be told apart",
    }

    def counted(self, findings: Findings) -> str:
        return "writers"

    def opening(self, findings: Findings, row: Finding, figures: Figures) -> str:
        shots, writers = row.parameters.get("shots"), row.parameters.get("writers")
        return (
            f"writer: with {count(shots)} known texts of each of {count(writers)} writers, the "
            "writer of another text is among the attacker’s first five guesses in "
            f"{against(figures, ' of cases')} by chance"
        )

    def additions(self, findings: Findings, row: Finding, digits: int) -> list[str]:
        # What the text itself tells a network is the yardstick: a vector may tell more.
        text = self.reference(findings, row.metric)
        words = "A network that reads the texts themselves reaches"
        return [f"{words} {percent(text.value)}." if text else "", ceiling_sentence(row)]

    def leak_clause(self, findings: Findings, verdict: Verdict) -> str:
        row = self.strongest(findings)
        writers = count(row.parameters.get("writers") if row else None)
        return (
            f"the writer is among the first five guesses of {writers} for {verdict.value_words} "
            "of the texts"
        )

    def control_remark(self, null: Finding) -> str:
        return f"Control: with shuffled labels the attacker reaches {percent(null.value, 1)}."

    def blocks(self, findings: Findings) -> list[Block | None]:
        if self.strongest(findings) is None:
            return []
        return [text(self.sentences(findings)), self.bars(findings)]

    def bars(self, findings: Findings) -> Bars | None:
        rows = [
            self.bar(findings, row, name)
            for metric, name in GUESSES.items()
            for row in findings.select(kind=self.kind.name, metric=metric)
            if is_number(row.value)
        ]
        return bars(rows, self.kind.heading, *self.kind.caption)

    def marks(self, findings: Findings, row: Finding) -> list[tuple[str, float | None]]:
        text = value_of(self.reference(findings, row.metric))
        return [*super().marks(findings, row), ("text-cnn", text)]

    def pair_name(self, target: str, attacker: str | None) -> str:
        return self.kind.subject

    def tables(self, findings: Findings) -> list[tuple[str, Table | None]]:
        return [(GROUP, self._writers(findings)), (OTHERS, self.rest(findings))]

    def _writers(self, findings: Findings) -> Table | None:
        rows = self.rows(findings)
        if not rows:
            return None
        about = rows[0].parameters
        note = (
            f"{count(about.get('writers'))} writers, {count(about.get('shots'))} "
            f"known texts of each, about {count(rows[0].n)} texts to attribute; means over "
            f"{len(about.get('by_seed') or [0])} draws of writers and texts."
        )
        item = family_table(findings, self.kind.name, rows[0].target)
        return replace(item, title="Writers", note=note)
