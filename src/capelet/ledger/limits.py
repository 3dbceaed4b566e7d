"""How a store holds its limits and its day: as facts, and as acts of the log that must agree.

A daily budget refills when the UTC day is later than the one that the store is in. That day only
moves forwards, whatever a clock says: a clock set back refills nothing. One set forward brings the
next day early, once, and the lifetime holds all the same.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date

from capelet.ledger.budgets import Budget, Limits
from capelet.ledger.database import Database


def stored_limits(db: Database) -> Limits | None:
    """The limits of every person alike; None where there are none."""
    budget, lifetime = db.fact("budget"), db.fact("lifetime")
    if budget is None or lifetime is None:
        return None if budget is None else Limits(Budget(**json.loads(budget)))
    return Limits(Budget(**json.loads(budget)), "daily", Budget(**json.loads(lifetime)))


def logged_limits(db: Database) -> Limits | None:
    """The limits as the last act of the log left them."""
    for _, content in reversed(db.acts("budget")):
        act = json.loads(content)
        lifetime = act.get("lifetime")
        return Limits(
            Budget(**act["new"]),
            act.get("refill", "none"),
            None if lifetime is None else Budget(**lifetime),
        )
    return None


def set_limits(db: Database, old: Limits | None, new: Limits, today: date) -> None:
    """Set or raise the limits, which is written down with the time."""
    act: dict[str, object] = {"old": old and asdict(old.budget), "new": asdict(new.budget)}
    db.set_fact("budget", json.dumps(asdict(new.budget)))
    if new.lifetime is not None:
        act |= {"refill": new.refill, "lifetime": asdict(new.lifetime)}
        db.set_fact("lifetime", json.dumps(asdict(new.lifetime)))
    db.append("budget", json.dumps(act))
    if old is None and new.refill == "daily":
        _turn_day(db, today)


def is_new_day(db: Database, today: date) -> bool:
    """Whether a daily budget refills today; never where none does."""
    day = db.fact("day")
    return day is not None and today > date.fromisoformat(day)


def begin_day(db: Database, today: date) -> None:
    """Refill where the store is in an earlier day."""
    if is_new_day(db, today):
        _turn_day(db, today)


def _turn_day(db: Database, today: date) -> None:
    # An act of the log: an anchor then covers it, and sums since then can be checked.
    db.set_fact("day", today.isoformat())
    db.clear_windows()
    db.append("day", json.dumps({"day": today.isoformat()}))


def days_agree(db: Database) -> bool:
    """Whether the day of the store is the last one of the log."""
    days = [json.loads(content)["day"] for _, content in db.acts("day")]
    return db.fact("day") == (days[-1] if days else None)
