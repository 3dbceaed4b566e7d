"""`capelet budgets`: a cap is shown and raised, a person erased, and nobody named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capelet.cli import app
from capelet.ledger.budgets import Budget
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee
from terminal import CliRunner


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


def test_a_budget_that_refills_is_shown_and_raised(tmp_path: Path) -> None:
    book = tmp_path / "people.db"
    with Ledger(book) as ledger:
        ledger.limit(Budget(4.0), "daily", Budget(40.0))
    code, output, _ = call("budgets", "show", book)
    assert code == 0 and output.startswith("budget: ε = 4 per person a day, ε = 40 per person in")
    assert json.loads(call("budgets", "show", book, "--json")[1])["lifetime"]["epsilon"] == 40.0
    code, output, _ = call("budgets", "raise", book, "--lifetime", 80)
    assert code == 0 and "to ε = 4 per person a day, ε = 80 per person in all" in output
    code, _, error = call("budgets", "raise", book)
    assert code == 2 and "Give --to, or --lifetime" in error


def test_a_ledger_without_a_budget_has_none_to_raise(tmp_path: Path) -> None:
    with Ledger(tmp_path / "people.db") as ledger:
        ledger.open()
    code, _, error = call("budgets", "raise", tmp_path / "people.db", "--to", 3)
    assert code == 2 and "has no budget to raise" in error


def test_a_ledger_is_copied_brought_back_and_locked(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, again, key = tmp_path / "copy.db", tmp_path / "again.db", tmp_path / "store.key"
    code, output, _ = call("budgets", "backup", book, copy)
    assert code == 0 and output == "copied: 2 entries of the log\n"
    code, _, error = call("budgets", "backup", book, copy)
    assert code == 2 and "is there already" in error
    code, output, _ = call("budgets", "restore", copy, again)
    assert code == 0 and "restored: 2 entries" in output and "is forgotten" in output
    code, _, error = call("budgets", "restore", copy, book)
    assert code == 2 and "is there already" in error
    code, output, _ = call("budgets", "rotate", again, "--to", key)
    assert code == 0 and f"CAPELET_STORE_KEY_FILE={key}" in output
    assert key.read_text().strip() not in output
    code, _, error = call("budgets", "show", again)
    assert code == 2 and "is locked by another" in error
    monkeypatch.setenv("CAPELET_STORE_KEY_FILE", str(key))
    assert call("budgets", "show", again)[1] == call("budgets", "show", book)[1]
    assert call("budgets", "backup", again, tmp_path / "1.db", "--json")[1] == '{"entries": 3}\n'


def test_a_ledger_in_a_database_is_named_by_its_url(url: str, tmp_path: Path) -> None:
    table = pa.table({"v": [[1.0, 0.0]] * 3, "who": ["ann", "bob", "ann"]})
    pq.write_table(table, tmp_path / "in.parquet")
    (tmp_path / "r.toml").write_text(RECIPE)
    code, _, error = call("budgets", "show", url)
    assert code == 2 and "there is no ledger 'postgresql:///" in error
    asked = ("--vectors", "v", "--recipe", tmp_path / "r.toml", "--subject", "who", "--ledger", url)
    code, output, error = call(
        "encode", tmp_path / "in.parquet", tmp_path / "out.parquet", *asked, "--budget", 4
    )
    assert code == 0 and "ε = 4 per person" in output, error
    assert "2 people" in call("budgets", "show", url)[1]
    assert call("budgets", "raise", url, "--to", 9)[0] == 0
    assert call("budgets", "backup", url, tmp_path / "copy.db")[0] == 0
    assert call("budgets", "show", tmp_path / "copy.db")[1] == call("budgets", "show", url)[1]
    assert call("budgets", "erase", url, "--person", "ann")[0] == 0


@pytest.mark.parametrize(
    "act",
    [
        ("show",),
        ("raise", "--to", 3),
        ("erase", "--person", "a"),
        ("rotate", "--to", "k"),
        ("backup", "copy.db"),
    ],
)
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
    assert call(*asked, "--repeats", "old")[0] == 2
    assert call("budgets", "show", book, "--anchor", anchor)[0] == 0
    code, _, error = call("budgets", "show", book, "--anchor", tmp_path / "no.json")
    assert code == 2 and "there is no anchor" in error
    book.unlink()
    code, _, error = call(*asked)
    assert code == 2 and "is gone, or another stands in its place" in error
