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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from capelet.errors import CapeletError, OutputError
from capelet.interfaces import Vectors
from capelet.privacy.budgets import ROWS_SHOWN, Budget, BudgetChange, BudgetError, Need, needs_of
from capelet.privacy.database import Database
from capelet.privacy.guarantees import Guarantee, compose
from capelet.privacy.people import normalise_person


class Counts(NamedTuple):
    """People who were charged, all their releases, and the highest sum of ε of one person."""

    people: int
    releases: int
    highest_epsilon: float


class Head(NamedTuple):
    """How many entries the log has, and the last link of its chain."""

    entries: int
    link: str


@dataclass(frozen=True, eq=False)
class Settlement:
    """What the store holds under the names, row by row, and which rows were charged for it now."""

    vectors: Vectors
    is_new: npt.NDArray[np.bool_]


class Ledger:
    """The charges of all runs and requests against people, and the releases they paid for.

    The file is made at the first charge; a path where nothing is yet is an empty ledger. One object
    may be used from many threads, and many processes may have one of the same file.
    Example: `with Ledger("ledger.db") as ledger: print(ledger.spent("ann"))`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._guarantees: dict[int, Guarantee] = {}
        self._db = Database(self.path)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Make the file where it is not yet there; from then on it has its own key."""
        self._db.open()

    def close(self) -> None:
        self._db.close()

    @property
    def is_open(self) -> bool:
        """Whether the file is there, and so whether anything can be stored in it."""
        return self._db.is_open

    # ---- reading ---------------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """A name of this ledger that tells nothing of its key."""
        return hmac.digest(self._db.key, b"identity", "sha256").hex()[:16]

    @property
    def budget(self) -> Budget | None:
        """The cap of every person alike."""
        content = self._db.fact("budget")
        return None if content is None else Budget(**json.loads(content))

    def budget_changes(self) -> list[BudgetChange]:
        """How the cap came to be what it is."""
        changes = []
        for time, content in self._db.acts("budget"):
            change = json.loads(content)
            old = None if change["old"] is None else Budget(**change["old"])
            changes.append(BudgetChange(time, old, Budget(**change["new"])))
        return changes

    def spent(self, subject: str) -> Guarantee | None:
        """What all releases about a person promise together; None where there is none.

        r releases with ε for each text are r·ε for the person: whoever can tie them together may
        see all of the person's texts replaced at once.
        """
        promises = self._promises(normalise_person(subject))
        if not promises:
            return None
        total = compose(promises)
        is_of_texts = (total.notion, total.unit) == ("local", "text")
        return replace(total, unit="author") if is_of_texts else total

    def subjects(self) -> list[str]:
        """Everyone who was charged, in order of name; pseudonyms of those who were erased."""
        people = self._db.people()
        return sorted(
            f"erased-{pseudonym.hex()[:16]}" if name is None else name for pseudonym, name in people
        )

    def counts(self) -> Counts:
        return Counts(*self._db.counts())

    def name(self, recipe: str, subject: str, content: bytes) -> bytes:
        """The name of *the* release of a person's text by a recipe: equal texts share it.

        It makes the file: names under a key that another process may yet decide would be worthless.
        """
        self.open()
        person = normalise_person(subject)
        return self._db.digest(recipe.encode(), person.encode(), content)

    def row_name(self, run: str, row: int) -> bytes:
        """The name of a row's release in one run: no two rows share it, whatever their texts."""
        self.open()
        return self._db.digest(b"row", run.encode(), str(row).encode(), b"")

    def find(self, names: Iterable[bytes]) -> dict[bytes, Vectors]:
        """The stored vectors among these names."""
        return {name: _vector(item.vector) for name, item in self._db.find(names).items()}

    def names_among(self, names: Iterable[bytes]) -> set[bytes]:
        """Those of the names under which a vector is stored."""
        return self._db.names_among(names)

    def releases_of(self, run: str) -> int:
        """How many of the stored vectors a run paid for."""
        return self._db.releases_of(run)

    def has_alike(self, subject: str) -> bool:
        """Whether somebody else in the ledger has an identifier that looks like this one."""
        return self._db.has_alike(normalise_person(subject))

    def cap(self, budget: Budget | None = None) -> Budget | None:
        """The budget that holds where this one is asked for: the smaller of it and the ledger's.

        More than the ledger's is refused: to raise a cap is an act of its own.
        """
        cap = self.budget
        if budget is None or cap is None:
            return budget or cap
        if budget.exceeds(cap):
            raise CapeletError(
                f"a budget of {budget.sentence()} was asked for, and the ledger "
                f"{str(self.path)!r} is limited to {cap.sentence()}; ask for less, or raise the "
                f"ledger's first: capelet budgets raise {self.path} --to {budget.epsilon:g}"
            )
        return Budget(min(budget.epsilon, cap.epsilon), min(budget.delta, cap.delta))

    def check(
        self, needs: Iterable[Need], guarantee: Guarantee, budget: Budget | None = None
    ) -> None:
        """Complain, and charge nothing, where so many more releases would pass the budget.

        Guarantees that do not add up are refused, and so is a release without one.
        """
        _check_chargeable(guarantee)
        cap = self.cap(budget)
        rows: list[int] = []
        count, highest = 0, 0.0
        for person, releases, row in needs:
            total = compose([*self._promises(person), _times(guarantee, releases)])
            if cap is not None and not cap.covers(total):
                count, highest = count + 1, max(highest, total.epsilon)
                rows += [row] if len(rows) < ROWS_SHOWN else []
        if cap is not None and count:
            raise BudgetError(cap, rows, count, highest)

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
        if not len(subjects) == len(names) == len(vectors):
            raise CapeletError("settle needs a subject, a name and a vector for each row")
        _check_chargeable(guarantee)
        people = [normalise_person(subject) for subject in subjects]
        with self._db.transaction():
            first_rows = {name: row for row, name in reversed(list(enumerate(names)))}
            releases = self._db.find(first_rows)
            new_rows = sorted(row for name, row in first_rows.items() if name not in releases)
            # Under the lock: another process may have charged since the caller looked.
            needs = needs_of([people[row] for row in new_rows], new_rows)
            self.check(needs, guarantee, budget)
            numbers = self._charge(needs, guarantee, run)
            draws = np.ascontiguousarray(vectors, dtype="<f4")
            rows = [(names[row], numbers[people[row]], draws[row].tobytes()) for row in new_rows]
            self._db.keep(run, rows)
            owners = {name: item.person for name, item in releases.items()}
            owners.update({name: person for name, person, _ in rows})
            self._check_owners(people, [owners[name] for name in names], numbers)
            by_name = {name: _vector(item.vector) for name, item in releases.items()}
            by_name.update({names[row]: draws[row] for row in new_rows})
            # Still inside: where a stored vector does not fit, nothing is charged.
            vectors = _stack([by_name[name] for name in names], draws.shape[1])
        is_new = np.zeros(len(names), dtype=bool)
        is_new[new_rows] = True
        return Settlement(vectors, is_new)

    def limit(self, budget: Budget) -> Budget:
        """Set the cap where there is none; where there is one, `cap`. The budget that holds."""
        with self._db.transaction():
            if self.budget is None:
                self._set_budget(None, budget)
            cap = self.cap(budget)
        assert cap is not None
        return cap

    def raise_budget(self, budget: Budget) -> Budget:
        """Raise the cap of everyone, and write it down with the time; the cap that was."""
        with self._db.transaction():
            old = self.budget
            if old is None:
                raise CapeletError(
                    f"the ledger {str(self.path)!r} has no budget to raise; the first run with "
                    "--budget sets it"
                )
            if budget.epsilon < old.epsilon or budget.delta < old.delta or budget == old:
                raise CapeletError(
                    f"the ledger's budget is {old.sentence()}, and {budget.sentence()} is no more "
                    "than that; a run that is to keep to less takes --budget"
                )
            self._set_budget(old, budget)
        return old

    def erase(self, subject: str) -> int:
        """Delete a person's name and stored vectors; how many went. What was spent stays.

        It stays under a keyed pseudonym: if the person comes back, the old charges still count.
        Vectors that 0.1.0 kept without saying whose they are go as well.
        """
        person = normalise_person(subject)
        with self._db.transaction():
            number = self._db.person(person)
            if number is None:
                raise CapeletError(f"nobody of this name was charged in {str(self.path)!r}")
            releases = self._db.erase(number)
            pseudonym = self._db.pseudonym(person).hex()
            self._db.append("erasure", json.dumps({"person": pseudonym, "releases": releases}))
        self._db.flush()
        return releases

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
        if not self.path.exists():
            yield Head(0, "")
            return
        with self._db.transaction():
            yield self.head

    def verify(self, head: Head) -> None:
        """Complain where the log does not contain this head, or is not what its links say.

        All links are computed anew, and the running sums compared with the log: linear in the
        number of charges, once in a run.
        """
        is_contained = head.entries == 0
        for number, link, agrees in self._db.links():
            if not agrees:
                raise _tampering(self.path, f"its log was edited at or before entry {number}")
            if number == head.entries:
                is_contained = hmac.compare_digest(link.hex(), head.link)
        if not is_contained:
            raise _tampering(self.path, f"it does not contain entry {head.entries} as it was")
        if not self._db.sums_agree():
            raise _tampering(self.path, "its sums are not those of its log")
        changes = self.budget_changes()
        if self.budget != (changes[-1].new if changes else None):
            raise _tampering(self.path, "its budget is not the one that its log says")

    # ---- parts of a transaction ------------------------------------------------------------------

    def _charge(self, needs: Sequence[Need], guarantee: Guarantee, run: str) -> dict[str, int]:
        """Enter the charges; the number of each person."""
        if not needs:
            return {}
        # In one order everywhere (`needs_of` sorts): in a database that locks people instead of
        # the file, two processes would otherwise wait for each other.
        numbers = {need.person: self._db.add_person(need.person) for need in needs}
        # A charge is for texts that pass; what training texts are promised costs nobody here.
        content = json.dumps(replace(guarantee, training=None).to_json(), sort_keys=True)
        number = self._db.guarantee_number(content, guarantee.epsilon)
        releases = {numbers[need.person]: need.releases for need in needs}
        self._db.charge(releases, number, json.dumps({"run": run}))
        return numbers

    def _check_owners(
        self, people: Sequence[str], owners: Sequence[int | None], numbers: Mapping[str, int]
    ) -> None:
        """Refuse a name under which somebody else's release is stored: it would cost nobody."""
        others = set(people) - set(numbers)
        numbers_of_all = {**numbers, **{person: self._db.person(person) for person in others}}
        for person, owner in zip(people, owners, strict=True):
            if owner is not None and owner != numbers_of_all[person]:
                raise CapeletError("a release under this name belongs to another person")

    def _set_budget(self, old: Budget | None, new: Budget) -> None:
        change = {"old": None if old is None else asdict(old), "new": asdict(new)}
        self._db.set_fact("budget", json.dumps(asdict(new)))
        self._db.append("budget", json.dumps(change))

    def _promises(self, person: str) -> list[Guarantee]:
        """What a person was charged so far: one entry for each guarantee, all its releases."""
        number = self._db.person(person)
        if number is None:
            return []
        return [_times(self._guarantee(which), n) for which, n in self._db.totals(number)]

    def _guarantee(self, number: int) -> Guarantee:
        if number not in self._guarantees:
            self._guarantees[number] = Guarantee.from_json(json.loads(self._db.guarantee(number)))
        return self._guarantees[number]


def _vector(content: bytes) -> Vectors:
    # Little-endian on every machine: a ledger may be moved to another.
    return np.frombuffer(content, dtype="<f4")


def _stack(rows: Sequence[Vectors], width: int) -> Vectors:
    if any(len(row) != width for row in rows):
        raise CapeletError("the ledger holds a vector of another width under one of these names")
    return np.stack(rows) if rows else np.zeros((0, width), dtype=np.float32)


def _tampering(path: Path, what: str) -> OutputError:
    return OutputError(
        f"the ledger {str(path)!r} is not the one whose head was kept: {what}; nothing was drawn. "
        "Bring the ledger back from a copy; without it, what was spent is not known"
    )


def _check_chargeable(guarantee: Guarantee) -> None:
    if guarantee.notion == "none" or guarantee.status not in ("proven", "claimed"):
        raise CapeletError(
            "a ledger cannot charge a release without a guarantee, or with a broken one; "
            "give a recipe with a noise step"
        )


@lru_cache(maxsize=4096)
def _times(guarantee: Guarantee, releases: int) -> Guarantee:
    """So many releases under one guarantee: ε and δ add."""
    delta = min(1.0, releases * guarantee.delta)
    return replace(guarantee, epsilon=releases * guarantee.epsilon, delta=delta)
