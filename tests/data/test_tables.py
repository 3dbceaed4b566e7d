"""Whatever has rows and columns becomes the same table; what is no table is said to be none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from capelet.data.readers import read
from capelet.data.tables import Sheet
from capelet.errors import DataError

ROWS: dict[str, list[Any]] = {
    "body": ["first text", "second text", "third text"],
    "stars": [1, None, 3],
    "sex": ["f", "m", None],
    "user": ["a", "b", "a"],
}


class Stream:
    """What any library of data frames may offer: the Arrow interface, and strings as views."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def from_pandas() -> Any:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(ROWS)
    frame["sex"] = frame["sex"].astype("category")
    return frame


def from_polars() -> Any:
    return pytest.importorskip("polars", reason="Polars is not installed").DataFrame(ROWS)


def from_datasets() -> Any:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    features = datasets.Features(
        {
            "body": datasets.Value("string"),
            "stars": datasets.Value("int64"),
            "sex": datasets.ClassLabel(names=["f", "m"]),
            "user": datasets.Value("string"),
        }
    )
    rows = datasets.Dataset.from_dict({**ROWS, "sex": [0, 1, None]}, features=features)
    # Rows in another order, and put right again: what lies on the disk is not what is asked for.
    return rows.select([2, 1, 0]).select([2, 1, 0])


def from_views() -> Any:
    views = {"body": pa.string_view(), "sex": pa.dictionary(pa.int8(), pa.string())}
    table = pa.table(ROWS)
    for name, kind in views.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, table[name].cast(kind))
    return Stream(table)


MAKERS = {
    "pandas": from_pandas,
    "polars": from_polars,
    "datasets": from_datasets,
    "arrow": lambda: pa.table(ROWS),
    "any frame": from_views,
    "columns": lambda: {name: list(values) for name, values in ROWS.items()},
    "arrays": lambda: {name: np.array(values, dtype=object) for name, values in ROWS.items()},
    "rows": lambda: pa.table(ROWS).to_pylist(),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_all_tables_read_alike(kind: str) -> None:
    corpus = read(MAKERS[kind](), text="body", label="stars", private="sex", author="user")
    assert corpus.texts is not None and corpus.texts.tolist() == ROWS["body"]
    assert corpus.label is not None and corpus.label.tolist() == ROWS["stars"]
    assert corpus.private["sex"].tolist() == ROWS["sex"]
    assert corpus.author is not None and corpus.author.tolist() == ROWS["user"]


def test_lists_of_texts_and_matrices_need_no_names() -> None:
    assert len(read(ROWS["body"])) == 3
    assert read(np.array(ROWS["body"])).texts is not None
    corpus = read(np.ones((3, 2)))
    assert corpus.vectors is not None and corpus.vectors.shape == (3, 2)


def test_a_column_of_mixed_types_becomes_text() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"body": ["a", "b"], "mixed": [1, "one"]})
    assert read(frame, text="body", private=["mixed"]).private["mixed"].tolist() == ["1", '"one"']


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (7, "int is no table"),
        ([1, 2], "must hold texts, or a dict for each row"),
        ({"a": [1], "b": [1, 2]}, "differ in length: 1, 2"),
        ({"a": "text"}, "must be a list or an array"),
        (pa.table([[1], [2]], names=["a", "a"]), "2 columns of the name 'a'"),
    ],
)
def test_what_is_no_table_is_refused(source: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read(source, text="a")


def test_streams_of_datasets_are_refused() -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    stream = datasets.Dataset.from_dict(ROWS).to_iterable_dataset()
    with pytest.raises(DataError, match="no length"):
        read(stream, text="body")


def test_json_that_arrow_cannot_hold_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    rows = [{"a": "fine", "n": 10**30}, {"a": "half \ud800 pair", "n": 1}]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    corpus = read(path, text="a", private=["n"])
    assert corpus.texts is not None and "\ud800" not in corpus.texts[1]
    assert corpus.private["n"].tolist() == [str(10**30), "1"]
    path.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(DataError, match=r"line 1 of .* is nested too deeply"):
        read(path, text="a")


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="neither a file nor a folder"):
        Sheet.of(tmp_path / "pipe.csv")


def test_malformed_metadata_of_datasets_name_no_classes(tmp_path: Path) -> None:
    for number, metadata in enumerate((b"{", b"[]", b'{"info": {"features": {"a": 1}}}')):
        table = pa.table(ROWS).replace_schema_metadata({b"huggingface": metadata})
        folder = tmp_path / str(number)
        folder.mkdir()
        sink = pa.OSFile(str(folder / "data.arrow"), "wb")
        with sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        assert len(read(folder, text="body")) == 3
