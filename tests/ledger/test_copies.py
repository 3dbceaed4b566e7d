"""Whoever goes on with a copy gives out the same bytes, and charges nobody a second time."""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import OutputError
from capelet.ledger.anchors import check_anchor, write_anchor
from capelet.ledger.budgets import Budget, BudgetError
from capelet.ledger.copies import copy_store
from capelet.ledger.key_encryption import KEY_FILE
from capelet.ledger.settlement import Order, Request, Settlement
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee

Place = Path | str
TWO = Guarantee(epsilon=2.0)
REQUEST = Request("key", "attempt", b"body")


def release(ledger: Ledger, text: bytes, value: float, request: Request | None = None) -> bytes:
    """What ann gets for a text, whose noise would be `value`."""
    name = ledger.release_name("recipe", "ann", text)
    vector = np.full((1, 4), value, dtype=np.float32)
    (settlement,) = ledger.settle_all([Order(["ann"], [name], vector, TWO, request=request)])
    assert isinstance(settlement, Settlement), settlement
    return settlement.vectors.tobytes()


def spent(ledger: Ledger) -> float:
    total = ledger.spent("ann")
    return 0.0 if total is None else total.epsilon


@pytest.fixture
def book(place: Place) -> Place:
    with Ledger(place) as ledger:
        ledger.limit(Budget(6.0), "daily", Budget(8.0))
        release(ledger, b"text", 1.0, REQUEST)
        ledger.keys.add("team")
    return place


@pytest.mark.parametrize("back_to", ["path", "url"])
def test_a_restored_store_releases_nothing_twice(
    book: Place, tmp_path: Path, back_to: str, request: pytest.FixtureRequest
) -> None:
    """Release, back up, restore (also into the other database), release the same text again."""
    copy = tmp_path / "copy.db"
    assert copy_store(book, copy) == 3  # budget, day, charge
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    new_place = tmp_path / "new.db" if back_to == "path" else other_database(request)
    copy_store(copy, new_place)
    with Ledger(book) as before, Ledger(new_place) as after:
        assert after.identity == before.identity and after.head == before.head
        assert release(after, b"text", 2.0) == release(before, b"text", 3.0)
        assert spent(after) == 2.0 and after.answer(REQUEST) == before.answer(REQUEST)
        assert after.keys.all() == before.keys.all() and after.limits == before.limits
        # It goes on: new people and new guarantees get numbers that nobody has.
        after.settle(["bob"], [b"bob's"], np.zeros((1, 4)), Guarantee(1.0))
        release(after, b"another", 4.0)
        release(after, b"a third", 4.0)
        with pytest.raises(BudgetError):
            after.settle(["ann"], [b"a fourth"], np.zeros((1, 4)), TWO)
        after.verify(before.head)
        assert [item for item in tmp_path.iterdir() if item.name.startswith(".")] == []


def other_database(request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue("postgres")
    return str(server.create(f"restored_{abs(hash(request.node.name))}"))


def test_a_copy_replaces_nothing(book: Place, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy_store(book, copy)
    before = copy.read_bytes()
    with pytest.raises(OutputError, match="is there already; a copy replaces nothing"):
        copy_store(book, copy)
    assert copy.read_bytes() == before
    if isinstance(book, str):
        with pytest.raises(OutputError, match="has charges or keys of its own"):
            copy_store(copy, book)
    with pytest.raises(OutputError, match="there is no ledger"):
        copy_store(tmp_path / "no.db", tmp_path / "other.db")
    assert not (tmp_path / "other.db").exists() and not (tmp_path / "no.db").exists()


def test_a_copy_is_one_state_though_others_go_on_charging(book: Place, tmp_path: Path) -> None:
    """Every copy is verified as it is made; a torn one would not agree with its log."""
    end = threading.Event()

    def charge() -> None:
        with Ledger(book) as ledger:
            number = 0
            while not end.is_set():
                ledger.settle([f"p{number}"], [b"%d" % number], np.zeros((1, 4)), Guarantee(0.1))
                number += 1

    worker = threading.Thread(target=charge)
    worker.start()
    try:
        entries = [copy_store(book, tmp_path / f"{number}.db") for number in range(3)]
    finally:
        end.set()
        worker.join()
    assert entries == sorted(entries)


def test_an_edited_or_an_old_copy_is_noticed(book: Place, tmp_path: Path) -> None:
    old, anchor = tmp_path / "old.db", tmp_path / "anchor.json"
    copy_store(book, old)
    with Ledger(book) as ledger:
        write_anchor(ledger, anchor)
    copy_store(old, tmp_path / "good.db", anchor)  # the control
    with Ledger(book) as ledger:
        release(ledger, b"after the copy", 1.0)
        write_anchor(ledger, anchor)
    with pytest.raises(OutputError, match="does not contain entry 4"):
        copy_store(old, tmp_path / "new.db", anchor)
    with pytest.raises(OutputError, match="there is no anchor"):
        copy_store(old, tmp_path / "new.db", tmp_path / "no.json")
    direct = sqlite3.connect(old)
    direct.execute("UPDATE totals SET releases = 0")
    direct.commit()
    direct.close()
    with pytest.raises(OutputError, match="sums are not those of its log"):
        copy_store(old, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_who_has_an_empty_store_open_does_not_go_on_in_a_restored_one(path: Path, url: str) -> None:
    """Its names and pseudonyms would be of another key: new budgets, and second releases."""
    with Ledger(path) as ledger:
        release(ledger, b"text", 1.0)
    with Ledger(url) as early:
        early.open()
        copy_store(path, url)
        with pytest.raises(OutputError, match="another stands in its place"):
            release(early, b"text", 2.0)
    with Ledger(url) as late:  # the control
        release(late, b"text", 2.0)
        assert spent(late) == 2.0


# ---- the outer key -------------------------------------------------------------------------------


def test_a_rotated_key_locks_the_store_and_changes_no_name(
    book: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, copy = tmp_path / "1.key", tmp_path / "2.key", tmp_path / "copy.db"
    with Ledger(book) as ledger:
        before, identity, key = release(ledger, b"text", 2.0), ledger.identity, ledger._db.key
        write_anchor(ledger, tmp_path / "anchor.json")
        assert key in key_content(ledger)  # the control
        ledger.rotate_key(first)
        assert stat.S_IMODE(first.stat().st_mode) == 0o600 and key not in key_content(ledger)
        if isinstance(book, Path):
            assert key not in book.read_bytes()  # nor in free pages
    with pytest.raises(OutputError, match=f"{KEY_FILE} names no file"):
        Ledger(book)
    monkeypatch.setenv(KEY_FILE, str(first))
    with Ledger(book) as ledger:
        assert ledger.identity == identity and release(ledger, b"text", 3.0) == before
        ledger.rotate_key(second)
        release(ledger, b"text", 3.0)  # who has it open goes on,
        ledger.close()
        release(ledger, b"text", 3.0)  # also over another connection
    with pytest.raises(OutputError, match="does not open the ledger"):
        Ledger(book)
    monkeypatch.setenv(KEY_FILE, str(second))
    copy_store(book, copy)
    with Ledger(copy) as ledger:
        assert release(ledger, b"text", 4.0) == before and spent(ledger) == 2.0
        check_anchor(ledger, tmp_path / "anchor.json")
    monkeypatch.delenv(KEY_FILE)
    with pytest.raises(OutputError, match="is locked"):
        Ledger(copy)


def key_content(ledger: Ledger) -> bytes:
    ((content,),) = ledger._db.connection.rows("SELECT value FROM facts WHERE name = 'key'")
    return bytes(content)


def test_a_store_that_is_made_under_an_outer_key_never_held_its_own(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k").write_text("a secret of more than thirty-two bytes\n")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "k"))
    with Ledger(place) as one, Ledger(place) as other:
        assert one.release_name("r", "ann", b"t") == other.release_name("r", "ann", b"t")
        assert one._db.key not in key_content(one)


def test_what_is_no_key_file(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short").write_text("0123")
    with Ledger(place) as ledger:
        ledger.open()
        with pytest.raises(OutputError, match="has 4 bytes, and a key needs 32"):
            ledger.rotate_key(tmp_path / "short")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "no"))
    with pytest.raises(OutputError, match="cannot read the key file"):
        Ledger(place)


def test_the_log_says_that_a_key_was_rotated(path: Path, tmp_path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.rotate_key(tmp_path / "k")
        ((time, content),) = ledger._db.acts("rotation")
        assert "T" in time and json.loads(content) == {}
        ledger.verify(ledger.head)
