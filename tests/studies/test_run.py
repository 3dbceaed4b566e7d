"""A run measures what is missing, keeps failures, tries again what was lost, and can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capelet.engines import Ending
from capelet.errors import CapeletError, OutputError
from capelet.findings import Finding, Findings
from capelet.reports.markdown import draw_markdown
from capelet.studies import run as module
from capelet.studies.cell import Cell, Encoding, Measurement, Outcome, compute
from capelet.studies.collection import Collection
from capelet.studies.page import study_page
from capelet.studies.plan import StudyPlan
from capelet.studies.run import Run, estimate, run_cells
from capelet.studies.status import Status, write_study
from capelet.studies.store import Store

pytest.importorskip("wordllama", reason="the extra words is not installed")
Make = Callable[..., StudyPlan]
MANY = {"corpus": ["tiny"], "seed": [0, 1, 2], "method": ["leace", "fx"]}


def pretend(task: Cell | Encoding) -> Outcome:
    """A measurement whose value follows from the inputs alone."""
    if isinstance(task, Encoding):
        return Outcome(None, 0.0)
    value = int(task.key[:8], 16) / 16**8
    row = Finding("utility", "topic", "accuracy", value, seed=task.seed)
    return Outcome(Measurement(Findings((row,))), 2.0)


class Inline:
    """An engine without processes; `answer` says how each task ends."""

    def __init__(self, answer: Callable[[Any], Outcome | str] = pretend, slots: int = 3) -> None:
        self.slots, self.answer = slots, answer
        self.tasks: list[Any] = []
        self.cells: list[Cell] = []

    def start(self, task: Any) -> None:
        assert len(self.tasks) < self.slots
        self.tasks.append(task)
        if isinstance(task, Cell):
            self.cells.append(task)

    def wait(self, seconds: float) -> list[Ending]:
        # The last one first: the order in which cells end must not matter.
        task = self.tasks.pop()
        answer = self.answer(task)
        return [Ending(task, loss=answer) if isinstance(answer, str) else Ending(task, answer)]

    def close(self) -> None:
        self.tasks = []


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("table.json", "table.md")}


def test_the_second_run_measures_nothing_and_has_the_same_table(plan: Make, tmp_path: Path) -> None:
    study, store = plan(axes=MANY), Store(tmp_path / "store")
    cells = study.cells()
    results, counts = run_cells(study, "full", cells, store, Inline())
    assert (counts.measurements, counts.hits, counts.failures) == (9, 0, 0)
    first = files_of(results.save(tmp_path / "one"))
    engine = Inline(slots=1)
    results, counts = run_cells(study, "full", cells, store, engine)
    assert (counts.measurements, counts.hits, engine.cells) == (0, 9, [])
    assert files_of(results.save(tmp_path / "two")) == first


def test_a_run_that_is_interrupted_is_taken_up_again(plan: Make, tmp_path: Path) -> None:
    study = plan(axes=MANY)
    cells = study.cells()
    whole, _ = run_cells(study, "full", cells, Store(tmp_path / "whole"), Inline())

    def stop(task: Any) -> Outcome:
        if isinstance(task, Cell) and len(engine.cells) > 4:
            raise KeyboardInterrupt
        return pretend(task)

    engine = Inline(stop)
    store = Store(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        run_cells(study, "full", cells, store, engine)
    assert 0 < len(list(store.all_keys())) < 9
    assert not list((tmp_path / "store" / "claims").iterdir())
    results, counts = run_cells(study, "full", cells, store, Inline())
    assert counts.hits > 0 and counts.measurements + counts.hits == 9
    assert results.document() == whole.document()


def test_failures_are_kept_and_tried_again_when_asked(plan: Make, tmp_path: Path) -> None:
    study, store = plan(axes=MANY), Store(tmp_path / "store")
    cells = study.cells()

    def fail(task: Any) -> Outcome:
        if isinstance(task, Cell) and task.inputs.get("method") == "fx" and task.seed == 1:
            return Outcome(None, 1.0, "there are too few rows")
        return pretend(task)

    results, counts = run_cells(study, "full", cells, store, Inline(fail))
    assert (counts.measurements, counts.failures) == (8, 1)
    ((item, reason),) = results.failures
    assert reason == "there are too few rows" and item.axes["method"] == "fx"
    assert "seed 1: there are too few rows" in draw_markdown(study_page(results))
    # Not again by itself: it would fail again.
    engine = Inline()
    assert run_cells(study, "full", cells, store, engine)[1].measurements == 0 and not engine.cells
    results, counts = run_cells(study, "full", cells, store, Inline(), retry=True)
    assert (counts.measurements, counts.failures, results.failures) == (1, 0, ())


def test_a_lost_cell_is_tried_again_and_a_fatal_one_three_times(plan: Make, tmp_path: Path) -> None:
    study, store = plan(axes=MANY), Store(tmp_path / "store")
    tries: dict[str, int] = {}

    def lose(task: Any) -> Outcome | str:
        if isinstance(task, Encoding):
            return pretend(task)
        tries[task.key] = tries.get(task.key, 0) + 1
        if task.inputs.get("method") == "fx" and task.seed == 0:
            return "its process was ended by the signal SIGKILL"
        # Every other cell loses its first worker.
        return pretend(task) if tries[task.key] > 1 else "its worker on the cluster was lost"

    results, counts = run_cells(study, "full", study.cells(), store, Inline(lose))
    assert (counts.measurements, counts.failures) == (8, 1)
    assert sorted(tries.values()) == [2] * 8 + [3]
    assert results.failures[0][1] == "its process was ended by the signal SIGKILL, 3 times"


def test_what_another_run_is_at_work_on_is_left_to_it(
    plan: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = plan(axes=MANY)
    cells = [item.cell for item in study.cells()]
    store, other = Store(tmp_path / "store"), Store(tmp_path / "store")
    assert other.claim(cells[0].key)

    def finish(seconds: float) -> None:
        outcome = pretend(cells[0])
        assert outcome.measurement is not None
        other.write(cells[0], outcome.measurement, 1.0)
        other.give_back(cells[0].key)

    monkeypatch.setattr(module.time, "sleep", finish)
    engine = Inline()
    counts = Run(store, engine).measure(cells)
    assert counts.measurements == 8 and cells[0].key not in [cell.key for cell in engine.cells]
    assert all(cell.key in store for cell in cells)


def test_a_full_disk_stops_the_run_and_leaves_whole_cells(
    plan: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import os

    study, store = plan(axes=MANY), Store(tmp_path / "store")
    fill = Store._fill

    def full(self: Store, *arguments: Any) -> None:
        fill(self, *arguments)
        if len(list(self.all_keys())) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Store, "_fill", full)
        with pytest.raises(OutputError, match="No space left on device"):
            run_cells(study, "full", study.cells(), store, Inline())
    assert len(list((tmp_path / "store" / "cells").iterdir())) == 4
    _, counts = run_cells(study, "full", study.cells(), store, Inline())
    assert (counts.hits, counts.measurements) == (4, 5)


def test_estimates_come_from_stored_times(plan: Make, tmp_path: Path) -> None:
    study, store = plan(axes=MANY), Store(tmp_path / "store")
    cells = [item.cell for item in study.cells()]
    assert estimate(store, cells) == (0.0, 9)
    outcome = pretend(cells[0])
    assert outcome.measurement is not None
    store.write(cells[0], outcome.measurement, 5.0)  # one of three unprotected cells
    assert estimate(store, cells) == (15.0, 6)


def test_status_tells_how_far_a_study_is(plan: Make, tmp_path: Path) -> None:
    study, store = plan(axes=MANY), Store(tmp_path / "store")
    cells = study.cells()
    write_study(tmp_path / "out", study, "full", cells, store)
    outcome = pretend(cells[0].cell)
    assert outcome.measurement is not None
    store.write(cells[0].cell, outcome.measurement, 4.0)
    store.write_failure(cells[1].cell, "no", 1.0)
    assert store.claim(cells[2].cell.key)
    state = Status.read(tmp_path / "out")
    assert (state.cells, state.stored_cells, len(state.failures), state.missing) == (9, 1, 1, 7)
    assert state.running == 1 and state.seconds_left == pytest.approx(28.0)
    store.close()
    assert Status.read(tmp_path / "out").running == 0
    with pytest.raises(OutputError, match="no study in"):
        Status.read(tmp_path)


def test_a_study_without_a_single_value_says_why(plan: Make, tmp_path: Path) -> None:
    study = plan()
    engine = Inline(lambda task: Outcome(None, 0.0, "there is no memory"))
    with pytest.raises(CapeletError, match="the first says: there is no memory"):
        run_cells(study, "full", study.cells(), Store(tmp_path / "store"), engine)


def test_real_cells_have_findings_of_one_seed_and_guesses(plan: Make, tmp_path: Path) -> None:
    """A leak that stands in the words is found before, and a linear attacker sees none after."""
    study, store = plan(axes={**MANY, "seed": [4], "method": ["leace"]}), Store(tmp_path / "store")
    cells = study.cells()
    results, _ = run_cells(study, "full", cells, store, Inline(compute, slots=1))
    scores = {
        (item.axes["method"], item.kind): item.value
        for item in results.rows
        if item.metric == "balanced_accuracy"
    }
    assert scores["unprotected", "attribute-inference"] > 0.8
    assert scores["leace", "attribute-inference"] < 0.7 < scores["leace", "utility"]
    findings = [store.read(item.cell.key) for item in cells]
    assert {row.seed for item in findings for row in item} == {4}
    # Nothing that time, place or chance decides.
    text = findings[1].to_json()
    assert "created" not in text and '"id"' not in text and "seconds" not in text
    # For whom the task works: the subgroups of fairness are rows, those of attackers are not.
    subgroups = {item.kind for item in results.rows if "subgroup" in item.axes}
    assert subgroups == {"fairness"}
    before, after = (store.guesses(item.cell.key).to_pydict() for item in cells)
    # The same victims before and after, so that they can be paired.
    assert before["victim"] == after["victim"] and before["truth"] == after["truth"]
    assert Collection.of(study, "full", cells, store).document() == results.document()
