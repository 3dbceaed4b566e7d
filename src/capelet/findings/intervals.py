"""Intervals: every 95 % interval that a report prints is computed here, by one rule.

Who is resampled is a person, not a text. Texts of one author are alike, so resampling texts one by
one would make an interval too narrow; where no author is known, a group of identical texts takes
the person's place. Each draw gives every person a Poisson(1) weight (the limit of sampling with
replacement), and a score of weighted victims is computed for each draw. One set of weights serves
all seeds, attackers and controls: someone who is a victim in three seeds is one person, and a null
is as sure, or as unsure, as the score it is compared with.

What an interval covers: these attackers on new victims of the same crowd. `studies/coverage.py`
simulates how often each one does.
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
    return ratio(weights @ values, weights @ (np.ones(len(values)) if whole is None else whole))


def ratio(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> Floats:
    """Part over whole; no number, and no warning on the user's terminal, where the whole is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(part / whole)


def percentile(draws: Floats, by_seed: Sequence[float] = (), people: int | None = None) -> Score:
    """The first draw, which is the data as they are, with the percentile interval of the others.

    `people`, where known, widens it as Student's t does: percentiles of few people are too near.

    >>> percentile(np.array([0.5, *np.linspace(0.0, 1.0, 999)])).ends
    (0.5, 0.024048..., 0.975951...)
    """
    # A draw may leave out everyone of a class and has no score then.
    present = draws[1:][~np.isnan(draws[1:])]
    # Weibull's positions k/(B + 1): a new draw falls below the k-th of B with that probability. The
    # usual k/(B − 1) would leave 5.4 % outside instead of 5 % at 500 draws.
    low, high = np.quantile(present, ENDS, method="weibull") if len(present) else (np.nan, np.nan)
    value, stretch = float(draws[0]), _small_sample(people)
    return Score(
        value,
        float(value - stretch * (value - low)),
        float(value + stretch * (high - value)),
        tuple(by_seed),
    )


def within_unit(score: Score) -> Score:
    """The interval cut at 0 and 1, between which the score lies: Student's t does not know that.

    >>> within_unit(Score(0.2, -0.1, 0.5)).ends
    (0.2, 0.0, 0.5)
    """
    return Score(score.value, max(0.0, score.low), min(1.0, score.high), score.by_seed)


def share_interval(draws: Floats, people: int, by_seed: Sequence[float] = ()) -> Score:
    """The percentile interval of a share of hits, which holds Wilson's for as many people.

    Near 0 and 1 a bootstrap is too sure: of no hit at all it makes an interval of no width, though
    none among 200 people leaves room for two in a hundred. Wilson's score interval has the number
    of people that the variance of the draws amounts to (Kish's effective sample size).
    """
    score = percentile(draws, by_seed, people)
    low, high = wilson(score.value, _effective_people(draws, people))
    ends = max(0.0, min(score.low, low)), min(1.0, max(score.high, high))
    return Score(score.value, *ends, score.by_seed)


def wilson(share: float, people: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share among so many people (Wilson 1927).

    >>> tuple(round(end, 4) for end in wilson(0.0, 200))
    (0.0, 0.0188)
    """
    if not people > 0 or np.isnan(share):
        return share, share
    square = NORMAL_95**2
    middle = (share + square / (2 * people)) / (1 + square / people)
    inside = share * (1 - share) / people + square / (4 * people**2)
    half = NORMAL_95 * max(inside, 0.0) ** 0.5 / (1 + square / people)
    return max(0.0, middle - half), min(1.0, middle + half)


def _effective_people(draws: Floats, people: int) -> float:
    """How many people, each right or wrong, would make a share vary as these draws do."""
    share, variance = float(draws[0]), float(np.nanvar(draws[1:]))
    if variance > 0 and 0 < share < 1:
        return share * (1 - share) / variance
    # Everyone right, or nobody: then each person is one observation. Between the two, a share that
    # never varies comes from constant guesses, and has no width.
    return float(people) if share in (0.0, 1.0) else 0.0


def _small_sample(people: int | None) -> float:
    """Student's 97.5 % quantile over the normal one, times the √(n/(n − 1)) a bootstrap lacks."""
    if people is None or people < 2:
        return 1.0
    freedom = people - 1
    # Cornish and Fisher's expansion of t: within 2 % from five people on.
    z = NORMAL_95
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return float(t / z * (people / freedom) ** 0.5)


def mean_over_seeds(
    draws: Sequence[Floats], people: int | None = None, is_share: bool = False
) -> Score:
    """The mean over seeds, each given by its draws from one and the same set of weights."""
    by_seed = tuple(float(values[0]) for values in draws)
    # Averaged draw by draw, before percentiles are taken: seeds share people, so their scores vary
    # together, and independent intervals would be too narrow.
    means = np.asarray(np.mean(draws, axis=0))
    if is_share and people is not None:
        return share_interval(means, people, by_seed)
    return percentile(means, by_seed, people)


def largest_difference(draws: Floats) -> Score:
    """The largest difference between rows of draws, and an interval that allows for the choice.

    The pair is chosen by looking, so its own interval would be too narrow: of four equal groups it
    would miss the truth in 18 of 100 cases. All differences are studentised, and the quantile of
    the largest one among them holds for each (the bootstrap's form of Tukey's range).
    """
    first, second = np.triu_indices(len(draws), k=1)
    differences = draws[first] - draws[second]
    values = differences[:, 0]
    errors = np.nanstd(differences[:, 1:], axis=1)
    ratios = ratio(np.abs(differences[:, 1:] - values[:, None]), errors[:, None])
    # A draw that leaves out a whole group has no difference to it, and with two groups none at all.
    numbers = np.where(errors[:, None] > 0, ratios, 0.0)
    largest = np.where(np.isnan(numbers), -np.inf, numbers).max(axis=0)
    largest[np.isneginf(largest)] = np.nan
    quantile = float(np.nanquantile(largest, 1 - 2 * ENDS[0], method="weibull"))
    place = int(np.abs(values).argmax())
    value, half = float(abs(values[place])), quantile * float(errors[place])
    return Score(value, value - half, value + half)


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
    """The share of hits among independent rows with Wilson's interval.

    For thousands of sentences by unknown people only: there the bootstrap would give the same ends
    and take a thousand times as long.
    """
    value = float(values.mean())
    return Score(value, *wilson(value, len(values)))


def mean_of(scores: Sequence[Score]) -> Score:
    """The mean of independent scores: the distances to their ends add up by squares."""
    value = float(np.mean([score.value for score in scores]))

    # Tasks share no sentence, so that their errors are independent; each side by itself, since an
    # interval near 100 % is longer downwards (Zou, Donner 2008).
    def distance(sides: Sequence[float]) -> float:
        return float(np.sqrt(np.sum(np.square(sides)))) / len(scores)

    down = distance([score.value - score.low for score in scores])
    up = distance([score.high - score.value for score in scores])
    return Score(value, value - down, value + up)
