"""Columns of a file of any size, or of a named set, some rows at a time: constant memory.

`corpus` reads a file whole, since an audit needs all rows at once. A release does not: here only a
thousand rows are held, and a file that is larger than the memory can be released.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from capelet.data.corpus import Corpus
from capelet.data.datasets import DATASETS, load, path
from capelet.data.readers import unreadable
from capelet.errors import DataError, did_you_mean
from capelet.interfaces import Progress, silent

# The column of the texts in every named set.
TEXT = "text"
_READ = 1 << 22  # bytes of CSV read at once; no row may be longer
_ROWS = 1024  # rows of Parquet and JSONL read at once

Batch = list[list[Any]]


def is_named(source: Path | str) -> bool:
    """Whether this is the name of a data set, and of nothing on the disk."""
    return str(source) in DATASETS and not Path(source).exists()


def column_batches(
    source: Path, columns: list[str], progress: Progress = silent
) -> Iterator[Batch]:
    """The columns, some rows at a time, whatever the kind of file; errors quote no row.

    A named set is its file; the embedded sample, which has none, is made in memory.
    """
    if is_named(source):
        if str(source) == "reviews":
            yield from _in_memory(load("reviews"), columns)
            return
        source = path(str(source))
    kinds = {".parquet": _parquet, ".pq": _parquet, ".csv": _csv, ".tsv": _csv}
    kinds |= {".jsonl": _jsonl, ".ndjson": _jsonl}
    if not source.suffix and not source.exists():
        hint = did_you_mean(str(source), DATASETS)
        raise DataError(f"there is no file and no set {str(source)!r}; {hint}")
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


def _in_memory(corpus: Corpus, columns: list[str]) -> Iterator[Batch]:
    """The columns of a corpus by the names that its file would have."""
    label = {corpus.label_name or "label": corpus.label}
    columns_by_name = {TEXT: corpus.texts, **label, **corpus.private, "author": corpus.author}
    present = {name: values for name, values in columns_by_name.items() if values is not None}
    _check_columns(Path(corpus.name), columns, present)
    for start in range(0, len(corpus), _ROWS):
        yield [present[column][start : start + _ROWS].tolist() for column in columns]


def _parquet(source: Path, columns: list[str], progress: Progress) -> Iterator[Batch]:
    with pa.parquet.ParquetFile(source) as file:
        _check_columns(source, columns, file.schema_arrow.names)
        position, total = 0, file.metadata.num_rows
        for batch in file.iter_batches(batch_size=_ROWS, columns=columns):
            yield [_as_list(batch[column]) for column in columns]
            position += batch.num_rows
            progress("checking", position, total)


def _csv(source: Path, columns: list[str], progress: Progress) -> Iterator[Batch]:
    """Every column is read as text, so that no later row can disagree with an earlier guess."""
    tab = source.suffix.lower() == ".tsv"
    # A quoted text may hold line breaks.
    parse = pa.csv.ParseOptions(delimiter="\t" if tab else ",", newlines_in_values=True)
    # One thread: others would read ahead and hold more of the file in memory.
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


def _jsonl(source: Path, columns: list[str], progress: Progress) -> Iterator[Batch]:
    rows: list[list[Any]] = []
    first: dict[str, Any] | None = None
    position, size = 0, source.stat().st_size
    with source.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            position += len(line)
            if line.strip():
                row = _json_row(line, number, source)
                if first is None:
                    _check_columns(source, columns, first := row)
                rows.append([row.get(column) for column in columns])
            if len(rows) == _ROWS:
                yield [list(column) for column in zip(*rows, strict=True)]
                rows = []
                progress("checking", position, size)
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


def _check_columns(source: Path, columns: Iterable[str], present: Iterable[str]) -> None:
    names = list(present)
    for column in columns:
        if column not in names:
            raise DataError(
                f"{source.name!r} has no column {column!r}; {did_you_mean(column, names)}"
            )


def _as_list(column: pa.Array) -> list[Any]:
    """Python values; vectors of one width as arrays, which is far quicker than lists."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        flat, widths = column.flatten(), set(pc.list_value_length(column).to_pylist())
        numbers = pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)
        if numbers and len(widths) == 1 and widths.isdisjoint({None, 0}) and not flat.null_count:
            return list(flat.to_numpy().reshape(len(column), -1))
    return column.to_pylist()
