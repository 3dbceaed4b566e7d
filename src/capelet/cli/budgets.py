"""`capelet budgets`: what a ledger says in sum, and the acts that change it; nobody is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from capelet.cli.doors import Anchor, Json, LedgerPlace
from capelet.cli.terminal import answer, echo, print_json
from capelet.errors import CapeletError

if TYPE_CHECKING:
    from capelet.ledger.store import Ledger


def show(
    ledger: LedgerPlace,
    /,
    *,
    anchor: Anchor = None,
    json: Json = False,
) -> None:
    """Say what a ledger's cap is, how it came about, and the highest sum of one person.

    Example: `capelet budgets show people.db`
    """
    from capelet.ledger.anchors import check_anchor

    with open_ledger(ledger) as book:
        if anchor is not None:
            if not anchor.is_file():
                raise CapeletError(f"there is no anchor {str(anchor)!r}")
            check_anchor(book, anchor)
        counts, limits, changes = book.counts(), book.limits, book.budget_changes()
    if json:
        history = [
            {"time": time, "old": old and asdict(old), "new": asdict(new)}
            for time, old, new in changes
        ]
        cap = limits and asdict(limits.budget)
        most = limits and limits.lifetime and asdict(limits.lifetime)
        print_json({**counts._asdict(), "budget": cap, "lifetime": most, "changes": history})
        return
    echo(f"budget: {limits.sentence() if limits else 'none'}")
    for time, old, new in changes:
        act = f"raised from {old.sentence()} to" if old else "set to"
        echo(f"  {time}: {act} {new.sentence()}")
    echo(f"charged: {counts.releases:,} releases of {counts.people:,} people")
    echo(f"highest sum: ε = {counts.highest_epsilon:g} per person")


def raise_cap(
    ledger: LedgerPlace,
    /,
    *,
    to: Annotated[float | None, "The new cap of ε per person; a day's, if it refills."] = None,
    lifetime: Annotated[float | None, "The new cap of all days, where one refills."] = None,
    json: Json = False,
) -> None:
    """Raise the cap of everyone in a ledger; the time and both values are written down in it.

    Example: `capelet budgets raise people.db --to 80`
    """
    from capelet.ledger.budgets import Budget

    if to is None and lifetime is None:
        raise CapeletError("what is the new cap? Give --to, or --lifetime where a budget refills")
    with open_ledger(ledger) as book:
        old = book.limits
        # What the ledger says of δ stays.
        cap = old.budget if old else Budget(to or lifetime or 1.0)
        new = cap if to is None else replace(cap, epsilon=to)
        most = old.lifetime if old else None
        if lifetime is not None:
            most = Budget(lifetime) if most is None else replace(most, epsilon=lifetime)
        book.raise_budget(new, most)
        limits = book.limits
    assert old is not None and limits is not None
    line = f"raised from {old.sentence()} to {limits.sentence()}"
    answer(json, {"old": asdict(old.budget), "new": asdict(new)}, line)


def erase(
    ledger: LedgerPlace,
    /,
    *,
    person: Annotated[str, "The person's name, as the subjects' column has it."],
    json: Json = False,
) -> None:
    """Delete a person's name and stored vectors; what was spent stays under a pseudonym.

    Example: `capelet budgets erase people.db --person "Ann Lee"`
    """
    with open_ledger(ledger) as book:
        releases, spent = book.erase(person), book.spent(person)
    epsilon = 0.0 if spent is None else spent.epsilon
    answer(
        json,
        {"releases": releases, "epsilon": epsilon},
        f"erased: the name and {releases:,} stored vectors; ε = {epsilon:g} stays spent, under a "
        "pseudonym",
    )


def backup(
    ledger: LedgerPlace,
    target: Annotated[Path, "The ledger file that the copy becomes."],
    /,
    *,
    json: Json = False,
) -> None:
    """Copy a ledger, whole and consistent, into a new file, while others go on charging.

    Example: `capelet budgets backup postgresql://db.example/people people-monday.db`
    """
    from capelet.ledger.copies import copy_store

    entries = copy_store(ledger, target)
    answer(json, {"entries": entries}, f"copied: {entries:,} entries of the log")


def restore(
    source: Annotated[Path, "A ledger file that `backup` wrote."],
    ledger: Annotated[str, "Where no ledger is yet: a file or a postgresql:// URL."],
    /,
    *,
    anchor: Anchor = None,
    json: Json = False,
) -> None:
    """Go on with a backup, or move a ledger file into PostgreSQL; nothing there is replaced.

    Example: `capelet budgets restore people-monday.db postgresql://db.example/people`
    """
    from capelet.ledger.copies import copy_store

    entries = copy_store(source, ledger, anchor)
    doubt = (
        "what was charged after this copy was made is forgotten, and would be released again; "
        "--anchor tells whether there is such a charge"
    )
    summary = {"entries": entries, "is_anchored": anchor is not None}
    lines = [f"restored: {entries:,} entries of the log", *([doubt] if anchor is None else [])]
    answer(json, summary, *lines)


def rotate(
    ledger: LedgerPlace,
    /,
    *,
    to: Annotated[Path, "File of the new key; made where it is not there."],
    json: Json = False,
) -> None:
    """Lock the ledger's key by another one, which lies in a file; no name changes, nothing leaves.

    Example: `capelet budgets rotate people.db --to /etc/capelet/store-2.key`
    """
    from capelet.ledger.key_encryption import KEY_FILE

    with open_ledger(ledger) as book:
        book.rotate_key(to)
    line = f"locked: set {KEY_FILE}={to} for every process that uses this ledger, and keep it"
    answer(json, {"key_file": str(to)}, line)


@contextmanager
def open_ledger(place: str) -> Iterator[Ledger]:
    """A ledger that is there: these commands never make one."""
    from capelet.ledger.store import Ledger

    with Ledger(place) as book:
        if not book.is_open:
            raise CapeletError(f"there is no ledger {book.place!r}")
        yield book
