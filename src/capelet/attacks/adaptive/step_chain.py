"""The road from a raw vector to its release, as somebody who holds the folder sees it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.interfaces import Step, Vectors
from capelet.mechanisms.vectors import Projection, signs
from capelet.release.maps import Map

Matrix = npt.NDArray[np.float32]
# Rows on which it is checked that the steps make of raw vectors what was released.
PROBES = 16


@dataclass(frozen=True, eq=False)
class StepChain:
    """Maps without noise in order, then at most one noise whose density is known.

    `noise` is None where the release has none.
    """

    maps: tuple[Map | Projection, ...]
    noise: Any = None

    @classmethod
    def of(cls, steps: Sequence[Step]) -> StepChain | None:
        """None where the steps are others: noise before a map, on texts, or without a density."""
        maps: list[Map | Projection] = []
        for place, step in enumerate(steps):
            if isinstance(step, Map | Projection):
                maps.append(step)
            elif place == len(steps) - 1 and hasattr(step, "log_density"):
                return cls(tuple(maps), step)
            else:
                return None
        return cls(tuple(maps))

    @property
    def is_learnt(self) -> bool:
        """Whether there is something to invert."""
        return any(isinstance(step, Map) for step in self.maps)

    @property
    def is_linear(self) -> bool:
        """Whether no layer bends: then its inverse is one product."""
        layers = [layer for step in self.maps if isinstance(step, Map) for layer in step.layers]
        return all(layer.activation == "none" for layer in layers)

    def __call__(self, rows: Vectors) -> Vectors:
        """What the noise is given: the release itself where there is none."""
        for step in self.maps:
            rows = step(rows)
        return rows

    def linearise(self, rows: Matrix) -> tuple[Matrix, Matrix]:
        """The images of rows, and the slope of each."""
        images, slopes = rows, None
        for step in self.maps:
            if isinstance(step, Map):
                images, own = step.linearise(images)
            else:
                scaled = signs(images.shape[1], step.dimension).T / math.sqrt(step.dimension)
                own = scaled.astype(np.float32)[None]
                images = np.asarray(step(images), dtype=np.float32)
            slopes = own if slopes is None else own @ slopes
        assert slopes is not None
        return images, np.broadcast_to(slopes, (len(rows), *slopes.shape[1:]))

    def leads(self, raw: Vectors, outputs: Vectors) -> bool:
        """Whether these steps make the release of these vectors: a tuned encoder has others."""
        if self.noise is not None:
            return True
        rows = np.linspace(0, len(raw) - 1, min(PROBES, len(raw))).astype(int)
        if self.maps and self.maps[0].__class__ is Map and self.maps[0].width != raw.shape[1]:
            return False
        images = self(raw[rows])
        scale = float(np.abs(images).max()) or 1.0
        return images.shape[1] == outputs.shape[1] and bool(
            np.abs(images - outputs[rows]).max() < 1e-3 * scale
        )
