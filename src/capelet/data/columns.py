"""What a column looks like, in counts: its kind, how much is missing, how many values differ.

Nothing here returns a value of a cell, nor the name of a class: how many classes there are and how
many rows the smallest has tells whether it can be measured, and a class of one row is one person.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from capelet.data.corpus import Values, as_values
from capelet.data.labels import IDENTIFIER_SHARE, MANY_VALUES, NUMBER_SHARE, RARE
from capelet.data.messages import kind_of
from capelet.data.text import words_of

Kind = Literal[
    "texts",
    "classes",
    "numbers",
    "names",
    "identifiers",
    "vectors",
    "lists",
    "records",
    "one value",
    "nothing",
]
# A text has so many words on average; shorter strings are names or classes.
TEXT_WORDS = 3.0

# Words in a column's name that say what it is; only where the values can be that, too.
_AUTHOR = "author user writer sender person customer client patient employee speaker username nick"
_AUTHOR += " account reviewer autor autorin nutzer kunde verfasser absender auteur utilisateur"
_AUTHOR += " usuario cliente"
_LABEL = "label stars star rating topic category class sentiment score target intent department"
_LABEL += " genre bewertung note thema kategorie sterne tema categoria categorie task"
_PRIVATE = "gender sex age ethnicity race country nationality religion health diagnosis income"
_PRIVATE += " political party orientation disability marital education profession occupation job"
_PRIVATE += " salary language region birth geschlecht alter land herkunft beruf einkommen sexe age"
_PRIVATE += " pays genero edad pais entity illness"
_TEXT = "text body review message comment content post mail description answer nachricht kommentar"
_TEXT += " antwort texte texto"
HINTS = {
    "author": frozenset(_AUTHOR.split()),
    "label": frozenset(_LABEL.split()),
    "private": frozenset(_PRIVATE.split()),
    "text": frozenset(_TEXT.split()),
}


@dataclass(frozen=True)
class ColumnFacts:
    """One column in counts; `smallest` is the size of the smallest class."""

    name: str
    kind: Kind
    rows: int
    missing: int
    distinct: int
    smallest: int | None = None
    rare: int = 0
    words: float = 0.0
    length: int | None = None

    @property
    def present(self) -> int:
        return self.rows - self.missing

    def hints_at(self, role: str) -> bool:
        """Whether the name says so."""
        # "userName2" has the words user and name.
        words = words_of(re.sub(r"([a-z])([A-Z])|\d+", r"\1 \2", self.name))
        return any(word in HINTS[role] for word in words)

    def sentence(self) -> str:
        """What it holds, in a few words."""
        match self.kind:
            case "texts":
                return f"texts, {self.words:.0f} words on average"
            case "classes":
                return f"{self.distinct} classes, smallest {self.smallest}"
            case "numbers":
                return "numbers, cut into thirds"
            case "vectors":
                return f"vectors of {self.length} numbers"
            case "lists":
                return "lists of values"
        return self.kind


def facts_of(name: str, column: pa.ChunkedArray) -> ColumnFacts:
    """The facts of one column; what Python cannot hold counts as records."""
    try:
        values = as_values(column.to_pylist(), name)
    except (ValueError, OverflowError, pa.ArrowException):
        return ColumnFacts(name, "records", len(column), column.null_count, 0)
    present = [value for value in values if kind_of(value) != "empty"]
    missing = len(values) - len(present)
    kind, length = _shape(present)
    if kind is not None:
        return ColumnFacts(name, kind, len(values), missing, 0, length=length)
    counts = Counter(present)
    words = float(np.mean([len(str(value).split()) for value in present])) if present else 0.0
    plain = _kind(present, counts, words)
    few = [count for count in counts.values() if count < RARE]
    is_class = plain == "classes"
    return ColumnFacts(
        name,
        plain,
        len(values),
        missing,
        len(counts),
        min(counts.values()) if is_class else None,
        len(few) if is_class else 0,
        words,
    )


def _shape(present: Sequence[Any]) -> tuple[Kind | None, int | None]:
    """Vectors, lists and records; None for plain values."""
    if any(isinstance(value, dict | bytes) for value in present):
        return "records", None
    if present and all(isinstance(value, str) and value.startswith("[") for value in present[:50]):
        import json

        try:
            present = [json.loads(value) for value in present]
        except (ValueError, TypeError, RecursionError):
            return None, None
    if not any(isinstance(value, list) for value in present):
        return None, None
    widths = {len(value) if isinstance(value, list) else 0 for value in present}
    numbers = all(isinstance(item, int | float) for value in present[:50] for item in value or ())
    if len(widths) == 1 and numbers and widths != {0}:
        return "vectors", widths.pop()
    return "lists", None


def _kind(present: Sequence[Any], counts: Counter[Any], words: float) -> Kind:
    if len(counts) < 2:
        return "one value" if counts else "nothing"
    share = len(counts) / len(present)
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in present)
    if numeric:
        if len(counts) <= MANY_VALUES:
            return "classes"
        whole = all(float(value).is_integer() for value in present)
        return "identifiers" if whole and share > NUMBER_SHARE else "numbers"
    if words >= TEXT_WORDS and share > IDENTIFIER_SHARE / 2:
        return "texts"
    if share > IDENTIFIER_SHARE and len(counts) > RARE:
        return "identifiers"
    # Repeated, but none often enough to be measured: names of people, mostly.
    return "classes" if max(counts.values()) >= RARE else "names"


def count_repetitions(values: Values) -> int:
    """How many rows repeat an earlier one."""
    present = [value for value in values if isinstance(value, str) and value.strip()]
    return len(present) - len(set(present))
