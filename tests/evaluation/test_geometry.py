"""A map has a point and a colour for each row shown."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.evaluation.geometry import deviation, tsne
from capelet.labels import Attribute


def test_two_clouds_stay_apart_and_missing_has_no_colour() -> None:
    random = np.random.default_rng(0)
    codes = np.repeat([0, 1], 60)
    vectors = random.normal(size=(120, 10)) + 12 * codes[:, None]
    codes = codes.copy()
    codes[3] = -1
    drawn = tsne(vectors, np.arange(120), [Attribute("cloud", codes, ("a", "b"))], seed=0)
    points = np.array(drawn["points"])
    assert points.shape == (120, 2) and drawn["shown"] == drawn["of"] == 120
    assert (np.diff(points[:, 0]) >= 0).all()  # left to right: no point can be traced to its row
    cloud = np.array(drawn["colours"]["cloud"])
    assert sorted(map(str, cloud)) == ["None"] + ["a"] * 59 + ["b"] * 60
    first, second = points[cloud == "a"], points[cloud == "b"]
    assert np.linalg.norm(first.mean(axis=0) - second.mean(axis=0)) > first.std() + second.std()


def test_deviation_is_the_paired_distance() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(50, 6))
    far, angle = deviation(vectors, 2 * vectors, "h")
    assert far.value == pytest.approx(np.linalg.norm(vectors, axis=1).mean())
    assert angle.value == pytest.approx(0.0, abs=1e-12) and angle.metric == "cosine_distance"
    assert deviation(vectors, -vectors, None)[1].value == pytest.approx(2.0)
    assert deviation(vectors, vectors[:, :3], None) == []
