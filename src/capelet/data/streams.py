"""Columns of a file of any size, or of a named set, some rows at a time: constant memory.

`corpus` reads a file whole, since an audit needs all rows at once. A release does not: here only a
thousand rows are held, and a file that is larger than the memory can be released.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from capelet.data.corpus import Corpus
from capelet.data.datasets import DATASETS, load, path
from capelet.data.formats import KINDS, Format
from capelet.data.headers import Header
from capelet.data.messages import kind_of, no_column, several_columns
from capelet.data.tables import TEXT, csv_options, json_rows, separator_hint, unreadable_file
from capelet.errors import DataError, did_you_mean
from capelet.interfaces import Progress, silent

# TEXT is the column of the texts in every named set.
__all__ = [
    "TEXT",
    "Batch",
    "as_list",
    "check_columns",
    "column_batches",
    "count_empty",
    "is_named",
    "without_empty",
]

_READ = 1 << 22  # bytes of CSV read at once; no row may be longer
_ROWS = 1024  # rows of Parquet and JSONL read at once

Batch = list[list[Any]]


def is_named(source: Path | str) -> bool:
    """Whether this is the name of a data set, and of nothing on the disk."""
    return str(source) in DATASETS and not Path(source).exists()


def column_batches(
    source: Path,
    columns: list[str],
    progress: Progress = silent,
    layout: Format | None = None,
) -> Iterator[Batch]:
    """The columns, some rows at a time, whatever the kind of file; errors quote no row.

    A named set is its file; the embedded sample, which has none, is made in memory.
    """
    if is_named(source):
        if str(source) == "reviews":
            yield from _in_memory(load("reviews"), columns)
            return
        source = path(str(source))
    kind = KINDS.get(source.suffix.lower())
    layout = layout or Format()
    if not source.suffix and not source.exists():
        hint = did_you_mean(str(source), DATASETS)
        raise DataError(f"there is no file and no set {str(source)!r}; {hint}")
    if not source.is_file():
        raise DataError(f"there is no file {str(source)!r}; give the path of a data file")
    if kind is None:
        raise DataError(
            f"{source.name!r} is not a kind of file that can be read; "
            "give .parquet, .csv, .tsv or .jsonl"
        )
    try:
        for batch in _READERS[kind](source, columns, progress, layout):
            yield without_empty(batch) if layout.drop_empty else batch
    except (pa.ArrowException, OSError, UnicodeError, ValueError, OverflowError) as error:
        raise unreadable_file(source, error, layout) from None


def count_empty(source: Path, columns: list[str], layout: Format) -> int:
    """How many rows `drop_empty` leaves out: nothing is left out without a word."""
    every = replace(layout, drop_empty=False)
    batches = column_batches(source, columns, layout=every)
    return sum(len(batch[0]) - len(without_empty(batch)[0]) for batch in batches)


def without_empty(batch: Batch) -> Batch:
    """The rows that have a value in every column."""
    whole = [all(kind_of(value) != "empty" for value in row) for row in zip(*batch, strict=True)]
    return [[v for v, keep in zip(column, whole, strict=True) if keep] for column in batch]


def _in_memory(corpus: Corpus, columns: list[str]) -> Iterator[Batch]:
    """The columns of a corpus by the names that its file would have."""
    label = {corpus.label_name or "label": corpus.label}
    columns_by_name = {TEXT: corpus.texts, **label, **corpus.private, "author": corpus.author}
    present = {name: values for name, values in columns_by_name.items() if values is not None}
    check_columns(corpus.name, columns, Header(tuple(present)))
    for start in range(0, len(corpus), _ROWS):
        yield [present[column][start : start + _ROWS].tolist() for column in columns]


def _parquet(
    source: Path, columns: list[str], progress: Progress, layout: Format
) -> Iterator[Batch]:
    with pa.parquet.ParquetFile(source) as file:
        check_columns(source.name, columns, Header(tuple(file.schema_arrow.names)))
        position, total = 0, file.metadata.num_rows
        for batch in file.iter_batches(batch_size=_ROWS, columns=columns):
            yield [as_list(batch[column]) for column in columns]
            position += batch.num_rows
            progress("checking", position, total)


def _csv(source: Path, columns: list[str], progress: Progress, layout: Format) -> Iterator[Batch]:
    """Every column is read as text, so that no later row can disagree with an earlier guess."""
    read, parse = csv_options(source, layout)
    # One thread: others would read ahead and hold more of the file in memory.
    read.block_size, read.use_threads, size = _READ, False, source.stat().st_size
    with pa.csv.open_csv(source, read, parse) as head:
        # A file of a header alone has no batch.
        batches = [batch for batch in (next(iter(head), None),) if batch is not None]
        block = pa.Table.from_batches(batches, head.schema)
        header = Header.of_first_line(block.column_names, block.columns)
        hint = separator_hint(source, layout) if len(header.names) == 1 else ""
        check_columns(source.name, columns, header, hint)
    types = pa.csv.ConvertOptions(
        include_columns=columns, column_types=dict.fromkeys(columns, pa.string())
    )
    with source.open("rb") as stream, pa.csv.open_csv(stream, read, parse, types) as reader:
        for batch in reader:
            yield [batch[column].to_pylist() for column in columns]
            progress("checking", stream.tell(), size)


def _jsonl(source: Path, columns: list[str], progress: Progress, layout: Format) -> Iterator[Batch]:
    size, lines = source.stat().st_size, json_rows(source, layout)
    is_first = True
    while block := list(itertools.islice(lines, _ROWS)):
        if is_first:
            check_columns(source.name, columns, Header(tuple(block[0][0])))
            is_first = False
        yield [[row.get(column) for row, _ in block] for column in columns]
        progress("checking", block[-1][1], size)


_READERS = {"parquet": _parquet, "csv": _csv, "jsonl": _jsonl}


def check_columns(name: str, columns: Iterable[str], header: Header, hint: str = "") -> None:
    """Refuse a file that lacks one of the columns, or has it several times."""
    names = list(columns)
    for column in names:
        if column not in header.names:
            raise no_column(name, column, header.confirm(names), hint)
        if (count := header.names.count(column)) > 1:
            raise several_columns(name, column, count)


def as_list(column: pa.Array) -> list[Any]:
    """Python values; vectors of one width as arrays, which is far quicker than lists."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        flat, widths = column.flatten(), set(pc.list_value_length(column).to_pylist())
        numbers = pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)
        if numbers and len(widths) == 1 and widths.isdisjoint({None, 0}) and not flat.null_count:
            return list(flat.to_numpy().reshape(len(column), -1))
    return column.to_pylist()
