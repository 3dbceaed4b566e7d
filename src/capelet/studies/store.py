"""A store of cells: one folder for each key, written whole or not at all.

    STORE/store.json                 format, and under whose key its pseudonyms are
    STORE/cells/KEY/                 findings.json · guesses.parquet · meta.json
    STORE/failures/KEY.json          why a cell could not be measured
    STORE/claims/KEY                 locked by the run that is at work on it

A cell's folder is filled beside its place and renamed into it when all of it is on the disk, so it
is there or not, whenever a run is killed. Two runs may share a store: a run locks the claim of a
cell before it begins; where locks do not work (some network drives) a cell may be measured twice,
and the first folder stays. Findings hold no row of anybody. Guesses do: each victim's, under a
pseudonym (a hash under a key of this user's state folder), with no text, for the owner only.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from capelet.errors import OutputError
from capelet.files import (
    TemporaryFolder,
    onto_disk,
    private_folder,
    sync,
    write_first,
    write_whole,
)
from capelet.findings import Findings
from capelet.studies.cell import Cell, Measurement, canonical

if TYPE_CHECKING:
    from capelet.studies.cell import VictimGuesses

# Raised when an older reader would misread what is written.
FORMAT = 1
ABOUT, CELLS, FAILURES, CLAIMS = "store.json", "cells", "failures", "claims"
FINDINGS, GUESSES, META = "findings.json", "guesses.parquet", "meta.json"
# 64 bits: among 2^20 victims two share a pseudonym with probability 2^-25.
_PSEUDONYM_BYTES = 8


@dataclass(frozen=True)
class Meta:
    """When a cell was measured, for how long, and what it was; none of it is in the findings."""

    identity: Mapping[str, Any]
    seconds: float
    date: str


class Store:
    """The folder of a study's cells; opening it makes it, or refuses one of another format."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        with onto_disk(self.folder):
            # Guesses about people lie here.
            private_folder(self.folder)
            for name in (CELLS, FAILURES, CLAIMS):
                private_folder(self.folder / name)
        self._salt = self._open()
        self._claims: dict[str, BinaryIO] = {}

    def _open(self) -> str:
        """The salt of the pseudonyms; drawn when the store is new."""
        path = self.folder / ABOUT
        if not path.exists():
            if any((self.folder / CELLS).iterdir()):
                raise OutputError(
                    f"{str(self.folder)!r} holds cells and no {ABOUT}; it is no store, or a broken "
                    "one: choose another folder"
                )
            salt = secrets.token_hex(16)
            about = {"format": FORMAT, "salt": salt, "owner": _owner(salt)}
            # Of two runs that begin at once, one decides.
            write_first(path, f"{json.dumps(about)}\n".encode())
        try:
            about = json.loads(path.read_bytes())
            number, salt, owner = about["format"], about["salt"], about["owner"]
        except (OSError, ValueError, KeyError, TypeError):
            raise OutputError(
                f"{str(path)!r} is not the account of a store; choose another folder"
            ) from None
        if number != FORMAT:
            raise OutputError(
                f"the store {str(self.folder)!r} has format {number}, this version reads {FORMAT}; "
                "use the version of capelet that wrote it, or choose another folder"
            )
        if owner != _owner(salt):
            raise OutputError(
                f"the store {str(self.folder)!r} was begun under the key of another user or "
                "machine, so that its guesses could not be paired with new ones; choose another "
                "folder, or bring that user's state folder (CAPELET_STATE)"
            )
        return str(salt)

    # ---- cells -----------------------------------------------------------------------------------

    def path(self, key: str) -> Path:
        return self.folder / CELLS / key

    def __contains__(self, key: str) -> bool:
        return self.path(key).is_dir()

    def write(self, cell: Cell, measurement: Measurement, seconds: float) -> None:
        """Keep what was measured, and forget that it failed before; the first writer wins."""
        target = self.path(cell.key)
        with onto_disk(target), TemporaryFolder(target.parent, cell.key) as temporary:
            self._fill(temporary, cell, measurement, seconds)
            sync(temporary)
            _rename(temporary, target)
            # The name too must survive a crash of the machine.
            sync(target.parent)
        self.forget_failure(cell.key)

    def _fill(self, folder: Path, cell: Cell, measurement: Measurement, seconds: float) -> None:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        meta = {**cell.identity, "seconds": round(seconds, 3), "date": date}
        findings = Findings(
            measurement.findings.rows,
            {**measurement.findings.provenance, "cell": cell.identity},
            measurement.findings.recipe,
        )
        write_whole(folder / FINDINGS, findings.to_json(), mode=0o600)
        if measurement.guesses:
            content = self._table(cell, measurement.guesses)
            write_whole(folder / GUESSES, content, mode=0o600)
        write_whole(folder / META, json.dumps(meta, indent=1) + "\n", mode=0o600)

    def read(self, key: str) -> Findings:
        return Findings.load(self.path(key) / FINDINGS)

    def meta(self, key: str) -> Meta:
        content = json.loads((self.path(key) / META).read_bytes())
        identity = {name: content[name] for name in ("kind", "version", "inputs")}
        return Meta(identity, float(content["seconds"]), str(content["date"]))

    def all_keys(self) -> Iterator[str]:
        """The keys of all cells that are there."""
        for path in sorted((self.folder / CELLS).iterdir()):
            if not path.name.startswith("."):
                yield path.name

    # ---- guesses ---------------------------------------------------------------------------------

    def _table(self, cell: Cell, guesses: Sequence[VictimGuesses]) -> bytes:
        """Guesses as Parquet, in the order of the pseudonyms: the order of rows would name them."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet

        corpus = canonical([cell.inputs["digests"], cell.inputs.get("rows")])
        columns: dict[str, list[Any]] = {
            name: [] for name in ("kind", "target", "victim", "unit", "truth", "guess")
        }
        for item in guesses:
            victims = self.pseudonyms(corpus, "row", item.rows.tolist())
            units = self.pseudonyms(corpus, "unit", item.units.tolist())
            order = np.argsort(np.array(victims))
            columns["kind"] += [item.kind] * len(order)
            columns["target"] += [item.target] * len(order)
            columns["victim"] += [victims[place] for place in order]
            columns["unit"] += [units[place] for place in order]
            columns["truth"] += item.truth[order].tolist()
            columns["guess"] += item.guess[order].tolist()
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(pa.table(columns), sink, compression="zstd")
        return bytes(sink.getvalue().to_pybytes())

    def pseudonyms(self, corpus: str, what: str, numbers: Sequence[int]) -> list[str]:
        """A name for each row or person of a corpus, the same in all cells of this store."""
        key = self._key()
        names: dict[int, str] = {}
        for number in numbers:
            if number not in names:
                message = f"{what}\0{number}\0{corpus}".encode()
                digest = hmac.new(key, message, hashlib.sha256).digest()
                names[number] = digest[:_PSEUDONYM_BYTES].hex()
        return [names[number] for number in numbers]

    def _key(self) -> bytes:
        from capelet.privacy.origins import keyed_name

        return hashlib.sha256(keyed_name(f"study guesses {self._salt}").encode()).digest()

    def guesses(self, key: str) -> Any:
        """The guesses of a cell as an Arrow table; None where its kind has none."""
        import pyarrow.parquet

        path = self.path(key) / GUESSES
        return pyarrow.parquet.read_table(path) if path.is_file() else None

    # ---- failures --------------------------------------------------------------------------------

    def write_failure(self, cell: Cell, reason: str, seconds: float) -> None:
        """Keep why a cell could not be measured."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        account = {**cell.identity, "reason": reason, "seconds": round(seconds, 3), "date": date}
        path = self.folder / FAILURES / f"{cell.key}.json"
        write_whole(path, json.dumps(account, indent=1) + "\n", mode=0o600)

    def failure(self, key: str) -> str | None:
        """Why the cell of this key failed; None where it did not."""
        path = self.folder / FAILURES / f"{key}.json"
        try:
            return str(json.loads(path.read_bytes())["reason"])
        except FileNotFoundError:
            return None

    def forget_failure(self, key: str) -> None:
        (self.folder / FAILURES / f"{key}.json").unlink(missing_ok=True)

    # ---- claims ----------------------------------------------------------------------------------

    def claim(self, key: str) -> bool:
        """Lock a cell for this run; False while another run is at work on it.

        The lock goes with the process that has it, however that ends.
        """
        path = self.folder / CLAIMS / key
        while True:
            with onto_disk(path):
                stream = path.open("ab")
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                stream.close()
                return False
            except OSError:
                pass  # no locks on this disk: a rename decides who was first
            if _is_same(stream.fileno(), path):
                self._claims[key] = stream
                return True
            # Its last owner took the name away between our opening and our lock.
            stream.close()

    def is_claimed(self, key: str) -> bool:
        """Whether some run, this one included, is at work on a cell."""
        if key in self._claims:
            return True
        path = self.folder / CLAIMS / key
        if not path.exists() or not self.claim(key):
            return path.exists()
        self.give_back(key)
        return False

    def sweep_claims(self) -> None:
        """Remove claims that nobody holds: of a run that was killed when its cell was written."""
        for path in list((self.folder / CLAIMS).iterdir()):
            self.is_claimed(path.name)

    def give_back(self, key: str) -> None:
        """Unlock a cell; its claim's file goes, so that a store does not fill with empty ones."""
        stream = self._claims.pop(key, None)
        if stream is not None:
            # While it is locked: whoever opened it in between finds the name gone, and tries again.
            (self.folder / CLAIMS / key).unlink(missing_ok=True)
            stream.close()

    def close(self) -> None:
        for key in list(self._claims):
            self.give_back(key)


def _owner(salt: str) -> str:
    """Tells, without the key, whether a store was begun under this user's."""
    from capelet.privacy.origins import keyed_name

    return hashlib.sha256(f"owner {keyed_name(salt)}".encode()).hexdigest()[:16]


def _rename(temporary: Path, target: Path) -> None:
    try:
        temporary.rename(target)
    except OSError as error:
        # Equal keys have equal findings: the first one will do.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _is_same(handle: int, path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    own = os.fstat(handle)
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)
