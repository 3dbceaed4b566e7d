"""Curves: how fast an attacker learns, and how exposure grows with repetition."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from markupsafe import Markup

from capelet.reports.draw.svg import Scale, rule, rung, scale, svg, text, words
from capelet.reports.formatting import is_number, percent, span


@dataclass(frozen=True)
class Curve:
    """Values over the number of labels, with the interval, chance and the full attack's value."""

    name: str
    labels: tuple[float, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    chance: float | None = None
    full: float | None = None

    @classmethod
    def read(cls, name: str, content: Mapping[str, Any], full: float | None = None) -> Curve | None:
        """The curve in an artefact, without the points that have no value; None if none is left."""
        columns = [content.get(key) or [] for key in ("labels_per_class", "value", "low", "high")]
        points = [item for item in zip_longest(*columns) if all(map(is_number, item[:2]))]
        if not points:
            return None
        # A band with holes would look like certainty there: all ends, or no band.
        has_band = all(is_number(end) for item in points for end in item[2:])
        labels, values, *band = zip(*points, strict=True)
        lows, highs = band if has_band else ((), ())
        chance = content.get("chance")
        return cls(name, labels, values, lows, highs, chance if is_number(chance) else None, full)


def reach_of(curves: Sequence[Curve]) -> tuple[float, float]:
    """How far below and above its chance a panel must reach, so that all panels share a scale."""
    offsets = [
        value - base
        for curve in curves
        for base in (curve.chance if curve.chance is not None else min(curve.values),)
        for value in (*curve.values, *curve.lows, *curve.highs, curve.full)
        if value is not None
    ]
    # At least five points below and fifteen above chance, or noise would fill the panel.
    return min(*offsets, -0.05) - 0.02, max(*offsets, 0.15) + 0.05


def curve_panel(curve: Curve, reach: tuple[float, float]) -> Markup:
    """One attribute's learning curve, 320 by 220, with its interval as a band."""
    base = curve.chance if curve.chance is not None else min(curve.values)
    height = (base + reach[0], base + reach[1])
    across, down = _across(curve.labels), scale(height, (174, 14))
    spots = [(across(n), down(v)) for n, v in zip(curve.labels, curve.values, strict=True)]
    parts = _frame(curve, height, across, down)
    if curve.lows:
        edge = [(across(n), down(v)) for n, v in zip(curve.labels, curve.highs, strict=True)]
        back = [(across(n), down(v)) for n, v in zip(curve.labels, curve.lows, strict=True)]
        parts.append(f'<polygon class="band" points="{_path([*edge, *reversed(back)])}"/>')
    parts.append(f'<polyline class="curve" points="{_path(spots)}"/>')
    for index, (number, value) in enumerate(zip(curve.labels, curve.values, strict=True)):
        interval = span(curve.lows[index], curve.highs[index], 1) if curve.lows else ""
        title = f"{number:g} labelled texts per class: {percent(value, 1)}"
        title += f", interval {interval}" if interval else ""
        x, y = spots[index]
        parts.append(
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{title}</title></circle>'
        )
    parts += _curve_numbers(curve, spots, down)
    description = ", ".join(
        f"{percent(v)} with {n:g}" for n, v in zip(curve.labels, curve.values, strict=True)
    )
    description += f"; chance {percent(curve.chance)}" if curve.chance is not None else ""
    name = f"Learning curve of {curve.name}"
    return svg("panel", 'viewBox="0 0 320 220"', name, f"{description}.", parts)


def _curve_numbers(curve: Curve, spots: Sequence[tuple[float, float]], down: Scale) -> list[str]:
    """First and last value are printed; those between are in the hover title and the table."""
    parts = []
    for i in sorted({0, len(spots) - 1}):
        x, y = spots[i]
        # The number moves below its point where it would stand on the line of the full attack,
        # unless the line of chance is there.
        near_full = curve.full is not None and 0 <= y - down(curve.full) < 26
        free = curve.chance is None or down(curve.chance) - y > 30
        place = y + 22 if near_full and free else y - 12
        parts.append(words("value", f"{x:.1f}", f"{place:.1f}", percent(curve.values[i])))
    return parts


def _frame(curve: Curve, height: tuple[float, float], across: Scale, down: Scale) -> list[str]:
    # At most about six rungs.
    step = 1 if height[1] - height[0] <= 0.5 else 2
    tenths = range(math.ceil(10 * height[0]), math.floor(10 * height[1]) + 1)
    parts = [
        rung(down(tenth / 10), f"{10 * tenth} %", (46, 314))
        for tenth in tenths
        if tenth % step == 0 and 0 <= tenth <= 10
    ]
    parts += _ticks(curve.labels, across, 26, 192)
    parts.append(words("axis", 180, 212, "labelled texts per class"))
    lines = (
        (curve.chance, "chance", "chance"),
        (curve.full, "full", "strongest attacker, all labels"),
    )
    return parts + [
        rule(kind, (46, 314), (down(value), down(value)), f"{meaning}: {percent(value, 1)}")
        for value, kind, meaning in lines
        if value is not None
    ]


def _across(labels: Sequence[float]) -> Scale:
    low, high = min(labels), max(labels)
    # Beyond a factor of twenty a linear axis would press the small numbers together.
    return scale((low, high), (68, 290), log=low > 0 and high / low > 20)


def _path(spots: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)


# ---- exposure of made-up secrets ----------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """One model's mean exposure for each number of repetitions."""

    name: str
    levels: tuple[int, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]


def exposure_curves(items: Sequence[Series], chance: float) -> Markup:
    """Bits of exposure over repetitions (log scale), 640 by 320, a line per model."""
    levels = sorted({level for item in items for level in item.levels})
    # Ten bits at least: chance alone has 1.4 and must not look high.
    top = max(10.0, *(value for item in items for value in item.highs)) * 1.05
    # One level alone has no width: the 1 keeps the division defined.
    across = scale((levels[0], max(levels[-1], levels[0] + 1)), (60, 620), log=True)
    down = scale((0, top), (270, 20))
    parts = _exposure_frame(levels, top, chance, across, down)
    for place, item in enumerate(items):
        aside = 2.5 * (place - (len(items) - 1) / 2)  # or intervals would hide each other
        parts += _line(item, place % 7 + 1, aside, across, down)
    description = "; ".join(
        f"{item.name}: "
        + ", ".join(f"{v:.1f} at {n}" for n, v in zip(item.levels, item.values, strict=True))
        for item in items
    )
    return svg("panel", 'viewBox="0 0 640 320"', "Exposure in bits", f"{description}.", parts)


def _line(item: Series, colour: int, aside: float, across: Scale, down: Scale) -> list[str]:
    pairs = zip(item.levels, item.values, strict=True)
    spots = _path((across(n) + aside, down(v)) for n, v in pairs)
    parts = [f'<polyline class="c-{colour}" style="fill:none;stroke-width:2" points="{spots}"/>']
    for n, v, low, high in zip(item.levels, item.values, item.lows, item.highs, strict=True):
        x = across(n) + aside
        title = text(f"{item.name}, {n} times: {v:.1f} bits")
        parts.append(
            f'<line class="c-{colour}" style="stroke-width:1" x1="{x:.1f}" x2="{x:.1f}" '
            f'y1="{down(low):.1f}" y2="{down(high):.1f}"><title>{title} '
            f"({low:.1f}–{high:.1f})</title></line>"
        )
    return parts


def _exposure_frame(
    levels: Sequence[int], top: float, chance: float, across: Scale, down: Scale
) -> list[str]:
    # At most seven rungs.
    step = next(size for size in (2, 5, 10, 20, 50) if top / size <= 7)
    return [
        *(rung(down(tick), str(tick), (60, 620)) for tick in range(0, int(top) + 1, step)),
        *_ticks(levels, across, 24, 290),
        words("axis", 340, 312, "times that the author repeated the secret"),
        rule("chance", (60, 620), (down(chance),) * 2, f"never inserted: {chance:.1f} bits"),
    ]


def _ticks(numbers: Sequence[float], across: Scale, gap: float, y: int) -> list[str]:
    """Labels under the axis; those that would run into their neighbour are left out."""
    parts = []
    last = -math.inf
    for number in numbers:
        x = across(number)
        if x - last >= gap:
            last = x
            parts.append(words("tick", f"{x:.1f}", y, f"{number:g}"))
    return parts
