"""Findings in plain words: one verdict per attribute, and what the attacker needed for it.

A verdict only reads, subtracts chance and rounds; every number in it stands in the findings. "No
leak found" is said when the interval includes chance, and never as "no leak".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from capelet.findings import Finding, Findings
from capelet.reports.words import (
    attacker_name,
    known,
    listed,
    metric_name,
    percent,
    points,
    rounded,
    span,
)

Level = Literal["none", "slight", "clear", "strong"]
LEVELS: tuple[Level, ...] = ("none", "slight", "clear", "strong")
LEAK = "attribute-inference"
PRIMARY = "balanced_accuracy"
SLIGHT, CLEAR = 0.05, 0.15


@dataclass(frozen=True)
class Verdict:
    """What the strongest attacker learnt about one attribute, against chance.

    `statement` is the verdict, `warnings` say why it may not be trusted, `sentence` is both. What
    `chance` is the score of is said by `base`: the words of a text have a better one than chance.
    """

    target: str
    level: Level
    statement: str
    warnings: tuple[str, ...]
    value: float | None
    low: float | None
    high: float | None
    chance: float | None
    gain: float | None
    low_gain: float | None
    high_gain: float | None
    predicted_label: float | None = None
    text: float | None = None
    null: float | None = None
    ceiling: float | None = None
    degenerate: bool = False
    base: str = "by chance"

    @property
    def sentence(self) -> str:
        return " ".join((self.statement, *self.warnings))

    @property
    def title(self) -> str:
        """The level in two words, as a label on the verdict."""
        if self.degenerate:
            return "no leak found, all guesses the same"
        return "no leak found" if self.level == "none" else f"{self.level} leak"


def first(findings: Findings, **wanted: Any) -> Finding | None:
    """The row that matches, a mean over seeds and all subgroups before a part of them."""
    rows = findings.select(**wanted)
    rows.sort(key=lambda row: (row.seed is not None, row.subgroup is not None))
    return rows[0] if rows else None


def targets(findings: Findings, kind: str) -> list[str]:
    """The targets of a kind in the order in which they were measured."""
    return list(dict.fromkeys(row.target for row in findings if row.kind == kind))


def verdicts(findings: Findings) -> list[Verdict]:
    """One verdict per attribute that a strongest attacker was measured on."""
    found = []
    for target in targets(findings, LEAK):
        row = first(findings, kind=LEAK, target=target, attacker="strongest", metric=PRIMARY)
        if row is not None:
            found.append(_verdict(findings, row))
    return found


def unmeasured(findings: Findings) -> list[str]:
    """The attributes that were asked about and have no verdict."""
    asked = findings.provenance.get("attributes") or {}
    judged = {verdict.target for verdict in verdicts(findings)}
    return [name for name in asked if name not in judged]


def overall(findings: Findings) -> str:
    """The whole run in one sentence, strongest leak first."""
    judged = verdicts(findings)
    if not judged:
        return "No private attribute was measured, so this report says nothing about leaks."
    groups = {
        level: [f"“{verdict.target}”" for verdict in judged if verdict.level == level]
        for level in reversed(LEVELS)
    }
    leaks = [
        f"{listed(names)} {adverb}"
        for (level, names), adverb in zip(
            groups.items(), ("strongly", "clearly", "slightly", ""), strict=True
        )
        if names and level != "none"
    ]
    if not leaks:
        sentence = f"No leak of {listed(groups['none'])} was found. "
        sentence += "That is not proof that there is none"
    else:
        sentence = f"The vectors give away {listed(leaks)}"
        if groups["none"]:
            sentence += f"; no leak of {listed(groups['none'])} was found"
    doubtful = [f"“{verdict.target}”" for verdict in judged if verdict.warnings]
    if doubtful:
        sentence += f". There is a warning about {listed(doubtful)}: read it first"
    return sentence + "."


def level_of(row: Finding) -> Level:
    """`none` when the interval includes chance or the guesses are constant, else by the gain."""
    gain = _minus(row.value, row.chance)
    floor = row.low if known(row.low) else row.value
    if gain is None or floor is None or row.chance is None or row.degenerate:
        return "none"
    if floor <= row.chance:
        return "none"
    gain = round(gain, 9)  # 0.55 − 0.5 is a little more, 1/3 + 0.05 − 1/3 a little less
    return "slight" if gain < SLIGHT else "clear" if gain < CLEAR else "strong"


def _verdict(findings: Findings, row: Finding) -> Verdict:
    reference = {
        name: _value(
            first(
                findings, kind=f"{LEAK}-reference", target=row.target, attacker=name, metric=PRIMARY
            )
        )
        for name in ("predicted-label", "tf-idf")
    }
    null = first(findings, kind=f"{LEAK}-null", target=row.target, metric=PRIMARY)
    warnings = [_null_warning(null), _ceiling_warning(row)]
    return Verdict(
        target=row.target,
        level=level_of(row),
        statement=_statement(row, reference["predicted-label"], reference["tf-idf"]),
        warnings=tuple(warning for warning in warnings if warning),
        value=row.value if known(row.value) else None,
        low=row.low,
        high=row.high,
        chance=row.chance,
        gain=_minus(row.value, row.chance),
        low_gain=_minus(row.low, row.chance),
        high_gain=_minus(row.high, row.chance),
        predicted_label=reference["predicted-label"],
        text=reference["tf-idf"],
        null=_value(null),
        ceiling=row.ceiling,
        degenerate=row.degenerate,
    )


def _statement(row: Finding, label: float | None, text: float | None) -> str:
    gain = _minus(row.value, row.chance)
    # Whole per cents read best; where they would hide a small gain, one decimal.
    digits = 1 if gain is not None and abs(gain) < 0.02 else 0
    interval = span(row.low, row.high, digits)
    head = f"{row.target}: {percent(row.value, digits)} balanced accuracy"
    head += f" (95 % interval {interval})" if interval else ""
    head += f" against {percent(row.chance, digits)} by chance; {_outcome(row, digits)}."
    return " ".join(part for part in (head, _references(row, label, text, digits)) if part)


def _outcome(row: Finding, digits: int) -> str:
    if row.degenerate:
        return (
            "the strongest attacker gave every text the same answer, "
            "so nothing was learnt and this is no evidence that there is no leak"
        )
    if level_of(row) != "none":
        return f"the attacker gains {gain_in_points(row.value, row.chance, digits)}"
    room = _minus(row.high, row.chance)
    if room is not None and room > 0:
        room_words = points(room, max(digits, int(room < 0.1)))
        return f"no leak found, but the interval leaves room for a gain of up to {room_words}"
    return "no leak found, which is not proof that there is none"


def gain_in_points(value: float | None, base: float | None, digits: int = 0) -> str:
    """The gain, with a decimal where the rounded numbers beside it would seem to contradict it."""
    gain = _minus(value, base)
    if gain is None or value is None or base is None:
        return points(None)
    shown = int(rounded(100 * gain).replace("−", "-"))
    beside = round(100 * value) - round(100 * base)
    return points(gain, digits if shown == beside else 1)


def _references(row: Finding, label: float | None, text: float | None, digits: int) -> str:
    parts = []
    if label is not None and text is not None:
        parts.append(
            f"The predicted task label alone gives {percent(label, digits)}, "
            f"the text itself {percent(text, digits)}."
        )
    elif label is not None:
        parts.append(f"The predicted task label alone gives {percent(label, digits)}.")
    elif text is not None:
        parts.append(f"The text itself gives {percent(text, digits)}.")
    if row.ceiling is not None and row.ceiling >= 0.99:
        parts.append("The guarantee alone rules out almost nothing here (ceiling above 99 %).")
    elif row.ceiling is not None and known(row.ceiling):
        parts.append(f"The guarantee permits nobody more than {percent(row.ceiling, digits)}.")
    return " ".join(parts)


def _null_warning(null: Finding | None) -> str:
    """A control with shuffled labels must not lie above chance; if so, the score is suspect.

    Below chance is no leak: shuffled labels of few authors are drawn without replacement, so that
    an attacker's authors have rather the other label than their nearest victims.
    """
    if null is None or null.chance is None or not known(null.value):
        return ""
    if null.low is None or null.low <= null.chance:
        return ""
    interval = span(null.low, null.high, 1)
    return (
        f"Warning: with shuffled labels the attacker scored {percent(null.value, 1)} "
        f"({interval}) where chance is {percent(null.chance, 1)}. The protocol leaks, or this is "
        "one unlucky draw in about forty: do not rely on this verdict before a run with "
        "other seeds has cleared it."
    )


def _ceiling_warning(row: Finding) -> str:
    if row.ceiling is None or row.low is None or row.low <= row.ceiling:
        return ""
    return (
        f"Warning: the whole interval lies above the {percent(row.ceiling, 1)} that the stated "
        "guarantee permits to anyone. The guarantee does not hold as stated, or its assumptions do "
        "not (one release per secret, no side information)."
    )


def tasks(findings: Findings) -> list[str]:
    """How well the vectors still do their work, one sentence per task."""
    sentences = []
    for target in targets(findings, "utility"):
        rows = findings.select(kind="utility", target=target)
        row = primary_task_row(rows)
        if row is not None:
            sentences.append(_task(findings, row))
    return sentences


def primary_task_row(rows: list[Finding]) -> Finding | None:
    """The row that a task is judged by: the strongest probe's accuracy, or neighbours kept."""
    order = ("accuracy", "recall_at_10", "balanced_accuracy")
    rows = [row for row in rows if row.metric in order and row.attacker in (None, "strongest")]
    return min(rows, key=lambda row: order.index(row.metric), default=None)


def _task(findings: Findings, row: Finding) -> str:
    interval = span(row.low, row.high)
    shown = percent(row.value) + (f" (95 % interval {interval})" if interval else "")
    if row.metric == "recall_at_10":
        return f"{shown} of each text’s ten nearest neighbours are still its neighbours."
    sentence = f"{row.target}: {shown} {metric_name(row.metric)}"
    if known(row.majority):
        sentence += f" against {percent(row.majority)} for always naming the commonest class"
    text = first(findings, kind="utility-reference", target=row.target, metric=row.metric)
    if text is not None:
        sentence += f"; {attacker_name(text.attacker)} gives {percent(text.value)}"
    sentence += "."
    if row.low is not None and row.majority is not None and row.low <= row.majority:
        sentence += " The vectors cannot be told from that guess: they do not serve this task."
    return sentence


def gaps(findings: Findings) -> list[str]:
    """How unevenly the task works between the groups of an attribute."""
    rows = findings.select(kind="fairness", metric="accuracy_gap")
    return [
        f"Between the groups of {row.subgroup or row.target} the accuracy differs by up to "
        f"{points(row.value, 1)}."
        for row in rows
        if known(row.value)
    ]


def needs(findings: Findings) -> list[str]:
    """How many labelled texts the attacker needed for half of its gain, one sentence each."""
    artefact = findings.artefacts.get("learning_curve") or {}
    curves: Mapping[str, Any] = artefact.get("curves") or {}
    named = attacker_name(artefact.get("attacker", "logistic"))
    return [
        _need(verdict, curves[verdict.target], named)
        for verdict in verdicts(findings)
        if (curves.get(verdict.target) or {}).get("labels_per_class")
    ]


def _need(verdict: Verdict, curve: Mapping[str, Any], named: str) -> str:
    labels, values = curve["labels_per_class"], curve.get("value") or []
    most = labels[-1]
    if verdict.level == "none" or verdict.gain is None or verdict.chance is None:
        return f"{verdict.target}: no leak found with all of the attacker’s labelled texts."
    half = verdict.chance + verdict.gain / 2
    for number, value in zip(labels, values, strict=False):
        if value is not None and value >= half:
            return (
                f"{verdict.target}: {number} labelled texts per class and {named} "
                f"are enough for half of the full gain ({percent(value)})."
            )
    return (
        f"{verdict.target}: {most} labelled texts per class give {named} "
        "less than half of the full gain; the full gain needs more labels or a stronger attacker."
    )


def _value(row: Finding | None) -> float | None:
    return row.value if row is not None and known(row.value) else None


def _minus(value: float | None, base: float | None) -> float | None:
    if value is None or base is None or not (known(value) and known(base)):
        return None
    return value - base
