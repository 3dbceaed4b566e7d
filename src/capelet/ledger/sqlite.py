"""A store in one SQLite file, readable by its owner only: one machine, any number of processes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from capelet.errors import OutputError, StoreDown
from capelet.ledger.connection import WAIT, Connection
from capelet.ledger.schema import VERSION, check_version, statements

_MARK = 0x43415045  # the application id of the file
_TYPES = {
    "bytes": "BLOB", "whole": "INTEGER", "real": "REAL", "number": "INTEGER PRIMARY KEY",
    "by_key": "WITHOUT ROWID",
}  # fmt: skip


class SQLiteConnection(Connection):
    """The file is made by `open`; a path where nothing is yet reads as an empty store."""

    errors = sqlite3.Error

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path
        self._inode = 0
        if path.exists():
            self.open()

    def exists(self) -> bool:
        return self.path.exists()

    def _connect(self) -> None:
        try:
            if not self.path.exists():
                self.check_new()
                # Made before SQLite opens it, which would leave the mode to the umask.
                self.path.touch(mode=0o600)
            # Threads take turns by our own lock, which SQLite's check of threads cannot know.
            self._raw = sqlite3.connect(
                self.path, timeout=WAIT, isolation_level=None, check_same_thread=False
            )
            self._prepare(self._raw)
            self.path.chmod(0o600)
            self._inode = self.path.stat().st_ino
        except OSError as error:
            self.close()
            raise StoreDown(f"cannot open the ledger {self.place!r} ({error.strerror})") from None
        except sqlite3.Error as error:
            self.close()
            raise self._unusable(error, "one that Capelet made, or a new name") from None
        except OutputError:
            self.close()
            raise

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
        if mark == version == 0:
            self._create_tables(db)
        else:
            check_version(self.place, version)
        self.share_key()
        db.execute("COMMIT")
        _write_ahead(db)

    def _create_tables(self, db: sqlite3.Connection) -> None:
        # One by one: `executescript` would end the transaction first.
        for statement in statements(_TYPES):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {_MARK}")
        db.execute(f"PRAGMA user_version = {VERSION}")

    def _close(self) -> None:
        self._raw.close()

    def _begin(self) -> None:
        self._check_file()
        self._run("BEGIN IMMEDIATE", ())

    def _begin_snapshot(self) -> None:
        self._run("BEGIN", ())

    def _in_transaction(self) -> bool:
        return bool(self._raw.in_transaction)

    def _check_file(self) -> None:
        """Refuse to write into a file that was deleted or replaced: nobody would ever read it."""
        try:
            is_same = self.path.stat().st_ino == self._inode
        except OSError:
            is_same = False
        if not is_same:
            self.close()
            raise StoreDown(
                f"the ledger {self.place!r} was deleted or replaced while it was in use; nothing "
                "was charged or released; bring it back from a copy, and start again"
            )

    def ping(self) -> None:
        """Complain where the file cannot be read."""
        self.open()
        self._check_file()
        self.rows("SELECT count(*) FROM facts")

    def _run(self, query: str, values: Sequence[object]) -> sqlite3.Cursor:
        return self._raw.execute(query, values)

    def _run_many(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        self._raw.executemany(query, rows)

    def _run_stream(self, query: str) -> Iterable[Any]:
        return self._raw.execute(query)

    def _is_away(self, error: Exception) -> bool:
        # Full, locked for too long, read-only, no such folder, an error of the disk.
        return isinstance(error, sqlite3.OperationalError)

    def among(self, query: str, values: Iterable[object]) -> Iterator[Any]:
        # SQLite before 3.32 takes no more than 999 variables in a query.
        keys = list(values)
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            yield from self.rows(f"{query} IN ({', '.join('?' * len(some))})", *some)

    def flush(self) -> None:
        """Carry the write-ahead log into the file and empty it: it may hold what was erased."""
        self.rows("PRAGMA wal_checkpoint(TRUNCATE)")


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite does not wait for others here, so we do."""
    deadline = time.monotonic() + WAIT
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
