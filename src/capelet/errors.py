"""Every error that Capelet raises on purpose: one tree, one sentence each.

The sentence says what was wrong, what was found and what to do. The command line prints it and
exits with code 2; a library user catches `CapeletError`.

A sentence names fields of a question (`name_field`), and each door spells them: a terminal as
options, Python as arguments, a file or a page by their bare names.
"""

from __future__ import annotations

import difflib
import re
import shlex
import traceback
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

# A frame of a traceback is ours by where its file lies: a user's own script may lie below a folder
# of the same name, as every script in a clone of this repository does.
_PACKAGE = Path(__file__).parent

Door = Literal["python", "terminal", "page"]
# Signs that nobody writes, around a field's name within a sentence.
_OPEN, _BETWEEN, _CLOSE = "\x0e", "\x1f", "\x0f"
_FIELD = re.compile(f"{_OPEN}(\\w+)(?:{_BETWEEN}([^{_CLOSE}]*))?{_CLOSE}")


def name_field(name: str, value: object = None) -> str:
    """A field of a question within a sentence, with the value it might be given.

    >>> error = CapeletError(f"give {name_field('seed', 3)} or {name_field('drop_empty')}")
    >>> str(error), error.spell("terminal")
    ('give seed=3 or drop_empty=', 'give --seed 3 or --drop-empty')
    """
    return f"{_OPEN}{name}{'' if value is None else f'{_BETWEEN}{value}'}{_CLOSE}"


def name_command(path: str, *words: object, **fields: object) -> str:
    """A command to be typed into a terminal, whoever reads the sentence.

    A field that is True is a switch, one of several values stands once for each.

    >>> name_command("keys add", "people.db", label="me", operator=True)
    'capelet keys add people.db --label me --operator'
    """
    line = ["capelet", *path.split(), *map(str, words)]
    for name, value in fields.items():
        if value is None or value is False:
            continue
        several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for item in several:
            line += [_option(name), *([] if item is True else [str(item)])]
    return shlex.join(line)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def spell(sentence: str, door: Door) -> str:
    """The sentence with its fields as this door writes them.

    >>> spell(f"give {name_field('keep', 'task')}", "page")
    'give keep = task'
    """

    def one(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if door == "terminal":
            return _option(name) if value is None else f"{_option(name)} {value}"
        if door == "page":
            return name if value is None else f"{name} = {value}"
        is_number = value is not None and re.fullmatch(r"-?[\d.]+(?:e-?\d+)?", value)
        return f"{name}=" + ("" if value is None else value if is_number else f'"{value}"')

    return _FIELD.sub(one, sentence)


class CapeletError(Exception):
    """Something the caller can put right; `field` is the one to look at, `code` what is wrong."""

    code = "refused"

    def __init__(self, sentence: str, *, field: str | None = None, code: str | None = None) -> None:
        super().__init__(sentence)
        first = _FIELD.search(sentence)
        # Where nobody says which, it is the one that the sentence begins with.
        self.field = field or (first[1] if first else None)
        self.code = code or type(self).code

    def __str__(self) -> str:
        return self.spell("python")

    @property
    def sentence(self) -> str:
        """The sentence with its fields unspelled, to be put into another one."""
        return str(self.args[0])

    def spell(self, door: Door) -> str:
        """The sentence as whoever stands at this door writes fields."""
        return spell(self.sentence, door)


class DataError(CapeletError):
    """The data cannot be used as they are: a missing column, empty texts, broken vectors."""

    code = "data"


class EncoderError(CapeletError):
    """An encoder is unknown, unsafe to load, or does not fit the data."""

    code = "encoder"


class OutputError(CapeletError):
    """The result cannot be written where it was asked to go, or a stored one cannot be read."""

    code = "output"


class StoreDown(OutputError):
    """The store of charges cannot be reached or written just now; nothing may be released."""


class FolderError(EncoderError, OutputError):
    """A model folder is missing, changed, of another format, or unsafe to read."""


class MissingExtra(CapeletError):
    """A feature needs an optional dependency."""

    code = "missing-extra"

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional dependency: pip install 'capelet[{extra}]'")
        self.extra = extra


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`did you mean 'minilm'?` or, where nothing is near, the list of what there is.

    >>> did_you_mean("minlm", ["minilm", "glove"])
    "did you mean 'minilm'?"
    """
    choices = sorted(names)
    near = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return "there is " + ", ".join(choices) if choices else "there is none"


def check_known(what: str, name: str, names: Collection[str]) -> None:
    """Refuse a name that a table does not have, with the one that was meant."""
    if name not in names:
        hint = did_you_mean(name, names)
        raise CapeletError(f"there is no {what} {name!r}; {hint}", code="unknown")


def describe_fault(error: BaseException) -> str:
    """`ValueError at audit.py:12`: the kind of a fault and the last line of Capelet on its way.

    Never its message, which may quote a text, and no line of anybody else's: a place in another
    package, or in a user's script, tells whoever is to mend Capelet little.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    place = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__}{place}"
