"""Scores of guesses, and the references that make them readable.

Every metric is computed on weighted victims, so that a bootstrap replicate is only another set of
weights: see `intervals`, which says who is resampled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from capelet.errors import CapeletError, did_you_mean
from capelet.findings.intervals import (
    Bootstrap,
    Score,
    largest_difference,
    mean_over_seeds,
    ratio,
    simultaneous,
    weighted_means,
)
from capelet.findings.intervals import Codes as Codes
from capelet.findings.intervals import Floats as Floats

Flags = npt.NDArray[np.bool_]
Form = Literal["share", "points", "number"]

# From this probability on a victim counts as read: wrong about one in twenty at most.
CERTAINTY = 0.95


@dataclass(frozen=True, eq=False)
class Guesses:
    """What an attacker said of the victims of one split: the truth, and a score per class.

    `unit` numbers the person (or the group of identical texts) that each row belongs to.
    """

    truth: Codes
    scores: Floats
    unit: Codes

    @property
    def predictions(self) -> Codes:
        return self.scores.argmax(axis=1)

    @property
    def degenerate(self) -> bool:
        """All guesses are one class: then a score tells about the prior, not about the attacker."""
        return len(np.unique(self.predictions)) == 1


def people_of(seeds: Sequence[Guesses]) -> int:
    """How many different people (or groups of identical texts) were scored over all seeds."""
    return len(np.unique(np.concatenate([item.unit for item in seeds])))


def score(metric: str, seeds: Sequence[Guesses], bootstrap: Bootstrap) -> Score:
    """The metric's mean over seeds, with the bootstrap's interval."""
    # Every metric of guesses lies between 0 and 1.
    draws = [replicates(metric, item, bootstrap.of(item.unit)) for item in seeds]
    return mean_over_seeds(draws, people_of(seeds), is_share=True)


def scores_together(
    metric: str, seeds_of: Mapping[str, Sequence[Guesses]], bootstrap: Bootstrap
) -> dict[str, Score]:
    """The metric of several attackers with intervals that hold for all of them at once."""
    draws = [
        np.mean([replicates(metric, item, bootstrap.of(item.unit)) for item in seeds], axis=0)
        for seeds in seeds_of.values()
    ]
    return dict(zip(seeds_of, simultaneous(draws), strict=True))


def accuracy_gap(subgroups: Sequence[Sequence[Guesses]], bootstrap: Bootstrap) -> Score:
    """The largest difference in accuracy between subgroups, each a list over seeds."""
    draws = [
        np.stack([replicates("accuracy", item, bootstrap.of(item.unit)) for item in seeds], axis=1)
        for seeds in subgroups
    ]
    return largest_difference(np.stack([_mean_of_present(item) for item in draws]))


def replicates(metric: str, guesses: Guesses, weights: Floats) -> Floats:
    """The metric once per row of `weights` (draws × victims)."""
    return metric_of(metric).compute(guesses, weights)


def metric_of(name: str) -> Metric:
    """The metric of that name; an unknown one is refused."""
    if name not in METRICS:
        raise CapeletError(f"there is no metric {name!r}; {did_you_mean(name, METRICS)}")
    return METRICS[name]


def metrics_for(classes: int, more: Sequence[str] = ()) -> tuple[str, ...]:
    """The usual metrics that make sense for so many classes, and `more` of the others.

    >>> metrics_for(3, ["empirical_privacy", "recall_present"])[-2:]
    ('auc', 'empirical_privacy')
    """
    return tuple(
        name
        for name, item in METRICS.items()
        if (item.usual or name in more) and (classes == 2 or not item.two_classes)
    )


def chance(metric: str, classes: int) -> float | None:
    """What blind guessing reaches; None where no single number says it."""
    return metric_of(metric).chance(classes)


def majority(metric: str, truth: Codes, classes: int) -> float | None:
    """What always naming the most frequent class reaches.

    >>> round(majority("f1_weighted", np.array([0, 0, 0, 1]), 2), 3)
    0.643
    """
    # A constant guess of the commonest class: its share p decides every metric.
    share = float(np.bincount(truth, minlength=classes).max() / len(truth))
    return metric_of(metric).majority(share, classes)


def balanced_accuracy(truth: Codes, predictions: Codes) -> float:
    """The mean over the classes present of the share that was guessed right."""
    # Each class weighs alike, however rare: naming the majority always gives 1/classes.
    hit = truth == predictions
    return float(np.mean([hit[truth == code].mean() for code in np.unique(truth)]))


def _accuracy(guesses: Guesses, weights: Floats) -> Floats:
    right, true, _ = _counts(guesses, weights)
    return ratio(right.sum(axis=1), true.sum(axis=1))


def _f1_by_class(guesses: Guesses, weights: Floats) -> tuple[Floats, Floats]:
    """F1 of each class, 2·right / (true + named), and how many victims have it."""
    right, true, guess_counts = _counts(guesses, weights)
    return ratio(2 * right, true + guess_counts), true


def _f1_weighted(guesses: Guesses, weights: Floats) -> Floats:
    f1, true = _f1_by_class(guesses, weights)
    return ratio(np.nansum(f1 * true, axis=1), true.sum(axis=1))


def _mean_of_present(by_class: Floats) -> Floats:
    """The mean over classes (or seeds) of a draw; NaN, without a warning, where it holds nobody."""
    present = ~np.isnan(by_class)
    return ratio(np.where(present, by_class, 0.0).sum(axis=1), present.sum(axis=1))


def _auc(guesses: Guesses, weights: Floats) -> Floats:
    """Area under the ROC curve; for several classes the mean of one against the rest."""
    scores = guesses.scores
    # Of two classes only the difference of their scores orders the victims.
    if scores.shape[1] == 2:
        return _area(guesses.truth == 1, scores[:, 1] - scores[:, 0], weights)
    # A class that no victim has is never right or wrong against the rest.
    present = [code for code in range(scores.shape[1]) if (guesses.truth == code).any()]
    return np.mean(
        [_area(guesses.truth == code, scores[:, code], weights) for code in present], axis=0
    )


def _recalls(guesses: Guesses, weights: Floats) -> Floats:
    """The share of each class that was recognised; NaN where a draw holds nobody of it."""
    right, true, _ = _counts(guesses, weights)
    return ratio(right, true)


def _tpr_at_1_fpr(guesses: Guesses, weights: Floats) -> Floats:
    positive = guesses.truth == 1
    return tpr_at(0.01, positive, guesses.scores[:, 1] - guesses.scores[:, 0], weights)


def certain_share(seeds: Sequence[Guesses], bootstrap: Bootstrap) -> Score:
    """The share of victims whose likeliest class has a probability of `CERTAINTY` or more.

    Of calibrated probabilities only: others say what they like.
    """
    draws = [weighted_means(bootstrap.of(item.unit), _is_certain(item)) for item in seeds]
    return mean_over_seeds(draws, people_of(seeds), is_share=True)


def certain_hit_rate(seeds: Sequence[Guesses], bootstrap: Bootstrap) -> Score | None:
    """How often the guess is right about those victims; None where there are none.

    It checks the certainty: calibrated, it is not below `CERTAINTY`. Seeds are pooled, since some
    may have nobody to be certain about.
    """
    flags = [_is_certain(item) for item in seeds]
    units = np.concatenate([item.unit[flag] for item, flag in zip(seeds, flags, strict=True)])
    if not len(units):
        return None
    hits = [
        flag & (item.predictions == item.truth) for item, flag in zip(seeds, flags, strict=True)
    ]
    weights = np.concatenate([bootstrap.of(item.unit) for item in seeds], axis=1)
    draws = weighted_means(weights, np.concatenate(hits), np.concatenate(flags))
    return mean_over_seeds([draws], len(np.unique(units)), is_share=True)


def _is_certain(guesses: Guesses) -> Flags:
    return np.asarray(guesses.scores.max(axis=1) >= CERTAINTY)


@dataclass(frozen=True)
class Measure:
    """How one metric is called and printed, and whether a larger value is a greater success.

    `success` is that of whoever is measured: an attacker that reads more, a task that works better.
    Perplexity and gaps count errors, so they fall with success; a distance is neither.
    `digits` fixes the decimals of a plain number.
    """

    title: str
    form: Form = "share"
    success: Literal["rises", "falls"] | None = "rises"
    digits: int | None = None


@dataclass(frozen=True)
class Metric:
    """One metric: how it is computed and read, and what blind and constant guesses reach.

    `compute` gives one value per row of weights. `chance` is of the number of classes, `majority`
    of the share of the commonest class and the number of classes; None where no number says it.
    One that is not `usual` is computed for whoever asks for it by name.
    """

    name: str
    measure: Measure
    compute: Callable[[Guesses, Floats], Floats]
    chance: Callable[[int], float | None] = lambda classes: None
    majority: Callable[[float, int], float | None] = lambda share, classes: None
    two_classes: bool = False
    usual: bool = True


def _recall_of(name: str, code: int, title: str) -> Metric:
    return Metric(
        name,
        Measure(title),
        lambda guesses, weights: _recalls(guesses, weights)[:, code],
        chance=lambda classes: 0.5,
        two_classes=True,
        usual=False,
    )


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "accuracy",
            Measure("accuracy"),
            _accuracy,
            chance=lambda classes: 1 / classes,
            majority=lambda share, classes: share,
        ),
        Metric(
            "balanced_accuracy",
            Measure("balanced accuracy"),
            # A class that no weighted victim has does not count.
            lambda guesses, weights: _mean_of_present(_recalls(guesses, weights)),
            chance=lambda classes: 1 / classes,
            majority=lambda share, classes: 1 / classes,
        ),
        # A constant guess of share p has precision p and recall 1 on one class: F1 = 2p/(1 + p).
        Metric(
            "f1_weighted",
            Measure("weighted F1"),
            _f1_weighted,
            majority=lambda share, classes: 2 * share**2 / (1 + share),
        ),
        Metric(
            "f1_macro",
            Measure("macro F1"),
            lambda guesses, weights: _mean_of_present(_f1_by_class(guesses, weights)[0]),
            majority=lambda share, classes: 2 * share / (1 + share) / classes,
        ),
        Metric(
            "auc",
            Measure("AUC", "number"),
            _auc,
            chance=lambda classes: 0.5,
            majority=lambda share, classes: 0.5,
        ),
        Metric(
            "tpr_at_1_fpr",
            Measure("found at 1 % false alarms"),
            _tpr_at_1_fpr,
            chance=lambda classes: 0.01,
            two_classes=True,
        ),
        # DPNR (Lyu et al. 2020, §4.1, after Coavoux et al. 2018): 1 − X of an attribute of people,
        # 1 − F of something that is or is not in the text. Bare complements: no privacy is proven.
        Metric(
            "empirical_privacy",
            Measure("empirical privacy, 1 − accuracy", success="falls"),
            lambda guesses, weights: 1.0 - _accuracy(guesses, weights),
            chance=lambda classes: 1 - 1 / classes,
            majority=lambda share, classes: 1 - share,
            usual=False,
        ),
        Metric(
            "empirical_privacy_f1",
            Measure("empirical privacy, 1 − F1", success="falls"),
            # F1 of the second class of two; 0 where it is never named, by a constant attacker.
            lambda guesses, weights: 1.0 - _f1_by_class(guesses, weights)[0][:, 1],
            two_classes=True,
            usual=False,
        ),
        _recall_of("recall_present", 1, "the second class recognised (presence)"),
        _recall_of("recall_absent", 0, "the first class recognised (absence)"),
    )
}
OTHER_METRICS = tuple(name for name, item in METRICS.items() if not item.usual)


def check_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Metrics that are computed on demand, by name; the usual ones need not be asked for."""
    for name in names:
        if name not in METRICS:
            raise CapeletError(f"there is no metric {name!r}; {did_you_mean(name, OTHER_METRICS)}")
    return tuple(names)


def _counts(guesses: Guesses, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """For each draw and class, weighted: guessed right, truly of the class, named as the class."""
    classes = guesses.scores.shape[1]
    pair = guesses.truth * classes + guesses.predictions
    # One product with all draws at once: each victim is one cell of the confusion matrix.
    hot = np.zeros((len(pair), classes * classes), dtype=np.float32)
    hot[np.arange(len(pair)), pair] = 1.0
    confusion = (weights @ hot).reshape(-1, classes, classes).astype(np.float64)
    return np.einsum("bii->bi", confusion), confusion.sum(axis=2), confusion.sum(axis=1)


def _rank(positive: Flags, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Weight of positives and of negatives at each distinct score, from low to high."""
    order = np.argsort(scores, kind="stable")
    in_order = scores[order]
    # Equal scores are one step of the curve: else a constant attacker would win by row order.
    starts = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]])
    sorted_weights = weights[:, order].astype(np.float64)
    hits = sorted_weights * positive[order]
    return (
        np.add.reduceat(hits, starts, axis=1),
        np.add.reduceat(sorted_weights - hits, starts, axis=1),
    )


def _area(positive: Flags, scores: Floats, weights: Floats) -> Floats:
    """P(score of a positive > score of a negative), a tie counting one half."""
    hits, others = _rank(positive, scores, weights)
    # Mann–Whitney: negatives below each positive, ties half.
    below = np.cumsum(others, axis=1) - others / 2
    return ratio((hits * below).sum(axis=1), hits.sum(axis=1) * others.sum(axis=1))


def tpr_at(false_positive_rate: float, positive: Flags, scores: Floats, weights: Floats) -> Floats:
    """The share of positives found at the lowest threshold that keeps to a false-positive rate."""
    hits, others = _rank(positive, scores, weights)
    false = np.cumsum(others[:, ::-1], axis=1)
    true = np.cumsum(hits[:, ::-1], axis=1)
    # Thresholds between victims only; no interpolation, which would promise rates that no threshold
    # has.
    within = false <= false_positive_rate * false[:, -1:]
    return ratio(np.where(within, true, 0.0).max(axis=1), true[:, -1])
