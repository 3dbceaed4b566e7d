"""What a committed file of results may hold: fields whose type says here what fits, and no others.

The list is one of what is allowed, not of what is forbidden: a field that has none of these types,
such as the guesses of victims, is neither written nor read, whoever added it to a record. Names of
levels are short words, so that no text and no list of people fits into them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from capelet.errors import CapeletError, did_you_mean

VERDICTS = ("holds", "fails", "cannot be tested here")
HOLDS, FAILS, UNTESTED = VERDICTS
_OF_MANY = {HOLDS: "hold", FAILS: "fail", UNTESTED: UNTESTED}
# The "paper" of plans that ask a question of our own.
BENCH = "bench"
# Sentences of our own; a text of a corpus would have to be short to pass, and has no field.
LONGEST_WORD, LONGEST_SENTENCE = 120, 2000
# Axes that would make a row one about a person, and those that may only say how many there are.
PERSONAL = {
    "author", "guess", "guesses", "id", "person", "pseudonym", "row", "subject", "text", "truth",
    "user", "victim",
}  # fmt: skip
# The unit of a guarantee is one of these; any other word could be somebody's name.
UNITS = {"record", "text", "author", "–"}
COUNTS = {"authors", "people", "rows", "subjects", "texts", "units", "users", "victims"}

# What most records have not is left out of a file: where it is this.
_ABSENT = {
    "winner": None, "holds": None, "candidate": False, "single_class": 0, "exploratory": "",
    "scale": "absolute",
}  # fmt: skip

T = TypeVar("T")


class _Unfit(ValueError):
    """A value that its field does not take; whoever knows the field's name says so."""


def count_verdicts(verdicts: Sequence[str]) -> str:
    """How many there are of each, in the order of `VERDICTS`.

    >>> count_verdicts(["fails", "holds", "holds"])
    '2 hold, 1 fails'
    """
    counts = [(verdict, verdicts.count(verdict)) for verdict in VERDICTS]
    return ", ".join(
        f"{count} {verdict if count == 1 else _OF_MANY[verdict]}"
        for verdict, count in counts
        if count
    )


# ---- entries of TOML files -----------------------------------------------------------------------


def read_entry(record: type[T], entry: Any, name: str) -> T:
    """An entry of the list `name` of a file as its record; a `CapeletError` says what is wrong."""
    if not isinstance(entry, Mapping):
        raise CapeletError(f"{name!r} are tables: [[{name}]]")
    items = fields(record)  # type: ignore[arg-type]
    check_keys(entry, [item.name for item in items], f"an entry of {name!r}")
    values = {key: tuple(item) if isinstance(item, list) else item for key, item in entry.items()}
    try:
        return record(**values)
    except TypeError:
        required = (item.name for item in items if item.default is item.default_factory is MISSING)
        raise CapeletError(f"an entry of {name!r} needs {', '.join(required)}") from None


def check_keys(table: Collection[str], keys: Collection[str], what: str) -> None:
    for key in table:
        if key not in keys:
            hint = did_you_mean(key, keys)
            raise CapeletError(f"{what} has no {key!r}; {hint}", field=key, code="unknown")


# ---- types ---------------------------------------------------------------------------------------


def _is_word(value: Any) -> bool:
    is_short = isinstance(value, str) and len(value) <= LONGEST_WORD and value.isprintable()
    # Pseudonyms are digests; no level of an axis looks like one.
    return is_short and not re.search(r"[0-9a-f]{16}", value)


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value)


def _is_axes(value: Any) -> bool:
    """Names to short words or numbers; no name of something that single people have."""
    if not isinstance(value, dict) or len(value) > 30:
        return False
    names = all(_is_word(name) and name.lower() not in PERSONAL for name in value)
    levels = all(_is_word(level) or _is_number(level) for level in value.values())
    counts = not any(isinstance(value.get(name), str) for name in COUNTS)
    return names and levels and counts and value.get("unit", "–") in UNITS


def _matches(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def up_to(most: int) -> Callable[[Any], bool]:
    """Lists of so many entries at most: of more splits than anybody runs, rows would be people."""
    return lambda value: len(value) <= most


Word = Annotated[str, _is_word]
Sentence = Annotated[str, lambda value: isinstance(value, str) and len(value) <= LONGEST_SENTENCE]
# `undo`, `the folder`, `mlp:depth=3,width=500`: our own short names, no text of anybody.
AttackerName = Annotated[str, _matches(r"[a-z0-9:=,+ -]{1,40}")]
# Parts of file names: they must not leave their folder.
FileName = Annotated[str, _matches(r"[a-z0-9-]{1,60}")]
Verdict = Annotated[str, VERDICTS.__contains__]
Flag = Annotated[bool, lambda value: isinstance(value, bool)]
Count = Annotated[int, lambda value: isinstance(value, int) and not isinstance(value, bool)]
Number = Annotated[float, _is_number]
# JSON has no NaN: what gave no number is null there.
Value = Annotated[float, lambda value: value is None or _is_number(value)]
Triple = tuple[Number, Number, Number]
Axes = Annotated[Mapping[str, str | float], _is_axes]


# ---- records -------------------------------------------------------------------------------------


def read_record(record: Callable[..., T], entry: Any, where: str = "an entry") -> T:
    """The record that an object of JSON holds; a ValueError names the first field that is not so.

    Never its value, which may be somebody's.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"{where} is no object")
    readers = _readers(record)
    for name in entry:
        if name not in readers:
            raise ValueError(
                f"{where} has a field {str(name)[:40]!r} that results do not hold; what is about "
                "single people stays in the store"
            )
    values = {}
    for name, content in entry.items():
        try:
            values[name] = readers[name](content)
        except _Unfit:
            raise ValueError(f"{where} has a {name!r} that is not as results have it") from None
    try:
        return record(**values)
    except TypeError:
        raise ValueError(f"{where} lacks one of {', '.join(readers)}") from None


def plain(value: Any) -> Any:
    """Records, tuples and mappings as JSON has them; of a record the fields that results hold."""
    if is_dataclass(value):
        entries = {name: plain(getattr(value, name)) for name in _readers(value.__class__)}
        return {
            name: entry
            for name, entry in entries.items()
            if name not in _ABSENT or entry != _ABSENT[name]
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


@cache
def _readers(record: Any) -> dict[str, Callable[[Any], Any]]:
    """How each field that may be held is read, by name."""
    readers = {
        name: _reader(kind) for name, kind in get_type_hints(record, None, None, True).items()
    }
    return {name: reader for name, reader in readers.items() if reader is not None}


def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """How a value of this type is read; None for a type that results do not hold."""
    origin, types = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return partial(_read_fitting, types[1], _reader(types[0]))
    if origin is Literal:
        return partial(_read_fitting, types.__contains__, None)
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(read_record, kind) if _readers(kind) else None
    readers = [_reader(item) for item in types if item not in (NoneType, ...)]
    if not readers or None in readers:
        return None
    if origin is tuple:
        return partial(_read_list, readers, ... in types)
    return partial(_read_any, readers, NoneType in types) if origin in (Union, UnionType) else None


def _read_fitting(
    fits: Callable[[Any], bool], reader: Callable[[Any], Any] | None, value: Any
) -> Any:
    content = reader(value) if reader else value
    if not fits(content):
        raise _Unfit
    return math.nan if content is None else content


def _read_list(readers: Sequence[Any], is_open: bool, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list) or not (is_open or len(value) == len(readers)):
        raise _Unfit
    return tuple(
        reader(item) for reader, item in zip(list(readers) * len(value), value, strict=False)
    )


def _read_any(readers: Sequence[Any], is_optional: bool, value: Any) -> Any:
    if value is None and is_optional:
        return None
    for reader in readers[:-1]:
        try:
            return reader(value)
        except _Unfit:
            continue
    return readers[-1](value)
