"""Leakage against utility: every setting that was tried, and the one that was chosen.

Leakage is a gain over chance, so that attributes with unlike numbers of classes can be compared.
The numbers of a frontier are measured inside the defender's part, so that the choice has seen no
victim. The verdicts are measured on victims and are the ones to rely on; they may differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from capelet.findings import Findings
from capelet.reports.draw.svg import Scale, rule, rung, scale, short, svg, text, words
from capelet.reports.formatting import is_number, percent, points

# The edges of the plot in a picture of 480 by 330: axes and their words stand outside.
WEST, EAST, NORTH, SOUTH = 60.0, 454.0, 14.0, 276.0
NAMES = {"adversary_weight": "λ", "epsilon": "ε", "word_dropout": "μ"}


@dataclass(frozen=True)
class Point:
    """One setting: the gain over chance of who spies, and what the release is worth."""

    leakage: float
    utility: float
    settings: str
    choice: bool = False
    upper: float | None = None

    @property
    def bound(self) -> float:
        """What the leakage was shown to lie under; itself in findings without an interval."""
        return self.leakage if self.upper is None else self.upper


@dataclass(frozen=True)
class Frontier:
    """All points of a search, and the lines that they are read against."""

    points: tuple[Point, ...]
    baseline: tuple[float, float] | None
    ceiling: float | None
    demand: tuple[str, float] | None
    leakage: str
    utility: str
    utility_ceiling: float | None = None

    @property
    def choice(self) -> Point | None:
        return next((point for point in self.points if point.choice), None)

    @classmethod
    def read(cls, findings: Findings) -> Frontier | None:
        """The frontier among the artefacts; None where there is none, or none that can be drawn."""
        content = findings.artefacts.get("frontier")
        if not isinstance(content, Mapping):
            return None
        entries = [_point(entry) for entry in content.get("points") or []]
        points = tuple(point for point in entries if point is not None)
        if not points:
            return None
        return cls(
            points,
            _pair(content.get("unprotected")),
            _number(content.get("ceiling")),
            _demand(content.get("wanted")),
            str(content.get("leakage") or "leakage"),
            str(content.get("utility") or "utility"),
            _number(content.get("utility_ceiling")),
        )


def picture(frontier: Frontier) -> Markup:
    """Leakage across, utility upwards; the upper left corner is where one wants to be."""
    across = scale(_ends(frontier), (WEST, EAST))
    down = scale(_reach(frontier), (SOUTH, NORTH))
    parts = [
        *_grid(frontier, across, down),
        *_lines(frontier, across, down),
        *_edge(frontier, across, down),
    ]
    if frontier.baseline is not None:
        x, y = across(frontier.baseline[0]), down(frontier.baseline[1])
        title = f"unprotected: {both_values(Point(*frontier.baseline, ''))}"
        parts.append(
            f'<path class="mark tf-idf" transform="translate({x:.1f} {y:.1f})" '
            f'd="M0 -6L6 0L0 6L-6 0Z"><title>{text(title)}</title></path>'
        )
    # The chosen point last, on top of the others.
    for point in sorted(frontier.points, key=lambda item: item.choice):
        parts.append(_spot(point, across(point.leakage), down(point.utility)))
    description = "; ".join(
        f"{point.settings}{' (chosen)' if point.choice else ''}: {both_values(point)}"
        for point in frontier.points
    )
    return svg(
        "panel", 'viewBox="0 0 480 330"', "Leakage against utility", f"{description}.", parts
    )


def _spot(point: Point, x: float, y: float) -> str:
    title = f"<title>{text(f'{point.settings}: {both_values(point)}')}</title>"
    if not point.choice:
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'
    # Its words go towards the middle of the picture.
    side, shift = ("end", -12) if x > (WEST + EAST) / 2 else ("start", 12)
    height = y + 22 if y < NORTH + 30 else y - 10
    return (
        f'<circle class="whisker" cx="{x:.1f}" cy="{y:.1f}" r="9"/>'
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="5">{title}</circle>'
        + words("value", f"{x + shift:.1f}", f"{height:.1f}", text(short(point.settings, 30)), side)
    )


def _ends(frontier: Frontier) -> tuple[float, float]:
    """Leakage from chance (or the point below it) to all that is drawn, in steps of 5 points."""
    demand = dict([frontier.demand] if frontier.demand else [])
    more = (frontier.ceiling, demand.get("max_leakage"), (frontier.baseline or (None,))[0])
    values = [point.leakage for point in frontier.points]
    values += [value for value in more if value is not None]
    # Noise may put a point below chance, which must stay in the picture.
    return min(-0.01, *values) - 0.01, math.ceil(20 * max(0.1, *values) + 0.2) / 20


def _reach(frontier: Frontier) -> tuple[float, float]:
    """The part of the axis of utility that is used, to the next tenth."""
    values = [point.utility for point in frontier.points]
    values += [frontier.baseline[1]] if frontier.baseline else []
    values += [frontier.utility_ceiling] if frontier.utility_ceiling is not None else []
    if frontier.demand is not None and frontier.demand[0] == "min_utility":
        values.append(frontier.demand[1])
    low = math.floor(10 * min(values) - 0.2) / 10
    # A fifth of a tenth more, so that no point lies on the frame.
    high = math.ceil(10 * max(values) + 0.2) / 10
    return max(0.0, low), min(1.0, high) if high > low else low + 0.1


def _grid(frontier: Frontier, across: Scale, down: Scale) -> list[str]:
    low, high = _reach(frontier)
    parts = [
        rung(down(tenth / 10), f"{10 * tenth} %", (WEST, EAST))
        for tenth in range(round(10 * low), round(10 * high) + 1)
    ]
    right = _ends(frontier)[1]
    # At most seven labels.
    step = 5 if right < 0.31 else 10
    for number in range(0, math.floor(100 * right + 1e-6) + 1, step):
        x = f"{across(number / 100):.1f}"
        parts.append(words("tick", x, f"{SOUTH + 18:g}", str(number)))
    middle, below = f"{(WEST + EAST) / 2:g}", f"{SOUTH + 42:g}"
    parts.append(
        words("axis", middle, below, "leakage: points over chance →")
        + f'<text class="axis" x="12" y="{(NORTH + SOUTH) / 2:g}" text-anchor="middle" '
        f'transform="rotate(-90 12 {(NORTH + SOUTH) / 2:g})">utility →</text>'
    )
    return parts


def _lines(frontier: Frontier, across: Scale, down: Scale) -> list[str]:
    """Chance, the ceiling, what is unprotected, and what was asked for."""
    bare = frontier.baseline or (None, None)
    demand = dict([frontier.demand] if frontier.demand else [])
    upright = (
        ("chance", "chance", 0.0),
        ("ceiling", "most leakage from one text at this ε", frontier.ceiling),
        ("full", "leakage without protection", bare[0]),
        ("wanted", "most leakage asked for", demand.get("max_leakage")),
    )
    level = (
        ("ceiling", "most utility from one text at this ε", frontier.utility_ceiling),
        ("full", "utility without protection", bare[1]),
        ("wanted", "least utility asked for", demand.get("min_utility")),
    )
    parts = [
        rule(kind, (across(value),) * 2, (NORTH, SOUTH), f"{meaning}: {points(value, 1)}")
        for kind, meaning, value in upright
        if value is not None
    ]
    return parts + [
        rule(kind, (WEST, EAST), (down(value),) * 2, f"{meaning}: {percent(value, 1)}")
        for kind, meaning, value in level
        if value is not None
    ]


def _edge(frontier: Frontier, across: Scale, down: Scale) -> list[str]:
    """The frontier itself: the points that no other point beats in both, joined by steps."""
    edge = best_of(frontier.points)
    spots: list[str] = []
    for before, point in zip([None, *edge], edge, strict=False):
        if before is not None:
            # Steps, not slopes: between two settings nothing was measured.
            spots.append(f"{across(point.leakage):.1f},{down(before.utility):.1f}")
        spots.append(f"{across(point.leakage):.1f},{down(point.utility):.1f}")
    return [f'<polyline class="curve" points="{" ".join(spots)}"/>'] if len(edge) > 1 else []


def best_of(candidates: Sequence[Point]) -> list[Point]:
    """The points that no other beats in both, the least leaking first.

    >>> one, two, worse = Point(0.5, 0.7, "a"), Point(0.6, 0.8, "b"), Point(0.6, 0.7, "c")
    >>> [point.settings for point in best_of([worse, two, one])]
    ['a', 'b']
    """
    edge: list[Point] = []
    for point in sorted(candidates, key=lambda item: (item.leakage, -item.utility)):
        # Sorted by leakage, so a point is beaten unless it is more useful than all before it.
        if not edge or point.utility > edge[-1].utility:
            edge.append(point)
    return edge


def legend(frontier: Frontier) -> list[tuple[str, str]]:
    """Kind and meaning of each line in the picture, in a fixed order."""
    ceilings = frontier.ceiling if frontier.utility_ceiling is None else frontier.utility_ceiling
    kinds = (
        ("chance", "chance", 0.0),
        ("ceiling", "ceiling of ε: nobody can go beyond it from one text", ceilings),
        ("full", "without protection", frontier.baseline),
        ("wanted", "what was asked for", frontier.demand),
    )
    return [(kind, meaning) for kind, meaning, value in kinds if value is not None]


def settings_of(settings: Mapping[str, Any]) -> str:
    """`λ = 1, ε = 8`.

    >>> settings_of({"adversary_weight": 1.0, "epsilon": 8.0, "mechanism": "auto"})
    'λ = 1, ε = 8, mechanism = auto'
    """
    return ", ".join(
        f"{NAMES.get(name, name)} = {f'{value:.3g}' if isinstance(value, float) else value}"
        for name, value in settings.items()
        if value is not None
    )


def both_values(point: Point) -> str:
    """Leakage and utility of a setting, in words."""
    room = f" (at most {points(point.upper, 1)})" if point.upper is not None else ""
    return f"leakage {points(point.leakage, 1)}{room}, utility {percent(point.utility, 1)}"


def _point(entry: Any) -> Point | None:
    pair = _pair(entry)
    if pair is None:
        return None
    settings = settings_of(entry.get("settings") or {}) or "its own settings"
    return Point(*pair, settings, bool(entry.get("chosen")), _number(entry.get("upper")))


def _pair(entry: Any) -> tuple[float, float] | None:
    if not isinstance(entry, Mapping):
        return None
    leakage, utility = _number(entry.get("leakage")), _number(entry.get("utility"))
    return None if leakage is None or utility is None else (leakage, utility)


def _demand(entry: Any) -> tuple[str, float] | None:
    content = dict(entry) if isinstance(entry, Mapping) else {}
    pairs = [(name, _number(content.get(name))) for name in ("max_leakage", "min_utility")]
    return next(((name, value) for name, value in pairs if value is not None), None)


def _number(value: Any) -> float | None:
    # JSON's true is a number to Python.
    number = isinstance(value, int | float) and not isinstance(value, bool) and is_number(value)
    return float(value) if number else None
