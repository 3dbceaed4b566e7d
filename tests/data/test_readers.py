"""All kinds of file read alike; every broken one ends in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from capelet.data.readers import read
from capelet.errors import DataError

ROWS = {
    "body": ["a text, with comma", "second\nline", "third", "fourth"],
    "stars": [1, 5, 3, None],
    "gender": ["f", "m", "", "f"],
    "user": ["u1", "u2", "u1", "u3"],
    "lang": ["en", "de", "en", "en"],
}


@pytest.fixture
def table() -> pa.Table:
    return pa.table(ROWS)


def write(table: pa.Table, path: Path) -> Path:
    match path.suffix:
        case ".parquet":
            pa.parquet.write_table(table, path)
        case ".csv":
            pa.csv.write_csv(table, path)
        case ".jsonl":
            path.write_text("\n".join(json.dumps(row) for row in table.to_pylist()) + "\n")
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_all_kinds_of_file_read_alike(table: pa.Table, tmp_path: Path, kind: str) -> None:
    path = write(table, tmp_path / f"data.{kind}")
    corpus = read(path, text="body", label="stars", private=["gender"], author="user")
    assert corpus.texts is not None and corpus.texts.tolist() == ROWS["body"]
    assert corpus.label is not None and corpus.label.tolist() == ROWS["stars"]
    assert corpus.private["gender"].tolist() == ["f", "m", None, "f"]
    assert corpus.author is not None and corpus.author.tolist() == ROWS["user"]


def test_datasets_folder_reads_with_class_names(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    features = datasets.Features(
        {"body": datasets.Value("string"), "sex": datasets.ClassLabel(names=["f", "m"])}
    )
    made = datasets.Dataset.from_dict(
        {"body": ["a", "b", "c"], "sex": [0, 1, 1]}, features=features
    )
    made.save_to_disk(tmp_path / "one")
    corpus = read(tmp_path / "one", text="body", private=["sex"])
    assert corpus.private["sex"].tolist() == ["f", "m", "m"]
    datasets.DatasetDict({"train": made, "test": made}).save_to_disk(tmp_path / "two")
    assert len(read(tmp_path / "two", text="body")) == 6


def test_where_keeps_rows_and_evaluates_nothing(table: pa.Table, tmp_path: Path) -> None:
    path = write(table, tmp_path / "data.parquet")

    def count(where: str) -> int:
        return len(read(path, text="body", where=where))

    assert count("lang == 'en'") == 3
    assert count("lang == 'en' and stars >= 3") == 1
    assert count("lang in ['de', 'fr'] or stars == 1") == 2
    assert count("not lang == 'en'") == 1
    assert count("stars not in [1]") == count("stars != 1") == 2
    for broken in ("__import__('os').system('true')", "lang ==", "lang", "lang == open", "1 < 2"):
        with pytest.raises(DataError, match="not understood"):
            count(broken)
    with pytest.raises(DataError, match="did you mean 'lang'"):
        count("lagn == 'en'")
    with pytest.raises(DataError, match="no rows where"):
        count("lang == 'xx'")


def test_vectors_column(tmp_path: Path) -> None:
    vectors = [[0.5, 1.0], [2.0, 3.0]]
    for kind, column in {
        "parquet": pa.array(vectors),
        "jsonl": pa.array(vectors),
        "csv": pa.array([json.dumps(row) for row in vectors]),
    }.items():
        path = write(pa.table({"v": column}), tmp_path / f"v.{kind}")
        corpus = read(path, vectors="v")
        assert corpus.vectors is not None
        np.testing.assert_array_equal(corpus.vectors, np.array(vectors, dtype=np.float32))


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ([[1.0, 2.0], [1.0]], "one length; found lengths 1, 2"),
        ([[1.0, 2.0], None], "rows without a vector"),
        ([[1.0, float("nan")], [1.0, 2.0]], "NaN or infinite numbers in 1 of 2"),
        ([[1.0, float("inf")], [1.0, 2.0]], "NaN or infinite"),
        (["not", "vectors"], "holds text, not vectors"),
        ([[], []], "one length"),
    ],
)
def test_broken_vectors_are_refused(tmp_path: Path, column: list[object], sentence: str) -> None:
    path = write(pa.table({"v": pa.array(column)}), tmp_path / "v.parquet")
    with pytest.raises(DataError, match=sentence):
        read(path, vectors="v")


def test_bad_files_end_in_one_sentence(table: pa.Table, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        read(tmp_path / "nothing.parquet", text="body")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 this is no parquet")
    with pytest.raises(DataError, match=r"cannot be read as \.parquet"):
        read(broken, text="body")
    (tmp_path / "x.csv").write_text("a,b\n1,2\nmy secret words,2,3\n")
    with pytest.raises(DataError, match=r"Row #3|Expected 2 columns, got 3") as complaint:
        read(tmp_path / "x.csv", text="a")
    assert "secret" not in str(complaint.value)
    (tmp_path / "x.xlsx").write_bytes(b"")
    with pytest.raises(DataError, match="not a kind of file"):
        read(tmp_path / "x.xlsx", text="body")
    (tmp_path / "x.jsonl").write_text('{"a": 1}\nnot json\n')
    with pytest.raises(DataError, match="line 2"):
        read(tmp_path / "x.jsonl", text="a")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"no \.arrow files"):
        read(tmp_path / "folder", text="a")
    path = write(table, tmp_path / "data.parquet")
    with pytest.raises(DataError, match="no column 'bdy'; did you mean 'body'"):
        read(path, text="bdy")
    with pytest.raises(DataError, match="which column"):
        read(path)
    with pytest.raises(DataError, match="must hold texts: 4 of 4 rows"):
        read(path, text="stars")
    with pytest.raises(DataError, match="must hold texts: 1 of 4 rows are empty"):
        read(path, text="gender")


def test_empty_rows_are_left_out_on_request_and_counted(tmp_path: Path) -> None:
    table = pa.table({"t": ["a", " ", None, "d"], "who": ["x", "y", "z", None], "g": list("fmfm")})
    path = write(table, tmp_path / "x.parquet")
    corpus = read(path, text="t", private=["g"], author="who", drop_empty=True)
    assert len(corpus) == 1 and corpus.notes == (
        "3 of 4 rows were left out: they are empty in 't' or 'who'",
    )
    with pytest.raises(DataError, match=r"2 of 4 rows are empty.*drop_empty="):
        read(path, text="t")
    with pytest.raises(DataError, match="all 4 rows are empty"):
        read({"t": [""] * 4}, text="t", drop_empty=True)


def test_types_that_cannot_be_classes_are_refused(tmp_path: Path) -> None:
    rows = {"t": ["a", "b"], "record": [{"x": 1}, {"x": 2}], "lists": [["a"], ["b"]]}
    rows |= {"nested": [[["a"]], [["b"]]], "v": [[[1.0], [2.0]], [[3.0], [4.0]]]}
    for name in ("record", "nested"):
        with pytest.raises(DataError, match="cannot be classes"):
            read(rows, text="t", private=[name])
    with pytest.raises(DataError, match="cannot be classes"):
        read(rows, text="t", label="lists")
    assert len(read(rows, text="t", private=["lists"])) == 2
    with pytest.raises(DataError, match=r"shape \(2, 2, 1\)"):
        read(rows, vectors="v")
    far = pa.table({"t": ["a"], "day": pa.array([10**17], pa.int64()).cast(pa.timestamp("s"))})
    with pytest.raises(DataError, match="out of range"):
        read(far, text="t", private=["day"])


def test_the_author_is_no_attribute() -> None:
    with pytest.raises(DataError, match='attacks="authorship"'):
        read(ROWS, text="body", private=["user"], author="user")
