"""The one training loop: defences, encoders, language models and attackers are learners in it.

A learner supplies batches and takes a step with each. The loop owns everything around that:
epochs, the history, early stopping, the best state, divergence, progress, and checkpoints from
which a killed training goes on to the same result. Divergence is noticed while it happens, not
when hours have passed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from capelet.errors import CapeletError, OutputError
from capelet.interfaces import Progress, silent
from capelet.training.checkpoint import Checkpoint, Parts, Store

# Steps between two looks at the losses inside an epoch: each look waits for the GPU.
LOOK_EVERY = 100


class TrainingError(CapeletError):
    """The training went wrong: nothing of it is kept."""


@dataclass(frozen=True)
class Position:
    """Where the training is before a step; all three count from 0, `place` inside the epoch."""

    epoch: int
    place: int
    step: int


class Learner(Protocol):
    """What is trained: the loop asks it for batches and steps, and never looks inside.

    `names` say what a step returns: one number for each, of which the history keeps the means.
    The best state is that of the module called `network`.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def parts(self) -> Parts:
        """Everything that a checkpoint must hold."""
        ...

    @property
    def steps_per_epoch(self) -> int: ...

    def batches(self, epoch: int) -> Iterable[Any]:
        """The batches of an epoch, as many as `steps_per_epoch`; asked for when it begins."""
        ...

    def step(self, batch: Any, position: Position) -> Tensor:
        """One update; the values of `names`, detached, on the device: nobody waits for them."""
        ...

    def loss(self, means: Mapping[str, float]) -> float | None:
        """The one number that must stay finite and must not explode; None where none is known."""
        ...

    def watch(self) -> tuple[str, float] | None:
        """A name and a number of held-back rows that should fall; None where none is watched."""
        ...


@dataclass(frozen=True)
class StoppingRule:
    """How long, and when to stop: `patience` epochs without a gain of at least `least_gain`.

    A loss more than `explosion` times the first one has diverged; `advice` says what to do then.
    No epoch begins after so many `minutes` (but the first). With `watches_start` the state before
    any step may be the best one.
    """

    epochs: int
    patience: int | None = None
    least_gain: float = 0.0
    restore_best: bool = True
    explosion: float = 1e4
    minutes: float = math.inf
    watches_start: bool = False
    advice: str = "train with a smaller rate"


@dataclass(eq=False)
class Course:
    """How a training went so far: this, with the learner's parts, is a checkpoint."""

    epoch: int = 0
    steps: int = 0
    best: float = math.inf
    epochs_without_gain: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best_state: dict[str, Tensor] = field(default_factory=dict)

    def ends(self, plan: StoppingRule) -> bool:
        """Whether all epochs are over, or too many of them went by without a gain."""
        impatient = plan.patience is not None and self.epochs_without_gain >= plan.patience
        return impatient or self.epoch >= plan.epochs

    def checkpoint(self) -> Checkpoint:
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return Checkpoint(numbers, self.best_state)


_NUMBERS = ("epoch", "steps", "best", "epochs_without_gain", "history")


@dataclass(frozen=True)
class Listeners:
    """Who is told what: each step (by its number), each epoch (by its row of the history)."""

    progress: Progress = silent
    on_step: Callable[[int], None] | None = None
    on_epoch: Callable[[dict[str, float]], None] | None = None


def run(
    learner: Learner,
    plan: StoppingRule,
    store: Store | None = None,
    listeners: Listeners | None = None,
) -> Course:
    """Train to the end, from the store's checkpoint where it has one; the best state is put back.

    The checkpoint is left where it is: whoever calls forgets it once the result is safe. A
    training that diverges removes it, for it would only diverge again.
    """
    listeners = listeners or Listeners()
    course = _resume(learner, plan, store)
    total = plan.epochs * learner.steps_per_epoch
    start = time_saved = time.monotonic()
    if plan.watches_start and not course.steps:
        _watch(learner, plan, course, {})
    try:
        while not course.ends(plan):
            if course.epoch and time.monotonic() - start > 60 * plan.minutes:
                break
            _epoch(learner, plan, course, listeners)
            if listeners.on_epoch is not None:
                listeners.on_epoch(course.history[-1])
            # Only between epochs: a learner's batches are drawn when its epoch begins.
            if store is not None and time.monotonic() - time_saved >= store.interval:
                store.save(learner.parts, course.checkpoint())
                time_saved = time.monotonic()
    except TrainingError:
        if store is not None:
            store.forget()
        raise
    listeners.progress("training", total, total)
    if plan.restore_best and course.best_state:
        learner.parts.modules["network"].load_state_dict(course.best_state)
    return course


def _resume(learner: Learner, plan: StoppingRule, store: Store | None) -> Course:
    checkpoint = store.load(learner.parts) if store is not None else None
    if store is None or checkpoint is None:
        return Course()
    course = Course(**checkpoint.numbers, best_state=checkpoint.best)
    if course.epoch > plan.epochs:
        # Its steps are taken, so a smaller ε for fewer of them would be false.
        raise OutputError(
            f"{str(store.path)!r} holds {course.epoch} epochs already, and {plan.epochs} were "
            "asked for; ask for as many or more, or remove it to train from the start"
        )
    return course


def _epoch(learner: Learner, plan: StoppingRule, course: Course, listeners: Listeners) -> None:
    """One pass over the batches, and one row of history."""
    start = time.perf_counter()
    total = plan.epochs * learner.steps_per_epoch
    # Summed where the values lie: to ask for a number waits for the GPU.
    sums: Tensor | None = None
    place = 0
    for batch in learner.batches(course.epoch):
        values = learner.step(batch, Position(course.epoch, place, course.steps))
        sums = values if sums is None else sums + values
        place, course.steps = place + 1, course.steps + 1
        if place % LOOK_EVERY == 0 and not bool(torch.isfinite(sums).all()):
            raise _divergence(plan, course, course.epoch + 1, math.nan)
        listeners.progress("training", course.steps, total)
        if listeners.on_step is not None:
            listeners.on_step(course.steps)
    course.epoch += 1
    values_of_names = [] if sums is None else [value / place for value in sums.tolist()]
    means = dict(zip(learner.names, values_of_names, strict=bool(values_of_names)))
    row = {"epoch": course.epoch, **means}
    row["seconds"] = round(time.perf_counter() - start, 3)
    _check_loss(learner, plan, course, means)
    _watch(learner, plan, course, row)
    course.history.append(row)


def _check_loss(
    learner: Learner, plan: StoppingRule, course: Course, means: Mapping[str, float]
) -> None:
    last = learner.loss(means)
    if last is None:
        return
    first = learner.loss(course.history[0]) if course.history else last
    # A first loss near 0 would make any later one an explosion: 1 nat is the least yardstick.
    limit = plan.explosion * max(abs(first or 0.0), 1.0)
    if not math.isfinite(last) or last > limit:
        raise _divergence(plan, course, course.epoch, last, first)


def _watch(learner: Learner, plan: StoppingRule, course: Course, row: dict[str, float]) -> None:
    """Look at the held-back rows: a gain keeps the state, none counts against the patience."""
    observation = learner.watch()
    if observation is None:
        return
    name, value = observation
    row[name] = value
    if not math.isfinite(value):
        raise _divergence(plan, course, course.epoch, value)
    if value < course.best - plan.least_gain:
        course.best, course.epochs_without_gain = value, 0
        if plan.restore_best:
            state = learner.parts.modules["network"].state_dict()
            course.best_state = {key: tensor.detach().clone() for key, tensor in state.items()}
    else:
        course.epochs_without_gain += 1


def _divergence(
    plan: StoppingRule, course: Course, epoch: int, last: float, first: float | None = None
) -> TrainingError:
    figures = f"{last:.3g} now" if first is None else f"{first:.3g} at first, {last:.3g} now"
    return TrainingError(
        f"the training has diverged in epoch {epoch} (its loss is {figures}); nothing was saved: "
        f"{plan.advice}"
    )


@dataclass(eq=False)
class Descent:
    """A loss that falls batch by batch: the learner of a network that needs nothing of its own.

    `loss_of` a batch is what falls, on the rate times `pace(step)`; `held_back` is the loss of rows
    that are watched. `steps_per_epoch` is asked for by whoever shows progress.
    """

    network: nn.Module
    optimiser: torch.optim.Optimizer
    batches_of: Callable[[int], Iterable[Any]]
    loss_of: Callable[[Any], Tensor]
    held_back: Callable[[], Tensor] | None = None
    pace: Callable[[int], float] | None = None
    max_grad_norm: float | None = None
    steps_per_epoch: int = 1
    names: tuple[str, ...] = ("loss",)

    def __post_init__(self) -> None:
        self.rates = [group["lr"] for group in self.optimiser.param_groups]

    @property
    def parts(self) -> Parts:
        return Parts({"network": self.network}, {"network": self.optimiser})

    def batches(self, epoch: int) -> Iterable[Any]:
        self.network.train()
        return self.batches_of(epoch)

    def step(self, batch: Any, position: Position) -> Tensor:
        if self.pace is not None:
            for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
                group["lr"] = rate * self.pace(position.step)
        loss = self.loss_of(batch)
        descend(self.optimiser, loss, self.max_grad_norm)
        return loss.detach().reshape(1)

    def loss(self, means: Mapping[str, float]) -> float | None:
        return means.get("loss")

    def watch(self) -> tuple[str, float] | None:
        if self.held_back is None:
            return None
        self.network.eval()
        with torch.no_grad():
            return "held_back", float(self.held_back())


def descend(
    optimiser: torch.optim.Optimizer, loss: Tensor, max_grad_norm: float | None = None
) -> None:
    """One step down the slope of the loss, whose gradient is shortened to `max_grad_norm`."""
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    if max_grad_norm is not None:
        weights = [weight for group in optimiser.param_groups for weight in group["params"]]
        nn.utils.clip_grad_norm_(weights, max_grad_norm)
    optimiser.step()


def warm_cosine(steps: int, warm_steps: int) -> Callable[[int], float]:
    """The share of the rate at a step: up in a line over `warm_steps`, then down as a cosine.

    >>> pace = warm_cosine(10, 2)
    >>> [round(pace(step), 2) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """

    def share(step: int) -> float:
        # A full rate on random weights can diverge in the first steps, most of all with Adam.
        if step < warm_steps:
            return (step + 1) / warm_steps
        over = (step - warm_steps) / max(steps - warm_steps, 1)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, over)))

    return share
