"""Orders of many requests in one transaction: each all or nothing, and answered once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import CapeletError
from capelet.ledger.budgets import Budget, BudgetError, needs_of
from capelet.ledger.settlement import Order, Request, RequestConflict, Settlement
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee

Place = Path | str
TWO = Guarantee(epsilon=2.0)


def order(*people: str, names: str, value: float = 1.0, request: Request | None = None) -> Order:
    """A release for each of the people, under one letter each."""
    vectors = np.full((len(people), 3), value, dtype=np.float32)
    return Order(people, [letter.encode() for letter in names], vectors, TWO, request=request)


def spent(ledger: Ledger, person: str) -> float:
    total = ledger.spent(person)
    return 0.0 if total is None else total.epsilon


# ---- groups --------------------------------------------------------------------------------------


def test_one_order_that_is_refused_leaves_the_others(place: Place) -> None:
    with Ledger(place) as ledger:
        ledger.limit(Budget(4.0))
        settlements = ledger.settle_all(
            [
                order("ann", names="a"),
                order("ann", "bob", "ann", names="bcd"),  # one too many for ann, so nothing for bob
                order("ann", names="e"),
                order("ann", names="f"),  # now she has nothing left
                order("bob", names="g"),
                order("bob", names="a"),  # ann's
                order("ann", names="xy"),  # two names, one person
                order("ann", names="a", value=9.0),  # a repeat inside the group
            ]
        )
        kinds = [type(item) for item in settlements]
        assert kinds == [
            Settlement, BudgetError, Settlement, BudgetError, Settlement, CapeletError,
            CapeletError, Settlement,
        ]  # fmt: skip
        assert (spent(ledger, "ann"), spent(ledger, "bob")) == (4.0, 2.0)
        assert ledger.names_among([b"a", b"b", b"c", b"d", b"e", b"f", b"g"]) == {b"a", b"e", b"g"}
        repeat = settlements[-1]
        assert isinstance(repeat, Settlement) and not repeat.is_new.any()
        np.testing.assert_array_equal(repeat.vectors, np.ones((1, 3)))
        ledger.verify(ledger.head)


def test_what_is_left_is_said_row_by_row(place: Place) -> None:
    with Ledger(place) as ledger:
        assert ledger.settle(["ann"], [b"a"], np.zeros((1, 3)), TWO).left.tolist() == [np.inf]
        ledger.limit(Budget(7.0))
        (settlement,) = ledger.settle_all([order("ann", "bob", "ann", names="bcd")])
        assert isinstance(settlement, Settlement)
        assert settlement.left.tolist() == [1.0, 5.0, 1.0]


@pytest.mark.parametrize("wrong", ["\ud800", 3])
def test_who_is_no_person_spoils_one_order_and_not_the_group(place: Place, wrong: str) -> None:
    with Ledger(place) as ledger:
        bad, good = ledger.settle_all([order(wrong, names="a"), order("ann", names="b")])
        assert isinstance(bad, CapeletError) and "identifier" in str(bad)
        assert isinstance(good, Settlement) and spent(ledger, "ann") == 2.0


def test_a_nul_byte_in_an_identifier_is_somebody(place: Place) -> None:
    with Ledger(place, keeps_names=False) as ledger:
        ledger.settle_all([order("ann\0", names="a"), order("ann", names="b")])
        assert spent(ledger, "ann\0") == spent(ledger, "ann") == 2.0


def test_a_service_enters_people_by_hash_only(place: Place) -> None:
    with Ledger(place, keeps_names=False) as ledger:
        ledger.settle_all([order("Ann Lee", names="a")])
        (person,) = ledger.subjects()
        assert person.startswith("person-") and spent(ledger, "Ann Lee") == 2.0
        ((pseudonym, epsilon, share),) = ledger.people_near_limit(5)
        assert person == f"person-{pseudonym}" and (epsilon, share) == (2.0, 0.0)
        ledger.limit(Budget(8.0))
        assert ledger.people_near_limit(5)[0].share == 0.25
    with Ledger(place) as ledger:  # the control: a run over a file keeps names
        ledger.settle_all([order("Bob Doe", names="b")])
        assert "Bob Doe" in ledger.subjects()


# ---- requests ------------------------------------------------------------------------------------


def test_a_request_is_answered_once_and_another_body_is_refused(place: Place) -> None:
    first = Request("key-1", "attempt", b"hash of a body")
    with Ledger(place) as ledger:
        assert ledger.answer(first) is None
        ledger.settle_all([order("ann", names="a")])
        ledger.settle_all([order("ann", "ann", names="ba", request=first)])
        answer = ledger.answer(first)
        assert answer is not None and answer.digest == first.digest
        assert (answer.names, answer.charged) == ((b"b", b"a"), 1)
        for other in (Request("key-2", "attempt", b"x"), Request("key-1", "another", b"x")):
            assert ledger.answer(other) is None
        # The same key with another body, and two replicas that send the same at once.
        changed = Request("key-1", "attempt", b"hash of another body")
        answer = ledger.answer(changed)
        assert answer is not None and answer.digest != changed.digest
        conflict, repeat = ledger.settle_all(
            [
                order("ann", names="c", request=changed),
                order("ann", "ann", names="ba", value=9.0, request=first),
            ]
        )
        assert isinstance(conflict, RequestConflict)
        assert isinstance(repeat, Settlement) and not repeat.is_new.any()
        np.testing.assert_array_equal(repeat.vectors, np.ones((2, 3)))
        assert spent(ledger, "ann") == 4.0 and not ledger.names_among([b"c"])


def test_one_idempotency_key_twice_in_a_group(place: Place) -> None:
    bodies = [Request("key", "attempt", body) for body in (b"one", b"one", b"two")]
    with Ledger(place) as ledger:
        first, again, conflict = ledger.settle_all(
            [order("ann", names="a", request=request) for request in bodies]
        )
        assert isinstance(first, Settlement) and isinstance(again, Settlement)
        assert first.is_new.all() and not again.is_new.any()
        assert isinstance(conflict, RequestConflict) and spent(ledger, "ann") == 2.0


def test_a_refused_order_answers_no_request(place: Place) -> None:
    request = Request("key", "attempt", b"body")
    with Ledger(place) as ledger:
        ledger.limit(Budget(1.0))
        (refusal,) = ledger.settle_all([order("ann", names="a", request=request)])
        assert isinstance(refusal, BudgetError) and ledger.answer(request) is None
        ledger.raise_budget(Budget(2.0))
        ledger.settle_all([order("ann", names="a", request=request)])
        assert ledger.answer(request) is not None


def test_an_erased_persons_requests_are_forgotten(place: Place) -> None:
    hers, his = Request("key", "hers", b"body"), Request("key", "his", b"body")
    with Ledger(place) as ledger:
        ledger.settle_all([order("ann", "bob", names="ab", request=hers)])
        ledger.settle_all([order("bob", names="c", request=his)])
        ledger.erase("ann")
        assert ledger.answer(hers) is None and ledger.answer(his) is not None


def test_memory_is_scoped_to_the_api_key(place: Place) -> None:
    """Another client cannot find out, by a charge of 0, that a text was released before."""
    with Ledger(place) as ledger:
        names = [ledger.release_name("r", "ann", b"text", key) for key in ("", "key-1", "key-2")]
        assert len(set(names)) == 3
        assert ledger.release_name("r", "ann", b"text", "key-1") == names[1]
        assert ledger.row_name("r", 1) not in names


# ---- budgets that refill -------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def turn(self, days: int) -> None:
        self.now += timedelta(days=days)


def charge(ledger: Ledger, name: str) -> float:
    """One release of ann's; what is left to her."""
    return float(ledger.settle(["ann"], [name.encode()], np.zeros((1, 3)), TWO).left[0])


def test_a_daily_budget_refills_up_to_the_lifetime(place: Place) -> None:
    clock = Clock()
    with Ledger(place, clock=clock) as ledger:
        ledger.limit(Budget(4.0), "daily", Budget(10.0))
        assert [charge(ledger, "a"), charge(ledger, "b")] == [2.0, 0.0]
        with pytest.raises(BudgetError, match="the daily budget of ε = 4") as no:
            charge(ledger, "c")
        assert no.value.is_daily
        clock.turn(1)
        assert [charge(ledger, "c"), charge(ledger, "d")] == [2.0, 0.0]
        clock.turn(1)
        assert charge(ledger, "e") == 0.0  # 2 of the day are left, and nothing of the lifetime
        with pytest.raises(BudgetError, match="the budget of ε = 10") as no:
            charge(ledger, "f")
        assert not no.value.is_daily
        clock.turn(100)
        with pytest.raises(BudgetError):
            charge(ledger, "f")
        assert spent(ledger, "ann") == 10.0
        ledger.verify(ledger.head)


def test_who_asks_on_a_new_day_is_told_of_the_new_day(place: Place) -> None:
    """Also before anything is charged on it."""
    clock, needs = Clock(), needs_of(["ann"], [0])
    with Ledger(place, clock=clock) as ledger:
        ledger.limit(Budget(2.0), "daily", Budget(100.0))
        charge(ledger, "a")
        with pytest.raises(BudgetError):
            ledger.check(needs, TWO)
        clock.turn(1)
        ledger.check(needs, TWO)


def test_a_clock_set_back_refills_nothing(place: Place) -> None:
    clock = Clock()
    with Ledger(place, clock=clock) as ledger:
        ledger.limit(Budget(2.0), "daily", Budget(100.0))
        charge(ledger, "a")
        for days in (-1, -40, 41):  # back, further back, and to the day that it was
            clock.turn(days)
            with pytest.raises(BudgetError):
                charge(ledger, f"day {days}")
        clock.turn(1)
        charge(ledger, "b")  # the control
        clock.turn(-1)
        with pytest.raises(BudgetError):
            charge(ledger, "c")


def test_two_replicas_with_two_clocks_refill_once(place: Place) -> None:
    early, late = Clock(), Clock()
    late.turn(1)
    with Ledger(place, clock=early) as one, Ledger(place, clock=late) as other:
        one.limit(Budget(2.0), "daily", Budget(100.0))
        charge(one, "a")
        charge(other, "b")
        for ledger in (one, other):
            with pytest.raises(BudgetError):
                charge(ledger, "c")
        one.verify(one.head)


def test_how_a_budget_refills_is_decided_once(place: Place) -> None:
    with Ledger(place) as ledger:
        with pytest.raises(CapeletError, match="promises nothing in sum"):
            ledger.limit(Budget(4.0), "daily")
        with pytest.raises(CapeletError, match="belongs to a budget that refills"):
            ledger.limit(Budget(4.0), lifetime=Budget(8.0))
        with pytest.raises(CapeletError, match="'none' or 'daily'"):
            ledger.limit(Budget(4.0), "weekly", Budget(8.0))  # type: ignore[arg-type]
        assert ledger.limits is None
        ledger.limit(Budget(4.0), "daily", Budget(8.0))
        assert ledger.limit(Budget(3.0), "daily", Budget(8.0)) == Budget(3.0)
        with pytest.raises(CapeletError, match="is limited to"):
            ledger.limit(Budget(5.0), "daily", Budget(8.0))
        for refill, lifetime in (("daily", Budget(9.0)), ("none", None)):
            with pytest.raises(CapeletError, match="cannot be changed"):
                ledger.limit(Budget(4.0), refill, lifetime)  # type: ignore[arg-type]
        with pytest.raises(CapeletError, match="is no more than that"):
            ledger.raise_budget(Budget(4.0), Budget(7.0))
        ledger.raise_budget(Budget(4.0), Budget(12.0))
        assert ledger.limits is not None and ledger.limits.total == Budget(12.0)
        ledger.verify(ledger.head)
