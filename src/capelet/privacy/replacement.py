"""What replacing one training text costs, where an accountant counts adding or removing one.

Local privacy compares a text with any *other* text; so what its training promises must be about
replacing it too. DP-SGD on Poisson samples is accounted for adding or removing one unit. To replace
is to remove one and to add one, a group of two: with D′ between D and D″,

    P(M(D) ∈ S) ≤ e^ε P(M(D′) ∈ S) + δ ≤ e^2ε P(M(D″) ∈ S) + (1 + e^ε)δ.

Twice the sensitivity in the Poisson accountant is *not* a bound for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from capelet.errors import CapeletError, name_field
from capelet.privacy.accounting import MOST_NOISE, central, epsilon_of, largest_delta, noise_for
from capelet.privacy.guarantees import Guarantee, Unit, check_count, check_number

DELTA = 1e-5
# Below this the accountant cuts tails off, and finds no finite ε.
LEAST_DELTA = 1e-14


def replacement(epsilon: float, delta: float) -> tuple[float, float]:
    """(ε, δ) for replacing one unit, from those for adding or removing one.

    >>> replacement(1.0, 0.0)
    (2.0, 0.0)
    """
    return 2 * epsilon, (1 + math.exp(epsilon)) * delta


def choose_delta(delta: float | None, units: int) -> float:
    """δ, refused above n^−1.1 for n units; the default is that, and at most 1e-5.

    >>> choose_delta(None, 1000), round(choose_delta(None, 100_000), 8)
    (1e-05, 3.16e-06)
    """
    most = largest_delta(check_count("units", units))
    if delta is None:
        return min(DELTA, most)
    value = check_number(name_field("train_delta"), delta, 0.0, 1.0, open_low=True)
    if value > most:
        raise CapeletError(
            f"the δ of the training is {value:g}, and with {units:,} texts or authors it may be "
            f"{most:.3g} at most: at 1/n a training that publishes one random text would still "
            "count as private"
        )
    return value


@dataclass(frozen=True)
class Target:
    """The (ε, δ) that replacing one unit may cost, in so many steps at this sampling rate."""

    epsilon: float
    delta: float
    rate: float
    steps: int

    @property
    def half(self) -> tuple[float, float]:
        """What adding or removing one unit may cost: `replacement` of it is the target."""
        epsilon = (
            check_number(name_field("train_epsilon"), self.epsilon, 0.0, 1e3, open_low=True) / 2
        )
        return epsilon, self.delta / (1 + math.exp(epsilon))

    def noise(self) -> float:
        """The least noise multiplier that keeps to it."""
        return _noise(self)

    def guarantee(self, unit: Unit, is_seeded: bool = False) -> Guarantee:
        """What a training with that noise promises; it may be a little less than the target."""
        _, share = self.half
        epsilon, delta = replacement(epsilon_of(self.noise(), self.rate, self.steps, share), share)
        notes = (
            "it covers the map; figures and reports beside it are exact",
            f"the list of classes and the number of {unit}s are public",
        )
        return central(epsilon, delta, unit, is_seeded=is_seeded, notes=notes, neighbours="replace")


@lru_cache(maxsize=64)
def _noise(target: Target) -> float:
    # Kept, for each split of a measurement asks for the same, and it takes seconds.
    epsilon, delta = target.half
    if delta < LEAST_DELTA:
        most = math.floor(2 * math.log(max(target.delta / LEAST_DELTA - 1, 1)))
        raise CapeletError(
            f"a training ε of {target.epsilon:g} at δ = {target.delta:g} is more than can be "
            "accounted for: to replace one is to change two, and of these δ must be e^(ε/2) times "
            f"smaller; take an ε of {most} at most, or a larger δ"
        )
    least = epsilon_of(MOST_NOISE, target.rate, target.steps, delta)
    if epsilon < least:
        raise CapeletError(
            f"a training ε of {target.epsilon:g} for replacing one text cannot be reached at δ = "
            f"{target.delta:g}: the least is {2 * least:.3g}"
        )
    return noise_for(epsilon, delta, target.rate, target.steps)
