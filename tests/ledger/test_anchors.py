"""An anchor notices whatever was taken out of a ledger, or changed in it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import OutputError
from capelet.ledger.anchors import check_anchor, with_anchor, write_anchor
from capelet.ledger.budgets import Budget
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee


def charge(ledger: Ledger, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        people, names = ["ann", f"p{number}"], [b"%d" % number, b"b%d" % number]
        ledger.settle(people, names, np.zeros((2, 2)), Guarantee(1.0))


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A ledger of six acts, with an anchor of the fifth."""
    path = tmp_path / "l.db"
    with Ledger(path) as ledger:
        ledger.limit(Budget(100.0))
        charge(ledger, 4)
        write_anchor(ledger, tmp_path / "anchor")
        charge(ledger, 1, start=10)
    return path


def check(book: Path) -> None:
    with Ledger(book) as ledger:
        check_anchor(ledger, book.with_name("anchor"))


def test_what_grew_since_contains_its_anchor(book: Path) -> None:
    check(book)
    with Ledger(book) as ledger:
        ledger.raise_budget(Budget(200.0))
        ledger.erase("ann")
        charge(ledger, 3, start=20)
    check(book)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        ("DELETE FROM log WHERE number >= 5; DELETE FROM charges WHERE entry >= 5", "entry 5"),
        ("DELETE FROM log WHERE number = 3", "edited"),
        ("DELETE FROM charges WHERE entry = 3", "edited"),
        ("UPDATE charges SET releases = 0 WHERE entry = 2", "edited"),
        ("UPDATE charges SET releases = 0 WHERE entry = 6", "edited"),
        ("UPDATE guarantees SET content = replace(content, '1.0', '0.1')", "edited"),
        ("UPDATE people SET pseudonym = x'00' WHERE id = 1", "edited"),
        ("DELETE FROM people", "edited"),
        ("UPDATE totals SET releases = 1", "sums are not those"),
        ("DELETE FROM totals WHERE person = 1", "sums are not those"),
        ("UPDATE facts SET value = '{\"epsilon\": 1e9}' WHERE name = 'budget'", "its budget"),
        ("UPDATE facts SET value = x'00' WHERE name = 'key'", "another stands in its place"),
        ("UPDATE facts SET value = 'a' WHERE name = 'key'", "another stands in its place"),
        ("DELETE FROM facts WHERE name = 'key'", "another stands in its place"),
        ("DELETE FROM facts WHERE name = 'identity'", "another stands in its place"),
    ],
)
def test_every_edit_is_noticed(book: Path, edit: str, sentence: str) -> None:
    direct = sqlite3.connect(book)
    direct.executescript(edit)
    direct.close()
    with pytest.raises(OutputError, match=sentence):
        check(book)


def test_another_ledger_is_noticed_and_an_empty_one_has_no_anchor(
    book: Path, tmp_path: Path
) -> None:
    with Ledger(tmp_path / "other.db") as other:
        charge(other, 6)
        with pytest.raises(OutputError, match="another stands in its place"):
            check_anchor(other, tmp_path / "anchor")
    nothing = Ledger(tmp_path / "nothing.db")
    with with_anchor(nothing, tmp_path / "new"):
        pass
    assert not (tmp_path / "new").exists() and not (tmp_path / "nothing.db").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"ledger": "a", "entries": "x", "head": ""}'])
def test_what_is_no_anchor_is_refused(book: Path, content: str) -> None:
    book.with_name("anchor").write_text(content)
    with pytest.raises(OutputError, match="is not an anchor"):
        check(book)


def test_an_anchor_that_cannot_be_read_or_written_is_one_sentence(
    book: Path, tmp_path: Path
) -> None:
    with Ledger(book) as ledger:
        with pytest.raises(OutputError, match="cannot read the anchor"):
            check_anchor(ledger, tmp_path)
        with pytest.raises(OutputError, match="cannot write the anchor"):
            write_anchor(ledger, tmp_path / "no" / "anchor")
        with pytest.raises(OutputError, match="cannot write"), with_anchor(ledger, book / "anchor"):
            pass


def test_an_anchor_holds_hashes_and_a_number(book: Path) -> None:
    content = json.loads(book.with_name("anchor").read_text())
    assert content.keys() == {"ledger", "entries", "head"} and content["entries"] == 5
    assert len(content["head"]) == 64


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        ("DELETE FROM windows", "sums are not those"),
        ("UPDATE facts SET value = '2000-01-01' WHERE name = 'day'", "its day"),
        ("DELETE FROM facts WHERE name = 'lifetime'", "its budget"),
        ("UPDATE facts SET value = '{\"epsilon\": 1e9}' WHERE name = 'lifetime'", "its budget"),
    ],
)
def test_every_edit_of_a_budget_that_refills_is_noticed(
    tmp_path: Path, edit: str, sentence: str
) -> None:
    book, anchor = tmp_path / "daily.db", tmp_path / "anchor.json"
    with Ledger(book) as ledger:
        ledger.limit(Budget(4.0), "daily", Budget(40.0))
        charge(ledger, 2)
        write_anchor(ledger, anchor)
        check_anchor(ledger, anchor)  # the control
    direct = sqlite3.connect(book)
    direct.executescript(edit)
    direct.close()
    with pytest.raises(OutputError, match=sentence), Ledger(book) as ledger:
        check_anchor(ledger, anchor)
