"""Vectors and texts of writers with a style, more or less of it."""

from __future__ import annotations

import numpy as np

WRITERS, TEXTS = 20, 30
AUTHORS = [f"w{row % WRITERS}" for row in range(WRITERS * TEXTS)]


def vectors(style: float) -> np.ndarray:
    random = np.random.default_rng(0)
    centre = random.normal(size=(WRITERS, 24))
    codes = np.array([int(name[1:]) for name in AUTHORS])
    made = style * centre[codes] + random.normal(size=(len(codes), 24))
    made[:, 3] = 0.0  # a dead coordinate
    return made.astype(np.float32)


def texts(habit: float) -> list[list[str]]:
    """Ten words each; with probability `habit` a word is one of the writer's three favourites."""
    random = np.random.default_rng(1)
    return [
        [
            f"{name}x{random.integers(3)}" if random.random() < habit else f"c{random.integers(90)}"
            for _ in range(10)
        ]
        for name in AUTHORS
    ]
