"""`capelet list`: what there is, read from the literal table of each room.

The same tables give `--help` its names, so that a member which has a line in its table is found by
everyone without being written down here.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from capelet.cli.doors import Json
from capelet.cli.terminal import echo, print_json


def first_line(member: Any) -> str:
    """A member's own words: a sentence, a record's summary, or the first line of its docstring."""
    if isinstance(member, str):
        return member
    if hasattr(member, "summary"):
        return str(member.summary)
    owner = member if inspect.isroutine(member) or isinstance(member, type) else type(member)
    return (owner.__doc__ or "").strip().splitlines()[0]


@dataclass(frozen=True)
class Table:
    """Where the literal table of a kind of thing is; it is imported when it is asked for."""

    module: str
    name: str
    in_list: bool = True
    describe: Callable[[str, Any], str] = lambda name, member: first_line(member)

    @property
    def members(self) -> Mapping[str, Any]:
        # Imported when asked for, so that `capelet --help` loads no room.
        return getattr(import_module(self.module), self.name)

    @property
    def names(self) -> list[str]:
        """The names alone, read off the source: a room may take seconds to import."""
        if self.module in sys.modules:
            return list(self.members)
        path = Path(__file__).parents[1].joinpath(*self.module.split(".")[1:])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for item in ast.parse(file.read_text(encoding="utf-8")).body:
            targets = (
                item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            )
            table = getattr(item, "value", None)
            if self.name in [getattr(target, "id", None) for target in targets] and isinstance(
                table, ast.Dict
            ):
                return [ast.literal_eval(key) for key in table.keys if key is not None]
        return list(self.members)

    def lines(self) -> dict[str, str]:
        """One line about each member, by its name."""
        return {name: self.describe(name, member) for name, member in self.members.items()}


def _describe_set(name: str, about: Any) -> str:
    from capelet.data.datasets import is_available

    return f"{about.title} ({'here' if is_available(name) else 'not here'}; {about.licence})"


def _title(name: str, member: Any) -> str:
    return str(member.title)


def _measure_title(name: str, metric: Any) -> str:
    return str(metric.measure.title)


TABLES: dict[str, Table] = {
    "encoders": Table("capelet.encoders", "ENCODERS"),
    "mechanisms": Table("capelet.mechanisms", "MECHANISMS"),
    "defences": Table("capelet.defences.methods", "METHODS"),
    "uses": Table("capelet.defences.uses", "USES"),
    "data sets": Table("capelet.data.datasets", "DATASETS", describe=_describe_set),
    "kinds of attack": Table("capelet.evaluation.attacks", "ATTACKS", describe=_title),
    "inversion attacks": Table("capelet.evaluation.inversion", "ATTACKS"),
    "attackers": Table("capelet.attacks.families", "FAMILIES"),
    "splits": Table("capelet.data.splits", "SPLITS"),
    "kinds of finding": Table("capelet.findings.kinds", "KINDS"),
    "metrics": Table("capelet.findings.metrics", "METRICS", describe=_measure_title),
    "other measures": Table("capelet.findings.kinds", "MEASURES", describe=_title),
    "kinds of study": Table("capelet.studies.kinds", "KINDS", describe=_title),
    # What only one command asks for is named in its help.
    "language methods": Table("capelet.language.methods", "METHODS", in_list=False),
    "presets": Table("capelet.defences.settings", "PRESETS", in_list=False),
    "sentence tasks": Table("capelet.evaluation.sentences", "TASKS", in_list=False),
    "commands": Table("capelet.cli.commands", "COMMANDS"),
}


class Names:
    """The names of a table within a sentence: `{x}` is "a, b, c" and `{x:or}` is "a, b or c"."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __format__(self, word: str) -> str:
        *names, last = self.table.names
        return f"{', '.join(names)} {word} {last}" if word and names else ", ".join([*names, last])


def fill_names(help_text: str) -> str:
    """The text of a help with the names of the tables that it mentions in braces."""
    return help_text.format_map({kind: Names(table) for kind, table in TABLES.items()})


def show(
    *,
    json: Json = False,
) -> None:
    """What there is, one line each: encoders, mechanisms, defences, sets, attackers, splits.

    Example: `capelet list --json`
    """
    rooms = {kind: table.lines() for kind, table in TABLES.items() if table.in_list}
    if json:
        print_json(rooms)
        return
    for room, lines in rooms.items():
        echo(room)
        for name, line in lines.items():
            echo(f"  {name:<22}{line}")
