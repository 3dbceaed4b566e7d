"""Readers: a Corpus from Parquet, CSV, JSONL or a folder of Hugging Face `datasets`.

What a file holds is private, so no complaint quotes it: an error names a column, a row number and
a type, never a value. `--where` is parsed, and compared by Arrow; nothing in it is ever evaluated.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from capelet.data.corpus import Corpus, Values
from capelet.errors import DataError, did_you_mean


def read(
    path: Path | str,
    text: str | None = None,
    *,
    label: str | None = None,
    private: Sequence[str] = (),
    author: str | None = None,
    vectors: str | None = None,
    where: str | None = None,
) -> Corpus:
    """Read a Parquet, CSV or JSONL file, or a folder saved by Hugging Face `datasets`.

    Example: `read("reviews.parquet", text="review", label="stars", private=["gender", "age"])`.
    `where` keeps the rows for which a simple expression holds: `where="language == 'en'"`.
    """
    source = Path(path)
    table = _read_table(source)
    if text is None and vectors is None:
        raise DataError(
            f"which column of {source.name!r} holds the texts? Give text= (--text) or, for ready "
            f"vectors, vectors= (--vectors); it has {', '.join(table.column_names)}"
        )
    # All names are checked before any column becomes Python values, which may take minutes.
    names = [name for name in (text, vectors, label, author, *private) if name is not None]
    for name in names:
        if name not in table.column_names:
            raise DataError(
                f"{source.name!r} has no column {name!r}; "
                f"{did_you_mean(name, table.column_names)} "
                f"(columns: {', '.join(table.column_names)})"
            )
    if where is not None:
        table = _filter(table, where)
    if table.num_rows == 0:
        raise DataError(f"{source.name!r} has no rows" + (f" where {where}" if where else ""))
    columns = {name: _values(table[name]) for name in names if name != vectors}
    return Corpus(
        name=source.name,
        texts=_texts(columns[text], text) if text is not None else None,
        vectors=_vectors(table[vectors], vectors) if vectors is not None else None,
        label_name=label,
        label=columns[label] if label is not None else None,
        private={name: columns[name] for name in private},
        author=_authors(columns[author], author) if author is not None else None,
        where=where,
    )


def _read_table(source: Path) -> pa.Table:
    if not source.exists():
        raise DataError(f"there is no file {str(source)!r}; give the path of a data file")
    try:
        if source.is_dir():
            return _read_datasets_folder(source)
        match source.suffix.lower():
            case ".parquet" | ".pq":
                import pyarrow.parquet

                return pyarrow.parquet.read_table(source)
            case ".csv" | ".tsv":
                import pyarrow.csv

                options = pyarrow.csv.ParseOptions(
                    delimiter="\t" if source.suffix.lower() == ".tsv" else ",",
                    newlines_in_values=True,
                )
                return pyarrow.csv.read_csv(source, parse_options=options)
            case ".jsonl" | ".ndjson":
                return _read_jsonl(source)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(source, error) from None
    raise DataError(
        f"{source.name!r} is not a kind of file that can be read; "
        "give .parquet, .csv, .tsv, .jsonl or a folder saved by Hugging Face datasets"
    )


def unreadable(source: Path, error: Exception) -> DataError:
    """The complaint about a broken file: never the library's message, which may quote a row."""
    # A row number and a number of columns are all that may be passed on.
    place = re.search(r"Row #\d+|Expected \d+ columns, got \d+", str(error))
    return DataError(
        f"{source.name!r} cannot be read as {source.suffix or 'a datasets folder'} "
        f"({place.group() if place else type(error).__name__}); is it whole, and of that kind?"
    )


def _read_jsonl(source: Path) -> pa.Table:
    rows = []
    with source.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                row = None
            if not isinstance(row, dict):
                raise DataError(f"line {number} of {source.name!r} is not a JSON object")
            rows.append(row)
    # Rows may lack keys: the columns are all that occur, in the order of their first row.
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: _json_column([row.get(name) for row in rows]) for name in names})


def _json_column(values: list[Any]) -> pa.Array:
    """An Arrow column; values of mixed types become text, so that nothing is lost silently."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else json.dumps(value) for value in values])


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
    features = json.loads(metadata)["info"]["features"] if metadata else {}
    for name, feature in features.items():
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            names = pa.array([*feature["names"]])
            index = table.column_names.index(name)
            codes = table[name].combine_chunks()
            # `datasets` writes a missing label as −1.
            codes = pc.if_else(pc.less(codes, 0), None, codes)
            table = table.set_column(index, name, names.take(codes))
    return table


_COMPARE = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}


def _filter(table: pa.Table, where: str) -> pa.Table:
    """Rows for which a comparison of columns with literals holds; nothing is evaluated."""
    complaint = DataError(
        f"--where {where!r} is not understood; compare columns with literals, "
        "as in \"language == 'en' and age > 30\" or \"country in ['US', 'UK']\""
    )

    def compute(node: ast.expr) -> Any:
        match node:
            case ast.BoolOp(op=op, values=values):
                # Three-valued logic: a comparison with a missing value is neither true nor false.
                join = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
                result = compute(values[0])
                for value in values[1:]:
                    result = join(result, compute(value))
                return result
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return pc.invert(compute(operand))
            case ast.Compare(left=ast.Name(id=name), ops=[operator], comparators=[right]):
                if name not in table.column_names:
                    raise DataError(
                        f"--where names a column {name!r}; {did_you_mean(name, table.column_names)}"
                    )
                return compare(table[name], operator, ast.literal_eval(right))
        raise complaint

    def compare(column: pa.ChunkedArray, operator: ast.cmpop, literal: Any) -> Any:
        if isinstance(operator, ast.In | ast.NotIn):
            # Typed like the column: a literal of another kind is refused, not silently unequal.
            inside = pc.is_in(column, pa.array(literal, type=column.type))
            if isinstance(operator, ast.In):
                return inside
            # `is_in` calls a missing value "not inside"; `not in` must not keep it.
            return pc.and_(pc.invert(inside), pc.is_valid(column))
        return _COMPARE[type(operator)](column, pa.scalar(literal))

    try:
        return table.filter(compute(ast.parse(where, mode="eval").body))
    except (SyntaxError, ValueError, TypeError, KeyError, pa.ArrowException):
        raise complaint from None


def _values(column: pa.ChunkedArray) -> Values:
    """Python values, None where missing; numbers keep their type so that they can be binned."""
    cells = column.to_pylist()
    values = np.empty(len(cells), dtype=object)
    for row, value in enumerate(cells):
        # An empty cell of a CSV, a null and NaN all mean that nobody knows.
        missing = value is None or value == "" or (isinstance(value, float) and np.isnan(value))
        values[row] = None if missing else value
    return values


def _texts(values: Values, column: str) -> Values:
    wrong = [
        row for row, value in enumerate(values) if not isinstance(value, str) or not value.strip()
    ]
    if wrong:
        first = values[wrong[0]]
        what = "empty" if first is None or isinstance(first, str) else type(first).__name__
        raise DataError(
            f"column {column!r} must hold texts: {len(wrong)} of {len(values)} rows are empty or "
            f"not strings (the first is row {wrong[0]}: {what}); remove them, or keep the others "
            "with --where"
        )
    return values


def _authors(values: Values, column: str) -> Values:
    missing = sum(value is None for value in values)
    if missing:
        raise DataError(
            f"column {column!r} must name an author on every row: {missing} of {len(values)} are "
            "empty; fill them or keep the others with --where"
        )
    return np.array([str(value) for value in values], dtype=object)


def _vectors(column: pa.ChunkedArray, name: str) -> npt.NDArray[np.float32]:
    """`(n, d)` floats from a list column (or JSON lists in a CSV); broken ones are refused."""
    rows = column.to_pylist()
    if rows and isinstance(rows[0], str):
        try:
            rows = [json.loads(row) for row in rows]
        except (json.JSONDecodeError, TypeError):
            raise DataError(f"column {name!r} holds text, not vectors") from None
    widths = {len(row) if isinstance(row, list) else None for row in rows}
    if None in widths or len(widths) != 1 or widths == {0}:
        lengths = ", ".join(sorted(str(width) for width in widths if width is not None)[:6])
        raise DataError(
            f"column {name!r} must hold vectors of one length; found lengths {lengths}"
            + (" and rows without a vector" if None in widths else "")
        )
    try:
        matrix = np.array(rows, dtype=np.float32)
    except (ValueError, TypeError):
        raise DataError(f"column {name!r} must hold vectors of numbers") from None
    bad_rows = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad_rows):
        raise DataError(
            f"column {name!r} has NaN or infinite numbers in {len(bad_rows)} of {len(matrix)} rows "
            f"(the first is row {bad_rows[0]}); repair or remove them"
        )
    return matrix
