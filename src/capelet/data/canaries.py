"""Canaries: made-up secrets that show what a language model remembers of single writers.

A canary is a few words drawn at random, so nothing but the training rows can teach it to a model.
Each belongs to one author and is inserted as rows of that author, once or many times. Those with
repetition 0 are never inserted: they are the control, and a measure that finds them is wrong.
(Carlini et al. 2019; five words and these repetitions: Mireshghallah et al. 2021, appendix A.5.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from capelet.errors import DataError

# As in appendix A.5 of Mireshghallah et al. (2021), and so are five words.
REPETITIONS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50)
WORDS = 5


@dataclass(frozen=True)
class Canary:
    """One made-up secret: its author, its words, and how many rows repeat it."""

    author: str
    words: tuple[str, ...]
    repetitions: int

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def make_canaries(
    authors: Sequence[str],
    words: Sequence[str],
    repetitions: Sequence[int] = REPETITIONS,
    *,
    length: int = WORDS,
    per_level: int | None = None,
    controls: int | None = None,
    seed: int = 0,
) -> tuple[Canary, ...]:
    """Unique canaries of random `words`: for each repetition, one for each of `per_level` authors.

    All authors take part by default, as in the paper; fewer authors per level insert fewer rows.
    `controls` more, as many as a level has by default, are never inserted.

    >>> canaries = make_canaries(["ann", "bob"], ["oak", "elm", "ash", "fir"], [1, 3], length=3)
    >>> sorted(canary.repetitions for canary in canaries)
    [0, 0, 1, 1, 3, 3]
    """
    # Sorted: the draws below must not depend on the order of rows or of a set.
    people, space = sorted(set(authors)), sorted(set(words))
    levels = _checked_levels(repetitions)
    each = len(people) if per_level is None else per_level
    if not people or not 1 <= each <= len(people):
        raise DataError(
            f"{each} authors per repetition were asked for, and there are {len(people)}; "
            "give a number from 1 to the number of authors"
        )
    nulls = each if controls is None else controls
    count = each * len(levels) + nulls
    # Ten times more sequences than canaries, so that unique ones are soon drawn; the power is
    # capped, for it only has to be large.
    if length < 2 or len(space) ** min(length, 64) < 10 * count:
        raise DataError(
            f"{count} canaries of {length} words need more than {len(space)} different words; "
            "give a larger vocabulary, longer canaries or fewer repetitions"
        )
    random = np.random.default_rng([seed, 0xCA7A])
    sequences = _unique(random, count, length, len(space))
    # Another order of authors at each level: no author has all the often repeated ones.
    owners = [
        (people[person], level)
        for level in levels
        for person in random.permutation(len(people))[:each]
    ]
    owners += [(people[person], 0) for person in random.integers(len(people), size=nulls)]
    return tuple(
        Canary(author, tuple(space[place] for place in places), level)
        for (author, level), places in zip(owners, sequences, strict=True)
    )


def insert_canaries(
    texts: Sequence[str], authors: Sequence[str], canaries: Sequence[Canary]
) -> tuple[list[str], list[str]]:
    """The rows with each canary appended as so many rows of its author.

    >>> insert_canaries(["a text"], ["ann"], [Canary("ann", ("oak", "elm"), 2)])
    (['a text', 'oak elm', 'oak elm'], ['ann', 'ann', 'ann'])
    """
    extra = [canary for canary in canaries for _ in range(canary.repetitions)]
    return (
        [*texts, *(canary.text for canary in extra)],
        [*authors, *(canary.author for canary in extra)],
    )


def _checked_levels(repetitions: Sequence[int]) -> list[int]:
    levels = sorted(set(repetitions))
    if not levels or levels[0] < 1:
        raise DataError(
            "repetitions are whole numbers from 1 up; canaries that are never inserted are added "
            "as controls by themselves"
        )
    return levels


def _unique(
    random: np.random.Generator, count: int, length: int, size: int
) -> list[tuple[int, ...]]:
    """So many different sequences of places; a repeated draw is drawn again."""
    sequences: dict[tuple[int, ...], None] = {}
    while len(sequences) < count:
        sequences[tuple(int(place) for place in random.integers(size, size=length))] = None
    return list(sequences)
