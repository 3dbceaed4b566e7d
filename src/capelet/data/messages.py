"""Sentences about data: names of columns, counts, row numbers and types, and never a cell.

Every complaint about a file or a table is put into words here. A message ends in a terminal, a log
of a build, a ticket: whoever reads it there may not read the data. So no function here is given the
value of a cell; the one that looks at a value, `kind_of`, returns its type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from capelet.data.headers import Header
from capelet.errors import DataError, name_field


def kind_of(value: object) -> str:
    """What a cell holds, as a type: the only thing that may be said of it.

    >>> kind_of(" "), kind_of("a name"), kind_of(3), kind_of([1.0])
    ('empty', 'str', 'int', 'list')
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return "empty"
    return type(value).__name__


def which_texts(name: str, header: Header) -> DataError:
    """Nobody said where the texts are."""
    return DataError(
        f"which column of {name!r} holds the texts? Give {name_field('text')} or, for ready "
        f"vectors, {name_field('vectors')}; it has {header.listing()}"
    )


def no_column(name: str, column: str, header: Header, hint: str = "") -> DataError:
    """A column that is not there; the others are named only where they surely are names."""
    return DataError(f"{name!r} has no column {column!r}; {hint or header.hint(column)}")


def several_columns(name: str, column: str, count: int) -> DataError:
    """Two columns of one name: which of them was meant is anybody's guess."""
    return DataError(f"{name!r} has {count} columns of the name {column!r}; rename all but one")


def unreadable(name: str, kind: str, error: Exception, hint: str = "") -> DataError:
    """A broken file: never the library's own message, which may quote a row."""
    # A row number and a number of columns are all that may be passed on.
    place = re.search(r"Row #\d+|Expected \d+ columns, got \d+", str(error))
    return DataError(
        f"{name!r} cannot be read as {kind} ({place.group() if place else type(error).__name__}); "
        + (hint or "is it whole, and of that kind?")
    )


def unusable_type(column: str, kind: str, purpose: str) -> DataError:
    """A column of a type that cannot serve its purpose, such as records as classes."""
    return DataError(f"column {column!r} holds {kind}, which cannot be {purpose}")


def bad_texts(column: str, rows: Sequence[int], total: int, first: str) -> DataError:
    """Rows without a text; `first` is the type of the first of them."""
    return DataError(
        f"column {column!r} must hold texts: {len(rows)} of {total} rows are empty or not strings "
        f"(the first is row {rows[0]}: {first}); leave empty ones out with "
        f"{name_field('drop_empty')}, or keep some with {name_field('where')}"
    )


def bad_authors(column: str, rows: Sequence[int], total: int) -> DataError:
    """Rows whose author nobody knows: they could stand on both sides of a split."""
    return DataError(
        f"column {column!r} must name an author on every row: {len(rows)} of {total} are empty "
        f"(the first is row {rows[0]}); fill them, leave them out with "
        f"{name_field('drop_empty')}, or keep the others with {name_field('where')}"
    )


def bad_lengths(column: str, lengths: Sequence[int], missing: bool) -> DataError:
    """Vectors of several lengths, or rows without one."""
    listing = ", ".join(map(str, lengths[:6]))
    return DataError(
        f"column {column!r} must hold vectors of one length; found lengths {listing}"
        + (" and rows without a vector" if missing else "")
    )


def not_vectors(column: str, content: str) -> DataError:
    """A column that holds something else than vectors, by its type."""
    return DataError(f"column {column!r} must hold vectors of numbers; it holds {content}")


def not_finite(column: str, rows: Sequence[int], total: int) -> DataError:
    """NaN and infinities, which every distance would inherit."""
    return DataError(
        f"column {column!r} has NaN or infinite numbers in {len(rows)} of {total} rows "
        f"(the first is row {rows[0]}); repair or remove them"
    )


def one_class(column: str, classes: int) -> DataError:
    """Nothing to guess between; the class itself stays unsaid."""
    values = "a single class" if classes else "no value at all"
    return DataError(f"{column!r} has {values}; at least two classes are needed to guess between")


def rare_classes(column: str, sizes: Sequence[int], classes: int, least: int) -> DataError:
    """Classes that are too rare, by their sizes."""
    advice = (
        f"merge or leave them out with {name_field('merge_rare', least)}, or keep other rows "
        f"with {name_field('where')}"
    )
    if len(sizes) == classes:
        advice = "nothing would be left to guess; is it a column of names?"
    return DataError(
        f"{column!r} has {len(sizes)} of {classes} classes on fewer than {least} rows (the "
        f"smallest on {min(sizes)}); such classes cannot be measured: {advice}"
    )


def identifier(column: str, distinct: int, rows: int, numeric: bool) -> DataError:
    """An identifier, a name or a text where an attribute was to be: every row its own class."""
    cut = f"; if it is a quantity, say with {name_field('bins')} where to cut it"
    advice = cut if numeric else ""
    return DataError(
        f"{column!r} has {distinct:,} different values on {rows:,} rows, as texts, names and "
        f"identifiers have: it is no attribute with classes that could be guessed{advice}"
    )


def not_numeric(column: str) -> DataError:
    return DataError(f"{column!r} is not numeric, so it cannot be cut with {name_field('bins')}")
