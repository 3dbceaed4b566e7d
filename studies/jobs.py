"""What scripts of many hours share: processes of one core each, and a file of lines to go on from.

Every line of the file is one measurement, written when it is ready; a second run makes only what is
missing.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

Row = dict[str, Any]
Job = TypeVar("Job")


def read_rows(path: Path) -> list[Row]:
    """The measurements that are there."""
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def append_rows(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    """Each measurement, once its line is written."""
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            yield row


def run_jobs(
    measure: Callable[[Job], Row], jobs: Sequence[Job], workers: int, deadline: float = math.inf
) -> Iterator[Row]:
    """Each measurement as it is ready; after the deadline nothing new begins."""
    if workers == 1:
        yield from (measure(job) for job in jobs if time.monotonic() < deadline)
        return
    # Read by the numerical libraries when a process begins.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting: set[Future[Row]] = set()
        left = list(jobs)
        while left or waiting:
            while left and len(waiting) <= workers and time.monotonic() < deadline:
                waiting.add(pool.submit(measure, left.pop(0)))
            if not waiting:
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
