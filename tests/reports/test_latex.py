"""LaTeX: every sign of a user is printed, none is obeyed."""

from __future__ import annotations

import re

import pytest

from capelet.reports.latex import escape, table
from capelet.reports.page import Line, Table


@pytest.mark.parametrize("sign", "\\{}$&#%_^~")
def test_no_command_sign_stands_alone(sign: str) -> None:
    """Each is behind a backslash or is the name of a command; unescaped it would be found here."""
    pattern = re.compile(r"\\text[a-z]+\{\}|\\[{}$&#%_]")
    assert not set("\\{}$&#%_^~") & set(pattern.sub("", escape(f"a{sign}b")))
    assert sign in pattern.sub("", f"a{sign}b")


def test_one_pass() -> None:
    """An escape is not escaped again, and a line break cannot begin a new row."""
    assert escape("\\{") == r"\textbackslash{}\{"
    assert escape("a\\\\\nb\x00") == r"a\textbackslash{}\textbackslash{} b"


def test_roles_and_columns() -> None:
    lines = (Line(("[x]", "1 %"), "strong"), Line(("y", "2"), "control"), Line(("[z]", "3")))
    code = table(Table("t", ("name", "share"), lines, "a note"))
    assert r"\textbf{[x]} & 1~\% \\" in code and r"\emph{y} & 2 \\" in code
    # Behind \\ a bracket would be read as a length.
    assert "\n{}[z] & 3" in code
    assert r"\begin{tabular}{lr}" in code and "a note" in code
    assert "note" not in table(Table("t", ("name",), (Line(("x",)),)))
