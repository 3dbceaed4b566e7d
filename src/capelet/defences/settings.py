"""What a defence may see, what a user may choose of it, and what fitting it yields.

Records only: nothing here imports torch, so that the table of methods can be listed at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from capelet.data.corpus import Rows
from capelet.data.labels import Attribute
from capelet.errors import CapeletError, did_you_mean
from capelet.interfaces import Encoder, Progress, Vectors
from capelet.privacy.guarantees import check_number
from capelet.release.maps import Map

if TYPE_CHECKING:
    from capelet.encoders.tuning import TopLayers

# What a map can be trained to keep: a task's label, each text's neighbours, or both.
KEEPS = ("task", "neighbours", "both")
# What a private training can hide as a whole.
UNITS = ("text", "author")
Adversary = Literal["none", "reversal", "cross", "kernel"]


@dataclass(frozen=True, eq=False)
class Part:
    """What a defence may see: the defender's vectors, its task and its secrets, and two halves.

    `fit` and `tune` are rows of `vectors`; the attributes' codes have one entry for each of them,
    and so have the texts, where there are any. `top` are the last layers of the encoder, where they
    may be trained along. A private training clips by `units`, rows of each side by side (−1: none),
    and counts on `population`, how many units there are in the whole file.
    """

    vectors: Vectors
    fit: Rows
    tune: Rows
    task: Attribute | None
    secrets: tuple[Attribute, ...]
    texts: Sequence[str] | None = None
    top: TopLayers | None = None
    units: Rows | None = None
    population: int | None = None

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def targets(self) -> list[Attribute]:
        return [*self.secrets, *([self.task] if self.task is not None else [])]

    def digest(self) -> str:
        """A hash of everything that training sees."""
        # One byte order everywhere, so that a checkpoint is found again on another machine.
        hasher = hashlib.sha256(np.ascontiguousarray(self.vectors, dtype="<f4").tobytes())
        for item in self.targets:
            hasher.update(item.name.encode() + np.ascontiguousarray(item.codes, "<i8").tobytes())
        for rows in (self.fit, self.tune):
            hasher.update(np.ascontiguousarray(rows, "<i8").tobytes())
        return hasher.hexdigest()


@dataclass(frozen=True)
class Schedule:
    """How long and how fast: batches of `batch`, Adam at `rate`, `patience` epochs without gain."""

    epochs: int = 60
    batch: int = 128
    rate: float = 1e-3
    patience: int | None = 5
    decay: float = 0.0
    cooling: bool = False
    seed: int = 0
    device: str = "auto"


@dataclass(frozen=True)
class TrainingPrivacy:
    """DP-SGD: replacing one text, or one author, changes what is learnt by at most (ε, δ).

    δ None is the default for the number of units. Of an author at most `texts` texts train.
    `seed_noise` makes the noise repeatable, for studies; then nothing is promised.
    """

    epsilon: float
    delta: float | None = None
    unit: Literal["text", "author"] = "text"
    texts: int = 8
    seed_noise: int | None = None

    def __post_init__(self) -> None:
        check_number("train-epsilon", self.epsilon, 0.0, 1e3, open_low=True)
        if self.unit not in UNITS:
            raise CapeletError(f"the unit is {self.unit!r}; {did_you_mean(self.unit, UNITS)}")


@dataclass(frozen=True)
class Settings:
    """What a user may choose of a method; each method reads what concerns it."""

    epsilon: float | None = None
    lam: float | None = None
    mu: float = 0.5
    width: int = 64
    keep: str = "task"  # or "neighbours", or "both"
    mechanism: str = "auto"
    table: str = "glove"
    layers: int = 0  # of the encoder, the last ones, trained along
    schedule: Schedule = field(default_factory=Schedule)
    training: TrainingPrivacy | None = None


@dataclass(frozen=True, eq=False)
class TrainedMap:
    """A frozen map, what its own adversaries reached on the held-back rows, and how it went."""

    map: Map
    joint: Mapping[str, float] = field(default_factory=dict)
    losses: tuple[float, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Defence:
    """What follows the encoder: noise, the learnt map, noise; and how the training went.

    `encoder` is the encoder itself where that was learnt too.
    """

    outcome: TrainedMap
    before: Any = None
    after: Any = None
    encoder: Encoder | None = None

    @property
    def steps(self) -> tuple[Any, ...]:
        """The vector steps, in the order of a recipe."""
        return tuple(
            step for step in (self.before, self.outcome.map, self.after) if step is not None
        )


# Fits a method on a part; the path is a folder for checkpoints.
Fit = Callable[[Part, Settings, "Path | None", Progress], Defence]


def epsilon_of(settings: Settings) -> float:
    """The ε of the settings; an error where there is none, or no positive number."""
    if settings.epsilon is None:
        raise CapeletError("this method adds noise and needs an epsilon: give --epsilon 8")
    return check_number("epsilon", settings.epsilon, 1e-9, 1e6)
