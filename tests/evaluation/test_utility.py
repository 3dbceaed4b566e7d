"""Neighbour recall is one for the same vectors, chance for unrelated ones."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.data.corpus import Corpus, Split
from capelet.evaluation.plan import Plan
from capelet.evaluation.utility import neighbour_recall, neighbours


def test_recall_between_identity_and_noise() -> None:
    random = np.random.default_rng(0)
    points = random.normal(size=(1500, 8))
    assert neighbour_recall(points, points).mean() == 1.0
    assert neighbour_recall(points, 3 * points).mean() == 1.0  # length does not matter
    unrelated = neighbour_recall(points, random.normal(size=(1500, 8))).mean()
    assert unrelated == pytest.approx(10 / 1499, abs=0.004)
    near = neighbour_recall(points, points + 0.05 * random.normal(size=points.shape)).mean()
    assert 0.6 < near < 1.0


def test_too_few_rows_are_said() -> None:
    with pytest.raises(ValueError, match="10 rows"):
        neighbour_recall(np.eye(10), np.eye(10))


def test_the_interval_of_neighbours_is_over_persons_and_all_seeds() -> None:
    random = np.random.default_rng(2)
    author = np.repeat(np.arange(20), 15)
    vectors = random.normal(size=(300, 8))
    # Half of the authors are noised, wholly: a text tells little beyond its author.
    noise = (author % 2)[:, None] * random.normal(size=vectors.shape) * 5
    rows = np.arange(300)
    found = {}
    for name, units in (("author", author), ("text", rows)):
        parts = [Split("random", seed, rows[:0], rows[:0], rows, rows < 0) for seed in range(2)]
        corpus = Corpus("planted", vectors=vectors.astype(np.float32))
        plan = Plan(corpus, (), None, tuple(parts), units, ())
        found[name] = neighbours(plan, vectors, [vectors + noise] * 2, None)
    one = neighbour_recall(vectors, vectors + noise)
    assert found["author"].value == pytest.approx(one.mean())
    assert found["author"].parameters["by_seed"] == pytest.approx([one.mean()] * 2)
    width = {name: (row.high or 0) - (row.low or 0) for name, row in found.items()}
    assert width["author"] > 1.5 * width["text"] > 0
