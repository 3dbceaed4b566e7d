"""What a language model remembers: exposure of made-up secrets, and texts given back.

A canary of exposure e ranks among the 2^-e likeliest of all sequences that it was drawn from
(Carlini et al., 2019); one that was never inserted has 1.44 bits by luck alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from capelet.findings import Finding, Findings
from capelet.findings.kinds import split_kind
from capelet.reports.draw.curves import Series
from capelet.reports.facts import method_name
from capelet.reports.formatting import NOTHING, percent, sentence_of
from capelet.reports.kinds.generic import OTHERS, KindReport, Pair, pair_up
from capelet.reports.page import Exposure, Line, Section, Table, section, table, text

# From so many bits on, a sentence calls a secret remembered: one in a thousand ranks higher.
REMEMBERED_BITS = 10.0
GROUP = "What the model remembers"
CANARIES, BITS, TAB = "canaries", "exposure_bits", "accuracy"
TAB_TITLE = "Tab attack on canaries: share given back whole"


def methods_of(findings: Findings) -> list[str | None]:
    rows = findings.select(target=CANARIES, metric=BITS)
    return list(dict.fromkeys(row.parameters.get("method") for row in rows))


def repetitions(row: Finding) -> int:
    return int(row.parameters.get("repetitions") or 0)


def interval(row: Finding, digits: int, scale: float = 1.0) -> str:
    if row.low is None or row.high is None:
        return NOTHING
    return f"{scale * row.low:.{digits}f}–{scale * row.high:.{digits}f}"


class Extraction(KindReport):
    """Exposure per number of repetitions, the tab attack, and real texts given back."""

    metrics = (BITS, TAB, "word_accuracy")

    def strongest(self, findings: Findings) -> Finding | None:
        """The secrets that were repeated most often."""
        return max(self.canaries(findings), key=repetitions, default=None)

    def canaries(self, findings: Findings, method: str | None = None) -> list[Finding]:
        """The rows of inserted secrets of one method, fewest repetitions first."""
        rows = findings.select(kind=self.kind.name, target=CANARIES, metric=BITS)
        rows = [row for row in rows if row.parameters.get("method") == method]
        return sorted(rows, key=repetitions)

    def clause(self, findings: Findings) -> str:
        row = self.strongest(findings)
        if row is None:
            return ""
        verb = "are" if row.value >= REMEMBERED_BITS else "are hardly"
        return (
            f"made-up secrets that one author repeated {repetitions(row)} times {verb} remembered "
            f"(exposure {row.value:.1f} bits)"
        )

    def sentences(self, findings: Findings) -> list[str]:
        sentences = [
            sentence
            for method in methods_of(findings)
            for sentence in self._of_method(findings, method)
        ]
        for row in findings.select(kind=self.kind.name, target="real texts", metric=TAB):
            sentences.append(
                f"Given its first word, the model gives back the whole of {percent(row.value)} of "
                f"the {row.n} least usual training texts, one of each author."
            )
        return sentences

    def _of_method(self, findings: Findings, method: str | None) -> list[str]:
        rows = self.canaries(findings, method)
        if not rows:
            return []
        most = rows[-1]
        often = repetitions(most)
        chance = NOTHING if most.chance is None else f"{most.chance:.1f}"
        figures = f"{most.value:.1f} bits ({interval(most, 1)}; never inserted: {chance})"
        if method is None:
            verb = "is remembered" if most.value >= REMEMBERED_BITS else "is hardly remembered"
            subject = f"A made-up secret that one author repeated {often} times"
            return [f"{subject} {verb}: exposure {figures}."]
        # Beside its price: less exposure at a worse perplexity is only less learning.
        costs = [
            f"test perplexity {row.value:.1f}, "
            for row in findings.select(kind="utility", metric="perplexity")
            if row.parameters.get("method") == method
        ]
        return [
            f"{sentence_of(method_name(method))}: {''.join(costs)}exposure of a secret repeated "
            f"{often} times {figures}."
        ]

    # ---- on the page ---------------------------------------------------------------------------

    def section(self, findings: Findings) -> Section | None:
        blocks = [text(self.sentences(findings)), self.curves([(findings, "")])]
        return section("exposure", self.kind.heading, blocks, self.kind.heading)

    def curves(self, runs: Sequence[tuple[Findings, str]]) -> Exposure | None:
        """Exposure over repetitions, a line for each method; names of runs distinguish theirs."""
        items = [item for run, name in runs for item in series(self, run, name)]
        rows = [row for run, _ in runs for row in run.select(target=CANARIES, metric=BITS)]
        chance = next((row.chance for row in rows if row.chance is not None), 0.0)
        return Exposure(tuple(items), chance, *self.kind.caption) if items else None

    def tables(self, findings: Findings) -> list[tuple[str, Table | None]]:
        canaries = [(GROUP, canary_table(findings, metric)) for metric in (BITS, TAB)]
        return [*canaries, (OTHERS, self.rest(findings))]

    # ---- two runs ------------------------------------------------------------------------------

    def pairs(self, before: Findings, after: Findings) -> list[Pair]:
        """Exposure per number of repetitions, with the control; then what was given back."""
        pairs = []
        for title, target, metrics in (
            (self.kind.comparison, CANARIES, (BITS,)),
            (TAB_TITLE, CANARIES, (TAB,)),
            ("Real texts given back", "real texts", (TAB, "word_accuracy")),
        ):
            sides = (_by_key(run, target, metrics) for run in (before, after))
            for pair in pair_up(self.kind.name, sides, _pair_name, title):
                control = any(row and split_kind(row.kind)[1] == "control" for row in pair.rows)
                # Exposure is the finest measure; the tab attack is 0 until a secret is known by
                # heart.
                headline = metrics == (BITS,) and not control
                pairs.append(replace(pair, headline=headline, control=control))
        return pairs


def _by_key(
    findings: Findings, target: str, metrics: Sequence[str]
) -> Mapping[tuple[str, str, Any, int], Finding]:
    rows = [
        row
        for row in findings.select(target=target)
        if split_kind(row.kind)[0] == "extraction" and row.metric in metrics
    ]
    return {
        (target, row.metric, row.parameters.get("method"), repetitions(row)): row
        for row in sorted(rows, key=repetitions)
    }


def _pair_name(key: tuple[str, str, Any, int]) -> str:
    target, metric, method, often = key
    if target != CANARIES:
        return "whole" if metric == TAB else "words"
    name = f"secrets repeated {often} times" if often else "never (control)"
    name = "secrets inserted once" if often == 1 else name
    return f"{name}, {method_name(method)}" if method else name


def series(report: Extraction, findings: Findings, name: str = "") -> list[Series]:
    """The exposure of inserted canaries as one series per method, without early stops."""
    items = []
    for method in methods_of(findings):
        # Repetitions are drawn on a log scale, which has no zero.
        rows = [row for row in report.canaries(findings, method) if repetitions(row)]
        # A training that was stopped early is a reference at equal perplexity, and no method.
        if not rows or (method is not None and "stopped" in method):
            continue
        # Two runs of one method are told apart by their own names.
        label = method_name(method) if method or not name else ""
        items.append(
            Series(
                ", ".join(part for part in (name, label) if part),
                tuple(repetitions(row) for row in rows),
                tuple(row.value for row in rows),
                tuple(row.value if row.low is None else row.low for row in rows),
                tuple(row.value if row.high is None else row.high for row in rows),
            )
        )
    return items


def canary_table(findings: Findings, metric: str) -> Table | None:
    """A line per number of repetitions, the control first; a column per method."""
    rows = findings.select(target=CANARIES, metric=metric)
    methods = methods_of(findings)
    by_key = {(repetitions(row), row.parameters.get("method")): row for row in rows}
    title, note, cell = _CANARY_TABLES[metric]
    lines = []
    for level in sorted({level for level, _ in by_key}):
        cells = [
            cell(by_key[level, method]) if (level, method) in by_key else NOTHING
            for method in methods
        ]
        name = "never (control)" if level == 0 else str(level)
        lines.append(Line((name, *cells), "control" if level == 0 else ""))
    columns = ("repetitions", *(method_name(method) for method in methods))
    return table(title, columns, lines, note)


def _bits(row: Finding) -> str:
    number = row.parameters.get("extrapolated")
    more = f", {number} extrapolated" if number else ""
    return f"{row.value:.1f} ({interval(row, 1)}){more}"


def _share(row: Finding) -> str:
    return f"{percent(row.value)} ({interval(row, 0, 100)})"


_CANARY_TABLES = {
    BITS: (
        "Exposure of canaries, bits",
        "Means with 95 % intervals over authors. Chance is 1.4 bits. Where no random sequence "
        "ranks above a canary, its exposure is extrapolated from a fitted tail.",
        _bits,
    ),
    TAB: (TAB_TITLE, "The first word goes in; a hit needs all other words, in order.", _share),
}
