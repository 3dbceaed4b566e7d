"""Scores of guesses, with the intervals and references that make them readable.

Every score is computed on weighted victims, so that a bootstrap replicate is only another set of
weights: the interval of a mean over seeds comes from one draw of weights per author (or per group
of identical texts) that is shared by all seeds, attackers and attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Codes = npt.NDArray[np.intp]

METRICS = ("accuracy", "balanced_accuracy", "f1_weighted", "f1_macro", "auc", "tpr_at_1_fpr")


@dataclass(frozen=True, eq=False)
class Guesses:
    """What an attacker said of the victims of one split: the truth, and a score per class.

    `unit` numbers the person (or the group of identical texts) that each row belongs to.
    """

    truth: Codes
    scores: Floats
    unit: Codes

    @property
    def predicted(self) -> Codes:
        return self.scores.argmax(axis=1)

    @property
    def degenerate(self) -> bool:
        """All guesses are one class: then a score tells about the prior, not about the attacker."""
        return len(np.unique(self.predicted)) == 1


@dataclass(frozen=True)
class Score:
    """A mean over seeds with its 95 % interval."""

    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]


class Bootstrap:
    """Poisson bootstrap weights per unit; the first row is the data as they are."""

    def __init__(self, units: int, draws: int = 500, seed: int = 0) -> None:
        random = np.random.default_rng([seed, 0xB007])
        self.weights = random.poisson(1.0, size=(draws + 1, units)).astype(np.float32)
        self.weights[0] = 1.0
        self._rows: dict[int, tuple[Codes, Floats]] = {}

    def score(self, metric: str, seeds: Sequence[Guesses]) -> Score:
        """The metric's mean over seeds, with the bootstrap's percentile interval."""
        replicates = [_metric(metric, item, self._of(item.unit)) for item in seeds]
        by_seed = tuple(float(values[0]) for values in replicates)
        means = np.mean(replicates, axis=0)
        low, high = np.nanquantile(means[1:], [0.025, 0.975])
        return Score(float(means[0]), float(low), float(high), by_seed)

    def _of(self, unit: Codes) -> Floats:
        """Weights per row; kept, since many attackers are scored on the same victims."""
        if id(unit) not in self._rows:
            if len(self._rows) > 16:
                self._rows.clear()
            self._rows[id(unit)] = (unit, self.weights[:, unit])
        return self._rows[id(unit)][1]

    def gap(self, subgroups: Sequence[Sequence[Guesses]]) -> Score:
        """The largest difference in accuracy between subgroups, each a list over seeds."""
        means = np.stack(
            [
                np.nanmean(
                    [_metric("accuracy", item, self._of(item.unit)) for item in seeds], axis=0
                )
                for seeds in subgroups
            ]
        )
        best, worst = int(means[:, 0].argmax()), int(means[:, 0].argmin())
        # The pair is fixed on the data: the interval is of this difference, not of a new maximum.
        difference = means[best] - means[worst]
        low, high = np.nanquantile(difference[1:], [0.025, 0.975])
        return Score(float(difference[0]), float(low), float(high), ())


def metrics_for(classes: int) -> tuple[str, ...]:
    """The metrics that make sense for so many classes."""
    return METRICS if classes == 2 else METRICS[:-1]


def chance(metric: str, classes: int) -> float | None:
    """What blind guessing reaches; None where no single number says it."""
    if metric in ("accuracy", "balanced_accuracy"):
        return 1.0 / classes
    return {"auc": 0.5, "tpr_at_1_fpr": 0.01}.get(metric)


def majority(metric: str, truth: Codes, classes: int) -> float | None:
    """What always naming the most frequent class reaches.

    >>> round(majority("f1_weighted", np.array([0, 0, 0, 1]), 2), 3)
    0.643
    """
    share = float(np.bincount(truth, minlength=classes).max() / len(truth))
    return {
        "accuracy": share,
        "balanced_accuracy": 1.0 / classes,
        "f1_weighted": 2 * share**2 / (1 + share),
        "f1_macro": 2 * share / (1 + share) / classes,
        "auc": 0.5,
    }.get(metric)


def balanced_accuracy(truth: Codes, predicted: Codes) -> float:
    """The mean over the classes present of the share that was guessed right."""
    hit = truth == predicted
    return float(np.mean([hit[truth == code].mean() for code in np.unique(truth)]))


def _metric(metric: str, guesses: Guesses, weights: Floats) -> Floats:
    """The metric once per row of `weights` (draws × victims)."""
    if metric == "auc":
        return _auc(guesses, weights)
    if metric == "tpr_at_1_fpr":
        positive = guesses.truth == 1
        return tpr_at(0.01, positive, guesses.scores[:, 1] - guesses.scores[:, 0], weights)
    counts = _confusion(guesses, weights)
    right = np.einsum("bii->bi", counts)
    true = counts.sum(axis=2)
    said = counts.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        if metric == "accuracy":
            return right.sum(axis=1) / true.sum(axis=1)
        if metric == "balanced_accuracy":
            return np.nanmean(np.where(true > 0, right / true, np.nan), axis=1)
        f1 = np.where(true + said > 0, 2 * right / (true + said), np.nan)
        if metric == "f1_macro":
            return np.nanmean(f1, axis=1)
        return np.nansum(f1 * true, axis=1) / true.sum(axis=1)


def _confusion(guesses: Guesses, weights: Floats) -> Floats:
    """`(draws, truth, predicted)` weighted counts."""
    classes = guesses.scores.shape[1]
    pair = guesses.truth * classes + guesses.predicted
    hot = np.zeros((len(pair), classes * classes), dtype=np.float32)
    hot[np.arange(len(pair)), pair] = 1.0
    return (weights @ hot).reshape(-1, classes, classes).astype(np.float64)


def _auc(guesses: Guesses, weights: Floats) -> Floats:
    """Area under the ROC curve; for several classes the mean of one against the rest."""
    scores = guesses.scores
    if scores.shape[1] == 2:
        return _area(guesses.truth == 1, scores[:, 1] - scores[:, 0], weights)
    present = [code for code in range(scores.shape[1]) if (guesses.truth == code).any()]
    return np.mean(
        [_area(guesses.truth == code, scores[:, code], weights) for code in present], axis=0
    )


def _ranked(
    positive: npt.NDArray[np.bool_], score: Floats, weights: Floats
) -> tuple[Floats, Floats]:
    """Weight of positives and of negatives at each distinct score, from low to high."""
    order = np.argsort(score, kind="stable")
    ranked = score[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    sorted_weights = weights[:, order].astype(np.float64)
    hits = sorted_weights * positive[order]
    return (
        np.add.reduceat(hits, starts, axis=1),
        np.add.reduceat(sorted_weights - hits, starts, axis=1),
    )


def _area(positive: npt.NDArray[np.bool_], score: Floats, weights: Floats) -> Floats:
    hits, others = _ranked(positive, score, weights)
    below = np.cumsum(others, axis=1) - others / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return (hits * below).sum(axis=1) / (hits.sum(axis=1) * others.sum(axis=1))


def tpr_at(rate: float, positive: npt.NDArray[np.bool_], score: Floats, weights: Floats) -> Floats:
    """The share of positives found at the lowest threshold whose false-positive rate is ≤ rate."""
    hits, others = _ranked(positive, score, weights)
    false = np.cumsum(others[:, ::-1], axis=1)
    true = np.cumsum(hits[:, ::-1], axis=1)
    allowed = false <= rate * false[:, -1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(allowed, true, 0.0).max(axis=1) / true[:, -1]
