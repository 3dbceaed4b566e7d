"""Ledgers of 0.1.0 and 0.2.0 open, with their sums, caps and vectors, and say what they showed."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from capelet.privacy.budgets import Budget, BudgetError, Limits
from capelet.privacy.copies import copy_store
from capelet.privacy.database import Entry, keyed_hash
from capelet.privacy.guarantees import Guarantee
from capelet.privacy.people import EQUALITY_IS_PUBLIC
from capelet.privacy.store import Ledger

# As 0.1.0 made it.
OLD_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS guarantees (id INTEGER PRIMARY KEY, said TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS blocks (
    run TEXT NOT NULL, block INTEGER NOT NULL, PRIMARY KEY (run, block)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS charges (
    subject TEXT NOT NULL, guarantee INTEGER NOT NULL, run TEXT NOT NULL, block INTEGER NOT NULL,
    releases INTEGER NOT NULL, PRIMARY KEY (subject, guarantee, run, block)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept (name BLOB PRIMARY KEY, vector BLOB NOT NULL);
"""
KEY = bytes(range(32))
NAME = keyed_hash(KEY, b"recipe", b"ann", b"a text")
VECTOR = np.arange(4, dtype="<f4")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Two runs, two guarantees, one person under two spellings, a cap, one kept vector."""
    path = tmp_path / "old.db"
    db = sqlite3.connect(path)
    db.executescript(OLD_TABLES)
    db.execute("PRAGMA application_id = 1128353861")
    promises = [asdict(Guarantee(2.0)), asdict(Guarantee(1.0, delta=1e-6))]
    for promise in promises:
        del promise["training"]  # it came later
    db.executemany(
        "INSERT INTO guarantees VALUES (?, ?)",
        [(number, json.dumps(item, sort_keys=True)) for number, item in enumerate(promises, 1)],
    )
    rows = [
        ("ann", 1, "first", 0, 3), ("bob", 1, "first", 0, 1), ("ann", 1, "first", 1, 1),
        (" ann", 1, "first", 1, 2), ("ann", 2, "second", 0, 1),
    ]  # fmt: skip
    db.executemany("INSERT INTO charges VALUES (?, ?, ?, ?, ?)", rows)
    db.executemany("INSERT INTO blocks VALUES (?, ?)", [("first", 0), ("first", 1), ("second", 0)])
    db.execute("INSERT INTO facts VALUES ('key', ?)", (KEY,))
    db.execute("INSERT INTO facts VALUES ('budget', ?)", (json.dumps(asdict(Budget(15.0))),))
    db.execute("INSERT INTO kept VALUES (?, ?)", (NAME, VECTOR.tobytes()))
    db.commit()
    db.execute("PRAGMA journal_mode = WAL")
    db.close()
    return path


def test_sums_cap_key_and_vectors_stay(old: Path) -> None:
    for _ in range(2):  # the second time there is nothing to do
        with Ledger(old) as ledger:
            total = ledger.spent("ann")
            assert total is not None and (total.epsilon, total.delta) == (13.0, 1e-6)
            # What 0.1.0 gave out again it gave out as it was.
            assert total.caveat == EQUALITY_IS_PUBLIC
            assert ledger.subjects() == ["ann", "bob"] and ledger.counts() == (2, 8, 13.0)
            assert ledger.budget == Budget(15.0)
            ((time, before, cap),) = ledger.budget_changes()
            assert (time, before, cap) == ("", None, Budget(15.0))
            assert ledger.release_name("recipe", "ann", b"a text") == NAME
            np.testing.assert_array_equal(ledger.find([NAME])[NAME], VECTOR)
            assert ledger.head.entries == 4
            ledger.verify(ledger.head)


def test_it_goes_on_where_it_was(old: Path) -> None:
    with Ledger(old) as ledger:
        stored = ledger.settle(["ann"], [NAME], np.zeros((1, 4)), Guarantee(2.0))
        np.testing.assert_array_equal(stored.vectors[0], VECTOR)
        assert not stored.is_new.any()
        ledger.settle(["ann"], [b"new"], np.zeros((1, 4)), Guarantee(2.0))
        with pytest.raises(BudgetError):
            ledger.settle(["ann"], [b"newer"], np.zeros((1, 4)), Guarantee(2.0))


def test_an_erasure_takes_vectors_of_nobody_known_along(old: Path) -> None:
    with Ledger(old) as ledger:
        assert ledger.erase("bob") == 1
        assert ledger.find([NAME]) == {}


def test_a_migration_that_fails_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = old.read_bytes()

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("capelet.privacy.migration._copy_charges", fail)
        with pytest.raises(Exception, match="disk full"):
            Ledger(old)
    assert old.read_bytes() == before
    with Ledger(old) as ledger:
        assert ledger.counts().people == 2


# As 0.2.0 made it: the tables of version 2, and the budget as a text.
TABLES_2 = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE guarantees (
    id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE, epsilon REAL NOT NULL);
CREATE TABLE people (
    id INTEGER PRIMARY KEY, pseudonym BLOB NOT NULL UNIQUE, fold BLOB NOT NULL, name TEXT);
CREATE INDEX people_by_fold ON people (fold);
CREATE TABLE totals (
    person INTEGER NOT NULL, guarantee INTEGER NOT NULL, releases INTEGER NOT NULL,
    PRIMARY KEY (person, guarantee)) WITHOUT ROWID;
CREATE TABLE log (
    number INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, content TEXT NOT NULL,
    head BLOB NOT NULL);
CREATE TABLE charges (
    entry INTEGER NOT NULL, person INTEGER NOT NULL, guarantee INTEGER NOT NULL,
    releases INTEGER NOT NULL, PRIMARY KEY (entry, person)) WITHOUT ROWID;
CREATE TABLE releases (
    name BLOB PRIMARY KEY, person INTEGER, run TEXT NOT NULL, vector BLOB NOT NULL);
CREATE INDEX releases_by_person ON releases (person);
CREATE INDEX releases_by_run ON releases (run);
"""


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """A budget of 6, two charges of ann's, one stored vector."""
    path = tmp_path / "second.db"
    promise = json.dumps(Guarantee(2.0).to_json(), sort_keys=True)
    pseudonym, budget = keyed_hash(KEY, b"person", b"ann"), asdict(Budget(6.0))
    acts = [
        Entry(
            1, "2026-01-01T00:00:00+00:00", "budget", json.dumps({"old": None, "new": budget}), []
        ),
        Entry(2, "2026-01-02T00:00:00+00:00", "charge", '{"run": ""}', [(pseudonym, promise, 2)]),
    ]
    db = sqlite3.connect(path)
    db.executescript(TABLES_2)
    db.execute("PRAGMA application_id = 1128353861")
    db.execute("PRAGMA user_version = 2")
    db.execute("INSERT INTO facts VALUES ('key', ?)", (KEY,))
    db.execute("INSERT INTO facts VALUES ('budget', ?)", (json.dumps(budget),))
    db.execute("INSERT INTO guarantees VALUES (1, ?, 2.0)", (promise,))
    fold = keyed_hash(KEY, b"fold", b"ann")
    db.execute("INSERT INTO people VALUES (1, ?, ?, 'ann')", (pseudonym, fold))
    db.execute("INSERT INTO totals VALUES (1, 1, 2)")
    db.execute("INSERT INTO charges VALUES (2, 1, 1, 2)")
    head = b""
    for act in acts:
        head = act.link(KEY, head)
        db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?)", (*act[:4], head))
    db.execute("INSERT INTO releases VALUES (?, 1, '', ?)", (NAME, VECTOR.tobytes()))
    db.commit()
    db.close()
    return path


def test_a_ledger_of_0_2_0_goes_on_where_it_was(second: Path) -> None:
    with Ledger(second) as ledger:
        assert ledger.limits == Limits(Budget(6.0)) and ledger.head.entries == 2
        ledger.verify(ledger.head)
        stored = ledger.settle(["ann"], [NAME], np.zeros((1, 4)), Guarantee(2.0))
        np.testing.assert_array_equal(stored.vectors[0], VECTOR)
        assert stored.left.tolist() == [2.0]
        ledger.settle(["ann"], [b"new"], np.zeros((1, 4)), Guarantee(2.0))
        with pytest.raises(BudgetError):
            ledger.settle(["ann"], [b"newer"], np.zeros((1, 4)), Guarantee(2.0))
        _, secret = ledger.keys.add("team")
        assert ledger.keys.find(secret) is not None
    db = sqlite3.connect(second)
    assert db.execute("PRAGMA user_version").fetchone() == (3,)  # 0.2.0 refuses it from now on
    db.close()


def test_a_ledger_of_0_2_0_moves_to_a_database(second: Path, url: str) -> None:
    copy_store(second, url)
    with Ledger(url) as ledger:
        stored = ledger.settle(["ann"], [NAME], np.zeros((1, 4)), Guarantee(2.0))
        np.testing.assert_array_equal(stored.vectors[0], VECTOR)
        assert not stored.is_new.any() and ledger.budget == Budget(6.0)
