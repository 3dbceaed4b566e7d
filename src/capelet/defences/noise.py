"""Noise for training: the distribution of a release, from a seeded generator, with gradients.

A map that stands before or behind a mechanism is trained through that mechanism's noise. Training
must be repeatable and must let gradients through, and a release must be neither; so each mechanism
has a twin here. What a twin makes carries no guarantee, and nothing of it is ever released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capelet.errors import CapeletError
from capelet.mechanisms import Gaussian, Laplace, PrivUnit, RandomisedResponse
from capelet.mechanisms.specimens import RowRange
from capelet.mechanisms.vectors import spherical_cap
from capelet.privacy.guarantees import laplace_scale

# The noise of a mechanism on a batch of vectors.
Twin = Callable[[Tensor, torch.Generator], Tensor]


def twin(mechanism: Any) -> Twin:
    """The twin of a mechanism on vectors."""
    if isinstance(mechanism, Laplace):
        return LaplaceTwin(laplace_scale(mechanism.epsilon))
    if isinstance(mechanism, Gaussian) and mechanism.clip is None:
        return GaussianTwin(mechanism.sigma)
    if isinstance(mechanism, PrivUnit):
        return PrivUnitTwin(mechanism.epsilon)
    if isinstance(mechanism, RandomisedResponse):
        return ResponseTwin(mechanism.epsilon, mechanism.classes)
    if isinstance(mechanism, RowRange):
        return RowRangeTwin(1 / mechanism.epsilon)
    raise CapeletError(f"no map can be trained through the step {mechanism.describe()['step']!r}")


def draw(mechanism: Any, x: Tensor, random: torch.Generator) -> Tensor:
    """What the mechanism would release, drawn with seeded noise: to choose by, never to release."""
    noise = twin(mechanism)
    if not isinstance(noise, ResponseTwin):
        return noise(x, random)
    chances = noise(torch.nn.functional.one_hot(x.argmax(dim=1), x.shape[1]).to(x), random)
    symbols = torch.multinomial(chances, 1, generator=random)[:, 0]
    return torch.nn.functional.one_hot(symbols, x.shape[1]).to(x)


def _laplace(x: Tensor, random: torch.Generator) -> Tensor:
    """Laplace noise of scale 1 in the shape of x."""
    # The inverse of Laplace's distribution at u + 1/2: −sgn(u) ln(1 − 2|u|).
    u = torch.rand(x.shape, generator=random, device=x.device) - 0.5
    return -u.sign() * torch.log1p(-2 * u.abs().clamp(max=0.5 - 1e-7))


@dataclass(frozen=True)
class LaplaceTwin:
    """x/‖x‖₁ plus Laplace noise."""

    scale: float

    def __call__(self, x: Tensor, random: torch.Generator) -> Tensor:
        unit = x / x.abs().sum(dim=1, keepdim=True).clamp(min=1e-12)
        return unit + self.scale * _laplace(x, random)


@dataclass(frozen=True)
class RowRangeTwin:
    """x stretched to [0, 1] plus Laplace noise of too small a scale: the twin of a specimen."""

    scale: float

    def __call__(self, x: Tensor, random: torch.Generator) -> Tensor:
        low, high = x.amin(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)
        return (x - low) / (high - low).clamp(min=1e-12) + self.scale * _laplace(x, random)


@dataclass(frozen=True)
class GaussianTwin:
    """x/‖x‖₂ plus normal noise."""

    sigma: float

    def __call__(self, x: Tensor, random: torch.Generator) -> Tensor:
        noise = torch.randn(x.shape, generator=random, device=x.device)
        return torch.nn.functional.normalize(x, dim=1) + self.sigma * noise


class PrivUnitTwin:
    """A point V/m at the angle that the mechanism draws, in a uniform direction around x."""

    TABLE = 4096

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self.tables: dict[int, Tensor] = {}

    def __call__(self, x: Tensor, random: torch.Generator) -> Tensor:
        unit = torch.nn.functional.normalize(x, dim=1)
        cap = spherical_cap(self.epsilon, x.shape[1])
        chance = torch.rand((len(x), 1), generator=random, device=x.device)
        cosine = self._cosine(chance, x.shape[1])
        # V = t·u + √(1 − t²)·w with w uniform on the sphere orthogonal to u; dividing by the mean
        # of t makes the release unbiased.
        around = torch.randn(x.shape, generator=random, device=x.device)
        around = around - (around * unit).sum(dim=1, keepdim=True) * unit
        around = torch.nn.functional.normalize(around, dim=1)
        return (cosine * unit + (1 - cosine**2).clamp(min=0).sqrt() * around) / cap.mean

    def _cosine(self, chance: Tensor, width: int) -> Tensor:
        """⟨V, u⟩ at these quantiles, read off a table of its inverse distribution."""
        if width not in self.tables:
            self.tables[width] = torch.tensor(_quantiles(self.epsilon, width, self.TABLE))
        table = self.tables[width].to(chance.device, chance.dtype)
        place = chance * (self.TABLE - 1)
        low = place.long().clamp(max=self.TABLE - 2)
        share = place - low
        return table[low] * (1 - share) + table[low + 1] * share


def _quantiles(epsilon: float, width: int, count: int) -> np.ndarray[Any, Any]:
    """Quantiles of ⟨V, u⟩: inside the cap with its probability, else in the rest of the sphere."""
    from scipy.special import betaincinv

    cap = spherical_cap(epsilon, width)
    chance = (np.arange(count) + 0.5) / count
    outside = 1 - cap.share
    below = chance < 1 - cap.inside
    uniform = np.where(
        below,
        chance / (1 - cap.inside) * outside,
        outside + (chance - (1 - cap.inside)) / cap.inside * cap.share,
    )
    return 2 * betaincinv(cap.shape, cap.shape, np.clip(uniform, 1e-12, 1 - 1e-12)) - 1


class ResponseTwin:
    """The chances of each symbol after randomised response, from the chances before.

    Nothing is drawn: a loss that is linear in these chances is the exact mean over the noise.
    """

    def __init__(self, epsilon: float, classes: int) -> None:
        # q = 1/(e^ε + m − 1); beyond ε = 709 e^ε is no float, and q is 0 either way.
        self.other = 1.0 / (math.exp(min(epsilon, 700.0)) + classes - 1)
        self.classes = classes

    def __call__(self, x: Tensor, random: torch.Generator) -> Tensor:
        # P(out = s) = p·P(in = s) + q·(1 − P(in = s)) with p + (m − 1)q = 1.
        return x * (1 - self.classes * self.other) + self.other
