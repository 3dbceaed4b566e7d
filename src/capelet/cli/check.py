"""`capelet check`: what a file holds, what can be asked of it, and the command that asks."""

from __future__ import annotations

from typing import Annotated

from capelet.cli.doors import Data, Group, Json
from capelet.cli.inputs import split_columns
from capelet.cli.terminal import answer
from capelet.question import Columns


def check(
    data: Data,
    /,
    *,
    columns: Annotated[Columns, Group.DATA, "text label private author vectors encoding separator"],
    json: Json = False,
) -> None:
    """Look at a file before it is audited: columns, problems, how sure, and the next command.

    No value of a cell is shown, only names of columns, types and counts.

    Example: `capelet check mails.csv`
    """
    from capelet.data.formats import Format
    from capelet.workflows.check import Roles, column_names, inspect

    layout = Format(columns.encoding, columns.separator)
    names = columns.private and column_names(data, layout)
    secrets = split_columns(columns.private, names)
    roles = Roles(columns.text, columns.label, tuple(secrets), columns.author, columns.vectors)
    result = inspect(data, roles, layout).spelled("terminal")
    answer(json, result.to_json(), result)
