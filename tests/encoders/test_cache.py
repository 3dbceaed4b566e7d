"""The cache never encodes twice, survives a kill, is shared by processes and stays private."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from capelet.encoders import cache as cache_module
from capelet.encoders import clear_cache, load, with_cache
from capelet.interfaces import Encoder, Progress, Vectors, silent


class Counting:
    """A toy encoder that remembers what it was asked for."""

    name = "counting"
    backend = "numpy"
    dimension = 4
    fingerprint = "c0" * 32

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        self.asked.extend(texts)
        progress("encoding", len(texts), len(texts))
        return np.array([[len(t), t.count("a"), 1, 0.5] for t in texts], dtype=np.float32)

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(texts), dtype=bool)


def test_nothing_is_encoded_twice_and_the_order_is_kept(tmp_path: Path) -> None:
    inner = Counting()
    encoder = with_cache(inner, tmp_path)
    assert isinstance(encoder, Encoder)
    first = encoder.encode(["a", "bb", "a", "ccc"])
    assert inner.asked == ["a", "bb", "ccc"]
    again = with_cache(inner, tmp_path).encode(["ccc", "dd", "a"])
    assert inner.asked == ["a", "bb", "ccc", "dd"]
    np.testing.assert_array_equal(again[[0, 2]], first[[3, 0]])
    assert again.dtype == np.float32
    assert encoder.encode([]).shape == (0, 4)
    assert encoder.dimension == 4


def test_another_fingerprint_is_another_cache(tmp_path: Path) -> None:
    one, two = Counting(), Counting()
    two.fingerprint = "d1" * 32
    with_cache(one, tmp_path).encode(["a"])
    with_cache(two, tmp_path).encode(["a"])
    assert two.asked == ["a"]


def test_cached_texts_count_as_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "BLOCK", 2)
    encoder = with_cache(Counting(), tmp_path)
    encoder.encode(["a", "b", "c"])
    seen: list[tuple[int, int]] = []
    encoder.encode([*"abcdefg"], lambda what, done, total: seen.append((done, total)))
    assert seen == [(5, 7), (7, 7)]
    encoder.encode([*"abc"], lambda what, done, total: seen.append((done, total)))
    assert seen[-1] == (3, 3)


def test_it_equals_the_encoder_itself(tmp_path: Path) -> None:
    texts = ["one text", "and another, with café", "half a pair \ud83d", ""]
    plain = load("wordllama")
    for _ in range(2):
        np.testing.assert_array_equal(
            with_cache(plain, tmp_path).encode(texts), plain.encode(texts)
        )


def test_only_the_owner_can_read_it_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    before = os.umask(0)
    try:
        with sqlite3.connect(":memory:"):
            encoder = with_cache(Counting(), folder)
            with encoder._store() as store:  # open, so that -wal and -shm exist
                store.write([b"k"], np.ones((1, 4), dtype=np.float32))
                modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
    finally:
        os.umask(before)
    assert {name.rpartition("sqlite")[2] for name in modes} == {"", "-wal", "-shm"}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_no_text_is_in_the_files(tmp_path: Path) -> None:
    with_cache(Counting(), tmp_path).encode(["a secret sentence about Anna"])
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())


def test_a_broken_file_is_set_aside_with_a_warning(tmp_path: Path) -> None:
    inner = Counting()
    encoder = with_cache(inner, tmp_path)
    encoder.encode(["a"])
    (tmp_path / f"{inner.fingerprint}.sqlite").write_bytes(b"this is no database" * 400)
    with pytest.warns(UserWarning, match="broken and has been set aside"):
        assert encoder.encode(["a"])[0, 0] == 1
    assert inner.asked == ["a", "a"]
    encoder.encode(["a"])
    assert inner.asked == ["a", "a"]
    assert len(list(tmp_path.glob("*.broken-*"))) == 1


def test_a_page_damaged_inside_is_found_too(tmp_path: Path) -> None:
    inner = Counting()
    encoder = with_cache(inner, tmp_path)
    texts = [f"text {i}" for i in range(3000)]
    encoder.encode(texts)
    path = tmp_path / f"{inner.fingerprint}.sqlite"
    content = bytearray(path.read_bytes())
    content[4096:-4096] = os.urandom(len(content) - 8192)
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="set aside"):
        vectors = encoder.encode(texts)
    np.testing.assert_array_equal(vectors, Counting().encode(texts))


def test_a_cache_that_cannot_be_written_is_only_a_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.warns(UserWarning, match="going on without it"):
        vectors = with_cache(Counting(), blocked / "vectors").encode(["a"])
    assert vectors.shape == (1, 4)


def test_clear_removes_every_vector_and_nothing_else(tmp_path: Path) -> None:
    with_cache(Counting(), tmp_path).encode(["a"])
    (tmp_path / "notes.txt").write_text("mine")
    assert clear_cache(tmp_path) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert clear_cache(tmp_path) == 0
    assert clear_cache(tmp_path / "nowhere") == 0


def test_ten_thousand_vectors_are_read_in_half_a_second(tmp_path: Path) -> None:
    class Wide(Counting):
        dimension = 384

        def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
            return np.ones((len(texts), 384), dtype=np.float32)

    texts = [f"text {i}" for i in range(10_000)]
    encoder = with_cache(Wide(), tmp_path)
    encoder.encode(texts)
    cpu = time.process_time()  # not wall time: other tests may share the cores
    assert encoder.encode(texts).shape == (10_000, 384)
    assert time.process_time() - cpu < 0.5


SLOW = """
import sys, time
from pathlib import Path
from capelet.encoders import cache, load
cache.BLOCK = 16
inner = load("wordllama")
class Slow:
    name, backend, dimension = inner.name, inner.backend, inner.dimension
    fingerprint = inner.fingerprint
    truncated = inner.truncated
    def encode(self, texts, progress):
        time.sleep(float(sys.argv[2]))
        print("block", flush=True)
        return inner.encode(texts, progress)
texts = [f"text number {i}" for i in range(int(sys.argv[3]))]
cache.with_cache(Slow(), Path(sys.argv[1])).encode(texts)
"""


def stored(folder: Path) -> int:
    (path,) = folder.glob("*.sqlite")
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM vectors").fetchone()[0])
    finally:
        connection.close()


def started(folder: Path, pause: float, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SLOW, str(folder), str(pause), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_run_loses_at_most_one_block(tmp_path: Path) -> None:
    with started(tmp_path, 0.2, 16 * 50) as process:
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.readline() == "block\n"
        process.send_signal(signal.SIGKILL)  # somewhere in or just after the fourth block
        further = process.stdout.read().count("block")
    whole = stored(tmp_path) / 16
    assert whole in {3 + further, 4 + further}  # all but, at most, the one that was under way
    texts = [f"text number {i}" for i in range(100)]
    again = with_cache(load("wordllama"), tmp_path).encode(texts)
    np.testing.assert_array_equal(again, load("wordllama").encode(texts))


def test_two_processes_share_one_cache(tmp_path: Path) -> None:
    with started(tmp_path, 0.01, 400) as one, started(tmp_path, 0.01, 400) as two:
        one.communicate(timeout=60)
        two.communicate(timeout=60)
    assert (one.returncode, two.returncode) == (0, 0)
    assert stored(tmp_path) == 400
