"""The posterior of the noise: exact by hand, at chance without a signal."""

from __future__ import annotations

import math

import numpy as np
import pytest

from capelet.attacks.adaptive.likelihood import posterior
from capelet.mechanisms import Gaussian, Laplace, PrivUnit, RandomisedResponse


def test_randomised_response_is_bayes_by_hand() -> None:
    noise = RandomisedResponse(2.0, 3)
    inputs = np.eye(3)[[0, 0, 1, 2, 2, 2]]
    codes = np.array([0, 1, 0, 1, 1, 0])
    result = posterior(noise.log_density, np.eye(3)[[0]], inputs, codes, 2, powers=(1.0,))[0]
    # Symbol 0 was seen: of each class one text in three has it, e² times as likely as the others.
    assert result[0] == pytest.approx([0.5, 0.5])
    result = posterior(noise.log_density, np.eye(3)[[2]], inputs, codes, 2, powers=(1.0,))[0]
    weight = math.exp(2)
    assert result[0, 1] == pytest.approx((2 * weight + 1) / (3 * weight + 3))


@pytest.mark.parametrize(
    "noise", [Laplace(2.0), Gaussian(2.0, 1e-2), PrivUnit(2.0), RandomisedResponse(2.0, 4)]
)
def test_densities_have_the_ratio_of_the_frequencies(noise: object) -> None:
    """Two inputs: the events {ln p(z|a) − ln p(z|b) > t} happen as often as the densities say."""
    inputs = np.array([[1.0, 0.2, 0.0, 0.1], [0.0, 0.1, 1.0, 0.3]])
    count = 40_000
    ratios = []
    for row in inputs:
        released = noise(np.tile(row, (count, 1)))  # type: ignore[operator]
        logs = noise.log_density(released, inputs)  # type: ignore[attr-defined]
        ratios.append(logs[:, 0] - logs[:, 1])
    # E_b[p_a/p_b] = 1, and the same the other way round.
    assert np.exp(ratios[1]).mean() == pytest.approx(1.0, abs=0.06)
    assert np.exp(-ratios[0]).mean() == pytest.approx(1.0, abs=0.06)
    assert ratios[0].mean() > 0.05 > -0.05 > ratios[1].mean()


def test_own_texts_are_left_out_without_a_bias() -> None:
    """A density that tells nothing reads nothing, also where each text is left out in turn."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 2, 300)
    inputs = random.normal(size=(300, 2))
    units = np.arange(300)

    def flat(released: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.zeros((len(released), len(rows)))

    result = posterior(flat, inputs, inputs, codes, 2, own=units, units=units)[0]
    assert np.allclose(result, 0.5)
    # The control: counted among the texts, it would find itself.

    def sharp(released: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return -1e3 * ((released[:, None] - rows) ** 2).sum(axis=2)

    inside = posterior(sharp, inputs, inputs, codes, 2, powers=(1.0,))[0]
    outside = posterior(sharp, inputs, inputs, codes, 2, powers=(1.0,), own=units, units=units)[0]
    assert (inside.argmax(axis=1) == codes).mean() == 1.0
    assert (outside.argmax(axis=1) == codes).mean() < 0.65
