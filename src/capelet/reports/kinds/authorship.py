"""Writers: who of many wrote a text, from a few known texts of each."""

from __future__ import annotations

from capelet.findings import Finding, Findings
from capelet.findings.kinds import control_of, reference_of
from capelet.findings.verdicts import Judgement, Outcome
from capelet.reports.ceilings import ONE_TEXT, ceiling_sentence, person_ceilings
from capelet.reports.formatting import (
    NOTHING,
    attacker_name,
    count,
    is_number,
    percent,
    score,
)
from capelet.reports.kinds.generic import OTHERS, KindReport, cell
from capelet.reports.kinds.inversion import GROUP
from capelet.reports.page import (
    Bars,
    Block,
    Line,
    Passage,
    Table,
    bars,
    table,
    text,
)
from capelet.reports.verdict import against, value_of

# Five guesses, as in the paper: a short list of suspects is what an attacker needs.
GUESSES = {"top1": "the first guess", "top5": "the first five guesses"}
_ENDS = {
    Outcome.LEAK: ".",
    Outcome.INCONCLUSIVE: "; whether writers can be told apart is inconclusive.",
    Outcome.NO_LEAK_FOUND: "; writers could not be told apart.",
}


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

    def counted(self, findings: Findings) -> str:
        return "writers"

    def statement(self, findings: Findings, row: Finding, judgement: Judgement) -> str:
        shots, writers = row.parameters.get("shots"), row.parameters.get("writers")
        sentence = (
            f"writer: with {count(shots)} known texts of each of {count(writers)} writers, the "
            "writer of another text is among the attacker’s first five guesses in "
            f"{against(judgement.figures, ' of cases')} by chance"
        )
        sentence += _ENDS[judgement.outcome]
        # What the text itself tells a network is the yardstick: a vector may tell more.
        text = self.reference(findings, row.metric)
        if text is not None:
            sentence += f" A network that reads the texts themselves reaches {percent(text.value)}."
        return " ".join(filter(None, [sentence, ceiling_sentence(row)]))

    def clause(self, findings: Findings) -> str:
        row = self.strongest(findings)
        if row is None:
            return ""
        (verdict,) = self.verdicts(findings)
        if verdict.outcome != Outcome.LEAK:
            return _ENDS[verdict.outcome].strip("; .")
        writers = count(row.parameters.get("writers"))
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
        name = self.kind.name
        roles = {
            name: "",
            control_of(name): f" ({self.kind.control})",
            reference_of(name): " (reference)",
        }
        lines = []
        for kind, suffix in roles.items():
            for attacker in dict.fromkeys(row.attacker for row in findings.select(kind=kind)):
                cells = [cell(self.row(findings, m, attacker, kind)) for m in self.metrics]
                role = "" if kind == name else "control"
                lines.append(Line((attacker_name(attacker) + suffix, *cells), role))
        for field, title in (("chance", "chance"), ("ceiling", ONE_TEXT)):
            bounds = [
                score(metric, getattr(self.row(findings, metric), field, None))
                for metric in self.metrics
            ]
            if any(item != NOTHING for item in bounds):
                lines.append(Line((title, *bounds), "control"))
        lines += self._person_lines(findings)
        about = rows[0].parameters
        note = (
            f"{count(about.get('writers'))} writers, {count(about.get('shots'))} "
            f"known texts of each, about {count(rows[0].n)} texts to attribute; means over "
            f"{len(about.get('by_seed') or [0])} draws of writers and texts."
        )
        return table(
            "Writers", ("attacker", "writer named first", "among the first five"), lines, note
        )

    def _person_lines(self, findings: Findings) -> list[Line]:
        """What all texts of a person permit, a line for each person that is told of."""
        rows = [self.row(findings, metric) for metric in self.metrics]
        ceilings = [
            {item.title: item.ceiling for item in person_ceilings(row)} if row else {}
            for row in rows
        ]
        titles = dict.fromkeys(title for items in ceilings for title in items)
        return [
            Line((title, *(score("top1", items.get(title)) for items in ceilings)), "control")
            for title in titles
        ]
