"""Small pictures for the cards: panels of lines side by side, as one SVG file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape

import numpy as np

COLOURS = ("#9ca3af", "#d97706", "#2563eb", "#059669", "#7c3aed")
WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 220, 52, 34, 46


@dataclass(frozen=True)
class Panel:
    """Lines through points (x, y), by name; `marks` are levels to compare with, by name."""

    title: str
    across: str
    up: str
    lines: dict[str, list[tuple[float, float]]]
    marks: dict[str, float] = field(default_factory=dict)


def draw_panels(panels: list[Panel]) -> str:
    """All panels in a row, the names of the lines beneath."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    wide = len(panels) * (WIDTH + LEFT + GAP)
    tall = TOP + HEIGHT + 74
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" '
        f'font-family="sans-serif" font-size="12" fill="#374151" role="img" '
        f'aria-label="{escape("; ".join(panel.title for panel in panels))}">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for place, panel in enumerate(panels):
        parts += _panel(panel, place * (WIDTH + LEFT + GAP) + LEFT, colours)
    at = LEFT
    for name in names:
        parts.append(f'<circle cx="{at + 5}" cy="{tall - 14}" r="4" fill="{colours[name]}"/>')
        parts.append(f'<text x="{at + 14}" y="{tall - 10}">{escape(name)}</text>')
        at += 34 + 7 * len(name)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, left: float, colours: dict[str, str]) -> list[str]:
    points = np.array([point for line in panel.lines.values() for point in line])
    levels = [*points[:, 1], *panel.marks.values()]
    across, ticks_across = _scale(points[:, 0].min(), points[:, 0].max(), left, left + WIDTH)
    up, ticks_up = _scale(min(levels), max(levels), TOP + HEIGHT, TOP)
    middle, right = left + WIDTH / 2, left + WIDTH
    parts = [
        f'<text x="{left}" y="{TOP - 16}" font-weight="bold">{escape(panel.title)}</text>',
        f'<text x="{middle:.0f}" y="{TOP + HEIGHT + 34}" text-anchor="middle">'
        f"{escape(panel.across)}</text>",
        f'<text transform="translate({left - 40:.0f} {TOP + HEIGHT / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(panel.up)}</text>',
    ]
    for tick in ticks_up:
        y = up(tick)
        parts.append(f'<path d="M{left} {y:.1f}H{right}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in ticks_across:
        x = across(tick)
        parts.append(
            f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{tick:g}</text>'
        )
    for name, level in panel.marks.items():
        y = up(level)
        parts.append(
            f'<path d="M{left} {y:.1f}H{right}" stroke="#374151" stroke-dasharray="4 3"/>'
            f'<text x="{middle:.0f}" y="{y - 4:.1f}" text-anchor="middle">{escape(name)}</text>'
        )
    for name, line in panel.lines.items():
        where = [(across(x), up(y)) for x, y in sorted(line)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
        colour = colours[name]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in where]
    return parts


def _scale(
    low: float, high: float, first: float, last: float
) -> tuple[Callable[[float], float], list[float]]:
    """Where a value lies, and some four round values to write beside the axis."""
    room = 0.06 * (high - low or 1.0)
    low, high = low - room, high + room
    raw = (high - low) / 4
    unit = 10 ** np.floor(np.log10(raw))
    step = unit * min((1, 2, 2.5, 5, 10), key=lambda factor: abs(factor * unit - raw))
    ticks = [
        round(float(tick), 6) + 0.0 for tick in np.arange(np.ceil(low / step), high / step) * step
    ]
    return (lambda value: first + (value - low) / (high - low) * (last - first)), ticks
