"""Where a learnt thing comes from: a public name that tells nothing, and the rows that trained it.

A map, or an encoder with weights of its own, is a deterministic function of the texts that trained
it. Whoever has candidates for one of these texts can train on each of them and compare; so a hash
of the weights in a released file finds the true one, whatever ε says of the vectors. Therefore

- a learnt thing is named by an `Origin`, whose id is drawn at random once, when it is trained;
- what has no such id (a user's own model, a corpus) is named by its hash *under a key* that never
  leaves this user's state folder;
- digests of the training rows lie in that folder too, under a key of their own. Whoever holds such
  a digest and its key can ask "did this text train it?", so neither may lie in a folder that ships.

The state folder is `CAPELET_STATE`, or `~/.local/state/capelet`; all of it is owner-only.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import secrets
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.errors import CapeletError
from capelet.files import (
    DiskError,
    check_writable,
    private_folder,
    state_folder,
    sweep,
    write_first,
    write_whole,
)
from capelet.interfaces import Vectors
from capelet.privacy.guarantees import NONE, Guarantee

# 128 random bits: no two trainings of anybody share an id.
_ID = re.compile(r"[0-9a-f]{32}")
_KEY_BYTES = 32
# 128 bits of a digest: among 2^32 rows, two meet by chance with probability 2^-64.
_DIGEST_BYTES = 16
_KEYED = "keyed"


@dataclass(frozen=True)
class Origin:
    """The public name of something learnt, and what is promised to the texts that trained it.

    >>> Origin.draw().training.notion, len(Origin.draw().id)
    ('none', 32)
    """

    id: str
    training: Guarantee = NONE

    def __post_init__(self) -> None:
        # It becomes a file's name in the state folder, and may come from anybody's folder.
        if not _ID.fullmatch(self.id):
            raise CapeletError(f"the id of something learnt is 32 hexadecimal digits: {self.id!r}")

    @classmethod
    def draw(cls, training: Guarantee = NONE) -> Origin:
        """A new id from the operating system: it depends on no seed, and not on what was learnt."""
        return cls(secrets.token_hex(16), training)

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "training": self.training.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Origin:
        return cls(str(content["id"]), Guarantee.from_json(content["training"]))


# ---- names under this user's key -----------------------------------------------------------------


def keyed_name(digest: str) -> str:
    """`keyed:<which key>:<HMAC of the digest>`: equal for equal digests, and only for this user."""
    key = _own_key(str(state_folder()))
    which = hashlib.sha256(b"which key" + key).hexdigest()[:8]
    return f"{_KEYED}:{which}:{hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()}"


def same_name(name: str, digest: str) -> bool:
    """Whether a name, keyed or the plain digest of something public, may be that of this digest.

    A name under somebody else's key cannot be compared, and is let pass.
    """
    if not name.startswith(f"{_KEYED}:"):
        return name == digest
    own = keyed_name(digest)
    return name.split(":")[1] != own.split(":")[1] or hmac.compare_digest(name, own)


@lru_cache(maxsize=8)
def _own_key(folder: str) -> bytes:
    """This user's key, drawn at the first use; this process's own where none can be kept."""
    path = Path(folder) / "names.key"
    # A process killed while it drew the key left one behind; nobody else may write here for long.
    sweep(path.parent)
    with contextlib.suppress(OSError):
        return path.read_bytes()
    key = secrets.token_bytes(_KEY_BYTES)
    try:
        private_folder(path.parent)
        return write_first(path, key)
    except (OSError, DiskError):
        return key


# ---- which rows trained it -----------------------------------------------------------------------


def check_state() -> None:
    """Complain before a training whose rows could not be kept."""
    advice = "set CAPELET_STATE to a folder of your own"
    check_writable(state_folder(), "the state folder", advice)


# Records of what was trained in this process and is not saved yet: it may never be, or the process
# may be killed, and a record of nothing would lie in the state folder for good.
_pending: dict[str, bytes] = {}


def remember_training_rows(ids: Iterable[str], rows: Sequence[str] | Vectors) -> None:
    """Know in this process which rows trained these things; `keep_records` does so for good."""
    for name in ids:
        key = secrets.token_bytes(_KEY_BYTES)
        _pending[name] = key + np.unique(_digests(key, rows)).tobytes()


def keep_records(ids: Iterable[str]) -> None:
    """Write the records of these things to the state folder; before they can be loaded again.

    A kill just after it leaves a record too many. The other order would lose one, and with it who
    must not count as a victim.
    """
    for name in ids:
        if name in _pending:
            private_folder(state_folder())
            folder = private_folder(state_folder() / "training")
            write_whole(folder / name, _pending[name], 0o600)
            del _pending[name]


def seen_in_training(ids: Iterable[str], rows: Sequence[str] | Vectors) -> npt.NDArray[np.bool_]:
    """Which of these rows trained any of the things with these ids, as far as this user knows.

    Texts count as equal in one Unicode form and without outer blanks. A training whose rows are not
    recorded here (`unrecorded`) has none that could be told.
    """
    return TrainingRecords(ids)(rows)


class TrainingRecords:
    """The records of these trainings, read once: which rows of a batch trained any of them?"""

    def __init__(self, ids: Iterable[str]) -> None:
        contents = [content for name in ids if (content := _record(name)) is not None]
        self._records = [
            (content[:_KEY_BYTES], np.frombuffer(content[_KEY_BYTES:], f"S{_DIGEST_BYTES}"))
            for content in contents
        ]

    def __call__(self, rows: Sequence[str] | Vectors) -> npt.NDArray[np.bool_]:
        flags = np.zeros(len(rows), dtype=bool)
        for key, digests in self._records:
            flags |= np.isin(_digests(key, rows), digests)
        return flags


def unrecorded(ids: Iterable[str]) -> tuple[str, ...]:
    """The trainings whose rows are not recorded here, as those of another machine."""
    return tuple(name for name in ids if _record(name) is None)


def _record(name: str) -> bytes | None:
    if name in _pending:
        return _pending[name]
    try:
        return (state_folder() / "training" / name).read_bytes()
    except OSError:
        return None


def _digests(key: bytes, rows: Sequence[str] | Vectors) -> npt.NDArray[np.bytes_]:
    codes = [
        hashlib.blake2b(_content(row), digest_size=_DIGEST_BYTES, key=key).digest() for row in rows
    ]
    # Fixed-width bytes lose trailing zeros, on both sides of every comparison alike.
    return np.array(codes, dtype=f"S{_DIGEST_BYTES}")


def _content(row: Any) -> bytes:
    if isinstance(row, str):
        # The forms in which readers of files may differ; a text that differs by more is another.
        return unicodedata.normalize("NFC", row).strip().encode("utf-8", "surrogatepass")
    return np.ascontiguousarray(row, dtype="<f4").tobytes()
