"""The key of a store may itself be locked by a second key, which lies elsewhere and can be changed.

A store has one inner key. Pseudonyms, names of releases, hashes of requests and API keys, and the
links of the log are all made with it. It can never be replaced: the names of what was released are
hashes of texts that nobody kept, so under a new key every text would look new, and would be
released, and paid for, a second time.

What can be replaced is the *outer* key, a file that `CAPELET_STORE_KEY_FILE` names and that the
database never sees. The store then holds the inner key only as AES-256-GCM encrypted it. Whoever
gets the database or a backup without that file can neither test guessed names of people or guessed
texts, nor write an entry that the log's chain takes. The vectors (released already) and the sums
lie open all the same. To rotate is to encrypt the inner key anew: copies made before still open
with the old file, so they go when it is changed because it leaked. It does not help against
somebody who saw the inner key itself, that is, who had the store before it was locked, or the
memory of a process.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from capelet.errors import OutputError

KEY_FILE = "CAPELET_STORE_KEY_FILE"

_MARK = b"wrapped1"  # in front of what is encrypted; a plain key is 32 bytes and nothing else
_NONCE = 12
_LEAST = 32  # bytes of a file that is to be a key


def stored_form(key: bytes, outer: bytes | None) -> bytes:
    """The inner key as the database holds it: encrypted where there is an outer one."""
    if outer is None:
        return key
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(_NONCE)
    return _MARK + nonce + AESGCM(outer).encrypt(nonce, key, _MARK)


def inner_key(content: bytes, outer: bytes | None, place: str) -> bytes:
    """The inner key from what the database holds."""
    if not content.startswith(_MARK) or len(content) == 32:
        return content
    if outer is None:
        raise OutputError(
            f"the key of the ledger {place!r} is locked by another, and {KEY_FILE} names no file; "
            "set it to the file that `capelet budgets rotate` was last given"
        )
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    start = len(_MARK)
    nonce, box = content[start : start + _NONCE], content[start + _NONCE :]
    try:
        return AESGCM(outer).decrypt(nonce, box, content[:start])
    except InvalidTag:
        raise OutputError(
            f"the file that {KEY_FILE} names does not open the ledger {place!r}; set it to the one "
            "that `capelet budgets rotate` was last given"
        ) from None


def outer_key() -> bytes | None:
    """The outer key of this process; None where the environment names no file."""
    path = os.environ.get(KEY_FILE)
    return read_key(Path(path)) if path else None


def read_key(path: Path) -> bytes:
    """The key in a file: a hash of its bytes, blanks around them excepted."""
    try:
        content = path.read_bytes().strip()
    except OSError as error:
        raise OutputError(f"cannot read the key file {str(path)!r} ({error.strerror})") from None
    if len(content) < _LEAST:
        raise OutputError(
            f"the key file {str(path)!r} has {len(content)} bytes, and a key needs {_LEAST}; name "
            "a new file, and it is made"
        )
    return hashlib.sha256(content).digest()


def make_key(path: Path) -> bytes:
    """The key in a file, which is made, for its owner only, where it is not yet there."""
    from capelet.files import write_whole

    if not path.exists():
        write_whole(path, secrets.token_hex(32) + "\n", mode=0o600)
    return read_key(path)
