"""What a user may choose of a method, and what fitting it yields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capelet.defences.training import Part, Schedule, TrainedMap
from capelet.errors import CapeletError
from capelet.interfaces import Encoder, Progress
from capelet.privacy.guarantees import check_number

KEEPS = ("task", "neighbours", "both")
"""What a map can be trained to keep: a task's label, each text's neighbours, or both."""


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


@dataclass(frozen=True, eq=False)
class Fitted:
    """What follows the encoder: noise, the learnt map, noise; and how the training went.

    `encoder` is the encoder itself where that was learnt too.
    """

    trained: TrainedMap
    before: Any = None
    after: Any = None
    encoder: Encoder | None = None

    @property
    def steps(self) -> tuple[Any, ...]:
        """The vector steps, in the order of a recipe."""
        return tuple(
            step for step in (self.before, self.trained.map, self.after) if step is not None
        )


Fit = Callable[[Part, Settings, "Path | None", Progress], Fitted]
"""Fits a method on a part; the path is a folder for checkpoints."""


def epsilon_of(settings: Settings) -> float:
    """The ε of the settings; an error where there is none, or no positive number."""
    if settings.epsilon is None:
        raise CapeletError("this method adds noise and needs an epsilon: give --epsilon 8")
    return check_number("epsilon", settings.epsilon, 1e-9, 1e6)
