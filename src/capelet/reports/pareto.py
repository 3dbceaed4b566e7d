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
from capelet.reports.svg import short, svg, text
from capelet.reports.tables import Line, Table
from capelet.reports.words import NOTHING, known, percent, points

LEFT, RIGHT, TOP, BOTTOM = 60.0, 454.0, 14.0, 276.0
NAMES = {"lam": "λ", "lambda": "λ", "epsilon": "ε", "mu": "μ"}


@dataclass(frozen=True)
class Point:
    """One setting: the gain over chance of who spies, and what the release is worth."""

    leakage: float
    utility: float
    settings: str
    chosen: bool = False


@dataclass(frozen=True)
class Frontier:
    """All points of a search, and the lines that they are read against."""

    points: tuple[Point, ...]
    unprotected: tuple[float, float] | None
    ceiling: float | None
    wanted: tuple[str, float] | None
    leakage: str
    utility: str

    @property
    def chosen(self) -> Point | None:
        return next((point for point in self.points if point.chosen), None)

    @classmethod
    def read(cls, findings: Findings) -> Frontier | None:
        """The frontier among the artefacts; None where there is none, or none that can be drawn."""
        content = findings.artefacts.get("frontier")
        if not isinstance(content, Mapping):
            return None
        made = [_point(entry) for entry in content.get("points") or []]
        found = tuple(point for point in made if point is not None)
        if not found:
            return None
        return cls(
            found,
            _pair(content.get("unprotected")),
            _number(content.get("ceiling")),
            _wanted(content.get("wanted")),
            str(content.get("leakage") or "leakage"),
            str(content.get("utility") or "utility"),
        )


def sentences(frontier: Frontier) -> list[str]:
    """What was asked for, what was chosen, and how near it came where nothing is good enough."""
    said = [
        f"{len(frontier.points)} settings were tried. Leakage is the {_of(frontier.leakage)}; "
        f"utility is the {_of(frontier.utility)}. Both are measured inside the defender’s part, "
        "so that the choice has seen no victim."
    ]
    chosen = frontier.chosen
    if frontier.wanted is not None:
        said.append(_answer(frontier, *frontier.wanted))
    elif chosen is not None:
        said.append(f"The chosen setting ({chosen.settings}): {_both(chosen)}.")
    return said


def _answer(frontier: Frontier, kind: str, limit: float) -> str:
    leak = kind == "max_leakage"
    asked = f"a leakage of at most {points(limit, 1)}" if leak else ""
    asked = asked or f"a utility of at least {percent(limit, 1)}"
    chosen = frontier.chosen
    met = [p for p in frontier.points if (p.leakage <= limit if leak else p.utility >= limit)]
    if met and chosen is not None:
        number = "One of the settings reaches" if len(met) == 1 else f"{len(met)} settings reach"
        return f"Asked for: {asked}. {number} it; chosen was {chosen.settings}: {_both(chosen)}."
    by_leak, by_use = (lambda p: p.leakage), (lambda p: -p.utility)
    nearest = min(frontier.points, key=by_leak if leak else by_use)
    gap = abs((nearest.leakage if leak else nearest.utility) - limit)
    reached = "No setting" if not met else "No chosen setting"
    return (
        f"Asked for: {asked}. {reached} reaches it. The nearest ({nearest.settings}) misses it by "
        f"{points(gap, 1)}: {_both(nearest)}."
    )


def table(frontier: Frontier) -> Table:
    """All points, the least leaking first."""
    ordered = sorted(frontier.points, key=lambda point: (point.leakage, -point.utility))
    lines = [
        Line(
            (
                point.settings + (" (chosen)" if point.chosen else ""),
                points(point.leakage, 1),
                percent(point.utility, 1),
            ),
            "strong" if point.chosen else "",
        )
        for point in ordered
    ]
    if frontier.unprotected is not None:
        leakage, utility = frontier.unprotected
        cells = ("unprotected", points(leakage, 1), percent(utility, 1))
        lines.append(Line(cells, "control"))
    if frontier.ceiling is not None:
        lines.append(Line(("ceiling of ε", points(frontier.ceiling, 1), NOTHING), "control"))
    note = f"Leakage: {frontier.leakage}. Utility: {frontier.utility}."
    return Table("Every setting that was tried", _COLUMNS, tuple(lines), note)


_COLUMNS = ("setting", "leakage", "utility")


def picture(frontier: Frontier) -> Markup:
    """Leakage across, utility upwards; the upper left corner is where one wants to be."""
    across, down = _scales(frontier)
    parts = [*_grid(frontier), *_lines(frontier), *_edge(frontier)]
    if frontier.unprotected is not None:
        x, y = across(frontier.unprotected[0]), down(frontier.unprotected[1])
        title = f"unprotected: {_both(Point(*frontier.unprotected, ''))}"
        parts.append(
            f'<path class="mark tf-idf" transform="translate({x:.1f} {y:.1f})" '
            f'd="M0 -6L6 0L0 6L-6 0Z"><title>{text(title)}</title></path>'
        )
    for point in sorted(frontier.points, key=lambda item: item.chosen):
        parts.append(_spot(point, across(point.leakage), down(point.utility)))
    said = "; ".join(
        f"{point.settings}{' (chosen)' if point.chosen else ''}: {_both(point)}"
        for point in frontier.points
    )
    return svg("panel", 'viewBox="0 0 480 330"', "Leakage against utility", f"{said}.", parts)


def _spot(point: Point, x: float, y: float) -> str:
    title = f"<title>{text(f'{point.settings}: {_both(point)}')}</title>"
    if not point.chosen:
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'
    side, shift = ("end", -12) if x > (LEFT + RIGHT) / 2 else ("start", 12)
    height = y + 22 if y < TOP + 30 else y - 10
    return (
        f'<circle class="whisker" cx="{x:.1f}" cy="{y:.1f}" r="9"/>'
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="5">{title}</circle>'
        f'<text class="value" x="{x + shift:.1f}" y="{height:.1f}" text-anchor="{side}">'
        f"{text(short(point.settings, 30))}</text>"
    )


def _scales(frontier: Frontier) -> tuple[Any, Any]:
    low, high = _reach(frontier)
    left, right = _ends(frontier)

    def across(leakage: float) -> float:
        return LEFT + (RIGHT - LEFT) * (leakage - left) / (right - left)

    def down(utility: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (utility - low) / (high - low)

    return across, down


def _ends(frontier: Frontier) -> tuple[float, float]:
    """Leakage from chance (or the point below it) to all that is drawn, in steps of 5 points."""
    wanted = dict([frontier.wanted] if frontier.wanted else [])
    more = (frontier.ceiling, wanted.get("max_leakage"), (frontier.unprotected or (None,))[0])
    values = [point.leakage for point in frontier.points]
    values += [value for value in more if value is not None]
    return min(-0.01, *values) - 0.01, math.ceil(20 * max(0.1, *values) + 0.2) / 20


def _reach(frontier: Frontier) -> tuple[float, float]:
    """The part of the axis of utility that is used, to the next tenth."""
    values = [point.utility for point in frontier.points]
    values += [frontier.unprotected[1]] if frontier.unprotected else []
    if frontier.wanted is not None and frontier.wanted[0] == "min_utility":
        values.append(frontier.wanted[1])
    low = math.floor(10 * min(values) - 0.2) / 10
    high = math.ceil(10 * max(values) + 0.2) / 10
    return max(0.0, low), min(1.0, high) if high > low else low + 0.1


def _grid(frontier: Frontier) -> list[str]:
    across, down = _scales(frontier)
    low, high = _reach(frontier)
    parts = []
    for tenth in range(round(10 * low), round(10 * high) + 1):
        y = down(tenth / 10)
        parts.append(
            f'<line class="grid" x1="{LEFT:g}" x2="{RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">'
            f"{10 * tenth} %</text>"
        )
    right = _ends(frontier)[1]
    step = 5 if right < 0.31 else 10
    for number in range(0, math.floor(100 * right + 1e-6) + 1, step):
        x = across(number / 100)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{BOTTOM + 18:g}" text-anchor="middle">'
            f"{number}</text>"
        )
    parts.append(
        f'<text class="axis" x="{(LEFT + RIGHT) / 2:g}" y="{BOTTOM + 42:g}" text-anchor="middle">'
        "leakage: points over chance →</text>"
        f'<text class="axis" x="12" y="{(TOP + BOTTOM) / 2:g}" text-anchor="middle" '
        f'transform="rotate(-90 12 {(TOP + BOTTOM) / 2:g})">utility →</text>'
    )
    return parts


def _lines(frontier: Frontier) -> list[str]:
    """Chance, the ceiling, what is unprotected, and what was asked for."""
    across, down = _scales(frontier)
    bare = frontier.unprotected or (None, None)
    wanted = dict([frontier.wanted] if frontier.wanted else [])
    upright = (
        ("chance", "chance", 0.0),
        ("ceiling", "ceiling of ε", frontier.ceiling),
        ("full", "leakage without protection", bare[0]),
        ("wanted", "most leakage asked for", wanted.get("max_leakage")),
    )
    level = (
        ("full", "utility without protection", bare[1]),
        ("wanted", "least utility asked for", wanted.get("min_utility")),
    )
    parts = []
    for kind, meaning, value in upright:
        if value is not None:
            place = f'x1="{across(value):.1f}" x2="{across(value):.1f}"'
            said = f"{meaning}: {points(value, 1)}"
            parts.append(_line(kind, f'{place} y1="{TOP:g}" y2="{BOTTOM:g}"', said))
    for kind, meaning, value in level:
        if value is not None:
            place = f'y1="{down(value):.1f}" y2="{down(value):.1f}"'
            said = f"{meaning}: {percent(value, 1)}"
            parts.append(_line(kind, f'{place} x1="{LEFT:g}" x2="{RIGHT:g}"', said))
    return parts


def _line(kind: str, place: str, said: str) -> str:
    return f'<line class="mark {kind}" {place}><title>{said}</title></line>'


def _edge(frontier: Frontier) -> list[str]:
    """The frontier itself: the points that no other point beats in both, joined by steps."""
    across, down = _scales(frontier)
    kept = best_of(frontier.points)
    spots: list[str] = []
    for before, point in zip([None, *kept], kept, strict=False):
        if before is not None:
            spots.append(f"{across(point.leakage):.1f},{down(before.utility):.1f}")
        spots.append(f"{across(point.leakage):.1f},{down(point.utility):.1f}")
    return [f'<polyline class="curve" points="{" ".join(spots)}"/>'] if len(kept) > 1 else []


def best_of(tried: Sequence[Point]) -> list[Point]:
    """The points that no other beats in both, the least leaking first.

    >>> one, two, worse = Point(0.5, 0.7, "a"), Point(0.6, 0.8, "b"), Point(0.6, 0.7, "c")
    >>> [point.settings for point in best_of([worse, two, one])]
    ['a', 'b']
    """
    kept: list[Point] = []
    for point in sorted(tried, key=lambda item: (item.leakage, -item.utility)):
        if not kept or point.utility > kept[-1].utility:
            kept.append(point)
    return kept


def legend(frontier: Frontier) -> list[tuple[str, str]]:
    """Kind and meaning of each line in the picture, in a fixed order."""
    kinds = (
        ("chance", "chance", 0.0),
        ("ceiling", "ceiling of ε: nobody can go beyond", frontier.ceiling),
        ("full", "without protection", frontier.unprotected),
        ("wanted", "what was asked for", frontier.wanted),
    )
    return [(kind, meaning) for kind, meaning, value in kinds if value is not None]


def settings_of(settings: Mapping[str, Any]) -> str:
    """`λ = 1, ε = 8`.

    >>> settings_of({"lam": 1.0, "epsilon": 8.0, "mechanism": "auto"})
    'λ = 1, ε = 8, mechanism = auto'
    """
    return ", ".join(
        f"{NAMES.get(name, name)} = {f'{value:.3g}' if isinstance(value, float) else value}"
        for name, value in settings.items()
        if value is not None
    )


def _both(point: Point) -> str:
    return f"leakage {points(point.leakage, 1)}, utility {percent(point.utility, 1)}"


def _of(words: str) -> str:
    return words.strip().rstrip(".") or "score"


def _point(entry: Any) -> Point | None:
    pair = _pair(entry)
    if pair is None:
        return None
    said = settings_of(entry.get("settings") or {}) or "its own settings"
    return Point(*pair, said, bool(entry.get("chosen")))


def _pair(entry: Any) -> tuple[float, float] | None:
    if not isinstance(entry, Mapping):
        return None
    leakage, utility = _number(entry.get("leakage")), _number(entry.get("utility"))
    return None if leakage is None or utility is None else (leakage, utility)


def _wanted(entry: Any) -> tuple[str, float] | None:
    found = dict(entry) if isinstance(entry, Mapping) else {}
    pairs = [(name, _number(found.get(name))) for name in ("max_leakage", "min_utility")]
    return next(((name, value) for name, value in pairs if value is not None), None)


def _number(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and known(value)
    return float(value) if number else None
