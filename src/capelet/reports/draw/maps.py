"""Clouds of points coloured by class: the vectors as a map in two dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from capelet.reports.draw.svg import svg
from capelet.reports.formatting import is_number

# More could hardly be told apart, least of all on paper.
MOST_COLOURS = 7


@dataclass(frozen=True)
class Key:
    """One line of a cloud's legend: a class, how many points, and the number of its colour."""

    name: str
    points: int
    colour: str


@dataclass(frozen=True)
class Cloud:
    """Points in the plane, each with its class or None, under the name of what colours them."""

    name: str
    spots: tuple[tuple[float, float], ...]
    groups: tuple[str | None, ...]
    title: str = ""

    @classmethod
    def read(
        cls, name: str, points: Iterable[Any], classes: Iterable[Any], title: str = ""
    ) -> Cloud | None:
        """The points of an artefact that have two coordinates; None where there are none."""
        pairs = [
            ((spot[0], spot[1]), None if group is None else str(group))
            # An artefact of another version may have more points than classes.
            for spot, group in zip(points, classes, strict=False)
            if len(spot) == 2 and is_number(spot[0]) and is_number(spot[1])
        ]
        if not pairs:
            return None
        spots, groups = zip(*pairs, strict=True)
        return cls(name, spots, groups, title or name)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The classes in alphabetic order of colour, so that a colour does not depend on chance."""
        sizes = Counter(group for group in self.groups if group is not None)
        common = [group for group, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))]
        # By name, so that a class has the same colour in the maps of two runs.
        names = sorted(common[:MOST_COLOURS])
        keys = [Key(group, sizes[group], str(i + 1)) for i, group in enumerate(names)]
        if rest := common[MOST_COLOURS:]:
            total = sum(sizes[group] for group in rest)
            keys.append(Key(f"{len(rest)} rarer classes", total, "other"))
        if missing := self.groups.count(None):
            keys.append(Key("unknown", missing, "missing"))
        return tuple(keys)


def cloud_panel(cloud: Cloud) -> Markup:
    """The points in 320 by 300, one colour per class; the rarest classes share one grey."""
    keys = cloud.keys
    colour_of = {key.name: key.colour for key in keys}
    place = _place(cloud.spots)
    dots: dict[str, list[str]] = {}
    for spot, group in zip(cloud.spots, cloud.groups, strict=True):
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
    numbers = ", ".join(f"{key.name} {key.points}" for key in keys)
    label = f"t-SNE of the vectors coloured by {cloud.name}"
    return svg("panel cloud", 'viewBox="0 0 320 300"', label, f"Points: {numbers}.", parts)


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
