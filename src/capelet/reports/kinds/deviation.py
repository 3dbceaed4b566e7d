"""Original and released vectors beside each other: how far apart, in words, a table and one map.

To be told apart is no leak of a secret, and to overlap is no protection: the page says so wherever
it shows them.
"""

from __future__ import annotations

from collections.abc import Mapping

from capelet.findings import Finding, Findings
from capelet.findings.kinds import control_of
from capelet.reports.draw.maps import Cloud
from capelet.reports.facts import artefact
from capelet.reports.formatting import (
    count,
    is_number,
    metric_name,
    percent,
    score,
    sentence_of,
    span,
)
from capelet.reports.kinds.generic import KindReport, Pair, cell
from capelet.reports.page import (
    Block,
    Column,
    Columns,
    Line,
    Maps,
    Section,
    Table,
    present,
    section,
    table,
    text,
)
from capelet.reports.verdict import first, value_of

KIND = "deviation"
# From here on "nearly always" is said.
APART = 0.95
NOTE = (
    "Told apart: the share of vectors that a fresh classifier (logistic regression and nearest "
    "neighbours, learnt on the attacker’s texts) names rightly as original or released."
)
CAUTION = (
    "To be told apart is no leak, and to overlap is no protection: the verdicts say what leaks. "
    "A classifier in all dimensions sees more than a map in two."
)
SIMILAR = "Vectors of similar direction lie near each other."


class Deviation(KindReport):
    """How far the release lies from the encoder's own vectors; neither better nor worse."""

    def sentences(self, findings: Findings) -> list[str]:
        """Whether the released vectors lie among the original ones, and how far each has moved."""
        sentences = []
        share = _row(findings, "separability")
        if share is not None and is_number(share.value):
            interval = span(share.low, share.high, 1)
            sentences.append(
                f"{_place(share)} A fresh classifier names {percent(share.value, 1)} of them "
                f"rightly as original or released{f' (interval {interval})' if interval else ''}, "
                f"where guessing reaches {percent(share.chance)}."
            )
        angle, far = _row(findings, "cosine_distance"), _row(findings, "euclidean")
        if angle is not None and is_number(angle.value):
            distance = f" and moved by {score('euclidean', far.value)} (Euclidean)" if far else ""
            sentences.append(
                "On average a vector turned by a cosine distance of "
                f"{score('cosine_distance', angle.value)} (0 is not at all, 1 is a right angle)"
                f"{distance}."
            )
        return sentences

    def section(self, findings: Findings) -> Section | None:
        """All of it; None for a run that released the vectors as they are."""
        cloud, numbers = shift_map(findings), self.numbers(findings)
        if cloud is None and numbers is None:
            return None
        picture: Block | None = numbers
        if cloud is not None:
            sizes = [artefact(findings, "tsne_shift").get(key) for key in ("shown", "of")]
            whom = (
                f"{count(sizes[0])} of {count(sizes[1])} victims" if all(sizes) else "some victims"
            )
            # The picture beside its numbers, and either alone where the other is missing.
            columns = [Column("", (block,)) for block in (Maps((cloud,)), numbers) if block]
            picture = Columns(
                tuple(columns),
                "Original and released vectors in one map.",
                f"t-SNE of both vectors of {whom}: the one that the encoder gave, and the one "
                f"that left. {SIMILAR}",
            )
        blocks = [text(self.sentences(findings)), text([CAUTION], "note"), picture]
        return section("shift", self.kind.heading, blocks, "Original and released")

    def numbers(self, findings: Findings) -> Table | None:
        """One line per measurement, with chance and the control."""
        lines = []
        for row in findings.select(kind=KIND):
            null = value_of(first(findings, kind=control_of(KIND), metric=row.metric))
            cells = (score(row.metric, value) for value in (row.chance, null))
            lines.append(Line((metric_name(row.metric), cell(row), *cells)))
        columns = ("measurement", "value", "chance", "shuffled")
        return table(self.kind.title, columns, lines, _note(findings))

    def tables(self, findings: Findings) -> list[tuple[str, Table | None]]:
        return []  # they stand in its section

    def pairs(self, before: Findings, after: Findings) -> list[Pair]:
        return []  # nothing here is better or worse

    def compare(self, before: Findings, after: Findings, names: tuple[str, str]) -> Section | None:
        """Two runs side by side, each with its own map."""
        runs = (before, after)
        sections = [self.section(run) for run in runs]
        numbers = self._side_by_side(before, after, names)
        if numbers is None and not any(sections):
            return None
        columns = Columns(
            tuple(self._column(run, name) for run, name in zip(runs, names, strict=True)),
            "Original and released vectors in one map, run by run.",
            "t-SNE of both vectors of the same victims: the one that the encoder gave, and the one "
            f"that left. {SIMILAR}",
        )
        return section("shift", self.kind.heading, [columns, numbers], "Original and released")

    def _column(self, findings: Findings, name: str) -> Column:
        title = sentence_of(name)
        steps = steps_of(findings)
        cloud = shift_map(findings, f"{title}: {steps}" if steps else title)
        notes = text(self.sentences(findings), "note")
        if cloud is None:
            # A projection to another width has no common map with what went in.
            absent = "No map: this run released the vectors as they are, or with another width."
            return Column(title, present([text([absent]), notes]))
        return Column("", present([Maps((cloud,)), notes]))

    def _side_by_side(
        self, before: Findings, after: Findings, names: tuple[str, str]
    ) -> Table | None:
        runs = (before, after)
        metrics = dict.fromkeys(row.metric for run in runs for row in run.select(kind=KIND))
        lines = [
            Line((metric_name(metric), *(cell(_row(run, metric)) for run in runs)))
            for metric in metrics
        ]
        note = f"{NOTE} {CAUTION}" if "separability" in metrics else ""
        return table(self.kind.comparison, ("measurement", *names), lines, note)


def _note(findings: Findings) -> str:
    far, share = _row(findings, "euclidean"), _row(findings, "separability")
    notes = [f"Distances are means over {count(far.n)} texts."] if far and far.n else []
    if share is not None:
        notes += [NOTE, *([f"Scored on {count(share.n)} victims per seed."] if share.n else [])]
    return " ".join(notes)


def _row(findings: Findings, metric: str) -> Finding | None:
    return first(findings, kind=KIND, metric=metric)


def _place(share: Finding) -> str:
    if share.value >= APART:
        return "The released vectors can nearly always be told from the encoder’s own."
    if share.low is not None and share.chance is not None and share.low > share.chance:
        return "The released vectors can in part be told from the encoder’s own."
    return "The released vectors could not be told from the encoder’s own."


def steps_of(findings: Findings) -> str:
    """The steps that protect, by name: what one map of two runs is told from the other by."""
    steps = findings.recipe.get("steps") or []
    names = [step for step in steps if isinstance(step, Mapping) and step.get("step") != "encoder"]
    return ", ".join(
        f"{step.get('step')}" + (f" ε = {step['epsilon']}" if "epsilon" in step else "")
        for step in names
    )


def shift_map(findings: Findings, title: str = "") -> Cloud | None:
    """Both vectors of the same victims in one map."""
    content = artefact(findings, "tsne_shift")
    names = ["released" if flag else "original" for flag in content.get("released") or []]
    title = title or steps_of(findings) or "Both vectors of the same texts"
    return Cloud.read("original or released", content.get("points") or [], names, title)
