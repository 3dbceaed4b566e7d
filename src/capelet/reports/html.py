"""A page as one self-contained HTML file: no network, no script, pictures inside.

User text (class names, attribute names, data names) reaches the page only through the templates'
escaping or through `svg.text`. Each block has a macro of its name in `templates/blocks.html`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from capelet.reports.draw import bars, curves, maps, pareto
from capelet.reports.formatting import count
from capelet.reports.page import Block, Page, Span, Words


def draw_html(page: Page) -> str:
    """The page as HTML."""
    return templates().get_template("page.html").render(page=page)


def draw(block: Block, level: int = 3) -> Markup:
    """One block by the macro of its name; `level` is that of the headings inside it."""
    # By the class's name: a block without a macro fails at once, not silently.
    macros = templates().get_template("blocks.html").module
    return Markup(getattr(macros, type(block).__name__.lower())(block, level))


@lru_cache(maxsize=1)
def templates() -> Environment:
    """The templates, with the filters, the pictures and the style that every page shares."""
    loader = PackageLoader("capelet.reports")
    # Autoescape is what keeps user text from becoming markup; a missing value must not pass unseen.
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=count,
        mark_up=mark_up,
        tie_numbers=tie_numbers,
        part_interval=part_interval,
    )
    environment.globals.update(
        style=Markup(loader.get_source(environment, "style.css")[0]),
        draw=draw,
        draw_bars=bars.bars,
        legend_of=bars.legend_of,
        meter=bars.meter,
        reach_of=curves.reach_of,
        curve_panel=curves.curve_panel,
        exposure_curves=curves.exposure_curves,
        cloud_panel=maps.cloud_panel,
        frontier_picture=pareto.picture,
        frontier_legend=pareto.legend,
    )
    return environment


def mark_up(words: Words) -> str:
    """The words with their spans as elements; all text of them is escaped."""
    return words if isinstance(words, str) else Markup().join(map(_element, words))


def _element(item: str | Span) -> str:
    if isinstance(item, str):
        return item
    words = Markup("<{0}>{1}</{0}>").format(item.letters or "span", item.content)
    return Markup('<a href="{}">{}</a>').format(item.link, words) if item.link else words


def tie_numbers(sentence: Words) -> str:
    """The sentence with each number tied to its per cent sign, so that no line parts them."""
    # A no-break space.
    if isinstance(sentence, str):
        return re.sub(r"(\d) %", "\\1\u00a0%", sentence)
    return mark_up(sentence)


def part_interval(cell: Words) -> tuple[str, str]:
    """A table's cell as value and interval: `78.4 % (76.0–80.6)` is two lines on the page."""
    if not isinstance(cell, str):
        return mark_up(cell), ""
    match = re.fullmatch(r"(.+?) \(([−\d.,]+–[−\d.,]+)\)( constant)?", cell)
    return (match[1] + (match[3] or ""), match[2]) if match else (cell, "")
