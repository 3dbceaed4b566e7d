"""The frame of every picture: inline SVG that follows light, dark and print, and needs no script.

A picture has a name and a description for readers who listen, and its marks have hover titles. All
user text passes through `text`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup, escape


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
