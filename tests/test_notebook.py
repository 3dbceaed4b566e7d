"""The notebook in the docs runs, cell by cell, and what it shows was shown by running it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "tools/notebook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_runs_and_shows_what_it_says(tool: ModuleType) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("wordllama", reason="the extra words is not installed")
    page = json.loads(tool.PAGE.read_text("utf-8"))
    stored = [cell["outputs"] for cell in page["cells"] if cell["cell_type"] == "code"]
    assert all(stored), "run tools/notebook.py"
    fresh = [
        cell["outputs"] for cell in tool.run_notebook(page)["cells"] if cell["cell_type"] == "code"
    ]
    for old, new in zip(stored, fresh, strict=True):
        assert [sorted(item.get("data", {})) for item in old] == [
            sorted(item.get("data", {})) for item in new
        ]
    # The check counts and rounds, so it says the same on every machine.
    assert fresh[1] == stored[1]
    cards = "".join(fresh[2][0]["data"]["text/html"])
    assert "gender" in cards and "country" in cards


def test_a_cell_that_fails_is_noticed(tool: ModuleType) -> None:
    with pytest.raises(NameError):
        tool.run_cell("nothing_of_this_name", {})
    assert tool.run_cell("x = 1\nprint(x)\nx + 1", {})[0]["text"] == ["1\n"]
