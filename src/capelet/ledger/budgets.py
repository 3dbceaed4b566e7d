"""Budgets: the most that all releases about one person may cost, and what is said when they do.

No sentence of this module names a person: people are counted, and pointed at by rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from capelet.errors import CapeletError, name_field
from capelet.privacy.guarantees import Guarantee, check_number

# The share by which a sum of float ε may pass a budget: three times 0.1 is within 0.3.
SLACK = 1e-9

ROWS_SHOWN = 5  # rows that an error points at


@dataclass(frozen=True)
class Budget:
    """The most that all releases about one person may cost together.

    A δ of 1 says nothing about δ.

    >>> Budget(epsilon=0.3).covers(Guarantee(3 * 0.1))
    True
    >>> Budget(epsilon=8, delta=1e-6).covers(Guarantee(8, delta=1e-5))
    False
    """

    epsilon: float
    delta: float = 1.0

    def __post_init__(self) -> None:
        most = np.finfo(float).max
        epsilon = check_number("the budget", self.epsilon, 0.0, most, open_low=True)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", check_number("the budget's delta", self.delta, 0.0, 1.0))

    def covers(self, total: Guarantee) -> bool:
        """Whether this much may be spent; a δ of 1 promises nothing and is never covered."""
        within = total.epsilon <= self.epsilon * (1 + SLACK)
        return within and total.delta <= self.delta * (1 + SLACK) and total.delta < 1

    def exceeds(self, cap: Budget) -> bool:
        """Whether it allows anything that the cap does not; a δ of 1 leaves δ to the cap."""
        return self.epsilon > cap.epsilon or cap.delta < self.delta < 1

    def sentence(self) -> str:
        delta = f", δ = {self.delta:g}" if self.delta < 1 else ""
        return f"ε = {self.epsilon:g}{delta} per person"


Refill = Literal["none", "daily"]
REFILLS: tuple[Refill, ...] = ("none", "daily")


@dataclass(frozen=True)
class Limits:
    """What a ledger allows a person: a budget, and what it means where it refills every day.

    A daily budget alone promises nothing in sum: whoever waits gets a new one. So it needs a
    lifetime, and the lifetime is the guarantee.
    """

    budget: Budget
    refill: Refill = "none"
    lifetime: Budget | None = None

    def __post_init__(self) -> None:
        if self.refill not in REFILLS:
            raise CapeletError(f"refill is {self.refill!r}; it must be 'none' or 'daily'")
        if self.refill == "daily" and self.lifetime is None:
            raise CapeletError(
                "a budget that refills every day promises nothing in sum; give "
                f"{name_field('lifetime')}, the most that a person may cost in all"
            )
        if self.refill == "none" and self.lifetime is not None:
            raise CapeletError(
                f"{name_field('lifetime')} belongs to a budget that refills; without "
                f"{name_field('refill', 'daily')} the budget is already the most that a person "
                "may cost in all"
            )

    @property
    def total(self) -> Budget:
        """The most that all releases about one person may ever cost."""
        return self.budget if self.lifetime is None else self.lifetime

    def sentence(self) -> str:
        if self.lifetime is None:
            return self.budget.sentence()
        return f"{self.budget.sentence()} a day, {self.lifetime.sentence()} in all"


class BudgetError(CapeletError):
    """A budget does not cover a charge; nothing of that charge was made.

    `rows` are the first rows of some of the people, counted as the caller of `settle` or `check`
    counts them, and `count` is the number of these people. `is_daily`: the next day may cover it.
    """

    def __init__(
        self,
        budget: Budget,
        rows: Sequence[int],
        count: int,
        highest: float,
        is_daily: bool = False,
    ) -> None:
        people = "1 person" if count == 1 else f"{count} people"
        first = ", ".join(map(str, rows))
        more = f" and those of {count - len(rows)} more" if count > len(rows) else ""
        super().__init__(
            f"the {'daily ' * is_daily}budget of {budget.sentence()} is too small for {people}, "
            f"whose first {'row is' if count == 1 else 'rows are'} {first}{more}; the highest "
            f"sum would be ε = {highest:g}; leave out some of their rows, add noise, or raise the "
            "budget with `capelet budgets raise`"
        )
        self.budget, self.rows, self.count, self.highest = budget, tuple(rows), count, highest
        self.is_daily = is_daily

    def from_row(self, start: int) -> BudgetError:
        """The same for rows that are counted from `start`."""
        rows = [start + row for row in self.rows]
        return BudgetError(self.budget, rows, self.count, self.highest, self.is_daily)


class Need(NamedTuple):
    """So many releases that a person is to be charged, and the first row that needs one."""

    person: str
    releases: int
    row: int


class BudgetChange(NamedTuple):
    """When a budget was set (from None) or raised."""

    time: str
    old: Budget | None
    new: Budget


def needs_of(people: Iterable[str], rows: Iterable[int]) -> list[Need]:
    """How many releases each person needs, one for each row, and the first of these rows.

    >>> needs_of(["bob", "ann", "bob"], [4, 5, 6])
    [Need(person='ann', releases=1, row=5), Need(person='bob', releases=2, row=4)]
    """
    releases: Counter[str] = Counter()
    first: dict[str, int] = {}
    for person, row in zip(people, rows, strict=True):
        releases[person] += 1
        first.setdefault(person, row)
    return [Need(person, releases[person], first[person]) for person in sorted(releases)]
