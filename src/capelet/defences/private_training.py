"""DP-SGD of a defence in the one training loop: what replacing one text may change is bounded.

Everything that depends on texts counts, not the gradients alone. So nothing is fitted before the
training (scalings are constants), nothing is chosen by it (one candidate, a fixed number of steps,
no held-back rows), each row's or author's loss depends on it alone (sums over rows, no weights by
class frequency), and what divides the noisy sum is the *expected* number of units, which follows
from the size of the file. Which rows train is decided for each by itself (`data.splits`, "keyed").

The noise is drawn from the operating system: this training cannot be repeated.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from capelet.data.splits import SHARES
from capelet.defences.network import Network
from capelet.defences.settings import Part, Settings, TrainedMap, TrainingPrivacy
from capelet.interfaces import Progress, silent
from capelet.mechanisms.sampling import Stream
from capelet.privacy.guarantees import Guarantee
from capelet.privacy.origins import Origin
from capelet.privacy.replacement import Target, choose_delta
from capelet.training import device as devices
from capelet.training.checkpoint import Parts
from capelet.training.dpsgd import Noise, SeededNoise, SystemNoise, add_noise
from capelet.training.loop import Listeners, Position, StoppingRule, run
from capelet.training.units import clipped_unit_sum


@dataclass(frozen=True)
class PrivateSchedule:
    """Steps, the share of units in each, the clipping norm and Adam's rate: constants, all of them.

    What is chosen for a corpus by looking at it would count as training. These were chosen on
    the public sets `trec` and `cr` at ε = 8 and 2, among three ways to spend the steps, three norms
    and three rates. Half or twice the norm costs a point at most, a third or three times the rate
    two to three points (the card has the table).
    """

    steps: int = 100
    share: float = 0.25
    clip: float = 0.5
    rate: float = 0.1


# One linear layer on vectors of length one, and the two layers with heads of the dense methods.
LINEAR = PrivateSchedule()
DENSE = PrivateSchedule(rate=0.01)


def train_privately(
    network: Network,
    part: Part,
    settings: Settings,
    schedule: PrivateSchedule,
    progress: Progress = silent,
) -> TrainedMap:
    """Train and freeze; the map's origin says what its training texts are promised."""
    assert settings.training is not None
    start = time.monotonic()
    learner = _PrivateLearner(network, part, settings, schedule)
    run(learner, StoppingRule(epochs=1, restore_best=False), None, Listeners(progress))
    learner.finish()
    own_map = network.body.cpu().to_map(part.width)
    # No loss and no accuracy beside it: these would be exact.
    origin = Origin.draw(learner.guarantee())
    head = network.head(part.task)
    return TrainedMap(
        replace(own_map, origin=origin),
        seconds=time.monotonic() - start,
        # The mean of the last half of all weights is in the head as well.
        head=None if head is None else head.with_origin(origin),
    )


class _PrivateLearner:
    """Poisson samples of units, clipped sums, noise; the mean of the last half of all weights."""

    # The loss of a sample is not part of what DP-SGD covers.
    names: tuple[str, ...] = ()

    def __init__(
        self, network: Network, part: Part, settings: Settings, schedule: PrivateSchedule
    ) -> None:
        assert settings.training is not None
        self.network, self.schedule = network, schedule
        self.privacy: TrainingPrivacy = settings.training
        self.device = devices.choose(settings.schedule.device)
        network.to(self.device).train()
        # Where nobody counts otherwise every row is a unit; none is held back, for nothing may be
        # watched.
        rows = np.sort(np.concatenate([part.fit, part.tune]))[:, None]
        units = rows if part.units is None else part.units
        self.members = units.shape[1]
        self.units = torch.from_numpy(units.astype(np.int64)).to(self.device)
        # Without a file around it, all units that are given train.
        self.population = part.population or len(units)
        self.trained_share = 1.0 if part.population is None else SHARES["defender"]
        vectors = torch.tensor(np.asarray(part.vectors, dtype=np.float32))
        # Row −1 stands for no text: its classes are missing, so it has no loss and no gradient.
        self.vectors = torch.cat([vectors, torch.zeros_like(vectors[:1])]).to(self.device)
        self.codes = {
            item.name: torch.tensor([*item.codes.tolist(), -1], device=self.device)
            for item in part.targets
        }
        for item in part.targets:
            # All classes weigh alike: their frequencies are the texts'.
            network.weights[item.name] = torch.ones(len(item.classes), device=self.device)
        # Not seeded: noise for row i from a known seed would depend on how many rows precede it.
        seed = self.privacy.seed_noise
        self.random = torch.Generator(self.device).manual_seed(
            secrets.randbits(63) if seed is None else seed
        )
        self.optimiser = torch.optim.Adam(network.parameters(), schedule.rate, eps=1e-7)
        self.parts = Parts(
            {"network": network}, {"network": self.optimiser}, {"network": self.random}
        )
        self._sums = [torch.zeros_like(weight) for weight in network.parameters()]

    @property
    def steps_per_epoch(self) -> int:
        return self.schedule.steps

    @property
    def expected(self) -> float:
        """How many units a sample has in the mean: by the size of the file, not by who is in it."""
        return self.schedule.share * self.trained_share * self.population

    @cached_property
    def target(self) -> Target:
        """What replacing one unit may cost."""
        delta = choose_delta(self.privacy.delta, self.population)
        return Target(self.privacy.epsilon, delta, self.schedule.share, self.schedule.steps)

    @cached_property
    def noise(self) -> Noise:
        seed = self.privacy.seed_noise
        return SystemNoise(Stream()) if seed is None else SeededNoise(seed)

    def guarantee(self) -> Guarantee:
        """Of the noise that was used."""
        return self.target.guarantee(self.privacy.unit, self.privacy.seed_noise is not None)

    @property
    def clip(self) -> float:
        """The longest gradient of a unit; that of an author is a sum, and longer.

        Gradients of m unlike texts add up to √m times one. Where they are alike it is up to m, but
        then so much more noise for everybody costs more than what clipping takes from a few.
        """
        return self.schedule.clip * math.sqrt(self.members)

    def batches(self, epoch: int) -> Iterable[Tensor]:
        for number in range(self.schedule.steps):
            self.noise.begin_step(number, self.device)
            sample = self.noise.poisson(len(self.units), self.schedule.share)
            yield self.units[torch.from_numpy(sample).to(self.device)]

    def step(self, batch: Tensor, position: Position) -> Tensor:
        rows = batch.flatten()
        codes = {name: values[rows] for name, values in self.codes.items()}
        done = position.step / self.schedule.steps

        def loss(x: Tensor) -> Tensor:
            return self.network(
                replace(self.network.batch(x, codes, done, self.random), total=True)
            ).sum()

        clipped_unit_sum(self.network, self.vectors[rows], self.members, loss, self.clip)
        add_noise(self.network, self.target.noise() * self.clip, self.expected, self.noise)
        self.optimiser.step()
        if 2 * position.step >= self.schedule.steps:
            for total, weight in zip(self._sums, self.network.parameters(), strict=True):
                total.add_(weight.detach())
        return torch.zeros(0)

    def finish(self) -> None:
        """Put the mean over the last half in: post-processing, in which noise averages out."""
        count = self.schedule.steps - (self.schedule.steps + 1) // 2
        with torch.no_grad():
            for total, weight in zip(self._sums, self.network.parameters(), strict=True):
                weight.copy_(total / count)

    def loss(self, means: Mapping[str, float]) -> float | None:
        return None

    def watch(self) -> tuple[str, float] | None:
        return None
