"""Files that are either whole or not there: temporary file, fsync, rename."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from capelet.errors import OutputError


def write_whole(path: Path, content: bytes | str, mode: int = 0o644) -> None:
    """Write `content` to `path` so that no reader, and no crash, ever sees a part of it."""
    data = content.encode() if isinstance(content, str) else content
    # In the same folder: a rename is atomic only within one file system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            # Content before name: after a crash the name must not point at an empty file.
            os.fsync(stream.fileno())
        # `mkstemp` made it 0600; only the whole file may be more open than that.
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    # Also when interrupted from the keyboard.
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def writable_folder(path: Path | str) -> Path:
    """The folder, made if need be; an `OutputError` when nothing can be written there."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Tried, not asked: rights alone do not tell of a read-only disk.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(
            f"cannot write to the output folder {str(folder)!r} ({error.strerror}); "
            "choose another with --out"
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
