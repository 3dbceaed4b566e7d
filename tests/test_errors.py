"""Sentences name fields, and doors spell them; a fault is told by its kind and its place alone."""

from __future__ import annotations

import ast
import pickle
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

import capelet
from capelet.errors import (
    CapeletError,
    DataError,
    Door,
    describe_fault,
    did_you_mean,
    name_field,
    spell,
)

ROOM = Path(capelet.__file__).parent
# The tools of others, which are typed into a terminal whoever reads of them.
FOREIGN = re.compile(r"`pip [^`]*`")
OPTION = re.compile(r"(?<![\w/.(-])--[a-z][a-z-]*")


def strings_with_options(code: str) -> list[str]:
    """The strings of a module, docstrings aside, that hold an option as a terminal writes it."""
    tree = ast.parse(code)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        # A string by itself describes the field above it.
        and id(node) not in docstrings
    ]
    return [text for text in strings if OPTION.search(FOREIGN.sub("", text))]


def test_below_the_command_line_nothing_is_spelt_as_an_option() -> None:
    wrong = {
        str(path.relative_to(ROOM)): found
        for path in sorted(ROOM.rglob("*.py"))
        if "cli" not in path.relative_to(ROOM).parts
        and (found := strings_with_options(path.read_text("utf-8")))
    }
    assert wrong == {}


def test_checks_of_numbers_name_what_every_door_can_spell() -> None:
    """A name with a hyphen is a terminal's, and neither a field nor a word of Python."""
    calls = re.compile(r'check_(?:number|count)\(\s*"[a-z]+-[a-z-]+"')
    assert calls.search('check_number("train-epsilon", 1, 0, 2)')
    wrong = [path.name for path in ROOM.rglob("*.py") if calls.search(path.read_text("utf-8"))]
    assert wrong == []


def test_the_search_for_options_can_fail() -> None:
    assert strings_with_options('"""Of --text."""\nraise ValueError(f"give --text, {x}")')
    assert not strings_with_options('"""Of --text."""\nx = "`pip install --upgrade x`"')


@pytest.mark.parametrize(
    ("door", "sentence"),
    [
        ("python", 'give hold_out= or split="keyed", not seeds=3'),
        ("terminal", "give --hold-out or --split keyed, not --seeds 3"),
        ("page", "give hold_out or split = keyed, not seeds = 3"),
    ],
)
def test_each_door_spells_a_field(door: Door, sentence: str) -> None:
    error = DataError(
        f"give {name_field('hold_out')} or {name_field('split', 'keyed')}, "
        f"not {name_field('seeds', 3)}"
    )
    assert error.spell(door) == sentence
    assert (error.field, error.code) == ("hold_out", "data")
    # Put into another sentence it is still spelled by who reads that one.
    assert CapeletError(f"in 'x': {error.sentence}").spell(door) == f"in 'x': {sentence}"


def test_a_sentence_without_fields_is_as_it_was_written() -> None:
    error = CapeletError("a file called --text.csv = 3 is not there")
    assert {error.spell("python"), error.spell("terminal"), str(error)} == {error.sentence}
    assert error.field is None and spell("", "page") == ""


def test_an_error_comes_whole_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(DataError(f"give {name_field('text')}", code="no-texts")))
    assert (error.field, error.code, str(error)) == ("text", "no-texts", "give text=")


@pytest.mark.parametrize("folder", ["capelet", "a b/capelet/tests", "ü/src/capelet"])
def test_a_file_below_a_folder_of_our_name_is_not_ours(tmp_path: Path, folder: str) -> None:
    script = tmp_path / folder / "errors.py"
    script.parent.mkdir(parents=True)
    script.write_text("raise ValueError('the text was: my secret diary')\n", "utf-8")
    with pytest.raises(ValueError) as caught:
        runpy.run_path(str(script))
    assert describe_fault(caught.value) == "ValueError"


def test_the_last_line_of_the_package_is_named_also_where_others_raise() -> None:
    """The control: the package calls what fails, which lies in this file."""

    def names() -> Iterator[str]:
        raise KeyError("my secret diary")
        yield "never"

    with pytest.raises(KeyError) as caught:
        did_you_mean("x", names())
    assert re.fullmatch(r"KeyError at errors\.py:\d+", describe_fault(caught.value))


def test_an_error_that_nobody_raised_has_no_place() -> None:
    assert describe_fault(ValueError("my secret diary")) == "ValueError"
