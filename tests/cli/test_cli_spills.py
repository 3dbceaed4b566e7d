"""No cell of anybody's table on the terminal: secrets are planted in every column of every kind of
file, and every command is called in every wrong way that we know of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from capelet.cli import app
from capelet.cli.terminal import guard
from capelet.errors import DataError
from terminal import CliRunner

# Every text in the table has the first sign, every number the digits.
SIGNS = ("zq", "7340")
ROWS = 90
COLUMNS: dict[str, list[Any]] = {
    "text": [f"today zq{row} was a good day, says zq{row * 7}" for row in range(ROWS)],
    "gender": ["zqf" if row % 2 else "zqm" for row in range(ROWS)],
    "author": [f"Ann Zq-zq{row // 3}" for row in range(ROWS)],
    "id": [f"zq-{row:05}" for row in range(ROWS)],
    "number": [7340000 + row for row in range(ROWS)],
    "rare": ["zqone" if row == 3 else "zqmany" for row in range(ROWS)],
    "same": ["zqsame"] * ROWS,
    "gaps": [None if row % 9 == 0 else f"zq{row // 3}" for row in range(ROWS)],
}
RECIPE = """
[[steps]]
step = "encoder"
name = "wordllama"

[[steps]]
step = "laplace"
epsilon = 8.0
"""


def _parquet(folder: Path) -> Path:
    pa.parquet.write_table(pa.table(COLUMNS), folder / "rows.parquet")
    return folder / "rows.parquet"


def _csv(folder: Path) -> Path:
    pa.csv.write_csv(pa.table(COLUMNS), folder / "rows.csv")
    return folder / "rows.csv"


def _tsv(folder: Path) -> Path:
    options = pa.csv.WriteOptions(delimiter="\t")
    pa.csv.write_csv(pa.table(COLUMNS), folder / "rows.tsv", options)
    return folder / "rows.tsv"


def _jsonl(folder: Path) -> Path:
    lines = [json.dumps(row) for row in pa.table(COLUMNS).to_pylist()]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    return folder / "rows.jsonl"


def _headerless(folder: Path) -> Path:
    options = pa.csv.WriteOptions(include_header=False)
    pa.csv.write_csv(pa.table(COLUMNS), folder / "bare.csv", options)
    return folder / "bare.csv"


def _bare_texts(folder: Path) -> Path:
    """Nothing but different short texts: nothing tells the first line from a row."""
    (folder / "texts.csv").write_text("\n".join(f"zq {row}" for row in range(ROWS)))
    return folder / "texts.csv"


def _latin(folder: Path) -> Path:
    text = _csv(folder).read_text("utf-8").replace("good", "gründlich")
    (folder / "latin.csv").write_bytes(text.encode("latin-1"))
    return folder / "latin.csv"


def _semicolons(folder: Path) -> Path:
    options = pa.csv.WriteOptions(delimiter=";")
    pa.csv.write_csv(pa.table(COLUMNS), folder / "semicolons.csv", options)
    return folder / "semicolons.csv"


def _broken_csv(folder: Path) -> Path:
    (folder / "broken.csv").write_text(_csv(folder).read_text() + "zq1,zq2\n")
    return folder / "broken.csv"


def _broken_jsonl(folder: Path) -> Path:
    (folder / "broken.jsonl").write_text(_jsonl(folder).read_text() + "\nzq7340\n")
    return folder / "broken.jsonl"


# Files that are read, and are called in every wrong way; others fail before columns matter.
WHOLE = [_parquet, _csv, _jsonl, _headerless]
FILES = [*WHOLE, _tsv, _bare_texts, _latin, _semicolons, _broken_csv, _broken_jsonl]
FEW = 4  # wrong calls for each of the others

# After the file; each is refused by at least one kind of file, most by all.
AUDITS = [
    "--text gender --private text",
    "--text number --private gender",
    "--text text --private author",
    "--text text --private text",
    "--text text --private id",
    "--text text --private number",
    "--text text --private rare",
    "--text text --private same",
    "--text text --private gaps",
    "--text text --label text",
    "--text gaps --private gender",
    "--text text --private gender --author gaps",
    "--text text --private author --author author",
    "--text txet --private gender",
    "--text zzz",
    "",
    "--vectors text",
    "--vectors number",
    "--text text --private gender --where nocolumn==1",
    "--text text --private gender --where gender",
    "--text text --private gender --bins gender=1",
    "--text text --private gender --member author",
    "--text text --derive names",
]
OTHERS = [
    "protect {file} --text gender --private text --method gr --out {out}",
    "protect {file} --text text --private text --label gender --method fx --out {out}",
    "protect {file} --text text --private gender --hold-out nobody --label rare --out {out}",
    "membership {file} --text text --member author --encoder wordllama",
    "invert {file} --text number",
    "lm train {file} --text number --out {out}",
    "lm train {file} --text gaps --author text --out {out}",
    "dual train {file} --text number --out {out}",
    "encode {file} {out}.parquet --recipe {recipe} --text gaps",
    "encode {file} {out}.parquet --recipe {recipe} --text nothing",
    "encode {file} {out}.parquet --recipe {recipe} --text text --subject gaps --ledger {out}.db",
    "encode {file} {out}.parquet --recipe {recipe} --text text --subject author --budget 9 "
    "--ledger {out}.db",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    return {make.__name__: make(folder) for make in FILES}


def cases(calls: list[str]) -> list[Any]:
    """Every wrong call of the files that can be read, and a few of the others."""
    return [
        pytest.param(make.__name__, call, id=f"{make.__name__.strip('_')} {call}")
        for make in FILES
        for call in (calls if make in WHOLE else calls[:FEW])
    ]


def shown(arguments: list[str]) -> tuple[int, str]:
    """The exit code, and everything that the terminal shows."""
    result = CliRunner().invoke(app, arguments)
    # A traceback would quote what it likes; the test wants none at all.
    assert result.exception is None or isinstance(result.exception, SystemExit), arguments
    return result.exit_code, result.stdout + result.stderr


def spilt(output: str) -> list[str]:
    return [sign for sign in SIGNS if sign in output]


@pytest.mark.parametrize(("file", "options"), cases(AUDITS))
def test_no_audit_prints_a_cell(
    files: dict[str, Path], file: str, options: str, tmp_path: Path
) -> None:
    code, output = shown(
        ["audit", str(files[file]), *options.split(), "--out", str(tmp_path / "out")]
    )
    assert code == 2 and output.count("\n") <= 2, output
    assert not spilt(output), output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("file", "command"), cases(OTHERS))
def test_no_other_command_prints_a_cell(
    files: dict[str, Path], file: str, command: str, tmp_path: Path
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    names = {"file": files[file], "out": tmp_path / "out", "recipe": tmp_path / "recipe.toml"}
    code, output = shown([part.format(**names) for part in command.split()])
    assert code == 2, output
    assert not spilt(output), output


@pytest.mark.parametrize("file", [make.__name__ for make in FILES])
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["lines", "json"])
def test_check_shows_no_cell(files: dict[str, Path], file: str, options: list[str]) -> None:
    _, output = shown(["check", str(files[file]), *options])
    assert not spilt(output), output


def test_the_check_for_cells_can_fail(capsys: pytest.CaptureFixture[str]) -> None:
    @guard
    def leak() -> None:
        raise DataError(f"there is no {COLUMNS['author'][4]}")

    with pytest.raises(SystemExit, match="2"):
        leak()
    assert spilt(capsys.readouterr().err) == ["zq"]


def test_a_budget_names_rows_and_no_people(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    call = ["encode", str(_parquet(tmp_path)), str(tmp_path / "out.parquet"), "--text", "text"]
    call += ["--recipe", str(tmp_path / "recipe.toml"), "--subject", "author"]
    code, output = shown([*call, "--ledger", str(tmp_path / "people.db"), "--budget", "9"])
    assert code == 2 and "first rows are 0" in output and "30 people" in output
    assert not spilt(output)


def test_headers_are_shown_where_they_surely_are_names(tmp_path: Path) -> None:
    """The control: what is hidden in a file without a header is shown in one with it."""
    _, output = shown(["audit", str(_csv(tmp_path)), "--text", "txet", "--private", "gender"])
    assert "did you mean 'text'?" in output
    _, output = shown(["audit", str(_headerless(tmp_path)), "--text", "text"])
    assert "looks like a row" in output
    _, output = shown(["audit", str(_bare_texts(tmp_path)), "--text", "text"])
    assert "not shown" in output
    _, output = shown(["audit", str(_latin(tmp_path)), "--text", "text"])
    assert "--encoding cp1252" in output
    _, output = shown(["audit", str(_semicolons(tmp_path)), "--text", "text"])
    assert "--separator semicolon" in output
