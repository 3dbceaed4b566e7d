"""Replacing one text is a group of two; the noise keeps to the target, and δ stays below n^−1.1."""

from __future__ import annotations

import math

import numpy as np
import pytest

from capelet.errors import CapeletError
from capelet.privacy.accounting import epsilon_of
from capelet.privacy.guarantees import NONE, Guarantee, gaussian_delta
from capelet.privacy.replacement import Target, choose_delta, replacement


def test_two_steps_of_adding_or_removing_are_one_replacement() -> None:
    """By brute force: three distributions on three outcomes, each the next one's neighbour."""
    random = np.random.default_rng(0)
    for _ in range(300):
        one, middle, other = random.dirichlet(np.ones(3), size=3)
        epsilon = random.uniform(0.1, 1.5)
        steps = [(one, middle), (middle, one), (middle, other), (other, middle)]
        losses = [np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in steps]
        total, delta = replacement(epsilon, float(max(losses)))
        for p, q in ((one, other), (other, one)):
            assert np.maximum(p - math.exp(total) * q, 0).sum() <= delta + 1e-12


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_noise_keeps_to_the_target(epsilon: float) -> None:
    target = Target(epsilon, 1e-5, 0.25, 20)
    promise = target.guarantee("text")
    assert 0.98 * epsilon < promise.epsilon <= epsilon and promise.delta <= 1e-5
    assert (promise.notion, promise.unit, promise.neighbours) == ("central", "text", "replace")
    assert promise.status == "proven" and "real arithmetic" in promise.caveat
    half, share = target.half
    assert epsilon_of(target.noise(), 0.25, 20, share) <= half
    # The control: a little less noise does not keep to it.
    assert epsilon_of(target.noise() * 0.98, 0.25, 20, share) > half


def test_without_sampling_it_is_no_less_than_the_exact_replacement() -> None:
    """All units in every step: one Gaussian of sensitivity 2C, whose δ is known in closed form."""
    target = Target(4.0, 1e-5, 1.0, 10)
    promise = target.guarantee("text")
    sigma = target.noise() / math.sqrt(10)
    assert gaussian_delta(sigma, promise.epsilon, sensitivity=2.0) <= promise.delta


def test_an_epsilon_that_no_noise_reaches_is_refused() -> None:
    with pytest.raises(CapeletError, match=r"a training ε of 0\.01 for replacing one text cannot"):
        Target(0.01, 1e-5, 0.25, 100).noise()


def test_seeded_noise_promises_nothing() -> None:
    promise = Target(8.0, 1e-5, 0.25, 5).guarantee("author", is_seeded=True)
    assert promise.status == "none" and "seeded" in promise.caveat and promise.unit == "author"


def test_delta_is_refused_above_its_power_of_n() -> None:
    assert choose_delta(1e-6, 1000) == 1e-6 and choose_delta(None, 1000) == 1e-5
    assert choose_delta(None, 10**6) == pytest.approx(10**-6.6)
    with pytest.raises(CapeletError, match=r"it may be 0.000501 at most"):
        choose_delta(1e-3, 1000)
    with pytest.raises(CapeletError, match="train_delta= is 0"):
        choose_delta(0.0, 1000)


def test_a_text_that_trained_and_passes_has_both_together() -> None:
    training = Guarantee(3.0, 1e-6, "central", "author", neighbours="replace")
    both = Guarantee(2.0, training=training).for_training_texts()
    assert both is not None
    assert (both.epsilon, both.delta, both.unit, both.status) == (5.0, 1e-6, "text", "proven")
    sentence = Guarantee(2.0, training=training).sentence()
    assert sentence.endswith("a text that trained and passes: (5, 1e-06)")
    # Nothing of that kind without both promises.
    assert Guarantee(2.0, training=NONE).for_training_texts() is None
    assert Guarantee(2.0).for_training_texts() is None
    added = Guarantee(3.0, 1e-6, "central", neighbours="add-remove")
    assert Guarantee(2.0, training=added).for_training_texts() is None


def test_an_epsilon_beyond_the_accountant_is_refused_with_the_largest_that_is_not() -> None:
    with pytest.raises(CapeletError, match="an ε of 41 at most, or a larger δ"):
        Target(300.0, 1e-5, 0.25, 100).noise()
    assert Target(41.0, 1e-5, 0.25, 100).noise() > 0.5  # the control
