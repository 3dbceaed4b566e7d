"""A secret opens its key until it is revoked, and the store names neither it nor the person."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capelet.errors import CapeletError
from capelet.ledger.database import connect
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee

Place = Path | str


def test_a_secret_opens_its_key_and_no_other(place: Place) -> None:
    with Ledger(place) as ledger:
        assert not ledger.keys.exist() and ledger.keys.find("capelet-") is None
        first, secret = ledger.keys.add(" search team ")
        second, other = ledger.keys.add("page", is_operator=True)
        assert ledger.keys.exist() and len(secret) > 40 and secret != other
    with Ledger(place) as ledger:
        assert ledger.keys.find(secret) == first and ledger.keys.find(other) == second
        assert (first.label, first.is_operator, second.is_operator) == ("search team", False, True)
        for wrong in ("", secret[:-1], secret + "a", secret.swapcase(), "\ud800", "ä", "x" * 10**5):
            assert ledger.keys.find(wrong) is None
        assert {key.id for key in ledger.keys.all()} == {first.id, second.id}


def test_a_revoked_key_is_unknown_to_every_replica(place: Place) -> None:
    with Ledger(place) as one, Ledger(place) as other:
        key, secret = one.keys.add("team")
        assert other.keys.find(secret) == key
        record = other.keys.revoke(key.id)
        assert record.revoked is not None and one.keys.find(secret) is None
        assert one.keys.revoke(key.id) == record  # again: the first time stays
        # Revoking the last key does not let everybody in.
        assert one.keys.exist()
        with pytest.raises(CapeletError, match="there is no key 'key-0'"):
            one.keys.revoke("key-0")


def test_whose_key_it_is_only_the_secret_tells(place: Place) -> None:
    with Ledger(place) as ledger:
        key, secret = ledger.keys.add("phone", subject=" Ann Lee ")
        assert key.subject == "Ann Lee" and ledger.keys.find(secret) == key
        (entry,) = ledger.keys.all()
        assert entry.subject is not None and entry.subject.startswith("person-")
    with connect(place) as connection:
        content = repr(connection.rows("SELECT * FROM keys"))
    assert "Ann" not in content and secret not in content and "phone" in content


def test_an_erasure_ends_a_persons_keys(place: Place) -> None:
    with Ledger(place) as ledger:
        _, hers = ledger.keys.add("phone", subject="ann")
        _, his = ledger.keys.add("phone", subject="bob")
        ledger.settle(["ann"], [b"name"], np.zeros((1, 2)), Guarantee(1.0))
        ledger.erase("ann")
        assert ledger.keys.find(hers) is None and ledger.keys.find(his) is not None
        assert ledger.erase("bob") == 0  # who was never charged may have a key, too
        assert ledger.keys.find(his) is None


def test_what_is_no_key(place: Place) -> None:
    with Ledger(place) as ledger:
        with pytest.raises(CapeletError, match="needs a label"):
            ledger.keys.add("  ")
        with pytest.raises(CapeletError, match="subject of a key is empty"):
            ledger.keys.add("x", subject=" ")
        assert not ledger.keys.exist()
