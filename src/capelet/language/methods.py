"""The training methods of language models, as frozen settings; `learners` says how each one steps.

The three private ones are those of Mireshghallah et al. (2021) and DP-SGD (Abadi et al. 2016).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.language.regularisers import POSITIONS
from capelet.language.vocabulary import Codes


@dataclass(frozen=True)
class Plain:
    """No privacy: the loss of the language model alone."""

    name: str = "none"


@dataclass(frozen=True)
class Adversarial:
    """A discriminator guesses the author from a state; the model makes its guess uniform."""

    strength: float = 1.0
    hidden: int = 1000
    position: str = "random"
    rate: float = 1e-3
    name: str = "adversarial"


@dataclass(frozen=True)
class Triplet:
    """States of different authors are pulled together, those of one author pushed apart.

    `pairs` are those inside the `batch`, or of the batch with a `second` one (the paper's form,
    which costs a second forward pass).
    """

    strength: float = 1.0
    pairs: str = "batch"
    position: str = "random"
    name: str = "triplet"


@dataclass(frozen=True)
class Dpsgd:
    """Clipped, noisy gradient sums of Poisson samples: differential privacy for each sample.

    `unit` is `record`. A guarantee for all samples of an author is refused, since it would need
    clipping per author. With `seed_noise` the noise can be repeated, and nothing is guaranteed.
    """

    noise_multiplier: float
    clip: float = 1.0
    seed_noise: int | None = None
    unit: str = "record"
    name: str = "dpsgd"

    def __post_init__(self) -> None:
        if self.unit != "record":
            raise CapeletError(
                f"DP-SGD here protects one record (one sample), not one {self.unit}; give each "
                "author one sample, or take unit 'record' and say that authors are not covered"
            )
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0):
            raise CapeletError("noise_multiplier must be a finite number, at least 0")
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise CapeletError("clip must be a finite number above 0")


Method = Plain | Adversarial | Triplet | Dpsgd
METHODS: dict[str, type[Any]] = {
    "none": Plain,
    "adversarial": Adversarial,
    "triplet": Triplet,
    "dpsgd": Dpsgd,
}


def check_settings(method: Method) -> None:
    """Refuse a strength or a position that no penalty can have."""
    if not isinstance(method, Adversarial | Triplet):
        return
    strength, position = method.strength, method.position
    if not (math.isfinite(strength) and strength >= 0):
        raise CapeletError(f"strength is {strength:g}; it must be a finite number, at least 0")
    if position not in POSITIONS:
        raise CapeletError(
            f"there is no position {position!r}; {did_you_mean(position, POSITIONS)}"
        )


def check_authors(authors: Codes, method: Method, allow_single: bool = False) -> None:
    """Refuse authors that a regulariser can learn nothing from."""
    if not isinstance(method, Adversarial | Triplet):
        return
    counts = np.bincount(authors)
    present = counts[counts > 0]
    if len(present) < 2:
        raise DataError(
            f"the method {method.name!r} hides authors from each other and needs at least two; "
            "there is one"
        )
    if (present < 2).any() and not allow_single:
        raise DataError(
            f"{int((present < 2).sum())} of {len(present)} authors have only one sample, and "
            f"{method.name!r} needs two of each; leave them out, or train with 'none' or 'dpsgd'"
        )
