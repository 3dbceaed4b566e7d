"""Ceilings in words: what a guarantee permits from one text, and from all texts of a person.

A ceiling without "from one text" is false of anyone who wrote two: a vote over 12 texts of each
author reached 95 % where one text permits 73 %. So the two never stand apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capelet.findings import Finding
from capelet.reports.formatting import count, is_number, percent

# A bound of nearly 1 bounds nothing, and as a number would only sound like a promise.
ALMOST_ALL = 0.99
ONE_TEXT = "ceiling, from one text"
_PERSONS = {"median": "the median author", "most": "the author with most texts"}


@dataclass(frozen=True)
class PersonCeiling:
    """What so many texts of one person permit, and which person of the corpus has so many."""

    texts: int
    ceiling: float
    who: str

    @property
    def title(self) -> str:
        """As a row or a column of a table is called."""
        return f"ceiling, from {count(self.texts)} texts ({self.who})"


def person_ceilings(row: Finding) -> list[PersonCeiling]:
    """The ceilings for persons that a finding carries; equal numbers of texts stand once.

    Of people with one text each there is nothing to say beyond the ceiling of one text.
    """
    texts, ceilings = (_mapping(row, key) for key in ("texts_per_person", "person_ceiling"))
    items: dict[int, PersonCeiling] = {}
    for name, who in _PERSONS.items():
        number, ceiling = texts.get(name), ceilings.get(name)
        if isinstance(number, int) and number > 1 and is_number(ceiling):
            items.setdefault(number, PersonCeiling(number, ceiling, who))
    return list(items.values())


def ceiling_sentence(row: Finding, digits: int = 0) -> str:
    """The most that the guarantee permits to anyone; empty where it has no ceiling.

    >>> ceiling_sentence(Finding("attribute-inference", "gender", "auc", 0.6, ceiling=0.731))
    'From one text the guarantee permits nobody more than 73 %.'
    """
    if not is_number(row.ceiling):
        return ""
    if row.ceiling >= ALMOST_ALL:
        return (
            "The guarantee alone rules out almost nothing here (ceiling above 99 % from one text)."
        )
    clauses = [
        f"from {count(item.texts)} texts, as {item.who} has, {at_most(item.ceiling, digits)}"
        for item in person_ceilings(row)
    ]
    head = f"From one text the guarantee permits nobody more than {percent(row.ceiling, digits)}"
    return "; ".join([head, *clauses]) + "."


def at_most(ceiling: float, digits: int = 0) -> str:
    """A ceiling as per cent, where it rules anything out.

    >>> at_most(0.952), at_most(0.9993)
    ('95 %', 'almost everything')
    """
    return percent(ceiling, digits) if ceiling < ALMOST_ALL else "almost everything"


def _mapping(row: Finding, key: str) -> Mapping[str, Any]:
    # Findings come from JSON: what is no object is read as none.
    content = row.parameters.get(key)
    return content if isinstance(content, Mapping) else {}
