"""Checkpoints: named after everything that decides a training, whole, and for their owner only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from capelet.errors import OutputError
from capelet.files import DiskError
from capelet.training import checkpoint
from capelet.training.checkpoint import Checkpoint, Parts, Store


def parts_of(seed: int) -> Parts:
    """A network after two steps of Adam, and two kinds of random numbers on their way."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimiser = torch.optim.Adam(network.parameters())
    for _ in range(2):
        optimiser.zero_grad()
        network(torch.randn(8, 3)).square().sum().backward()
        optimiser.step()
    generator, numpy = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    torch.rand(seed + 1, generator=generator)
    numpy.random(seed + 1)
    return Parts({"network": network}, {"network": optimiser}, {"torch": generator, "numpy": numpy})


def contents(parts: Parts) -> list[Any]:
    """Everything that a checkpoint must bring back, the next random numbers too."""
    state = parts.optimisers["network"].state_dict()["state"]
    generator, numpy = parts.generators["torch"], parts.generators["numpy"]
    assert isinstance(generator, torch.Generator) and isinstance(numpy, np.random.Generator)
    return [
        *[value.tolist() for value in parts.modules["network"].state_dict().values()],
        *[state[place][key].tolist() for place in sorted(state) for key in sorted(state[place])],
        torch.rand(3, generator=generator).tolist(),
        numpy.random(3).tolist(),
    ]


def test_everything_comes_back(tmp_path: Path) -> None:
    store = Store.in_folder(tmp_path / "inner", "some", "settings")
    saved = Checkpoint({"epoch": 3, "best": float("inf"), "history": [{"loss": 0.5}]}, {})
    parts, other = parts_of(1), parts_of(2)
    assert store.load(other) is None  # nothing there yet
    store.save(parts, saved)
    back = store.load(other)
    assert back is not None and back.numbers == saved.numbers and back.best == {}
    assert contents(other) == contents(parts)
    assert contents(parts_of(2)) != contents(parts_of(1))  # the control
    assert store.path.stat().st_mode & 0o077 == 0
    assert store.path.parent.stat().st_mode & 0o077 == 0
    store.forget()
    assert not store.path.exists()
    store.forget()  # twice is no error


def test_the_best_state_is_beside_the_last_one(tmp_path: Path) -> None:
    store, parts = Store.at(tmp_path / "file", "settings"), parts_of(1)
    best = {"0.weight": torch.full((4, 3), 7.0)}
    store.save(parts, Checkpoint({}, best))
    back = store.load(parts_of(2))
    assert back is not None and torch.equal(back.best["0.weight"], best["0.weight"])


def test_trainings_that_differ_in_anything_have_files_of_their_own(tmp_path: Path) -> None:
    def name(*settings: object) -> str:
        return Store.in_folder(tmp_path, "gr", *settings).path.name

    assert name(1.0, "data") == name(1.0, "data")
    names = {name(1.0, "data"), name(2.0, "data"), name(1.0, "other"), name("1.0d", "ata")}
    assert len(names) == 4
    assert all(item.startswith("gr-") and item.endswith(".safetensors") for item in names)


def test_a_file_of_the_users_choice_is_refused_and_one_of_the_cache_passed_over(
    tmp_path: Path,
) -> None:
    mine, parts = Store.at(tmp_path / "mine", "settings"), parts_of(1)
    mine.save(parts, Checkpoint({}, {}))
    with pytest.raises(OutputError, match="other settings or data"):
        Store.at(mine.path, "other").load(parts)
    cache = Store(mine.path, "other", refuses=False)
    assert cache.load(parts) is None
    for broken in (b"", b"no checkpoint", mine.path.read_bytes()[:100]):
        mine.path.write_bytes(broken)
        with pytest.raises(OutputError, match="is not a checkpoint"):
            mine.load(parts)
        assert cache.load(parts) is None


def test_a_crash_while_writing_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, parts = Store.at(tmp_path / "file", "settings"), parts_of(1)
    store.save(parts, Checkpoint({"epoch": 1}, {}))

    def fails(*arguments: Any, **others: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fails)
        with pytest.raises(DiskError, match="cannot write"):
            store.save(parts, Checkpoint({"epoch": 2}, {}))
    back = store.load(parts)
    assert back is not None and back.numbers == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [store.path]


def test_a_crash_costs_seconds_not_hours() -> None:
    assert 0 < checkpoint.INTERVAL <= 60
