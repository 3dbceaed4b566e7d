"""Whom a private training hides: each text by itself, or an author with all texts.

What is decided here is decided for each unit by itself, so that replacing one moves no other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from capelet.data.corpus import Corpus, Rows, Split
from capelet.data.labels import Attribute
from capelet.defences.settings import Part, TrainingPrivacy
from capelet.errors import DataError, name_field
from capelet.evaluation.plan import Plan
from capelet.ledger.people import normalise_person
from capelet.privacy.replacement import choose_delta

SPLIT = "keyed"


def check_units(corpus: Corpus, privacy: TrainingPrivacy, split: str | None, derive: bool) -> None:
    """Refuse, before anything is encoded, what would tie units together or leave them unknown."""
    if split not in (None, "auto", SPLIT):
        raise DataError(
            f"with {name_field('train_epsilon')} each row's part is decided by itself, as "
            f"{SPLIT!r} does and {split!r} does not: leave {name_field('split')} out"
        )
    if derive:
        raise DataError(
            f"with {name_field('train_epsilon')} no task or attribute may be read off all texts "
            f"at once; leave {name_field('derive')} out"
        )
    if corpus.from_all_rows:
        raise DataError(
            f"with {name_field('train_epsilon')} no class may be merged because it is rare among "
            f"all rows; leave {name_field('merge_rare')} out"
        )
    if privacy.unit == "author":
        if corpus.author is None:
            raise DataError(
                f"{name_field('unit', 'author')} needs to know the authors: name their column, "
                f"{name_field('author')}"
            )
        missing = sum(name is None for name in corpus.author)
        if missing:
            raise DataError(
                f"{name_field('unit', 'author')} needs the author of each text, and {missing:,} "
                f"rows have none; leave them out with {name_field('where')}"
            )
    choose_delta(privacy.delta, population(corpus, privacy))


def check_classes(targets: list[Attribute]) -> None:
    """Refuse classes that were cut or merged by looking at all rows: one row can move the cuts."""
    for item in targets:
        if item.from_all_rows:
            raise DataError(
                f"the classes of {item.name!r} follow from all rows ({item.notes[0]}), which a "
                f"private training may not; give {name_field('bins')} for a number, yes or no for "
                "each value of a list, or a column whose classes are frequent enough"
            )


def population(corpus: Corpus, privacy: TrainingPrivacy) -> int:
    """How many units the file has: public, since replacing one leaves it as it is.

    Rows that cannot be used (no text, or not asked for with --where) are not counted; that their
    number is public too is part of what is declared.
    """
    if privacy.unit == "author" and corpus.author is not None:
        return len({normalise_person(str(name)) for name in corpus.author})
    return len(corpus)


def with_units(part: Part, plan: Plan, parts: Split, privacy: TrainingPrivacy) -> Part:
    """The part with its rows by unit; of an author at most so many, the first in the file."""
    count = population(plan.corpus, privacy)
    if privacy.unit == "text" or plan.corpus.author is None:
        return replace(part, population=count)
    rows: dict[str, list[int]] = {}
    for place, name in enumerate(plan.corpus.author[parts.defender]):
        # In the order of the file, in which nobody else's rows stand between an author's own.
        # A person spelt in two ways that certainly mean the same is one unit, not two.
        some = rows.setdefault(normalise_person(str(name)), [])
        if len(some) < privacy.texts:
            some.append(place)
    return replace(part, units=_padded(list(rows.values()), privacy.texts), population=count)


def _padded(rows: list[list[int]], width: int) -> Rows:
    units = np.full((len(rows), width), -1, dtype=np.intp)
    for place, some in enumerate(rows):
        units[place, : len(some)] = some
    return units
