"""Every error that Capelet raises on purpose: one tree, one sentence each.

The sentence says what was wrong, what was found and what to do. The command line prints it and
exits with code 2; a library user catches `CapeletError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CapeletError(Exception):
    """Something the caller can put right."""


class DataError(CapeletError):
    """The data cannot be used as they are: a missing column, empty texts, broken vectors."""


class EncoderError(CapeletError):
    """An encoder is unknown, unsafe to load, or does not fit the data."""


class OutputError(CapeletError):
    """The result cannot be written where it was asked to go, or a stored one cannot be read."""


class FolderError(EncoderError, OutputError):
    """A model folder is missing, changed, of a newer format, or unsafe to read."""


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
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return "there is " + ", ".join(choices) if choices else "there is none"
