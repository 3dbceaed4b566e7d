"""The command line: parse, build, call one function, print.

`commands` holds the table, `doors` makes options of the records of a question, and each command has
a module of its own.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

__all__ = ["app", "main"]

# As a shell reports a program that was interrupted: 128 + SIGINT.
INTERRUPTED = 130


def main() -> None:
    """The `capelet` command; no traceback even before its options are read."""
    _escape_foreign_signs()
    try:
        # Here, not above: its imports take a moment, in which somebody may press Ctrl-C.
        from capelet.cli.commands import app

        app(is_program=True)
    except KeyboardInterrupt:
        print("capelet: stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        _flush()


def _escape_foreign_signs() -> None:
    """Print ε as `\\u03b5` where the terminal's encoding has no ε, as Python itself does in errors.

    A locale such as C, or a pipe of an old console, would else turn a verdict into a fault.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    """Say that results could not be printed; Python itself would say so in a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is still in the buffer must not fail a second time when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # Whoever closed a pipe, as `head` does, has seen enough.
        if not isinstance(error, BrokenPipeError):
            print(f"capelet: cannot print the result ({error.strerror})", file=sys.stderr)
            sys.exit(2)


def __getattr__(name: str) -> Any:
    if name == "app":
        from capelet.cli.commands import app

        return app
    raise AttributeError(f"module 'capelet.cli' has no attribute {name!r}")
