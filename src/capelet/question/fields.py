"""What a door does with the fields of records: fill them from names, and tell what was chosen.

A field's annotation may say more than its type: how far a number may go (`Between`), and that a
sequence of texts is a list of names or of columns (`Form`).
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache, reduce
from itertools import pairwise
from numbers import Integral, Real
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from capelet.errors import CapeletError, name_field

F = TypeVar("F", bound=Callable[..., Any])

# Beyond these a number is a slip of the finger, and what it asks for would never end.
MOST = 10**9
MOST_ROUNDS = 10_000  # seeds, trials, epochs, draws: whatever is done over again
MOST_WIDTH = 65_536
MOST_SEED = 2**32 - 1  # what every generator takes


@dataclass(frozen=True)
class Between:
    """The least and the most that a number may be."""

    least: float | None = None
    most: float | None = None


class Form(Enum):
    """What a sequence of texts is, for doors at which everything is one text."""

    NAMES = "a list with commas"
    COLUMNS = "repeated, or a list with commas; a column's name may hold a comma itself"


Count = Annotated[int, Between(1, MOST)]
Rounds = Annotated[int, Between(1, MOST_ROUNDS)]
Units = Annotated[int, Between(1, MOST_WIDTH)]
Seed = Annotated[int, Between(0, MOST_SEED)]


def names_of(record: Any) -> list[str]:
    """The names of a record's fields, or of its class's."""
    return [item.name for item in fields(record)]


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """The annotation of each field of a record."""
    return get_type_hints(kind, include_extras=True)


@cache
def help_of(kind: Any) -> dict[str, str]:
    """The docstring below each field of a record."""
    (record,) = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body
    texts: dict[str, str] = {}
    body = getattr(record, "body", [])
    for item, below in pairwise(body):
        if isinstance(item, ast.AnnAssign) and isinstance(below, ast.Expr):
            name, text = ast.unparse(item.target), ast.literal_eval(below.value)
            texts[name] = " ".join(text.split())
    return texts


def extras_of(hint: Any) -> list[Any]:
    """What an annotation says beside the type, also within `… | None`.

    >>> extras_of(Count | None)
    [Between(least=1, most=1000000000)]
    """
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        return [*extras, *extras_of(inner)]
    if get_origin(hint) in (Union, UnionType):
        return [extra for part in get_args(hint) for extra in extras_of(part)]
    return []


def bare_type(hint: Any) -> Any:
    """The type of an annotation without what is said beside it, and without None.

    >>> bare_type(Count | None)
    <class 'int'>
    """
    if get_origin(hint) is Annotated:
        return bare_type(get_args(hint)[0])
    if NoneType not in get_args(hint):
        return hint
    first, *others = (bare_type(part) for part in get_args(hint) if part is not NoneType)
    return reduce(or_, others, first)


def check_range(name: str, hint: Any, value: Any) -> None:
    """Refuse what is no number where one is wanted, and a number beyond what is allowed."""
    kind = bare_type(hint)
    is_number = isinstance(value, _NUMBERS.get(kind, Real)) and not isinstance(value, bool)
    if value is not None and kind in _NUMBERS and not is_number:
        raise not_a_number(name, value, kind)
    if not is_number:
        return
    for extra in extras_of(hint):
        if isinstance(extra, Between):
            low, high = extra.least, extra.most
            if (low is not None and not value >= low) or (high is not None and not value <= high):
                least = "" if low is None else f"at least {low:,}"
                most = "" if high is None else f"at most {high:,}"
                raise CapeletError(
                    f"{name_field(name)} is {value}; it must be "
                    f"{' and '.join(filter(None, [least, most]))}",
                    code="range",
                )


_NUMBERS: dict[Any, type[Any]] = {int: Integral, float: Real}


def not_a_number(name: str, value: object, kind: type[Any]) -> CapeletError:
    """The refusal of what is no number, or no whole one."""
    what = "a whole number" if kind is int else "a number"
    return CapeletError(f"{name_field(name)} is {value!r}; it must be {what}", code="number")


def check_fields(record: Any) -> None:
    """Refuse a record with a number beyond what its field allows; every door builds records."""
    kind: Any = type(record)
    for name, hint in hints_of(kind).items():
        check_range(name, hint, getattr(record, name))


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


def fill(kind: Any, values: Mapping[str, Any]) -> Any:
    """The record with those of the values that are fields of it; None is not chosen.

    >>> from capelet.question import Columns
    >>> fill(Columns, {"private": "age", "epsilon": 8}).private
    ('age',)
    """
    hints, content = hints_of(kind), {}
    for name, item in values.items():
        if name in hints and item is not None:
            is_list = any(isinstance(extra, Form) for extra in extras_of(hints[name]))
            content[name] = listed(item) if is_list else item
    return kind(**content)


def takes(*kinds: type[Any]) -> Callable[[F], F]:
    """Let a function's keywords be the fields of these records, which help and editors then show.

    The function itself takes them as `**question`, and makes the records of them by `collect`.
    """

    def decorate(function: F) -> F:
        signature: Any = inspect.signature(function)
        own = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
        keyword = inspect.Parameter.KEYWORD_ONLY
        more = [
            inspect.Parameter(item.name, keyword, default=item.default, annotation=item.type)
            for kind in kinds
            for item in fields(kind)
        ]
        wide: Any = function
        wide.__signature__ = signature.replace(parameters=[*own, *more])
        return function

    return decorate


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
