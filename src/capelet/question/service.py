"""The records of a service: what is served, at whose cost, and where it listens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from capelet.errors import CapeletError, name_field
from capelet.question.fields import Between, check_fields


@dataclass(frozen=True)
class Service:
    """What is served to whom, and what it may cost each person."""

    recipe: Path | None = None
    """A TOML recipe of the private encoder; steps: encoder, map, {mechanisms:or}. Needs a ledger
    and a budget."""
    ledger: str | None = None
    """A ledger file, or the postgresql:// URL of a database. It has the API keys, too."""
    budget: float | None = None
    """The most ε that a person may cost; the ledger's cap."""
    head: Path | None = None
    """Folder of a private encoder: label vectors with its head."""
    refill: str = "none"
    """none, or daily: the budget is that of a day (UTC), and a lifetime is needed."""
    lifetime: float | None = None
    """Where a budget refills: the most ε that a person may ever cost."""
    repeats: str = "same"
    """same: a text that comes again gets its stored vector, which shows that it is equal; fresh:
    every request is drawn and paid for, and needs an Idempotency-Key."""
    model: str | None = None
    """The model's name for clients; the recipe's."""
    demo_data: str | None = None
    """Texts on which the page's attackers learn; the embedded sample."""
    no_demo: bool = False
    """Teach the operator's page no attackers."""
    allow_unproven: bool = False
    """Serve a guarantee that is only claimed, too."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Address:
    """Where the service listens, and the files of its certificate."""

    host: str = "127.0.0.1"
    """Where to listen; beyond this machine only with API keys."""
    port: Annotated[int, Between(0, 65_535)] = 8000
    """The port; 0 takes a free one."""
    certificate: Path | None = None
    """PEM file of the certificate, for TLS."""
    key: Path | None = None
    """PEM file of the certificate's key."""

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.certificate is None) != (self.key is None):
            raise CapeletError(
                f"TLS needs both files: {name_field('certificate')} and {name_field('key')}"
            )

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None
