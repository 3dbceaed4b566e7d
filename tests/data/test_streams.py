"""Every kind of file gives the same columns, a thousand rows at a time; so does a named set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from capelet.data.datasets import load
from capelet.data.formats import Format
from capelet.data.streams import column_batches, count_empty, is_named
from capelet.errors import DataError

ROWS = {"text": [f"text {row}" for row in range(2500)], "who": [str(row) for row in range(2500)]}


def write(path: Path) -> Path:
    table = pa.table(ROWS)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        pa.csv.write_csv(table, path)
    return path


def joined(batches: Any) -> list[list[Any]]:
    columns: list[list[Any]] = [[], []]
    for batch in batches:
        for column, values in zip(columns, batch, strict=True):
            column.extend(values)
    return columns


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_all_kinds_of_file_give_the_same_rows(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"rows.{kind}")
    assert joined(column_batches(path, ["who", "text"])) == [ROWS["who"], ROWS["text"]]
    if kind != "csv":  # whose blocks are counted in bytes
        sizes = [len(batch[0]) for batch in column_batches(path, ["text"])]
        assert sizes == [1024, 1024, 452]
    with pytest.raises(DataError, match="has no column 'txet'; did you mean 'text'"):
        list(column_batches(path, ["txet"]))


def test_the_embedded_sample_has_the_columns_of_its_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = load("reviews")
    assert corpus.texts is not None and corpus.author is not None
    columns = joined(column_batches(Path("reviews"), ["text", "author"]))
    assert columns == [corpus.texts.tolist(), corpus.author.tolist()]
    assert is_named("reviews") and not is_named("reviews.parquet")
    monkeypatch.chdir(tmp_path)
    Path("reviews").mkdir()
    assert not is_named("reviews")  # what lies on the disk goes first


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    for name, sentence in (
        ("reviws", "no file and no set 'reviws'; did you mean 'reviews'"),
        (str(tmp_path / "gone.csv"), "there is no file"),
    ):
        with pytest.raises(DataError, match=sentence):
            list(column_batches(Path(name), ["text"]))


def test_empty_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("a;b\nschön;1\n ;2\nx;\ny;4\n".encode("latin-1"))
    layout = Format("cp1252", "semicolon", drop_empty=True)
    assert list(column_batches(path, ["a", "b"], layout=layout)) == [[["schön", "y"], ["1", "4"]]]
    assert count_empty(path, ["a", "b"], layout) == 2
    # The control: they are there unless they are left out.
    every = list(column_batches(path, ["a"], layout=Format("cp1252", "semicolon")))
    assert len(every[0][0]) == 4
    with pytest.raises(DataError, match="give encoding="):
        list(column_batches(path, ["a;b"]))
