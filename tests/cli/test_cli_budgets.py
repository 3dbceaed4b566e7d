"""`capelet budgets`: a cap is shown and raised, a person erased, and nobody named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from capelet.cli import app
from capelet.privacy.budgets import Budget
from capelet.privacy.guarantees import Guarantee
from capelet.privacy.store import Ledger


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(item) for item in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def book(tmp_path: Path) -> Path:
    with Ledger(tmp_path / "people.db") as ledger:
        ledger.limit(Budget(10.0, delta=1e-6))
        ledger.settle(
            ["Ann Lee"] * 2 + ["bob"], [b"a", b"b", b"c"], np.ones((3, 2)), Guarantee(4.0)
        )
    return tmp_path / "people.db"


def test_a_ledger_is_shown_in_sum(book: Path) -> None:
    code, output, _ = call("budgets", "show", book)
    assert code == 0 and output.startswith("budget: ε = 10, δ = 1e-06 per person\n  20")
    assert "charged: 3 releases of 2 people\nhighest sum: ε = 8 per person" in output
    assert "Ann" not in output
    summary = json.loads(call("budgets", "show", book, "--json")[1])
    assert summary["highest_epsilon"] == 8.0 and summary["changes"][0]["old"] is None


def test_raising_is_an_act_that_is_shown(book: Path) -> None:
    code, output, _ = call("budgets", "raise", book, "--to", 20)
    assert code == 0 and output == (
        "raised from ε = 10, δ = 1e-06 per person to ε = 20, δ = 1e-06 per person\n"
    )
    assert (
        ": raised from ε = 10, δ = 1e-06 per person to ε = 20" in call("budgets", "show", book)[1]
    )
    code, _, error = call("budgets", "raise", book, "--to", 15)
    assert code == 2 and "is no more than that" in error
    code, output, _ = call("budgets", "raise", book, "--to", 30, "--json")
    assert json.loads(output)["new"] == {"epsilon": 30.0, "delta": 1e-6}


def test_a_person_is_erased_and_what_was_spent_stays(book: Path) -> None:
    code, output, _ = call("budgets", "erase", book, "--person", " Ann Lee")
    assert code == 0 and output.startswith("erased: the name and 2 stored vectors; ε = 8 stays")
    with Ledger(book) as ledger:
        assert "Ann Lee" not in ledger.subjects() and ledger.spent("Ann Lee") is not None
    assert json.loads(call("budgets", "erase", book, "--person", "bob", "--json")[1]) == {
        "releases": 1,
        "epsilon": 4.0,
    }
    code, _, error = call("budgets", "erase", book, "--person", "Eve Doe")
    assert code == 2 and "nobody of this name" in error and "Eve" not in error


@pytest.mark.parametrize("act", [("show",), ("raise", "--to", 3), ("erase", "--person", "a")])
def test_no_ledger_is_made_by_asking(tmp_path: Path, act: tuple[object, ...]) -> None:
    code, _, error = call("budgets", act[0], tmp_path / "no.db", *act[1:])
    assert code == 2 and "there is no ledger" in error and not (tmp_path / "no.db").exists()


RECIPE = '[[steps]]\nstep = "laplace"\nepsilon = 2.0\n'


def test_encode_warns_by_row_keeps_an_anchor_and_does_not_raise_a_cap(tmp_path: Path) -> None:
    table = pa.table({"v": [[1.0, 0.0]] * 3, "who": ["Ann", "bob", "ann"]})
    pq.write_table(table, tmp_path / "in.parquet")
    (tmp_path / "r.toml").write_text(RECIPE)
    book, anchor = tmp_path / "people.db", tmp_path / "anchor.json"
    asked = (
        "encode", tmp_path / "in.parquet", tmp_path / "out.parquet", "--vectors", "v", "--recipe",
        tmp_path / "r.toml", "--subject", "who", "--ledger", book, "--anchor", anchor,
        "--overwrite",
    )  # fmt: skip
    code, output, error = call(*asked, "--budget", 4)
    assert code == 0 and "ε = 2 per person" in output
    assert error == (
        "capelet: rows 0 and 2 name people who differ only in capitals, blanks or signs; if they "
        "are one person, it has two budgets\n"
    )
    code, _, error = call(*asked, "--budget", 1000)
    assert code == 2 and f"capelet budgets raise {book} --to 1000" in error
    code, output, _ = call(*asked, "--repeats", "same")
    assert code == 0 and "which of a person's texts are equal is public" in output
    for wrong in (("--repeats", "old"), ("--repeats", "same", "--fresh")):
        assert call(*asked, *wrong)[0] == 2
    assert call("budgets", "show", book, "--anchor", anchor)[0] == 0
    code, _, error = call("budgets", "show", book, "--anchor", tmp_path / "no.json")
    assert code == 2 and "there is no anchor" in error
    book.unlink()
    code, _, error = call(*asked)
    assert code == 2 and "is gone, or another stands in its place" in error
