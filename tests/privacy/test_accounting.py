"""ε of DP-SGD against closed forms and another accountant; refusals before any work."""

from __future__ import annotations

import math

import pytest

from capelet.errors import CapeletError
from capelet.privacy.accounting import central, check_delta, epsilon_of, noise_for
from capelet.privacy.guarantees import gaussian_delta


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (4.0, 16), (10.0, 50)])
def test_without_sampling_it_is_the_gaussian_mechanism(sigma: float, steps: int) -> None:
    """k Gaussian steps are one with σ/√k, whose δ(ε) is known exactly."""
    epsilon = epsilon_of(sigma, 1.0, steps, 1e-5)
    exact = gaussian_delta(sigma / math.sqrt(steps), epsilon)
    assert exact <= 1e-5
    below = gaussian_delta(sigma / math.sqrt(steps), epsilon - 0.02)
    assert below > 1e-5


def test_it_is_dp_accounting_s_finest_answer_to_a_hundredth() -> None:
    import dp_accounting
    from dp_accounting import pld

    event = dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(0.8))
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(event, 200)
    assert abs(epsilon_of(0.8, 0.02, 200, 1e-5) - accountant.get_epsilon(1e-5)) < 1e-2


@pytest.mark.filterwarnings("ignore")
def test_another_accountant_agrees() -> None:
    accountants = pytest.importorskip("opacus.accountants", reason="opacus is not installed")
    other = accountants.PRVAccountant()
    other.history = [(1.0, 0.05, 300)]
    assert abs(other.get_epsilon(1e-5) - epsilon_of(1.0, 0.05, 300, 1e-5)) < 0.05


def test_the_noise_for_an_epsilon_keeps_it_and_little_less_does_not() -> None:
    sigma = noise_for(4.0, 1e-5, 0.05, 100)
    assert epsilon_of(sigma, 0.05, 100, 1e-5) <= 4.0
    assert epsilon_of(0.995 * sigma, 0.05, 100, 1e-5) > 4.0


def test_an_epsilon_out_of_reach_names_the_least_one() -> None:
    with pytest.raises(
        CapeletError, match=r"cannot be reached in 5000 steps .* the least is 3\.\d"
    ):
        noise_for(0.5, 1e-6, 1.0, 5000)


def test_an_epsilon_that_cannot_be_accounted_for_is_refused() -> None:
    with pytest.raises(CapeletError, match="larger delta"):
        epsilon_of(1.0, 0.02, 500, 1e-30)


def test_delta_must_be_well_below_one_sample() -> None:
    assert check_delta(1e-5, 1000) == 1e-5
    assert check_delta(1000**-1.1, 1000) == 1000**-1.1
    with pytest.raises(CapeletError, match=r"must be at most 0\.000501"):
        check_delta(1e-3, 1000)
    with pytest.raises(CapeletError, match=r"must be at most 0\.000501"):
        check_delta(0.9e-3, 1000)


def test_seeded_noise_promises_nothing_and_what_lies_outside_is_only_claimed() -> None:
    assert central(2.0, 1e-5, is_seeded=True).status == "none"
    real = central(2.0, 1e-5, "author", remarks=["about authors"])
    assert real.status == "proven" and real.unit == "author"
    assert real.neighbours == "add-remove" and real.caveat.startswith("about authors")
    outside = central(2.0, 1e-5, outside=["the vocabulary was read off the texts"])
    assert outside.status == "claimed" and "vocabulary" in outside.caveat
