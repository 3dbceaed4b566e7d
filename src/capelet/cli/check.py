"""`capelet check`: what a file holds, what can be asked of it, and the command that asks."""

from __future__ import annotations

from capelet.cli import options
from capelet.cli.inputs import split_columns
from capelet.cli.terminal import echo, print_json


def check(
    data: options.Data,
    text: options.Text = None,
    label: options.Label = None,
    private: options.Private = None,
    author: options.Author = None,
    vectors: options.Vectors = None,
    encoding: options.Encoding = None,
    separator: options.Separator = None,
    json: options.Json = False,
) -> None:
    """Look at a file before it is audited: columns, problems, how sure, and the next command.

    No value of a cell is shown, only names of columns, types and counts.

    Example: `capelet check mails.csv`
    """
    from capelet.data.formats import Format
    from capelet.workflows.check import Roles, column_names, inspect

    layout = Format(encoding, separator)
    secrets = split_columns(private, column_names(data, layout)) if private else ()
    roles = Roles(text, label, tuple(secrets), author, vectors)
    result = inspect(data, roles, layout).spelled("terminal")
    if json:
        print_json(result.to_json())
    else:
        echo(result)
