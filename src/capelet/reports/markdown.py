"""A page as Markdown: verdicts, tables, method and provenance, for a code host or a terminal.

Pictures without a file of their own are left out; their numbers stand in the tables. All text of a
page passes through `escape`, so that a class name can neither break a table nor smuggle in HTML or
a link.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from capelet.reports import page as blocks
from capelet.reports.output_summary import TITLE
from capelet.reports.page import Block, Page, Span, Words


def draw_markdown(page: Page) -> str:
    """The page as Markdown."""
    parts = [
        f"# {escape(''.join(page.heading))}",
        f"{TITLE}: **{escape(page.leaves)}**" if page.leaves else "",
        f"**{escape(page.lead)}**" if page.lead else "",
        *(draw(block, 1) for block in page.header),
    ]
    for section in page.sections:
        content = [draw(block, 2) for block in section.blocks]
        if any(content):
            parts += [f"## {escape(section.heading)}", *content]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(content: Words) -> str:
    """Text that Markdown leaves as it is, on one line; the spans of it are ours.

    >>> escape("a|b <script>"), escape("# 1. https://x.y")
    ('a\\\\|b &lt;script&gt;', '\\\\# 1. https&#58;//x.y')
    >>> escape(("it ", Span("fails", "em"), " as ", Span("its page", link="page.md"), " says"))
    'it *fails* as [its page](page.md) says'
    """
    pieces = content if isinstance(content, tuple) else (content,)
    line = "".join(
        _span(item) if isinstance(item, Span) else _escape_signs(str(item)) for item in pieces
    ).strip()
    # At the head of a line these would begin a heading, a list or a rule.
    line = re.sub(r"^(#+|[+=-])(?=[ =-]|$)", r"\\\1", line)
    return re.sub(r"^(\d+)([.)])(?= |$)", r"\1\\\2", line)


def _span(item: Span) -> str:
    sign = {"strong": "**", "em": "*", "code": "`", "": ""}[item.letters]
    words = f"{sign}{_escape_signs(item.content)}{sign}"
    return f"[{words}]({item.link})" if item.link else words


def _escape_signs(content: str) -> str:
    # Line breaks first: a class name could else begin a new block.
    line = re.sub(r"\s+", " ", content).replace("&", "&amp;")
    line = re.sub(r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w))", r"\\\1", line)
    # Entities, not backslashes: hosts differ in what HTML they let through.
    line = line.replace("<", "&lt;").replace(">", "&gt;")
    # Code hosts turn bare addresses into links.
    return line.replace("://", "&#58;//").replace("www.", "www&#46;")


def bullets(items: Iterable[str]) -> str:
    """Markdown's list; the items are escaped already."""
    return "\n".join(f"- {item}" for item in items)


def draw(block: Block, level: int) -> str:
    """One block, whose headings are of this level; empty for what only a page can show."""
    # Pictures have none: their numbers stand in the tables.
    drawer = _DRAWERS.get(type(block))
    return drawer(block, level) if drawer else ""


def table(item: blocks.Table, level: int = 2) -> str:
    """The table under its title; numbers to the right."""
    # Numbers to the right, so that digits stand below each other.
    rule = ["---" if i < item.words else "---:" for i in range(len(item.columns))]
    head = [_line(item.columns), "| " + " | ".join(rule) + " |"]
    body = [
        _line(line.cells, {"strong": "**", "control": "*"}.get(line.role, ""))
        for line in item.lines
    ]
    title = f"**{escape(item.title)}**" if item.title else ""
    parts = (title, "\n".join([*head, *body]), escape(item.note))
    return "\n\n".join(part for part in parts if part)


def _line(cells: Iterable[Words], sign: str = "") -> str:
    items = [escape(cell) for cell in cells]
    items[0] = f"{sign}{items[0]}{sign}"
    return "| " + " | ".join(items) + " |"


def _text(block: blocks.Text, level: int) -> str:
    if block.look == "note" or (block.look == "prose" and len(block.sentences) == 1):
        return "\n\n".join(map(escape, block.sentences))
    return bullets(map(escape, block.sentences))


def _cards(block: blocks.Cards, level: int) -> str:
    return bullets(
        f"**{escape(card.verdict.title)}** · {escape(card.verdict.sentence)}"
        + (f" {escape(' '.join(card.remark))}" if card.remark[0] else "")
        for card in block.items
    )


def _changes(block: blocks.Changes, level: int) -> str:
    return bullets(f"**{item.way}** · {escape(item.sentence)}" for item in block.items)


def _passages(block: blocks.Passages, level: int) -> str:
    return bullets(f"**{escape(item.title)}.** {escape(item.text)}" for item in block.items)


def _facts(entries: Sequence[blocks.Fact]) -> str:
    return bullets(f"{escape(fact.term)}: {escape(fact.value)}" for fact in entries)


def _origins(block: blocks.Origins, level: int) -> str:
    groups = ((f"**{escape(title)}**", _facts(entries)) for title, entries in block.groups)
    return "\n\n".join(part for group in groups for part in group)


def _callout(block: blocks.Callout, level: int) -> str:
    return "\n>\n".join(f"> **{escape(block.title)}.** {escape(item)}" for item in block.items)


def _code(block: blocks.Code, level: int) -> str:
    """An indented block: nothing inside can end it."""
    lines = "\n".join(f"    {line}" for line in block.content.splitlines())
    heading = f"{'#' * level} {escape(block.title)}\n\n" if block.title else ""
    return heading + lines


def _examples(block: blocks.Examples, level: int) -> str:
    return "\n\n".join(
        bullets([escape(item.text), *map(_reading, item.readings)]) for item in block.items
    )


def _reading(reading: blocks.GuessedWords) -> str:
    right, wrong = (escape(" ".join(words) or "–") for words in (reading.right, reading.wrong))
    return f"{escape(reading.attacker)}: {right}; wrongly {wrong}"


def _columns(block: blocks.Columns, level: int) -> str:
    parts = []
    for column in block.items:
        content = [draw(item, level + 2) for item in column.blocks]
        if any(content):
            heading = f"{'#' * (level + 1)} {escape(column.title)}" if column.title else ""
            parts += [heading, *content]
    return "\n\n".join(part for part in parts if part)


_DRAWERS: dict[type, Callable[[Any, int], str]] = {
    blocks.Text: _text,
    blocks.Table: table,
    blocks.Tables: lambda block, level: "\n\n".join(map(table, block.items)),
    blocks.Cards: _cards,
    blocks.Changes: _changes,
    blocks.Passages: _passages,
    blocks.Facts: lambda block, level: _facts(block.items),
    blocks.Origins: _origins,
    blocks.Code: _code,
    blocks.Picture: lambda block, level: f"![{escape(block.title)}]({block.file})",
    blocks.Callout: _callout,
    blocks.Examples: _examples,
    blocks.Columns: _columns,
}
