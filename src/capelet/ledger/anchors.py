"""An anchor is the head of a store's log, kept in a file elsewhere.

A budget holds only as long as the store remembers. Who deletes it, or puts an old copy in its
place, gives everyone a new budget, and the store itself cannot tell. A head that lies where that
hand does not reach can: it commits to every charge up to it. It holds two hashes and a number, and
says nothing of anybody. What came after the last anchor may still be lost unnoticed, and so may
everything when the anchor goes too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capelet.errors import OutputError, name_field
from capelet.files import DiskError, check_writable, write_whole
from capelet.ledger.chain import Head
from capelet.ledger.store import Ledger


@contextmanager
def with_anchor(ledger: Ledger, path: Path | None) -> Iterator[None]:
    """Check the ledger against its anchor at the beginning, and renew the anchor at the end.

    Also where the work between ended with an error: what was charged by then stays charged.
    """
    if path is None:
        yield
        return
    check_writable(path.parent)
    check_anchor(ledger, path)
    try:
        yield
    finally:
        write_anchor(ledger, path)


def check_anchor(ledger: Ledger, path: Path) -> None:
    """Complain where the ledger is not the anchored one or lacks its head; no file is no anchor."""
    try:
        content = json.loads(path.read_text("utf-8"))
        identity, head = str(content["ledger"]), Head(int(content["entries"]), str(content["head"]))
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"cannot read the anchor {str(path)!r} ({error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise OutputError(
            f"{str(path)!r} is not an anchor; give the file that an earlier run with "
            f"{name_field('anchor')} wrote, or a new name"
        ) from None
    if identity != ledger.identity:
        raise OutputError(
            f"the ledger {ledger.place!r} is not the one of the anchor {str(path)!r}: it is "
            "gone, or another stands in its place; nothing was drawn. Bring it back from a copy"
        )
    ledger.verify(head)


def write_anchor(ledger: Ledger, path: Path) -> None:
    """Write the head of the ledger's log, whole or not at all; an empty log has none."""
    with ledger.locked_head() as head:
        if head.entries == 0:
            return
        content = {"ledger": ledger.identity, "entries": head.entries, "head": head.link}
        try:
            write_whole(path, json.dumps(content) + "\n", mode=0o600)
        except DiskError as error:
            raise OutputError(f"cannot write the anchor {str(path)!r} ({error.reason})") from None
