"""Progress from Python: a line where somebody looks, nothing where nobody does."""

from __future__ import annotations

import pytest

from capelet.interfaces import silent
from capelet.workflows.progress import ProgressLine, default_progress


def test_a_line_that_clears_itself(capsys: pytest.CaptureFixture[str]) -> None:
    line = ProgressLine(patience=0.0)
    line("encoding", 1, 1000)
    line("encoding", 2, 1000)  # too soon after the first
    line("encoding", 1000, 1000)
    written = capsys.readouterr().err
    assert "encoding 1 of 1,000" in written and "2 of" not in written
    assert written.endswith(" \r")


def test_quick_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressLine()("encoding", 1, 1000)
    assert capsys.readouterr().err == ""


def test_silent_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_progress(None) is silent
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert isinstance(default_progress(None), ProgressLine)
    assert default_progress(silent) is silent
