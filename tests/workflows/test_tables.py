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
            capelet.protect(planted, None, "leace", **{name: "open"})
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


def test_settings_are_keywords_too(table: pa.Table) -> None:
    """The call that everybody tries first; it was a TypeError."""
    quick: dict[str, Any] = {"vectors": "v", "private": "open", "label": "side", **FAST}
    result = capelet.protect(table, method="bottleneck", epsilon=8, **quick)
    assert result.encoder.guarantee.epsilon == 8
    about = result.after.provenance["protect"]
    assert about["method"] == "bottleneck" and about["settings"]["width"] == 64
    with pytest.raises(TypeError, match="did you mean 'epsilon'"):
        capelet.protect(table, epsilom=8, **quick)
    with pytest.raises(CapeletError, match="does not read batch="):
        capelet.protect(table, method="leace", batch=8, **quick)
    with pytest.raises(CapeletError, match="belong to train_epsilon="):
        capelet.protect(table, method="fx", unit="author", **quick)


def test_without_a_label_neighbours_are_kept(table: pa.Table) -> None:
    result = capelet.protect(table, method="leace", vectors="v", private="open", **FAST)
    assert result.after.provenance["protect"]["settings"]["keep"] == "neighbours"


def test_the_texts_need_no_name_where_one_column_can_be_them() -> None:
    words = ["rain", "sun", "wind", "snow"]
    texts = [f"today {words[n % 4]} and number {n} fell on us" for n in range(120)]
    columns = {"body": texts, "gender": ["f", "m"] * 60}
    corpus = capelet.read(columns, private="gender")
    assert corpus.texts is not None and corpus.texts[0] == texts[0]
    assert corpus.notes == ("the texts are the column 'body', the only one that looks like texts",)
    with pytest.raises(DataError, match="holds the texts"):
        capelet.read({**columns, "answer": texts[::-1]}, private="gender")
    with pytest.raises(DataError, match="holds the texts"):
        capelet.read({"id": list(range(120)), "gender": ["f", "m"] * 60}, private="gender")


def test_one_attacker_is_a_name_or_an_object(table: pa.Table) -> None:
    """A plain classifier is an attacker by what it has; one without weights is balanced too."""
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier

    quick = {**COLUMNS, **FAST}
    named = capelet.audit(table, **{**quick, "attackers": "logistic"})
    assert {row.attacker for row in named.select(kind="attribute-inference")} >= {"logistic"}
    objects = [GaussianNB(), KNeighborsClassifier(15), KNeighborsClassifier(25)]
    own = capelet.audit(table, **{**quick, "attackers": objects})
    names = {"GaussianNB", "KNeighborsClassifier", "KNeighborsClassifier-2"}
    assert {row.attacker for row in own.select(kind="attribute-inference")} >= names
    for name in names:
        metric = {"metric": "balanced_accuracy", "target": "open", "subgroup": None}
        found = own.select(kind="attribute-inference", attacker=name, **metric)
        assert found[0].value > 0.7
    with pytest.raises(CapeletError, match="attackers= holds a int"):
        capelet.audit(table, **{**quick, "attackers": [3]})


def test_print_shows_a_short_table(expected: Findings) -> None:
    lines = str(expected).splitlines()
    assert lines[0].split() == ["target", "score", "95", "%", "interval", "without"]
    assert any(line.startswith("open") and line.endswith("leak") for line in lines)
    assert any(line.startswith("side") and line.endswith("accuracy of the task") for line in lines)
    assert len(lines) <= 6 and max(map(len, lines)) <= 100
    assert str(Findings(())) == repr(Findings(()))


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
