"""Small panels for a grid: learning curves, and clouds of points coloured by attribute."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from capelet.reports.svg import svg
from capelet.reports.words import known, percent, span

MOST_COLOURS = 7


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
        labels, values = content.get("labels_per_class") or [], content.get("value") or []
        shared = min(len(labels), len(values))
        lows = content.get("low") or []
        highs = content.get("high") or []
        keep = [i for i in range(shared) if known(values[i]) and known(labels[i])]
        banded = all(
            i < min(len(lows), len(highs)) and known(lows[i]) and known(highs[i]) for i in keep
        )
        if not keep:
            return None
        return cls(
            name,
            tuple(labels[i] for i in keep),
            tuple(values[i] for i in keep),
            tuple(lows[i] for i in keep) if banded else (),
            tuple(highs[i] for i in keep) if banded else (),
            content.get("chance") if known(content.get("chance")) else None,
            full,
        )


def reach_of(curves: Sequence[Curve]) -> tuple[float, float]:
    """How far below and above its chance a panel must reach, so that all panels share a scale."""
    offsets = [
        value - base
        for curve in curves
        for base in (curve.chance if curve.chance is not None else min(curve.values),)
        for value in (*curve.values, *curve.lows, *curve.highs, curve.full)
        if value is not None
    ]
    return min(*offsets, -0.05) - 0.02, max(*offsets, 0.15) + 0.05


def curve_panel(curve: Curve, reach: tuple[float, float]) -> Markup:
    """One attribute's learning curve, 320 by 220, with its interval as a band."""
    base = curve.chance if curve.chance is not None else min(curve.values)
    height = (base + reach[0], base + reach[1])
    across, down = _across(curve.labels), _down(height)
    spots = [(across(n), down(v)) for n, v in zip(curve.labels, curve.values, strict=True)]
    parts = _frame(curve, height)
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
    said = ", ".join(
        f"{percent(v)} with {n:g}" for n, v in zip(curve.labels, curve.values, strict=True)
    )
    said += f"; chance {percent(curve.chance)}" if curve.chance is not None else ""
    name = f"Learning curve of {curve.name}"
    return svg("panel", 'viewBox="0 0 320 220"', name, f"{said}.", parts)


def _curve_numbers(
    curve: Curve, spots: Sequence[tuple[float, float]], down: Callable[[float], float]
) -> list[str]:
    """First and last value are printed; those between are in the hover title and the table."""
    parts = []
    for i in sorted({0, len(spots) - 1}):
        x, y = spots[i]
        crowded = curve.full is not None and 0 <= y - down(curve.full) < 26
        free = curve.chance is None or down(curve.chance) - y > 30
        place = y + 22 if crowded and free else y - 12
        parts.append(
            f'<text class="value" x="{x:.1f}" y="{place:.1f}" text-anchor="middle">'
            f"{percent(curve.values[i])}</text>"
        )
    return parts


def _frame(curve: Curve, height: tuple[float, float]) -> list[str]:
    down, across = _down(height), _across(curve.labels)
    step = 1 if height[1] - height[0] <= 0.5 else 2
    parts = []
    for tenth in range(math.ceil(10 * height[0]), math.floor(10 * height[1]) + 1):
        if tenth % step or not 0 <= tenth <= 10:
            continue
        y = down(tenth / 10)
        parts.append(
            f'<line class="grid" x1="46" x2="314" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="40" y="{y + 4:.1f}" text-anchor="end">{10 * tenth} %</text>'
        )
    last = -math.inf
    for number in curve.labels:
        x = across(number)
        if x - last >= 26:
            last = x
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="192" text-anchor="middle">{number:g}</text>'
            )
    parts.append(
        '<text class="axis" x="180" y="212" text-anchor="middle">labelled texts per class</text>'
    )
    lines = (
        (curve.chance, "chance", "chance"),
        (curve.full, "full", "strongest attacker, all labels"),
    )
    for value, kind, meaning in lines:
        if value is not None:
            y = down(value)
            parts.append(
                f'<line class="mark {kind}" x1="46" x2="314" y1="{y:.1f}" y2="{y:.1f}">'
                f"<title>{meaning}: {percent(value, 1)}</title></line>"
            )
    return parts


def _across(labels: Sequence[float]) -> Callable[[float], float]:
    low, high = min(labels), max(labels)
    if low <= 0 or high / low <= 20:
        wide = (high - low) or 1
        return lambda number: 68 + 222 * (number - low) / wide
    return lambda number: 68 + 222 * math.log(number / low) / math.log(high / low)


def _down(height: tuple[float, float]) -> Callable[[float], float]:
    low, high = height
    return lambda value: 174 - 160 * (value - low) / (high - low)


def _path(spots: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)


@dataclass(frozen=True)
class Key:
    """One line of a cloud's legend: a class, how many points, and the number of its colour."""

    name: str
    points: int
    colour: str


@dataclass(frozen=True)
class Cloud:
    """The points coloured by one attribute, and the legend that goes with them."""

    name: str
    picture: Markup
    keys: tuple[Key, ...]


def cloud_panel(name: str, points: Sequence[Any], classes: Sequence[Any]) -> Cloud | None:
    """The points in 320 by 300, one colour per class; the rarest classes share one grey."""
    pairs = [
        (spot, None if group is None else str(group))
        for spot, group in zip(points, classes, strict=False)
        if len(spot) == 2 and known(spot[0]) and known(spot[1])
    ]
    if not pairs:
        return None
    keys = _keys([group for _, group in pairs])
    colour_of = {key.name: key.colour for key in keys}
    place = _place([spot for spot, _ in pairs])
    dots: dict[str, list[str]] = {}
    for spot, group in pairs:
        # A stroke of almost no length is a dot; one of length 0 is lost in print.
        colour = "missing" if group is None else colour_of.get(group, "other")
        x, y = place(spot)
        dots.setdefault(colour, []).append(f"M{x:.0f} {y:.0f}h.1")
    # Missing and rare classes go below; within the rest the commonest is drawn first.
    order = sorted(keys, key=lambda key: (key.colour.isdigit(), -key.points))
    parts = [
        f'<path class="points c-{key.colour}" d="{"".join(dots[key.colour])}"/>'
        for key in order
        if key.colour in dots
    ]
    said = ", ".join(f"{key.name} {key.points}" for key in keys)
    label = f"t-SNE of the vectors coloured by {name}"
    picture = svg("panel cloud", 'viewBox="0 0 320 300"', label, f"Points: {said}.", parts)
    return Cloud(name, picture, keys)


def _keys(groups: Sequence[str | None]) -> tuple[Key, ...]:
    """The classes in alphabetic order of colour, so that a colour does not depend on the draw."""
    sizes = Counter(group for group in groups if group is not None)
    common = [group for group, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))]
    named = sorted(common[:MOST_COLOURS])
    keys = [Key(group, sizes[group], str(i + 1)) for i, group in enumerate(named)]
    rest = common[MOST_COLOURS:]
    if rest:
        total = sum(sizes[group] for group in rest)
        keys.append(Key(f"{len(rest)} rarer classes", total, "other"))
    missing = sum(group is None for group in groups)
    if missing:
        keys.append(Key("unknown", missing, "missing"))
    return tuple(keys)


def _place(spots: Sequence[Any]) -> Callable[[Any], tuple[float, float]]:
    """Both axes on one scale: distances in the picture are distances of the map."""
    xs, ys = [spot[0] for spot in spots], [spot[1] for spot in spots]
    wide = max(max(xs) - min(xs), 1e-9)
    tall = max(max(ys) - min(ys), 1e-9)
    scale = min(304 / wide, 284 / tall)
    middle = ((max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2)
    return lambda spot: (
        160 + scale * (spot[0] - middle[0]),
        150 - scale * (spot[1] - middle[1]),
    )
