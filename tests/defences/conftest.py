"""A planted world for the defences: a task, a linear secret, and one that no line can read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from capelet.data.labels import Attribute
from capelet.defences.fitting import Part, Schedule

Steps = Callable[[np.ndarray], np.ndarray]


def as_they_are(rows: np.ndarray) -> np.ndarray:
    return rows


@dataclass(frozen=True, eq=False)
class World:
    """The defender's part, and rows of others: a fresh attacker learns on half, is scored on half.

    `task` moves coordinates 0 and 1, `line` moves coordinate 2, `radius` decides how far from 0
    coordinates 4 and 5 lie (their mean is 0 either way). Coordinate 7 is dead.
    """

    part: Part
    others: np.ndarray
    codes: dict[str, np.ndarray]

    def secrets(self, *names: str) -> Part:
        """The part with these secrets only."""
        return replace(
            self.part, secrets=tuple(item for item in self.part.secrets if item.name in names)
        )

    def reads(self, name: str, kind: str = "linear", through: Steps = as_they_are) -> float:
        """Balanced accuracy of a fresh attacker on what these steps make of the others' rows."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import balanced_accuracy_score
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVC

        vectors = StandardScaler().fit_transform(np.asarray(through(self.others), dtype=float))
        half, secret = len(vectors) // 2, self.codes[name]
        made: Any = (
            SVC(class_weight="balanced")
            if kind == "kernel"
            else LogisticRegression(class_weight="balanced", max_iter=500)
        )
        made.fit(vectors[:half], secret[:half])
        return float(balanced_accuracy_score(secret[half:], made.predict(vectors[half:])))


def planted_world(fit: int = 1200, tune: int = 200, others: int = 2400, seed: int = 5) -> World:
    random = np.random.default_rng(seed)
    rows = fit + tune + others
    codes = {name: random.integers(0, 2, rows) for name in ("task", "line", "radius")}
    vectors = random.normal(size=(rows, 12))
    vectors[:, :2] += 2.0 * codes["task"][:, None] - 1
    vectors[:, 2] += 3.0 * codes["line"]
    vectors[:, 4:6] *= np.where(codes["radius"], 3.0, 0.5)[:, None]
    vectors[:, 7] = 0.25
    inside = np.arange(fit + tune)

    def attribute(name: str) -> Attribute:
        return Attribute(name, codes[name][inside].astype(np.intp), ("no", "yes"))

    part = Part(
        vectors[inside].astype(np.float32),
        inside[:fit],
        inside[fit:],
        attribute("task"),
        (attribute("line"), attribute("radius")),
    )
    outside = slice(fit + tune, None)
    held = {name: values[outside] for name, values in codes.items()}
    return World(part, vectors[outside].astype(np.float32), held)


@pytest.fixture(scope="session")
def world() -> World:
    return planted_world()


@pytest.fixture
def quick() -> Schedule:
    """A short training on the processor."""
    return Schedule(epochs=6, device="cpu")
