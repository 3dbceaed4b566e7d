"""A store keeps what each person's releases have cost and what they paid for; budgets are caps.

A release is an event: two noisy answers for one text are two charges, whoever caused the second
(a retry, a lost task, another process). So whoever releases draws, calls `settle`, and lets out
what `settle` returns. It charges and keeps in one transaction, under names that the caller chooses:
a name that is stored already costs nothing and comes back as it is stored; the first writer wins.

The store is one file, readable by its owner only (`database`). Whatever is charged enters a log
whose links form a chain; a head of it that is kept elsewhere (`anchors`) tells whether the file was
shortened, replaced or edited since. No message of this module names a person.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from capelet.errors import CapeletError, name_command, name_field
from capelet.interfaces import Vectors
from capelet.ledger.budgets import Budget, BudgetChange, Limits, Need, Refill
from capelet.ledger.chain import Head, verify_log
from capelet.ledger.connection import Connection
from capelet.ledger.database import Database, connect
from capelet.ledger.key_encryption import make_key, stored_form
from capelet.ledger.keys import Keys
from capelet.ledger.limits import begin_day, is_new_day, set_limits, stored_limits
from capelet.ledger.people import normalise_person
from capelet.ledger.settlement import (
    Answer,
    Balances,
    Excess,
    Order,
    Request,
    Settlement,
    Settling,
    body_hash,
    check_chargeable,
    request_name,
    vector_of,
)
from capelet.privacy.guarantees import Guarantee


class Counts(NamedTuple):
    """People who were charged, all their releases, and the highest sum of ε of one person."""

    people: int
    releases: int
    highest_epsilon: float


class NearLimit(NamedTuple):
    """A person who has spent much: a pseudonym, the sum of ε, its share of the most in all."""

    pseudonym: str
    epsilon: float
    share: float


def utc_now() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """The charges of all runs and requests against people, and the releases they paid for.

    The store is made at the first charge; a path where nothing is yet is an empty ledger. One
    object may be used from many threads, and many processes may have one of the same store.
    `keeps_names=False`: people are entered by keyed hash only, as a service does it.
    Example: `with Ledger("ledger.db") as ledger: print(ledger.spent("ann"))`.
    """

    def __init__(
        self,
        place: Path | str | Connection,
        *,
        keeps_names: bool = True,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.keeps_names = keeps_names
        self._clock = clock
        self._guarantees: dict[int, Guarantee] = {}
        self._db = Database(place if isinstance(place, Connection) else connect(place))
        self.keys = Keys(self._db)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Make the store where it is not yet there; from then on it has its own key."""
        self._db.connection.open()

    def close(self) -> None:
        self._db.connection.close()

    @property
    def is_open(self) -> bool:
        """Whether the store is there, and so whether anything can be stored in it."""
        return self._db.connection.is_open

    @property
    def place(self) -> str:
        """How messages call this ledger: its path, or its URL without what is secret in it."""
        return self._db.connection.place

    # ---- reading ---------------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """A name of this ledger that tells nothing of its key."""
        self._db.connection.refresh()
        return self._db.connection.identity

    @property
    def budget(self) -> Budget | None:
        """The cap of every person alike."""
        limits = self.limits
        return None if limits is None else limits.budget

    def budget_changes(self) -> list[BudgetChange]:
        """How the cap came to be what it is."""
        changes = []
        for time, content in self._db.acts("budget"):
            change = json.loads(content)
            old = None if change["old"] is None else Budget(**change["old"])
            changes.append(BudgetChange(time, old, Budget(**change["new"])))
        return changes

    @property
    def limits(self) -> Limits | None:
        """The cap of every person alike, and whether it refills."""
        return stored_limits(self._db)

    def spent(self, subject: str) -> Guarantee | None:
        """What all releases about a person promise together; None where there is none.

        r releases with ε for each text are r·ε for the person: whoever can tie them together may
        see all of the person's texts replaced at once.
        """
        person = normalise_person(subject)
        balances = self._balances()
        balances.load([person])
        total = balances.spent(person)
        if total is None:
            return None
        is_of_texts = (total.notion, total.unit) == ("local", "text")
        return replace(total, unit="author") if is_of_texts else total

    def subjects(self) -> list[str]:
        """Everyone who was charged, in order of name; pseudonyms of those without a name."""
        erasures = {json.loads(content)["person"] for _, content in self._db.acts("erasure")}
        return sorted(
            _alias(pseudonym, pseudonym.hex() in erasures) if name is None else name
            for pseudonym, name in self._db.people()
        )

    def counts(self) -> Counts:
        return Counts(*self._db.counts())

    def people_near_limit(self, count: int) -> list[NearLimit]:
        """Those who have spent most, by pseudonym; a share of 0 where nothing is the limit."""
        limits = self.limits
        return [
            NearLimit(
                pseudonym.hex()[:16], epsilon, epsilon / limits.total.epsilon if limits else 0.0
            )
            for pseudonym, epsilon in self._db.highest(count)
        ]

    def release_name(self, recipe: str, subject: str, content: bytes, key: str = "") -> bytes:
        """The name of *the* release of a person's text by a recipe: equal texts share it.

        With the id of an API key, only those asked for with that key: that a text was released
        before, which a charge of 0 shows, is nothing that another client may learn.
        It makes the store: names under a key that another process may yet decide are worthless.
        """
        self.open()
        person = normalise_person(subject)
        scope = [key.encode()] if key else []
        return self._db.digest(recipe.encode(), person.encode(), content, *scope)

    def row_name(self, run: str, row: int) -> bytes:
        """The name of a row's release in one run: no two rows share it, whatever their texts."""
        self.open()
        return self._db.digest(b"row", run.encode(), str(row).encode(), b"")

    def find(self, names: Iterable[bytes]) -> dict[bytes, Vectors]:
        """The stored vectors among these names."""
        return {name: vector_of(item.vector) for name, item in self._db.find(names).items()}

    def names_among(self, names: Iterable[bytes]) -> set[bytes]:
        """Those of the names under which a vector is stored."""
        return self._db.names_among(names)

    def answer(self, request: Request) -> Answer | None:
        """How a request with this idempotency key was answered; None where it was not yet."""
        name = request_name(self._db, request)
        record = self._db.requests([name]).get(name)
        if record is None:
            return None
        is_same = hmac.compare_digest(record.digest, body_hash(self._db, request))
        return Answer(request.digest if is_same else record.digest, record.names, record.charged)

    def releases_of(self, run: str) -> int:
        """How many of the stored vectors a run paid for."""
        return self._db.releases_of(run)

    def has_alike(self, subject: str) -> bool:
        """Whether somebody else in the ledger has an identifier that looks like this one."""
        return self._db.has_alike(normalise_person(subject))

    def ping(self) -> None:
        """Complain (`StoreDown`) where the database cannot be reached."""
        self._db.connection.ping()

    def cap(self, budget: Budget | None = None) -> Budget | None:
        """The budget that holds where this one is asked for: the smaller of it and the ledger's.

        More than the ledger's is refused: to raise a cap is an act of its own.
        """
        limits = self._limits_with(budget)
        return None if limits is None else limits.budget

    def check(
        self, needs: Iterable[Need], guarantee: Guarantee, budget: Budget | None = None
    ) -> None:
        """Complain, and charge nothing, where so many more releases would pass the budget.

        Guarantees that do not add up are refused, and so is a release without one.
        """
        check_chargeable(guarantee)
        limits, excess, stream = self._limits_with(budget), Excess(), iter(needs)
        # Some at a time: a file may name more people than fit into the memory.
        while some := list(islice(stream, 1000)):
            balances = self._balances()
            balances.load(need.person for need in some)
            balances.measure(some, guarantee, limits, excess)
        excess.complain(limits)

    # ---- writing ---------------------------------------------------------------------------------

    def settle(
        self,
        subjects: Sequence[str],
        names: Sequence[bytes],
        vectors: Vectors,
        guarantee: Guarantee,
        *,
        run: str = "",
        budget: Budget | None = None,
    ) -> Settlement:
        """Charge and keep what is new, and return what is stored; all of it or nothing.

        Row by row: about whom, under which name, the vector that was drawn. A name that is stored
        already, or comes again in a later row, costs nothing, and what is stored is returned in
        place of what was drawn, which must then be forgotten. `budget` may only lower the cap.
        """
        (settlement,) = self.settle_all([Order(subjects, names, vectors, guarantee, run, budget)])
        if isinstance(settlement, CapeletError):
            raise settlement
        return settlement

    def settle_all(self, orders: Sequence[Order]) -> list[Settlement | CapeletError]:
        """Settle orders in one transaction, in turn; each all or nothing by itself.

        An order that is refused leaves the others as they are, and its error stands in its place.
        Where the database fails, nothing of any of them is charged, and `StoreDown` is raised.
        """
        settlements: list[Settlement | CapeletError] = []
        with self._db.transaction():
            begin_day(self._db, self._today())
            limits = self.limits
            settling = Settling(self._db, self._balances(), orders)
            for order in orders:
                try:
                    lower = self._lower(limits, order.budget)
                    settlements.append(settling.settle(order, lower))
                except CapeletError as error:
                    settlements.append(error)
            settling.write(self.keeps_names, limits is not None and limits.refill == "daily")
        return settlements

    def limit(
        self, budget: Budget, refill: Refill = "none", lifetime: Budget | None = None
    ) -> Budget:
        """Set the cap where there is none; where there is one, `cap`. The budget that holds.

        `daily`: what was charged since the UTC day began counts against the budget, and everything
        against the lifetime, which is what people are promised.
        """
        limits = Limits(budget, refill, lifetime)
        with self._db.transaction():
            current = self.limits
            if current is None:
                set_limits(self._db, None, limits, self._today())
            elif (current.refill, current.lifetime) != (refill, lifetime):
                raise CapeletError(
                    f"the ledger {self.place!r} is limited to {current.sentence()}, and "
                    f"{limits.sentence()} was asked for; how a budget refills cannot be changed: "
                    "it would change what people were promised"
                )
            cap = self.cap(budget)
        assert cap is not None
        return cap

    def raise_budget(self, budget: Budget, lifetime: Budget | None = None) -> Budget:
        """Raise the cap of everyone, and write it down with the time; the cap that was."""
        with self._db.transaction():
            old = self.limits
            if old is None:
                raise CapeletError(
                    f"the ledger {self.place!r} has no budget to raise; the first run with "
                    f"{name_field('budget')} sets it"
                )
            new = Limits(budget, old.refill, lifetime or old.lifetime)
            is_less = _is_less(new.budget, old.budget) or _is_less(new.total, old.total)
            if is_less or new == old:
                raise CapeletError(
                    f"the ledger's budget is {old.sentence()}, and {new.sentence()} is no more "
                    f"than that; a run that is to keep to less takes {name_field('budget')}"
                )
            set_limits(self._db, old, new, self._today())
        return old.budget

    def erase(self, subject: str) -> int:
        """Delete a person's name, stored vectors and API keys; how many vectors went.

        What was spent stays under a keyed pseudonym: if the person comes back, the old charges
        still count. That the person's requests were answered is forgotten.
        """
        person = normalise_person(subject)
        with self._db.transaction():
            number, pseudonym = self._db.numbers([person]).get(person), self._db.pseudonym(person)
            keys = self._db.revoke_keys_of(pseudonym, self._clock().isoformat(timespec="seconds"))
            if number is None and keys == 0:
                raise CapeletError(f"nobody of this name was charged in {self.place!r}")
            releases = 0 if number is None else self._db.erase(number)
            act = {"person": pseudonym.hex(), "releases": releases}
            self._db.append("erasure", json.dumps(act))
        self._db.connection.flush()
        return releases

    def rotate_key(self, path: Path) -> None:
        """Lock the ledger's key anew, by the one in a file, which is made if need be.

        What this protects, and what it cannot, is written in `key_encryption`. Nothing is released.
        """
        # Made and on the disk first: a store locked by a key that was lost is lost.
        outer = make_key(path)
        with self._db.transaction():
            self._db.set_fact("key", stored_form(self._db.key, outer))
            self._db.append("rotation", "{}")
        self._db.connection.flush()

    def forget(self, run: str) -> None:
        """Drop the vectors of a run that is over and will never ask for them again."""
        with self._db.transaction():
            self._db.forget(run)

    # ---- the chain -------------------------------------------------------------------------------

    @property
    def head(self) -> Head:
        count, link = self._db.head()
        return Head(count, link.hex())

    @contextmanager
    def locked_head(self) -> Iterator[Head]:
        """The head, while nobody else can charge: of two that write it down, the later is later."""
        # A ledger that was never made has no head, and is not made for this.
        if not self._db.connection.exists():
            yield Head(0, "")
            return
        with self._db.transaction():
            yield self.head

    def verify(self, head: Head) -> None:
        """Complain where the log does not contain this head, or is not what its links say.

        All links are computed anew, and the running sums compared with the log: linear in the
        number of charges, once in a run.
        """
        # One state for all that is compared: others may charge meanwhile.
        with self._db.snapshot():
            verify_log(self._db, head)

    # ---- parts of a transaction ------------------------------------------------------------------

    def _balances(self) -> Balances:
        return Balances(self._db, self._guarantees, is_new_day(self._db, self._today()))

    def _limits_with(self, budget: Budget | None) -> Limits | None:
        return self._lower(self.limits, budget)

    def _lower(self, limits: Limits | None, budget: Budget | None) -> Limits | None:
        """The limits with a budget that may only lower them."""
        if budget is None or limits is None:
            return limits if budget is None else Limits(budget)
        cap = limits.budget
        if budget == cap:
            return limits
        if budget.exceeds(cap):
            raise CapeletError(
                f"a budget of {budget.sentence()} was asked for, and the ledger {self.place!r} is "
                f"limited to {cap.sentence()}; ask for less, or raise the ledger's first: "
                + name_command("budgets raise", self.place, to=f"{budget.epsilon:g}")
            )
        lower = Budget(min(budget.epsilon, cap.epsilon), min(budget.delta, cap.delta))
        return replace(limits, budget=lower)

    def _today(self) -> date:
        return self._clock().astimezone(UTC).date()


def _is_less(budget: Budget, other: Budget) -> bool:
    return budget.epsilon < other.epsilon or budget.delta < other.delta


def _alias(pseudonym: bytes, is_erased: bool) -> str:
    return f"{'erased' if is_erased else 'person'}-{pseudonym.hex()[:16]}"
