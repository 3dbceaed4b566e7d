"""Intervals: every 95 % interval that a report prints is computed here, by one rule.

Who is resampled is a person, not a text. Texts of one author are alike, so resampling texts one by
one would make an interval too narrow; where no author is known, a group of identical texts takes
the person's place. Each draw gives every person a Poisson(1) weight (the limit of sampling with
replacement), and a score of weighted victims is computed for each draw. One set of weights serves
all seeds, attackers and controls: someone who is a victim in three seeds is one person, and a null
is as sure, or as unsure, as the score it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Codes = npt.NDArray[np.intp]

# Enough that the ends of an interval move by about a tenth of its width between two seeds.
DRAWS = 500
# 95 %, by the percentiles of the draws.
ENDS = (0.025, 0.975)
NORMAL_95 = 1.96


@dataclass(frozen=True)
class Score:
    """A value with its 95 % interval, and the single values where it is a mean over seeds."""

    value: float
    low: float
    high: float
    by_seed: tuple[float, ...] = ()

    @property
    def ends(self) -> tuple[float, float, float]:
        """Value, low and high, in the order of a finding's fields."""
        return self.value, self.low, self.high


class Bootstrap:
    """Poisson bootstrap weights per person; the first row is the data as they are."""

    def __init__(self, units: int, draws: int = DRAWS, seed: int = 0) -> None:
        # A fixed seed: scores on the same people have the same draws, so their differences are not
        # noise.
        random = np.random.default_rng([seed, 0xB007])
        # Poisson(1) weights need no sum to be kept and are independent between people (Hanley,
        # MacGibbon 2006). float32 holds such small counts exactly and halves the memory.
        self.weights = random.poisson(1.0, size=(draws + 1, units)).astype(np.float32)
        self.weights[0] = 1.0
        self._rows: dict[int, tuple[Codes, Floats]] = {}

    @classmethod
    def over(cls, units: Codes, seed: int = 0) -> Bootstrap:
        """Weights for as many persons as these numbers (0, 1, 2 …) name."""
        return cls(int(units.max()) + 1, seed=seed)

    def of(self, unit: Codes) -> Floats:
        """Weights per row, `(draws + 1, rows)`, of the rows of these persons.

        The last few are kept, since many attackers are scored on the same victims. The key holds
        the array itself, so that its id cannot be taken over by another one.
        """
        if id(unit) not in self._rows:
            # Each entry holds draws × rows floats.
            if len(self._rows) > 16:
                self._rows.clear()
            self._rows[id(unit)] = (unit, self.weights[:, unit])
        return self._rows[id(unit)][1]


def group_weights(groups: npt.NDArray[Any], seed: int = 0) -> Floats:
    """Weights per row where each group (author, text) is resampled whole; groups need no order."""
    codes = np.unique(groups, return_inverse=True)[1]
    return Bootstrap.over(codes, seed).weights[:, codes].astype(np.float64)


def weighted_means(
    weights: Floats, values: npt.NDArray[Any], whole: npt.NDArray[Any] | None = None
) -> Floats:
    """The mean of the values for each draw; with `whole` the ratio of both sums.

    A draw that leaves out every row has no mean and is NaN, which `percentile` passes over.
    """
    total = weights @ (np.ones(len(values)) if whole is None else whole)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((weights @ values) / total)


def percentile(draws: Floats, by_seed: Sequence[float] = ()) -> Score:
    """The first draw, which is the data as they are, with the percentile interval of the others.

    >>> percentile(np.array([0.5, *np.linspace(0.0, 1.0, 1001)])).ends
    (0.5, 0.025, 0.975)
    """
    # A draw may leave out everyone of a class and has no score then.
    present = draws[1:][~np.isnan(draws[1:])]
    low, high = np.quantile(present, ENDS) if len(present) else (np.nan, np.nan)
    return Score(float(draws[0]), float(low), float(high), tuple(by_seed))


def mean_over_seeds(draws: Sequence[Floats]) -> Score:
    """The mean over seeds, each given by its draws from one and the same set of weights."""
    by_seed = tuple(float(values[0]) for values in draws)
    # Averaged draw by draw, before percentiles are taken: seeds share people, so their scores vary
    # together, and independent intervals would be too narrow.
    return percentile(np.mean(draws, axis=0), by_seed)


def simultaneous(draws_of: Sequence[Floats]) -> list[Score]:
    """Intervals of several scores that hold together in 95 % of cases (max-t).

    Each score is given by its draws from one and the same set of weights. With t_k the distance of
    a draw from the value, in deviations, the 95 % quantile c of max_k t_k over the draws gives
    value ± c·deviation for all k. So whoever then picks the largest score has an interval that
    allows for the picking. A percentile interval of the maximum itself would not do: where scores
    are tied, most maxima of draws lie above the maximum of the data (Andrews 2000; Romano, Wolf
    2005).
    """
    table = np.stack(draws_of)
    values, replicas = table[:, 0], table[:, 1:]
    deviations = np.nanstd(replicas, axis=1)
    # A score that never moves (all right, or all one class) has an interval of width 0.
    moves = deviations > 1e-12
    bound = 0.0
    if moves.any():
        distances = np.abs(replicas[moves] - values[moves, None]) / deviations[moves, None]
        present = distances[:, ~np.isnan(distances).any(axis=0)]
        bound = float(np.quantile(present.max(axis=0), ENDS[1] - ENDS[0]))
    return [
        Score(float(value), float(value - bound * deviation), float(value + bound * deviation))
        for value, deviation in zip(values, deviations, strict=True)
    ]


def normal_mean(values: Floats) -> Score:
    """The mean of a share of hits among independent rows, ± 1.96 σ/√n, cut at 0 and 1.

    For thousands of sentences by unknown people only: there the bootstrap would give the same ends
    and take a thousand times as long.
    """
    value = float(values.mean())
    half = NORMAL_95 * float(values.std()) / len(values) ** 0.5
    return Score(value, max(0.0, value - half), min(1.0, value + half))


def mean_of(scores: Sequence[Score]) -> Score:
    """The mean of independent scores: their half widths add up by squares."""
    value = float(np.mean([score.value for score in scores]))
    halves = [(score.high - score.low) / 2 for score in scores]
    # Tasks share no sentence, so that their errors are independent.
    half = float(np.sqrt(np.sum(np.square(halves)))) / len(scores)
    return Score(value, value - half, value + half)
