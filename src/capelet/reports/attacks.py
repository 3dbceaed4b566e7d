"""Words, writers and training texts: what the other kinds of attack found, in plain words.

A leak is said to be found when the whole interval lies above what needs no vectors at all *and*
above the interval of the control. Where several attackers tried, the one whose interval begins
highest is judged; since that is a choice made by looking, the control has to be cleared as well.
Scores of membership are many and some of few writers, so the one to judge is fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from capelet.findings import Finding, Findings
from capelet.reports.tables import Table, pair_line
from capelet.reports.verdicts import Level, Verdict, gain_in_points, level_of, overall, verdicts
from capelet.reports.words import (
    attacker_name,
    count,
    known,
    percent,
    points,
    score_with_interval,
    span,
)

KINDS = ("inversion", "authorship", "membership")
PRIMARY = {"inversion": "f1", "authorship": "top5", "membership": "advantage"}
TITLES = {"inversion": "words", "authorship": "writer", "membership": "training texts"}
BASES = {
    "inversion": "by naming the most frequent words",
    "authorship": "by chance",
    "membership": "by chance",
}


JUDGED_MEMBERS = (
    ("windows", "window-cosine"),
    ("pairs", "learned"),
    ("pairs", "cosine"),
    ("pairs", "dot"),
)


def all_verdicts(findings: Findings) -> list[Verdict]:
    """One verdict per attribute, then one for each other kind of attack."""
    return [*verdicts(findings), *other_verdicts(findings)]


def other_verdicts(findings: Findings) -> list[Verdict]:
    """What the attacker that reached most learnt of words, writers and training texts."""
    found = [(kind, strongest(findings, kind)) for kind in KINDS]
    return [_verdict(findings, kind, row) for kind, row in found if row is not None]


def whole(findings: Findings) -> str:
    """The whole run in one or two sentences, attributes first."""
    judged = other_verdicts(findings)
    if not judged:
        return overall(findings)
    said = "; ".join(_clause(findings, verdict) for verdict in judged)
    sentence = f"{said[0].upper()}{said[1:]}."
    return f"{overall(findings)} {sentence}" if verdicts(findings) else sentence


def measured(findings: Findings, kind: str) -> list[Finding]:
    """The rows that a kind is judged by: its first metric, on all victims, one per attacker."""
    rows = findings.select(kind=kind, metric=PRIMARY[kind], subgroup=None)
    return [row for row in rows if known(row.value)]


def strongest(findings: Findings, kind: str) -> Finding | None:
    """The attacker that is judged: the one whose interval begins highest.

    Of membership it is named beforehand: windows of words, else pairs by the learned similarity.
    """

    def surely(row: Finding) -> float:
        return row.low if row.low is not None and known(row.low) else row.value

    rows = measured(findings, kind)
    if kind == "membership":  # six scores, some of few writers: choosing by looking finds luck
        order = {key: place for place, key in enumerate(JUDGED_MEMBERS)}
        return min(
            rows, key=lambda row: order.get((row.target, row.attacker or ""), 9), default=None
        )
    # An attacker that says the same of everything has an interval of no width, and says nothing.
    telling = [row for row in rows if row.low is None or row.low != row.high]
    return max(telling or rows, key=surely, default=None)


def base_of(row: Finding) -> float:
    """What needs no vectors at all: the most frequent words, or chance."""
    base = row.majority if row.kind == "inversion" else row.chance
    return base if base is not None and known(base) else 0.0


def control(findings: Findings, row: Finding) -> Finding | None:
    """The same attacker on shuffled labels, or its guesses paired with other texts."""
    rows = findings.select(
        kind=f"{row.kind}-null",
        target=row.target,
        metric=row.metric,
        attacker=row.attacker,
        subgroup=row.subgroup,
    )
    return rows[0] if rows else None


def judged_level(findings: Findings, row: Finding) -> Level:
    """`none` unless the interval lies above base and control; else by the gain, as elsewhere."""
    null = control(findings, row)
    top = None if null is None else null.high if null.high is not None else null.value
    floor = row.low if row.low is not None else row.value
    if top is not None and known(top) and floor <= top:
        return "none"
    return level_of(replace(row, chance=base_of(row)))


def _verdict(findings: Findings, kind: str, row: Finding) -> Verdict:
    base, null = base_of(row), control(findings, row)
    say = {"inversion": _words, "authorship": _writer, "membership": _members}[kind]
    level = judged_level(findings, row)
    return Verdict(
        target=TITLES[kind],
        level=level,
        statement=say(findings, row, level),
        warnings=(),
        value=row.value,
        low=row.low,
        high=row.high,
        chance=base,
        gain=row.value - base,
        low_gain=None if row.low is None else row.low - base,
        high_gain=None if row.high is None else row.high - base,
        null=null.value if null is not None else None,
        ceiling=row.ceiling,
        degenerate=row.degenerate,
        base=BASES[kind],
    )


def _words(findings: Findings, row: Finding, level: Level) -> str:
    parts = {
        metric: row_of(findings, "inversion", metric, row.attacker)
        for metric in ("recall", "precision")
    }
    said = (
        f"words: F1 of those read back {_figure(row)} against {percent(base_of(row))} for naming "
        "the same most frequent words of every text"
    )
    if level == "none":
        return f"{said}; no words were read back beyond those, which is no proof that none can be."
    said += f"; the attacker gains {gain_in_points(row.value, base_of(row))}."
    if parts["recall"] and parts["precision"]:
        said += (
            f" It finds {percent(parts['recall'].value)} of a text’s words, and "
            f"{percent(parts['precision'].value)} of what it names is there."
        )
    return said


def _writer(findings: Findings, row: Finding, level: Level) -> str:
    shots, writers = row.parameters.get("shots"), row.parameters.get("writers")
    said = (
        f"writer: with {count(shots)} known texts of each of {count(writers)} writers, the writer "
        f"of another text is among the attacker’s first five guesses in {_figure(row)} of cases, "
        f"against {percent(row.chance)} by chance"
    )
    said += "; writers could not be told apart." if level == "none" else "."
    text = row_of(findings, "authorship-reference", row.metric, None)
    if text is not None:
        said += f" A network that reads the texts themselves reaches {percent(text.value)}."
    return said


def _members(findings: Findings, row: Finding, level: Level) -> str:
    said = (
        f"training texts: told from the similarity of {_unit_name(row.target)} with an advantage "
        f"of {points(row.value, 1)}{_interval(row)}: so much oftener is a member "
        "taken for one than another text is"
    )
    if level == "none":
        return f"{said}. That cannot be told from chance, which is no proof that it never can."
    return f"{said}. Chance is 0."


def _clause(findings: Findings, verdict: Verdict) -> str:
    kind = next(kind for kind, title in TITLES.items() if title == verdict.target)
    row = strongest(findings, kind)
    assert row is not None
    if kind == "inversion":
        recall = row_of(findings, kind, "recall", row.attacker)
        if verdict.level == "none" or recall is None:
            return "no words could be read back beyond the most frequent ones"
        if verdict.level == "slight":
            return "little more than the most frequent words can be read back from a vector"
        return f"{percent(recall.value)} of a text’s words can be read back from its vector"
    if kind == "authorship":
        if verdict.level == "none":
            return "writers could not be told apart"
        writers = count(row.parameters.get("writers"))
        often = percent(row.value)
        return f"the writer is among the first five guesses of {writers} for {often} of the texts"
    if verdict.level == "none":
        return "training texts could not be told from others"
    return f"training texts are told from others with an advantage of {points(row.value)}"


def _figure(row: Finding) -> str:
    interval = span(row.low, row.high)
    shown = percent(row.value)
    return f"{shown} (95 % interval {interval})" if interval else shown


def _interval(row: Finding) -> str:
    if row.low is None or row.high is None:
        return ""
    return f" (95 % interval {score_with_interval(row).partition('(')[2]}"


def _unit_name(target: str) -> str:
    return {
        "windows": "words within a window",
        "pairs": "neighbouring sentences",
        "aggregates": "all neighbouring sentences of a text or writer",
    }.get(target, target)


def row_of(findings: Findings, kind: str, metric: str, attacker: str | None) -> Finding | None:
    """The row of a kind and a metric on all victims, of this attacker or of the first."""
    rows = findings.select(kind=kind, metric=metric, subgroup=None)
    rows = [row for row in rows if attacker is None or row.attacker == attacker]
    return rows[0] if rows else None


# ---- two runs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """One measurement of both runs, and how it is called."""

    kind: str
    name: str
    before: Finding | None
    after: Finding | None


def pairs(before: Findings, after: Findings) -> list[Pair]:
    """Every attacker of the other kinds, in both runs, by the metric that its kind is judged by."""
    made = []
    for kind in KINDS:
        keyed = [
            {(row.target, row.attacker): row for row in measured(run, kind)}
            for run in (before, after)
        ]
        for key in dict.fromkeys([*keyed[0], *keyed[1]]):
            made.append(Pair(kind, _name(kind, *key), keyed[0].get(key), keyed[1].get(key)))
    return made


def told(before: Findings, after: Findings) -> list[Pair]:
    """The pairs that sentences and pictures show: of membership only the score that is judged."""
    judged = [strongest(run, "membership") for run in (before, after)]
    return [
        pair
        for pair in pairs(before, after)
        if pair.kind != "membership"
        or any(row is not None and row in judged for row in (pair.before, pair.after))
    ]


def differences(before: Findings, after: Findings, names: tuple[str, str]) -> list[Table]:
    """A table of each other kind of attack: both runs and the difference."""
    titles = {
        "inversion": "Words read back: F1",
        "authorship": "Writers: among the first five guesses",
        "membership": "Training texts: advantage",
    }
    found = pairs(before, after)
    made = []
    for kind, title in titles.items():
        lines = [
            pair_line(item.name, item.before, item.after) for item in found if item.kind == kind
        ]
        if lines:
            columns = ("attack", *names, "difference in points", "intervals")
            made.append(Table(title, columns, tuple(lines), "Less is better."))
    return made


def _name(kind: str, target: str, attacker: str | None) -> str:
    if kind == "authorship":
        return TITLES[kind]
    what = f"{target}, " if kind == "membership" else ""
    return f"{TITLES[kind]} ({what}{attacker_name(attacker)})"


# ---- examples ----------------------------------------------------------------------------------


def examples(findings: Findings) -> Sequence[Any]:
    """The victims that the run chose to show, spread evenly and not by success."""
    artefact = findings.artefacts.get("inversion_examples")
    return list((artefact or {}).get("examples") or []) if isinstance(artefact, dict) else []


def shows_texts(findings: Findings) -> bool:
    """Whether the examples hold texts and words, so that the page is for its owner only."""
    artefact = findings.artefacts.get("inversion_examples")
    return isinstance(artefact, dict) and artefact.get("redacted") is False
