"""Ledgers of Capelet 0.1.0 become stores of this version, in place, in one transaction.

0.1.0 named people as the column had them, summed all rows at each charge, kept no log, and gave
equal texts of one person the same vector without saying so. So people are normalised (whose two
spellings become one person with one sum), the charges become the log, and the caveat is added to
what was promised. Whose a kept vector is was not written down; it stays without a person.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from capelet.privacy.people import EQUALITY_IS_PUBLIC, normalise_person
from capelet.privacy.schema import TABLES

if TYPE_CHECKING:
    from capelet.privacy.database import Database
    from capelet.privacy.sqlite import SQLiteConnection

_OLD = ("guarantees", "charges", "kept")
_UNKNOWN_TIME = ""  # 0.1.0 wrote no times down


def migrate(connection: SQLiteConnection) -> None:
    """Bring the tables of 0.1.0 into today's form; the caller holds the transaction."""
    from capelet.privacy.database import Database

    database = Database(connection)
    for table in _OLD:
        connection.write(f"ALTER TABLE {table} RENAME TO old_{table}")
    connection.create_tables(TABLES)
    budget = database.fact("budget")
    if budget is not None:
        change = json.dumps({"old": None, "new": json.loads(budget)})
        database.append("budget", change, _UNKNOWN_TIME)
    _copy_charges(database)
    connection.write("INSERT INTO releases SELECT name, NULL, '', vector FROM old_kept")
    for table in (*(f"old_{table}" for table in _OLD), "blocks"):
        connection.write(f"DROP TABLE {table}")


def _copy_charges(database: Database) -> None:
    from capelet.privacy.database import Charge

    guarantees = {
        number: _with_caveat(json.loads(content))
        for number, content in database.connection.rows("SELECT id, said FROM old_guarantees")
    }
    # One sorted reading: a search for each block would read all charges for every block.
    rows = database.connection.stream(
        "SELECT run, block, guarantee, subject, releases FROM old_charges ORDER BY 1, 2, 3"
    )
    for (run, _, number), charges in groupby(rows, key=lambda row: row[:3]):
        needs: dict[str, int] = {}
        for *_, subject, releases in charges:
            person = normalise_person(subject)
            needs[person] = needs.get(person, 0) + releases
        content = guarantees[number]
        which = database.guarantee_number(json.dumps(content, sort_keys=True), content["epsilon"])
        numbers = database.add_people(list(needs))
        bill = [Charge(numbers[person], which, releases) for person, releases in needs.items()]
        database.charge([(json.dumps({"run": run}), bill)], _UNKNOWN_TIME)


def _with_caveat(content: dict[str, Any]) -> dict[str, Any]:
    caveats = [part for part in (content.get("caveat", ""), EQUALITY_IS_PUBLIC) if part]
    return {**content, "caveat": "; ".join(caveats), "training": None}
