"""Anything with rows and columns as one Arrow table: files, data frames, `datasets`, lists.

Libraries of data frames are never imported here: a table is known by the Arrow interface that it
offers (`__arrow_c_stream__`: pandas, Polars, Arrow itself) or by the module of its class.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capelet.data.formats import KINDS, SEPARATORS, Format, detect_encoding, detect_separator
from capelet.data.headers import Header
from capelet.data.messages import several_columns, unreadable
from capelet.errors import DataError, name_field

# What a column of a list of texts, or of a matrix, is called.
TEXT, VECTORS = "text", "vectors"


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table with what it is called in messages and whether its columns have certain names."""

    name: str
    table: pa.Table
    header: Header
    hint: str = ""  # what to give where a column is missed, such as another separator

    @classmethod
    def of(cls, source: Any, layout: Format | None = None) -> Sheet:
        """A file or folder by its path; a data frame, `datasets`, lists or arrays as they are."""
        if isinstance(source, Sheet):
            return source
        if isinstance(source, str | Path):
            return read_file(Path(source), layout or Format())
        table = _plain(_table_of(source))
        return cls(type(source).__name__, table, Header(tuple(table.column_names)))

    def column(self, name: str) -> pa.ChunkedArray:
        """The column of that name; two of one name are refused."""
        count = self.table.column_names.count(name)
        if count > 1:
            raise several_columns(self.name, name, count)
        return self.table[name]


# ---- files ---------------------------------------------------------------------------------------


def read_file(source: Path, layout: Format) -> Sheet:
    """The table of a Parquet, CSV or JSONL file, or of a folder saved by `datasets`."""
    if not source.exists():
        raise DataError(f"there is no file {str(source)!r}; give the path of a data file")
    if not source.is_dir() and not source.is_file():
        # Reading a pipe may never end, and it cannot be read twice.
        raise DataError(f"{str(source)!r} is neither a file nor a folder; save it to a file first")
    kind = KINDS.get(source.suffix.lower())
    try:
        if source.is_dir():
            table = _read_datasets_folder(source)
        elif kind == "parquet":
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(source)
        elif kind == "csv":
            return _read_csv(source, layout)
        elif kind == "jsonl":
            table = _read_jsonl(source, layout)
        else:
            raise DataError(
                f"{source.name!r} is not a kind of file that can be read; "
                "give .parquet, .csv, .tsv, .jsonl or a folder saved by Hugging Face datasets"
            )
    except (pa.ArrowException, OSError, UnicodeError, ValueError, OverflowError) as error:
        raise unreadable_file(source, error, layout) from None
    return Sheet(source.name, _plain(table), Header(tuple(table.column_names)))


def unreadable_file(source: Path, error: Exception, layout: Format) -> DataError:
    """The complaint about a broken file, with the likely encoding where that is what is wrong."""
    kind, hint = KINDS.get(source.suffix.lower()), ""
    if kind in ("csv", "jsonl"):
        encoding = detect_encoding(source)
        if encoding != layout.encoding_of(source) and layout.encoding is None:
            field = name_field("encoding", encoding)
            hint = f"it is not UTF-8, and looks like {encoding}: give {field}"
        elif kind == "csv":
            hint = separator_hint(source, layout)
    return unreadable(source.name, source.suffix or "a datasets folder", error, hint)


def separator_hint(source: Path, layout: Format) -> str:
    """What to give where the columns seem to be parted by another sign; empty where they do not."""
    likely = detect_separator(source, layout.encoding or detect_encoding(source))
    if layout.separator is not None or likely == layout.separator_of(source):
        return ""
    word = SEPARATORS[likely]
    return f"its columns seem to be parted by {word}s: give {name_field('separator', word)}"


def csv_options(source: Path, layout: Format) -> tuple[Any, Any]:
    """How Arrow is to read and to parse this file."""
    import pyarrow.csv

    # A quoted text may hold line breaks.
    parse = pyarrow.csv.ParseOptions(delimiter=layout.separator_of(source), newlines_in_values=True)
    return pyarrow.csv.ReadOptions(encoding=layout.encoding_of(source)), parse


def _read_csv(source: Path, layout: Format) -> Sheet:
    import pyarrow.csv

    read, parse = csv_options(source, layout)
    table = pyarrow.csv.read_csv(source, read_options=read, parse_options=parse)
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        # What is not UTF-8 comes as bytes, without a word.
        raise pa.ArrowInvalid("not UTF-8")
    header = Header.of_first_line(table.column_names, table.columns)
    # One column is what every wrong separator makes of a file.
    hint = separator_hint(source, layout) if len(header.names) == 1 else ""
    return Sheet(source.name, table, header, hint)


def _read_jsonl(source: Path, layout: Format) -> pa.Table:
    return _from_dicts([row for row, _ in json_rows(source, layout)])


def json_rows(source: Path, layout: Format) -> Iterator[tuple[dict[str, Any], int]]:
    """The object of each line that is not blank, and how many characters were read with it."""
    encoding = layout.encoding_of(source)
    # A byte-order mark is no part of the first object.
    with source.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding) as stream:
        size = 0
        for number, line in enumerate(stream, 1):
            size += len(line)
            if line.strip():
                yield json_row(line, number, source.name), size


def json_row(line: str | bytes, number: int, name: str) -> dict[str, Any]:
    """One line of JSONL; what is no object is refused by the number of its line."""
    try:
        row = json.loads(line)
    except RecursionError:
        raise DataError(f"line {number} of {name!r} is nested too deeply to be read") from None
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise DataError(f"line {number} of {name!r} is not a JSON object")
    return row


def _read_datasets_folder(source: Path) -> pa.Table:
    """A `datasets` folder (`save_to_disk`) is Arrow streams; a dict of splits is joined."""
    shards = sorted(source.glob("*.arrow")) or sorted(source.glob("*/*.arrow"))
    if not shards:
        raise DataError(
            f"the folder {source.name!r} holds no .arrow files; give a file, or a folder that "
            "Hugging Face datasets wrote with save_to_disk"
        )
    tables = []
    for shard in shards:
        with pa.memory_map(str(shard)) as stream:
            tables.append(pa.ipc.open_stream(stream).read_all())
    table = pa.concat_tables(tables, promote_options="default")
    metadata = (table.schema.metadata or {}).get(b"huggingface")
    return _name_classes(table, _class_names(metadata))


def _class_names(metadata: bytes | None) -> dict[str, list[str]]:
    """The names of the classes of each column; none where the metadata are not as they should."""
    try:
        features = json.loads(metadata or b"{}")["info"]["features"]
        return {
            name: [str(item) for item in feature["names"]]
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _name_classes(table: pa.Table, names: Mapping[str, Sequence[str]]) -> pa.Table:
    for name, classes in names.items():
        if name not in table.column_names or not pa.types.is_integer(table[name].type):
            continue
        codes = table[name].combine_chunks()
        # `datasets` writes a missing label as −1.
        inside = pc.and_(pc.greater_equal(codes, 0), pc.less(codes, len(classes)))
        codes = pc.if_else(inside, codes, None)
        index = table.column_names.index(name)
        table = table.set_column(index, name, pa.array([*classes], pa.string()).take(codes))
    return table


# ---- tables in memory ----------------------------------------------------------------------------


def _module(source: Any) -> str:
    return type(source).__module__.partition(".")[0]


def _table_of(source: Any) -> pa.Table:
    if _module(source) == "datasets":
        return _from_datasets(source)
    if _module(source) == "pandas":
        return _from_pandas(source)
    if _module(source) == "polars" and hasattr(source, "collect"):
        source = source.collect()  # a lazy frame
    if isinstance(source, pa.Table):
        return source
    if hasattr(source, "__arrow_c_stream__") or isinstance(source, pa.RecordBatch):
        return pa.table(source)
    if isinstance(source, np.ndarray) and source.ndim == 2 and source.dtype.kind in "fiu":
        return pa.table({VECTORS: _column(list(source))})
    if isinstance(source, Mapping):
        return _from_columns({str(name): values for name, values in source.items()})
    if isinstance(source, list | tuple) or (isinstance(source, np.ndarray) and source.ndim):
        return _from_rows(list(source))
    raise DataError(
        f"a {type(source).__name__} is no table: give the path of a file, a data frame of pandas "
        "or Polars, an Arrow table, a Hugging Face Dataset, a dict of columns or a list of rows"
    )


def _from_pandas(frame: Any) -> pa.Table:
    """A data frame column by column: one of mixed types must not take the others with it."""
    if not hasattr(frame, "columns"):
        raise DataError(f"a {type(frame).__name__} of pandas is one column; give a DataFrame")
    columns, names = [], []
    for place, name in enumerate(frame.columns):
        names.append(str(name))
        try:
            columns.append(pa.Array.from_pandas(frame.iloc[:, place]))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            columns.append(_column(frame.iloc[:, place].tolist()))
    return pa.table(columns, names=names)


def _from_datasets(source: Any) -> pa.Table:
    """A Hugging Face `Dataset`, or all splits of a `DatasetDict`; class labels get their names."""
    if isinstance(source, Mapping):
        return pa.concat_tables([_from_datasets(part) for part in source.values()])
    if not hasattr(source, "with_format") or not hasattr(source, "__len__"):
        raise DataError(
            f"a {type(source).__name__} is read once and has no length; give a Dataset, "
            "as Dataset.from_list(list(...)) makes it"
        )
    # By its own door, which minds rows that were filtered or shuffled.
    table = source.with_format("arrow")[:]
    names = {
        name: list(feature.names)
        for name, feature in source.features.items()
        if type(feature).__name__ == "ClassLabel"
    }
    return _name_classes(table, names)


def _from_columns(columns: Mapping[str, Any]) -> pa.Table:
    lists = {name: _cells(values) for name, values in columns.items()}
    lengths = sorted({len(values) for values in lists.values()})
    if len(lengths) > 1:
        listing = ", ".join(map(str, lengths[:6]))
        raise DataError(f"the columns differ in length: {listing}; give one value for each row")
    return pa.table({name: _column(values) for name, values in lists.items()})


def _cells(values: Any) -> list[Any]:
    # An array of no dimension has a length by name only.
    is_list = hasattr(values, "__len__") and getattr(values, "ndim", 1) > 0
    if isinstance(values, str | bytes) or not is_list:
        raise DataError(
            f"a column must be a list or an array, and one is a {type(values).__name__}"
        )
    return list(values)


def _from_rows(rows: list[Any]) -> pa.Table:
    """Rows as dicts, or texts alone."""
    if rows and all(isinstance(row, Mapping) for row in rows):
        return _from_dicts(rows)
    if all(isinstance(row, str) or row is None for row in rows):
        return pa.table({TEXT: _column(rows)})
    raise DataError(
        "a list must hold texts, or a dict for each row; for columns give a dict of lists"
    )


def _from_dicts(rows: Sequence[Mapping[Any, Any]]) -> pa.Table:
    # Rows may lack keys: the columns are all that occur, in the order of their first row.
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({_whole(str(name)): _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> pa.Array:
    """An Arrow column; values of mixed types become text, so that nothing is lost silently."""
    # numpy's own scalars and NaN in the place of a missing text.
    cells = [value.item() if isinstance(value, np.generic) else value for value in values]
    if any(isinstance(value, str) for value in cells):
        cells = [None if value != value else value for value in cells]
    try:
        return pa.array(cells)
    except UnicodeEncodeError:
        # Half of a surrogate pair has no UTF-8.
        return _column([_whole(value) if isinstance(value, str) else value for value in cells])
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.array([None if value is None else _as_text(value) for value in cells])


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (ValueError, TypeError, RecursionError):
        return _whole(str(value))


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _plain(table: pa.Table) -> pa.Table:
    """Dictionaries and views as the plain types that comparisons and Python know."""
    for place, field in enumerate(table.schema):
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if kind in (pa.string_view(), pa.binary_view()):
            kind = pa.large_string() if kind == pa.string_view() else pa.large_binary()
        if kind != field.type:
            table = table.set_column(place, field.name, table.column(place).cast(kind))
    return table
