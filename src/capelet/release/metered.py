"""A private encoder that charges: what is drawn for a person is settled in a store, then let out.

Whoever embeds texts a few at a time (an adapter of a framework, a client in somebody's own process)
releases through this. With a store, charge and vectors are committed in one transaction and only
what the store holds is returned, so a retry costs nothing and shows nothing new. **Without a store
nobody is charged**: ε is then true of each single text, and nothing bounds what many texts of one
person, or one text many times, tell together.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capelet.errors import CapeletError, DataError
from capelet.interfaces import Vectors
from capelet.ledger.budgets import Budget, needs_of
from capelet.ledger.people import normalise_person
from capelet.ledger.settlement import undrawn
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee
from capelet.release.charging import (
    Account,
    Repeats,
    check_repeats,
    check_whole_texts,
    promise_of,
)
from capelet.release.recipe import PrivateEncoder, Release, recipe_hash

LOG = logging.getLogger("capelet.release")

Source = PrivateEncoder | Path | str
Store = Ledger | Path | str
Subjects = str | Sequence[str] | None


@dataclass(frozen=True)
class ChargingPolicy:
    """Where releases are charged, up to which budget, and what a repeated text costs.

    `same` is the default here, unlike for files: frameworks retry by themselves, and add the same
    document again. Its price: which of a person's texts are equal is public.
    """

    ledger: Ledger
    budget: Budget | None = None
    repeats: Repeats = "same"

    @classmethod
    def of(
        cls, store: Store | None, budget: float | Budget | None = None, repeats: Repeats = "same"
    ) -> ChargingPolicy | None:
        """The meter that was asked for; None, and so no charges, without a store."""
        if store is None:
            if budget is not None:
                raise CapeletError("a budget is kept in a store of charges: give store= too")
            return None
        ledger = store if isinstance(store, Ledger) else Ledger(store)
        cap = budget if budget is None or isinstance(budget, Budget) else Budget(budget)
        return cls(ledger, cap, repeats)

    def __post_init__(self) -> None:
        check_repeats(self.repeats)

    def promise(self, guarantee: Guarantee) -> Guarantee:
        """What holds of releases that go through here; one that cannot be charged is refused."""
        check_whole_texts(guarantee)
        return promise_of(guarantee, self.repeats)


class MeteredEncoder:
    """Texts in, a release out; with a meter, charged to the people whom the texts are about.

    `source` is a private encoder, its folder, or a recipe. One object may be used from many
    threads: noise is drawn from a stream of each call's own, and the store locks by itself.
    """

    def __init__(self, source: Source, meter: ChargingPolicy | None = None) -> None:
        private = (
            source if isinstance(source, PrivateEncoder) else PrivateEncoder.from_recipe(source)
        )
        if private.consumes != "texts":
            raise CapeletError(
                "this private encoder takes vectors, and here are texts; give one with an encoder"
            )
        if private.guarantee.notion != "none" and private.guarantee.status == "none":
            raise CapeletError(
                "the noise of this encoder is seeded and promises nothing; give the private "
                "encoder itself"
            )
        self.private, self.meter = private, meter
        self.guarantee = private.guarantee if meter is None else meter.promise(private.guarantee)
        self._recipe_name = recipe_hash(private.recipe)
        self._is_announced = False
        self._dimension: int | None = None

    @property
    def dimension(self) -> int:
        """The width of what is released, seen by a release of a public word that nobody gets."""
        if self._dimension is None:
            self._dimension = int(self.private.release(["ready"]).vectors.shape[1])
        return self._dimension

    def release(self, texts: Sequence[str], subjects: Subjects = None) -> Release:
        """What the store holds of these texts once they are drawn and charged, or a fresh draw.

        `subjects` names one person for all texts, or one for each. All or nothing: where the budget
        of one of them is too small, nothing is drawn, charged or returned.
        """
        _check_texts(texts)
        self._announce()
        if self.meter is None:
            if subjects is not None:
                raise CapeletError(
                    "somebody was named to be charged, and there is no store to charge in; give "
                    "store=, or leave the subject out"
                )
            vectors = self.private.release(texts).vectors if len(texts) else self._no_vectors()
        else:
            people = _people(subjects, len(texts))
            vectors = self._settle(self.meter, texts, people) if len(texts) else self._no_vectors()
        private = self.private
        return Release(vectors, self.guarantee, private.recipe, private.word_guarantee)

    def _settle(
        self, meter: ChargingPolicy, texts: Sequence[str], people: Sequence[str]
    ) -> Vectors:
        ledger, run = meter.ledger, secrets.token_hex(16)
        names = Account(ledger, meter.repeats, self._recipe_name).names(people, texts, run)
        stored = ledger.find(names)
        # What is stored is not drawn again: a draw that is thrown away costs time and may be seen
        # in the memory of this process.
        waiting = undrawn(names, stored)
        ledger.check(
            needs_of([people[row] for row in waiting], waiting), self.guarantee, meter.budget
        )
        if meter.budget is not None:
            ledger.limit(meter.budget)
        draws = dict(stored)
        if waiting:
            release = self.private.release([texts[row] for row in waiting])
            draws.update(zip((names[row] for row in waiting), release.vectors, strict=True))
        settlement = ledger.settle(
            people,
            names,
            np.stack([draws[name] for name in names]),
            self.guarantee,
            run=run,
            budget=meter.budget,
        )
        if meter.repeats == "fresh":
            # Nobody can ask for these names again; the charge stays.
            ledger.forget(run)
        return settlement.vectors

    def _no_vectors(self) -> Vectors:
        return np.zeros((0, self.dimension), dtype=np.float32)

    def _announce(self) -> None:
        """Say once what is promised, and that nobody is charged where that is so."""
        if self._is_announced or self.meter is not None:
            return
        self._is_announced = True
        LOG.warning(
            "no store was given, so nobody is charged for these releases, and no budget bounds "
            "what several of one person tell together; of each single text: %s",
            self.guarantee.sentence(),
        )


def _check_texts(texts: Sequence[str]) -> None:
    # A string is a sequence of its letters: each would be a release, and charged.
    if isinstance(texts, str):
        raise DataError("one string was given in place of a list of texts; give [text]")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"text number {place} is {type(text).__name__}, not a string")
        try:
            text.encode()
        except UnicodeEncodeError:
            # Without its cause, which quotes the text.
            raise DataError(f"text number {place} holds half of a surrogate pair") from None


def _people(subjects: Subjects, count: int) -> list[str]:
    """About whom each text is, in the form in which people are charged."""
    if subjects is None:
        raise CapeletError(
            "whom are these texts about? With a store, name the person who is charged: subject="
        )
    names = [subjects] * count if isinstance(subjects, str) else list(subjects)
    if len(names) != count:
        raise CapeletError(f"there are {len(names)} subjects for {count} texts; give one for each")
    people = [normalise_person(name) if isinstance(name, str) else "" for name in names]
    if not all(people):
        raise CapeletError("a subject must be a string that is not empty")
    return people
