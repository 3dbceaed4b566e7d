"""`capelet budgets`: what a ledger says in sum, and the acts that change it; nobody is named."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from capelet.cli import options
from capelet.cli.terminal import echo
from capelet.errors import CapeletError

if TYPE_CHECKING:
    from capelet.privacy.store import Ledger


def show(
    ledger: options.LedgerFile, anchor: options.Anchor = None, json: options.Json = False
) -> None:
    """Say what a ledger's cap is, how it came about, and the highest sum of one person.

    Example: `capelet budgets show people.db`
    """
    from capelet.privacy.anchors import check_anchor

    with _open(ledger) as book:
        if anchor is not None:
            if not anchor.is_file():
                raise CapeletError(f"there is no anchor {str(anchor)!r}")
            check_anchor(book, anchor)
        counts, cap, changes = book.counts(), book.budget, book.budget_changes()
    if json:
        history = [
            {"time": time, "old": old and asdict(old), "new": asdict(new)}
            for time, old, new in changes
        ]
        summary = {**counts._asdict(), "budget": cap and asdict(cap), "changes": history}
        echo(jsonlib.dumps(summary))
        return
    echo(f"budget: {cap.sentence() if cap else 'none'}")
    for time, old, new in changes:
        act = f"raised from {old.sentence()} to" if old else "set to"
        echo(f"  {time or 'before times were kept'}: {act} {new.sentence()}")
    echo(f"charged: {counts.releases:,} releases of {counts.people:,} people")
    echo(f"highest sum: ε = {counts.highest_epsilon:g} per person")


def raise_cap(
    ledger: options.LedgerFile, to: options.NewBudget, json: options.Json = False
) -> None:
    """Raise the cap of everyone in a ledger; the time and both values are written down in it.

    Example: `capelet budgets raise people.db --to 80`
    """
    from capelet.privacy.budgets import Budget

    with _open(ledger) as book:
        # What the ledger says of δ stays.
        cap = book.budget
        new = Budget(to) if cap is None else replace(cap, epsilon=to)
        old = book.raise_budget(new)
    if json:
        echo(jsonlib.dumps({"old": asdict(old), "new": asdict(new)}))
    else:
        echo(f"raised from {old.sentence()} to {new.sentence()}")


def erase(ledger: options.LedgerFile, person: options.Person, json: options.Json = False) -> None:
    """Delete a person's name and stored vectors; what was spent stays under a pseudonym.

    Example: `capelet budgets erase people.db --person "Ann Lee"`
    """
    with _open(ledger) as book:
        releases, spent = book.erase(person), book.spent(person)
    epsilon = 0.0 if spent is None else spent.epsilon
    if json:
        echo(jsonlib.dumps({"releases": releases, "epsilon": epsilon}))
    else:
        echo(
            f"erased: the name and {releases:,} stored vectors; ε = {epsilon:g} stays spent, under "
            "a pseudonym"
        )


@contextmanager
def _open(path: Path) -> Iterator[Ledger]:
    """A ledger that is there: these commands never make one."""
    from capelet.privacy.store import Ledger

    if not path.is_file():
        raise CapeletError(f"there is no ledger {str(path)!r}")
    with Ledger(path) as book:
        yield book
