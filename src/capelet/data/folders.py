"""Many Parquet files as one table: a folder, a pattern or an address that Arrow can read.

Files come in order of their paths, so that a row has the same number each time. Rows of one file
are read by their range, so that another process can read the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from capelet.data.formats import Format
from capelet.data.headers import Header
from capelet.data.streams import Batch, as_list, check_columns, without_empty
from capelet.data.tables import unreadable_file
from capelet.errors import DataError

_ROWS = 1024  # rows of Parquet read at once
_PARQUET = (".parquet", ".pq")
# Files that hold rows, too: to pass over them without a word would be to lose rows.
_OTHERS = (".csv", ".tsv", ".jsonl", ".ndjson")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://")
_BROKEN = (pa.ArrowException, OSError, ValueError)


def is_folder(source: Path | str) -> bool:
    """Whether a source is many files: a folder, a pattern, or an address such as file:///data."""
    name = str(source)
    if _ADDRESS.match(name) or Path(name).is_dir():
        return True
    return _has_wildcard(name) and not Path(name).exists()


def list_files(source: Path | str) -> tuple[str, ...]:
    """The addresses of all Parquet files of a source, in order; hidden ones are none of it."""
    name = str(source)
    system, root, pattern = _place(name)
    try:
        entry = system.get_file_info(root)
        is_file = entry.type == pyarrow.fs.FileType.File
        below = pyarrow.fs.FileSelector(root, recursive=True)
        entries = [entry] if is_file else system.get_file_info(below)
    except (OSError, pa.ArrowException):
        raise DataError(
            f"the folder of {name!r} cannot be read; give a folder of Parquet files"
        ) from None
    paths = [entry.path for entry in entries if entry.type == pyarrow.fs.FileType.File]
    paths = sorted(path for path in paths if not _is_hidden(path, root))
    paths = [path for path in paths if pattern is None or PurePosixPath(path).match(pattern)]
    others = [path for path in paths if path.lower().endswith(_OTHERS)]
    if others:
        raise DataError(
            f"{name!r} holds {len(others):,} files of rows that are not Parquet, such as "
            f"{PurePosixPath(others[0]).name!r}; give a pattern that leaves them out "
            '("folder/*.parquet"), or write them as Parquet'
        )
    files = tuple(path for path in paths if path.lower().endswith(_PARQUET))
    if not files:
        raise DataError(f"there is no Parquet file in {name!r}; give a folder that has some")
    scheme, options = _around_path(name)
    return tuple(f"{scheme}{path}{options}" for path in files)


def name_of(file: str) -> str:
    """The name of a file, as messages have it."""
    return PurePosixPath(_place(file)[1]).name


def is_inside(path: Path, source: Path | str) -> bool:
    """Whether a path of this machine lies within the folder of a source, or is that folder."""
    system, root, _ = _place(str(source))
    is_local = isinstance(system, pyarrow.fs.LocalFileSystem)
    return is_local and path.resolve().is_relative_to(Path(root).resolve())


def count_rows(file: str, columns: Iterable[str]) -> int:
    """How many rows a file has, from its footer; refused where it lacks a column."""
    with _open(file) as parquet:
        check_columns(name_of(file), columns, Header(tuple(parquet.schema_arrow.names)))
        return int(parquet.metadata.num_rows)


def read_range(file: str, columns: list[str], start: int, stop: int, drop_empty: bool) -> Batch:
    """The columns of the rows from `start` to before `stop`; `drop_empty` leaves out empty ones."""
    rows: Batch = [[] for _ in columns]
    with _open(file) as parquet:
        for batch, first in _batches(parquet, columns, start, stop):
            part = batch.slice(max(0, start - first), stop - max(start, first))
            for store, column in zip(rows, columns, strict=True):
                store.extend(as_list(part[column]))
    return without_empty(rows) if drop_empty else rows


def _batches(
    parquet: pa.parquet.ParquetFile, columns: list[str], start: int, stop: int
) -> Iterator[tuple[Any, int]]:
    """Batches that overlap the range, each with the number of its first row."""
    groups, first, position = [], None, 0
    # Only row groups that overlap: a task in the middle of a large file reads no more than its own.
    for number in range(parquet.num_row_groups):
        size = parquet.metadata.row_group(number).num_rows
        if position < stop and position + size > start:
            groups.append(number)
            first = position if first is None else first
        position += size
    position = first or 0
    for batch in parquet.iter_batches(batch_size=_ROWS, row_groups=groups, columns=columns):
        if position < stop and position + batch.num_rows > start:
            yield batch, position
        position += batch.num_rows


@contextmanager
def _open(file: str) -> Iterator[pa.parquet.ParquetFile]:
    system, path, _ = _place(file)
    try:
        with system.open_input_file(path) as stream:
            yield pa.parquet.ParquetFile(stream)
    except _BROKEN as error:
        raise unreadable_file(Path(PurePosixPath(path).name), error, Format()) from None


def _place(name: str) -> tuple[pyarrow.fs.FileSystem, str, str | None]:
    """The file system of an address, the folder (or file) in it, and the pattern if there is one.

    A path of this machine comes back absolute: a worker may be in another folder.
    """
    if _ADDRESS.match(name):
        try:
            # In an address `?` is no wildcard: it begins options, such as the region of a bucket.
            address, mark, options = name.partition("?")
            base, pattern = _cut(address)
            system, path = pyarrow.fs.FileSystem.from_uri(base + mark + options)
        except (pa.ArrowException, ValueError, OSError):
            raise DataError(
                f"{name!r} is not an address that can be read; give one such as file:///data/in, "
                "s3://bucket/in or gs://bucket/in"
            ) from None
        return system, path, None if pattern is None else f"{path.rstrip('/')}/{pattern}"
    has_wildcard = _has_wildcard(name) and not Path(name).exists()
    base, pattern = _cut(str(Path(name).absolute())) if has_wildcard else (name, None)
    path = str(Path(base).absolute())
    return pyarrow.fs.LocalFileSystem(), path, pattern and f"{path.rstrip('/')}/{pattern}"


def _cut(name: str) -> tuple[str, str | None]:
    """A path up to its first part with a wildcard, and what follows."""
    parts = name.split("/")
    places = [place for place, part in enumerate(parts) if _has_wildcard(part)]
    if not places:
        return name, None
    return "/".join(parts[: places[0]]) or "/", "/".join(parts[places[0] :])


def _has_wildcard(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _is_hidden(path: str, root: str) -> bool:
    """Whether a part of the path below the folder begins as temporaries and marks do."""
    below = PurePosixPath(path).relative_to(PurePosixPath(root)).parts
    return any(part.startswith((".", "_")) for part in below)


def _around_path(name: str) -> tuple[str, str]:
    """What stands before and after the path in the address of a file; nothing on this machine."""
    match = _ADDRESS.match(name)
    if match is None or match[0] == "file://":
        return "", ""
    _, mark, options = name.partition("?")
    return match[0], mark + options
