"""The ceilings beside a score: what the guarantee permits from one text, and about one person.

A score is taken on victims, so its ceiling has the victims' own class shares: a split may give them
others than the corpus has, and a constant guess must never look like a broken guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from capelet.data.corpus import Corpus
from capelet.findings.metrics import Codes
from capelet.mechanisms import MECHANISMS
from capelet.privacy.composition import Bound, Noise, median_and_most, person_ceiling
from capelet.privacy.guarantees import Guarantee, ceiling, ceiling_auc, ceiling_top
from capelet.release import Release

Prior = tuple[float, ...]


@dataclass(frozen=True)
class AccuracyBound:
    """The ceiling of accuracy, as a mean over seeds, each with the class shares of its victims."""

    priors: tuple[Prior, ...]

    def __call__(self, guarantee: Guarantee) -> float | None:
        scores = [ceiling(prior, guarantee) for prior in self.priors]
        numbers = [score for score in scores if score is not None]
        return fmean(numbers) if numbers else None


@dataclass(frozen=True)
class TopBound:
    """The ceiling of n guesses among so many people, each of whom counts alike."""

    n: int
    people: int

    def __call__(self, guarantee: Guarantee) -> float | None:
        return ceiling_top(self.n, self.people, guarantee)


def bound_of(metric: str, truths: Sequence[Codes], classes: int) -> Bound | None:
    """The ceiling of a metric on these victims, one array of true classes for each seed."""
    counts = [np.bincount(truth, minlength=classes) for truth in truths]
    if metric == "accuracy":
        return _accuracy([number / number.sum() for number in counts])
    if metric == "balanced_accuracy":
        # Every class that has victims counts alike, so the prior of the bound is uniform on them.
        return _accuracy([(number > 0) / (number > 0).sum() for number in counts])
    # No bound is known for F1, nor for the AUC of several classes: the field stays blank.
    return ceiling_auc if metric == "auc" and classes == 2 else None


def _accuracy(priors: Sequence[Any]) -> AccuracyBound:
    shares = [tuple(float(share) for share in prior) for prior in priors]
    # Equal seeds are computed once.
    return AccuracyBound(tuple(shares[:1] if len(set(shares)) == 1 else shares))


@dataclass(frozen=True)
class Ceilings:
    """What a release promises, the law of its noise, and how many texts a person has in it.

    `texts_per_person` has `median` and `most`; it is empty where no author is known.
    """

    guarantee: Guarantee
    noises: tuple[Noise, ...] = ()
    texts_per_person: Mapping[str, int] | None = None

    @classmethod
    def of(cls, release: Release, corpus: Corpus) -> Ceilings:
        # The noise of a study has the law of a release, and no attacker here knows its seed.
        guarantee = release.unseeded_guarantee or release.guarantee
        return cls(guarantee, noises_of(release.recipe), texts_per_person(corpus))

    def for_texts(self, bound: Bound | None, texts: int) -> float | None:
        """The most that anyone reads who holds the releases of so many texts of a person."""
        if bound is None or bound(self.guarantee) is None:
            return None
        # Whoever holds one text reads no more than whoever holds two, of which the law of the noise
        # may say less than (ε, δ) does of one.
        sizes = (1, 2) if texts == 1 else (texts,)
        ceilings = [person_ceiling(bound, self.guarantee, size, self.noises) for size in sizes]
        return min(item for item in ceilings if item is not None)

    def for_person(self, bound: Bound | None) -> dict[str, Any]:
        """The parameters of a finding that say what all texts of a person permit.

        Empty where no author is known, or where the guarantee bounds nothing.
        """
        if bound is None or not self.texts_per_person or bound(self.guarantee) is None:
            return {}
        ceilings = {
            who: person_ceiling(bound, self.guarantee, texts, self.noises)
            for who, texts in self.texts_per_person.items()
        }
        return {"texts_per_person": dict(self.texts_per_person), "person_ceiling": ceilings}


def texts_per_person(corpus: Corpus) -> dict[str, int] | None:
    """How many texts the median author and the one with most texts have; None without authors."""
    if corpus.author is None:
        return None
    counts: dict[Any, int] = {}
    for author in corpus.author:
        # Rows of nobody known cannot be tied together.
        if author is not None:
            counts[author] = counts.get(author, 0) + 1
    return median_and_most(list(counts.values())) if counts else None


def noises_of(recipe: Mapping[str, Any]) -> tuple[Noise, ...]:
    """The noise of each step of a recipe that knows the law of its losses.

    Each of them bounds the whole road: what comes before it is some text's business, and what comes
    after it is post-processing.
    """
    noises: list[Noise] = []
    for entry in recipe.get("steps") or ():
        maker: Any = MECHANISMS.get(entry.get("step"))
        if hasattr(maker, "noise"):
            arguments = {key: value for key, value in entry.items() if key != "step"}
            noises.append(maker(**arguments).noise)
    return tuple(noises)
