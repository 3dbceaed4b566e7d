"""Words read back from vectors: which, how many, and of some victims word by word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from capelet.errors import name_command
from capelet.findings import Finding, Findings
from capelet.findings.kinds import reference_of
from capelet.findings.verdicts import Figures, Judgement, Outcome
from capelet.reports.facts import artefact
from capelet.reports.formatting import (
    NOTHING,
    attacker_name,
    count,
    percent,
    score,
)
from capelet.reports.kinds.generic import OTHERS, KindReport, cell
from capelet.reports.page import (
    Block,
    Example,
    Examples,
    GuessedWords,
    Line,
    Passage,
    Table,
    table,
    text,
)
from capelet.reports.verdict import Verdict, against, value_of

GROUP = "Words, writers and training texts"


class Inversion(KindReport):
    """The words of a text, judged against naming the same most frequent words of every text."""

    metrics = ("f1", "precision", "recall")
    method = Passage(
        "Words",
        "Attackers learn from the vectors of their own texts to name the set of words of a text. "
        "Scored is the F1 of that set, the mean over victims: order, repetition and punctuation "
        "do not count, words that the attacker never met count against it. Beside it: naming the "
        "same most frequent words of every text, as many as pay best on the attacker’s texts; and "
        "each guess paired with another victim. A noised release is attacked with vectors of the "
        "same noise.",
    )

    endings: ClassVar = {
        Outcome.INCONCLUSIVE: "; whether the vectors give away words is inconclusive.",
        Outcome.NO_LEAK_FOUND: "; no words were read back beyond those, which is no proof that "
        "none can be.",
    }
    clauses: ClassVar = {
        Outcome.INCONCLUSIVE: "whether words can be read back beyond the most frequent ones is "
        "inconclusive",
        Outcome.NO_LEAK_FOUND: "no words could be read back beyond the most frequent ones",
    }

    def opening(self, findings: Findings, row: Finding, figures: Figures) -> str:
        return (
            f"words: F1 of those read back {against(figures)} for naming the same most frequent "
            "words of every text"
        )

    def ending(self, findings: Findings, row: Finding, judgement: Judgement) -> str:
        sentence = super().ending(findings, row, judgement)
        recall, precision = (
            self.row(findings, metric, row.attacker) for metric in ("recall", "precision")
        )
        if judgement.outcome == Outcome.LEAK and recall and precision:
            sentence += (
                f" It finds {percent(recall.value)} of a text’s words, and "
                f"{percent(precision.value)} of what it names is there."
            )
        return sentence

    def leak_clause(self, findings: Findings, verdict: Verdict) -> str:
        row = self.strongest(findings)
        recall = self.row(findings, "recall", row.attacker) if row else None
        if recall is None:
            return self.clauses[Outcome.NO_LEAK_FOUND]
        # A share of words would sound like much: most of those found are the most frequent ones.
        if verdict.level == "slight":
            return "little more than the most frequent words can be read back from a vector"
        return f"{percent(recall.value)} of a text’s words can be read back from its vector"

    def control_remark(self, null: Finding) -> str:
        return (
            f"Control: with the vector of another text the same guesses would reach "
            f"{percent(null.value)}, which any two texts share."
        )

    def details(self, findings: Findings, row: Finding) -> list[str]:
        fifths = self.parts(findings, row, "recall")
        return [
            f"Of the rarest fifth of words {percent(fifths[0].value)} are found, of the most "
            f"frequent fifth {percent(fifths[-1].value)}."
            for _ in fifths[:1]
        ]

    def blocks(self, findings: Findings) -> list[Block | None]:
        row = self.strongest(findings)
        if row is None:
            return []
        caption = (
            f"Share of the words there that {attacker_name(row.attacker)} named, by how frequent "
            "they are: each fifth holds as many running words."
        )
        fifths = self.part_bars(findings, row, "recall", "Which words are found.", caption)
        sentences = text(self.sentences(findings))
        return [sentences, self.bars(findings), fifths, *example_blocks(findings)]

    def marks(self, findings: Findings, row: Finding) -> list[tuple[str, float | None]]:
        null = value_of(self.control(findings, row))
        marks = [("most-frequent", self.base(row)), ("other-text", null)]
        return [*marks, ("ceiling", row.ceiling)]

    def pair_name(self, target: str, attacker: str | None) -> str:
        return f"{self.kind.subject} ({attacker_name(attacker)})"

    # ---- tables --------------------------------------------------------------------------------

    def tables(self, findings: Findings) -> list[tuple[str, Table | None]]:
        title, head = "Words found, by how frequent they are", "words by frequency"
        note = "Share of the words there that were named; each fifth holds as many running words."
        return [
            (GROUP, self._attackers(findings)),
            (GROUP, self.part_table(findings, "recall", title, head, note)),
            (OTHERS, self.rest(findings)),
        ]

    def _attackers(self, findings: Findings) -> Table | None:
        lines = []
        for row in self.rows(findings):
            about = (attacker_name(row.attacker), str(row.parameters.get("access") or NOTHING))
            cells = [cell(self.row(findings, metric, row.attacker)) for metric in self.metrics]
            null = score("f1", value_of(self.control(findings, row)))
            sizes = (count(row.n), count(row.parameters.get("auxiliary")))
            lines.append(Line((*about, *cells, null, *sizes)))
        kind = reference_of(self.kind.name)
        blind = [cell(self.row(findings, metric, kind=kind)) for metric in self.metrics]
        if lines and any(item != NOTHING for item in blind):
            name = attacker_name("most-frequent")
            lines.append(Line((name, NOTHING, *blind, NOTHING, NOTHING, NOTHING), "control"))
        columns = ("attacker", "access", "F1", "precision", "recall", "another text’s vector, F1")
        note = (
            "Means over victims with 95 % intervals. Recall: the share of a text’s words that were "
            "named. Precision: the share of named words that are there. F1 is between the two."
        )
        more = ("victims", "auxiliary texts")
        return table("Words read back", (*columns, *more), lines, note, 2)


# ---- examples ------------------------------------------------------------------------------------


def shows_texts(findings: Findings) -> bool:
    """Whether the examples hold texts and words, so that the page is for its owner only."""
    return artefact(findings, "inversion_examples").get("redacted") is False


def example_blocks(findings: Findings) -> list[Block | None]:
    """Victims spread evenly and not by success; in numbers unless the run shows texts."""
    items: list[Mapping[str, Any]] = artefact(findings, "inversion_examples").get("examples") or []
    if not items:
        return []
    # Only then are there texts in the artefact at all.
    if shows_texts(findings):
        return [Examples(tuple(_example(item) for item in items))]
    numbers = _numbers(items)
    note = f"Texts and words are left out; `{name_command('invert', show_texts=True)}` shows them."
    return [numbers, text([note], "note") if numbers else None]


def _example(item: Mapping[str, Any]) -> Example:
    readings = tuple(
        GuessedWords(
            attacker_name(name),
            tuple(str(word) for word in reading.get("right_words") or []),
            tuple(str(word) for word in reading.get("wrong_words") or []),
            percent(reading.get("f1")),
        )
        for name, reading in (item.get("attackers") or {}).items()
    )
    return Example(str(item.get("text") or ""), readings)


def _numbers(items: list[Mapping[str, Any]]) -> Table | None:
    """How many words there were, and how many of those that each attacker named are right."""
    names = list(dict.fromkeys(name for item in items for name in item.get("attackers") or {}))
    lines = []
    for place, item in enumerate(items, 1):
        readings = [(item.get("attackers") or {}).get(name) or {} for name in names]
        cells = [
            f"{count(r.get('right'))} of {count(r.get('named'))}" if r else NOTHING
            for r in readings
        ]
        lines.append(Line((f"text {place}", count(item.get("words")), *cells)))
    columns = (f"{attacker_name(name)}: right of named" for name in names)
    head = ("victim", "words in it")
    return table("Some victims, in numbers", (*head, *columns), lines if names else [])
