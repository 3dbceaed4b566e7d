"""The file behind the store: all of its SQL, for SQLite.

Whoever uses it sees numbers, texts and bytes, and no type of SQLite, so that a store in another
database is another module of this shape. The tables:

- `people`: a keyed pseudonym for each person, and the name until the person is erased;
- `totals`: running sums of releases by person and guarantee, so that a charge costs the same
  whatever was charged before;
- `log` and `charges`: every act in order (charges, changes of the budget, erasures), each with a
  keyed hash over itself and the one before: a chain, whose head commits to all of it;
- `releases`: the vectors that were paid for, by name.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from capelet.errors import OutputError
from capelet.privacy.migration import migrate
from capelet.privacy.people import fold_person

# The form of the tables. What 0.1.0 wrote has none, and is brought to this one (`migration`).
VERSION = 2

_MARK = 0x43415045  # the application id of the file
_WAIT = 60.0  # seconds to wait for another process
# The table `charges` of 0.1.0 had other columns: an old Capelet fails here and cannot undercount.
TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
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
# A connection that crossed a fork may be neither used nor closed (sqlite.org/howtocorrupt.html,
# 2.6); a reference keeps it from being closed by the garbage collector.
_PARENTS_CONNECTIONS: list[sqlite3.Connection | None] = []


class NewerVersionError(sqlite3.DatabaseError):
    """The file was written by a later Capelet."""


class StoredRelease(NamedTuple):
    """A vector as bytes and whose it is; no person where 0.1.0 kept it and wrote none down."""

    vector: bytes
    person: int | None


class Entry(NamedTuple):
    """One act of the log; charges are (pseudonym, guarantee, releases) in order of person."""

    number: int
    time: str
    kind: str
    content: str
    charges: Sequence[tuple[bytes, str, int]]

    def link(self, key: bytes, previous: bytes) -> bytes:
        """The head after this entry: a keyed hash of the head before and of all that is in it."""
        # Keyed: a head that is kept elsewhere tells nothing to who has not got the store.
        content = [*self[:4], [(who.hex(), promise, count) for who, promise, count in self.charges]]
        return hmac.digest(key, previous + json.dumps(content).encode(), "sha256")


class Database:
    """One SQLite file, readable by its owner only; for any thread, any process, and after a fork.

    The file is made by `open`; a path where nothing is yet reads as an empty store.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # For a file that is not yet there: it takes this key over when it is made.
        self.key = secrets.token_bytes(32)
        self._connection: sqlite3.Connection | None = None
        self._turn = threading.RLock()
        self._process = os.getpid()
        if path.exists():
            self.open()

    # ---- the file ----

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def open(self) -> None:
        """Make the file where it is not yet there; from then on it has its own key."""
        self._leave_parents_connection()
        with self._turn:
            if self._connection is None:
                self._open()

    def _open(self) -> None:
        try:
            if not self.path.exists():
                # Made before SQLite opens it, which would leave the mode to the umask.
                self.path.touch(mode=0o600)
            # Threads take turns by our own lock, which SQLite's check of threads cannot know.
            self._connection = sqlite3.connect(
                self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False
            )
            self._prepare(self._connection)
            self.path.chmod(0o600)
        except OSError as error:
            self.close()
            raise OutputError(
                f"cannot open the ledger {str(self.path)!r} ({error.strerror})"
            ) from None
        except NewerVersionError as error:
            self.close()
            raise OutputError(
                f"the ledger {str(self.path)!r} was written by a newer Capelet ({error}); "
                "install that one, or begin a new ledger"
            ) from None
        except sqlite3.Error as error:
            self.close()
            raise OutputError(
                f"{str(self.path)!r} cannot be used as a ledger ({error}); give one that Capelet "
                "made, or a new name"
            ) from None

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Tables, key and mark; then the write-ahead log. Safe when two processes do it at once."""
        db.execute("PRAGMA synchronous = FULL")
        # An erased person's vectors are overwritten, not only unlinked.
        db.execute("PRAGMA secure_delete = ON")
        db.execute("BEGIN IMMEDIATE")
        mark = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        # An empty file is ours to fill; one with tables and no mark is somebody else's.
        if mark != _MARK and (mark or tables):
            raise sqlite3.DatabaseError("another program's file")
        if version > VERSION:
            raise NewerVersionError(f"version {version} of the store, and this one knows {VERSION}")
        if version < VERSION:
            if "kept" in tables:
                self._take_key(db)
                migrate(self, db)
            else:
                create_tables(db)
            db.execute(f"PRAGMA application_id = {_MARK}")
            db.execute(f"PRAGMA user_version = {VERSION}")
        self._take_key(db)
        db.execute("COMMIT")
        _write_ahead(db)

    def _take_key(self, db: sqlite3.Connection) -> None:
        # Of two processes the first decides the key, and the second takes it over.
        db.execute("INSERT OR IGNORE INTO facts VALUES ('key', ?)", (self.key,))
        self.key = db.execute("SELECT value FROM facts WHERE name = 'key'").fetchone()[0]

    def close(self) -> None:
        with self._turn:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def _leave_parents_connection(self) -> None:
        if self._process == os.getpid():
            return
        _PARENTS_CONNECTIONS.append(self._connection)
        # The lock, too, may have been taken by a thread that is not in this process.
        self._connection, self._turn, self._process = None, threading.RLock(), os.getpid()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing, with the write lock from the start; undone on any error."""
        self.open()
        with self._turn:
            db = self._connection
            assert db is not None
            try:
                db.execute("BEGIN IMMEDIATE")
                yield
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise OutputError(
                    f"the ledger {str(self.path)!r} cannot be written ({error}); nothing of this "
                    "charge was made; run the same again to go on"
                ) from None
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def _rows(self, query: str, *values: object) -> list[Any]:
        if self._process != os.getpid() and self._connection is not None:
            self.open()
        with self._turn:
            if self._connection is None:
                return []
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._unreadable(error) from None

    def _stream(self, query: str) -> Iterator[Any]:
        """The rows of a query that are too many for the memory, while no other thread writes."""
        with self._turn:
            if self._connection is not None:
                try:
                    yield from self._connection.execute(query)
                except sqlite3.Error as error:
                    raise self._unreadable(error) from None

    def _unreadable(self, error: sqlite3.Error) -> OutputError:
        return OutputError(f"the ledger {str(self.path)!r} cannot be read ({error})")

    def _write(self, query: str, *values: object) -> int:
        """Run one statement of a transaction; how many rows it changed."""
        assert self._connection is not None
        return self._connection.execute(query, values).rowcount

    def _write_many(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        assert self._connection is not None
        self._connection.executemany(query, rows)

    # ---- facts and people ----

    def fact(self, name: str) -> str | None:
        rows = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def set_fact(self, name: str, value: str) -> None:
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?)", name, value)

    def digest(self, *parts: bytes) -> bytes:
        """A hash of the parts that nobody without the file can compute."""
        return keyed_hash(self.key, *parts)

    def pseudonym(self, person: str) -> bytes:
        return self.digest(b"person", person.encode())

    def person(self, person: str) -> int | None:
        """The number of a person, by pseudonym: who was erased is still known, and still capped."""
        rows = self._rows("SELECT id FROM people WHERE pseudonym = ?", self.pseudonym(person))
        return int(rows[0][0]) if rows else None

    def add_person(self, person: str) -> int:
        """The number of a person, who is entered if need be; an erased one stays without a name."""
        self._write(
            "INSERT OR IGNORE INTO people (pseudonym, fold, name) VALUES (?, ?, ?)",
            self.pseudonym(person),
            self._fold(person),
            person,
        )
        number = self.person(person)
        assert number is not None
        return number

    def people(self) -> list[tuple[bytes, str | None]]:
        """Pseudonym and name of everyone, in order of name; without a name who was erased."""
        return list(self._rows("SELECT pseudonym, name FROM people ORDER BY name, pseudonym"))

    def has_alike(self, person: str) -> bool:
        """Whether somebody else's identifier looks like this one."""
        query = "SELECT 1 FROM people WHERE fold = ? AND pseudonym != ? LIMIT 1"
        return bool(self._rows(query, self._fold(person), self.pseudonym(person)))

    def _fold(self, person: str) -> bytes:
        return self.digest(b"fold", fold_person(person).encode())

    def erase(self, person: int) -> int:
        """Delete a person's name and releases, and releases of nobody known; how many went."""
        self._write("UPDATE people SET name = NULL WHERE id = ?", person)
        return self._write("DELETE FROM releases WHERE person = ? OR person IS NULL", person)

    def flush(self) -> None:
        """Carry the write-ahead log into the file and empty it: it may hold what was erased."""
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")

    # ---- charges ----

    def totals(self, person: int) -> list[tuple[int, int]]:
        """How many releases a person was charged, by the number of the guarantee."""
        return self._rows("SELECT guarantee, releases FROM totals WHERE person = ?", person)

    def counts(self) -> tuple[int, int, float]:
        """People, releases that were charged, and the highest sum of ε of one person."""
        query = (
            "SELECT count(*), coalesce(sum(releases), 0), coalesce(max(epsilon), 0.0) FROM ("
            "SELECT sum(t.releases) AS releases, sum(t.releases * g.epsilon) AS epsilon "
            "FROM totals t JOIN guarantees g ON g.id = t.guarantee GROUP BY t.person)"
        )
        rows = self._rows(query)
        return (int(rows[0][0]), int(rows[0][1]), float(rows[0][2])) if rows else (0, 0, 0.0)

    def guarantee(self, number: int) -> str:
        return str(self._rows("SELECT content FROM guarantees WHERE id = ?", number)[0][0])

    def guarantee_number(self, content: str, epsilon: float) -> int:
        self._write(
            "INSERT OR IGNORE INTO guarantees (content, epsilon) VALUES (?, ?)", content, epsilon
        )
        return int(self._rows("SELECT id FROM guarantees WHERE content = ?", content)[0][0])

    def charge(
        self, needs: Mapping[int, int], guarantee: int, content: str, moment: str | None = None
    ) -> None:
        """Add to each person's total, and write it into the log as one entry."""
        rows = [(person, guarantee, needs[person]) for person in sorted(needs)]
        self._write_many(
            "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT (person, guarantee) "
            "DO UPDATE SET releases = releases + excluded.releases",
            rows,
        )
        number = self.head()[0] + 1
        self._write_many(
            "INSERT INTO charges VALUES (?, ?, ?, ?)", ((number, *row) for row in rows)
        )
        self.append("charge", content, moment)

    # ---- the log ----

    def append(self, kind: str, content: str, moment: str | None = None) -> None:
        """Write an entry, whose charges are in the table already, and link it to the one before."""
        count, head = self.head()
        now = datetime.now(UTC).isoformat(timespec="seconds") if moment is None else moment
        charges = self._rows(
            "SELECT p.pseudonym, g.content, c.releases FROM charges c JOIN people p "
            "ON p.id = c.person JOIN guarantees g ON g.id = c.guarantee "
            "WHERE c.entry = ? ORDER BY c.person",
            count + 1,
        )
        entry = Entry(count + 1, now, kind, content, charges)
        link = entry.link(self.key, head)
        self._write("INSERT INTO log VALUES (?, ?, ?, ?, ?)", *entry[:4], link)

    def head(self) -> tuple[int, bytes]:
        """How many entries there are, and the last link of their chain."""
        rows = self._rows("SELECT number, head FROM log ORDER BY number DESC LIMIT 1")
        return (int(rows[0][0]), rows[0][1]) if rows else (0, b"")

    def acts(self, kind: str) -> list[tuple[str, str]]:
        """Time and content of all entries of a kind."""
        return self._rows("SELECT time, content FROM log WHERE kind = ? ORDER BY number", kind)

    def links(self) -> Iterator[tuple[int, bytes, bool]]:
        """Each entry's number, its link as computed anew, and whether that is the stored one."""
        query = (
            "SELECT l.number, l.time, l.kind, l.content, l.head, p.pseudonym, g.content, "
            "c.releases FROM log l LEFT JOIN charges c ON c.entry = l.number "
            "LEFT JOIN people p ON p.id = c.person LEFT JOIN guarantees g ON g.id = c.guarantee "
            # The order of both tables' keys: nothing is sorted, and one entry is held at a time.
            "ORDER BY l.number, c.person"
        )
        head = b""
        entries = groupby(self._stream(query), lambda row: row[:5])
        for place, ((number, moment, kind, content, link), rows) in enumerate(entries, 1):
            charges = [row[5:] for row in rows if row[7] is not None]
            # A charge of nobody, or for nothing that is known: somebody edited those tables.
            if any(who is None or promise is None for who, promise, _ in charges):
                yield place, b"", False
                return
            head = Entry(number, moment, kind, content, charges).link(self.key, head)
            yield number, head, head == link and number == place

    def sums_agree(self) -> bool:
        """Whether the running sums are those of the log."""
        log_sums = "SELECT person, guarantee, sum(releases) FROM charges GROUP BY person, guarantee"
        totals = "SELECT person, guarantee, releases FROM totals"
        both = (f"{log_sums} EXCEPT {totals}", f"{totals} EXCEPT {log_sums}")
        return not any(self._rows(f"SELECT * FROM ({query}) LIMIT 1") for query in both)

    # ---- releases ----

    def find(self, names: Iterable[bytes]) -> dict[bytes, StoredRelease]:
        rows = self._among("SELECT name, vector, person FROM releases WHERE name IN", names)
        return {name: StoredRelease(vector, person) for name, vector, person in rows}

    def names_among(self, names: Iterable[bytes]) -> set[bytes]:
        """Those of the names under which something is stored; the vectors are not read."""
        rows = self._among("SELECT name FROM releases WHERE name IN", names)
        return {name for (name,) in rows}

    def _among(self, query: str, names: Iterable[bytes]) -> Iterator[Any]:
        keys = list(names)
        # SQLite before 3.32 takes no more than 999 variables in a query.
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            yield from self._rows(f"{query} ({', '.join('?' * len(some))})", *some)

    def keep(self, run: str, rows: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Store (name, person, vector); a name that is there is never replaced."""
        self._write_many(
            "INSERT INTO releases (name, person, run, vector) VALUES (?, ?, ?, ?)",
            ((name, person, run, vector) for name, person, vector in rows),
        )

    def releases_of(self, run: str) -> int:
        rows = self._rows("SELECT count(*) FROM releases WHERE run = ?", run)
        return int(rows[0][0]) if rows else 0

    def forget(self, run: str) -> None:
        self._write("DELETE FROM releases WHERE run = ?", run)


def keyed_hash(key: bytes, *parts: bytes) -> bytes:
    # Each part goes in with its length: "ab" + "c" and "a" + "bc" must not share a hash.
    unambiguous = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(key, unambiguous, "sha256")


def create_tables(db: sqlite3.Connection) -> None:
    # One by one: `executescript` would end the transaction first.
    for statement in TABLES.split(";"):
        db.execute(statement)


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite does not wait for others here, so we do."""
    deadline = time.monotonic() + _WAIT
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
