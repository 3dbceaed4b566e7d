"""Are the names of columns names? A CSV file without a header has people's data in that place.

A message that lists the columns of such a file prints somebody's row. So the names of a CSV are
shown only where something tells them from a row, or where the user has named one of them himself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from capelet.errors import did_you_mean

# Rows that are looked at: what tells a header from a row shows in the first thousands.
_LOOK = 10_000
# A column has classes, not single values, if it has this few: then its header, were it a row,
# would almost surely be one of them.
_FEW, _ENOUGH = 20, 40
# A name is shortened to this many characters in a sentence.
_LONGEST = 60

HIDDEN = "whose names are not shown, since nothing tells the first line from a row of data"


@dataclass(frozen=True)
class Header:
    """The names of the columns, and whether they surely are names.

    `is_row` says that the first line surely is a row; both may be False where nothing tells.
    """

    names: tuple[str, ...]
    is_certain: bool = True
    is_row: bool = False

    @classmethod
    def of_first_line(cls, names: Sequence[str], columns: Sequence[pa.ChunkedArray]) -> Header:
        """The header of a CSV file, compared with what stands below it."""
        signs = [_sign(name, column) for name, column in zip(names, columns, strict=True)]
        is_row = "row" in signs or len(set(names)) < len(names) or "" in names
        return cls(tuple(names), "name" in signs and not is_row, is_row)

    def confirm(self, columns: Iterable[str]) -> Header:
        """The same header; certain if the user knew one of its names."""
        is_name = any(column in self.names for column in columns)
        return replace(self, is_certain=True, is_row=False) if is_name else self

    def listing(self) -> str:
        """The names, or how many there are."""
        if not self.is_certain:
            return f"{len(self.names)} columns, {HIDDEN}"
        return ", ".join(map(printable, self.names)) or "no columns"

    def hint(self, column: str) -> str:
        """What the user may have meant."""
        if self.is_row:
            return (
                f"its first line looks like a row, not like the names of its {len(self.names)} "
                "columns: add a line with names"
            )
        if not self.is_certain:
            return f"it has {self.listing()}; is there a line with names?"
        near = did_you_mean(column, map(printable, self.names))
        return near if near.startswith("there is") else f"{near} (columns: {self.listing()})"


def printable(name: str) -> str:
    """A name without control characters, which could steer a terminal, and not too long.

    >>> printable("a\\x1b[2Jb")
    'a [2Jb'
    """
    clean = "".join(letter if letter.isprintable() else " " for letter in name)
    return clean if len(clean) <= _LONGEST else clean[: _LONGEST - 1] + "…"


def _sign(name: str, column: pa.ChunkedArray) -> str:
    """What a column says of its name: that it is a `name`, that it is a `row`, or nothing."""
    cells = column.slice(0, _LOOK).drop_null()
    if pa.types.is_null(column.type) or not len(cells):
        return ""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        # Numbers, dates and booleans stand under a name that is none of these.
        return "row" if _is_typed(name) else "name"
    values = pc.unique(cells)
    if _is_typed(name) or pc.is_in(pa.scalar(name, column.type), value_set=values).as_py():
        return "row"
    return "name" if len(values) <= _FEW and len(cells) >= _ENOUGH else ""


def _is_typed(name: str) -> bool:
    """Whether a CSV reader would take this for a number, a date or a boolean."""
    if name.strip().lower() in {"true", "false", "nan", "inf", "null"}:
        return True
    letters = {letter for letter in name if letter.isalpha()}
    # "2020-01-05T12:30Z" and "1.5e-3", but neither "q1" nor "2020 income".
    return any(letter.isdigit() for letter in name) and letters <= set("eETZ")
