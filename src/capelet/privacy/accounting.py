"""What DP-SGD costs: ε of so many noisy steps on Poisson samples, and the noise for a wanted ε.

Accounted by privacy loss distributions (dp-accounting's PLD, pessimistic), for neighbours that
differ in one added or removed sample. The central-limit accountant of the paper can understate ε.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from capelet.errors import CapeletError
from capelet.privacy.guarantees import (
    SEEDED_CAVEAT,
    Guarantee,
    Neighbours,
    Status,
    Unit,
    check_count,
    check_number,
)

# The ends, in clipping norms, between which `noise_for` searches.
MOST_NOISE = 100.0
LEAST_NOISE = 0.2
# The grid of privacy losses. PLD rounds losses up, so a coarser one overstates ε.
INTERVAL = 1e-3


def epsilon_of(noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> float:
    """ε at δ of so many steps, each on a Poisson sample at this rate, with noise σ·C on the sum."""
    sigma = check_number("noise_multiplier", noise_multiplier, 0, 1e9, open_low=True)
    share = check_number("rate", sample_rate, 0, 1, open_low=True)
    check_number("delta", delta, 0, 1 - 2.0**-53, open_low=True)
    check_count("steps", steps)
    # Imported here: it takes half a second, and most commands account for nothing.
    import dp_accounting
    from dp_accounting import pld

    event = dp_accounting.PoissonSampledDpEvent(share, dp_accounting.GaussianDpEvent(sigma))
    accountant = pld.PLDAccountant(value_discretization_interval=INTERVAL)
    accountant.compose(event, steps)
    epsilon = float(accountant.get_epsilon(delta))
    if not math.isfinite(epsilon):
        raise CapeletError(
            f"no finite epsilon can be accounted for at delta {delta:g} in {steps} steps; give a "
            "larger delta"
        )
    return epsilon


def noise_for(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """The least noise multiplier, to a thousandth, that keeps ε at or below the wanted one.

    An ε that would need more than `MOST_NOISE` is refused with the least one that can be reached.
    """
    target = check_number("epsilon", epsilon, 0, 1e6, open_low=True)
    least = epsilon_of(MOST_NOISE, sample_rate, steps, delta)
    if target < least:
        raise CapeletError(
            f"epsilon {target:g} cannot be reached in {steps} steps at a sampling rate of "
            f"{sample_rate:.3g}: the least is {least:.3g}, with noise of {MOST_NOISE:g} clipping "
            "norms; take fewer steps (fewer epochs or larger batches) or a larger epsilon"
        )
    low, high = LEAST_NOISE, MOST_NOISE
    if epsilon_of(low, sample_rate, steps, delta) <= target:
        return low
    while high / low > 1.001:
        # Halved on a logarithmic scale: the ends are a factor of 500 apart.
        middle = math.sqrt(low * high)
        has_too_little = epsilon_of(middle, sample_rate, steps, delta) > target
        low, high = (middle, high) if has_too_little else (low, middle)
    # The upper end: its ε has been computed, and is at or below the target.
    return high


def check_delta(delta: float, samples: int) -> float:
    """δ, refused where it would let one whole sample out: it must be at most n^−1.1.

    At 1/n a model that publishes one random sample would still count as private; the power keeps δ
    clearly below that, the more so the more samples there are.
    """
    value = check_number("delta", delta, 0, 1, open_low=True)
    most = largest_delta(samples)
    if value > most:
        raise CapeletError(
            f"delta is {value:g}, and with some {samples} samples it must be at most {most:.3g}: "
            "at 1/n a model that publishes one random sample would still count as private"
        )
    return value


def largest_delta(samples: int) -> float:
    """n^−1.1, the largest δ that is accepted, and the default."""
    return float(samples) ** -1.1


def central(
    epsilon: float,
    delta: float,
    unit: Unit = "record",
    *,
    is_seeded: bool = False,
    outside: Sequence[str] = (),
    remarks: Sequence[str] = (),
    notes: Sequence[str] = (),
    neighbours: Neighbours = "add-remove",
) -> Guarantee:
    """The guarantee of something trained with DP-SGD; whatever lies `outside` leaves it claimed.

    `remarks`, which come first, and `notes` say what it means, and cost nothing.
    """
    caveats = [*remarks, "real arithmetic: the noise is added in floating point", *notes, *outside]
    # Whoever knows the seed can subtract the noise.
    if is_seeded:
        caveats.insert(0, SEEDED_CAVEAT)
    status: Status = "claimed" if outside else "proven"
    return Guarantee(
        epsilon,
        delta,
        "central",
        unit,
        "none" if is_seeded else status,
        neighbours=neighbours,
        caveat="; ".join(caveats),
    )
