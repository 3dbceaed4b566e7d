"""Corpus and Split: the rows of one file, and who of them is defender, attacker and victim.

A Corpus holds the rows as they were found: texts (or ready vectors), the task label, the private
attributes and the author. It is frozen, and derives nothing: classes, bins and presence attributes
are made from it in `labels`, parts in `splits`, and `readers` make it from files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.errors import DataError

Values = npt.NDArray[np.object_]
Rows = npt.NDArray[np.intp]

PARTS = ("defender", "attacker", "victims")


@dataclass(frozen=True, eq=False)
class Corpus:
    """Texts with a task label, private attributes and authors: the rows of one file.

    At least one of `texts` and `vectors` is there. A missing value is None.

    >>> corpus = Corpus("two", texts=np.array(["one text", "another"], dtype=object))
    >>> len(corpus)
    2
    """

    name: str
    texts: Values | None = None
    vectors: npt.NDArray[np.float32] | None = None
    label_name: str | None = None
    label: Values | None = None
    private: Mapping[str, Values] = field(default_factory=dict)
    author: Values | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        for column in (self.texts, self.vectors, self.label, self.author, *self.private.values()):
            if column is not None:
                if len(column) != len(self):
                    raise DataError(f"corpus columns differ in length: {len(column)}, {len(self)}")
                # Frozen down to its numbers: a digest taken once stays true.
                column.setflags(write=False)

    def __len__(self) -> int:
        rows = self.texts if self.texts is not None else self.vectors
        if rows is None:
            raise DataError("a corpus needs texts or vectors; it was given neither")
        return len(rows)

    def with_private(self, extra: Mapping[str, Values]) -> Corpus:
        """The same corpus with more private attributes."""
        return replace(self, private={**self.private, **extra})

    def take(self, rows: Rows) -> Corpus:
        """These rows, in this order."""

        def some(column: Any) -> Any:
            return None if column is None else column[rows]

        return replace(
            self,
            texts=some(self.texts),
            vectors=some(self.vectors),
            label=some(self.label),
            private={name: column[rows] for name, column in self.private.items()},
            author=some(self.author),
        )

    def digest(self) -> str:
        """A hash of everything in the corpus, so that two runs can be told to be about the same.

        For this machine alone: whoever knows all rows but one could confirm a guess of the last.
        """
        total = hashlib.sha256()
        for text in self.texts if self.texts is not None else ():
            # Texts are hashed one by one, so that moving a character across a border changes the
            # digest.
            total.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        if self.vectors is not None:
            total.update(np.ascontiguousarray(self.vectors).tobytes())
        for name, column in (("label", self.label), *self.private.items(), ("author", self.author)):
            if column is not None:
                total.update(f"{name}\0{json.dumps(column.tolist(), default=str)}".encode())
        return total.hexdigest()


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint parts of a corpus, as row numbers.

    Task probes and defences train on `defender`, attackers on `attacker`, and every score is taken
    on `victims`. `held_back` marks the tenth of each training part that tuning may look at.
    """

    kind: str
    seed: int
    defender: Rows
    attacker: Rows
    victims: Rows
    held_back: npt.NDArray[np.bool_]

    def training(self, part: str) -> tuple[Rows, Rows]:
        """Rows to fit on and rows to tune on, of `defender` or `attacker`."""
        rows: Rows = getattr(self, part)
        tune = self.held_back[rows]
        return rows[~tune], rows[tune]
