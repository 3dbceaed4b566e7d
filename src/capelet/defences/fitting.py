"""A defence in the one training loop: what it may see, how long it learns, what it yields.

Deterministic on a CPU given a seed; the noise in it is seeded, so nothing made here is a release.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capelet.defences.network import Body, Network
from capelet.defences.settings import Part, Schedule, TrainedMap
from capelet.defences.terms import class_weights
from capelet.errors import name_field
from capelet.interfaces import Progress, silent
from capelet.training import device as devices
from capelet.training.checkpoint import Parts, Store
from capelet.training.loop import Listeners, Position, StoppingRule, TrainingError, descend, run

# A training that ends with a loss this many times that of blind guessing has diverged.
RUNAWAY = 10.0
# A held-back loss that falls by less has stopped falling.
LEAST_GAIN = 1e-5

__all__ = ["Body", "Network", "Part", "Schedule", "TrainedMap", "TrainingError", "train"]


def train(
    network: Network,
    part: Part,
    schedule: Schedule,
    checkpoints: Path | None = None,
    progress: Progress = silent,
) -> TrainedMap:
    """Train and freeze; `checkpoints` is a folder to resume from and to save to."""
    start = time.monotonic()
    learner = _DefenceLearner(network, part, schedule)
    store = None
    if checkpoints is not None:
        settings = (part.digest(), schedule, learner.device, network.settings())
        store = Store.in_folder(checkpoints, "defence", *settings)
    course = run(learner, _plan(schedule), store, Listeners(progress))
    if store is not None:
        store.forget()
    if course.history:
        _refuse_runaway(network, course.history[-1])
    joint = learner.joint_accuracy()
    losses = tuple(learner.loss(row) for row in course.history)
    learnt, head = network.body.cpu().to_map(part.width), network.head(part.task)
    # One training, one origin: what its texts are promised holds of both.
    own = None if head is None else head.with_origin(learnt.origin)
    return TrainedMap(learnt, joint, losses, time.monotonic() - start, own)


def _plan(schedule: Schedule) -> StoppingRule:
    """The schedule as the loop takes it."""
    return StoppingRule(
        schedule.epochs,
        schedule.patience,
        LEAST_GAIN,
        advice=(
            f"give a smaller {name_field('adversary_weight')}, or train longer with a smaller rate"
        ),
    )


class _DefenceLearner:
    """A network and its terms over the rows of a part, as the loop takes it."""

    def __init__(self, network: Network, part: Part, schedule: Schedule) -> None:
        self.network, self.part, self.schedule = network, part, schedule
        self.device = devices.choose(schedule.device)
        self.random = torch.Generator(self.device).manual_seed(schedule.seed)
        self.rows = _RowsOnDevice(part, self.device, network.front is not None)
        network.to(self.device)
        for item in part.targets:
            codes = self.rows.fit_codes[item.name]
            network.weights[item.name] = class_weights(item, codes)
        with torch.no_grad():
            start = self.rows.start
            network.body.fit_scaling(
                network.before(start, self.random) if network.before else start
            )
        self.optimiser = _optimiser(network, schedule)
        self.names = tuple(_term_names(network))
        self.parts = Parts(
            {"network": network}, {"network": self.optimiser}, {"network": self.random}
        )

    @property
    def steps_per_epoch(self) -> int:
        size, count = self.schedule.batch, len(self.rows.fit)
        whole, rest = divmod(count, size)
        # A scrap of a batch would weigh as much as a whole one, so it is left out.
        return whole + int(rest > 0 and rest >= min(size, count) // 2)

    def batches(self, epoch: int) -> Iterable[Tensor]:
        schedule, fit = self.schedule, self.rows.fit
        self.network.train()
        if schedule.cooling:
            for group in self.optimiser.param_groups:
                group["lr"] = schedule.rate * group["pace"] * (1.05 - epoch / schedule.epochs)
        order = torch.randperm(len(fit), generator=self.random, device=fit.device)
        return torch.split(order, schedule.batch)[: self.steps_per_epoch]

    def step(self, batch: Tensor, position: Position) -> Tensor:
        size, count = self.schedule.batch, len(self.rows.fit)
        codes = {name: values[batch] for name, values in self.rows.fit_codes.items()}
        share = (position.epoch + position.place * size / count) / self.schedule.epochs
        losses = self.network(self.network.batch(self.rows.fit[batch], codes, share, self.random))
        descend(self.optimiser, losses.sum())
        values: Tensor = losses.detach()
        return values

    def loss(self, means: Mapping[str, float]) -> float:
        return sum(means[name] for name in self.names)

    def watch(self) -> tuple[str, float] | None:
        """The first term's loss on the held-back rows: the task, or what else must stay good."""
        if self.schedule.patience is None:
            return None
        self.network.eval()
        first = self.network.terms[0]
        with torch.no_grad():
            batch = self._held_back()
        with torch.enable_grad():  # cross-gradient training looks at the slope by the vectors
            return "held_back", float(first(batch, self.network).detach())

    def joint_accuracy(self) -> dict[str, float]:
        """Balanced accuracy of the defence's own adversaries on the held-back rows."""
        self.network.eval()
        accuracy: dict[str, float] = {}
        with torch.no_grad():
            features = self._held_back().features
            for term in self.network.terms:
                for name, scores in term.joint(features).items():  # type: ignore[operator]
                    codes, guess = self.rows.tune_codes[name].cpu(), scores.argmax(dim=1).cpu()
                    present = [code for code in range(scores.shape[1]) if (codes == code).any()]
                    hits = [float((guess[codes == c] == c).float().mean()) for c in present]
                    accuracy[name] = sum(hits) / max(len(hits), 1)
        return accuracy

    def _held_back(self) -> Any:
        return self.network.batch(self.rows.tune, self.rows.tune_codes, 1.0, self.random)


class _RowsOnDevice:
    """The rows to fit on and to tune on: their vectors or, for a front, their numbers."""

    def __init__(self, part: Part, device: torch.device, numbers: bool = False) -> None:
        vectors = torch.tensor(np.asarray(part.vectors, dtype=np.float32))
        inputs = torch.arange(len(vectors)) if numbers else vectors
        self.fit, self.tune = (inputs[rows].to(device) for rows in (part.fit, part.tune))
        self.start = vectors[part.fit].to(device) if numbers else self.fit
        codes = {item.name: torch.tensor(item.codes.astype(np.int64)) for item in part.targets}
        self.fit_codes = {name: values[part.fit].to(device) for name, values in codes.items()}
        self.tune_codes = {name: values[part.tune].to(device) for name, values in codes.items()}


def _term_names(network: Network) -> list[str]:
    """One name for each term: its class, with its place, for a class may stand there twice."""
    return [f"{place} {type(term).__name__}" for place, term in enumerate(network.terms)]


def _optimiser(network: Network, schedule: Schedule) -> torch.optim.Adam:
    """Adam; a front goes at its own pace."""
    front = list(network.front.parameters()) if network.front is not None else []
    in_front = {id(item) for item in front}
    others = [item for item in network.parameters() if id(item) not in in_front]
    groups: list[dict[str, Any]] = [{"params": others, "pace": 1.0}]
    if network.front is not None:
        groups.append({"params": front, "pace": network.front.pace})
    for group in groups:
        group["lr"] = schedule.rate * group["pace"]
    return torch.optim.Adam(groups, eps=1e-7, weight_decay=schedule.decay)


def _refuse_runaway(network: Network, last: Mapping[str, float]) -> None:
    """Reversal has no bottom: with a large λ its adversaries end worse than blind, outrun."""
    for name, term in zip(_term_names(network), network.terms, strict=True):
        blind = float(term.blind())  # type: ignore[operator]
        if last[name] > RUNAWAY * blind:
            raise TrainingError(
                f"the training ran away: its {type(term).__name__.lower()} loss ends at "
                f"{last[name]:.3g}, where blind guessing has {blind:.3g}; nothing was saved: give "
                f"a smaller {name_field('adversary_weight')}, or train longer with a smaller rate"
            )
