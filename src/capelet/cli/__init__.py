"""The command line: parse, build, call one function, print.

`commands` holds the table, `options` what can be asked, and each command has a module of its own.
"""

from capelet.cli.commands import app, main

__all__ = ["app", "main"]
