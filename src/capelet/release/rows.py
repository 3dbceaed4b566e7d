"""Rows of a file of any size, of many files, or of a named set, in blocks, every row checked.

Only one block is held at a time. An error names the row and the column, never what stands there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.data.folders import count_rows, is_folder, list_files, name_of, read_range
from capelet.data.formats import Format
from capelet.data.streams import column_batches, count_empty, is_named
from capelet.errors import DataError, name_field
from capelet.interfaces import Kind, Progress, Vectors, silent
from capelet.ledger.people import normalise_person


@dataclass(frozen=True)
class Span:
    """Rows of one file among many, from `start` to before `stop`."""

    file: str
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows: texts or an (n, d) array, and who each row is about.

    Of a folder, `span` is where another process finds them, and `places` which rows of it they are.
    """

    number: int
    start: int
    values: list[str] | Vectors
    subjects: list[str]
    span: Span | None = None
    places: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def digest(self) -> bytes:
        """A hash of the rows, by which a second reading is known to be the same."""
        total = hashlib.blake2b(digest_size=16)
        # Lengths go in too, so that no two lists of rows can be cut to the same bytes.
        for part in (*contents_of(self.values), *(who.encode() for who in self.subjects)):
            total.update(len(part).to_bytes(8, "big"))
            total.update(part)
        return total.digest()

    @property
    def people(self) -> list[str]:
        """Who is charged for each row: the subjects in one form."""
        return [normalise_person(subject) for subject in self.subjects]

    @property
    def numbers(self) -> range:
        """The row numbers in the file."""
        return range(self.start, self.start + len(self))

    def take(self, rows: Sequence[int]) -> list[str] | Vectors:
        return take(self.values, rows)


def contents_of(values: Sequence[str] | Vectors) -> Iterator[bytes]:
    """Each row's text or vector as bytes."""
    for value in values:
        if isinstance(value, str):
            yield value.encode("utf-8", "surrogatepass")
        else:
            yield value.tobytes()


def take(values: list[str] | Vectors, rows: Sequence[int]) -> list[str] | Vectors:
    """Some rows of texts or vectors."""
    if isinstance(values, list):
        return [values[row] for row in rows]
    return values[list(rows)]


def digest_of(values: list[str] | Vectors) -> bytes:
    """A hash of texts or vectors, whomever they are about."""
    return Block(0, 0, values, []).digest


# Which rows of a batch do not leave.
LeaveOut = Callable[[list[str] | Vectors], npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class RowFormat:
    """What is read of a file: texts or vectors, and subjects if any; a worker reads the same."""

    kind: Kind
    column: str
    subject: str | None
    drop_empty: bool = False

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys([self.column, *([self.subject] if self.subject else [])]))

    def check(
        self, batch: Sequence[list[Any]], start: int, width: int | None = None
    ) -> tuple[list[str] | Vectors, list[str]]:
        """Texts or vectors and whom they are about; every row, counted from `start`, is checked."""
        if self.kind == "vectors" and batch[0]:
            rows: list[str] | Vectors = _matrix(batch[0], self.column, start, width)
        else:
            rows = _texts(batch[0], self.column, start)
        return rows, _subjects(batch[-1], self.subject, start) if self.subject else []

    def read(self, span: Span, width: int | None = None) -> tuple[list[str] | Vectors, list[str]]:
        """The same of a span of one file among many."""
        batch = read_range(span.file, self.columns, span.start, span.stop, self.drop_empty)
        try:
            return self.check(batch, span.start, width)
        except DataError as error:
            # A row number alone would be one of many files'.
            raise DataError(f"in {name_of(span.file)!r}: {error.sentence}") from None


@dataclass(frozen=True)
class Source:
    """The rows of one file, or of a named set."""

    path: Path
    reading: RowFormat
    size: int
    leave_out: LeaveOut | None = None
    layout: Format = field(default_factory=Format)

    @property
    def name(self) -> str:
        return self.path.name

    def empty_rows(self) -> int:
        """How many rows are left out because they are empty; none where that was not asked."""
        if not self.layout.drop_empty:
            return 0
        return count_empty(self.path, self.reading.columns, self.layout)

    def blocks(self, progress: Progress = silent) -> Iterator[Block]:
        """The rows in blocks of `size`, every row checked; smaller where rows are left out.

        Rows that stay are numbered without gaps: a gap would tell which rows were left out.
        """
        yield from _numbered(self._parts(progress), self.leave_out)

    def _parts(self, progress: Progress) -> Iterator[Part]:
        start, width = 0, None
        batches = column_batches(self.path, self.reading.columns, progress, self.layout)
        for batch in _regular(batches, self.size):
            rows, subjects = self.reading.check(batch, start, width)
            if self.reading.kind == "vectors":
                width = np.shape(rows)[1]
            yield rows, subjects, None
            start += len(rows)


# ---- many files ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FolderSource:
    """Many Parquet files as one table: rows are numbered on over the files, in their order.

    No block crosses from one file into the next.
    """

    name: str
    files: tuple[str, ...]
    reading: RowFormat
    size: int
    leave_out: LeaveOut | None = None

    def spans(self) -> Iterator[Span]:
        """All files in pieces of `size` rows; the columns of each file are checked first."""
        totals = [(file, count_rows(file, self.reading.columns)) for file in self.files]
        for file, total in totals:
            for start in range(0, total, self.size):
                yield Span(file, start, min(start + self.size, total))

    def empty_rows(self) -> int:
        """How many rows are left out because they are empty; none where that was not asked."""
        if not self.reading.drop_empty:
            return 0
        columns = self.reading.columns
        spans = [(span.file, columns, span.start, span.stop) for span in self.spans()]
        return sum(
            len(read_range(*span, False)[0]) - len(read_range(*span, True)[0]) for span in spans
        )

    def blocks(self, progress: Progress = silent) -> Iterator[Block]:
        """The rows in blocks, every row checked; rows that stay are numbered without gaps."""
        yield from _numbered(self._parts(progress), self.leave_out)

    def _parts(self, progress: Progress) -> Iterator[Part]:
        width, spans = None, list(self.spans())
        for place, span in enumerate(spans, 1):
            values, subjects = self.reading.read(span, width)
            if self.reading.kind == "vectors" and len(values):
                width = np.shape(values)[1]
            yield values, subjects, span
            progress("checking", place, len(spans))


def source_of(
    source: Path | str,
    kind: Kind,
    column: str,
    subject: str | None,
    size: int,
    layout: Format | None = None,
    leave_out: LeaveOut | None = None,
) -> Source | FolderSource:
    """The rows of a file, a named set, or of many files."""
    layout = layout or Format()
    reading = RowFormat(kind, column, subject, layout.drop_empty)
    if is_named(source) or not is_folder(source):
        return Source(Path(source), reading, size, leave_out, layout)
    if layout.encoding is not None or layout.separator is not None:
        raise DataError(
            f"{name_field('encoding')} and {name_field('separator')} are of text files; a "
            "folder is of Parquet"
        )
    return FolderSource(str(source), list_files(source), reading, size, leave_out)


# Rows that were read together, whom they are about, and where they stand among many files.
Part = tuple[list[str] | Vectors, list[str], Span | None]


def _numbered(parts: Iterable[Part], leave_out: LeaveOut | None) -> Iterator[Block]:
    """Blocks of what is not left out, numbered without gaps: a gap would tell what was."""
    number = start = 0
    for values, subjects, span in parts:
        rows: Sequence[int] = range(len(values))
        if leave_out is not None and len(values):
            rows = np.flatnonzero(~leave_out(values)).tolist()
            values = take(values, rows)
            subjects = [subjects[row] for row in rows] if subjects else []
        if len(rows):
            yield Block(number, start, values, subjects, span, rows if span else ())
            number, start = number + 1, start + len(rows)


# ---- checks --------------------------------------------------------------------------------------


def join_digests(digests: Iterable[bytes]) -> str:
    """One digest of all blocks."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _regular(batches: Iterable[list[list[Any]]], size: int) -> Iterator[tuple[list[Any], ...]]:
    """The same rows in blocks of one size: (values, subjects); only the last may be shorter."""
    waiting: list[list[Any]] = [[], []]
    for batch in batches:
        # Without subjects both are the one column, and the second copy is ignored.
        for store, column in zip(waiting, (batch[0], batch[-1]), strict=True):
            store.extend(column)
        while len(waiting[0]) >= size:
            yield tuple(store[:size] for store in waiting)
            waiting = [store[size:] for store in waiting]
    if waiting[0]:
        yield tuple(waiting)


def _texts(values: list[Any], column: str, start: int) -> list[str]:
    for row, value in enumerate(values, start):
        if not isinstance(value, str) or not value.strip():
            empty = value is None or isinstance(value, str)
            state = "empty" if empty else f"of the type {type(value).__name__}"
            raise DataError(
                f"row {row} of the column {column!r} must be a text and is {state}; "
                "nothing was released"
            )
    return values


def _subjects(values: list[Any], column: str, start: int) -> list[str]:
    for row, value in enumerate(values, start):
        # True is an int to Python, and no name of a person.
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole and not (isinstance(value, str) and value.strip() and _sound(value)):
            raise DataError(
                f"row {row} of the column {column!r} must name a subject, as a text or a whole "
                f"number, and is {'empty' if value in (None, '') else 'something else'}; "
                "nothing was released"
            )
    return [str(value) for value in values]


def _sound(value: str) -> bool:
    # Half of a surrogate pair has no UTF-8, and the target could not hold it.
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def _matrix(values: list[Any], column: str, start: int, width: int | None) -> Vectors:
    """The rows as one float32 array; a row of another width, or not finite, is refused."""
    rows = []
    for number, value in enumerate(values, start):
        row = _vector(value)
        # The first row of the file decides the width for all.
        width = width or (len(row) if row is not None else None)
        if row is None or len(row) != width:
            content = "no vector" if row is None else f"{len(row)} numbers, others {width}"
            raise DataError(
                f"row {number} of the column {column!r} has {content}; vectors must be lists of "
                "numbers, all of one length; nothing was released"
            )
        if not np.isfinite(row).all():
            raise DataError(
                f"row {number} of the column {column!r} holds NaN or infinity; nothing was released"
            )
        rows.append(row)
    return np.stack(rows)


def _vector(value: Any) -> npt.NDArray[np.float32] | None:
    """One vector from a list, an array or a JSON list; None where it is none."""
    try:
        numbers = json.loads(value) if isinstance(value, str) else value
        # Beyond float32 a number becomes infinite, which is refused with its row.
        with np.errstate(over="ignore"):
            row = np.asarray(numbers, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        return None
    return row if row.ndim == 1 and row.size else None
