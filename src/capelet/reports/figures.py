"""Rows of bars on one axis: values with interval, chance, references and ceiling.

Coordinates are percentages, so the picture keeps its text size from a phone to a printed page.
Colours are CSS classes; the page's variables decide them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from capelet.findings import Finding, Findings
from capelet.reports.svg import short, svg, text
from capelet.reports.verdicts import Verdict, primary_task_row, targets, verdicts
from capelet.reports.words import known, percent, span

MARKS = {
    "chance": "chance",
    "majority": "always naming the commonest class",
    "most-frequent": "always naming the most frequent words",
    "predicted-label": "predicted task label alone",
    "tf-idf": "the text itself (TF-IDF)",
    "text-cnn": "the text itself (TextCNN)",
    "null": "shuffled labels (control)",
    "other-text": "paired with another text (control)",
    "ceiling": "ceiling of the guarantee",
}
_SHAPES = {
    "predicted-label": "M0 -5L5 0L0 5L-5 0Z",
    "tf-idf": "M0 -5L5 4L-5 4Z",
    "text-cnn": "M0 -5L5 4L-5 4Z",
    "null": "M-4 -4L4 4M-4 4L4 -4",
    "other-text": "M-4 -4L4 4M-4 4L4 -4",
}


@dataclass(frozen=True)
class Bar:
    """One row: a value with its interval, drawn from `start` (none: a dot), and marks beside it."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    start: float | None = None
    marks: tuple[tuple[str, float], ...] = ()
    tone: str = "accent"
    group: str = ""


def leak_bars(findings: Findings, label: str = "") -> list[Bar]:
    """Per attribute the strongest attacker, from chance; with a label, grouped by attribute."""
    return [
        Bar(
            label=label or verdict.target,
            value=verdict.value,
            low=verdict.low,
            high=verdict.high,
            start=verdict.chance,
            marks=_marks(verdict),
            tone=f"level-{verdict.level}",
            group=verdict.target if label else "",
        )
        for verdict in verdicts(findings)
        if verdict.value is not None
    ]


def task_bars(findings: Findings, label: str = "") -> list[Bar]:
    """Per task the strongest probe, from the score of always naming the commonest class."""
    rows = [
        primary_task_row(findings.select(kind="utility", target=target))
        for target in targets(findings, "utility")
    ]
    return [_task_bar(findings, row, label) for row in rows if row is not None and known(row.value)]


def group_bars(findings: Findings) -> list[Bar]:
    """The task's accuracy in each subgroup, as dots, grouped by attribute."""
    return [
        Bar(
            label=(row.subgroup or "").partition("=")[2] or row.subgroup or row.target,
            value=row.value,
            low=row.low,
            high=row.high,
            group=(row.subgroup or "").partition("=")[0],
        )
        for row in findings.select(kind="fairness", metric="accuracy")
        if known(row.value)
    ]


def _marks(verdict: Verdict) -> tuple[tuple[str, float], ...]:
    marks = {
        "chance": verdict.chance,
        "predicted-label": verdict.predicted_label,
        "tf-idf": verdict.text,
        "null": verdict.null,
        "ceiling": verdict.ceiling,
    }
    return tuple((kind, value) for kind, value in marks.items() if value is not None)


def _task_bar(findings: Findings, row: Finding, label: str) -> Bar:
    references = findings.select(kind="utility-reference", target=row.target, metric=row.metric)
    marks = [("majority", row.majority), ("ceiling", row.ceiling)]
    marks += [("tf-idf", item.value) for item in references if item.attacker == "tf-idf"]
    return Bar(
        label=label or row.target,
        value=row.value,
        low=row.low,
        high=row.high,
        start=row.majority if row.majority is not None else 0.0,
        marks=tuple((kind, value) for kind, value in marks if value is not None and known(value)),
        group=row.target if label else "",
    )


def meter(verdict: Verdict) -> Markup:
    """A thin track for a verdict's card: the gain from chance, on an axis from 0 to 100 %."""
    if verdict.value is None or verdict.chance is None:
        return Markup("")
    left, right = sorted((verdict.chance, verdict.value))
    back = " back" if verdict.value < verdict.chance else ""
    chance = _at(verdict.chance)
    return Markup(
        '<svg class="meter" width="100%" height="12" aria-hidden="true">'
        '<rect class="track" x="0" y="3" width="100%" height="6" rx="3"/>'
        f'<rect class="fill{back}" x="{_at(left)}" y="3" width="{_at(right - left)}" height="6"/>'
        f'<line class="mark chance" x1="{chance}" x2="{chance}" y1="0" y2="12"/></svg>'
    )


def bars(rows: Sequence[Bar], name: str) -> Markup:
    """Horizontal rows on one axis from 0 to 100 %, each with its interval and marks."""
    parts: list[str] = []
    top = 4
    group = None
    for row in rows:
        if row.group and row.group != group:
            top += 18 if group is not None else 0
            heading = text(short(row.group, 40))
            parts.append(f'<text class="group" x="0" y="{top + 13}">{heading}</text>')
            top += 26
        group = row.group
        parts.append(_bar(row, top))
        top += 64 if _lane(row) else 48
    parts.append(_axis(top))
    return svg("bars", f'width="100%" height="{top + 24}"', name, _bars_said(rows), parts)


def legend_of(rows: Iterable[Bar]) -> list[tuple[str, Markup]]:
    """What each mark in these rows means, with its sign, in a fixed order."""
    used = {kind for row in rows for kind, _ in row.marks}
    return [(meaning, _swatch(kind)) for kind, meaning in MARKS.items() if kind in used]


def _swatch(kind: str) -> Markup:
    if kind in _SHAPES:
        shape = f'<path class="mark {kind}" transform="translate(8 8)" d="{_SHAPES[kind]}"/>'
    else:
        shape = f'<line class="mark {kind}" x1="8" x2="8" y1="1" y2="15"/>'
    return Markup(f'<svg class="swatch" width="16" height="16" aria-hidden="true">{shape}</svg>')


def _lane(row: Bar) -> bool:
    return any(kind in _SHAPES for kind, _ in row.marks)


def _bar(row: Bar, top: int) -> str:
    track = top + 20
    said = percent(row.value, 1)
    interval = span(row.low, row.high, 1)
    title = f"{row.label}: {said}" + (f", 95 % interval {interval}" if interval else "")
    parts = [
        f'<g class="row {row.tone}"><title>{text(title)}</title>',
        f'<text class="label" x="0" y="{top + 13}">{text(short(row.label, 26))}</text>',
        f'<text class="number" x="100%" y="{top + 13}" text-anchor="end"><tspan class="value">'
        f"{percent(row.value)}</tspan>{f' ({span(row.low, row.high)})' if interval else ''}</text>",
        f'<rect class="track" x="0" y="{track}" width="100%" height="14" rx="3"/>',
        *(
            f'<line class="cut" x1="{share}%" x2="{share}%" y1="{track}" y2="{track + 14}"/>'
            for share in (25, 50, 75)
        ),
    ]
    if row.start is not None:
        left, right = sorted((row.start, row.value))
        back = " back" if row.value < row.start else ""
        parts.append(
            f'<rect class="fill{back}" x="{_at(left)}" y="{track}" '
            f'width="{_at(right - left)}" height="14"/>'
        )
    parts += _whisker(row, track)
    if row.start is None:
        parts.append(f'<circle class="dot" cx="{_at(row.value)}" cy="{track + 7}" r="5"/>')
    parts += [_mark(kind, value, track) for kind, value in row.marks if known(value)]
    return "".join([*parts, "</g>"])


def _whisker(row: Bar, track: int) -> list[str]:
    if row.low is None or row.high is None or not (known(row.low) and known(row.high)):
        return []
    low, high, middle = _at(row.low), _at(row.high), track + 7
    lines = [(low, high, middle, middle)]
    lines += [(end, end, middle - 4, middle + 4) for end in (low, high)]
    # Each stroke twice: a pale casing keeps the whisker visible on a dark bar.
    return [
        f'<line class="{look}" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}"/>'
        for look in ("casing", "whisker")
        for x1, x2, y1, y2 in lines
    ]


def _mark(kind: str, value: float, track: int) -> str:
    title = f"<title>{MARKS[kind]}: {percent(value, 1)}</title>"
    if kind in _SHAPES:
        return (
            f'<svg x="{_at(value)}" y="{track + 22}" width="1" height="1" overflow="visible">'
            f'<path class="mark {kind}" d="{_SHAPES[kind]}">{title}</path></svg>'
        )
    place = f'x1="{_at(value)}" x2="{_at(value)}" y1="{track - 3}" y2="{track + 17}"'
    return f'<line class="casing" {place}/><line class="mark {kind}" {place}>{title}</line>'


def _axis(bottom: int) -> str:
    anchors = {0: "start", 25: "middle", 50: "middle", 75: "middle", 100: "end"}
    return "".join(
        f'<text class="tick" x="{share}%" y="{bottom + 14}" text-anchor="{anchor}">{share} %</text>'
        for share, anchor in anchors.items()
    )


def _bars_said(rows: Sequence[Bar]) -> str:
    said = []
    for row in rows:
        interval = span(row.low, row.high)
        marks = ", ".join(f"{MARKS[kind]} {percent(value)}" for kind, value in row.marks)
        name = f"{row.group}, {row.label}" if row.group else row.label
        said.append(
            f"{name}: {percent(row.value)}"
            + (f" (interval {interval})" if interval else "")
            + (f"; {marks}" if marks else "")
        )
    return ". ".join(said) + "."


def _at(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.2f}%"
