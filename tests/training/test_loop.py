"""The one loop, on a learner small enough to know the answer: x falls by a tenth in every step."""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import capelet
from capelet.errors import OutputError
from capelet.training import loop
from capelet.training.checkpoint import Parts, Store
from capelet.training.loop import (
    Descent,
    Listeners,
    Position,
    StoppingRule,
    TrainingError,
    run,
    warm_cosine,
)

STEPS = 4


class Falling:
    """A number that shrinks, with a scripted loss on held-back rows for each epoch."""

    names = ("loss", "twice")
    steps_per_epoch = STEPS

    def __init__(self, watched: Sequence[float] = (), broken: int | None = None) -> None:
        self.network = nn.Linear(1, 1, bias=False)
        self.random = np.random.default_rng(0)
        with torch.no_grad():
            self.network.weight.fill_(1.0)
        self.parts = Parts({"network": self.network}, {}, {"random": self.random})
        self.watched, self.broken = list(watched), broken
        self.positions: list[Position] = []
        self.epochs = 0

    @property
    def value(self) -> float:
        return float(self.network.weight.detach())

    def batches(self, epoch: int) -> list[float]:
        self.epochs = epoch + 1
        return [0.9] * self.steps_per_epoch

    def step(self, batch: float, position: Position) -> Tensor:
        self.positions.append(position)
        with torch.no_grad():
            self.network.weight.mul_(batch + 1e-3 * self.random.random())
        loss = math.nan if position.step == self.broken else self.value
        return torch.tensor([loss, 2 * loss])

    def loss(self, means: Mapping[str, float]) -> float | None:
        return means["loss"]

    def watch(self) -> tuple[str, float] | None:
        return ("held_back", self.watched[self.epochs - 1]) if self.watched else None


def test_every_step_knows_where_it_is_and_the_history_holds_the_means() -> None:
    learner, told, steps = Falling(), [], []
    rows: list[dict[str, float]] = []
    course = run(
        learner,
        StoppingRule(3),
        listeners=Listeners(lambda *call: told.append(call), steps.append, rows.append),
    )
    wanted = [Position(n // STEPS, n % STEPS, n) for n in range(3 * STEPS)]
    assert learner.positions == wanted and steps == list(range(1, 13))
    assert told[0] == ("training", 1, 12) and told[-1] == ("training", 12, 12)
    assert course.history == rows and [row["epoch"] for row in rows] == [1, 2, 3]
    assert rows[0]["twice"] == pytest.approx(2 * rows[0]["loss"])
    assert 0.9**4 < rows[0]["loss"] < 0.9


def test_it_stops_without_gain_and_puts_the_best_state_back() -> None:
    watched = [3.0, 2.0, 1.0, 1.5, 1.2, 0.1]
    best = Falling()
    run(best, StoppingRule(3))
    learner = Falling(watched)
    course = run(learner, StoppingRule(6, patience=2))
    assert course.epoch == 5 and course.best == 1.0
    assert learner.value == pytest.approx(best.value)
    patient = Falling(watched)
    assert (
        run(patient, StoppingRule(6, patience=3)).best == 0.1
    )  # the control: it waited long enough
    last = Falling(watched)
    run(last, StoppingRule(5, restore_best=False))
    assert last.value < learner.value


def test_a_gain_too_small_is_none() -> None:
    watched = [1.0, 1.0 - 1e-6, 1.0 - 2e-6, 1.0 - 3e-6]
    assert run(Falling(watched), StoppingRule(4, patience=2, least_gain=1e-5)).epoch == 3
    assert run(Falling(watched), StoppingRule(4, patience=2)).epoch == 4


class Killed(Exception):
    """Stands for a process that was killed."""


def test_a_killed_training_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    watched = [5.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    plan, whole = StoppingRule(6), Falling(watched)
    straight = run(whole, plan)

    def dies(step: int) -> None:
        if step == 3 * STEPS + 2:
            raise Killed

    store = Store.at(tmp_path / "file", "settings")
    with pytest.raises(Killed):
        run(Falling(watched), plan, store, Listeners(on_step=dies))
    learner = Falling(watched)
    resumed = run(learner, plan, store)
    assert learner.positions[0] == Position(3, 0, 3 * STEPS)
    assert learner.value == whole.value
    losses = [[row["loss"] for row in course.history] for course in (straight, resumed)]
    assert losses[0] == losses[1] and resumed.best == 1.0
    assert store.path.exists()  # whoever called decides when it may go
    again = Falling(watched)
    assert run(again, plan, store).epoch == 6 and not again.positions


def test_a_training_that_lost_patience_is_not_taken_up_again(tmp_path: Path) -> None:
    watched = [1.0, 2.0, 3.0, 4.0]
    store = Store.at(tmp_path / "file", "settings")
    assert run(Falling(watched), StoppingRule(4, patience=1), store).epoch == 2
    again = Falling(watched)
    assert run(again, StoppingRule(4, patience=1), store).epoch == 2 and not again.positions


def test_more_epochs_than_asked_for_are_refused(tmp_path: Path) -> None:
    store = Store.at(tmp_path / "file", "settings")
    run(Falling(), StoppingRule(3), store)
    with pytest.raises(OutputError, match="3 epochs already, and 2 were asked for"):
        run(Falling(), StoppingRule(2), store)
    assert run(Falling(), StoppingRule(4), store).steps == 4 * STEPS


def test_divergence_is_said_when_it_happens(tmp_path: Path) -> None:
    store = Store.at(tmp_path / "file", "settings")
    learner = Falling(broken=STEPS + 1)
    with pytest.raises(TrainingError, match=r"has diverged in epoch 2.*nothing was saved: wait"):
        run(learner, StoppingRule(50, advice="wait"), store)
    assert len(learner.positions) == 2 * STEPS and not store.path.exists()


def test_a_long_epoch_is_not_waited_for() -> None:
    learner = Falling(broken=7)
    learner.steps_per_epoch = 100_000
    with pytest.raises(TrainingError, match="diverged in epoch 1"):
        run(learner, StoppingRule(1))
    assert len(learner.positions) == loop.LOOK_EVERY


def test_a_loss_that_explodes_or_a_held_back_one_that_is_no_number_is_divergence() -> None:
    class Rising(Falling):
        def batches(self, epoch: int) -> list[float]:
            super().batches(epoch)
            return [10.0] * STEPS

    with pytest.raises(TrainingError, match="at first"):
        run(Rising(), StoppingRule(9, explosion=1e6))
    assert run(Rising(), StoppingRule(2, explosion=1e6)).epoch == 2  # the control
    for wrong in (math.nan, math.inf):
        with pytest.raises(TrainingError, match="diverged in epoch 2"):
            run(Falling([1.0, wrong, 1.0]), StoppingRule(3))


def test_a_learner_that_tells_no_loss_is_judged_by_what_is_watched() -> None:
    class Silent(Falling):
        names = ()

        def step(self, batch: float, position: Position) -> Tensor:
            super().step(batch, position)
            return torch.empty(0)

        def loss(self, means: Mapping[str, float]) -> float | None:
            return None

    learner: Any = Silent([2.0, 1.0])
    course = run(learner, StoppingRule(2))
    assert "loss" not in course.history[0] and course.history[1]["held_back"] == 1.0
    with pytest.raises(TrainingError):
        run(Silent([2.0, math.inf]), StoppingRule(2))


def test_the_pace_rises_then_falls_to_nothing() -> None:
    pace = warm_cosine(100, 10)
    shares = [pace(step) for step in range(101)]
    assert shares[:10] == sorted(shares[:10]) and shares[9] == 1.0
    assert shares[10:] == sorted(shares[10:], reverse=True) and shares[100] == 0.0
    assert pace(1000) == 0.0


def square(rate: float = 0.1) -> tuple[Descent, nn.Parameter]:
    """x² from 1 downwards, each step x ↦ (1 − 2·rate)·x."""
    x = nn.Parameter(torch.ones(1))
    optimiser = torch.optim.SGD([x], lr=rate)
    network = nn.ParameterList([x])

    def held_back() -> torch.Tensor:
        return x.detach().square()[0]

    return Descent(network, optimiser, lambda _: range(4), lambda _: x.square()[0], held_back), x


def test_a_descent_goes_down_the_slope_at_its_pace_and_within_its_norm() -> None:
    descent, x = square()
    course = run(descent, StoppingRule(2))
    assert x.item() == pytest.approx(0.8**8)
    assert course.history[1]["held_back"] == pytest.approx(x.item() ** 2)
    slower, x = square()
    slower.pace = lambda step: 0.5
    run(slower, StoppingRule(1))
    assert x.item() == pytest.approx(0.9**4)
    bounded, x = square()
    bounded.max_grad_norm = 0.5
    run(bounded, StoppingRule(1))
    assert x.item() == pytest.approx(1 - 4 * 0.1 * 0.5, rel=1e-5)


def test_the_state_before_any_step_may_be_the_best() -> None:
    worse, x = square(rate=1.1)
    assert run(worse, StoppingRule(3, watches_start=True)).best == 1.0 and x.item() == 1.0
    unwatched, x = square(rate=1.1)  # the control
    assert run(unwatched, StoppingRule(3)).best > 1.0 and abs(x.item()) > 1.0


def test_minutes_end_a_training_after_its_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 30))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    assert run(Falling(), StoppingRule(9, minutes=0)).epoch == 1
    assert 1 < run(Falling(), StoppingRule(9, minutes=2)).epoch < 9
    assert run(Falling(), StoppingRule(9)).epoch == 9


def test_nobody_else_trains_in_a_loop_of_their_own() -> None:
    root = Path(capelet.__file__).parent
    own = []
    for path in root.rglob("*.py"):
        if path.parent.name == "training":
            continue
        for loop_ in ast.walk(ast.parse(path.read_text())):
            if isinstance(loop_, ast.For | ast.While):
                calls = {n.attr for n in ast.walk(loop_) if isinstance(n, ast.Attribute)}
                own += [f"{path.name}:{loop_.lineno}"] * bool(calls & {"backward", "zero_grad"})
    assert not own
