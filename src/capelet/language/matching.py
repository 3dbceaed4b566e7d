"""The weights at a set perplexity: models are compared where they have learnt as much.

Less learning is less remembering, so a method that ends at a worse perplexity looks private for
that alone (Mireshghallah et al. 2021 compare at set perplexities, too). The perplexity is that of
validation rows; test rows and canaries have no say in where a training is stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from capelet.language.model import Network, Scorer, state_of
from capelet.language.vocabulary import Tokens

# Looks in each epoch; in the first, where perplexity falls by factors, as many again.
LOOKS = 8


class NearestState:
    """Watches a training, and keeps the weights whose perplexity is nearest, in ratio, to a target.

    >>> sorted(NearestState(100.0, 4, lambda network: 120.0).places)
    [1, 2, 3, 4]
    """

    def __init__(
        self, target: float, steps_per_epoch: int, perplexity: Callable[[Network], float]
    ) -> None:
        self._target, self._perplexity = target, perplexity
        self._every = max(1, steps_per_epoch // LOOKS)
        self.places = {int(step) for step in np.geomspace(1, steps_per_epoch, LOOKS)}
        self._distance = math.inf
        self._state: Mapping[str, Any] = {}

    def look(self, step: int, network: Network) -> None:
        """Where this step is one of those to look at: is it nearer than all before?"""
        if step % self._every and step not in self.places:
            return
        distance = abs(math.log(self._perplexity(network) / self._target))
        if distance < self._distance:
            self._distance, self._state = distance, state_of(network)

    def restore(self, network: Network) -> None:
        """Put the nearest weights back."""
        if self._state:
            network.load_state_dict(dict(self._state))


def perplexity_on(validation: Tokens, device: str) -> Callable[[Network], float]:
    """The perplexity of these rows, for a network that is being trained."""

    def perplexity(network: Network) -> float:
        value = Scorer(network, device).perplexity(validation)
        network.train()  # a scorer puts it to sleep
        return value

    return perplexity
