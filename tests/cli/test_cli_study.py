"""`capelet study`: one sentence for bad input; the same table from a store; claims decide."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capelet.cli.commands import app
from capelet.engines import Ending
from capelet.findings import Finding, Findings
from capelet.studies.cell import Cell, Encoding, Measurement, Outcome
from terminal import CliRunner

pytest.importorskip("wordllama", reason="the extra words is not installed")
PLAN = """
name = "small"
kind = "protect"
paper = "test"
title = "A test"
[settings]
encoder = "wordllama"
attackers = ["logistic"]
[axes]
corpus = ["reviews"]
seed = [0, 1, 2]
method = ["fx", "leace"]
[sizes.small]
rows = 200
[[tables]]
title = "Task"
down = "method"
across = "target"
where = { kind = "utility", metric = "accuracy" }
[[claims]]
text = "leace is better"
of = { method = "leace" }
than = { method = "fx" }
measure = { kind = "utility", metric = "accuracy" }
relation = "higher"
expected = "EXPECTED"
"""


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """An engine that measures nothing: `leace` is worth more than `fx` on every split."""
    cells: list[Cell] = []

    class Pretence:
        slots = 2

        def __init__(self) -> None:
            self.tasks: list[Cell | Encoding] = []

        def start(self, task: Cell | Encoding) -> None:
            self.tasks.append(task)

        def wait(self, seconds: float) -> list[Ending]:
            task = self.tasks.pop()
            if isinstance(task, Encoding):
                return [Ending(task, Outcome(None, 0.0))]
            cells.append(task)
            is_better = task.inputs.get("method") == "leace"
            # Not by quite as much on each split: a difference without a spread decides nothing.
            value = (0.8 + task.seed % 2 / 1000 if is_better else 0.6) + task.seed / 100
            rows = (Finding("utility", "stars", "accuracy", value, seed=task.seed),)
            return [Ending(task, Outcome(Measurement(Findings(rows)), 3.0))]

        def close(self) -> None:
            self.tasks = []

    monkeypatch.setattr("capelet.engines.engine_of", lambda *settings: Pretence())
    return cells


def study(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["study", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def plan_file(tmp_path: Path) -> Callable[[str], Path]:
    def write(expected: str = "holds") -> Path:
        path = tmp_path / "plans" / "small.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(PLAN.replace("EXPECTED", expected))
        return path

    return write


def test_a_study_runs_and_a_second_time_measures_nothing(
    plan_file: Callable[..., Path], pretended: list[Cell], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, printed, _ = study(plan_file(), "--size", "small", "--out", out)
    assert code == 0 and "9 cells measured, 0 were stored" in printed
    assert "[holds] leace is better" in printed
    table = (out / "table.md").read_text()
    assert "leace is better" in table and "| leace |" in table
    # The word `run` may be left out, or be there.
    code, printed, _ = study("run", plan_file(), "--size", "small", "--out", out, "--json")
    summary = json.loads(printed)
    assert (code, summary["measured"], summary["stored"]) == (0, 0, 9)
    assert (out / "table.md").read_text() == table and len(pretended) == 9
    code, printed, _ = study("status", out)
    assert "9 of 9 cells are stored" in printed


def test_a_dry_run_writes_nothing_and_estimates_from_stored_times(
    plan_file: Callable[..., Path], pretended: list[Cell], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ("--size", "small", "--out", out, "--dry-run", "--workers", 2)
    code, printed, _ = study(plan_file(), *options)
    assert code == 0 and "9 cells, 0 stored, 9 to measure" in printed and "not known" in printed
    assert not out.exists() and not pretended
    study(plan_file(), "--size", "small", "--out", out)
    # At the full size none is stored, but cells of the kind are: 3 seconds each, two at once.
    code, printed, _ = study(plan_file(), "--out", out, "--dry-run", "--workers", 2, "--json")
    assert json.loads(printed)["seconds"] == pytest.approx(9 * 3 / 2)


def test_check_fails_where_a_verdict_is_not_the_expected_one(
    plan_file: Callable[..., Path], pretended: list[Cell], tmp_path: Path
) -> None:
    folder = plan_file("holds").parent
    code, printed, _ = study("check", folder, "--out", tmp_path / "out")
    assert code == 0 and "[holds] leace is better" in printed
    plan_file("fails")
    code, printed, _ = study("check", folder, "--out", tmp_path / "out")
    assert code == 1 and "expected: fails" in printed
    code, _, errors = study("check", tmp_path / "nothing-here")
    assert code == 2 and "cannot read the plan" in errors


def test_a_finished_study_becomes_a_page_and_an_unfinished_one_does_not(
    plan_file: Callable[..., Path], pretended: list[Cell], tmp_path: Path
) -> None:
    out, pages = tmp_path / "out", tmp_path / "pages"
    where = ("--size", "small", "--out", out, "--to", pages)
    code, _, errors = study("results", plan_file(), *where)
    assert code == 2 and "there are no cells" in errors and not pages.exists()
    study(plan_file(), "--size", "small", "--out", out)
    code, printed, _ = study("results", plan_file(), *where)
    assert code == 0 and "[holds]" in printed
    page = (pages / "test-small.md").read_text()
    assert "leace is better" in page and "Split seeds: 0, 1, 2" in page
    data = json.loads((pages / "data" / "test-small.json").read_text())
    assert {row["metric"] for row in data["rows"]} == {"accuracy"} and "guess" not in str(data)
    next((out / "store" / "cells").iterdir()).rename(tmp_path / "gone")
    code, _, errors = study("results", plan_file(), *where)
    assert code == 2 and "1 cells are missing" in errors


def test_of_several_plans_the_finished_ones_become_pages_and_the_others_are_named(
    plan_file: Callable[..., Path], pretended: list[Cell], tmp_path: Path
) -> None:
    first, out, pages = plan_file(), tmp_path / "out", tmp_path / "docs" / "results"
    study("check", first, "--size", "small", "--out", out)
    second = first.with_name("later.toml")
    second.write_text(first.read_text().replace('"small"', '"later"').replace("rows = 200", ""))
    card = tmp_path / "docs" / "cards" / "card.md"
    card.parent.mkdir(parents=True)
    waiting = "<!-- table test-small 1, not run yet -->\nsoon\n<!-- end of table -->\n"
    card.write_text(waiting)
    where = ("--size", "small", "--out", out, "--to", pages)
    # Alone, a plan without cells is refused; nothing is written.
    code, _, errors = study("results", second, *where)
    assert code == 2 and "'test/later' is not whole: 9 cells are missing" in errors
    assert not pages.exists() and card.read_text() == waiting
    code, printed, _ = study("results", first.parent, *where)
    assert code == 0 and "[holds]" in printed and "left out: the study 'test/later'" in printed
    assert {path.name for path in (pages / "data").iterdir()} == {"test-small.json"}
    # A card takes the figures of a full study, and this one is small.
    assert (pages / "test-small.tex").is_file() and card.read_text() == waiting
    code, printed, _ = study("results", first.parent, *where, "--json")
    summary = json.loads(printed)
    assert summary["verdicts"] == {"test-small": "holds"} and len(summary["gaps"]) == 1
    code, printed, _ = study("results", first, *where, "--json")
    assert json.loads(printed)["verdict"] == "holds"
    # Without plans the pages are drawn again; no store is needed.
    page = (pages / "test-small.md").read_text()
    (pages / "test-small.md").unlink()
    code, printed, _ = study("results", "--to", pages)
    assert code == 0 and "4 files drawn again" in printed
    assert (pages / "test-small.md").read_text() == page


def test_methods_are_compared_at_equal_utility_or_the_page_says_why_not(
    plan_file: Callable[..., Path], pretended: list[Cell], tmp_path: Path
) -> None:
    measure = '{ kind = "utility", metric = "accuracy" }'
    entry = f"""
[[matched]]
first = {{ method = "leace" }}
second = {{ method = "SECOND" }}
axis = "method"
utility = {measure}
leakage = {measure}
"""
    path, out, pages = plan_file(), tmp_path / "out", tmp_path / "pages"
    # As many splits as a bootstrap needs.
    text = path.read_text().replace("[0, 1, 2]", str([*range(11)]))
    path.write_text(text + entry.replace("SECOND", "leace") + entry.replace("SECOND", "fx"))
    study(path, "--size", "small", "--out", out)
    code, _, errors = study("results", path, "--size", "small", "--out", out, "--to", pages)
    assert code == 0, errors
    page = (pages / "test-small.md").read_text()
    assert "At equal utility leace and fx cannot be compared: a task score of 0.850" in page
    # The control: what can be compared is; a method equals itself.
    assert "| leace | leace | stars | 0.850 |" in page and page.count("| leace | leace |") == 1
    path.write_text(text + entry.replace("axis", "axes"))
    code, _, errors = study("results", path, "--size", "small", "--out", out, "--to", pages)
    assert code == 2 and "did you mean 'axis'" in errors


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("leace", "leaze"), "did you mean 'leace'"),
        (("wordllama", "wordlama"), "did you mean 'wordllama'"),
        (('"reviews"', '"revews"'), "did you mean 'reviews'"),
        (("[0, 1, 2]", "[]"), "no cells"),
        (("[0, 1, 2]", str([*range(50_001)])), "--yes"),
    ],
)
def test_bad_plans_end_in_one_sentence_and_nothing_is_written(
    plan_file: Callable[..., Path], tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    path = plan_file()
    path.write_text(path.read_text().replace(*change))
    code, printed, errors = study(path, "--out", tmp_path / "out")
    assert code == 2 and not printed and sentence in errors
    assert errors.startswith("capelet: ") and errors.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_store_of_another_version_and_a_missing_cluster_end_in_one_sentence(
    plan_file: Callable[..., Path], tmp_path: Path
) -> None:
    from capelet.studies.store import ABOUT, Store

    Store(tmp_path / "store")
    about: dict[str, Any] = json.loads((tmp_path / "store" / ABOUT).read_text())
    (tmp_path / "store" / ABOUT).write_text(json.dumps({**about, "format": 9}))
    out = tmp_path / "out"
    code, _, errors = study(plan_file(), "--out", out, "--cells", tmp_path / "store")
    assert code == 2 and "format 9, this version reads 1" in errors and not out.exists()
    pytest.importorskip("ray", reason="the extra ray is not installed")
    address = ("--engine", "ray", "--address", "127.0.0.1:1")
    code, _, errors = study(plan_file(), "--out", out, *address)
    assert code == 2 and "no Ray cluster at '127.0.0.1:1'" in errors and not out.exists()
