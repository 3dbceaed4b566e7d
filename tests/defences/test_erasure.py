"""After erasure no line reads the secret; what no line could read, a kernel reads as before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capelet.data.labels import Attribute
from capelet.defences.erasure import erase


def test_leace_stops_the_linear_attacker_and_not_the_radius_one(world: Any) -> None:
    erased = erase(world.part).map
    assert world.reads("line") > 0.9 and world.reads("line", through=erased) < 0.55
    before = world.reads("radius", "kernel")
    assert before > 0.8
    assert world.reads("radius", "kernel", erased) > before - 0.03
    assert world.reads("task", through=erased) > world.reads("task") - 0.02


def test_what_is_not_named_stays(world: Any) -> None:
    """The negative control: erasing one secret leaves another where it was."""
    erased = erase(world.secrets("radius")).map
    assert world.reads("line", through=erased) > world.reads("line") - 0.02


def test_no_class_mean_differs_where_it_was_fitted(world: Any) -> None:
    part = world.part
    after = erase(part).map(part.vectors).astype(float)
    for secret in part.secrets:
        means = [after[secret.codes == code].mean(axis=0) for code in (0, 1)]
        np.testing.assert_allclose(means[0], means[1], atol=1e-5)


def test_several_classes_leave_together(world: Any) -> None:
    random = np.random.default_rng(1)
    codes = random.integers(0, 4, len(world.part.vectors)).astype(np.intp)
    shifts = random.normal(size=(4, world.part.width)).astype(np.float32)
    part = replace(
        world.part,
        vectors=world.part.vectors + shifts[codes],
        secrets=(Attribute("four", codes, ("a", "b", "c", "d")),),
    )
    after = erase(part).map(part.vectors).astype(float)
    means = np.stack([after[codes == code].mean(axis=0) for code in range(4)])
    np.testing.assert_allclose(means - means.mean(axis=0), 0, atol=1e-5)
    plain = np.stack([part.vectors[codes == code].mean(axis=0) for code in range(4)])
    assert np.abs(plain - plain.mean(axis=0)).max() > 0.5


def test_a_dead_coordinate_stays_dead_and_carries_nothing(world: Any) -> None:
    after = erase(world.part).map(world.others)
    assert np.ptp(after[:, 7]) == 0
    assert after[0, 7] == pytest.approx(0.25, abs=1e-6)


def test_missing_values_are_left_out(world: Any) -> None:
    """Half of the values hidden: the rest still says which direction must go."""
    line = world.part.secrets[0]
    codes = line.codes.copy()
    codes[::2] = -1
    erased = erase(replace(world.part, secrets=(replace(line, codes=codes),))).map
    assert world.reads("line", through=erased) < 0.6
