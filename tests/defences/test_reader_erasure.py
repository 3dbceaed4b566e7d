"""What `gr+` does for neighbours: it loses what readers look along, and nobody undoes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("concept_erasure")

from capelet.attacks.adaptive.pairs import RidgeInverse
from capelet.defences import Settings, fit
from capelet.defences.erasure import erase
from capelet.defences.fitting import Schedule

QUICK = Schedule(epochs=20, device="cpu")


def eraser_of(part: Any, lam: float) -> Any:
    settings = Settings(adversary_weight=lam, keep="neighbours", schedule=QUICK)
    return fit("gr+", part, settings).outcome.map


@pytest.fixture(scope="module")
def eraser(world: Any) -> Any:
    return eraser_of(world.part, 0.5)


def test_a_kernel_reads_neither_line_nor_radius(world: Any, eraser: Any) -> None:
    """LEACE leaves the radius, which no line reads; the directions of readers hold it."""
    assert world.reads("radius", "kernel", erase(world.part).map) > 0.8
    assert world.reads("radius", "kernel", eraser) < 0.6
    assert world.reads("line", "kernel", eraser) < 0.6
    assert world.reads("task", through=eraser) > world.reads("task") - 0.05


def test_it_is_affine_and_of_lower_rank(world: Any, eraser: Any) -> None:
    (layer,) = eraser.layers
    assert layer.activation == "none"
    values = np.linalg.svd(layer.weight.astype(float), compute_uv=False)
    # One dead coordinate, two directions of LEACE, two of readers. None is taken in part: a part
    # can be undone.
    assert (values < 1e-5 * values[0]).sum() == 5 and (values > 0.9).sum() == 7


def test_pairs_do_not_bring_the_directions_back(world: Any, eraser: Any) -> None:
    rows = world.others
    half = len(rows) // 2
    inverse = RidgeInverse.fit(eraser(rows[:half]), rows[:half])

    def undone(vectors: np.ndarray) -> np.ndarray:
        return inverse(eraser(vectors))

    assert world.reads("radius", "kernel", undone) < 0.6
    assert world.reads("task", through=undone) > world.reads("task") - 0.05


def test_lambda_says_how_many_and_nothing_is_changed_at_zero(world: Any) -> None:
    rows = world.others[:50]
    np.testing.assert_array_equal(eraser_of(world.part, 0.0)(rows), rows)
    np.testing.assert_allclose(
        eraser_of(world.part, 0.1)(rows), erase(world.part).map(rows), atol=1e-5
    )
