"""Readers: a Corpus from a file, a data frame, `datasets`, lists or arrays.

`tables` makes one Arrow table of whatever was given; here its columns become the columns of a
corpus, each checked for what it is to be. What is wrong is put into words by `messages`, which
name a column, a row number and a type, never a value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capelet.data import messages
from capelet.data.columns import facts_of
from capelet.data.corpus import Corpus, Values, as_matrix, as_values
from capelet.data.formats import Format
from capelet.data.headers import Header
from capelet.data.labels import merge_rare_classes
from capelet.data.tables import TEXT, VECTORS, Sheet
from capelet.data.where import filter_rows
from capelet.errors import DataError, name_field


def read(
    source: Any,
    text: str | None = None,
    *,
    label: str | None = None,
    private: str | Sequence[str] = (),
    author: str | None = None,
    official: str | None = None,
    vectors: str | None = None,
    where: str | None = None,
    drop_empty: bool = False,
    merge_rare: int | None = None,
    encoding: str | None = None,
    separator: str | None = None,
) -> Corpus:
    """Read a file, a data frame, an Arrow table, Hugging Face `datasets`, lists or arrays.

    Example: `read("reviews.parquet", text="review", label="stars", private=["gender", "age"])`.
    `text` may be left out where one column alone can be the texts.
    `official` is a column of train, dev and test, for `split="column:NAME"`.
    `where` keeps the rows for which a simple expression holds: `where="language == 'en'"`.
    `drop_empty` leaves out rows without a text (or vector, or author), `merge_rare` merges classes
    on fewer rows than that; what either did stands in `corpus.notes`. `encoding` and `separator`
    are for text files.
    """
    sheet = Sheet.of(source, Format(encoding, separator))
    secrets = (private,) if isinstance(private, str) else tuple(private)
    notes: list[str] = []
    if text is None and vectors is None:
        # A list of texts, or a matrix, has one column, and nobody named it.
        if isinstance(source, str | Path | Sheet) or sheet.table.column_names not in (
            [TEXT],
            [VECTORS],
        ):
            text = _only_texts(sheet, [label, author, official, *secrets])
            notes.append(f"the texts are the column {text!r}, the only one that looks like texts")
        elif TEXT in sheet.table.column_names:
            text = TEXT
        else:
            vectors = VECTORS
    names = [
        name for name in (text, vectors, label, author, official, *secrets) if name is not None
    ]
    # All names are checked before any column becomes Python values, which may take minutes.
    check_names(sheet, names)
    if author is not None and author in secrets:
        raise DataError(
            f"{author!r} is named as the author and as a private attribute; whether vectors tell "
            f"who wrote a text is another question: {name_field('attacks', 'authorship')}"
        )
    if where is not None:
        rows = filter_rows(sheet.table, where, sheet.header.confirm(names))
        sheet = Sheet(sheet.name, rows, sheet.header)
    if sheet.table.num_rows == 0:
        raise DataError(
            f"{sheet.name!r} has no rows" + (f" where {name_field('where')} holds" if where else "")
        )
    columns = {name: _values(sheet, name) for name in names}
    if drop_empty:
        _drop_empty(columns, [name for name in (text, vectors, author) if name], notes)
    # Whether a class is rare follows from all rows, also where none is.
    targets = () if merge_rare is None else tuple(name for name in (label, *secrets) if name)
    for name in targets:
        columns[name], note = merge_rare_classes(columns[name], merge_rare or 0)
        notes += [f"{name}: {note}"] if note else []
    return Corpus(
        name=sheet.name,
        texts=_texts(columns[text], text) if text is not None else None,
        vectors=_vectors(columns[vectors], vectors) if vectors is not None else None,
        label_name=label,
        label=_classes(columns[label], label) if label is not None else None,
        private={name: _classes(columns[name], name, lists=True) for name in secrets},
        author=_authors(columns[author], author) if author is not None else None,
        where=where,
        notes=tuple(notes),
        from_all_rows=targets,
        official_name=official,
        official=_classes(columns[official], official) if official is not None else None,
    )


def _only_texts(sheet: Sheet, others: Sequence[str | None]) -> str:
    """The one column that can only be the texts; refused where none or several can."""
    header = sheet.header.confirm([name for name in others if name is not None])
    # Of a file without names the first row stands in their place, and is nobody's to be told.
    free = [name for name in sheet.table.column_names if header.is_certain and name not in others]
    found = [name for name in free if facts_of(name, sheet.column(name)).kind == "texts"]
    if len(found) != 1:
        raise messages.which_texts(sheet.name, sheet.header)
    return found[0]


def check_names(sheet: Sheet, names: Sequence[str]) -> Header:
    """The header, whose names these surely are; a name that no column has is refused."""
    header = sheet.header.confirm(names)
    for name in names:
        if name not in sheet.table.column_names:
            raise messages.no_column(sheet.name, name, header, sheet.hint)
        sheet.column(name)
    return header


def _values(sheet: Sheet, name: str) -> Values:
    """Python values, None where missing; a type that Python cannot hold is refused."""
    column = sheet.column(name)
    try:
        return as_values(column.to_pylist(), name)
    except (ValueError, OverflowError, pa.ArrowException):
        # Dates before the year 1, or after 9999.
        raise messages.unusable_type(name, f"{column.type} out of range", "read") from None


def _drop_empty(
    columns: dict[str, Values], required_columns: Sequence[str], notes: list[str]
) -> None:
    """Leave out the rows without a text, a vector or an author."""
    total = len(next(iter(columns.values())))
    whole = np.ones(total, dtype=bool)
    for name in required_columns:
        whole &= np.array([messages.kind_of(value) != "empty" for value in columns[name]])
    if not whole.any():
        raise DataError(f"all {total} rows are empty in {' or '.join(map(repr, required_columns))}")
    if not whole.all():
        notes.append(
            f"{int((~whole).sum())} of {total} rows were left out: they are empty in "
            + " or ".join(map(repr, required_columns))
        )
        for name in columns:
            columns[name] = columns[name][whole]


def _texts(values: Values, column: str) -> Values:
    wrong = [
        row for row, value in enumerate(values) if not isinstance(value, str) or not value.strip()
    ]
    if wrong:
        first = messages.kind_of(values[wrong[0]])
        raise messages.bad_texts(column, wrong, len(values), first)
    return values


def _authors(values: Values, column: str) -> Values:
    missing = [row for row, value in enumerate(values) if messages.kind_of(value) == "empty"]
    if missing:
        raise messages.bad_authors(column, missing, len(values))
    _classes(values, column)
    return np.array([str(value) for value in values], dtype=object)


def _classes(values: Values, column: str, lists: bool = False) -> Values:
    """Values that can be classes: records never can, lists only as several values of a row."""
    wrong_types: tuple[type, ...] = (dict,) if lists else (dict, list, tuple)
    for value in values:
        if isinstance(value, wrong_types):
            raise messages.unusable_type(
                column, f"values of type {type(value).__name__}", "classes"
            )
        if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
            raise messages.unusable_type(column, "lists of lists or records", "classes")
    return values


def _vectors(values: Values, name: str) -> npt.NDArray[np.float32]:
    """`(n, d)` floats from a list column (or JSON lists in a CSV); broken ones are refused."""
    rows: list[Any] = values.tolist()
    if any(isinstance(row, str) for row in rows):
        try:
            rows = [json.loads(row) for row in rows]
        except (ValueError, TypeError, RecursionError):
            raise DataError(f"column {name!r} holds text, not vectors") from None
    widths = {len(row) if isinstance(row, list) else None for row in rows}
    if None in widths or len(widths) != 1 or widths == {0}:
        lengths = sorted(width for width in widths if width is not None)
        raise messages.bad_lengths(name, lengths, None in widths)
    return as_matrix(rows, name)
