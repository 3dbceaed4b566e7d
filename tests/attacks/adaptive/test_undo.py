"""Undo finds what a map has not lost, and nothing where it has lost everything."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.attacks.adaptive.step_chain import StepChain
from capelet.attacks.adaptive.undo import Prior, Undo
from capelet.mechanisms import Laplace, Projection
from capelet.release.maps import Layer, Map, affine

WIDTH, ROWS = 12, 400


def raw_vectors(seed: int = 0, rows: int = ROWS) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.normal(size=(rows, WIDTH)) * np.linspace(0.3, 2, WIDTH)).astype(np.float32)


def bent_map(strength: float = 0.8) -> Map:
    """x ↦ Ax + h(x): what `gr+` trains for neighbours, with weights drawn at random."""
    random = np.random.default_rng(1)

    def layer(out: int, inside: int, scale: float, activation: str = "none") -> Layer:
        weight = scale * random.normal(size=(out, inside)) / np.sqrt(inside)
        return Layer(weight.astype("f4"), np.zeros(out, "f4"), activation)

    first = affine(np.eye(WIDTH), np.zeros(WIDTH))
    return Map((first, layer(32, WIDTH, 1.0, "relu"), layer(WIDTH, 32, strength)), first)


def explained(x: np.ndarray, guess: np.ndarray) -> float:
    return 1 - float(((guess - x) ** 2).sum() / ((x - x.mean(axis=0)) ** 2).sum())


@pytest.mark.parametrize("activation", ["none", "relu", "tanh", "softmax"])
def test_slopes_are_differences(activation: str) -> None:
    random = np.random.default_rng(2)
    layers = (
        Layer(random.normal(size=(7, 5)).astype("f4"), random.normal(size=7).astype("f4"), "tanh"),
        Layer(random.normal(size=(4, 7)).astype("f4"), np.zeros(4, "f4"), activation),
    )
    learnt = Map(layers, affine(random.normal(size=(4, 7)), np.ones(4)))
    rows = random.normal(size=(6, 5)).astype("f4")
    images, slopes = learnt.linearise(rows)
    assert np.allclose(images, learnt(rows), atol=1e-6)
    step = 1e-2
    for place in range(5):
        shift = np.zeros(5, "f4")
        shift[place] = step
        difference = (learnt(rows + shift) - learnt(rows - shift)) / (2 * step)
        assert np.allclose(slopes[:, :, place], difference, atol=2e-2)


def test_a_map_that_loses_nothing_is_undone() -> None:
    learnt, x = bent_map(), raw_vectors()
    victims = raw_vectors(3, 60)
    undo = Undo.of(learnt.linearise, x, learnt(x))
    assert explained(victims, undo(learnt(victims))) > 0.99
    # The control: the regression that it starts from does not find as much.
    assert explained(victims, undo.regression(learnt(victims))) < 0.99


def test_a_linear_map_has_the_closed_form_of_a_gaussian() -> None:
    random = np.random.default_rng(4)
    weight = random.normal(size=(5, WIDTH))
    learnt, x, victims = Map((affine(weight, np.ones(5)),)), raw_vectors(), raw_vectors(5, 20)
    guess = Undo.of(learnt.linearise, x, learnt(x), is_linear=True)(learnt(victims))
    root = Prior.of(x).root.astype(np.float64)
    covariance, mean = root @ root.T, x.mean(axis=0)
    gain = covariance @ weight.T @ np.linalg.inv(weight @ covariance @ weight.T)
    expected = mean + (victims - mean) @ (gain @ weight).T
    assert np.allclose(guess, expected, atol=1e-2)
    # Walking there by steps ends in the same place.
    walk = Undo.of(learnt.linearise, x, learnt(x))(learnt(victims))
    assert np.allclose(walk, expected, atol=2e-2)


def test_undo_finds_nothing_in_a_map_of_nothing() -> None:
    learnt, x, victims = Map((affine(np.zeros((3, WIDTH)), np.ones(3)),)), *(
        raw_vectors(6), raw_vectors(7, 40)
    )  # fmt: skip
    guess = Undo.of(learnt.linearise, x, learnt(x))(learnt(victims))
    assert explained(victims, guess) < 0.05


def test_a_road_is_maps_and_then_at_most_one_known_noise() -> None:
    learnt = bent_map()
    road = StepChain.of([Projection(6), Laplace(1.0)])
    assert road is not None and road.noise == Laplace(1.0) and not road.is_learnt
    assert (
        StepChain.of([Laplace(1.0), learnt]) is None
    )  # a map after the noise: its density is unknown
    road = StepChain.of([learnt, Projection(6)])
    assert road is not None and road.is_learnt and not road.is_linear
    x = raw_vectors(8, 9)
    images, slopes = road.linearise(x)
    assert slopes.shape == (9, 6, WIDTH) and np.allclose(images, road(x), atol=1e-5)
    assert road.leads(x, road(x)) and not road.leads(x, road(x) + 1)
