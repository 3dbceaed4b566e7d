"""Engines: processes that are lost are noticed, and what is not there is refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capelet.engines import Processes, engine_of
from capelet.errors import CapeletError
from capelet.studies.cell import Cell, compute
from capelet.studies.plan import StudyPlan
from capelet.studies.run import run_cells
from capelet.studies.store import Store

pytest.importorskip("wordllama", reason="the extra words is not installed")


def test_processes_measure_and_a_killed_one_is_replaced(
    plan: Callable[..., StudyPlan], tmp_path: Path
) -> None:
    study = plan(axes={"corpus": ["tiny"], "seed": [0], "method": ["leace"]})
    store, kills = Store(tmp_path / "store"), []

    class Deadly(Processes):
        def start(self, task: Any) -> None:
            super().start(task)
            if isinstance(task, Cell) and not kills:
                ((worker, _),) = self._busy.values()
                os.kill(worker.process.pid, signal.SIGKILL)
                kills.append(task)

    results, counts = run_cells(study, "full", study.cells(), store, Deadly(compute, 1))
    assert len(kills) == 1 and (counts.measurements, counts.failures) == (2, 0)
    assert not results.failures


def test_a_lost_process_says_how_it_was_lost(plan: Callable[..., StudyPlan]) -> None:
    engine = Processes(compute, 1)
    cell = plan().cells()[0].cell
    engine.start(cell)
    ((worker, _),) = engine._busy.values()
    os.kill(worker.process.pid, signal.SIGKILL)
    ended = []
    while not ended:
        ended = engine.wait(5.0)
    engine.close()
    assert ended[0].outcome is None and ended[0].task.key == cell.key
    assert ended[0].loss == "its process was ended by the signal SIGKILL"


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(CapeletError, match="did you mean 'ray'"):
        engine_of("rai", compute)
    with pytest.raises(CapeletError, match="at least 1"):
        engine_of("local", compute, 0)
    with pytest.raises(CapeletError, match="Ray cluster"):
        engine_of("local", compute, address="127.0.0.1:6379")


def test_no_cluster_at_the_address_is_said_at_once() -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with pytest.raises(CapeletError, match=r"no Ray cluster at '127\.0\.0\.1:1'"):
        engine_of("ray", compute, address="127.0.0.1:1")
    with pytest.raises(CapeletError, match="no Ray cluster at 'nonsense'"):
        engine_of("ray", compute, address="nonsense")
