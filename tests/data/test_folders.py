"""Many Parquet files as one table: which files, in which order, and any range of their rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from capelet.data.folders import count_rows, is_folder, is_inside, list_files, read_range
from capelet.errors import DataError


def write(path: Path, rows: int = 10, group: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"n": list(range(rows)), "text": [f"text {row}" for row in range(rows)]})
    pq.write_table(table, path, row_group_size=group)
    return path


def test_what_is_a_folder(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet")
    assert is_folder(tmp_path) and is_folder(tmp_path / "*.parquet")
    assert is_folder("file:///data") and is_folder("s3://bucket/data")
    assert not is_folder(file) and not is_folder("reviews") and not is_folder("gone.parquet")
    # A file whose name has a wildcard is that file.
    assert not is_folder(write(tmp_path / "b[1].parquet"))


def test_files_come_in_order_and_hidden_ones_do_not(tmp_path: Path) -> None:
    names = ["b.parquet", "a.pq", "year=2024/c.parquet", ".hidden.parquet", "_temporary/d.parquet"]
    for name in names:
        write(tmp_path / name)
    wanted = [str(tmp_path / name) for name in ("a.pq", "b.parquet", "year=2024/c.parquet")]
    assert list(list_files(tmp_path)) == wanted == list(list_files(f"file://{tmp_path}"))
    assert list(list_files(tmp_path / "*.parquet")) == wanted[1:2]
    assert list(list_files(tmp_path / "*" / "*.parquet")) == wanted[2:]
    assert list(list_files(f"file://{tmp_path}/b.parquet")) == wanted[1:2]


def test_rows_that_would_be_lost_are_not_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("n\n1\n")
    with pytest.raises(DataError, match=r"'b\.csv'"):
        list_files(tmp_path)
    assert len(list_files(tmp_path / "*.parquet")) == 1


@pytest.mark.parametrize("start", range(0, 10, 3))
@pytest.mark.parametrize("length", [1, 4, 10])
def test_any_range_of_rows(tmp_path: Path, start: int, length: int) -> None:
    """Whatever the row groups: exactly these rows, in order."""
    file = str(write(tmp_path / "a.parquet"))
    stop = min(10, start + length)
    assert count_rows(file, ["n"]) == 10
    assert read_range(file, ["n"], start, stop, False) == [list(range(start, stop))]


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"'a\.parquet'.*'body'"):
        count_rows(str(file), ["body"])
    file.write_bytes(b"secret")
    with pytest.raises(DataError, match=r"'a\.parquet' cannot be read") as error:
        count_rows(str(file), ["n"])
    assert "secret" not in str(error.value)


def test_what_lies_inside_of_a_source(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet")
    assert is_inside(tmp_path / "in" / "out", tmp_path / "in" / "*.parquet")
    assert is_inside(tmp_path / "in" / "out", f"file://{tmp_path}/in")
    assert not is_inside(tmp_path / "in-out", tmp_path / "in")


def test_an_address_of_a_bucket_keeps_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket played by a folder: what is asked of Arrow for the folder, and for each file."""
    for name in ("in/a.parquet", "in/b.parquet", "in/c.pq"):
        write(tmp_path / "bucket" / name)
    addresses: list[str] = []

    class Bucket:
        @staticmethod
        def from_uri(address: str) -> tuple[pyarrow.fs.FileSystem, str]:
            addresses.append(address)
            local = pyarrow.fs.LocalFileSystem()
            path = address.removeprefix("s3://").partition("?")[0]
            return pyarrow.fs.SubTreeFileSystem(str(tmp_path), local), path

    monkeypatch.setattr(pyarrow.fs, "FileSystem", Bucket)
    files = list_files("s3://bucket/in/*.parquet?region=eu")
    assert files == ("s3://bucket/in/a.parquet?region=eu", "s3://bucket/in/b.parquet?region=eu")
    assert count_rows(files[1], ["n"]) == 10
    assert read_range(files[1], ["n"], 2, 5, False) == [[2, 3, 4]]
    assert addresses[0] == "s3://bucket/in?region=eu" and files[1] in addresses
    with pytest.raises(DataError, match=r"'b\.parquet'.*'body'"):
        count_rows(files[1], ["body"])
    assert not is_inside(tmp_path / "bucket" / "in", "s3://bucket/in")
