"""Files that are either whole or not there: temporary file, fsync, rename.

Every file of a result is written here, so what holds of one holds of all: a full disk ends in one
sentence, a link that lies in the way is replaced and never followed, the user's umask decides who
may read, and what a killed run left half-written goes with the next write to that folder.
Temporaries, files and folders alike, are locked by the process that made them, and a lock goes with
its process however that ends: one that nobody has locked is of the dead, and of no use.
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
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from capelet.errors import OutputError, name_field

_ADVICE = "make room there, or choose another place"
# Hidden, with 64 random bits: nobody else names files like this.
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.part")


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


def sync(path: Path) -> None:
    """Have a file, or the entries of a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def copy_whole(source: Path, path: Path, mode: int = 0o644) -> None:
    """Copy a file as `write_whole` writes one."""
    with source.open("rb") as original, _begin(path, mode) as stream:
        shutil.copyfileobj(original, stream, 1 << 20)


def write_first(path: Path, content: bytes, mode: int = 0o600) -> bytes:
    """Write `content` unless the file is there; what it holds now.

    Of two processes that come at once one wins, and both get its content.
    """
    with contextlib.suppress(FileExistsError), _begin(path, mode, replaces=False) as stream:
        stream.write(content)
    return path.read_bytes()


@contextlib.contextmanager
def _begin(path: Path, mode: int, replaces: bool = True) -> Iterator[BinaryIO]:
    """A new file beside `path`, which takes its name when all is on the disk."""
    with onto_disk(path):
        sweep(path.parent)
        # In the same folder: a rename is atomic only within one file system.
        temporary, stream = _open_temporary(path, mode)
        try:
            with stream:
                yield stream
                stream.flush()
                # Content before name: after a crash the name must not point at an empty file.
                os.fsync(stream.fileno())
                # While it is open, and so locked: nobody sweeps it.
                if replaces:
                    temporary.replace(path)
                else:
                    _link(temporary, path)
        # Also when interrupted from the keyboard.
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _link(temporary: Path, path: Path) -> None:
    """Give the file its name where that is free, unlike a rename."""
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()


def _open_temporary(path: Path, mode: int) -> tuple[Path, BinaryIO]:
    """A file that nobody had before, locked as long as it is open."""
    while True:
        temporary = _temporary_name(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        stream = os.fdopen(os.open(temporary, flags, mode), "wb")
        if _is_ours(temporary, stream.fileno()):
            return temporary, stream
        stream.close()


def _temporary_name(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(8)}.part"


def _is_ours(temporary: Path, handle: int) -> bool:
    """Lock what was just made; False where another process has swept it before that."""
    # Without locks (some network drives) nothing is swept either.
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    return temporary.exists()


class TemporaryFolder:
    """A folder for its owner only, gone with this object, or with the next one after a kill."""

    def __init__(self, parent: Path, label: str) -> None:
        sweep(parent)
        while True:
            self.path = _temporary_name(parent / label)
            self.path.mkdir(mode=0o700)
            try:
                handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            if _is_ours(self.path, handle):
                break
            os.close(handle)
        # Also when the interpreter ends in the ordinary way.
        self._end = weakref.finalize(self, _remove_folder, self.path, handle, os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Delete the folder with all that is in it; twice is no error."""
        self._end()


def _remove_folder(path: Path, handle: int, owner: int) -> None:
    # A child that was forked meanwhile has this object too, and may end before its parent.
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
    os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what killed runs left in a folder: temporaries that no living process has locked."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            # A link may be anybody's, and lead anywhere.
            if _TEMPORARY.fullmatch(entry.name) and not entry.is_symlink():
                _remove_if_dead(Path(entry.path))


def _remove_if_dead(path: Path) -> None:
    with contextlib.suppress(OSError):
        # Without waiting: a FIFO of such a name has no other end.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.is_file():
                path.unlink()
        finally:
            os.close(handle)


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
            f"choose another with {name_field('out')}",
            error.strerror or type(error).__name__,
        ) from None
    return folder


def check_writable(
    path: Path | str,
    what: str = "the output folder",
    advice: str = f"choose another with {name_field('out')}",
) -> None:
    """Complain, without writing anything, when `writable_folder` would fail."""
    nearest = Path(path).absolute()
    # Not `exists`, which raises below a folder of somebody else's that may not be looked into.
    while not os.access(nearest, os.F_OK):
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        reason = "is a file" if nearest.is_file() else "is not writable"
        raise OutputError(
            f"cannot write to {what} {str(path)!r} ({str(nearest)!r} {reason}); {advice}"
        )


def expand_user(path: Path | str) -> Path:
    """The path with the user's own folder for `~`; the `~` of nobody is the name of a file.

    `Path.expanduser` raises there, and where the user has no folder at all.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111


def home_folder() -> Path:
    """The user's own folder; the root for a user who has none, as in many containers.

    It cannot be written there, and whoever was to write says so: a cache is gone without, a
    training whose rows could not be recorded is refused.
    """
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def cache_folder() -> Path:
    """Where Capelet keeps what it can make again; `CAPELET_CACHE` moves it."""
    return _user_folder("CAPELET_CACHE", "XDG_CACHE_HOME", ".cache")


def state_folder() -> Path:
    """Where Capelet keeps what cannot be made again and must not ship; `CAPELET_STATE` moves it.

    Apart from the cache, which anybody may clear: here lie keys, and which rows trained a map.
    """
    return _user_folder("CAPELET_STATE", "XDG_STATE_HOME", ".local/state")


def _user_folder(own: str, base: str, inside: str) -> Path:
    """The folder that the one variable names, or `capelet` in that of the other, or in the home."""
    for name, inner in ((own, ""), (base, "capelet")):
        value = os.environ.get(name)
        if value:
            folder = expand_user(value)
            if folder.parts[0].startswith("~"):
                # Where whoever runs this stands, it would be a folder of that name.
                raise OutputError(
                    f"{name} is {value!r}, and there is no such user's folder; give a whole path"
                )
            return folder / inner
    return home_folder() / inside / "capelet"


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
