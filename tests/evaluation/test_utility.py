"""Neighbour recall is one for the same vectors, chance for unrelated ones."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.evaluation.utility import neighbour_recall


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
