"""What a defence may see, what a user may choose of it, and what fitting it yields.

Records only: nothing here imports torch, so that the table of methods can be listed at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from capelet.data.corpus import Rows
from capelet.data.labels import Attribute
from capelet.errors import CapeletError, check_known, did_you_mean, name_field
from capelet.interfaces import Encoder, Progress, Vectors
from capelet.privacy.guarantees import check_count, check_number
from capelet.question import Network, Training, chosen
from capelet.release.heads import Head
from capelet.release.maps import Map

if TYPE_CHECKING:
    from capelet.encoders.tuning import TopLayers

# What a map can be trained to keep: a task's label, each text's neighbours, or both.
KEEPS = ("task", "neighbours", "both")
# The noise of DPNR and CAPE as first printed, of too small a scale: a mechanism that a study may
# ask for, to show what the mistake does, and that nothing else takes.
SPECIMEN = "specimen:"
ORIGINAL_NOISE = SPECIMEN + "row-range"
# What a private training can hide as a whole.
UNITS = ("text", "author")
# The fields of a question that are one promise.
PROMISE = ("train_epsilon", "train_delta", "unit")
Adversary = Literal["none", "reversal", "cross", "kernel"]
# What the map has from its adversary: the reversed gradient of its loss, which has no bottom, or
# −log(1 − P(z)) of its guess, which has one (Coavoux et al. 2018; CAPE, equation 3, as printed).
ADVERSARY_LOSSES = ("reversal", "bounded")


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

    @classmethod
    def of(cls, training: Training) -> TrainingPrivacy | None:
        """The promise that was asked for; a part of one without its ε is a mistake."""
        if training.train_epsilon is None:
            if training.train_delta is not None or training.unit is not None:
                raise CapeletError(
                    f"{name_field('train_delta')} and {name_field('unit')} belong to "
                    f"{name_field('train_epsilon')}; give that too"
                )
            return None
        unit = cast("Literal['text', 'author']", training.unit or "text")
        return cls(training.train_epsilon, training.train_delta, unit)

    def __post_init__(self) -> None:
        check_number(name_field("train_epsilon"), self.epsilon, 0.0, 1e3, open_low=True)
        if self.unit not in UNITS:
            raise CapeletError(f"the unit is {self.unit!r}; {did_you_mean(self.unit, UNITS)}")


@dataclass(frozen=True)
class HeadShape:
    """The heads of a training, its task's and its adversaries': hidden units, and their dropout."""

    units: int = 200  # as in YAWYW
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_count("head_units", self.units)
        check_number("dropout", self.dropout, 0.0, 0.95)


# The settings that a paper states; what it leaves open is ours. YAWYW: table of settings; CAPE: §4.
PRESETS: dict[str, Mapping[str, float]] = {
    "yawyw": {
        "width": 64, "head_units": 200, "dropout": 0.0, "batch": 32, "rate": 1e-3, "epochs": 100,
    },
    "cape": {"width": 256, "head_units": 256, "dropout": 0.4, "rate": 1e-4},
}  # fmt: skip
# Units of a dense layer where nobody chose: as in YAWYW.
WIDTH = 64


@dataclass(frozen=True)
class Settings:
    """What a user may choose of a method; each method reads what concerns it.

    What a search varies is None until somebody chooses it. `adversary_weight` is λ, one for all
    attributes or one for each that is named; those that are not named have the method's own.
    `word_dropout` is the μ of dpnr.
    """

    epsilon: float | None = None
    adversary_weight: float | Mapping[str, float] | None = None
    word_dropout: float = 0.5
    width: int | None = None
    keep: str = "task"  # or "neighbours", or "both"
    mechanism: str = "auto"  # by name, one of the method's `mechanisms`
    table: str = "glove"
    table_size: int | None = None  # of the table's words only so many, the first ones
    tune_layers: int = 0  # of the encoder, the last ones, trained along
    schedule: Schedule = field(default_factory=Schedule)
    training: TrainingPrivacy | None = None
    adversary_loss: str = "reversal"
    heads: HeadShape = field(default_factory=HeadShape)

    @classmethod
    def of(cls, training: Training, network: Network, base: Settings | None = None) -> Settings:
        """What was chosen, before a paper's values, before those of `base`.

        >>> Settings.of(Training(epsilon=8), Network("yawyw", batch=64)).schedule.batch
        64
        """
        start, preset = base or cls(), network.preset
        if preset is not None:
            check_known("preset", preset, PRESETS)
        values = {**PRESETS.get(preset or "", {}), **chosen(network)}
        schedule = {name: values[name] for name in ("batch", "rate", "epochs") if name in values}
        for name, value in schedule.items():
            check_number(name, value, 0.0, 1e9, open_low=True)
        shape = {"units": "head_units", "dropout": "dropout"}
        heads = {name: values[key] for name, key in shape.items() if key in values}
        own = {key: item for key, item in chosen(training).items() if key not in PROMISE}
        return replace(
            start,
            **own,
            width=values.get("width", start.width),
            schedule=replace(start.schedule, **schedule),
            training=TrainingPrivacy.of(training) or start.training,
            heads=replace(start.heads, **heads),
        )

    @property
    def units(self) -> int:
        """The width of a dense layer."""
        return WIDTH if self.width is None else self.width

    @property
    def fights(self) -> bool:
        """Whether any secret has a λ that is not 0."""
        return bool(self.lam) or any(self.lambdas.values())

    @property
    def lam(self) -> float:
        """The λ of all attributes that have none of their own."""
        weight = self.adversary_weight
        return 0.0 if weight is None or isinstance(weight, Mapping) else weight

    @property
    def lambdas(self) -> Mapping[str, float]:
        """The λ of single attributes."""
        return self.adversary_weight if isinstance(self.adversary_weight, Mapping) else {}


@dataclass(frozen=True, eq=False)
class TrainedMap:
    """A frozen map, what its own adversaries reached on the held-back rows, and how it went.

    `head` is the task's classifier that was trained along, where there was one.
    """

    map: Map
    joint: Mapping[str, float] = field(default_factory=dict)
    losses: tuple[float, ...] = ()
    seconds: float = 0.0
    head: Head | None = None


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
        raise CapeletError(
            f"this method adds noise and needs an epsilon: give {name_field('epsilon', 8)}"
        )
    return check_number("epsilon", settings.epsilon, 1e-9, 1e6)
