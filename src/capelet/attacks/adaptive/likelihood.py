"""Likelihood: the posterior of a secret over own texts, by the density of the noise.

Threat model: the attacker holds the folder (the map f before the noise, and the law of the noise)
and own texts with labels. Given a release z it believes

    P(s | z) ∝ Σᵢ wᵢ · p(z | f(xᵢ)) · 1[sᵢ = s],    wᵢ = 1/(own texts of the class sᵢ)

which is Bayes' rule under the empirical law of own texts: with enough of them no other attacker
reads more from z. With few, and noise much finer than their distances, a single text would decide;
so p is also tried at lower powers, and the power is chosen on own texts, each left out in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from capelet.findings.metrics import Codes, Floats

# 1 is Bayes' rule; less is as if the noise were wider.
POWERS = (1.0, 0.3, 0.1)
# Releases whose densities at all own texts are in memory at once.
BLOCK = 512

# (outputs, inputs) → ln p, by release and input, up to a constant of each release.
LogDensity = Callable[[Floats, Floats], npt.NDArray[np.float64]]


def posterior(
    log_density: LogDensity,
    outputs: Floats,
    inputs: Floats,
    codes: Codes,
    classes: int,
    *,
    powers: Sequence[float] = POWERS,
    own: Codes | None = None,
    units: Codes | None = None,
) -> list[Floats]:
    """Class probabilities of each release, for each power; classes weigh alike.

    With `own`, the unit of each release, the inputs of that unit (`units`) are left out: so own
    texts can be read as if they were a victim's.
    """
    parts: list[list[Floats]] = [[] for _ in powers]
    onehot = np.eye(classes)[codes]
    for start in range(0, len(outputs), BLOCK):
        block = slice(start, start + BLOCK)
        logs = log_density(outputs[block], inputs)
        counts = np.broadcast_to(onehot.sum(axis=0), (len(logs), classes))
        if own is not None and units is not None:
            same = own[block][:, None] == units
            logs = np.where(same, -np.inf, logs)
            # Without these, or a text left out would always make its own class the lighter one.
            counts = counts - same @ onehot
        for place, power in enumerate(powers):
            parts[place].append(_normalise(power * logs, onehot, counts))
    return [np.concatenate(blocks) for blocks in parts]


def _normalise(logs: npt.NDArray[np.float64], onehot: Floats, counts: Floats) -> Floats:
    # The largest exponent is 0, so that no sum is empty.
    likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
    total = likelihoods @ onehot / np.maximum(counts, 1)
    return np.asarray(total / np.maximum(total.sum(axis=1, keepdims=True), 1e-300))
