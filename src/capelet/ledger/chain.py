"""Whether a store is what its log says, and its log the one that somebody has seen before."""

from __future__ import annotations

import hmac
from typing import NamedTuple

from capelet.errors import OutputError
from capelet.ledger.database import Database
from capelet.ledger.limits import days_agree, logged_limits, stored_limits


class Head(NamedTuple):
    """How many entries the log has, and the last link of its chain."""

    entries: int
    link: str


def verify_log(db: Database, head: Head) -> None:
    """Complain where the log does not contain this head, or is not what its links say.

    All links are computed anew, and sums, budget and day compared with the log.
    """
    is_contained = head.entries == 0
    for number, link, agrees in db.links():
        if not agrees:
            raise _tampering(db, f"its log was edited at or before entry {number}")
        if number == head.entries:
            is_contained = hmac.compare_digest(link.hex(), head.link)
    if not is_contained:
        raise _tampering(db, f"it does not contain entry {head.entries} as it was")
    if not db.sums_agree():
        raise _tampering(db, "its sums are not those of its log")
    if stored_limits(db) != logged_limits(db):
        raise _tampering(db, "its budget is not the one that its log says")
    if not days_agree(db):
        raise _tampering(db, "its day is not the one that its log says")


def _tampering(db: Database, what: str) -> OutputError:
    return OutputError(
        f"the ledger {db.connection.place!r} is not the one whose head was kept: {what}; nothing "
        "was drawn. Bring the ledger back from a copy; without it, what was spent is not known"
    )
