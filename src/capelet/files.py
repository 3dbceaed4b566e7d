"""Files that are either whole or not there: temporary file, fsync, rename.

Every file of a result is written here, so what holds of one holds of all: a full disk ends in one
sentence, a link that lies in the way is replaced and never followed, the user's umask decides who
may read, and what a killed run left half-written goes with the next write of that name.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from capelet.errors import OutputError

_ADVICE = "make room there, or choose another place"


class DiskError(OutputError):
    """The disk is full, read-only or not ours; `reason` is the system's word for it."""

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@contextlib.contextmanager
def onto_disk(path: Path, advice: str = _ADVICE) -> Iterator[None]:
    """One sentence where the disk is full, or not ours to write."""
    try:
        yield
    except DiskError as error:
        # Named anew: the caller knows the file that the user asked for.
        reason = error.reason
    except (OSError, sqlite3.OperationalError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        if isinstance(error, sqlite3.OperationalError):
            reason = "the disk is full" if "full" in str(error) else "its database cannot be used"
    else:
        return
    raise DiskError(f"cannot write {str(path)!r} ({reason}); {advice}", reason) from None


def write_whole(path: Path, content: bytes | str, mode: int = 0o644) -> None:
    """Write `content` to `path` so that no reader, and no crash, ever sees a part of it.

    The umask narrows `mode`, as it does for every file that a program makes.
    """
    data = content.encode() if isinstance(content, str) else content
    with _begin(path, mode) as stream:
        stream.write(data)


def copy_whole(source: Path, path: Path, mode: int = 0o644) -> None:
    """Copy a file as `write_whole` writes one."""
    with source.open("rb") as original, _begin(path, mode) as stream:
        shutil.copyfileobj(original, stream, 1 << 20)


@contextlib.contextmanager
def _begin(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A new file beside `path`, which takes its name when all is on the disk."""
    with onto_disk(path):
        _sweep(path)
        # In the same folder: a rename is atomic only within one file system.
        temporary, stream = _open_temporary(path, mode)
        try:
            with stream:
                yield stream
                stream.flush()
                # Content before name: after a crash the name must not point at an empty file.
                os.fsync(stream.fileno())
                # While it is open, and so locked: nobody sweeps it.
                temporary.replace(path)
        # Also when interrupted from the keyboard.
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _open_temporary(path: Path, mode: int) -> tuple[Path, BinaryIO]:
    """A file that nobody had before, locked as long as it is open."""
    while True:
        temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}.part"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        stream = os.fdopen(os.open(temporary, flags, mode), "wb")
        # Without locks (some network drives) nothing is swept either.
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        # Another process may have swept it before it was locked.
        if temporary.exists():
            return temporary, stream
        stream.close()


def _sweep(path: Path) -> None:
    """Remove what killed runs left of `path`: temporaries that no living process has locked."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.part")
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            if not name.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError), Path(entry.path).open("rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Path(entry.path).unlink()


def inner_folder(folder: Path, name: str) -> Path:
    """A folder inside an output folder, made if need be; a link in its place is refused.

    Whoever may write to the output folder could else have our files put anywhere we may write.
    """
    inner = folder / name
    if inner.is_symlink():
        raise OutputError(
            f"{str(inner)!r} is a link to another place, and nothing is written through it; "
            "remove the link, or choose another folder"
        )
    return writable_folder(inner)


def writable_folder(path: Path | str) -> Path:
    """The folder, made if need be; an `OutputError` when nothing can be written there."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Tried, not asked: rights alone do not tell of a read-only disk.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DiskError(
            f"cannot write to the output folder {str(folder)!r} ({error.strerror}); "
            "choose another with --out",
            error.strerror or type(error).__name__,
        ) from None
    return folder


def check_writable(path: Path | str) -> None:
    """Complain, without writing anything, when `writable_folder` would fail."""
    nearest = Path(path).absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        what = "is a file" if nearest.is_file() else "is not writable"
        raise OutputError(
            f"cannot write to the output folder {str(path)!r} ({str(nearest)!r} {what}); "
            "choose another with --out"
        )


def cache_folder() -> Path:
    """Where Capelet keeps what it can make again; `CAPELET_CACHE` moves it."""
    override = os.environ.get("CAPELET_CACHE")
    if override:
        return Path(override).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "capelet"


def state_folder() -> Path:
    """Where Capelet keeps what cannot be made again and must not ship; `CAPELET_STATE` moves it.

    Apart from the cache, which anybody may clear: here lie keys, and which rows trained a map.
    """
    override = os.environ.get("CAPELET_STATE")
    if override:
        return Path(override).expanduser()
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "capelet"


def private_folder(path: Path) -> Path:
    """The folder, made if need be and readable by its owner only."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    # The mode of `mkdir` does not touch a folder that was there before.
    path.chmod(0o700)
    return path


def sha256_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
