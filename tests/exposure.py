"""What sampling is compared with: the exposure of a canary by ranking every sequence there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np


def exact_exposures(
    model: Any, canaries: np.ndarray, words: Sequence[int], start: int
) -> np.ndarray:
    """log2|R| − log2 rank among all sequences of the words, other canaries left out."""
    length = canaries.shape[1]
    everything = np.array(list(product(words, repeat=length)))
    secrets = {tuple(row) for row in canaries.tolist()}
    others = everything[[tuple(row) not in secrets for row in everything.tolist()]]

    def losses(rows: np.ndarray) -> np.ndarray:
        begun = np.c_[np.full(len(rows), start), rows].astype(np.int64)
        return np.asarray(model.sequence_losses(begun))

    # The same sequence scored in another batch may differ in its last digits.
    rank = 1 + np.searchsorted(np.sort(losses(others)), losses(canaries) - 1e-4, side="left")
    return np.asarray(length * math.log2(len(words)) - np.log2(rank))
