"""The same texts through the same encoder are encoded once: vectors are kept on disk by content.

One SQLite file per encoder fingerprint, one row per text, keyed by the sha256 of the text. Work is
committed block by block, so that a killed run loses at most the block it was in, and two processes
may share the file. The vectors are those of private texts and give the texts away about as well as
the texts themselves, so folder and files can be read by their owner only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capelet.files import cache_folder, private_folder
from capelet.interfaces import Encoder, Progress, Vectors, isolates_rows, silent

BLOCK = 1024  # texts committed at once; large enough for batches of equal length
_PATIENCE = 60.0  # seconds to wait for another process that is writing
_KEYS = 500  # keys asked for in one query


class CachedEncoder:
    """An encoder that looks on disk first; to everyone else it is the encoder it wraps.

    A cache that cannot be written is a warning, never a failure; a broken one is set aside.
    """

    def __init__(self, encoder: Encoder, folder: Path | None) -> None:
        self.inner = encoder
        self.folder = folder

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def backend(self) -> str:
        return self.inner.backend

    @property
    def isolates_rows(self) -> bool:
        return isolates_rows(self.inner)

    @property
    def dimension(self) -> int:
        with self._store() as store:
            # The file knows the width: where every text is cached, the model is never loaded.
            return store.dimension() or self.inner.dimension

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return self.inner.truncated(texts)

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        # surrogatepass: half of a surrogate pair has no UTF-8, and must still make a key.
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        # A text that comes twice is encoded once.
        first: dict[bytes, int] = {}
        for row, key in enumerate(keys):
            first.setdefault(key, row)
        with self._store() as store:
            vector_of = store.read(list(first))
            missing = [key for key in first if key not in vector_of]
            for start in range(0, len(missing), BLOCK):
                block = missing[start : start + BLOCK]
                before = len(texts) - len(missing) + start
                vectors = self.inner.encode(
                    [texts[first[key]] for key in block], _offset(progress, before, len(texts))
                ).astype(np.float32, copy=False)
                # Committed before the next block begins: a kill loses one block at most.
                store.write(block, vectors)
                vector_of.update(zip(block, vectors, strict=True))
        if len(texts) and not missing:
            progress("encoding", len(texts), len(texts))
        if not vector_of:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return np.stack([vector_of[key] for key in keys])

    @contextlib.contextmanager
    def _store(self) -> Iterator[_Store | _Memory]:
        assert self.folder is not None
        store = _Store(self.folder / f"{self.fingerprint}.sqlite")
        try:
            yield store
        finally:
            store.close()


class RememberingEncoder(CachedEncoder):
    """The same for a run that may keep no vectors on disk: they go with this object."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder, None)
        self._memory = _Memory()

    @contextlib.contextmanager
    def _store(self) -> Iterator[_Store | _Memory]:
        yield self._memory


def with_cache(encoder: Encoder, folder: Path | None = None) -> CachedEncoder:
    """`encoder` with a disk cache in front, by default under Capelet's cache folder.

    Only for encoders that give the same text the same vector: never for one that adds noise.
    """
    if isinstance(encoder, CachedEncoder) and folder in (None, encoder.folder):
        return encoder
    return CachedEncoder(encoder, folder or vector_folder())


def vector_folder() -> Path:
    """Where cached vectors lie unless the caller says otherwise."""
    return cache_folder() / "vectors"


def clear_cache(folder: Path | None = None) -> int:
    """Delete every cached vector, set-aside files included; the number of bytes freed."""
    total = 0
    for path in sorted((folder or vector_folder()).glob("*.sqlite*")):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
            path.unlink()
    return total


def _offset(progress: Progress, before: int, whole: int) -> Progress:
    """The progress of one block as part of the whole."""

    def report(what: str, count: int, total: int) -> None:
        if what == "encoding":
            count, total = before + count, whole
        progress(what, count, total)

    return report


class _Memory:
    """Vectors by the key of their text, as `_Store` keeps them in a file."""

    def __init__(self) -> None:
        self._vectors: dict[bytes, Vectors] = {}

    def dimension(self) -> int:
        return next((len(vector) for vector in self._vectors.values()), 0)

    def read(self, keys: list[bytes]) -> dict[bytes, Vectors]:
        return {key: self._vectors[key] for key in keys if key in self._vectors}

    def write(self, keys: list[bytes], vectors: Vectors) -> None:
        self._vectors.update(zip(keys, vectors, strict=True))


class _Store:
    """The SQLite file of one encoder; every trouble with it ends in a warning and no cache."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._connection = self._open()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def dimension(self) -> int:
        """The width of the vectors in the file, 0 where there is none yet."""
        if self._connection is None:
            return 0
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def read(self, keys: list[bytes]) -> dict[bytes, Vectors]:
        """The vectors that the file holds of these keys."""
        if self._connection is None:
            return {}
        vector_of: dict[bytes, Vectors] = {}
        try:
            width = self.dimension() * 4
            for start in range(0, len(keys), _KEYS):
                some = keys[start : start + _KEYS]
                marks = ",".join("?" * len(some))
                query = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"
                for key, blob in self._connection.execute(query, some):
                    # A row of another width is not whole; its text counts as missing and is encoded
                    # again.
                    if len(blob) == width:
                        vector_of[key] = np.frombuffer(blob, dtype="<f4")
        except sqlite3.OperationalError as error:
            self._give_up(error)
        except sqlite3.DatabaseError:
            self._set_aside()
            return {}
        return vector_of

    def write(self, keys: list[bytes], vectors: Vectors) -> None:
        """Commit one block; whoever was first with a text keeps its row."""
        if self._connection is None:
            return
        rows = [
            (key, vector.astype("<f4").tobytes()) for key, vector in zip(keys, vectors, strict=True)
        ]
        try:
            with self._connection:
                # The write lock from the start: a transaction that asks for it halfway can fail
                # without waiting for the other process.
                self._connection.execute("BEGIN IMMEDIATE")
                # The width stands in the file's header, where it is read without any row.
                self._connection.execute(f"PRAGMA user_version = {int(vectors.shape[1])}")
                self._connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        except sqlite3.OperationalError as error:
            self._give_up(error)
        except sqlite3.DatabaseError:
            self._set_aside()

    def _open(self) -> sqlite3.Connection | None:
        for attempt in (1, 2):
            try:
                return self._connect()
            # Locked, full or read-only: the file itself may be sound, so it stays where it is.
            except (sqlite3.OperationalError, OSError) as error:
                self._give_up(error)
                return None
            except sqlite3.DatabaseError:
                if attempt == 1:
                    self._set_aside_file()
        return None

    def _connect(self) -> sqlite3.Connection:
        private_folder(self._path.parent)
        # Made before SQLite opens it: its -wal and -shm files take over the mode of this one.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        self._path.chmod(0o600)
        connection = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # With the log, a power cut may lose the last blocks but breaks nothing; they are made
            # again.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)"
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def _give_up(self, error: Exception) -> None:
        self.close()
        warnings.warn(
            f"the vector cache in {str(self._path.parent)!r} cannot be used ({error}); "
            "going on without it",
            stacklevel=4,
        )

    def _set_aside(self) -> None:
        """The file is broken: keep it out of the way and go on with a new one."""
        self.close()
        self._set_aside_file()
        self._connection = self._open()

    def _set_aside_file(self) -> None:
        aside = self._path.with_name(f"{self._path.name}.broken-{time.time_ns()}")
        with contextlib.suppress(FileNotFoundError):
            self._path.replace(aside)
        # They belong to the broken file: SQLite would apply them to a new one of the same name.
        for extra in ("-wal", "-shm"):
            self._path.with_name(self._path.name + extra).unlink(missing_ok=True)
        warnings.warn(
            f"a vector cache file in {str(self._path.parent)!r} was broken and has been set aside; "
            "its vectors will be made again",
            stacklevel=4,
        )
