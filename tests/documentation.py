"""What the pages describe, to be compared with the tables of the code.

Each table of `capelet.cli.catalogue` has its page; a member without a description there is found by
`undocumented`, and so is a table for which nobody named a page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from capelet.cli.catalogue import TABLES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COMMAND_LINE = DOCS / "reference/command-line.md"
SCHEMA_PAGE = DOCS / "reference/findings-schema.md"


def sections(page: Path, level: int) -> dict[str, str]:
    """The text under each heading of a level, by its heading without backticks."""
    parts = re.split(rf"^{'#' * level} (.+)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {
        title.replace("`", ""): body for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def rows(text: str) -> list[list[str]]:
    """The rows of all tables, as cells; heads and rules are left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = {i for i, row in enumerate(cells) if all(re.fullmatch(":?-+:?", cell) for cell in row)}
    heads = {i - 1 for i in rules}
    return [row for i, row in enumerate(cells) if i not in rules | heads]


def first_codes(text: str) -> list[str]:
    """The first code word of each table row that begins with one."""
    return [match[1] for row in rows(text) if (match := re.match(r"`([^`]+)`", row[0]))]


def option_rows(command: str) -> dict[str, list[str]]:
    """The rows of a command's tables on the page of commands, by option or argument."""
    return {row[0].strip("`"): row for row in rows(sections(COMMAND_LINE, 2)[command])}


def _titles(card: str) -> set[str]:
    """The headings of a card, each name of a heading that has several."""
    return {name for title in sections(DOCS / card, 2) for name in title.split(", ")}


def _row_names(card: str) -> set[str]:
    """Every code word in the first column of a card's tables."""
    cells = [row[0] for row in rows((DOCS / card).read_text("utf-8"))]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def _choices(command: str, option: str) -> set[str]:
    """The code words that explain an option."""
    return set(re.findall(r"`([^`]+)`", option_rows(command)[option][2]))


DESCRIPTIONS: dict[str, Callable[[], set[str]]] = {
    "encoders": lambda: _row_names("cards/encoders.md"),
    "mechanisms": lambda: _row_names("cards/mechanisms.md") | _row_names("cards/words.md"),
    "defences": lambda: _titles("cards/defences.md") & _choices("capelet protect", "--method"),
    "uses": lambda: _choices("capelet protect", "--purpose") & _row_names("how-to/protect.md"),
    "data sets": lambda: _row_names("cards/datasets.md"),
    "kinds of attack": lambda: _choices("capelet audit", "--attacks"),
    "inversion attacks": lambda: (
        _titles("cards/inversion.md") & _choices("capelet invert", "--attacks")
    ),
    "attackers": lambda: (
        _titles("cards/attackers.md")
        & _choices("capelet audit", "--attackers")
        & _choices("capelet protect", "--attackers")
    ),
    "splits": lambda: _titles("cards/splits.md") & _choices("capelet audit", "--split"),
    "language methods": lambda: (
        _row_names("cards/language-models.md") & _choices("capelet lm train", "--method")
    ),
    "kinds of study": lambda: _row_names("how-to/studies.md"),
    "presets": lambda: _choices("capelet protect", "--preset"),
    "sentence tasks": lambda: _choices("capelet dual utility", "--tasks"),
    "kinds of finding": lambda: set(first_codes(sections(SCHEMA_PAGE, 2)["Kinds"])),
    "metrics": lambda: set(first_codes(sections(SCHEMA_PAGE, 2)["Metrics"])),
    "other measures": lambda: set(first_codes(sections(SCHEMA_PAGE, 2)["Metrics"])),
    "commands": lambda: {title.removeprefix("capelet ") for title in sections(COMMAND_LINE, 2)},
}


def undocumented(kind: str) -> set[str]:
    """The members of a table that its page does not describe."""
    return set(TABLES[kind].members) - DESCRIPTIONS[kind]()
