"""Workers may be lost, late and out of order: draws come back in order, each block once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capelet.engines import Compute, Ending
from capelet.errors import OutputError
from capelet.ledger.store import Ledger
from capelet.mechanisms.vectors import Laplace
from capelet.release import PrivateEncoder
from capelet.release import drawing as drawing_module
from capelet.release.batch import Workers, encode
from capelet.release.partial_output import PartialOutput

ROWS, FILES = 6, 8


class Backwards:
    """An engine in this process: the task that came last ends first, and some are lost."""

    slots = 3

    def __init__(self, compute: Compute, losses: dict[int, int]) -> None:
        self.compute, self.losses = compute, dict(losses)
        self.tasks: list[Any] = []
        self.rows: Counter[int] = Counter()
        self.attempts: dict[int, list[str]] = {}

    def start(self, task: Any) -> None:
        assert len(self.tasks) < self.slots
        self.tasks.append(task)

    def wait(self, seconds: float) -> list[Ending]:
        task = self.tasks.pop()
        attempt = self.compute(task)
        self.attempts.setdefault(task.number, []).append(attempt.file)
        # Lost after it wrote: the file is there, and nobody hears of it.
        if self.losses.get(task.number, 0) > 0:
            self.losses[task.number] -= 1
            return [Ending(task, loss="its node is gone")]
        self.rows[task.number] += len(task.rows)
        return [Ending(task, attempt)]

    def close(self) -> None:
        self.tasks = []


def release(
    folder: Path, monkeypatch: pytest.MonkeyPatch, losses: dict[int, int], compute: Any = None
) -> Backwards:
    """Release files whose first two rows are the same in all, by such an engine."""
    (folder / "in").mkdir()
    random = np.random.default_rng(0)
    common = random.normal(size=(2, 4))
    for number in range(FILES):
        vectors = np.concatenate([common, random.normal(size=(ROWS - 2, 4))]).astype(np.float32)
        table = pa.table({"v": list(vectors), "who": ["ann"] * ROWS})
        pq.write_table(table, folder / "in" / f"{number}.parquet")
    (folder / "r.toml").write_text('[[steps]]\nstep = "laplace"\nepsilon = 2.0\n')
    engine = Backwards(compute or drawing_module.draw_attempt, losses)
    monkeypatch.setattr(drawing_module, "engine_of", lambda *settings: engine)
    encode(
        folder / "in", folder / "out", PrivateEncoder(Laplace(epsilon=2.0)), vectors="v",
        subject="who", ledger=folder / "l.db", repeats="same",
        workers=Workers(folder / "r.toml", "ray"),
    )  # fmt: skip
    return engine


def test_repeats_are_taken_out_before_the_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of blocks that are read ahead while the first is not settled yet."""
    engine = release(tmp_path, monkeypatch, {})
    assert engine.rows[0] == ROWS
    assert all(engine.rows[number] == ROWS - 2 for number in range(1, FILES))
    table = pq.read_table(tmp_path / "out")
    vectors = np.stack(table["vector"].to_pylist()).reshape(FILES, ROWS, 4)
    assert (vectors[:, :2] == vectors[0, :2]).all()
    assert len(np.unique(vectors.reshape(-1, 4), axis=0)) == 2 + FILES * (ROWS - 2)
    with Ledger(tmp_path / "l.db") as ledger:
        assert ledger.counts().releases == 2 + FILES * (ROWS - 2)


def test_draws_of_lost_workers_are_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    inner = PartialOutput.read_attempt

    def note(parts: PartialOutput, name: str) -> Any:
        names.append(name)
        return inner(parts, name)

    monkeypatch.setattr(PartialOutput, "read_attempt", note)
    engine = release(tmp_path, monkeypatch, {1: 2, 4: 1})
    assert [len(engine.attempts[number]) for number in (0, 1, 4)] == [1, 3, 2]
    # In order, and of each block the one that was reported: the last.
    assert names == [engine.attempts[number][-1] for number in range(FILES)]
    assert not list(tmp_path.glob("**/*.attempt"))


def test_a_block_that_kills_its_workers_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutputError, match=r"3 workers were lost over part 2 \(its node is gone\)"):
        release(tmp_path, monkeypatch, {2: 3})
    assert not (tmp_path / "out").exists()
    # What was settled stays; what was not is gone.
    assert not list((tmp_path / ".out.parts").glob("*.attempt"))


def test_attempts_that_the_driver_does_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw_elsewhere(task: Any) -> drawing_module.Attempt:
        return drawing_module.Attempt("00000000.0000000000000000.attempt")

    with pytest.raises(OutputError, match="all nodes share"):
        release(tmp_path, monkeypatch, {}, draw_elsewhere)
    with Ledger(tmp_path / "l.db") as ledger:
        assert ledger.counts().releases == 0


def test_an_error_of_a_worker_quotes_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*values: Any) -> None:
        raise ValueError("the secret text")

    monkeypatch.setattr(drawing_module, "write_attempt", fail)
    with pytest.raises(OutputError, match="type ValueError") as error:
        release(tmp_path, monkeypatch, {})
    assert "secret" not in str(error.value)
