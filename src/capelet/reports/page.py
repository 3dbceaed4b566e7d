"""A page is a list of blocks; builders make it from findings, and two renderers draw it.

A block holds what is to be said or drawn and nothing of how: `html.py` has a macro for each,
`markdown.py` a function, and pictures are what only a page can show. User text stands in blocks as
it was written; escaping is the renderers' work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from markupsafe import Markup

from capelet.reports.draw.bars import Bar
from capelet.reports.draw.curves import Curve, Series
from capelet.reports.draw.maps import Cloud
from capelet.reports.draw.pareto import Frontier
from capelet.reports.verdict import Verdict

# "unclear" is an outcome: a difference that may be chance is neither better nor worse.
Way = Literal["better", "worse", "unclear"]
Look = Literal["prose", "note", "list", "list note"]
T = TypeVar("T")


@dataclass(frozen=True)
class Span:
    """A piece of a sentence that is set apart: in other letters, or as a link."""

    content: str
    letters: Literal["", "strong", "em", "code"] = ""
    link: str = ""

    def __str__(self) -> str:
        return self.content


# A sentence or a cell: whole, or in pieces.
Words = str | tuple[str | Span, ...]


class Block:
    """What a page consists of; each kind of block has a macro and, unless a picture, a drawer."""


@dataclass(frozen=True)
class Text(Block):
    """Sentences: as `prose`, as a small `note`, or as the lines of a `list`."""

    sentences: tuple[Words, ...]
    look: Look = "prose"


@dataclass(frozen=True)
class Line:
    """One row of a table; `role` is `strong`, `control` or nothing."""

    cells: tuple[Words, ...]
    role: str = ""


@dataclass(frozen=True)
class Table(Block):
    """A title, columns and rows ready to print; the first `words` columns are not numbers.

    The title is empty where the heading above says all.
    """

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    note: str = ""
    words: int = 1


@dataclass(frozen=True)
class Tables(Block):
    """Tables under one heading; a single table that repeats the heading goes without its title."""

    title: str
    items: tuple[Table, ...]


@dataclass(frozen=True)
class Bars(Block):
    """Values on one axis from 0 to 100 %, under a title and a caption."""

    rows: tuple[Bar, ...]
    name: str
    title: str
    caption: str


@dataclass(frozen=True)
class Card:
    """A verdict with what its number is read against, and what must be added to it."""

    verdict: Verdict
    against: tuple[str, ...] = ()
    remark: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Cards(Block):
    """Verdicts, as cards with their numbers or, `compact`, as paragraphs."""

    items: tuple[Card, ...]
    compact: bool = False


@dataclass(frozen=True)
class Change:
    """One measurement in both runs; `unclear` is a difference that may be chance."""

    sense: Literal["leak", "task"]
    target: str
    sentence: str
    way: Way


@dataclass(frozen=True)
class Changes(Block):
    items: tuple[Change, ...]


@dataclass(frozen=True)
class Passage:
    """A heading and a paragraph under it."""

    title: str
    text: str


@dataclass(frozen=True)
class Passages(Block):
    items: tuple[Passage, ...]


@dataclass(frozen=True)
class Fact:
    """A term and its value; `code` asks for letters of equal width."""

    term: str
    value: Words
    code: bool = False


@dataclass(frozen=True)
class Facts(Block):
    items: tuple[Fact, ...]


@dataclass(frozen=True)
class Origins(Block):
    """Facts in groups with a title each: where the numbers come from."""

    groups: tuple[tuple[str, tuple[Fact, ...]], ...]


@dataclass(frozen=True)
class Code(Block):
    """A command or a recipe, letter by letter."""

    title: str
    content: str


@dataclass(frozen=True)
class Callout(Block):
    """What must be read first."""

    title: str
    items: tuple[str, ...]


@dataclass(frozen=True)
class Picture(Block):
    """A drawing that is a file of its own beside the Markdown."""

    title: str
    drawing: Markup
    file: str


@dataclass(frozen=True)
class Curves(Block):
    """Learning curves side by side, on one scale."""

    items: tuple[Curve, ...]
    title: str
    caption: str


@dataclass(frozen=True)
class Exposure(Block):
    """Bits of exposure over repetitions, a line for each model; `chance` is that of no training."""

    items: tuple[Series, ...]
    chance: float
    title: str
    caption: str


@dataclass(frozen=True)
class Maps(Block):
    """Clouds of points side by side; without a title they stand bare in their column."""

    items: tuple[Cloud, ...]
    title: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Search(Block):
    """Leakage against utility of every setting in a search."""

    frontier: Frontier
    title: str
    caption: str


@dataclass(frozen=True)
class GuessedWords:
    """The words that one attacker named of a text, right and wrong."""

    attacker: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    f1: str


@dataclass(frozen=True)
class Example:
    text: str
    readings: tuple[GuessedWords, ...]


@dataclass(frozen=True)
class Examples(Block):
    """People's texts and what was read of them; only where the run was told to show texts."""

    items: tuple[Example, ...]


@dataclass(frozen=True)
class Column:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Columns(Block):
    """Two runs, or a picture and its table, side by side."""

    items: tuple[Column, ...]
    title: str = ""
    caption: str = ""


@dataclass(frozen=True)
class SignOff(Block):
    """Where whoever decides signs, on paper."""


@dataclass(frozen=True)
class Section:
    """A part of the page; `link` is its name among the contents, empty for none."""

    anchor: str
    heading: str
    blocks: tuple[Block, ...]
    link: str = ""


@dataclass(frozen=True)
class Page:
    """The whole page. The heading is given in three parts: before the data's name, it, and after.

    `leaves` is what leaves of each text, where something protects it. `private` pages show people's
    texts and are written for their owner only.
    """

    title: str
    heading: tuple[str, str, str]
    lead: str
    header: tuple[Block, ...]
    sections: tuple[Section, ...]
    private: bool = False
    leaves: str = ""


def section(
    anchor: str, heading: str, blocks: Iterable[Block | None], link: str = ""
) -> Section | None:
    """A section of the blocks that there are; None where there are none."""
    # An empty section would look as if something had been measured and found to be nothing.
    items = present(blocks)
    return Section(anchor, heading, items, link) if items else None


def present(items: Iterable[T | None]) -> tuple[T, ...]:
    """The sections, or blocks, that have something to say."""
    return tuple(item for item in items if item is not None)


def text(sentences: Iterable[Words], look: Look = "prose") -> Text | None:
    """A block of sentences; None where there are none."""
    items = tuple(sentence for sentence in sentences if sentence)
    return Text(items, look) if items else None


def bars(rows: Iterable[Bar], name: str, title: str, caption: str) -> Bars | None:
    """A block of bars; None where there is nothing to draw."""
    items = tuple(rows)
    return Bars(items, name, title, caption) if items else None


def changes(items: Iterable[Change]) -> Changes | None:
    """A block of changes; None where nothing is in both runs."""
    pairs = tuple(items)
    return Changes(pairs) if pairs else None


def table(
    title: str, columns: tuple[str, ...], lines: Iterable[Line], note: str = "", words: int = 1
) -> Table | None:
    """A table; None where it has no line."""
    items = tuple(lines)
    return Table(title, columns, items, note, words) if items else None


def table_of(
    title: str,
    items: Iterable[T],
    columns: Mapping[str, Callable[[T], Words]],
    note: str = "",
    words: int = 1,
    role: Callable[[T], str] = lambda item: "",
) -> Table | None:
    """A line for each item; a column has a title and says one thing of the item."""
    lines = [Line(tuple(cell(item) for cell in columns.values()), role(item)) for item in items]
    return table(title, tuple(columns), lines, note, words)


def tables(title: str, items: Iterable[Table | None]) -> Tables | None:
    """Those of the tables that there are, under one heading; None where there are none."""
    pairs = present(items)
    return Tables(title, pairs) if pairs else None


def sign_off() -> Section:
    return Section("sign-off", "Sign-off", (SignOff(),), "Sign-off")
