"""The private folder beside a target where drawn blocks wait until all are there."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from capelet.errors import OutputError, name_field
from capelet.files import copy_whole, inner_folder, onto_disk, private_folder, sync, write_whole
from capelet.interfaces import Vectors
from capelet.ledger.budgets import Need
from capelet.ledger.people import fold_person

_WHOLE, _DATABASE = "whole.parquet", "run.db"
ATTEMPT = ".attempt"
# After a full disk nothing that was drawn is lost.
_ADVICE = "when that is mended, the same command goes on where it stopped"
_FACTS = "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
# What one counting needs, and the next makes anew.
_SCRATCH = {
    "seen": "name BLOB PRIMARY KEY) WITHOUT ROWID",
    "needs": "person TEXT PRIMARY KEY, releases INTEGER NOT NULL, row INTEGER NOT NULL)",
    "people": "fold TEXT, person TEXT, row INTEGER, PRIMARY KEY (fold, person)) WITHOUT ROWID",
}


class PartialOutput:
    """The private folder where drawn blocks wait until all are there.

    Its database holds the lock, what the run is, and the counting of the first pass. The lock goes
    with the process that holds it, however that ends.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.parent / f".{target.name}.parts"
        with onto_disk(target, _ADVICE):
            private_folder(inner_folder(target.parent, self.folder.name))
            # The folder's own entry, too: without it a crash may lose all parts at once.
            sync(target.parent)
        # No waiting: whoever does not get the lock at once is a second run on the same target.
        self._db = sqlite3.connect(self.folder / _DATABASE, timeout=0, isolation_level=None)
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("BEGIN EXCLUSIVE")
            self._db.execute(_FACTS)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._db.close()
            if "locked" in str(error):
                sentence = f"another run is writing {str(target)!r}; let it end"
            else:
                sentence = (
                    f"the parts of an earlier run in {str(self.folder)!r} cannot be used "
                    f"({error}); see that the disk has room, or remove that folder"
                )
            raise OutputError(sentence) from None
        # Under the lock they are of a dead run: nobody settled them, and nobody may let them out.
        self.drop_attempts()
        self._stored_blocks = {int(path.stem) for path in self.folder.glob("[0-9]*.parquet")}
        # Blocks that no run remembers, as a kill amid the removal left them, can never be let out.
        if not self._fact("job"):
            self._drop_blocks()
        self.over = False

    def close(self) -> None:
        """Let go of the lock; a folder for which nothing was charged, or that is over, goes too."""
        is_begun = self._is_begun
        self.drop_attempts()
        if self.over or not is_begun:
            # The database last, and under its lock: a run killed while it clears away must find
            # there what it was, or the next would take the rest for another run's parts.
            with suppress(OSError):
                for path in self.folder.iterdir():
                    if path.is_dir():
                        shutil.rmtree(path)
                    elif not path.name.startswith(_DATABASE):
                        path.unlink(missing_ok=True)
        self._db.close()
        if self.over or not is_begun:
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- which run this is ----

    @property
    def run(self) -> str:
        """The name under which the ledger is charged."""
        return self._fact("run")

    def begin(self, facts: str, ledger: str, overwrite: bool) -> bool:
        """Whether this run was begun before; an unfinished run of another kind is refused."""
        if self._is_begun:
            if (self._fact("job"), self._fact("ledger")) == (facts, ledger):
                return True
            self._another(overwrite)
        self.renew()
        self.remember("job", facts)
        self.remember("ledger", ledger)
        return False

    @property
    def _is_begun(self) -> bool:
        return bool(self._stored_blocks or self._fact("charging"))

    def begin_charging(self) -> None:
        """From here on the run's name may stand in the ledger, and must outlive a crash."""
        # Without it a run killed before its first part would come back under another name, and
        # would be charged again.
        if not self._fact("charging"):
            self.remember("charging", "begun")

    def same_rows(self, digest: str, overwrite: bool) -> bool:
        """Whether the rows are those the run began with; others are refused, or begin anew."""
        if self.rows() not in ("", digest):
            self._another(overwrite)
            return False
        self.remember("rows", digest)
        return True

    def renew(self) -> None:
        """Drop all parts: from here on it is another run."""
        self._drop_blocks()
        self._db.execute("DELETE FROM facts WHERE name IN ('rows', 'summary', 'charging')")
        # A new name towards the ledger: charges under the old one stay, and pay for nothing new.
        self.remember("run", secrets.token_hex(16))

    def _drop_blocks(self) -> None:
        for number in sorted(self._stored_blocks):
            self._path(number).unlink(missing_ok=True)
        self._stored_blocks.clear()

    def remember(self, name: str, value: str) -> None:
        with onto_disk(self.target, _ADVICE):
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def _fact(self, name: str) -> str:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def _another(self, overwrite: bool) -> None:
        if not overwrite:
            raise OutputError(
                f"{self.folder.name!r} beside the output holds an unfinished run with another "
                "input, recipe or ledger; finish that one, or drop it with "
                f"{name_field('overwrite')}"
            )

    # ---- what it would cost ----

    @contextmanager
    def counting(self) -> Iterator[None]:
        """One transaction from empty counts; undone on any error."""
        with onto_disk(self.target, _ADVICE):
            yield from self._transaction()

    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            for table, columns in _SCRATCH.items():
                self._db.execute(f"DROP TABLE IF EXISTS {table}")
                self._db.execute(f"CREATE TABLE {table} ({columns}")
            yield
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def unseen(self, names: Iterable[bytes]) -> list[bool]:
        """Which of the names come for the first time in this pass; counted on disk."""
        add = "INSERT OR IGNORE INTO seen VALUES (?)"
        return [self._db.execute(add, (name,)).rowcount == 1 for name in names]

    def count(self, needs: Iterable[Need]) -> None:
        add = (
            "INSERT INTO needs VALUES (?, ?, ?) "
            "ON CONFLICT (person) DO UPDATE SET releases = releases + excluded.releases"
        )
        self._db.executemany(add, needs)

    def needs(self) -> Iterator[Need]:
        """How many releases each person would be charged for, and the first row that needs one."""
        rows = self._db.execute("SELECT person, releases, row FROM needs ORDER BY person")
        yield from (Need(*row) for row in rows)

    def enter_person(self, person: str, row: int) -> bool:
        """Whether the person comes for the first time in this pass."""
        add = "INSERT OR IGNORE INTO people VALUES (?, ?, ?)"
        return self._db.execute(add, (fold_person(person), person, row)).rowcount == 1

    def row_alike(self, person: str) -> int | None:
        """The first row of somebody else whose identifier looks like this one."""
        query = "SELECT min(row) FROM people WHERE fold = ? AND person != ?"
        row = self._db.execute(query, (fold_person(person), person)).fetchone()[0]
        return None if row is None else int(row)

    # ---- the parts ----

    @property
    def stored_blocks(self) -> Set[int]:
        """The blocks that are drawn and on the disk."""
        return self._stored_blocks

    def write(self, number: int, part: pa.Table) -> None:
        """Put a part on the disk for good, folder entry and all."""
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(part, sink, compression="none", use_dictionary=False)
        with onto_disk(self.target, _ADVICE):
            write_whole(self._path(number), sink.getvalue().to_pybytes(), mode=0o600)
            sync(self.folder)
        # Only now: a block counts as stored when it would survive a crash.
        self._stored_blocks.add(number)

    def read(self, number: int) -> pa.Table:
        return pa.parquet.read_table(self._path(number))

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.parquet"

    # ---- attempts: draws of other processes that are not settled yet ----

    def read_attempt(self, name: str) -> Vectors | None:
        """The draws that a worker wrote, or None where this machine does not see them."""
        try:
            content = np.load(self.folder / name, allow_pickle=False)
        except (OSError, ValueError):
            return None
        return np.asarray(content, dtype=np.float32)

    def drop_attempts(self, number: int | None = None) -> None:
        """Delete the attempts of a block, or all: also those of workers that were lost."""
        pattern = f"*{ATTEMPT}" if number is None else f"{number:08d}.*{ATTEMPT}"
        with suppress(OSError):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)

    # ---- the end ----

    @contextmanager
    def whole(self, schema: pa.Schema) -> Iterator[pa.parquet.ParquetWriter]:
        """The file that is to be the target, to write the parts into; on the disk at the end."""
        path = self.folder / _WHOLE
        plain = {"compression": "none", "use_dictionary": False}  # noise cannot be pressed
        with onto_disk(self.target, _ADVICE):
            with pa.parquet.ParquetWriter(path, schema, **plain) as writer:
                yield writer
            sync(path)

    def whole_folder(self, numbers: Iterable[int], names: Mapping[int, str]) -> Path:
        """The folder that is to be the target, with the parts under the names they will have.

        The parts stay here under their own names, too, until the folder is let out: a run killed
        meanwhile would else take those that were moved for undrawn.
        """
        whole = self.folder / _WHOLE
        with onto_disk(self.target, _ADVICE):
            if whole.is_dir():
                shutil.rmtree(whole)
            whole.mkdir()
            for number in numbers:
                self._give(number, whole / names[number])
        return whole

    def _give(self, number: int, path: Path) -> None:
        """A second name for a part; a copy where the file system has no second names."""
        try:
            os.link(self._path(number), path)
        except OSError:
            copy_whole(self._path(number), path, mode=0o600)

    def let_out(self, summary: str) -> None:
        """Give the whole file, or folder, the target's name: the moment of release."""
        # Before the rename: a run killed after it must still know what it has let out.
        self.remember("summary", summary)
        with onto_disk(self.target, _ADVICE):
            (self.folder / _WHOLE).replace(self.target)
            sync(self.target.parent)
        self.over = True

    def summary(self, facts: str) -> str:
        """The summary of a run that was killed just after its target appeared, or nothing."""
        # The rename has happened: the joined file is gone from here and the target is there.
        has_content = self.target.is_dir() and any(self.target.iterdir())
        there = not (self.folder / _WHOLE).exists() and (self.target.is_file() or has_content)
        return self._fact("summary") if there and self._fact("job") == facts else ""

    def rows(self) -> str:
        """The digest of the rows that the run began with."""
        return self._fact("rows")


@contextmanager
def open_output(target: Path) -> Iterator[PartialOutput]:
    parts = PartialOutput(target)
    try:
        yield parts
    finally:
        parts.close()


def write_attempt(folder: Path, number: int, draws: Vectors) -> str:
    """Write down what a worker drew for a block, under a name of its own; that name.

    Two attempts at one block have two names: neither can be taken for the other, and which of them
    counts is for the driver to say.
    """
    name = f"{number:08d}.{secrets.token_hex(8)}{ATTEMPT}"
    content = io.BytesIO()
    np.save(content, np.ascontiguousarray(draws, dtype="<f4"), allow_pickle=False)
    write_whole(folder / name, content.getvalue(), mode=0o600)
    return name
