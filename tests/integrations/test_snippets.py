"""The page of frameworks says what is so: its examples run, and the store counts their releases."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from capelet.ledger.store import Ledger
from documentation import sections
from integrations.snippets import BASE, PAGE, run_here, snippet


@pytest.mark.parametrize(
    ("title", "package"),
    [("LangChain", "langchain_core"), ("sentence-transformers", "sentence_transformers")],
)
def test_the_example_runs_and_is_charged(title: str, package: str, tmp_path: Path) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    run_here(snippet(BASE) + snippet(title), tmp_path)
    with Ledger(tmp_path / "people.db") as ledger:
        total = ledger.spent("ann")
    # Two documents and a query.
    assert total is not None and total.epsilon == 600.0


def test_an_example_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="nobody"):
        run_here("raise SystemExit('nobody')", tmp_path)


def test_every_adapter_is_on_the_page_and_says_that_it_charges_nobody() -> None:
    import capelet.integrations

    folder = Path(capelet.integrations.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "embedder", "scikit_learn"}
    page = PAGE.read_text("utf-8")
    for module in modules:
        text = (folder / f"{module}.py").read_text("utf-8")
        assert re.search(r"charges? nobody unless", text), module
        assert module.replace("_", "").replace("-", "") in re.sub(r"[_-]", "", page).lower(), module
    assert "charges nobody unless" in sections(PAGE, 2)["What holds everywhere"]
