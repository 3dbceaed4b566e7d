"""Who asks: API keys of the store, and nobody but this machine while there are none."""

from __future__ import annotations

from capelet.errors import name_command
from capelet.ledger.keys import ApiKey
from capelet.ledger.store import Ledger
from capelet.service.errors import StoreErrors, not_allowed, unknown_key

# Whoever asks while there are no keys: then only programs on this machine can.
ANYONE = ApiKey(id="", label="", subject=None, is_operator=False, made="", revoked=None)


class Callers:
    """The keys of a store; every method may be called from any thread.

    Without a store there are no keys and never will be: such a server is for this machine only.
    """

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        # Whether there ever were keys; never forgotten, as the store does not forget it.
        self.has_keys = False

    def look_for_keys(self) -> None:
        """Learn whether there are keys; until it is known, only this machine may ask."""
        if self._ledger is not None and not self.has_keys:
            with StoreErrors():
                self._ledger.open()
                self.has_keys = self._ledger.keys.exist()

    def authenticate(self, secret: str | None) -> ApiKey:
        """The key that asks; without one only while there are none at all."""
        if self._ledger is None:
            return ANYONE
        with StoreErrors():
            # A store that is not open reads as an empty one, which has no keys: that would let
            # everybody in while a database is down.
            self._ledger.open()
            key = None if secret is None else self._ledger.keys.find(secret)
        # Clients insist on sending some key; it counts once there are any.
        if key is None:
            self.look_for_keys()
        if key is None and self.has_keys:
            raise unknown_key()
        return key or ANYONE

    def require_operator(self, secret: str | None) -> ApiKey:
        """The operator's key: for figures about everyone's requests."""
        key = self.authenticate(secret)
        if key is not ANYONE and not key.is_operator:
            raise not_allowed(
                f"this needs an operator's key: `{name_command('keys add', operator=True)}`"
            )
        return key
