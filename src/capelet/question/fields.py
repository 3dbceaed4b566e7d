"""What a door does with the fields of records: fill them from names, and tell what was chosen."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any


def names_of(record: Any) -> list[str]:
    """The names of a record's fields, or of its class's."""
    return [item.name for item in fields(record)]


def chosen(record: Any) -> dict[str, Any]:
    """The fields that somebody gave, by name: those that have not the value of nobody's choice.

    >>> from capelet.question import Columns
    >>> chosen(Columns("body", private=["age"]))
    {'text': 'body', 'private': ['age']}
    """
    values = {item.name: getattr(record, item.name) for item in fields(record)}
    # By identity: 0 is a choice, although it equals False.
    return {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != ()
    }


def collect(values: Mapping[str, Any], *kinds: type[Any]) -> list[Any]:
    """A record of each kind from keywords; a name that none of them has is refused as by Python.

    >>> from capelet.question import Columns
    >>> collect({"text": "body", "label": None}, Columns)[0].text
    'body'
    """
    known = [name for kind in kinds for name in names_of(kind)]
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"unexpected keyword argument {name!r}{hint}")
    return [fill(kind, values) for kind in kinds]


def fill(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """The record with those of the values that are fields of it; None is not chosen."""
    names = names_of(kind)
    return kind(**{key: item for key, item in values.items() if key in names and item is not None})


def listed(value: Any) -> tuple[Any, ...]:
    """One value or several, as a tuple.

    >>> listed("logistic"), listed(["a", "b"]), listed(None)
    (('logistic',), ('a', 'b'), ())
    """
    if value is None:
        return ()
    # A classifier may be indexed or iterated over, and is one thing all the same.
    several = isinstance(value, Collection | Iterator) and not isinstance(value, str)
    return tuple(value) if several else (value,)
