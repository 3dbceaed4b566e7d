"""How a file is charged for: in which ledger, under which cap, and what a repeated text costs.

A text that one person wrote twice is two rows. Drawn twice, it costs twice, and the two vectors
tell as much about "equal or not" as ε allows: that is `fresh`, the default, and the printed ε is
true of it. Given the same stored vector it costs once, and *shows with certainty* that the two
texts are equal, at any ε: that is `same`, which declares just this to be public.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from capelet.errors import CapeletError, name_field
from capelet.interfaces import Vectors
from capelet.ledger.budgets import ROWS_SHOWN, Budget, Need, needs_of
from capelet.ledger.database import address, keyed_hash
from capelet.ledger.people import EQUALITY_IS_PUBLIC
from capelet.ledger.settlement import undrawn
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee
from capelet.release.partial_output import PartialOutput
from capelet.release.rows import Block, contents_of

Repeats = Literal["fresh", "same"]
REPEATS: tuple[Repeats, ...] = ("fresh", "same")


@dataclass(frozen=True)
class Charging:
    """What was asked about charges, checked; no ledger, no charges."""

    # Not shown: the URL of a database may have a password in it.
    ledger: Path | str | None = field(default=None, repr=False)
    budget: Budget | None = None
    repeats: Repeats = "fresh"
    anchor: Path | None = None

    def __post_init__(self) -> None:
        check_repeats(self.repeats)
        is_plain = self.budget is None and self.anchor is None and self.repeats == "fresh"
        if self.ledger is None and not is_plain:
            raise CapeletError(
                "a budget, an anchor, or the same vector for repeated texts needs a ledger"
            )

    def check(self, subject: str | None, guarantee: Guarantee) -> None:
        """Refuse what cannot be charged as it was asked."""
        if self.ledger is None:
            return
        if subject is None:
            raise CapeletError(
                "a ledger needs the column of the subjects who are charged: "
                + name_field("subject")
            )
        check_whole_texts(guarantee)


def check_repeats(repeats: str) -> None:
    """Refuse what is no way to treat a text that comes again."""
    if repeats not in REPEATS:
        raise CapeletError(f"repeats is {repeats!r}; it must be 'fresh' or 'same'")


def check_whole_texts(guarantee: Guarantee) -> None:
    """Refuse a guarantee that nobody can be charged for: of words, in a metric, of a training."""
    if guarantee.notion != "local" or guarantee.unit != "text":
        raise CapeletError(
            "a ledger charges people for whole texts, and this recipe promises "
            f"{guarantee.sentence()}; add a noise step on the vectors, or leave the ledger out"
        )


def promise_of(guarantee: Guarantee, repeats: Repeats) -> Guarantee:
    """The guarantee of what leaves: the same vector for equal texts shows that they are."""
    if repeats == "fresh" or guarantee.notion == "none":
        return guarantee
    return guarantee.with_caveat(EQUALITY_IS_PUBLIC)


def charging_of(
    ledger: Path | str | None,
    budget: float | Budget | None,
    repeats: Repeats | None,
    anchor: Path | str | None,
) -> Charging:
    """The settings from what a caller gave."""
    return Charging(
        None if ledger is None else address(ledger),
        budget if budget is None or isinstance(budget, Budget) else Budget(budget),
        repeats or "fresh",
        None if anchor is None else Path(anchor),
    )


@dataclass(frozen=True)
class Account:
    """A ledger as releases of one recipe use it: their names, and what they would cost."""

    ledger: Ledger
    repeats: Repeats
    recipe_name: str
    scratch_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def names(
        self,
        people: Sequence[str],
        values: Sequence[str] | Vectors,
        run: str,
        *,
        start: int = 0,
        key: str = "",
    ) -> list[bytes]:
        """The names under which the ledger keeps the releases of these texts or vectors.

        `same`: by person, recipe and text, so that equal texts share one, in any run; with the id
        of an API key by that as well. `fresh`: by run and row, counted from `start`, so that none
        is shared, and a run that goes on after a crash finds its own.
        """
        if self.repeats == "fresh":
            return [self.ledger.row_name(run, start + row) for row in range(len(values))]
        rows = zip(people, contents_of(values), strict=True)
        return [self.ledger.release_name(self.recipe_name, *row, key) for row in rows]

    def names_of(self, block: Block, run: str) -> list[bytes]:
        return self.names(block.people, block.values, run, start=block.start)

    def needs(self, block: Block, parts: PartialOutput, is_resumed: bool) -> list[Need]:
        """What a block would cost: a release for each row whose name is not stored yet."""
        people = block.people
        # Nothing can be stored under the names of a run that has only begun.
        if self.repeats == "fresh" and not is_resumed:
            return needs_of(people, block.numbers)
        if self.ledger.is_open:
            names = self.names_of(block, parts.run)
        else:
            # No file yet, and none is made before the budgets are checked: these names only tell
            # equal texts apart. Keyed, for they lie on the disk until the run is over.
            rows = zip(people, contents_of(block.values), strict=True)
            names = [keyed_hash(self.scratch_key, who.encode(), content) for who, content in rows]
        waiting = undrawn(names, self.ledger.names_among(names))
        is_first = parts.unseen(names[row] for row in waiting)  # of the blocks so far
        new = [row for row, first in zip(waiting, is_first, strict=True) if first]
        return needs_of([people[row] for row in new], [block.start + row for row in new])


class LookAlikes:
    """Rows whose person looks like another: one person with two identifiers has two budgets."""

    def __init__(self) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._rows: list[int] = []

    def look(self, block: Block, parts: PartialOutput, ledger: Ledger) -> None:
        """Compare everyone who comes for the first time with the file so far and the ledger."""
        first_rows: dict[str, int] = {}
        for person, number in zip(block.people, block.numbers, strict=True):
            first_rows.setdefault(person, number)
        for person, number in first_rows.items():
            if not parts.enter_person(person, number):
                continue
            other = parts.row_alike(person)
            if other is not None:
                self._pairs.append((other, number))
            elif ledger.has_alike(person):
                self._rows.append(number)

    def warnings(self) -> Iterator[str]:
        """A sentence for each kind, with row numbers and never what stands there."""
        end = "capitals, blanks or signs; if they are one person, it has two budgets"
        if self._pairs:
            pairs = [f"{first} and {second}" for first, second in self._pairs]
            yield f"rows {_some(pairs)} name people who differ only in {end}"
        if self._rows:
            yield (
                f"rows {_some(list(map(str, self._rows)))} name people who differ from others in "
                f"the ledger only in {end}"
            )


def _some(items: Sequence[str]) -> str:
    more = f" and {len(items) - ROWS_SHOWN} more" if len(items) > ROWS_SHOWN else ""
    return ", ".join(items[:ROWS_SHOWN]) + more
