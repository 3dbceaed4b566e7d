"""A defence's training: repeatable, resumable to the bit, watchful; and frozen as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capelet.defences import Settings, fit
from capelet.defences.fitting import Part, Schedule, TrainingError, train
from capelet.defences.network import Body, Network
from capelet.defences.noise import twin
from capelet.defences.terms import Neighbourhood, Reversal, Task
from capelet.mechanisms import Laplace
from capelet.training import checkpoint
from capelet.training.networks import Residual, dense


def network_for(part: Part, lam: float = 1.0, seed: int = 0, epsilon: float | None = None) -> Any:
    torch.manual_seed(seed)
    assert part.task is not None
    before = twin(Laplace(epsilon)) if epsilon else None
    body = Body(dense([part.width, 16, 8]), "relu")
    return Network(body, [Task(8, part.task), Reversal(8, part.secrets, lam)], before)


def linear_network(part: Part, lam: float) -> Any:
    """Without a ReLU there is nowhere to hide: reversal can run off without end."""
    torch.manual_seed(0)
    assert part.task is not None
    body = Body(dense([part.width, 8]))
    return Network(body, [Task(8, part.task), Reversal(8, part.secrets, lam)])


@pytest.fixture
def small(world: Any) -> Part:
    part = world.part
    return replace(part, fit=part.fit[:400], tune=part.tune[:100])


def test_the_same_seed_gives_the_same_map_and_another_does_not(small: Part, quick: Any) -> None:
    first = train(network_for(small, epsilon=50.0), small, quick)
    again = train(network_for(small, epsilon=50.0), small, quick)
    other = train(network_for(small, epsilon=50.0), small, replace(quick, seed=1))
    assert first.map.digest == again.map.digest and first.losses == again.losses
    assert first.joint == again.joint
    assert other.map.digest != first.map.digest


@pytest.mark.parametrize("kind", ["relu", "softmax", "none", "residual", "noise"])
def test_a_frozen_map_is_the_network_it_was(small: Part, quick: Any, kind: str) -> None:
    """numpy against torch, to 1e-6 of the largest coordinate."""
    torch.manual_seed(0)
    assert small.task is not None
    residual = kind == "residual"
    width = small.width if residual else 8
    inner = Residual(width, 32) if residual else dense([small.width, 16, width])
    body = Body(inner, kind if kind in ("relu", "softmax") else "none")
    before = twin(Laplace(100.0)) if kind == "noise" else None
    frozen = train(Network(body, [Task(width, small.task)], before), small, quick).map
    with torch.no_grad():
        wanted = body(torch.tensor(small.vectors)).numpy()
    got = frozen(small.vectors)
    assert np.abs(got - wanted).max() <= 1e-6 * np.abs(wanted).max()
    assert np.ptp(got, axis=0).max() > 0


class Killed(Exception):
    """Stands for a process that was killed."""


def test_a_killed_training_goes_on_to_the_same_map(
    small: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    schedule = Schedule(epochs=8, patience=3, cooling=True, device="cpu")
    whole = train(network_for(small, epsilon=50.0), small, schedule)
    folder = tmp_path / "inner"
    seen: list[int] = []

    def dies(what: str, done: int, total: int) -> None:
        if done == 13:  # the first step of the fifth epoch of three steps
            raise Killed

    with pytest.raises(Killed):
        train(network_for(small, epsilon=50.0), small, schedule, folder, dies)
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o077 == 0 and folder.stat().st_mode & 0o077 == 0
    resumed = train(
        network_for(small, epsilon=50.0),
        small,
        schedule,
        folder,
        lambda what, done, total: seen.append(done),
    )
    assert seen[0] == 13  # four epochs were taken from the file
    assert resumed.map.digest == whole.map.digest
    assert resumed.losses == whole.losses and resumed.joint == whole.joint
    assert not file.exists()


@pytest.mark.parametrize("change", ["lambda", "epsilon", "seed", "data", "shape", "broken"])
def test_a_checkpoint_of_another_training_is_not_taken_up(
    small: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    schedule = Schedule(epochs=4, patience=None, device="cpu")

    def dies(what: str, done: int, total: int) -> None:
        if done == 7:  # the first step of the third epoch
            raise Killed

    with pytest.raises(Killed):
        train(network_for(small, epsilon=50.0), small, schedule, tmp_path, dies)
    (file,) = tmp_path.iterdir()
    if change == "broken":
        file.write_bytes(file.read_bytes()[:100])
    lam, epsilon = (2.0 if change == "lambda" else 1.0), (40.0 if change == "epsilon" else 50.0)
    part = replace(small, fit=small.fit[1:]) if change == "data" else small
    schedule = replace(schedule, seed=7) if change == "seed" else schedule

    def made() -> Any:
        network = network_for(part, lam, epsilon=epsilon)
        if change == "shape":
            torch.manual_seed(1)
            network.body = Body(dense([part.width, 12, 8]), "relu")
        return network

    fresh = train(made(), part, schedule)
    assert train(made(), part, schedule, tmp_path).map.digest == fresh.map.digest
    assert file.exists() == (change != "broken")  # another training's file is left alone


def test_trainings_that_differ_only_in_lambda_do_not_share_a_file(
    small: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side in one folder, both killed, both taken up: each ends where it would have."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    schedule = Schedule(epochs=4, patience=None, device="cpu")

    def settings(lam: float) -> Settings:
        return Settings(adversary_weight=lam, width=8, schedule=schedule)

    def dies(what: str, done: int, total: int) -> None:
        if done == 7:  # the first step of the third epoch
            raise Killed

    straight = {lam: fit("gr", small, settings(lam)).outcome.map.digest for lam in (1.0, 2.0)}
    assert straight[1.0] != straight[2.0]
    for lam in straight:
        with pytest.raises(Killed):
            fit("gr", small, settings(lam), tmp_path, dies)
    assert len(list(tmp_path.iterdir())) == 2
    for lam, digest in straight.items():
        seen: list[int] = []
        resumed = fit(
            "gr",
            small,
            settings(lam),
            tmp_path,
            lambda what, done, total, seen=seen: seen.append(done),
        )
        assert resumed.outcome.map.digest == digest and seen[0] == 7
    assert not list(tmp_path.iterdir())


def test_a_training_that_diverges_is_said_and_leaves_nothing(
    small: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    wild = Schedule(epochs=8, rate=1.0, patience=None, device="cpu")
    with pytest.raises(TrainingError, match=r"nothing was saved.*smaller adversary_weight="):
        train(linear_network(small, lam=1e6), small, wild, tmp_path)
    assert not list(tmp_path.iterdir())
    calm = replace(wild, rate=1e-3)
    assert (
        train(linear_network(small, lam=1.0), small, calm, tmp_path).losses[-1] < 10
    )  # the control


def test_a_loss_of_nan_is_divergence(small: Part, quick: Any, tmp_path: Path) -> None:
    network = network_for(small)
    with torch.no_grad():
        next(network.body.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingError, match="diverged in epoch 1"):
        train(network, small, quick)


def test_it_stops_when_the_task_no_longer_gains_and_keeps_the_best(small: Part) -> None:
    assert small.task is not None
    blind = np.random.default_rng(0).permutation(small.task.codes)
    noise = replace(small, task=replace(small.task, codes=blind), secrets=())
    schedule = Schedule(epochs=60, patience=2, device="cpu")
    torch.manual_seed(0)
    stopped = train(Network(Body(dense([12, 16, 8])), [Task(8, noise.task)]), noise, schedule)
    assert len(stopped.losses) < 30  # nothing to learn
    torch.manual_seed(0)
    going = train(
        Network(Body(dense([12, 16, 8])), [Task(8, noise.task)]),
        noise,
        replace(schedule, patience=None, epochs=20),
    )
    assert len(going.losses) == 20


def test_rows_without_a_secret_still_serve_the_task(world: Any, quick: Any) -> None:
    part = world.part
    line = part.secrets[0]
    codes = np.full_like(line.codes, -1)
    codes[:40] = line.codes[:40]
    missing = replace(part, secrets=(replace(line, codes=codes),))
    trained = train(network_for(missing), missing, replace(quick, batch=32))
    assert np.isfinite(trained.losses).all()
    assert world.reads("task", through=trained.map) > 0.85


def test_the_joint_score_is_the_balanced_accuracy_of_its_own_head(small: Part, quick: Any) -> None:
    network = network_for(small, lam=0.0)
    trained = train(network, small, quick)
    with torch.no_grad():
        features = network.body(torch.tensor(small.vectors[small.tune]))
        guess = network.terms[1].joint(features)["line"].argmax(dim=1).numpy()
    truth = small.secrets[0].codes[small.tune]
    wanted = np.mean([(guess[truth == code] == code).mean() for code in (0, 1)])
    assert trained.joint["line"] == pytest.approx(float(wanted))
    assert set(trained.joint) == {"line", "radius"}


def test_a_dead_coordinate_weighs_nothing(small: Part, quick: Any) -> None:
    frozen = train(network_for(small), small, quick).map
    moved = small.vectors.copy()
    moved[:, 7] += 1.0
    np.testing.assert_allclose(frozen(moved), frozen(small.vectors), atol=1e-6)


def test_angles_stay_where_neighbours_are_kept(small: Part) -> None:
    """A residual map without an adversary begins, and stays, as a scaling of all coordinates."""
    network = Network(Body(Residual(12, 16)), [Neighbourhood()])
    frozen = train(network, small, Schedule(epochs=2, patience=None, device="cpu")).map
    x = small.vectors / np.linalg.norm(small.vectors, axis=1, keepdims=True)
    y = frozen(small.vectors)
    y = y / np.linalg.norm(y, axis=1, keepdims=True)
    np.testing.assert_allclose(x @ x.T, y @ y.T, atol=0.02)
