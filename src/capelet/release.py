"""Steps in order make a private encoder; what it lets out, a Release, is all an attacker holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capelet.encoders import load
from capelet.errors import CapeletError
from capelet.guarantees import Guarantee, chain
from capelet.interfaces import Encoder, Kind, Progress, Step, Vectors, silent


@dataclass(frozen=True, eq=False)
class Release:
    """Vectors, what is guaranteed about them, and the recipe that made them."""

    vectors: Vectors
    guarantee: Guarantee
    recipe: Mapping[str, Any]

    @property
    def recipe_hash(self) -> str:
        return recipe_hash(self.recipe)


def recipe_hash(recipe: Mapping[str, Any]) -> str:
    """A short name for a recipe: equal recipes have equal hashes."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


class PrivateEncoder:
    """Text steps, an encoder, vector steps: in this order, checked for fit before anything runs.

    Example: `PrivateEncoder("minilm")` releases the encoder's vectors as they are;
    `PrivateEncoder()` releases ready vectors as they are. The guarantee is that of the noise steps;
    what follows the last of them is post-processing and keeps it.
    """

    def __init__(self, *steps: str | Encoder | Step) -> None:
        self.steps = tuple(load(step) if isinstance(step, str) else step for step in steps)
        flow: Kind | None = None
        for step in self.steps:
            consumes, emits = _flow(step)
            if flow is not None and flow != consumes:
                raise CapeletError(
                    f"the step {_describe(step)['step']!r} consumes {consumes}, not {flow}; "
                    "put text steps before the encoder and vector steps after it"
                )
            flow = emits
        if flow == "texts":
            raise CapeletError("the steps end in texts; an encoder is missing")

    @property
    def consumes(self) -> Kind:
        return _flow(self.steps[0])[0] if self.steps else "vectors"

    @property
    def encoder(self) -> Encoder | None:
        """The encoder among the steps; None when ready vectors are released."""
        return next((step for step in self.steps if isinstance(step, Encoder)), None)

    @property
    def protects(self) -> bool:
        """Whether anything but the encoder touches the vectors."""
        return any(not isinstance(step, Encoder) for step in self.steps)

    @property
    def guarantee(self) -> Guarantee:
        noise = [_guarantee(step) for step in self.steps]
        return chain([item for item in noise if item is not None])

    @property
    def recipe(self) -> dict[str, Any]:
        return {"steps": [_describe(step) for step in self.steps]}

    def release(self, inputs: Sequence[str] | Vectors, progress: Progress = silent) -> Release:
        """Send texts (or ready vectors) through all steps; noise is drawn afresh on every call."""
        batch: Any = inputs
        for step in self.steps:
            batch = step.encode(batch, progress) if isinstance(step, Encoder) else step(batch)
        return Release(np.asarray(batch), self.guarantee, self.recipe)

    def unprotected(self) -> PrivateEncoder:
        """The encoder alone, for comparison."""
        return PrivateEncoder(*[step for step in self.steps if isinstance(step, Encoder)])


def _flow(step: Encoder | Step) -> tuple[Kind, Kind]:
    return ("texts", "vectors") if isinstance(step, Encoder) else (step.consumes, step.emits)


def _guarantee(step: Encoder | Step) -> Guarantee | None:
    return None if isinstance(step, Encoder) else step.guarantee


def _describe(step: Encoder | Step) -> dict[str, Any]:
    if isinstance(step, Encoder):
        return {
            "step": "encoder",
            "name": step.name,
            "backend": step.backend,
            "fingerprint": step.fingerprint,
        }
    return step.describe()
