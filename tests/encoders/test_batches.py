"""Batches of one length, with copies where they are small, and probes that find a moved bit."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from capelet.encoders.batches import BatchSize, encode_batches, keeps_bits, torch_workers, workers
from capelet.interfaces import Vectors

SIZES = [BatchSize(64), BatchSize(64, tokens=40), BatchSize(256, rows=16, spare=1)]
SIZES += [BatchSize(128, fixed=True)]


def run(items: Sequence[float]) -> Vectors:
    return np.array(items, dtype=np.float32)[:, None]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_batches_are_of_one_length_hold_every_row_once_and_are_not_too_large(
    size: BatchSize,
) -> None:
    lengths = np.random.default_rng(0).integers(0, 40, 500)
    batches = size.batches(lengths)
    assert all(len(set(lengths[rows])) == 1 for rows in batches)
    rows = np.concatenate(batches)
    assert np.array_equal(np.sort(rows), np.flatnonzero(lengths > 0))
    for some in batches:
        length = int(lengths[some[0]])
        assert len(some) < size.most(length) + size.least(length)
    assert size.batches(np.array([0, 0])) == []


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_run_is_never_given_too_few_rows_and_copies_are_not_returned(size: BatchSize) -> None:
    counts: list[int] = []

    def counted(items: Sequence[float]) -> Vectors:
        counts.append(len(items))
        return run(items)

    for count in (1, 2, 5, 40):
        vectors = size.run(counted, list(range(count)), 3)
        assert vectors.ravel().tolist() == list(range(count))
    assert min(counts) >= size.least(3) + size.spare
    if size.fixed:
        assert len(set(counts[:3])) == 1


@pytest.mark.parametrize("size", [*SIZES, None], ids=str)
def test_every_row_comes_to_its_place_and_one_without_tokens_keeps_its_zero(
    size: BatchSize | None,
) -> None:
    lengths = np.random.default_rng(1).integers(0, 9, 300)
    into = np.zeros((300, 1), dtype=np.float32)
    with workers() as threads:
        encode_batches(run, np.arange(1, 301).tolist(), lengths, size, into, threads)
    expected = np.where(lengths > 0, np.arange(1, 301), 0)
    assert np.array_equal(into.ravel(), expected)


def test_an_error_in_a_thread_is_raised() -> None:
    def fail(items: Sequence[float]) -> Vectors:
        raise ValueError(threading.current_thread().name)

    into = np.zeros((20, 1), dtype=np.float32)
    with workers() as threads, pytest.raises(ValueError):
        encode_batches(fail, list(range(20)), np.arange(1, 21), BatchSize(4), into, threads)


def test_the_first_error_ends_the_others() -> None:
    """Whoever presses Ctrl-C does not wait for the batches that nobody has begun."""
    counts: list[int] = []

    def fail(items: Sequence[float]) -> Vectors:
        counts.append(1)
        raise KeyboardInterrupt

    into = np.zeros((200, 1), dtype=np.float32)
    with workers() as threads, pytest.raises(KeyboardInterrupt):
        encode_batches(fail, list(range(200)), np.arange(1, 201), BatchSize(4), into, threads)
    assert len(counts) <= threads.count


def test_those_who_encode_at_once_leave_torch_the_threads_that_it_had() -> None:
    def number() -> int:
        """What a thread has that begins now."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    def encode(is_inside: threading.Event, is_over: threading.Event) -> None:
        with torch_workers(torch.device("cpu")) as own:
            assert own.pool.submit(torch.get_num_threads).result() == 1
            is_inside.set()
            assert is_over.wait(60)

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    events = [(threading.Event(), threading.Event()) for _ in range(2)]
    try:
        with ThreadPoolExecutor(2) as pool:
            for inside, over in events:
                pool.submit(encode, inside, over)
                assert inside.wait(60)
            # The first ends first: the second found the number of the first.
            for _, over in events:
                over.set()
        assert number() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("by", ["count", "place", "company"])
def test_a_probe_finds_what_moves_by_count_by_place_and_by_company(by: str) -> None:
    def moving(items: Sequence[float]) -> Vectors:
        vectors = run(items)
        if by == "count":
            vectors *= np.float32(1 + 1e-6 * len(items))
        elif by == "place":
            vectors[-1] *= np.float32(1 + 1e-6)
        else:
            vectors += np.float32(1e-6) * vectors.max()
        return vectors

    size = BatchSize(64)
    assert not keeps_bits(moving, 1.0, 5.0, 3, size)
    assert keeps_bits(run, 1.0, 5.0, 3, size)
