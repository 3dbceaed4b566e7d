"""A map has a point and a colour for each row shown."""

from __future__ import annotations

import numpy as np

from capelet.evaluation.geometry import tsne
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
    assert drawn["colours"]["cloud"][3] is None and drawn["colours"]["cloud"][:2] == ["a", "a"]
    apart = np.linalg.norm(points[:60].mean(axis=0) - points[60:].mean(axis=0))
    assert apart > points[:60].std() + points[60:].std()
