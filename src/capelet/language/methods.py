"""The training methods of language models, as frozen settings; `learners` says how each one steps.

The three private ones are those of Mireshghallah et al. (2021) and DP-SGD (Abadi et al. 2016).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from capelet.errors import CapeletError, DataError, check_known
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


UNITS = ("record", "author")
# Texts of an author that train at most, where nobody says; more cost time, and noise hides as much.
TEXTS_PER_AUTHOR = 16


@dataclass(frozen=True)
class Dpsgd:
    """Clipped, noisy gradient sums of Poisson samples: differential privacy for each unit.

    A unit is a `record` (one sample) or an `author`: then the gradients of at most
    `texts_per_author` samples of each author add up, are clipped as one, and authors are what is
    drawn. `units` is how many there are said to be: sampling rate, steps and divisor depend on this
    number, so it should be a noised one. None takes the exact number. With `seed_noise` the noise
    can be repeated, and nothing is guaranteed.
    """

    noise_multiplier: float
    clip: float = 1.0
    seed_noise: int | None = None
    unit: str = "record"
    texts_per_author: int = TEXTS_PER_AUTHOR
    units: int | None = None
    name: str = "dpsgd"

    def __post_init__(self) -> None:
        check_known("unit", self.unit, UNITS)
        if self.texts_per_author < 1:
            raise CapeletError(
                f"texts_per_author is {self.texts_per_author}; it must be at least 1"
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
    check_known("position", position, POSITIONS)


def check_authors(authors: Codes, method: Method, allow_single: bool = False) -> None:
    """Refuse authors that a method can learn nothing from, or hide among nobody."""
    by_author = isinstance(method, Dpsgd) and method.unit == "author"
    if not by_author and not isinstance(method, Adversarial | Triplet):
        return
    counts = np.bincount(authors)
    present = counts[counts > 0]
    if by_author:
        if len(present) < 2:
            raise DataError(
                "the unit 'author' hides authors among each other and needs at least two; there is "
                "one"
            )
        return
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
