"""A run of a study: what is missing is measured, everything else is read from the store.

The driver alone writes. It gives tasks to an engine, keeps what comes back, tries again what was
lost with a worker, and leaves to other runs what they are at work on. Killed at any moment, it
leaves whole cells; the next run goes on from there, and ends with the same table.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from capelet.engines import Ending, Engine
from capelet.errors import CapeletError
from capelet.interfaces import Progress, silent
from capelet.studies.cell import Cell, Encoding, canonical
from capelet.studies.collection import Collection
from capelet.studies.plan import PlannedCell, StudyPlan
from capelet.studies.sources import encodings_of
from capelet.studies.store import Store

# A cell that ended its process so often will end the next one too.
MOST_LOSSES = 3
# Seconds between two looks at what another run is doing.
_PATIENCE = 1.0


@dataclass
class Counts:
    """What a run did, for the one who waits for it."""

    measurements: int = 0
    hits: int = 0
    failures: int = 0
    seconds: list[float] = field(default_factory=list)


class Run:
    """The work on one list of cells, with one engine and one store."""

    def __init__(self, store: Store, engine: Engine, progress: Progress = silent) -> None:
        self._store, self._engine, self._progress = store, engine, progress
        self._losses: dict[str, int] = {}
        self.counts = Counts()

    def measure(self, cells: Sequence[Cell], retry: bool = False) -> Counts:
        """Measure every cell that the store does not have; failures too, if `retry`."""
        self._store.sweep_claims()
        missing = [cell for cell in cells if self._is_missing(cell, retry)]
        self.counts.hits = len(cells) - len(missing)
        try:
            self._encode(missing)
            self._measure(missing, len(cells), retry)
        finally:
            self._engine.close()
            self._store.close()
        self.counts.failures = sum(self._store.failure(cell.key) is not None for cell in cells)
        return self.counts

    def _is_missing(self, cell: Cell, retry: bool) -> bool:
        return cell.key not in self._store and (retry or self._store.failure(cell.key) is None)

    def _encode(self, cells: Sequence[Cell]) -> None:
        """The first stage: each text once through each encoder, into the cache."""
        work: dict[str, Encoding] = {}
        for cell in cells:
            rows, encoder = cell.inputs.get("rows"), cell.inputs.get("encoder")
            # What the cells then find missing, such as sentences or noised texts, they encode
            # themselves.
            if encoder is not None and not cell.inputs.get("sentences"):
                for task in encodings_of(cell.sources["corpus"], rows, encoder):
                    work.setdefault(canonical(asdict(task)), task)
        tasks = deque(work.values())
        total, count, running = len(tasks), 0, 0
        while tasks or running:
            while tasks and running < self._engine.slots:
                self._engine.start(tasks.popleft())
                running += 1
            for ending in self._engine.wait(_PATIENCE):
                running, count = running - 1, count + 1
                # A failure here is not the end: the cells will meet it again, and say so.
                block = ending.task
                assert isinstance(block, Encoding)
                if ending.loss is not None and self._may_try_again(canonical(asdict(block))):
                    tasks.append(block)
                    count -= 1
            self._progress("encoding", count, total)

    def _measure(self, cells: Sequence[Cell], total: int, retry: bool) -> None:
        waiting, running = deque(cells), 0
        self._progress("cells", self.counts.hits, total)
        while waiting or running:
            running += self._start(waiting, self._engine.slots - running, retry)
            endings = self._engine.wait(_PATIENCE) if running else []
            if not running:
                # All that is left is in the hands of another run.
                time.sleep(_PATIENCE)
            for item in endings:
                running -= 1
                if (again := self._keep(item)) is not None:
                    waiting.appendleft(again)
            self._progress("cells", total - len(waiting) - running, total)

    def _start(self, waiting: deque[Cell], free: int, retry: bool) -> int:
        """Start up to so many cells that no other run has; each is looked at once."""
        count = 0
        for _ in range(len(waiting)):
            if count >= free:
                break
            cell = waiting.popleft()
            if not self._store.claim(cell.key):
                waiting.append(cell)
                continue
            # Another run may have ended it since we made our list.
            if not self._is_missing(cell, retry and cell.key not in self._losses):
                self._store.give_back(cell.key)
                continue
            self._engine.start(cell)
            count += 1
        return count

    def _keep(self, ending: Ending) -> Cell | None:
        """Write what came of a cell; the cell itself where it is to be tried again."""
        cell = ending.task
        assert isinstance(cell, Cell)
        try:
            if ending.outcome is None:
                if self._may_try_again(cell.key):
                    return cell
                reason = f"{ending.loss}, {MOST_LOSSES} times"
                self._store.write_failure(cell, reason, 0.0)
            elif ending.outcome.measurement is not None:
                self._store.write(cell, ending.outcome.measurement, ending.outcome.seconds)
                self.counts.measurements += 1
                self.counts.seconds.append(ending.outcome.seconds)
            else:
                reason = ending.outcome.reason or "it gave nothing"
                self._store.write_failure(cell, reason, ending.outcome.seconds)
        finally:
            self._store.give_back(cell.key)
        return None

    def _may_try_again(self, key: str) -> bool:
        self._losses[key] = self._losses.get(key, 0) + 1
        return self._losses[key] < MOST_LOSSES


# ---- estimates -----------------------------------------------------------------------------------


def estimate(store: Store, cells: Sequence[Cell]) -> tuple[float, int]:
    """Seconds of one process for these cells from the times of stored ones; how many are unknown.

    A cell takes as long as stored ones of its kind, corpus, encoder, method and size did; where
    there are none, as those of its kind.
    """
    near: dict[str, list[float]] = {}
    for key in store.all_keys():
        meta = store.meta(key)
        for name in _likes(meta.identity["kind"], meta.identity["inputs"]):
            near.setdefault(name, []).append(meta.seconds)
    total, unknown = 0.0, 0
    for cell in cells:
        times = next((near[name] for name in _likes(cell.kind, cell.inputs) if name in near), None)
        total += fmean(times) if times else 0.0
        unknown += times is None
    return total, unknown


def _likes(kind: str, inputs: Any) -> tuple[str, ...]:
    """Descriptions of a cell, the closest first."""
    names = ("corpus", "rows", "encoder", "method", "attackers")
    return (canonical([kind, *(inputs.get(name) for name in names)]), kind)


def run_cells(
    plan: StudyPlan,
    size: str,
    cells: Sequence[PlannedCell],
    store: Store,
    engine: Engine,
    *,
    retry: bool = False,
    progress: Progress = silent,
) -> tuple[Collection, Counts]:
    """Measure what is missing of a study's cells; what they say, and what was done."""
    counts = Run(store, engine, progress).measure([item.cell for item in cells], retry)
    collection = Collection.of(plan, size, cells, store)
    if not collection.rows:
        raise CapeletError(
            f"no cell of the plan {plan.name!r} could be measured; the first says: "
            f"{collection.failures[0][1]}"
        )
    return collection, counts
