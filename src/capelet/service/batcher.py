"""One thread draws, one settles: whatever waits when the encoder is free goes through it together.

There is no timer. A lone text is taken at once; under load the texts that came meanwhile share a
batch, which is what makes a text cost about what it costs in bulk: 1.1 to 1.2 ×, where a thread for
each request costs 2.3 × (fp32) and 1.5 × (int8), since each batch then has one text.

What was drawn is handed to a second thread, which settles all that lies there in one transaction
(group commit: one `fsync` for many requests) and only then lets the *stored* vectors out. A
request whose caller has gone drops out before its texts are drawn; once drawn it is settled, and a
retry finds it.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from capelet.errors import CapeletError
from capelet.interfaces import Vectors
from capelet.ledger.settlement import Order, Settlement
from capelet.ledger.store import Ledger
from capelet.release import PrivateEncoder
from capelet.service.errors import our_fault, store_down, unavailable
from capelet.service.metrics import Metrics
from capelet.service.settings import Bounds

# How many other texts may be drawn while a request is passed over, for better batches. An
# encoder runs texts of one length together, two of them at least (`encoders.batches`): a lone one
# is computed twice, and two cost hardly more each than many. Counted in texts and not in batches,
# since that is time. With 32 clients and 35 lengths, one text of ten is computed alone if it waits
# for 64 others, one of thirty for 128, one of fifty for 256: then it waits for two seconds, too.
_PATIENCE = 128
_SHARE = 32  # texts of one request before the next has its turn


@dataclass(eq=False)
class Job:
    """One request on its way: what is to be settled, and which of its rows are still to be drawn.

    `draws` holds what the store has already, by name; rows whose name is not stored are `waiting`,
    each name once, and the encoder's thread fills them in.
    """

    order: Order
    texts: Sequence[str]
    lengths: Sequence[int]
    waiting: list[int] = field(default_factory=list)
    # Whether its texts wait for others of their length, with which an encoder runs them together.
    gathers_lengths: bool = True
    passed_over: int = 0  # texts that were drawn meanwhile
    # Set by the event loop when the caller has gone; read before each draw.
    is_abandoned: bool = False
    draws: dict[bytes, Vectors] = field(default_factory=dict)
    future: Future[Settlement] = field(default_factory=Future)

    @property
    def size(self) -> int:
        return len(self.texts)

    def group(self, row: int) -> int:
        """Texts of one group are drawn together: those of one length, or else all of them."""
        return self.lengths[row] if self.gathers_lengths else 0

    def complete(self, width: int) -> Order:
        """The order with a vector for every row."""
        rows = [self.draws[name] for name in self.order.names]
        if any(len(row) != width for row in rows):
            raise CapeletError("a stored vector has another width than the recipe's")
        return replace(self.order, vectors=np.array(rows))

    def fail(self, error: Exception) -> None:
        # A caller who left has cancelled it.
        with suppress(Exception):
            self.future.set_exception(error)

    def succeed(self, settlement: Settlement) -> None:
        with suppress(Exception):
            self.future.set_result(settlement)


Piece = tuple[Job, int]  # a job and one of its rows


class Batcher:
    """A bounded queue in front of the encoder, and one in front of the store."""

    def __init__(
        self, private: PrivateEncoder, ledger: Ledger, bounds: Bounds, metrics: Metrics
    ) -> None:
        self._private, self._ledger = private, ledger
        self._bounds, self._metrics = bounds, metrics
        self._jobs: list[Job] = []
        self._texts = 0  # in all that was submitted and not yet answered
        self._change = threading.Condition()
        self._is_closing = False
        self._orders: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [
            # Daemons: a process that is told to end does, and the store's transaction is undone.
            threading.Thread(target=target, daemon=True)
            for target in (self._draw_forever, self._settle_forever)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting_texts(self) -> int:
        return self._texts

    @property
    def is_alive(self) -> bool:
        """Whether both threads work, and new requests are taken."""
        return not self._is_closing and all(thread.is_alive() for thread in self._threads)

    def submit(self, job: Job) -> Future[Settlement]:
        """Take a request in, or refuse it where too much waits; the future holds what is stored."""
        with self._change:
            if self._is_closing:
                raise unavailable("this gateway is shutting down; ask again", "shutting_down")
            # Whatever waits, one request fits when nothing does.
            if self._texts and self._texts + job.size > self._bounds.waiting_texts:
                raise unavailable(
                    "too many texts wait already; nothing was drawn; try again", "queue_full"
                )
            self._texts += job.size
            self._metrics.show_waiting(self._texts)
            if job.waiting:
                self._jobs.append(job)
                self._change.notify()
            else:
                self._orders.put(job)
        return job.future

    def close(self) -> None:
        """Refuse what is new, finish what is there, and end both threads."""
        with self._change:
            self._is_closing = True
            self._change.notify()
        for thread in self._threads:
            thread.join()

    # ---- the encoder's thread --------------------------------------------------------------------

    def _draw_forever(self) -> None:
        while (batch := self._wait_for_batch()) is not None:
            if batch:
                self._draw(batch)
        self._orders.put(None)

    def _wait_for_batch(self) -> list[Piece] | None:
        """The next texts to draw, as soon as there are any; None when all is over."""
        with self._change:
            while not self._jobs:
                if self._is_closing:
                    return None
                self._change.wait()
            for job in [job for job in self._jobs if job.is_abandoned]:
                self._jobs.remove(job)
                self._leave(job)
            batch = self._choose()
            for job, row in batch:
                job.waiting.remove(row)
            # A job leaves the list with its last text, and is settled after this batch.
            self._jobs = [job for job in self._jobs if job.waiting]
            return batch

    def _choose(self) -> list[Piece]:
        """Texts in the order of their requests, those of one length together, within the bounds.

        The oldest text brings others of its length along, and one without a partner waits for one,
        so a request may be passed over; when its patience is over it comes first.
        """
        jobs = sorted(self._jobs, key=lambda job: job.passed_over < _PATIENCE)
        # Partners are looked for among the next few batches, so that a long queue costs no time.
        pieces = _in_turn(jobs, 4 * self._bounds.batch_texts)
        by_group: dict[int, list[Piece]] = defaultdict(list)
        for job, row in pieces:
            by_group[job.group(row)].append((job, row))
        has_partners = any(len(group) > 1 for group in by_group.values())
        groups: list[list[Piece]] = []
        for job, row in pieces:
            group = by_group.pop(job.group(row), [])
            if len(group) > 1 or not has_partners or job.passed_over >= _PATIENCE:
                groups.append(group)
        candidates = [piece for group in groups[: self._bounds.batch_lengths] for piece in group]
        batch = candidates[: _fit(candidates, self._bounds)]
        drawn_jobs = {job for job, _ in batch}
        for job in jobs:
            job.passed_over = 0 if job in drawn_jobs else job.passed_over + len(batch)
        return batch

    def _draw(self, batch: Sequence[Piece]) -> None:
        self._metrics.count_batch(len(batch))
        jobs = list(dict.fromkeys(job for job, _ in batch))
        try:
            self._release(batch)
        except Exception:
            # One text that breaks the encoder must not take other people's requests with it.
            for job in jobs:
                self._release_alone(job, [piece for piece in batch if piece[0] is job])
        for job in jobs:
            if job.future.done():
                self._drop(job)
            elif not job.waiting:
                self._orders.put(job)

    def _release(self, batch: Sequence[Piece]) -> None:
        """Draw through the recipe, each name once: the average of two draws has half the noise."""
        first: dict[bytes, Piece] = {}
        for job, row in batch:
            first.setdefault(job.order.names[row], (job, row))
        texts = [job.texts[row] for job, row in first.values()]
        vectors = np.asarray(self._private.release(texts).vectors, dtype=np.float32)
        by_name = dict(zip(first, vectors, strict=True))
        for job, row in batch:
            name = job.order.names[row]
            job.draws[name] = by_name[name]

    def _release_alone(self, job: Job, pieces: Sequence[Piece]) -> None:
        try:
            self._release(pieces)
        except Exception:
            job.fail(our_fault())

    def _drop(self, job: Job) -> None:
        with self._change:
            if job in self._jobs:
                self._jobs.remove(job)
            self._leave(job)

    def _leave(self, job: Job) -> None:
        """Under the lock: its texts wait no longer."""
        self._texts -= job.size
        self._metrics.show_waiting(self._texts)
        job.future.cancel()

    # ---- the store's thread ----------------------------------------------------------------------

    def _settle_forever(self) -> None:
        is_over = False
        while not is_over:
            jobs: list[Job] = []
            for job in _all_of(self._orders):
                if job is None:
                    is_over = True
                else:
                    jobs.append(job)
            if jobs:
                self._settle(jobs)
                with self._change:
                    for job in jobs:
                        self._leave(job)

    def _settle(self, jobs: Sequence[Job]) -> None:
        """Charge and keep all of it in one transaction; only what came back is answered."""
        orders: list[tuple[Job, Order]] = []
        width = 0
        for job in jobs:
            width = width or len(next(iter(job.draws.values())))
            try:
                orders.append((job, job.complete(width)))
            except CapeletError:
                job.fail(our_fault())
        try:
            settlements = self._ledger.settle_all([order for _, order in orders])
        # Whatever it was, the transaction is undone or its fate unknown: nothing is answered, and
        # a retry finds what was stored.
        except Exception:
            for job, _ in orders:
                job.fail(store_down())
            return
        for (job, order), settlement in zip(orders, settlements, strict=True):
            if isinstance(settlement, Settlement):
                count = int(settlement.is_new.sum())
                epsilon = count * order.guarantee.epsilon
                self._metrics.count_settlement(count, job.size - count, epsilon)
                job.succeed(settlement)
            else:
                job.fail(settlement)


def _fit(pieces: Sequence[Piece], bounds: Bounds) -> int:
    """How many of the pieces, from the first, one batch may have; at least one."""
    tokens = 0
    for place, (job, row) in enumerate(pieces[: bounds.batch_texts]):
        tokens += job.lengths[row]
        if tokens > bounds.batch_tokens:
            return max(1, place)
    return min(len(pieces), bounds.batch_texts)


def _in_turn(jobs: Sequence[Job], most: int) -> list[Piece]:
    """Rows that wait, some of each job at a time: one long request must not hold up short ones."""
    pieces: list[Piece] = []
    longest = max((len(job.waiting) for job in jobs), default=0)
    for start in range(0, longest, _SHARE):
        for job in jobs:
            pieces += [(job, row) for row in job.waiting[start : start + _SHARE]]
            if len(pieces) >= most:
                return pieces
    return pieces


def _all_of(items: queue.SimpleQueue[Job | None]) -> Iterator[Job | None]:
    """Wait for one, then take whatever lies there."""
    yield items.get()
    with suppress(queue.Empty):
        while True:
            yield items.get_nowait()
