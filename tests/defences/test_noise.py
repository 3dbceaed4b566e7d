"""Each twin has the distribution of its mechanism; and the test would notice if it had not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, ks_2samp

from capelet.defences.noise import LaplaceTwin, draw, twin
from capelet.errors import CapeletError
from capelet.mechanisms import Gaussian, Laplace, PrivUnit, Projection, RandomisedResponse
from capelet.mechanisms.specimens import RowRange

DRAWS = 6000
ALPHA = 1e-6
ROW = np.array([0.9, -0.3, 0.2, 0.4, 0.0])

MECHANISMS = [
    Laplace(2.0),
    Laplace(50.0),
    Gaussian(1.0, 1e-5),
    PrivUnit(1.0),
    PrivUnit(8.0),
    RowRange(2.0),
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def two_samples(mechanism: Any, made: Any) -> tuple[np.ndarray, np.ndarray]:
    """Many draws of one row: of the mechanism, and of what claims to be its twin."""
    rows = np.tile(ROW, (DRAWS, 1))
    seeded = made(torch.tensor(rows, dtype=torch.float32), generator())
    return mechanism(rows), seeded.numpy().astype(float)


def smallest(one: np.ndarray, other: np.ndarray) -> float:
    """The least p-value over coordinates, the direction of the row, and the length."""
    along = ROW / np.linalg.norm(ROW)
    views = [(one[:, place], other[:, place]) for place in range(one.shape[1])]
    views.append((one @ along, other @ along))
    views.append((np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1)))
    # Lengths of PrivUnit are all 1/m, up to rounding: compared to six digits.
    return min(float(ks_2samp(np.round(a, 4), np.round(b, 4)).pvalue) for a, b in views)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_a_twin_is_distributed_as_its_mechanism(mechanism: Any) -> None:
    assert smallest(*two_samples(mechanism, twin(mechanism))) > ALPHA


def test_the_comparison_notices_a_wrong_scale() -> None:
    wrong = LaplaceTwin(1.2 * twin(Laplace(2.0)).scale)  # type: ignore[attr-defined]
    assert smallest(*two_samples(Laplace(2.0), wrong)) < ALPHA
    assert smallest(*two_samples(PrivUnit(8.0), twin(PrivUnit(6.0)))) < ALPHA
    # The original noise of DPNR and CAPE is not the right one with another name.
    assert smallest(*two_samples(RowRange(2.0), twin(Laplace(2.0)))) < ALPHA


def test_a_response_twin_gives_the_exact_chances() -> None:
    mechanism = RandomisedResponse(1.5, 4)
    chances = twin(mechanism)(torch.eye(4), generator()).double().numpy()
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-6)
    keep = np.exp(1.5) / (np.exp(1.5) + 3)
    np.testing.assert_allclose(np.diag(chances), keep, rtol=1e-5)
    released = mechanism(np.tile(np.eye(4)[2], (DRAWS, 1))).sum(axis=0)
    assert chisquare(released, DRAWS * chances[2] / chances[2].sum()).pvalue > ALPHA
    assert chisquare(released, [DRAWS / 4] * 4).pvalue < ALPHA


def test_what_is_drawn_to_choose_by_is_distributed_as_a_release() -> None:
    mechanism = RandomisedResponse(1.5, 4)
    rows = torch.tensor([[0.1, 0.2, 0.6, 0.1]]).repeat(DRAWS, 1)
    made = draw(mechanism, rows, generator()).numpy()
    assert set(np.unique(made)) == {0.0, 1.0} and (made.sum(axis=1) == 1).all()
    keep = np.exp(1.5) / (np.exp(1.5) + 3)
    wanted = DRAWS * np.array([1 - keep, 1 - keep, 3 * keep, 1 - keep]) / 3
    assert chisquare(made.sum(axis=0), wanted).pvalue > ALPHA
    one = draw(Laplace(2.0), rows, generator())
    torch.testing.assert_close(one, twin(Laplace(2.0))(rows, generator()), rtol=0, atol=0)


@pytest.mark.parametrize("mechanism", [*MECHANISMS, RandomisedResponse(2.0, 5)], ids=repr)
def test_a_twin_is_seeded_and_lets_gradients_through(mechanism: Any) -> None:
    made = twin(mechanism)
    x = torch.tensor(np.tile(np.abs(ROW), (3, 1)), dtype=torch.float32, requires_grad=True)
    first = made(x, generator(1))
    torch.testing.assert_close(first, made(x, generator(1)), rtol=0, atol=0)
    (first * torch.arange(15.0).reshape(3, 5)).sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all() and x.grad.abs().sum() > 0
    if not isinstance(mechanism, RandomisedResponse):
        assert (made(x, generator(2)) != first).all()


def test_a_mechanism_without_a_twin_is_refused() -> None:
    with pytest.raises(CapeletError, match="no map can be trained through the step 'projection'"):
        twin(Projection(4))
    with pytest.raises(CapeletError, match="no map can be trained through the step 'gaussian'"):
        twin(Gaussian(1.0, 1e-5, clip=2.0))
