"""Rows of bars on one axis: values with interval, chance, references and ceiling.

Coordinates are percentages, so the picture keeps its text size from a phone to a printed page.
Colours are CSS classes; the page's variables decide them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from capelet.reports.draw.svg import short, svg, text, words
from capelet.reports.formatting import is_number, percent, span

# In the order of the legend: from what needs no vectors up to what nobody can exceed.
MARKS = {
    "chance": "chance",
    "majority": "always naming the commonest class",
    "most-frequent": "always naming the most frequent words",
    "predicted-label": "predicted task label alone",
    "tf-idf": "the text itself (TF-IDF)",
    "text-cnn": "the text itself (TextCNN)",
    "null": "shuffled labels (control)",
    "other-text": "paired with another text (control)",
    "ceiling": "ceiling of the guarantee, from one text",
}
# Height of a card's track, with room for the ends of an interval.
METER = 16
# Drawn below the bar, where they cover neither its end nor its interval; the others are lines.
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


def meter(
    value: float | None,
    base: float | None,
    low: float | None = None,
    high: float | None = None,
) -> Markup:
    """A thin track for a verdict's card: the gain from the base and its interval, 0 to 100 %."""
    if value is None or base is None:
        return Markup("")
    mark = _at(base)
    # For eyes only: the sentence below it says the same in words.
    return Markup(
        f'<svg class="meter" width="100%" height="{METER}" aria-hidden="true">'
        '<rect class="track" x="0" y="3" width="100%" height="10" rx="3"/>'
        f"{_fill(base, value, 3, 10)}{''.join(_whisker(low, high, METER // 2))}"
        f'<line class="mark chance" x1="{mark}" x2="{mark}" y1="0" y2="{METER}"/></svg>'
    )


def _fill(start: float, value: float, top: int, height: int) -> str:
    """The bar itself; pale where the value lies below what it begins at."""
    left, right = sorted((start, value))
    # A bar to the left of its start would else look like a gain.
    back = " back" if value < start else ""
    return (
        f'<rect class="fill{back}" x="{_at(left)}" y="{top}" '
        f'width="{_at(right - left)}" height="{height}"/>'
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
        # Room for a lane of marks only where there are some.
        top += 64 if any(kind in _SHAPES for kind, _ in row.marks) else 48
    parts.append(_axis(top))
    return svg("bars", f'width="100%" height="{top + 24}"', name, _description(rows), parts)


def marks_of(pairs: Iterable[tuple[str, float | None]]) -> tuple[tuple[str, float], ...]:
    """The marks whose value is known."""
    return tuple((kind, value) for kind, value in pairs if is_number(value))


def legend_of(rows: Iterable[Bar]) -> list[tuple[str, Markup]]:
    """What each mark in these rows means, with its sign, in a fixed order."""
    # Only what is drawn is explained.
    kinds = {kind for row in rows for kind, _ in row.marks}
    return [(meaning, _swatch(kind)) for kind, meaning in MARKS.items() if kind in kinds]


def _swatch(kind: str) -> Markup:
    if kind in _SHAPES:
        shape = f'<path class="mark {kind}" transform="translate(8 8)" d="{_SHAPES[kind]}"/>'
    else:
        shape = f'<line class="mark {kind}" x1="8" x2="8" y1="1" y2="15"/>'
    return Markup(f'<svg class="swatch" width="16" height="16" aria-hidden="true">{shape}</svg>')


def _bar(row: Bar, top: int) -> str:
    track = top + 20
    interval = span(row.low, row.high, 1)
    title = f"{row.label}: {percent(row.value, 1)}" + (
        f", 95 % interval {interval}" if interval else ""
    )
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
        parts.append(_fill(row.start, row.value, track, 14))
    parts += _whisker(row.low, row.high, track + 7)
    if row.start is None:
        parts.append(f'<circle class="dot" cx="{_at(row.value)}" cy="{track + 7}" r="5"/>')
    parts += [_mark(kind, value, track) for kind, value in row.marks if is_number(value)]
    return "".join([*parts, "</g>"])


def _whisker(low_end: float | None, high_end: float | None, middle: int) -> list[str]:
    if not (is_number(low_end) and is_number(high_end)):
        return []
    low, high = _at(low_end), _at(high_end)
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
            # A nested svg: a path has no coordinates in per cent, but its frame has.
            f'<svg x="{_at(value)}" y="{track + 22}" width="1" height="1" overflow="visible">'
            f'<path class="mark {kind}" d="{_SHAPES[kind]}">{title}</path></svg>'
        )
    place = f'x1="{_at(value)}" x2="{_at(value)}" y1="{track - 3}" y2="{track + 17}"'
    return f'<line class="casing" {place}/><line class="mark {kind}" {place}>{title}</line>'


def _axis(bottom: int) -> str:
    # The outer labels must not leave the picture.
    anchors = {0: "start", 25: "middle", 50: "middle", 75: "middle", 100: "end"}
    return "".join(
        words("tick", f"{share}%", bottom + 14, f"{share} %", anchor)
        for share, anchor in anchors.items()
    )


def _description(rows: Sequence[Bar]) -> str:
    sentences = []
    for row in rows:
        interval = span(row.low, row.high)
        marks = ", ".join(f"{MARKS[kind]} {percent(value)}" for kind, value in row.marks)
        name = f"{row.group}, {row.label}" if row.group else row.label
        sentences.append(
            f"{name}: {percent(row.value)}"
            + (f" (interval {interval})" if interval else "")
            + (f"; {marks}" if marks else "")
        )
    return ". ".join(sentences) + "."


def _at(share: float) -> str:
    # Clipped: an interval may leave the axis by rounding, a picture must not.
    return f"{100 * min(max(share, 0.0), 1.0):.2f}%"
