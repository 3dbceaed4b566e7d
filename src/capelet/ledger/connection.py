"""A connection to the database of a store: turns, transactions and errors, whatever the database.

`sqlite` and `postgres` are its two members. Queries are written once (`database`), with `?` for
values, in what both databases understand; a member says how to connect, how to lock, and which
errors mean that the database is away. Above this module no type of either database is seen.
"""

from __future__ import annotations

import hmac
import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from capelet.errors import OutputError, StoreDown
from capelet.ledger.key_encryption import inner_key, outer_key, stored_form

WAIT = 60.0  # seconds to wait for another process

# A connection that crossed a fork may be neither used nor closed: SQLite would drop the parent's
# locks (sqlite.org/howtocorrupt.html, 2.6), PostgreSQL end the parent's session. A reference keeps
# it from being closed by the garbage collector.
_PARENTS_CONNECTIONS: list[Any] = []


class Connection(ABC):
    """One store's database, for any thread, any process, and after a fork.

    The store is made by `open`; where nothing is yet, everything reads as empty. `place` is how
    messages call it, without a password.
    """

    errors: type[Exception]

    def __init__(self, place: str) -> None:
        self.place = place
        # For a store that is not yet there: it takes this key over when it is made.
        self.key = secrets.token_bytes(32)
        self._has_stored_key = False
        self._raw: Any = None
        self._is_transacting = False
        self._turn = threading.RLock()
        self._process = os.getpid()

    # ---- what a member says ----

    @abstractmethod
    def exists(self) -> bool:
        """Whether somebody made the store already."""

    @abstractmethod
    def _connect(self) -> None:
        """Set `_raw`, and make tables and key where they are not yet there."""

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction that nobody else writes in: the log has one order."""

    @abstractmethod
    def _begin_snapshot(self) -> None:
        """Begin a transaction that reads one state of the store, while others may write."""

    @abstractmethod
    def _in_transaction(self) -> bool: ...

    @abstractmethod
    def _run(self, query: str, values: Sequence[object]) -> Any:
        """A cursor with the result of a query."""

    @abstractmethod
    def _run_many(self, query: str, rows: Iterable[Sequence[object]]) -> None: ...

    @abstractmethod
    def _run_stream(self, query: str) -> Iterable[Any]:
        """The rows of a query, of which only some are held in memory."""

    @abstractmethod
    def _is_away(self, error: Exception) -> bool:
        """Whether the database cannot be reached or cannot write, and later perhaps can."""

    @abstractmethod
    def among(self, query: str, values: Iterable[object]) -> Iterator[Any]:
        """The rows of a query that ends with a column's name, where the column is a value."""

    @abstractmethod
    def ping(self) -> None:
        """Complain (`StoreDown`) where the database cannot be reached."""

    @abstractmethod
    def flush(self) -> None:
        """Take what was deleted from where the database still has it, as far as it can."""

    # ---- the same for both ----

    @property
    def is_open(self) -> bool:
        return self._raw is not None

    def open(self) -> None:
        """Make the store where it is not yet there; from then on it has its own key."""
        self._leave_parents_connection()
        with self._turn:
            if self._raw is None:
                self._connect()

    def refresh(self) -> None:
        """Open a store that somebody else has made since, and leave a parent's connection."""
        is_inherited = self._process != os.getpid() and self._raw is not None
        if is_inherited or (self._raw is None and self.exists()):
            self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def identity(self) -> str:
        """A name of this store that tells nothing of its key."""
        return hmac.digest(self.key, b"identity", "sha256").hex()[:16]

    def share_key(self) -> None:
        """Use the key that the store holds; where it has none yet, it takes this one over.

        The caller holds the lock: of two processes the first decides the key.
        """
        facts = self._key_facts()
        is_new = not facts
        if "key" not in facts:
            facts["key"] = stored_form(self.key, outer_key())
            self._run("INSERT INTO facts VALUES ('key', ?)", (facts["key"],))
        # Who has the key already needs no outer one: it may have been rotated meanwhile.
        if not self._has_stored_key:
            self.key = inner_key(facts["key"], outer_key(), self.place)
        if is_new:
            facts["identity"] = self.identity.encode()
            self._run("INSERT INTO facts VALUES ('identity', ?)", (facts["identity"],))
        self._check_identity(facts)
        self._has_stored_key = True

    def _key_facts(self) -> dict[str, bytes]:
        query = "SELECT name, value FROM facts WHERE name IN ('key', 'identity')"
        rows = self._run(query, ()).fetchall()
        # Texts are no keys of ours, and are to be refused as such.
        return {
            name: str(value).encode() if isinstance(value, str) else bytes(value)
            for name, value in rows
        }

    def _check_identity(self, facts: Mapping[str, bytes]) -> None:
        """Refuse another store in the place of the one whose key is used.

        Names that were made under another key would not be found: each would be a second release,
        by people with a new budget.
        """
        if facts.get("identity") != self.identity.encode():
            raise OutputError(
                f"the key of the ledger {self.place!r} is not the one that it was made with, or "
                "was opened with: it was edited, or another stands in its place; nothing was "
                "released. Bring it back from a copy, and start again"
            )

    def check_new(self) -> None:
        """Refuse to make a store anew where this connection has used one: all would be forgotten.

        Everyone would have a full budget again, and every text be released a second time.
        """
        if self._has_stored_key:
            raise StoreDown(
                f"the ledger {self.place!r} is gone since it was opened; nothing was charged or "
                "released; bring it back from a copy, and start again"
            )

    def adopt(self) -> None:
        """Go on with what was copied into the tables: its key, its numbers."""
        self._has_stored_key = False
        self.share_key()

    def close(self) -> None:
        with self._turn:
            if self._raw is not None and self._process == os.getpid():
                self._close()
            self._raw = None

    def _leave_parents_connection(self) -> None:
        if self._process == os.getpid():
            return
        _PARENTS_CONNECTIONS.append(self._raw)
        # The lock, too, may have been taken by a thread that is not in this process.
        self._raw, self._turn, self._process = None, threading.RLock(), os.getpid()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing, with the write lock from the start; undone on any error."""
        self.open()
        is_ending = False
        with self._turn:
            try:
                self._begin()
                self._is_transacting = True
                self._check_identity(self._key_facts())
                yield
                is_ending = True
                self._run("COMMIT", ())
            except self.errors as error:
                raise self._failure(error, "not known" if is_ending else "nothing") from None
            finally:
                self._roll_back()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One state of the store for several reads; others may write meanwhile."""
        with self._turn:
            if self._raw is None:
                yield
                return
            try:
                self._begin_snapshot()
                self._is_transacting = True
                yield
            except self.errors as error:
                raise self._failure(error) from None
            finally:
                self._roll_back()

    def _roll_back(self) -> None:
        self._is_transacting = False
        try:
            if self._raw is not None and self._in_transaction():
                self._run("ROLLBACK", ())
        except self.errors:
            # The database is away: it undoes the transaction by itself.
            self.close()

    def rows(self, query: str, *values: object) -> list[Any]:
        """The result of a query; nothing where there is no store yet."""
        self.refresh()
        with self._turn:
            if self._raw is None:
                return []
            try:
                return list(self._run(query, values).fetchall())
            except self.errors as error:
                raise self._failure(error) from None

    def stream(self, query: str) -> Iterator[Any]:
        """The rows of a query that are too many for the memory, while no other thread writes."""
        with self._turn:
            if self._raw is not None:
                try:
                    yield from self._run_stream(query)
                except self.errors as error:
                    raise self._failure(error) from None

    def write(self, query: str, *values: object) -> int:
        """Run one statement of a transaction; how many rows it changed."""
        return int(self._run(query, values).rowcount)

    def write_many(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        self._run_many(query, rows)

    def _failure(self, error: Exception, charge: str | None = None) -> OutputError:
        """A sentence for an error, which also says what it means for the charge."""
        kind = StoreDown if self._is_away(error) else OutputError
        reason = self._reason(error)
        if charge is None:
            return kind(f"the ledger {self.place!r} cannot be read ({reason})")
        outcome = (
            "nothing of this charge was made"
            if charge == "nothing"
            # The end was not heard. Whatever was charged is kept under its names.
            else "this charge was made wholly or not at all, and nothing was let out"
        )
        return kind(
            f"the ledger {self.place!r} cannot be written ({reason}); {outcome}; run the same "
            "again to go on"
        )

    def _unusable(self, error: Exception, advice: str) -> OutputError:
        """A sentence for an error at the opening."""
        kind = StoreDown if self._is_away(error) else OutputError
        reason = self._reason(error)
        return kind(f"{self.place!r} cannot be used as a ledger ({reason}); give {advice}")

    def _reason(self, error: Exception) -> str:
        return " ".join(str(error).split())
