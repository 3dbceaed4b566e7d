"""A command's options are made from its signature, in which a record is an option for each field.

    def audit(
        data: Annotated[str, "The file."],
        /,
        *,
        columns: Annotated[Columns, Group.DATA],              # all its fields
        other: Annotated[Columns, Group.DATA, "text author"],  # or some of them
        out: Annotated[Path | None, Group.OUTPUT, "Folder of the report."] = None,
    )

What stands before the slash has a place on the line, the rest are options. Names in braces within
help stand for a table of `catalogue`; they are filled in when help is shown, and only then: a table
may live in a room that imports a model framework, and `--help` must answer at once.

Cyclopts parses. It takes dataclasses itself, too; but half of our commands take some of the fields,
and a list with commas has to be read after the table that it names columns of.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import cyclopts

from capelet.errors import DataError, did_you_mean, name_field
from capelet.question.fields import (
    Form,
    bare_type,
    check_range,
    extras_of,
    help_of,
    hints_of,
    not_a_number,
)

EMPTY = inspect.Parameter.empty


class Group(Enum):
    """Under which heading an option stands in help."""

    DATA = "Data"
    MEASURE = "Measure"
    PROTECT = "Protect"
    PAPERS = "Papers"
    OUTPUT = "Output"


# What several commands ask for alike.
Json = Annotated[bool, Group.OUTPUT, "Print JSON for machines."]
Data = Annotated[str, "A Parquet, CSV or JSONL file, a datasets folder, or a set."]
LedgerPlace = Annotated[str, "A ledger file, or the postgresql:// URL of a database."]
Anchor = Annotated[
    Path | None, "File elsewhere that notices a ledger which was shortened or replaced."
]
Member = Annotated[str | None, Group.DATA, "Column that says who was trained on (yes/no, 1/0)."]
Report = Annotated[Path | None, Group.OUTPUT, "Folder of the report."]
_ORDER = {group: place for place, group in enumerate(Group)}


@dataclass(frozen=True)
class Option:
    """One option, or one word of the line where it `has_place`; `record` is whose field it is."""

    name: str
    hint: Any
    help: str = ""
    default: Any = EMPTY
    group: Group | None = None
    has_place: bool = False
    record: str | None = None

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The variable of the environment that says it, at a command that reads any."""
        return f"CAPELET_{self.name.upper()}"

    @property
    def reader(self) -> Reader | None:
        """How its text becomes a value, where that is more than a type."""
        bare = bare_type(self.hint)
        if Form.NAMES in extras_of(self.hint):
            return NAMES
        if Form.COLUMNS in extras_of(self.hint):
            return COLUMNS
        return next((item for kind, item in READERS if bare == kind), None)

    def parameter(
        self, fill: Callable[[str], str], has_variable: bool = False
    ) -> inspect.Parameter:
        """The option as Cyclopts reads it; `fill` makes names of what stands in braces."""
        reader, bare = self.reader, bare_type(self.hint)
        kind = reader.kind if reader is not None else bare
        is_switch = kind is bool
        # Cyclopts writes the default of everything that has one, and reads it like any other text.
        default = None if self.default == () else self.default
        if reader is not None and default not in (None, EMPTY):
            texts = reader.spell(default)
            default = texts[0] if reader.kind is str else texts
        if default is None:
            kind = kind | None
        # To be told of no group hides an option.
        heading: dict[str, Any] = {} if self.group is None else {"group": _heading(self.group)}
        reading = cyclopts.Parameter(
            name=None if self.has_place else self.flag,
            help=fill(self.help),
            # A number may be below zero.
            allow_leading_hyphen=reader is not None and reader.kind is str,
            negative=f"--no-{self.name.replace('_', '-')}" if is_switch and default else (),
            show_default=False if is_switch else ",".join if isinstance(default, list) else None,
            # The last one counts, as in a shell: whoever adds to a line overrides what it said.
            allow_repeating=True,
            metavar=self.name.upper() if self.has_place else _metavar(kind, reader),
            env_var=self.variable if has_variable else None,
            # A column's name may hold a blank.
            env_var_split=lambda kind, text, delimiter=None: [text],
            **heading,
        )
        places = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(
            self.name,
            places[0] if self.has_place else places[1],
            default=default,
            annotation=Annotated[kind, reading],
        )

    def read(self, value: Any) -> Any:
        """The value that was meant; refused where it is not understood, or out of range."""
        if value is None:
            return None if self.default is EMPTY else self.default
        if self.reader is not None:
            value = self.reader.read(self.name, value)
        check_range(self.name, self.hint, value)
        return value

    def spell(self, value: Any) -> list[str]:
        """The words of a command line that mean this value of a TOML file."""
        if isinstance(value, bool):
            return [self.flag] if value else [f"--no-{self.flag[2:]}"] if self.default else []
        texts = self.reader.spell(value) if self.reader is not None else [str(value)]
        # In one word: a value that begins with a hyphen is a value, and no option.
        return [f"{self.flag}={text}" for text in texts]


@functools.cache
def _heading(group: Group) -> cyclopts.Group:
    return cyclopts.Group(group.value, sort_key=_ORDER[group] + 1)


_WORDS = {str: "TEXT", Path: "PATH"}


def _metavar(kind: Any, reader: Reader | None) -> str | None:
    return reader.metavar if reader is not None else _WORDS.get(bare_type(kind))


# ---- texts that hold more than one value ---------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """How one text, or several of an option that may be repeated, becomes a value, and back."""

    kind: Any
    metavar: str
    read: Callable[[str, Any], Any]
    spell: Callable[[Any], list[str]]


def split_names(names: str | None) -> list[str]:
    """The names between the commas."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]


def read_bins(name: str, items: Sequence[str]) -> dict[str, list[float]]:
    """The edges of each column that is to be cut: `age=30,50`."""
    edges_by_column = {}
    for item in items:
        # The last one: a name may have such a sign in it, too.
        column, _, edges = item.rpartition("=")
        try:
            edges_by_column[column.strip()] = [float(edge) for edge in edges.split(",")]
        except ValueError:
            raise _not_understood(name, item, "write age=30,50") from None
    return edges_by_column


def read_weight(name: str, text: str) -> float | dict[str, float]:
    """One number for all, or one for each of those that are named.

    >>> read_weight("adversary_weight", "2"), read_weight("adversary_weight", "gender=1,age=0.3")
    (2.0, {'gender': 1.0, 'age': 0.3})
    """
    try:
        if "=" not in text:
            return float(text)
        pairs = [item.rpartition("=") for item in split_names(text)]
        return {key.strip(): float(value) for key, _, value in pairs}
    except ValueError:
        raise _not_understood(name, text, "write 1, or gender=1,age=0.3") from None


def read_seeds(name: str, text: str) -> int | list[int]:
    """A number alone is a count; a comma makes a list of seeds.

    >>> read_seeds("seeds", "3"), read_seeds("seeds", "0,1,2"), read_seeds("seeds", "7,")
    (3, [0, 1, 2], [7])
    """
    try:
        return [int(seed) for seed in split_names(text)] if "," in text else int(text)
    except ValueError:
        hint = (
            "write 3 for three splits, 0,1,2 for the seeds themselves, or 7, (with its comma) for "
            "seed 7 alone"
        )
        raise _not_understood(name, text, hint) from None


def _number(kind: type[Any]) -> Callable[[str, str], Any]:
    """How a number is read: as Python does. Cyclopts would round 1.5 to 2."""

    def read(name: str, text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise not_a_number(name, text, kind) from None

    return read


def _read_counts(name: str, text: str) -> list[int]:
    try:
        return [int(item) for item in split_names(text)]
    except ValueError:
        raise _not_understood(name, text, "write 1,5,20,50") from None


def _not_understood(name: str, text: str, hint: str) -> DataError:
    return DataError(f"{name_field(name)} {text!r} is not understood; {hint}", code="form")


def _spell_pairs(value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return _texts(value)
    return [f"{key}={','.join(_texts(item))}" for key, item in value.items()]


NAMES = Reader(
    list[str],
    "TEXT,…",
    lambda name, items: tuple(part for item in items for part in split_names(item)),
    _texts,
)
COLUMNS = Reader(list[str], "TEXT,…", lambda name, items: tuple(items), _texts)
_WHOLE = Reader(str, "N", _number(int), _texts)
READERS: list[tuple[Any, Reader]] = [
    (int, _WHOLE),
    # A list of words is Python's alone; at the other doors it is a file.
    (int | Sequence[str], _WHOLE),
    (float, Reader(str, "NUMBER", _number(float), _texts)),
    (
        int | Sequence[int],
        Reader(
            str,
            "N|LIST",
            read_seeds,
            lambda value: [",".join(_texts(value)) + ("," if isinstance(value, list) else "")],
        ),
    ),
    (Sequence[int], Reader(str, "N,…", _read_counts, lambda value: [",".join(_texts(value))])),
    (
        float | Mapping[str, float],
        Reader(str, "NUMBER|NAME=…", read_weight, lambda value: [",".join(_spell_pairs(value))]),
    ),
    (Mapping[str, Sequence[float]], Reader(list[str], "NAME=N,…", read_bins, _spell_pairs)),
]


# ---- from a signature to a command, and back -----------------------------------------------------


def options_of(command: Callable[..., None]) -> Iterator[Option]:
    """The options of a command, in the order of its signature."""
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind, *extras = get_args(hints[name]) if get_origin(hints[name]) else [hints[name]]
        has_place = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        group = next((extra for extra in extras if isinstance(extra, Group)), None)
        text = next((extra for extra in extras if isinstance(extra, str)), "")
        if is_dataclass(kind):
            yield from _fields_of(name, kind, text.split(), group)
            continue
        yield Option(name, hints[name], text, parameter.default, group, has_place)


def _fields_of(record: str, kind: Any, names: list[str], group: Group | None) -> Iterator[Option]:
    hints, texts = hints_of(kind), help_of(kind)
    by_name = {item.name: item for item in fields(kind)}
    for name in names or by_name:
        default = by_name[name].default
        yield Option(name, hints[name], texts[name], default, group, record=record)


def as_command(
    command: Callable[..., None], fill: Callable[[str], str], has_variables: bool = False
) -> Callable[..., None]:
    """The command with a signature that Cyclopts can read, whose values it is called with.

    With `has_variables` what is not on the line may stand in the environment.
    """
    hints = get_type_hints(command)
    options = list(options_of(command))

    @functools.wraps(command)
    def run(*places: Any, **given: Any) -> None:
        ordered = [option for option in options if option.has_place]
        raw = {**{item.name: value for item, value in zip(ordered, places, strict=False)}, **given}
        values: dict[str, Any] = {}
        records: dict[str, dict[str, Any]] = {item.record: {} for item in options if item.record}
        for option in options:
            value = option.read(raw.get(option.name))
            (values if option.record is None else records[option.record])[option.name] = value
        made = {name: hints[name](**content) for name, content in records.items()}
        arguments = [values.pop(option.name) for option in ordered]
        command(*arguments, **values, **made)

    parameters = [option.parameter(fill, has_variables) for option in options]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in parameters}
    return run


def flags_in_environment(command: Callable[..., None]) -> list[str]:
    """The options of a command that the environment has a value for."""
    return [option.flag for option in options_of(command) if option.variable in os.environ]


def words_of_config(command: Callable[..., None], path: Path, given: Sequence[str]) -> list[str]:
    """What a TOML file says of a command, as words of its line; what was given takes precedence."""
    import tomllib

    try:
        document = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r} ({error.strerror}); give a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{str(path)!r} is not TOML: {error}") from None
    options = {option.name: option for option in options_of(command) if not option.has_place}
    names = {word.partition("=")[0] for word in given}
    words: list[str] = []
    for name, value in document.items():
        if name not in options:
            raise DataError(
                f"{str(path)!r} has {name!r}, which is no option of this command; "
                f"{did_you_mean(name, options)}",
                field=name,
                code="unknown",
            )
        flag = options[name].flag
        if flag not in names and f"--no-{flag[2:]}" not in names:
            words += options[name].spell(value)
    return words
