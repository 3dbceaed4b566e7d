"""Every error that Capelet raises on purpose: one tree, one sentence each.

The sentence says what was wrong, what was found and what to do. The command line prints it and
exits with code 2; a library user catches `CapeletError`.

A sentence is written with the names of options (`--where`). Whoever called from Python knows no
options: `str(error)` names the same things as arguments (`where=`). Both spellings are made here.
"""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable
from pathlib import Path

# A frame of a traceback is ours by where its file lies: a user's own script may lie below a folder
# of the same name, as every script in a clone of this repository does.
_PACKAGE = Path(__file__).parent

# Options whose argument in Python has another name than theirs.
_ARGUMENTS = {
    "derive": "derived",
    "split": "split_kind",
    "lambda": "lam",
    "tune-layers": "layers",
    "hold-out": "held_out",
    "member": "members",
    "train-epsilon": "training",
}
# Words that, behind an option, are its value and not the next word of the sentence.
_WORDS = (
    "auto|cpu|cuda|task|neighbours|both|author|text|record|authorship|inversion|names,number|"
    "comma|semicolon|tab|pipe|utf-8(?:-sig)?|utf-16(?:-le|-be)?|cp1252|latin-1"
)
# An option is a word of its own, so that no file name with two hyphens is taken for one.
_OPTION = re.compile(
    rf"(?<![\w/.-])--([a-z][a-z-]*[a-z])(?: (?:(\d[\d.,]*\d|\d)|({_WORDS}|\w+/[\w/]+)(?![\w-])))?"
)


class CapeletError(Exception):
    """Something the caller can put right."""

    def __str__(self) -> str:
        return name_arguments(super().__str__())

    @property
    def for_terminal(self) -> str:
        """The same sentence for whoever typed a command: it names options."""
        return super().__str__()


def name_arguments(sentence: str) -> str:
    """The sentence with Python's arguments in the place of options; commands stay as they are.

    >>> name_arguments("give --epsilon 8, or leave rows out with --where (`capelet check --json`)")
    'give epsilon=8, or leave rows out with where= (`capelet check --json`)'
    """

    def argument(match: re.Match[str]) -> str:
        name = _ARGUMENTS.get(match[1], match[1].replace("-", "_"))
        value = match[2] or (f'"{match[3]}"' if match[3] else "")
        return f"{name}={value}"

    # What stands between backticks is to be typed into a terminal.
    pieces = sentence.split("`")
    pieces[::2] = [_OPTION.sub(argument, piece) for piece in pieces[::2]]
    return "`".join(pieces)


class DataError(CapeletError):
    """The data cannot be used as they are: a missing column, empty texts, broken vectors."""


class EncoderError(CapeletError):
    """An encoder is unknown, unsafe to load, or does not fit the data."""


class OutputError(CapeletError):
    """The result cannot be written where it was asked to go, or a stored one cannot be read."""


class StoreDown(OutputError):
    """The store of charges cannot be reached or written just now; nothing may be released."""


class FolderError(EncoderError, OutputError):
    """A model folder is missing, changed, of another format, or unsafe to read."""


class MissingExtra(CapeletError):
    """A feature needs an optional dependency."""

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


def describe_fault(error: BaseException) -> str:
    """`ValueError at audit.py:12`: the kind of a fault and the last line of Capelet on its way.

    Never its message, which may quote a text, and no line of anybody else's: a place in another
    package, or in a user's script, tells whoever is to mend Capelet little.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    place = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__}{place}"
