"""`--where`: names in quotes, and nothing that ends in anything but an answer or a sentence."""

from __future__ import annotations

import pyarrow as pa
import pytest

from capelet.data.headers import Header
from capelet.data.where import filter_rows
from capelet.errors import DataError

TABLE = pa.table({"How old, really?": [20, 40], 'say "hi"': ["x", "y"], "plain": [1, 2]})
HEADER = Header(tuple(TABLE.column_names))


def count(where: str) -> int:
    return filter_rows(TABLE, where, HEADER).num_rows


def test_names_in_quotes() -> None:
    assert count("'How old, really?' > 30") == 1
    assert count("\"How old, really?\" > 10 and 'say \"hi\"' == 'x'") == 1
    assert count("plain in [1, 2] and 'How old, really?' not in [20]") == 1
    with pytest.raises(DataError, match="did you mean 'How old, really"):
        count("'How old, realy?' > 30")


@pytest.mark.parametrize(
    "where",
    [
        "not " * 5000 + "plain == 1",
        "not " * 900 + "plain == 1",
        "(" * 300 + "plain == 1" + ")" * 300,
        f"plain == {10**40}",
        f"plain in [{10**40}]",
        "plain == 'text'",
        "plain == [[1]]",
        "plain < 1 < 2",
        "plain == __import__('os')",
        "\0",
    ],
)
def test_strange_expressions_end_in_a_sentence(where: str) -> None:
    try:
        count(where)
    except DataError as error:
        assert "where= is not understood" in str(error)
