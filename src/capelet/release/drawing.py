"""Who draws: this process, or workers that read their rows and load the recipe themselves.

Workers draw noise; what they write down is an *attempt*, and no more than that. The driver takes
the blocks in order, reads the first attempt that was reported for each, and settles it. A worker
that is lost, before or after it wrote, is replaced by a new task, which draws other noise; the file
of the lost one was reported by nobody and is deleted unread. So at most one attempt of a block is
ever settled, however often it was drawn.

Texts go neither into a task nor into what comes back: a scheduler may write either to a disk.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from capelet.data.folders import name_of
from capelet.engines import Engine, engine_of
from capelet.errors import CapeletError, OutputError, name_field
from capelet.files import expand_user
from capelet.interfaces import Vectors
from capelet.release.jobs import Job
from capelet.release.partial_output import PartialOutput, write_attempt
from capelet.release.recipe import PrivateEncoder, recipe_hash
from capelet.release.rows import Block, RowFormat, Span, digest_of, take

# Workers lost over one block before the run gives up: the block may be what kills them.
MOST_LOSSES = 3
# Blocks read ahead of the oldest that is not settled, for each slot: while one is slow, others go
# on; more would be more rows in memory.
_AHEAD = 2
_PAUSE = 60.0  # seconds that the driver waits at most before it looks again


@dataclass(frozen=True)
class Workers:
    """Who draws the blocks of a folder: each worker loads the recipe from where `recipe` says.

    The engine "local" with one worker is this very process.
    """

    recipe: Path | str
    engine: str = "local"
    count: int | None = None
    address: str | None = None

    @property
    def is_this_process(self) -> bool:
        return self.engine == "local" and self.count in (None, 1)


@dataclass(frozen=True, eq=False)
class Request:
    """A block, the names of its rows in the ledger if there is one, and the rows to be drawn."""

    block: Block
    names: Sequence[bytes]
    rows: Sequence[int]


class Drawer(Protocol):
    """Draws what is requested, and gives it back in the same order."""

    def draw(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Vectors]]: ...


def open_drawer(
    job: Job, parts: PartialOutput, workers: Workers | None
) -> AbstractContextManager[Drawer]:
    """The drawer for a job; an engine that cannot be had is refused before anything is read."""
    if workers is None:
        return nullcontext(InProcess(job.private))
    if job.folder is None:
        raise CapeletError(
            f"{name_field('engine')}, {name_field('workers')} and {name_field('address')} are for "
            "a folder of Parquet files; give the folder, or leave them out"
        )
    engine = engine_of(workers.engine, draw_attempt, workers.count, workers.address)
    if workers.is_this_process:
        return nullcontext(InProcess(job.private))
    # Absolute: a worker may be in another folder.
    recipe = expand_user(workers.recipe).absolute()
    return closing(OnEngine(engine, job.folder.reading, str(recipe), job.recipe_name, parts))


class InProcess:
    """Draws here, one request at a time."""

    def __init__(self, private: PrivateEncoder) -> None:
        self.private = private

    def draw(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Vectors]]:
        for request in requests:
            yield request, self._draw(request)

    def _draw(self, request: Request) -> Vectors:
        if not len(request.rows):
            return np.zeros((0, 0), dtype=np.float32)
        draws = self.private.release(request.block.take(request.rows)).vectors
        return np.asarray(draws, dtype=np.float32)


# ---- on an engine --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Task:
    """What a worker needs to draw a block: where the rows lie, and what they must be."""

    number: int
    span: Span
    reading: RowFormat
    rows: npt.NDArray[np.int64]
    digest: bytes
    recipe: str
    recipe_name: str
    folder: str


@dataclass(frozen=True)
class Attempt:
    """The name of the file that a worker wrote, or the problem that kept it from writing one."""

    file: str = ""
    problem: str = ""


def draw_attempt(task: Task) -> Attempt:
    """Draw the rows of a task and write them down; it raises nothing."""
    try:
        private = _private_encoder(task.recipe)
        # Another file at the same path, or another version of Capelet.
        if recipe_hash(private.recipe) != task.recipe_name:
            return Attempt(problem=f"the recipe {task.recipe!r} is another one there")
        values = take(task.reading.read(task.span)[0], task.rows.tolist())
        # Others than were checked and budgeted must not be drawn.
        if digest_of(values) != task.digest:
            name = name_of(task.span.file)
            return Attempt(problem=f"{name!r} was changed while it was read, or is another there")
        return Attempt(
            write_attempt(Path(task.folder), task.number, private.release(values).vectors)
        )
    except CapeletError as error:
        return Attempt(problem=error.sentence)
    except Exception as error:
        # Not its message, which may quote a text.
        return Attempt(problem=f"an error of the type {type(error).__name__}")


@lru_cache(maxsize=1)
def _private_encoder(recipe: str) -> PrivateEncoder:
    """Loaded once in each worker."""
    return PrivateEncoder.from_recipe(recipe)


class OnEngine:
    """Has workers draw, some blocks ahead; gives the draws back in order, each block once."""

    def __init__(
        self,
        engine: Engine,
        reading: RowFormat,
        recipe: str,
        recipe_name: str,
        parts: PartialOutput,
    ) -> None:
        self._engine, self._reading, self._parts = engine, reading, parts
        self._recipe, self._recipe_name = recipe, recipe_name
        self._ready: deque[Task] = deque()
        self._busy = 0
        self._attempts: dict[int, str] = {}
        self._losses: dict[int, int] = {}

    def close(self) -> None:
        self._engine.close()

    def draw(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Vectors]]:
        source = iter(requests)
        waiting: deque[Request] = deque()
        is_more = True
        while True:
            while is_more and len(waiting) < _AHEAD * self._engine.slots:
                request = next(source, None)
                if request is None:
                    is_more = False
                    break
                waiting.append(request)
                if len(request.rows):
                    self._ready.append(self._task(request))
            if not waiting:
                return
            self._start()
            first = waiting[0]
            if not len(first.rows) or first.block.number in self._attempts:
                # In order: what repeats a text of an earlier block is in the ledger by then.
                yield waiting.popleft(), self._read(first)
                # It is settled and written; another attempt at it is of no use to anybody.
                self._parts.drop_attempts(first.block.number)
            else:
                self._wait()

    def _task(self, request: Request) -> Task:
        block = request.block
        assert block.span is not None
        places = np.asarray([block.places[row] for row in request.rows], dtype=np.int64)
        return Task(
            block.number,
            block.span,
            self._reading,
            places,
            digest_of(block.take(request.rows)),
            self._recipe,
            self._recipe_name,
            str(self._parts.folder.absolute()),
        )

    def _start(self) -> None:
        while self._ready and self._busy < self._engine.slots:
            self._engine.start(self._ready.popleft())
            self._busy += 1

    def _wait(self) -> None:
        for result in self._engine.wait(_PAUSE):
            self._busy -= 1
            if result.loss is not None:
                self._replace(result.task, result.loss)
            elif result.outcome.problem:
                raise OutputError(
                    f"a worker could not draw part {result.task.number}: {result.outcome.problem}; "
                    "when that is mended, the same command goes on where it stopped"
                )
            else:
                # The first that is reported counts.
                self._attempts.setdefault(result.task.number, result.outcome.file)

    def _replace(self, task: Task, loss: str) -> None:
        """Give a lost task to another worker: it draws other noise, and the lost one's is void."""
        count = self._losses[task.number] = self._losses.get(task.number, 0) + 1
        if count >= MOST_LOSSES:
            raise OutputError(
                f"{count} workers were lost over part {task.number} ({loss}); see what ends them "
                "(memory?), and the same command goes on where it stopped"
            )
        self._ready.appendleft(task)

    def _read(self, request: Request) -> Vectors:
        if not len(request.rows):
            return np.zeros((0, 0), dtype=np.float32)
        draws = self._parts.read_attempt(self._attempts.pop(request.block.number))
        if draws is None or len(draws) != len(request.rows):
            raise OutputError(
                f"a worker wrote its draws where this machine does not see them; "
                f"{os.fspath(self._parts.target.parent)!r} must be a file system that all nodes "
                "share"
            )
        return draws
