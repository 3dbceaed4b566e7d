"""The frame of every picture: inline SVG that follows light, dark and print, and needs no script.

A picture has a name and a description for readers who listen, and its marks have hover titles. All
user text passes through `text`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any

from markupsafe import Markup, escape

Scale = Callable[[float], float]
# Around a picture that is a file: a dot at 0 % and its casing need 7.
MARGIN, WIDTH = 16, 640
_PAGE_WIDTH = "svg.panel { width: 100%; height: auto; }"


def svg(look: str, size: str, name: str, description: str, parts: Iterable[str]) -> Markup:
    """An `<svg>` with the class `look` whose accessible name says all that it shows."""
    # aria-label instead of <title>: a title on the whole picture would hide those of its marks.
    label = text(f"{name}. {description}")
    return Markup(
        f'<svg class="{look}" {size} role="img" aria-label="{label}">{"".join(parts)}</svg>'
    )


def text(content: Any) -> Markup:
    """User text made safe for XML: escaped, without control characters."""
    clean = "".join(sign for sign in str(content) if sign.isprintable())
    return escape(clean)


def short(content: Any, most: int) -> str:
    """The text, cut with an ellipsis where it would run into its neighbour.

    >>> short("a very long attribute name", 12)
    'a very long…'
    """
    words = str(content)
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def scale(ends: tuple[float, float], edges: tuple[float, float], log: bool = False) -> Scale:
    """Where a value lies between two edges of a picture; values of no width lie at the first."""
    (low, high), (start, end) = ends, edges
    if log:
        return lambda value: start + (end - start) * math.log(value / low) / math.log(high / low)
    return lambda value: start + (end - start) * (value - low) / ((high - low) or 1)


def words(look: str, x: float | str, y: float | str, content: str, anchor: str = "middle") -> str:
    """A line of text at a place of the picture; what users wrote has passed through `text`."""
    return f'<text class="{look}" x="{x}" y="{y}" text-anchor="{anchor}">{content}</text>'


def rung(y: float, label: str, ends: tuple[float, float]) -> str:
    """A line of the grid at this height, with its label to the left."""
    left, right = ends
    return f'<line class="grid" x1="{left:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>' + words(
        "tick", f"{left - 6:g}", f"{y + 4:.1f}", label, "end"
    )


def rule(kind: str, across: tuple[float, float], down: tuple[float, float], title: str) -> str:
    """A line of this kind that the legend explains, with a hover title of ours."""
    (left, right), (top, bottom) = across, down
    return (
        f'<line class="mark {kind}" x1="{left:.1f}" x2="{right:.1f}" y1="{top:.1f}" '
        f'y2="{bottom:.1f}"><title>{title}</title></line>'
    )


def standalone(picture: Markup) -> str:
    """The picture as a file of its own: with its name space, the colours of a page, and a ground.

    A page of the documentation shows it as an image, where no style sheet reaches it, and where
    whatever stands at its edge would touch the text beside it.
    """
    style = resources.files("capelet.reports").joinpath("templates/style.css").read_text("utf-8")
    # The light colours, and whatever is said of pictures; the rest of the page's style is not ours.
    colours = re.search(r"^:root \{.*?^\}$", style, re.DOTALL | re.MULTILINE)
    rules = re.findall(r"^(?:svg|\.c-\d).*$", style, re.MULTILINE)
    # How wide a panel is on a page is the page's matter; a file has a size of its own.
    rules = [rule for rule in rules if rule != _PAGE_WIDTH]
    sheet = "\n".join([colours[0] if colours else "", *rules])
    head, body = str(picture).removesuffix("</svg>").split(">", 1)
    # A picture in per cent of its page has no width of its own; one with a view box has.
    box = re.search(r' viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
    wide = float(box[1]) if box else WIDTH - 2 * MARGIN
    tall = float(box[2]) if box else float(re.findall(r' height="([\d.]+)"', head)[0])
    size = f'width="{wide + 2 * MARGIN:g}" height="{tall + 2 * MARGIN:g}"'
    name = re.sub(r' (?:width|height|viewBox)="[^"]*"', "", head.removeprefix("<svg"))
    # A nested picture, so that its per cents are those of the room within the margin.
    frame = f'x="{MARGIN}" y="{MARGIN}" width="{wide:g}" height="{tall:g}" overflow="visible"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}{name}><style>\n{sheet}\n</style>'
        '<rect width="100%" height="100%" style="fill: var(--card)"/>'
        f"<svg {frame}{box[0] if box else ''}>{body}</svg></svg>\n"
    )
