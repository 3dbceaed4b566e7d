"""Rows of a file of any size, in blocks of one size, every row checked: Parquet, CSV and JSONL.

Only one block is held at a time. An error names the row and the column, never what stands there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from capelet.data.readers import unreadable
from capelet.errors import DataError, did_you_mean
from capelet.interfaces import Kind, Progress, Vectors, silent
from capelet.privacy.store import Ledger

_READ = 1 << 22  # bytes of CSV read at once; no row may be longer
_ROWS = 1024  # rows of Parquet and JSONL read at once


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows: texts or an (n, d) array, and who each row is about."""

    number: int
    start: int
    values: list[str] | Vectors
    subjects: list[str]

    def __len__(self) -> int:
        return len(self.values)

    def contents(self) -> Iterator[bytes]:
        """Each row's text or vector as bytes."""
        for value in self.values:
            if isinstance(value, str):
                yield value.encode("utf-8", "surrogatepass")
            else:
                yield value.tobytes()

    @property
    def digest(self) -> bytes:
        """A hash of the rows, so that a second reading can be told to be the same."""
        total = hashlib.blake2b(digest_size=16)
        for part in (*self.contents(), *(who.encode() for who in self.subjects)):
            total.update(len(part).to_bytes(8, "big"))
            total.update(part)
        return total.digest()

    def names(self, book: Ledger, recipe: str) -> list[bytes]:
        """The names under which the ledger keeps the releases of these rows."""
        rows = zip(self.subjects, self.contents(), strict=True)
        return [book.name(recipe, who, content) for who, content in rows]

    def take(self, rows: list[int]) -> list[str] | Vectors:
        if isinstance(self.values, list):
            return [self.values[row] for row in rows]
        return self.values[rows]


@dataclass(frozen=True)
class Source:
    """The columns of a file that are to be read: texts or vectors, and the subjects if any."""

    path: Path
    kind: Kind
    column: str
    subject: str | None
    size: int

    def blocks(self, progress: Progress = silent) -> Iterator[Block]:
        """The rows in blocks of `size`, every row checked."""
        columns = list(dict.fromkeys([self.column, *([self.subject] if self.subject else [])]))
        start, width = 0, None
        for values, whose in _regular(_batches(self.path, columns, progress), self.size):
            if self.kind == "vectors":
                checked: list[str] | Vectors = _matrix(values, self.column, start, width)
                width = np.shape(checked)[1]
            else:
                checked = _texts(values, self.column, start)
            subjects = _subjects(whose, self.subject, start) if self.subject else []
            yield Block(start // self.size, start, checked, subjects)
            start += len(values)


def joined(digests: Iterable[bytes]) -> str:
    """One digest of all blocks."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _regular(batches: Iterable[list[list[Any]]], size: int) -> Iterator[tuple[list[Any], ...]]:
    """The same rows cut anew: (values, subjects), each `size` long but for the last."""
    held: list[list[Any]] = [[], []]
    for batch in batches:
        for store, column in zip(held, (batch[0], batch[-1]), strict=True):
            store.extend(column)
        while len(held[0]) >= size:
            yield tuple(store[:size] for store in held)
            held = [store[size:] for store in held]
    if held[0]:
        yield tuple(held)


def _texts(values: list[Any], column: str, start: int) -> list[str]:
    for row, value in enumerate(values, start):
        if not isinstance(value, str) or not value.strip():
            empty = value is None or isinstance(value, str)
            found = "empty" if empty else f"of the type {type(value).__name__}"
            raise DataError(
                f"row {row} of the column {column!r} must be a text and is {found}; "
                "nothing was released"
            )
    return values


def _subjects(values: list[Any], column: str, start: int) -> list[str]:
    for row, value in enumerate(values, start):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole and not (isinstance(value, str) and value.strip() and _sound(value)):
            raise DataError(
                f"row {row} of the column {column!r} must name a subject, as a text or a whole "
                f"number, and is {'empty' if value in (None, '') else 'something else'}; "
                "nothing was released"
            )
    return [str(value) for value in values]


def _sound(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def _matrix(values: list[Any], column: str, start: int, width: int | None) -> Vectors:
    """The rows as one float32 array; a row of another width, or not finite, is refused."""
    rows = []
    for number, value in enumerate(values, start):
        row = _vector(value)
        width = width or (len(row) if row is not None else None)
        if row is None or len(row) != width:
            found = "no vector" if row is None else f"{len(row)} numbers, others {width}"
            raise DataError(
                f"row {number} of the column {column!r} has {found}; vectors must be lists of "
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
        given = json.loads(value) if isinstance(value, str) else value
        with np.errstate(over="ignore"):
            row = np.asarray(given, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        return None
    return row if row.ndim == 1 and row.size else None


# ---- files in small batches ----------------------------------------------------------------------


def _batches(source: Path, columns: list[str], progress: Progress) -> Iterator[list[list[Any]]]:
    """The columns, some rows at a time, whatever the kind of file; errors quote no row."""
    kinds = {".parquet": _parquet, ".pq": _parquet, ".csv": _csv, ".tsv": _csv}
    kinds |= {".jsonl": _jsonl, ".ndjson": _jsonl}
    if not source.is_file():
        raise DataError(f"there is no file {str(source)!r}; give the path of a data file")
    if source.suffix.lower() not in kinds:
        raise DataError(
            f"{source.name!r} is not a kind of file that can be read; "
            "give .parquet, .csv, .tsv or .jsonl"
        )
    try:
        yield from kinds[source.suffix.lower()](source, columns, progress)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(source, error) from None


def _parquet(source: Path, columns: list[str], progress: Progress) -> Iterator[list[list[Any]]]:
    with pa.parquet.ParquetFile(source) as file:
        _check_columns(source, columns, file.schema_arrow.names)
        done, total = 0, file.metadata.num_rows
        for batch in file.iter_batches(batch_size=_ROWS, columns=columns):
            yield [_listed(batch[column]) for column in columns]
            done += batch.num_rows
            progress("checking", done, total)


def _csv(source: Path, columns: list[str], progress: Progress) -> Iterator[list[list[Any]]]:
    """Every column is read as text, so that no later row can disagree with an earlier guess."""
    tab = source.suffix.lower() == ".tsv"
    parse = pa.csv.ParseOptions(delimiter="\t" if tab else ",", newlines_in_values=True)
    read, size = pa.csv.ReadOptions(block_size=_READ, use_threads=False), source.stat().st_size
    with pa.csv.open_csv(source, read, parse) as head:
        _check_columns(source, columns, head.schema.names)
    types = pa.csv.ConvertOptions(
        include_columns=columns, column_types=dict.fromkeys(columns, pa.string())
    )
    with source.open("rb") as stream, pa.csv.open_csv(stream, read, parse, types) as reader:
        for batch in reader:
            yield [batch[column].to_pylist() for column in columns]
            progress("checking", stream.tell(), size)


def _jsonl(source: Path, columns: list[str], progress: Progress) -> Iterator[list[list[Any]]]:
    rows: list[list[Any]] = []
    known: dict[str, Any] | None = None
    done, size = 0, source.stat().st_size
    with source.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            done += len(line)
            if line.strip():
                row = _json_row(line, number, source)
                if known is None:
                    _check_columns(source, columns, known := row)
                rows.append([row.get(column) for column in columns])
            if len(rows) == _ROWS:
                yield [list(column) for column in zip(*rows, strict=True)]
                rows = []
                progress("checking", done, size)
    if rows:
        yield [list(column) for column in zip(*rows, strict=True)]


def _json_row(line: bytes, number: int, source: Path) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise DataError(f"line {number} of {source.name!r} is not a JSON object")
    return row


def _check_columns(source: Path, wanted: Iterable[str], found: Iterable[str]) -> None:
    names = list(found)
    for column in wanted:
        if column not in names:
            raise DataError(
                f"{source.name!r} has no column {column!r}; {did_you_mean(column, names)}"
            )


def _listed(column: pa.Array) -> list[Any]:
    """Python values; vectors of one width as arrays, which is far quicker than lists."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        flat, widths = column.flatten(), set(pc.list_value_length(column).to_pylist())
        numbers = pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)
        if numbers and len(widths) == 1 and widths.isdisjoint({None, 0}) and not flat.null_count:
            return list(flat.to_numpy().reshape(len(column), -1))
    return column.to_pylist()
