"""API keys: who may ask a service, for whom, and until when.

A secret is 256 random bits, shown once and stored as a keyed hash: nothing to guess offline, so no
slow hash is needed. A key may be bound to one person. Who that is is sealed by the secret itself:
the store alone, even with its own key, does not name the person; beside it stands the pseudonym,
so that an erasure ends the key.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from capelet.errors import CapeletError
from capelet.ledger.database import Database, KeyRow, keyed_hash
from capelet.ledger.people import normalise_person

_PREFIX = "capelet-"  # scanners of repositories and logs can tell a secret by it
_NONCE = 12  # bytes, as AES-GCM has them


@dataclass(frozen=True)
class ApiKey:
    """A key without its secret.

    `subject` is the one person whom it is bound to: the name where the secret was shown
    (`add`, `find`), and a pseudonym elsewhere.
    """

    id: str
    label: str
    subject: str | None
    is_operator: bool
    made: str
    revoked: str | None


class Keys:
    """The API keys of a store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(
        self, label: str, subject: str | None = None, is_operator: bool = False
    ) -> tuple[ApiKey, str]:
        """A new key and its secret, which nobody can ask for again."""
        if not label.strip():
            raise CapeletError("a key needs a label, to be told apart when it is to be revoked")
        person = None if subject is None else normalise_person(subject)
        if person == "":
            raise CapeletError("the subject of a key is empty; name a person, or leave it out")
        secret = _PREFIX + secrets.token_urlsafe(32)
        with self._db.transaction():
            row = KeyRow(
                id=f"key-{secrets.token_hex(6)}",
                digest=self._digest(secret),
                label=label.strip(),
                person=None if person is None else self._db.pseudonym(person),
                sealed_subject=None if person is None else _seal(person, secret),
                is_operator=int(is_operator),
                made=_now(),
                revoked=None,
            )
            self._db.add_key(row)
        return _api_key(row, person), secret

    def find(self, secret: str) -> ApiKey | None:
        """The key of a secret; None for an unknown and for a revoked one alike."""
        digest = self._digest(secret)
        row = self._db.key_of_digest(digest)
        # The index compares keyed hashes, whose bytes nobody outside can choose, and this compares
        # in constant time: how long an answer takes tells nothing of a secret.
        if row is None or not hmac.compare_digest(row.digest, digest) or row.revoked is not None:
            return None
        box = row.sealed_subject
        return _api_key(row, None if box is None else _unseal(box, secret))

    def all(self) -> list[ApiKey]:
        """Every key that ever was, the oldest first."""
        return [_public_key(row) for row in self._db.all_keys()]

    def revoke(self, id: str) -> ApiKey:
        """End a key; from now on its secret is unknown to every replica."""
        with self._db.transaction():
            self._db.revoke_key(id, _now())
            row = next((row for row in self._db.all_keys() if row.id == id), None)
        if row is None:
            raise CapeletError(f"there is no key {id!r}; `capelet keys list` shows them")
        return _public_key(row)

    def exist(self) -> bool:
        """Whether a key was ever made: who revokes the last one does not let everybody in."""
        return self._db.has_keys()

    def _digest(self, secret: str) -> bytes:
        return self._db.digest(b"api key", secret.encode("utf-8", "surrogatepass"))


def _api_key(row: KeyRow, subject: str | None) -> ApiKey:
    return ApiKey(row.id, row.label, subject, bool(row.is_operator), row.made, row.revoked)


def _public_key(row: KeyRow) -> ApiKey:
    return _api_key(row, None if row.person is None else f"person-{row.person.hex()[:16]}")


def _seal(person: str, secret: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(_NONCE)
    return nonce + AESGCM(_sealing_key(secret)).encrypt(nonce, person.encode(), None)


def _unseal(box: bytes, secret: str) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    plain = AESGCM(_sealing_key(secret)).decrypt(box[:_NONCE], box[_NONCE:], None)
    return plain.decode()


def _sealing_key(secret: str) -> bytes:
    return keyed_hash(secret.encode(), b"subject")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
