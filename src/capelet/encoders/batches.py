"""Batches in which a text's vector does not depend on the texts beside it, to the last bit.

A mechanism's ε is about the text that is changed; if that text moved the bits of its neighbours'
vectors, they would tell of it too. A network's products are not exact (`numerics` is for what comes
after), and three things moved bits: padding (sums over more numbers are rounded elsewhere), too few
rows or tokens in a product (small ones take another path), and threads inside a product. So texts
of one length travel together, copies of them fill a batch up to its least size, and work is spread
over the cores by batches, each on one thread: as fast as one batch on all threads, and faster where
other work wants the cores.

That neighbours then change nothing is a property of the machine's kernels, seen and not proven. So
every loaded model is asked (`keeps_bits`); if a probe's bits move, every text travels alone there.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from capelet.interfaces import Progress, Vectors

if TYPE_CHECKING:
    import torch

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
Run = Callable[[Sequence[Any]], Vectors]


@dataclass(frozen=True)
class BatchSize:
    """How much one batch holds: about `budget` tokens, and no less than its least size.

    `spare` copies stand behind the rows, for networks whose last place is computed otherwise. A
    `fixed` size is the same for every batch of a length, for devices that choose a kernel by shape.
    """

    budget: int
    rows: int = 2
    tokens: int = 0
    spare: int = 0
    fixed: bool = False

    def least(self, length: int) -> int:
        """The fewest rows of texts of this length."""
        enough = max(self.rows, -(-self.tokens // length))
        return self.most(length) if self.fixed else enough

    def most(self, length: int) -> int:
        """The rows of a full batch of this length."""
        return max(self.rows, -(-self.tokens // length), self.budget // length)

    def batches(self, lengths: Ints) -> list[Rows]:
        """Row numbers in batches of one length, the longest first; who has no tokens is in none.

        >>> [batch.tolist() for batch in BatchSize(4).batches(np.array([2, 9, 2, 0, 2]))]
        [[1], [0, 2, 4]]
        """
        batches: list[Rows] = []
        for length in np.unique(lengths[lengths > 0])[::-1]:
            rows = np.flatnonzero(lengths == length)
            most, least = self.most(int(length)), self.least(int(length))
            # What would be left over, too little for a batch, goes with the rows before it.
            edges = [
                edge
                for edge in range(most, len(rows), most)
                if self.fixed or len(rows) - edge >= least
            ]
            batches += np.split(rows, edges)
        return batches

    def run(self, run: Run, items: Sequence[Any], length: int) -> Vectors:
        """The vectors of items of one length, with copies where they are too few."""
        count = max(len(items), self.least(length)) + self.spare
        return run([items[row % len(items)] for row in range(count)])[: len(items)]


def fill_in_chunks(
    fill: Callable[[Any, Vectors], None], items: Any, dimension: int, chunk: int, progress: Progress
) -> Vectors:
    """The vectors of all items, `chunk` of them at a time: `fill` puts theirs into its place."""
    vectors = np.zeros((len(items), dimension), dtype=np.float32)
    for start in range(0, len(items), chunk):
        stop = min(start + chunk, len(items))
        fill(items[start:stop], vectors[start:stop])
        progress("encoding", stop, len(items))
    return vectors


def encode_batches(
    run: Run,
    items: Sequence[Any],
    lengths: Ints,
    size: BatchSize | None,
    into: Vectors,
    threads: Workers,
) -> None:
    """Fill `into` with the vector of each item, in batches or, where `size` is None, each alone."""
    if size is None:
        batches = [np.array([row]) for row in np.argsort(-lengths, kind="stable") if lengths[row]]
    else:
        batches = size.batches(lengths)

    def encode(rows: Rows) -> None:
        some = [items[row] for row in rows]
        # Each batch has rows of its own, so the threads need no lock.
        into[rows] = run(some) if size is None else size.run(run, some, int(lengths[rows[0]]))

    threads.share(encode, batches)


def keeps_bits(run: Run, probe: Any, other: Any, length: int, size: BatchSize) -> bool:
    """Whether a probe has one vector first, in the middle and last, among few and among many.

    `other` is another item of the same length.
    """
    least, most = size.least(length), max(7, size.most(length))
    vectors = []
    for count in dict.fromkeys((1, least + 1, 7, most)):
        for place in dict.fromkeys((0, count // 2, count - 1)):
            items = [probe if row == place else other for row in range(count)]
            vectors.append(size.run(run, items, length)[place])
    return all(np.array_equal(vectors[0], vector) for vector in vectors)


def torch_keeps_bits(
    run: Run, probes: Iterable[tuple[Any, Any, int]], size: BatchSize, device: torch.device
) -> bool:
    """`keeps_bits` of each (probe, other, length), asked in a thread as torch will encode in."""
    with torch_workers(device) as threads:
        keeps = threads.pool.submit(lambda: all(keeps_bits(run, *item, size) for item in probes))
        return keeps.result()


@dataclass(frozen=True)
class Workers:
    """Threads that take batch after batch; with `caller` the calling thread is one of them."""

    pool: ThreadPoolExecutor
    count: int
    caller: bool

    def share(self, run: Callable[[Rows], None], batches: Sequence[Rows]) -> None:
        """Run every batch once; an error in a thread is raised here."""
        turns, end = iter(batches), threading.Event()

        def take_turns() -> None:
            try:
                # Taking the next item of a list is one step of the interpreter: it needs no lock.
                for rows in turns:
                    if end.is_set():
                        return
                    run(rows)
            except BaseException:
                end.set()
                raise

        # One task for each thread: with a task for each batch, a few short texts cost 5 % more.
        count = min(self.count, len(batches)) - self.caller
        helpers = [self.pool.submit(take_turns) for _ in range(count)]
        try:
            if self.caller:
                take_turns()
            for helper in helpers:
                helper.result()
        finally:
            # Also where somebody pressed Ctrl-C while this thread waited for the others.
            end.set()


@contextmanager
def workers() -> Iterator[Workers]:
    """One thread for each core, of an engine that keeps each batch on the thread that runs it."""
    with ThreadPoolExecutor(cores()) as pool:
        yield Workers(pool, cores(), caller=True)


@contextmanager
def torch_workers(device: torch.device) -> Iterator[Workers]:
    """One thread for each core, in which torch starts no threads of its own; one for a GPU."""
    import torch

    count = cores() if device.type == "cpu" else 1
    with (
        _TORCH_THREADS,
        ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        yield Workers(pool, count, caller=False)


class _TorchThreads:
    """The host's number of threads, put back when the last of those who encode has ended.

    Torch keeps the number for each thread, and another one for threads that are still to come:
    that of the calling threads does not change, and the other is what the first of them found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 1

    def __enter__(self) -> None:
        import torch

        with self._lock:
            if not self._users:
                self._before = torch.get_num_threads()
            self._users += 1

    def __exit__(self, *_: object) -> None:
        import torch

        with self._lock:
            self._users -= 1
            if not self._users:
                torch.set_num_threads(self._before)


_TORCH_THREADS = _TorchThreads()


@cache
def cores() -> int:
    """Physical cores this process may use; looked up once, for it takes as long as a short text."""
    import joblib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where the physical ones cannot be counted, all count
        return int(joblib.cpu_count(only_physical_cores=True))
