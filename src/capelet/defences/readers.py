"""Readers: what a vector gives away of a secret, as fresh perceptrons estimate it.

A map that fights the labels of a few thousand texts learns those texts by heart: it hides them, and
not the next ones. A reader says of *any* vector, also of one between two texts, how likely each
class is. A map that fights readers can therefore be trained on vectors that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from capelet.data.labels import Attribute
from capelet.defences.fitting import Part, Schedule, train
from capelet.defences.network import Body, Network
from capelet.defences.terms import Batch, Term, known_loss
from capelet.interfaces import Progress, silent
from capelet.training.device import seeded_fork
from capelet.training.networks import dense

# Each leaves another fifth of the rows out, and stops when it reads those no better.
READERS = 5
HIDDEN = 256


class Reader(nn.Module):
    """x ↦ the chances of all classes of all secrets side by side, the mean of several readers."""

    def __init__(self, bodies: Sequence[Body], secrets: Sequence[Attribute]) -> None:
        super().__init__()
        self.bodies = nn.ModuleList(bodies).requires_grad_(False)
        self.sizes = [len(item.classes) for item in secrets]

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        chances = [
            torch.cat(
                [torch.softmax(one, dim=1) for one in body(x).split(self.sizes, dim=1)], dim=1
            )
            for body in self.bodies
        ]
        return torch.stack(chances).mean(dim=0)


class ReadingLoss(Term):
    """The loss of reading all secrets off the features, classes weighed alike."""

    def __init__(self, secrets: Sequence[Attribute]) -> None:
        super().__init__()
        self.secrets = list(secrets)

    def forward(self, batch: Batch, network: Network) -> Tensor:
        sizes = [len(item.classes) for item in self.secrets]
        scores = torch.split(batch.features, sizes, dim=1)
        losses = [
            known_loss(some, batch.codes[item.name], network.weights[item.name])
            for item, some in zip(self.secrets, scores, strict=True)
        ]
        return torch.stack(losses).sum()


def read(part: Part, schedule: Schedule, progress: Progress = silent) -> Reader:
    """Readers of the part's secrets, learnt from the rows to fit on alone."""
    gentle = replace(
        schedule, epochs=20, batch=256, rate=1e-3, patience=3, decay=1e-4, cooling=False
    )
    # Cross-validation: each reader stops by a fold that it has not learnt, so that the mean of all
    # says how likely a class is, and not which texts were learnt by heart.
    order = np.random.default_rng(schedule.seed).permutation(part.fit)
    wide = sum(len(item.classes) for item in part.secrets)
    bodies = []
    for place, fold in enumerate(np.array_split(order, READERS)):
        own = replace(part, fit=np.setdiff1d(part.fit, fold), tune=np.sort(fold), top=None)
        with seeded_fork(schedule.seed + place):
            body = Body(dense([part.width, HIDDEN, wide]))
        network = Network(body, [ReadingLoss(part.secrets)])
        train(network, own, gentle)
        bodies.append(network.body)
        progress("reading", place + 1, READERS)
    return Reader(bodies, part.secrets)


class Mixing:
    """Vectors that nobody wrote: each a mixture of a text's with a neighbour's, or a stranger's.

    At least half of it is the text's own; one in four is mixed with any other text of the batch.
    """

    NEAR = 10

    def __init__(self, most: float = 0.5, strange: float = 0.25) -> None:
        self.most, self.strange = most, strange

    def __call__(self, x: Tensor, random: torch.Generator) -> Tensor:
        count = len(x)
        near = min(self.NEAR, count - 1)
        if near < 1:
            return x
        unit = normalize(x, dim=1)
        # −2 is below every cosine: no text is its own neighbour.
        close = (unit @ unit.T).fill_diagonal_(-2.0).topk(near, dim=1).indices
        pick = torch.randint(near, (count, 1), generator=random, device=x.device)
        other = close.gather(1, pick)[:, 0]
        any_other = torch.randperm(count, generator=random, device=x.device)
        strange = torch.rand(count, generator=random, device=x.device) < self.strange
        share = self.most * torch.rand(count, 1, generator=random, device=x.device)
        return torch.lerp(x, x[torch.where(strange, any_other, other)], share)
