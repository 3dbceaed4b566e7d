"""What only a database on a server can do: be away, refuse, be somebody else's, know a password."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import CapeletError, MissingExtra, OutputError, StoreDown
from capelet.ledger.postgres import public_place
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee
from postgres import Server

psycopg = pytest.importorskip("psycopg")
TWO = Guarantee(epsilon=2.0)


def settle(ledger: Ledger, name: bytes, person: str = "ann") -> None:
    ledger.settle([person], [name], np.ones((1, 3)), TWO)


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@db.example:5432/people",
        "postgresql://ann:hun/ter2@db.example/people",
        "postgresql://ann:hun?ter2@db.example/people",
        "postgresql://ann:hun#ter2@db.example/people",
        "postgresql://ann:hun@ter2@db.example/people",
        "postgresql://ann:hunter2/people",
        "postgresql://db.example/people?password=hunter2",
        "postgresql://db.example/people?sslpassword=a@hunter2",
        "postgres://:hunter2@/",
    ],
)
def test_no_part_of_a_password_is_ever_said(url: str) -> None:
    place = public_place(url)
    assert place.startswith("postgresql://") and "hun" not in place and "ter2" not in place
    with pytest.raises(CapeletError) as error:
        Ledger(url + ("&" if "?" in url else "?") + "connect_timeout=2&hostaddr=127.0.0.1&port=1")
    assert "hun" not in str(error.value) and "ter2" not in str(error.value)


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"capelet\[service\]"):
        Ledger("postgresql://localhost/people")


def test_a_database_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(StoreDown, match="cannot reach the ledger 'postgresql:///people'"):
        Ledger(f"postgresql://ann@/people?host={tmp_path}")


def test_a_session_that_was_ended_is_begun_anew(url: str) -> None:
    end_others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid != pg_backend_pid()"
    )
    with Ledger(url) as ledger:
        settle(ledger, b"a")
        execute(url, end_others)
        settle(ledger, b"b")
        execute(url, end_others)
        assert ledger.names_among([b"a", b"b"]) == {b"a", b"b"}
        execute(url, end_others)
        ledger.ping()
        # In the middle of a transaction, though, nothing is tried again.
        sentence = "nothing of this charge was made"
        with pytest.raises(StoreDown, match=sentence), ledger._db.transaction():
            ledger._db.add_people(["bob"])
            execute(url, end_others)
            ledger._db.add_people(["eve"])
        assert ledger.subjects() == ["ann"]
        # Ended before the end was heard: all or nothing, and said so.
        with pytest.raises(StoreDown, match="wholly or not at all"), ledger._db.transaction():
            ledger._db.add_people(["bob"])
            execute(url, end_others)
        settle(ledger, b"c")
        ledger.verify(ledger.head)


def test_who_stands_still_with_the_lock_holds_nobody_up_for_long(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capelet.ledger.postgres._PATIENCE", 0.5)
    with Ledger(url) as still, Ledger(url) as other:
        settle(still, b"a")
        end = threading.Event()

        def hold() -> None:
            with pytest.raises(StoreDown), still._db.transaction():
                end.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        time.sleep(0.1)
        settle(other, b"b")
        end.set()
        thread.join()
        settle(still, b"c")
        assert still.names_among([b"a", b"b", b"c"]) == {b"a", b"b", b"c"}


def test_a_lock_that_nobody_gives_up_is_a_store_that_is_down(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capelet.ledger.postgres.WAIT", 0.2)
    with Ledger(url) as one, Ledger(url) as other:
        settle(one, b"a")
        with one._db.transaction(), pytest.raises(StoreDown, match="lock timeout"):
            settle(other, b"b")
        settle(other, b"b")


def test_a_disk_that_is_full_charges_nothing(url: str) -> None:
    with Ledger(url) as ledger:
        settle(ledger, b"a")
        execute(
            url,
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'could not extend file: No space left' USING ERRCODE = '53100'; "
            "END $$",
            "CREATE TRIGGER full_disk BEFORE INSERT ON capelet.releases "
            "EXECUTE FUNCTION full_disk()",
        )
        with pytest.raises(StoreDown, match=r"No space left.*nothing of this charge"):
            settle(ledger, b"b", "bob")
        execute(url, "DROP TRIGGER full_disk ON capelet.releases")
        assert ledger.counts() == (1, 1, 2.0) and ledger.spent("bob") is None
        settle(ledger, b"b", "bob")
        ledger.verify(ledger.head)


@pytest.mark.parametrize("version", [2, 4])
def test_a_store_of_another_version_is_refused(url: str, version: int) -> None:
    with Ledger(url) as ledger:
        settle(ledger, b"a")
    execute(url, f"UPDATE capelet.facts SET value = '{version}' WHERE name = 'version'")
    with pytest.raises(OutputError, match=f"is a store of version {version}, and this Capelet"):
        Ledger(url)


def test_tables_of_somebody_else_are_left_alone(url: str) -> None:
    execute(url, "CREATE TABLE people (x int)", "CREATE SCHEMA capelet")
    with Ledger(url) as ledger:
        settle(ledger, b"a")  # beside a table of the same name in another schema
    execute(url, "DROP SCHEMA capelet CASCADE", "CREATE SCHEMA capelet")
    execute(url, "CREATE TABLE capelet.mine (x int)")
    with pytest.raises(OutputError, match="has another program's tables"):
        Ledger(url)


def test_a_user_without_rights_gets_a_sentence(url: str, postgres: Server) -> None:
    execute(url, "CREATE ROLE guest LOGIN", "REVOKE CREATE ON DATABASE postgres FROM PUBLIC")
    try:
        with pytest.raises(OutputError, match=r"cannot be used as a ledger.*may make a schema"):
            Ledger(url.replace("postgres@", "guest@")).open()
    finally:
        execute(postgres.url(), "DROP ROLE guest")


def test_another_store_in_the_same_place_is_noticed(url: str) -> None:
    """A store that was dropped and made anew has another key: every name would be a new release."""
    with Ledger(url) as ledger:
        settle(ledger, b"a")
        execute(url, "DROP SCHEMA capelet CASCADE")
        ledger.close()
        with pytest.raises(StoreDown, match="is gone since it was opened"):
            settle(ledger, b"b")
        with Ledger(url) as other:
            settle(other, b"a")
        with pytest.raises(OutputError, match="another stands in its place"):
            settle(ledger, b"b")


def test_commits_reach_the_disk_whatever_the_server_says(url: str) -> None:
    for setting, holds in (("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")):
        execute(url, f"ALTER ROLE postgres SET synchronous_commit = '{setting}'")
        try:
            with Ledger(url) as ledger:
                ledger.open()
                assert ledger._db.connection.rows("SHOW synchronous_commit") == [(holds,)]
        finally:
            execute(url, "ALTER ROLE postgres RESET synchronous_commit")
