"""How orders are settled: who pays, what is stored, and what is left of the budgets.

One transaction settles the orders of many requests (one write to the disk for all), and each order
all or nothing by itself. So everything that can be refused is checked on `Balances` in memory,
which one reading filled under the lock; only an order that passed is written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from capelet.errors import CapeletError
from capelet.interfaces import Vectors
from capelet.ledger.budgets import ROWS_SHOWN, Budget, BudgetError, Limits, Need, needs_of
from capelet.ledger.database import Charge, Database, StoredRequest, Sums
from capelet.ledger.people import normalise_person
from capelet.privacy.guarantees import Guarantee, compose


class RequestConflict(CapeletError):
    """An idempotency key was used before, for another request."""

    def __init__(self) -> None:
        super().__init__(
            "this idempotency key was used for another request; send the same body again, or "
            "another key"
        )


@dataclass(frozen=True)
class Request:
    """Which request an order answers: the API key's id, the idempotency key, the body's hash."""

    key: str
    idempotency: str
    digest: bytes


@dataclass(frozen=True)
class Answer:
    """Which releases answered a request, in order, and how many were charged for it.

    `digest` is that of the request asked about where both have the same body, and another where
    they have not: what is stored is a keyed hash, for a plain one would confirm a guessed text.
    """

    digest: bytes
    names: tuple[bytes, ...]
    charged: int


@dataclass(frozen=True, eq=False)
class Order:
    """One request's worth of releases: all of it or nothing.

    Row by row: about whom, under which name, the vector that was drawn. `budget` may only lower
    the ledger's.
    """

    subjects: Sequence[str]
    names: Sequence[bytes]
    vectors: Vectors
    guarantee: Guarantee
    run: str = ""
    budget: Budget | None = None
    request: Request | None = None


@dataclass(frozen=True, eq=False)
class Settlement:
    """What the store holds under the names, row by row, and which rows were charged for it now.

    `left` is what is left of ε to the person of each row; infinite without a budget.
    """

    vectors: Vectors
    is_new: npt.NDArray[np.bool_]
    left: npt.NDArray[np.float64]


def undrawn(names: Sequence[bytes], *known: Container[bytes]) -> list[int]:
    """The rows that are to be drawn: of names that nobody knows, each where it comes first.

    A name is drawn once: the average of two draws would have half the noise.

    >>> undrawn([b"a", b"b", b"c", b"b"], {b"a"})
    [1, 2]
    """
    first = {name: row for row, name in reversed(list(enumerate(names)))}
    return sorted(row for name, row in first.items() if not any(name in some for some in known))


class Balances:
    """What people have spent, as one transaction sees it and changes it."""

    def __init__(self, db: Database, guarantees: dict[int, Guarantee], is_new_day: bool) -> None:
        self._db, self._guarantees, self._is_new_day = db, guarantees, is_new_day
        self._totals: dict[str, Counter[Guarantee]] = {}
        self._windows: dict[str, Counter[Guarantee]] = {}
        self.numbers: dict[str, int] = {}

    def load(self, people: Iterable[str]) -> None:
        """Read what these people have spent, those who were read before excepted."""
        missing = sorted(set(people) - self._totals.keys())
        numbers = self._db.numbers(missing)
        self.numbers.update(numbers)
        names = {number: person for person, number in numbers.items()}
        for person in missing:
            self._totals[person], self._windows[person] = Counter(), Counter()
        self._read("totals", self._totals, names)
        # On a day that the store has not seen yet nothing was charged so far.
        if not self._is_new_day:
            self._read("windows", self._windows, names)

    def _read(
        self, table: Sums, sums: dict[str, Counter[Guarantee]], names: Mapping[int, str]
    ) -> None:
        for person, guarantee, releases in self._db.sums(table, names):
            sums[names[person]][self._guarantee(guarantee)] += releases

    def spent(self, person: str) -> Guarantee | None:
        """What all releases about a person promise together."""
        return _sum(self._totals[person])

    def spent_today(self, person: str) -> Guarantee | None:
        return _sum(self._windows[person])

    def add(self, needs: Iterable[Need], guarantee: Guarantee) -> None:
        for person, releases, _ in needs:
            self._totals[person][guarantee] += releases
            self._windows[person][guarantee] += releases

    def check(self, needs: Iterable[Need], guarantee: Guarantee, limits: Limits | None) -> None:
        """Complain where so many more releases would pass the limits, or do not add up."""
        excess = Excess()
        self.measure(needs, guarantee, limits, excess)
        excess.complain(limits)

    def measure(
        self, needs: Iterable[Need], guarantee: Guarantee, limits: Limits | None, excess: Excess
    ) -> None:
        """Count those who would pass the limits with so many more releases."""
        is_daily = limits is not None and limits.refill == "daily"
        for person, releases, row in needs:
            more = {guarantee: releases}
            total = _sum(self._totals[person], more)
            # Today's charges are among all of them, so whatever does not add up was found above.
            today = _sum(self._windows[person], more) if is_daily else None
            assert total is not None
            if limits is not None:
                excess.add(row, total, today, limits)

    def left(self, person: str, limits: Limits | None) -> float:
        if limits is None:
            return float("inf")
        total = self.spent(person)
        left = limits.total.epsilon - (total.epsilon if total else 0.0)
        if limits.refill == "daily":
            today = self.spent_today(person)
            left = min(left, limits.budget.epsilon - (today.epsilon if today else 0.0))
        return max(left, 0.0)

    def _guarantee(self, number: int) -> Guarantee:
        if number not in self._guarantees:
            self._guarantees[number] = Guarantee.from_json(json.loads(self._db.guarantee(number)))
        return self._guarantees[number]


class Excess:
    """The people whom the limits do not cover, in all or on this day."""

    def __init__(self) -> None:
        self._rows: dict[str, list[int]] = {"all": [], "day": []}
        self._counts: Counter[str] = Counter()
        self._highest = {"all": 0.0, "day": 0.0}

    def add(self, row: int, total: Guarantee, today: Guarantee | None, limits: Limits) -> None:
        """Count a person, by the row that came first, where the sums pass the limits.

        `today` is given where the budget is a day's.
        """
        if not limits.total.covers(total):
            self._count("all", row, total.epsilon)
        elif today is not None and not limits.budget.covers(today):
            self._count("day", row, today.epsilon)

    def _count(self, span: str, row: int, epsilon: float) -> None:
        self._counts[span] += 1
        self._highest[span] = max(self._highest[span], epsilon)
        self._rows[span] += [row] if len(self._rows[span]) < ROWS_SHOWN else []

    def complain(self, limits: Limits | None) -> None:
        # What no other day would cover is said first.
        for span in ("all", "day"):
            if limits is not None and self._counts[span]:
                budget = limits.total if span == "all" else limits.budget
                count, highest = self._counts[span], self._highest[span]
                raise BudgetError(budget, self._rows[span], count, highest, span == "day")


class Settling:
    """The orders of one transaction: read at once, checked one by one in memory, written at once.

    So a group costs as many statements as a single order, which matters where each is a way to
    another machine. The caller holds the transaction.
    """

    def __init__(self, db: Database, balances: Balances, orders: Sequence[Order]) -> None:
        self._db, self._balances = db, balances
        people: set[str] = set()
        for order in orders:
            # Who is no person spoils one order, when its turn comes, and not the group.
            with suppress(CapeletError):
                people |= set(_people_of(order))
        balances.load(people)
        self._releases = db.find({name for order in orders for name in order.names})
        requests = [order.request for order in orders if order.request is not None]
        self._requests = db.requests({request_name(db, request) for request in requests})
        # What passed: (person, name, vector) of new releases, and what the log is to say.
        self._draws: dict[bytes, _Draw] = {}
        self._bills: list[_Bill] = []
        self._answers: dict[bytes, StoredRequest] = {}

    def settle(self, order: Order, limits: Limits | None) -> Settlement:
        """What an order is answered with; a complaint comes before anything of it is entered."""
        check_chargeable(order.guarantee)
        names = order.names
        if not len(order.subjects) == len(names) == len(order.vectors):
            raise CapeletError("settle needs a subject, a name and a vector for each row")
        people = _people_of(order)
        vectors = np.ascontiguousarray(order.vectors, dtype="<f4")
        is_repeat = self._is_repeat(order.request)
        new_rows = undrawn(names, self._releases, self._draws)
        needs = needs_of([people[row] for row in new_rows], new_rows)
        # A charge is for texts that pass; what training texts are promised costs nobody here.
        guarantee = replace(order.guarantee, training=None)
        self._balances.check(needs, guarantee, limits)
        draws = {
            names[row]: _Draw(people[row], order.run, vectors[row].tobytes()) for row in new_rows
        }
        contents = [
            self._content(name, person, draws) for name, person in zip(names, people, strict=True)
        ]
        answer = _stack([vector_of(content) for content in contents], vectors.shape[1])

        if needs:
            self._draws |= draws
            self._bills.append(_Bill(order.run, guarantee, needs))
            self._balances.add(needs, guarantee)
        if order.request is not None and not is_repeat:
            record = StoredRequest(body_hash(self._db, order.request), len(draws), tuple(names))
            self._answers[request_name(self._db, order.request)] = record
        is_new = np.zeros(len(names), dtype=bool)
        is_new[new_rows] = True
        left = np.array([self._balances.left(person, limits) for person in people], dtype=float)
        return Settlement(answer, is_new, left)

    def _content(self, name: bytes, person: str, draws: Mapping[bytes, _Draw]) -> bytes:
        """The vector under a name; refused where it is another person's: it would cost nobody."""
        if name in self._releases:
            owner = self._releases[name].person
            is_own = owner == self._balances.numbers.get(person)
            content = self._releases[name].vector
        else:
            draw = self._draws.get(name) or draws[name]
            is_own, content = draw.person == person, draw.content
        if not is_own:
            raise CapeletError("a release under this name belongs to another person")
        return content

    def _is_repeat(self, request: Request | None) -> bool:
        """Whether a request was answered before; a complaint where it was another one."""
        if request is None:
            return False
        name = request_name(self._db, request)
        # Read under the lock: another replica may have answered since the caller looked.
        record = self._requests.get(name) or self._answers.get(name)
        if record is not None and record.digest != body_hash(self._db, request):
            raise RequestConflict
        return record is not None

    def write(self, keeps_names: bool, is_daily: bool) -> None:
        """Charge and keep whatever passed."""
        if self._bills:
            people = {need.person for bill in self._bills for need in bill.needs}
            # Who was read under this lock with a number has it still.
            new_people = sorted(people - self._balances.numbers.keys())
            numbers = {**self._balances.numbers, **self._db.add_people(new_people, keeps_names)}
            promises = {guarantee: self._number_of(guarantee) for guarantee in self._guarantees()}
            acts = [
                (json.dumps({"run": bill.run}), bill.charges(numbers, promises[bill.guarantee]))
                for bill in self._bills
            ]
            self._db.charge(acts)
            if is_daily:
                self._db.add("windows", [charge for _, charges in acts for charge in charges])
            self._db.keep(
                (name, numbers[draw.person], draw.run, draw.content)
                for name, draw in self._draws.items()
            )
        if self._answers:
            self._db.add_requests(self._answers)

    def _guarantees(self) -> Iterable[Guarantee]:
        """Each promise of this group once, in order; a gateway's orders all have the same."""
        return dict.fromkeys(bill.guarantee for bill in self._bills)

    def _number_of(self, guarantee: Guarantee) -> int:
        content = json.dumps(guarantee.to_json(), sort_keys=True)
        return self._db.guarantee_number(content, guarantee.epsilon)


def _people_of(order: Order) -> list[str]:
    return [normalise_person(subject) for subject in order.subjects]


class _Draw(NamedTuple):
    """A vector that is to be kept, for whom, and of which run."""

    person: str
    run: str
    content: bytes


class _Bill(NamedTuple):
    """What one order is charged."""

    run: str
    guarantee: Guarantee
    needs: Sequence[Need]

    def charges(self, numbers: Mapping[str, int], promise: int) -> list[Charge]:
        return [Charge(numbers[need.person], promise, need.releases) for need in self.needs]


def request_name(db: Database, request: Request) -> bytes:
    # Keyed: what clients choose as a key (an order's number, an address) is not readable here.
    idempotency = request.idempotency.encode("utf-8", "surrogatepass")
    return db.digest(b"request", request.key.encode(), idempotency)


def body_hash(db: Database, request: Request) -> bytes:
    return db.digest(b"body", request.digest)


def check_chargeable(guarantee: Guarantee) -> None:
    if guarantee.notion == "none" or guarantee.status not in ("proven", "claimed"):
        raise CapeletError(
            "a ledger cannot charge a release without a guarantee, or with a broken one; "
            "give a recipe with a noise step"
        )


def vector_of(content: bytes) -> Vectors:
    # Little-endian on every machine: a ledger may be moved to another.
    return np.frombuffer(content, dtype="<f4")


def _stack(rows: Sequence[Vectors], width: int) -> Vectors:
    if any(len(row) != width for row in rows):
        raise CapeletError("the ledger holds a vector of another width under one of these names")
    # Not `stack`, which takes five times as long for the one row of most requests.
    return np.array(rows, dtype=np.float32).reshape(len(rows), width)


def _sum(
    releases: Counter[Guarantee], more: Mapping[Guarantee, int] = MappingProxyType({})
) -> Guarantee | None:
    """What all of these releases, and some more, promise together; None where there are none."""
    # Equal promises are counted before they are multiplied: n·ε and then one more ε would be
    # composed anew for each release, and rounded otherwise than the (n + 1)·ε of the next one.
    counts = {**releases, **{which: releases[which] + count for which, count in more.items()}}
    return compose([_times(*item) for item in counts.items()]) if counts else None


@lru_cache(maxsize=4096)
def _times(guarantee: Guarantee, releases: int) -> Guarantee:
    # Kept: `replace` checks every field, and a person's sum is asked for with every charge.
    return guarantee.repeated(releases)
