"""A header is shown only where it surely is one."""

from __future__ import annotations

import pyarrow as pa

from capelet.data.headers import Header, printable


def header(columns: dict[str, list[object]]) -> Header:
    table = pa.table(columns)
    return Header.of_first_line(table.column_names, table.columns)


def test_numbers_and_classes_below_it_prove_a_header() -> None:
    assert header({"age": [1, 2, 3], "text": ["a b", "c d", "e f"]}).is_certain
    assert header({"sex": ["f", "m"] * 30}).is_certain
    assert not header({"sex": ["f", "m"]}).is_certain


def test_a_row_in_its_place_is_known() -> None:
    assert header({"31": [30, 42, 17], "a text": ["b c", "d e", "f g"]}).is_row
    assert header({"f": ["f", "m"] * 30}).is_row
    assert header({"2020-01-05": ["2020-01-06", "x", "y"]}).is_row
    assert not header({"q1": [1, 2], "2020 income": [3, 4]}).is_row


def test_where_nothing_tells_nothing_is_shown() -> None:
    unsure = header({"I am ill": ["so am I", "not me"]})
    assert not unsure.is_certain and not unsure.is_row
    assert "ill" not in unsure.listing() + unsure.hint("text")
    # The control: whoever names one of the columns knows that they are names.
    assert "I am ill" in unsure.confirm(["I am ill"]).listing()


def test_names_cannot_steer_a_terminal() -> None:
    assert "\x1b" not in printable("a\x1b[31mb") and len(printable("x" * 500)) == 60
