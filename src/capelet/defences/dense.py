"""Methods that train a dense map: for a task, for neighbours or for both, against an adversary.

They differ in three words: whether noise stands before the map, which adversary fights the
secrets, and which texts go in. `Dense` holds the first two; there is one way of training for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capelet.defences.fitting import train
from capelet.defences.network import Body, Network
from capelet.defences.noise import twin
from capelet.defences.private_training import DENSE, train_privately
from capelet.defences.readers import Mixing, Reader, read
from capelet.defences.settings import (
    ORIGINAL_NOISE,
    Adversary,
    Defence,
    Part,
    Schedule,
    Settings,
    epsilon_of,
)
from capelet.defences.terms import (
    BoundedReversal,
    CrossGradient,
    Independence,
    Neighbourhood,
    Reversal,
    Task,
    Term,
)
from capelet.interfaces import Progress
from capelet.mechanisms import Laplace
from capelet.mechanisms.specimens import RowRange
from capelet.privacy.guarantees import laplace_scale
from capelet.training.device import seeded_fork
from capelet.training.networks import Residual, dense

# The share of the training over which λ grows from 0: a strong λ on a blind head only stirs.
WARM = 0.2
# How many a training against a kernel adversary takes, however many rows there are.
STEPS = 150
TUNED_BATCH = 256
# How often the last layers see each text, after the map was trained on vectors as they are.
TUNED_EPOCHS = 5


@dataclass(frozen=True)
class Dense:
    """A dense map, with Laplace noise before it or not, against one kind of adversary."""

    noise: bool = False
    adversary: Adversary = "none"

    def __call__(
        self, part: Part, settings: Settings, checkpoints: Path | None, progress: Progress
    ) -> Defence:
        before = _mechanism(settings) if self.noise else None
        # Without a task there is no label that a mixture of two texts could lack.
        mixes = self.adversary == "kernel" and settings.keep == "neighbours" and bool(part.secrets)
        if mixes:  # nothing is tuned on held-back rows, so they may be learnt from
            part = replace(part, fit=np.concatenate([part.fit, part.tune]))
        network = self._network(part, settings, before, mixes, progress)
        if settings.training is not None:
            network.body.scale = torch.full((1,), self._known_scale(part, before))
            network.body.unit = before is None
            outcome = train_privately(network, part, settings, DENSE, progress)
            return Defence(outcome, before=before)
        schedule = _pace(settings.schedule, part, self.adversary, settings.keep)
        first = train(network, part, schedule, checkpoints, progress)
        if part.top is None:
            return Defence(first, before=before)
        # The map first, on vectors as they are: through a map that begins at random the layers
        # would learn nonsense before it knows anything.
        network.front = part.top
        epochs, batch = min(schedule.epochs, TUNED_EPOCHS), min(schedule.batch, TUNED_BATCH)
        short = replace(schedule, epochs=epochs, batch=batch)
        along = train(network, part, short, checkpoints, progress)
        along = replace(along, seconds=first.seconds + along.seconds)
        return Defence(along, before=before, encoder=part.top.cpu().encoder())

    def _known_scale(self, part: Part, before: Any) -> float:
        """What makes coordinates of size one of vectors of length one, or of the noise on them."""
        if before is None:
            return math.sqrt(part.width)
        # Laplace noise of scale b has the deviation √2·b, and drowns the vector.
        return 1 / (math.sqrt(2) * laplace_scale(before.epsilon))

    def _network(
        self, part: Part, settings: Settings, before: Any, mixes: bool, progress: Progress
    ) -> Network:
        schedule, width = settings.schedule, settings.units
        with seeded_fork(schedule.seed):
            if settings.keep == "task":
                body = Body(dense([part.width, width, width]), "relu")
            else:
                width = part.width
                body = Body(Residual(width, max(2 * settings.units, 512)))
            terms = self._utility_terms(part, settings, width)
            reader = read(part, schedule, progress) if mixes else None
            terms += self._privacy_terms(part, settings, width, reader)
            noise = Mixing() if mixes else twin(before) if before else None
            return Network(body, terms, before=noise)

    def _utility_terms(self, part: Part, settings: Settings, width: int) -> list[Term]:
        """What the features must stay good for; the first of these is watched."""
        terms: list[Term] = []
        if settings.keep != "neighbours" and part.task is not None:
            if self.adversary == "cross":
                terms.append(CrossGradient(width, part.task, part.secrets, shape=settings.heads))
            else:
                terms.append(Task(width, part.task, settings.heads))
        if settings.keep != "task":
            terms.append(Neighbourhood())
        return terms

    def _privacy_terms(
        self, part: Part, settings: Settings, width: int, reader: Reader | None
    ) -> list[Term]:
        """What the features must lose."""
        lam, lambdas = settings.lam, settings.lambdas
        if self.adversary == "reversal" and part.secrets:
            term = BoundedReversal if settings.adversary_loss == "bounded" else Reversal
            return [term(width, part.secrets, lam, WARM, lambdas, settings.heads)]
        if self.adversary == "kernel" and part.secrets:
            return [Independence(part.secrets, lam, reader, warm=WARM, lambdas=lambdas)]
        return []


def _mechanism(settings: Settings) -> Laplace | RowRange:
    """Laplace noise of the right scale, unless a study asks for the original, wrong one."""
    maker = RowRange if settings.mechanism == ORIGINAL_NOISE else Laplace
    return maker(epsilon_of(settings))


def _pace(schedule: Schedule, part: Part, adversary: str, keep: str) -> Schedule:
    """A kernel adversary needs large batches, and as many steps as small ones would make."""
    if adversary == "kernel":
        batch = max(256, min(2048, len(part.fit) // 2))
        epochs = max(1, round(STEPS * batch / max(len(part.fit), 1)))
        faster = replace(schedule, batch=batch, epochs=epochs, rate=3 * schedule.rate)
        return replace(faster, patience=None, cooling=True)
    return replace(schedule, patience=None) if keep == "neighbours" else schedule
