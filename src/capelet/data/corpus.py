"""Corpus and Split: the rows of one file, and who of them is defender, attacker and victim.

A Corpus holds the rows as they are in the file: texts (or ready vectors), the task label, the
private attributes and the author. It is frozen, and derives nothing: classes, bins and presence
attributes are made from it in `labels`, parts in `splits`, and `readers` make it from tables.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.data.messages import kind_of, not_finite, not_vectors, unusable_type
from capelet.errors import DataError

Values = npt.NDArray[np.object_]
Rows = npt.NDArray[np.intp]

PARTS = ("defender", "attacker", "victims")


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Texts with a task label, private attributes and authors: the rows of one file.

    At least one of `texts` and `vectors` is there. Columns are lists or arrays of one length; a
    missing value is None. `notes` say which rows and classes its reader left out or merged;
    `from_all_rows` names the columns whose classes it merged by how frequent they are, so that one
    row can change the class of others, which a private training may not. `official` is the part of
    each row (train, dev, test) as those who published the set have it.

    >>> corpus = Corpus("two", texts=["one text", "another"])
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
    notes: tuple[str, ...] = ()
    from_all_rows: tuple[str, ...] = ()
    official_name: str | None = None
    official: Values | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.private, Mapping):
            raise DataError(
                "private attributes are given as a dict from their names to their columns, and "
                f"not as a {type(self.private).__name__}"
            )
        columns = {
            "texts": None if self.texts is None else _texts(self.texts),
            "vectors": None if self.vectors is None else as_matrix(self.vectors, "vectors"),
            "label": None if self.label is None else as_values(self.label, "label"),
            "author": None if self.author is None else _authors(self.author),
            "official": None if self.official is None else as_values(self.official, "official"),
            "private": {
                str(name): as_values(column, str(name)) for name, column in self.private.items()
            },
        }
        for name, column in columns.items():
            object.__setattr__(self, name, column)
        for name, column in (*columns.items(), *self.private.items()):
            if isinstance(column, np.ndarray) and len(column) != len(self):
                raise DataError(
                    f"corpus columns differ in length: {name!r} has {len(column)} rows, and there "
                    f"are {len(self)}"
                )

    def __repr__(self) -> str:
        """What it holds, in counts: a notebook shows this, and must not show anybody's text."""
        kind = "texts" if self.texts is not None else "vectors"
        parts = [f"{len(self):,} {kind}"]
        parts += [f"label {self.label_name or 'label'!r}"] if self.label is not None else []
        parts += ["private " + ", ".join(map(repr, self.private))] if self.private else []
        parts += [f"{len(set(self.author)):,} authors"] if self.author is not None else []
        return f"<Corpus {self.name!r}: {'; '.join(parts)}>"

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
        names = ("texts", "vectors", "label", "author", "official")
        columns = {name: getattr(self, name) for name in names}
        return replace(
            self,
            private={name: column[rows] for name, column in self.private.items()},
            **{name: column[rows] for name, column in columns.items() if column is not None},
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
        for name, column in (
            ("label", self.label),
            *self.private.items(),
            ("author", self.author),
            ("official", self.official),
        ):
            if column is not None:
                total.update(f"{name}\0{json.dumps(column.tolist(), default=str)}".encode())
        return total.hexdigest()


def as_values(column: Any, name: str) -> Values:
    """A column as Python values that cannot be written to, None where nothing is known.

    Numbers keep their type, so that they can be cut into bins.
    """
    # Frozen before: it came from a corpus, and a digest of it stays true.
    if isinstance(column, np.ndarray) and column.dtype == object and not column.flags.writeable:
        return column
    is_list = hasattr(column, "__len__") and int(getattr(column, "ndim", 1)) > 0
    if isinstance(column, str | bytes) or not is_list:
        raise DataError(
            f"the column {name!r} must be a list or an array with a value for each row, and is a "
            f"{type(column).__name__}"
        )
    cells = column.tolist() if hasattr(column, "tolist") else list(column)
    values = np.empty(len(cells), dtype=object)
    for row, value in enumerate(cells):
        plain = value.item() if isinstance(value, np.generic) else value
        values[row] = None if is_missing(plain) else plain
    values.setflags(write=False)
    return values


def is_missing(value: Any) -> bool:
    """An empty cell of a CSV, a null, NaN and pandas' own signs all mean that nobody knows."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return (isinstance(value, str) and value == "") or type(value).__name__ in ("NAType", "NaTType")


def _texts(column: Any) -> Values:
    texts = as_values(column, "texts")
    wrong = next((row for row, value in enumerate(texts) if not isinstance(value, str)), None)
    if wrong is not None:
        raise DataError(
            f"texts must be strings that are not empty: row {wrong} is {kind_of(texts[wrong])}"
        )
    return texts


def _authors(column: Any) -> Values:
    """Values that can be told apart: a list or a record names nobody."""
    authors = as_values(column, "author")
    wrong = next((value for value in authors if isinstance(value, list | dict | set)), None)
    if wrong is not None:
        raise unusable_type("author", f"a {kind_of(wrong)}", "a name")
    return authors


def as_matrix(rows: Any, name: str) -> npt.NDArray[np.float32]:
    """`(n, d)` finite float32 numbers that cannot be written to."""
    try:
        # Beyond float32 a number becomes infinite, and is refused below with its row.
        with np.errstate(over="ignore"):
            matrix = np.array(rows, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        raise not_vectors(name, "rows of several lengths, or other things than numbers") from None
    if matrix.ndim != 2 or not matrix.shape[1]:
        raise not_vectors(name, f"an array of shape {matrix.shape}")
    bad_rows = np.flatnonzero(~np.isfinite(matrix).all(axis=1)).tolist()
    if bad_rows:
        raise not_finite(name, bad_rows, len(matrix))
    matrix.setflags(write=False)
    return matrix


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
