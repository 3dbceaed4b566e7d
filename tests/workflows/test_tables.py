"""pandas, Polars, Arrow, Hugging Face and plain lists give the findings of the Parquet file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import capelet
from capelet.data.corpus import Corpus
from capelet.errors import CapeletError, DataError
from capelet.findings import Findings

COLUMNS: dict[str, Any] = {"vectors": "v", "label": "side", "private": ["open", "hidden"]}
FAST: dict[str, Any] = {"seeds": 1, "attackers": ["logistic"], "cache": False}


@pytest.fixture(scope="module")
def table(planted: Corpus) -> pa.Table:
    assert planted.vectors is not None and planted.label is not None
    columns = {"v": planted.vectors.tolist(), "side": planted.label.tolist()}
    return pa.table({**columns, **{name: v.tolist() for name, v in planted.private.items()}})


@pytest.fixture(scope="module")
def expected(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    path = tmp_path_factory.mktemp("file") / "planted.parquet"
    pa.parquet.write_table(table, path)
    return capelet.audit(str(path), **COLUMNS, **FAST)


def frame(table: pa.Table, kind: str) -> Any:
    match kind:
        case "pandas":
            pytest.importorskip("pandas", reason="pandas is not installed")
            return table.to_pandas()
        case "polars":
            return pytest.importorskip("polars", reason="Polars is not installed").from_arrow(table)
        case "datasets":
            datasets = pytest.importorskip("datasets", reason="datasets is not installed")
            return datasets.Dataset(table)
        case "lists":
            return table.to_pydict()
        case "rows":
            return table.to_pylist()
    return table


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "datasets", "lists", "rows"])
def test_findings_equal_those_of_the_file(table: pa.Table, expected: Findings, kind: str) -> None:
    findings = capelet.audit(frame(table, kind), **COLUMNS, **FAST)
    assert findings.rows == expected.rows
    # The control: another table has other findings.
    assert replace(findings, rows=findings.rows[1:]).rows != expected.rows


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "datasets", "lists", "rows"])
def test_protect_takes_what_audit_takes(table: pa.Table, expected: Findings, kind: str) -> None:
    """Before the protection the same attackers see the same vectors as in the audit of the file."""
    result = capelet.protect(frame(table, kind), None, "leace", **COLUMNS, **FAST)
    assert result.before.rows == expected.rows
    assert result.after.rows != expected.rows


def test_columns_belong_to_tables(planted: Corpus, table: pa.Table) -> None:
    for name in ("text", "private"):
        with pytest.raises(CapeletError, match=f"knows its columns; leave out {name}, or give the"):
            capelet.protect(planted, None, "leace", **{name: "open"})  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no column 'opne'; did you mean 'open'"):
        capelet.protect(table, None, "leace", vectors="v", private="opne")
    with pytest.raises(CapeletError, match="a Corpus knows its columns; leave out text"):
        capelet.audit(planted, text="body")
    for command in (capelet.audit, capelet.protect):
        for data in (planted, table):
            with pytest.raises(TypeError, match="unexpected keyword argument 'sedes'"):
                command(data, sedes=3)  # type: ignore[operator]
    with pytest.raises(DataError, match="the set 'reviews' knows its own columns"):
        capelet.audit("reviews", text="body")
    with pytest.raises(DataError, match="no column 'opne'; did you mean 'open'"):
        capelet.audit(table, vectors="v", private="opne")


def test_messages_name_arguments_to_python(table: pa.Table) -> None:
    with pytest.raises(DataError, match="Give text= or, for ready vectors, vectors=") as error:
        capelet.read(table)
    assert "--" not in str(error.value) and "--text" in error.value.spell("terminal")


def test_a_frame_a_line_and_cards(expected: Findings) -> None:
    assert repr(expected).startswith(f"<Findings: {len(expected)} rows; ")
    assert len(repr(expected)) < 400
    cards = expected._repr_html_()
    assert cards.count("<strong>") == 2 and "<script" not in cards and "http" not in cards
    pytest.importorskip("pandas", reason="pandas is not installed")
    rows = expected.to_frame()
    assert len(rows) == len(expected) and rows["value"].tolist()[0] == expected.rows[0].value


def test_cards_escape_names(expected: Findings) -> None:
    rows = tuple(replace(row, target="<b>x</b>") for row in expected.rows)
    assert "<b>x" not in replace(expected, rows=rows)._repr_html_()
