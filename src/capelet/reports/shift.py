"""Original and released vectors beside each other: how far apart, in words, a table and one map.

To be told apart is no leak of a secret, and to overlap is no protection: the page says so wherever
it shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capelet.findings import Finding, Findings
from capelet.reports.panels import Cloud, cloud_panel
from capelet.reports.tables import Line, Table
from capelet.reports.verdicts import first
from capelet.reports.words import (
    NOTHING,
    count,
    known,
    metric_name,
    percent,
    score,
    score_with_interval,
    span,
)

KIND = "deviation"
APART = 0.95
"""From here on "nearly always" is said."""
NOTE = (
    "Told apart: the share of vectors that a fresh classifier (logistic regression and nearest "
    "neighbours, learnt on the attacker’s texts) names rightly as original or released."
)
CAUTION = (
    "To be told apart is no leak, and to overlap is no protection: the verdicts say what leaks. "
    "A classifier in all dimensions sees more than a map in two."
)


@dataclass(frozen=True)
class Shift:
    """What a page shows of one run: sentences, a table, and a map where there is one."""

    steps: str
    sentences: tuple[str, ...]
    table: Table | None
    cloud: Cloud | None
    shown: int | None
    of: int | None


def shift(findings: Findings) -> Shift | None:
    """All of it; None for a run that released the vectors as they are."""
    drawn = findings.artefacts.get("tsne_shift")
    artefact: Mapping[str, Any] = drawn if isinstance(drawn, Mapping) else {}
    cloud, lines = _cloud(artefact), table(findings)
    if cloud is None and lines is None:
        return None
    numbers = [artefact.get(key) if cloud else None for key in ("shown", "of")]
    return Shift(_steps(findings), tuple(sentences(findings)), lines, cloud, *numbers)


def sentences(findings: Findings) -> list[str]:
    """Whether the released vectors lie among the original ones, and how far each has moved."""
    said = []
    told = _row(findings, "separability")
    if told is not None and known(told.value):
        interval = span(told.low, told.high, 1)
        said.append(
            f"{_place(told)} A fresh classifier names {percent(told.value, 1)} of them rightly as "
            f"original or released{f' (interval {interval})' if interval else ''}, where guessing "
            f"reaches {percent(told.chance)}."
        )
    angle, far = _row(findings, "cosine_distance"), _row(findings, "euclidean")
    if angle is not None and known(angle.value):
        moved = f" and moved by {score('euclidean', far.value)} (Euclidean)" if far else ""
        said.append(
            "On average a vector turned by a cosine distance of "
            f"{score('cosine_distance', angle.value)} (0 is not at all, 1 is a right angle){moved}."
        )
    return said


def table(findings: Findings) -> Table | None:
    """One line per measurement, with chance and the control."""
    lines = []
    for row in findings.select(kind=KIND):
        null = first(findings, kind=f"{KIND}-null", metric=row.metric)
        controls = (row.chance, null.value if null else None)
        cells = (score(row.metric, value) for value in controls)
        lines.append(Line((metric_name(row.metric), score_with_interval(row), *cells)))
    if not lines:
        return None
    columns = ("measurement", "value", "chance", "shuffled")
    return Table("Deviation of the vectors", columns, tuple(lines), _note(findings))


def _note(findings: Findings) -> str:
    far, told = _row(findings, "euclidean"), _row(findings, "separability")
    said = [f"Distances are means over {count(far.n)} texts."] if far and far.n else []
    if told is not None:
        said += [NOTE, *([f"Scored on {count(told.n)} victims per seed."] if told.n else [])]
    return " ".join(said)


def compared(before: Findings, after: Findings, names: tuple[str, str]) -> Table | None:
    """The same measurements of two runs side by side."""
    runs = (before, after)
    metrics = dict.fromkeys(row.metric for run in runs for row in run.select(kind=KIND))
    lines = []
    for metric in metrics:
        found = [_row(run, metric) for run in runs]
        cells = [NOTHING if row is None else score_with_interval(row) for row in found]
        lines.append(Line((metric_name(metric), *cells)))
    note = f"{NOTE} {CAUTION}" if "separability" in metrics else ""
    columns = ("measurement", *names)
    return Table("Deviation of the vectors", columns, tuple(lines), note) if lines else None


def _row(findings: Findings, metric: str) -> Finding | None:
    return first(findings, kind=KIND, metric=metric)


def _place(told: Finding) -> str:
    if told.value >= APART:
        return "The released vectors can nearly always be told from the encoder’s own."
    if told.low is not None and told.chance is not None and told.low > told.chance:
        return "The released vectors can in part be told from the encoder’s own."
    return "The released vectors could not be told from the encoder’s own."


def _steps(findings: Findings) -> str:
    """The steps that protect, by name: what one map of two runs is told from the other by."""
    steps = findings.recipe.get("steps") or []
    named = [step for step in steps if isinstance(step, Mapping) and step.get("step") != "encoder"]
    return ", ".join(
        f"{step.get('step')}" + (f" ε = {step['epsilon']}" if "epsilon" in step else "")
        for step in named
    )


def _cloud(artefact: Mapping[str, Any]) -> Cloud | None:
    names = ["released" if flag else "original" for flag in artefact.get("released") or []]
    return cloud_panel("original or released", artefact.get("points") or [], names)
