"""A ledger keeps what each person's releases have cost, and refuses what a budget does not cover.

It is one SQLite file, readable by its owner only. A charge is made in one transaction that takes
the write lock first, so two processes never count past each other, and what is committed is on the
disk. It is named by a run and a block: the same charge made twice counts once.

The ledger also keeps the vectors that were paid for, each under a keyed hash of person, recipe and
text. The same text again is answered with the same vector and costs nothing. The key lies in the
ledger: without the file, nobody can try texts against the hashes.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from capelet.errors import CapeletError, OutputError
from capelet.interfaces import Vectors
from capelet.privacy.guarantees import Guarantee, check_count, check_number, compose

# The share by which a sum of float ε may pass a budget: three times 0.1 is within 0.3.
SLACK = 1e-9

_MARK = 0x43415045  # the application id of the file
_WAIT = 60.0  # seconds to wait for another process
_NAMES_SHOWN = 5  # subjects that an error names
# `said` is a guarantee as JSON, `kept` the vectors by name: ledgers of these names exist.
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS guarantees (id INTEGER PRIMARY KEY, said TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS blocks (
    run TEXT NOT NULL, block INTEGER NOT NULL, PRIMARY KEY (run, block)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS charges (
    subject TEXT NOT NULL, guarantee INTEGER NOT NULL, run TEXT NOT NULL, block INTEGER NOT NULL,
    releases INTEGER NOT NULL, PRIMARY KEY (subject, guarantee, run, block)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept (name BLOB PRIMARY KEY, vector BLOB NOT NULL);
"""


@dataclass(frozen=True)
class Budget:
    """The most that all releases about one person may cost together.

    >>> Budget(epsilon=0.3).covers(Guarantee(3 * 0.1))
    True
    >>> Budget(epsilon=8, delta=1e-6).covers(Guarantee(8, delta=1e-5))
    False
    """

    epsilon: float
    delta: float = 1.0

    def __post_init__(self) -> None:
        most = np.finfo(float).max
        epsilon = check_number("the budget", self.epsilon, 0.0, most, open_low=True)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", check_number("the budget's delta", self.delta, 0.0, 1.0))

    def covers(self, total: Guarantee) -> bool:
        """Whether this much may be spent; a δ of 1 promises nothing and is never covered."""
        within = total.epsilon <= self.epsilon * (1 + SLACK)
        return within and total.delta <= self.delta * (1 + SLACK) and total.delta < 1

    def sentence(self) -> str:
        return f"ε = {self.epsilon:g}" + (f", δ = {self.delta:g}" if self.delta < 1 else "")


class BudgetError(CapeletError):
    """A budget does not cover a charge; nothing of that charge was made."""

    def __init__(self, budget: Budget, over: Sequence[tuple[str, Guarantee]], count: int) -> None:
        names = ", ".join(f"{who!r} (ε would be {total.epsilon:g})" for who, total in over)
        more = f" and {count - len(over)} more" if count > len(over) else ""
        super().__init__(
            f"the budget of {budget.sentence()} is too small for {count} "
            f"{'subject' if count == 1 else 'subjects'}: {names}{more}; "
            "leave out some of their rows, add noise, or raise the budget"
        )
        self.subjects = tuple(who for who, _ in over)
        self.count = count


class Ledger:
    """The charges of all runs against one file of people, and the releases they paid for.

    The file is made at the first charge; a path where nothing is yet is an empty ledger.
    Example: `with Ledger("ledger.db") as ledger: print(ledger.spent("ann"))`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        # For a file that is not yet there: it takes this key over when it is made.
        self._key = secrets.token_bytes(32)
        self._guarantees: dict[int, Guarantee] = {}
        self._db: sqlite3.Connection | None = None
        if self.path.exists():
            self.open()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    # ---- reading ---------------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """A name of this ledger that tells nothing of its key."""
        return hmac.digest(self._key, b"identity", "sha256").hex()[:16]

    @property
    def budget(self) -> Budget | None:
        """The budget that was last set, for every subject alike."""
        rows = self._rows("SELECT value FROM facts WHERE name = 'budget'")
        return Budget(**json.loads(rows[0][0])) if rows else None

    def spent(self, subject: str) -> Guarantee | None:
        """What all releases about a subject promise together; None where there is none."""
        promises = self._promises(subject)
        return compose(promises) if promises else None

    def subjects(self) -> list[str]:
        """Everyone who was charged, in order of name."""
        return [who for (who,) in self._rows("SELECT DISTINCT subject FROM charges")]

    def paid_blocks(self, run: str) -> set[int]:
        """The blocks of a run that are paid for."""
        return {block for (block,) in self._rows("SELECT block FROM blocks WHERE run = ?", run)}

    def name(self, recipe: str, subject: str, content: bytes) -> bytes:
        """The keyed hash under which the release of a person's text by a recipe is kept."""
        # Each part goes in with its length: "ab" + "c" and "a" + "bc" must not share a name.
        parts = [recipe.encode(), subject.encode(), content]
        unambiguous = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._key, unambiguous, "sha256")

    def find(self, names: Iterable[bytes]) -> dict[bytes, Vectors]:
        """The kept vectors among these names."""
        keys, vectors = list(names), {}
        # SQLite before 3.32 takes no more than 999 variables in a query.
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            marks = ", ".join("?" * len(some))
            rows = self._rows(f"SELECT name, vector FROM kept WHERE name IN ({marks})", *some)
            vectors.update({name: np.frombuffer(vector, dtype="<f4") for name, vector in rows})
        return vectors

    def check(
        self,
        needs: Iterable[tuple[str, int]],
        guarantee: Guarantee,
        budget: Budget | None = None,
    ) -> None:
        """Complain, and charge nothing, where so many more releases would pass the budget.

        `budget` stands in for the ledger's own. Guarantees that do not add up are refused, and so
        is a release without one.
        """
        _chargeable(guarantee)
        limit = budget or self.budget
        over: list[tuple[str, Guarantee]] = []
        count = 0
        for subject, releases in needs:
            total = compose([*self._promises(subject), _times(guarantee, releases)])
            if limit is not None and not limit.covers(total):
                count += 1
                over += [(subject, total)] if len(over) < _NAMES_SHOWN else []
        if limit is not None and over:
            raise BudgetError(limit, over, count)

    # ---- writing ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the file where it is not yet there; from then on it has its own key."""
        if self._db is not None:
            return
        try:
            if not self.path.exists():
                # Made before SQLite opens it, which would leave the mode to the umask.
                self.path.touch(mode=0o600)
            self._db = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)
            self._settle(self._db)
            self.path.chmod(0o600)
        except OSError as error:
            self.close()
            raise OutputError(
                f"cannot open the ledger {str(self.path)!r} ({error.strerror})"
            ) from None
        except sqlite3.Error as error:
            self.close()
            raise OutputError(
                f"{str(self.path)!r} cannot be used as a ledger ({error}); give one that Capelet "
                "made, or a new name"
            ) from None

    def limit(self, budget: Budget) -> None:
        """Set the budget that holds for every subject from now on."""
        content = json.dumps(asdict(budget))
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO facts VALUES ('budget', ?)", (content,))

    def charge(
        self,
        run: str,
        block: int,
        needs: Mapping[str, int],
        guarantee: Guarantee,
        *,
        budget: Budget | None = None,
        releases: Iterable[tuple[bytes, Vectors]] = (),
    ) -> bool:
        """Charge each subject so many releases, and keep the vectors; all of it or nothing.

        False, and no change, where this block of the run was charged before. The vectors must be
        those of the first time: whoever repeats a charge releases what it paid for. A vector that
        is kept already under the name is replaced.
        """
        for count in needs.values():
            check_count("releases", count)
        with self._writing() as db:
            insertion = db.execute("INSERT OR IGNORE INTO blocks VALUES (?, ?)", (run, block))
            if insertion.rowcount == 0:
                return False
            # Again, now under the write lock: another process may have charged since.
            self.check(needs.items(), guarantee, budget)
            which = self._number(db, guarantee)
            rows = [(who, which, run, block, count) for who, count in needs.items()]
            db.executemany("INSERT INTO charges VALUES (?, ?, ?, ?, ?)", rows)
            # Little-endian on every machine: a ledger may be moved to another.
            vectors = ((name, vector.astype("<f4").tobytes()) for name, vector in releases)
            db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", vectors)
        return True

    # ---- the file --------------------------------------------------------------------------------

    def _settle(self, db: sqlite3.Connection) -> None:
        """Tables, key and mark; then the write-ahead log. Safe when two processes do it at once."""
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        mark = db.execute("PRAGMA application_id").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        # An empty file is ours to fill; one with tables and no mark is somebody else's.
        if mark != _MARK and (mark or tables):
            raise sqlite3.DatabaseError("another program's file")
        for statement in _TABLES.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {_MARK}")
        # Of two processes the first decides the key, and the second takes it over.
        db.execute("INSERT OR IGNORE INTO facts VALUES ('key', ?)", (self._key,))
        self._key = db.execute("SELECT value FROM facts WHERE name = 'key'").fetchone()[0]
        db.execute("COMMIT")
        _write_ahead(db)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction with the write lock from its start; undone on any error."""
        self.open()
        db = self._db
        assert db is not None
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
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
        if self._db is None:
            return []
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise OutputError(f"the ledger {str(self.path)!r} cannot be read ({error})") from None

    def _promises(self, subject: str) -> list[Guarantee]:
        """What a subject was charged so far: one entry for each guarantee, all its releases."""
        query = "SELECT guarantee, sum(releases) FROM charges WHERE subject = ? GROUP BY guarantee"
        rows = self._rows(query, subject)
        return [_times(self._guarantee(which), int(count)) for which, count in rows]

    def _guarantee(self, which: int) -> Guarantee:
        if which not in self._guarantees:
            content = self._rows("SELECT said FROM guarantees WHERE id = ?", which)[0][0]
            self._guarantees[which] = Guarantee.from_json(json.loads(content))
        return self._guarantees[which]

    def _number(self, db: sqlite3.Connection, guarantee: Guarantee) -> int:
        # A charge is for texts that pass; what training texts are promised costs nobody here.
        content = json.dumps(replace(guarantee, training=None).to_json(), sort_keys=True)
        db.execute("INSERT OR IGNORE INTO guarantees (said) VALUES (?)", (content,))
        row = db.execute("SELECT id FROM guarantees WHERE said = ?", (content,)).fetchone()
        return int(row[0])


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


def _chargeable(guarantee: Guarantee) -> None:
    if guarantee.notion == "none" or guarantee.status not in ("proven", "claimed"):
        raise CapeletError(
            "a ledger cannot charge a release without a guarantee, or with a broken one; "
            "give a recipe with a noise step"
        )


@lru_cache(maxsize=4096)
def _times(guarantee: Guarantee, releases: int) -> Guarantee:
    """So many releases under one guarantee: ε and δ add."""
    delta = min(1.0, releases * guarantee.delta)
    return replace(guarantee, epsilon=releases * guarantee.epsilon, delta=delta)
