"""`capelet keys`: who may ask a service; a secret is printed once, when its key is made."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from capelet.cli.budgets import open_ledger
from capelet.cli.doors import Json, LedgerPlace
from capelet.cli.terminal import answer


def add(
    *,
    ledger: LedgerPlace,
    label: Annotated[str, "What to call the key, to find it again."],
    subject: Annotated[str | None, "The one person whom requests with it are charged."] = None,
    operator: Annotated[bool, "The key also opens the operator's page."] = False,
    json: Json = False,
) -> None:
    """Make an API key, and print its secret: this once, for the ledger holds only a hash of it.

    Example: `capelet keys add --ledger people.db --label search-team`
    """
    from capelet.ledger.store import Ledger

    with Ledger(ledger, keeps_names=False) as book:
        key, secret = book.keys.add(label, subject, operator)
    summary = {**asdict(key), "secret": secret}
    answer(json, summary, key.id, secret, "keep it: it is not shown again")


def show(
    *,
    ledger: LedgerPlace,
    json: Json = False,
) -> None:
    """List the API keys of a ledger, without their secrets; people by pseudonym.

    Example: `capelet keys list --ledger people.db`
    """
    with open_ledger(ledger) as book:
        keys = book.keys.all()
    lines = []
    for key in keys:
        parts = [key.id, key.label, f"made {key.made}"]
        parts += [f"for {key.subject}"] if key.subject else []
        parts += ["operator"] if key.is_operator else []
        parts += [f"revoked {key.revoked}"] if key.revoked else []
        lines.append("  ".join(parts))
    answer(json, [asdict(key) for key in keys], *(lines or ["no keys"]))


def revoke(
    key: Annotated[str, "The id that `capelet keys list` shows."],
    /,
    *,
    ledger: LedgerPlace,
    json: Json = False,
) -> None:
    """End an API key: from now on every replica refuses its secret.

    Example: `capelet keys revoke key-1f00c3a2b4d5 --ledger people.db`
    """
    with open_ledger(ledger) as book:
        record = book.keys.revoke(key)
    answer(json, asdict(record), f"revoked: {record.id} ({record.label})")
