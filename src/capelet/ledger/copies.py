"""Copies of a store: backup, restore, and the move from a file to PostgreSQL; all are one act.

A copy is read in one snapshot, while others go on charging, and has everything: key, names, sums,
log. Whoever goes on with it gives out what was released before, and releases nothing a second time.
A backup is always a ledger file, whichever database the store is in.

A copy knows nothing of what was charged after it was made. To go on with an old one is to forget
those charges, and to release those texts again; the store cannot tell, an anchor can (`anchors`).
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from capelet.errors import OutputError
from capelet.files import check_writable, onto_disk, sync
from capelet.ledger.anchors import check_anchor
from capelet.ledger.connection import Connection
from capelet.ledger.database import connect
from capelet.ledger.schema import TABLE_NAMES
from capelet.ledger.sqlite import SQLiteConnection
from capelet.ledger.store import Ledger

_ROWS = 1000  # that are held in memory at a time


def copy_store(source: Path | str, target: Path | str, anchor: Path | None = None) -> int:
    """Copy a store to where none is yet; how many entries its log has.

    With an anchor, only a store that contains the anchored head is copied. The copy is verified.
    """
    with connect(source) as origin:
        if not origin.is_open:
            raise OutputError(f"there is no ledger {origin.place!r}")
        if anchor is not None:
            if not anchor.is_file():
                raise OutputError(f"there is no anchor {str(anchor)!r}")
            check_anchor(Ledger(origin), anchor)
        with connect(target) as place:
            if isinstance(place, SQLiteConnection):
                return _copy_to_file(origin, place.path)
            return _copy(origin, place)


def _copy_to_file(source: Connection, path: Path) -> int:
    """Under another name first: a copy that was broken off is never taken for one."""
    if path.exists():
        raise OutputError(f"{str(path)!r} is there already; a copy replaces nothing, name another")
    check_writable(path.parent)
    with onto_disk(path), TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        draft = Path(folder) / path.name
        with SQLiteConnection(draft) as target:
            entries = _copy(source, target)
        # A link, not a rename: if somebody made a ledger of this name meanwhile, it stays.
        path.hardlink_to(draft)
        sync(path.parent)
    return entries


def _copy(source: Connection, target: Connection) -> int:
    target.open()
    with source.snapshot(), target.transaction():
        if any(target.rows(f"SELECT 1 FROM {table} LIMIT 1") for table in ("log", "keys")):
            raise OutputError(
                f"the store {target.place!r} has charges or keys of its own; a copy replaces "
                "nothing, name an empty one"
            )
        target.write("DELETE FROM facts WHERE name != 'version'")
        for table in TABLE_NAMES:
            _copy_table(source, target, table)
        target.adopt()
    ledger = Ledger(target)
    ledger.verify(ledger.head)
    return ledger.head.entries


def _copy_table(source: Connection, target: Connection, table: str) -> None:
    # The version is the target's own.
    which = " WHERE name != 'version'" if table == "facts" else ""
    rows = source.stream(f"SELECT * FROM {table}{which}")
    while some := list(islice(rows, _ROWS)):
        places = ", ".join("?" * len(some[0]))
        target.write_many(f"INSERT INTO {table} VALUES ({places})", some)
