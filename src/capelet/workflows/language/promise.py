"""What a private language model promises, and how its ε is spent before the first step.

Three things are drawn from the texts, and (ε, δ) is divided among them beforehand: the number of
units, since sampling rate, steps and δ depend on it; the vocabulary, where it is a private one; and
the training. Each later share is fixed whatever the earlier draws were, so they simply add up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capelet.errors import CapeletError
from capelet.files import write_whole
from capelet.language.counts import (
    AUTHOR_WORDS,
    count_bound,
    noisy_count,
    noisy_words,
    words_of_authors,
    words_of_texts,
)
from capelet.language.vocabulary import FROM_TEXTS, THROUGH_NOISE, Vocabulary
from capelet.privacy.accounting import central, check_delta, epsilon_of, largest_delta, noise_for
from capelet.privacy.guarantees import Guarantee, Unit
from capelet.question import Mitigation
from capelet.training.checkpoint import identity_of

# Of ε for the number of units: a twentieth, and no more than moves it by some tens.
COUNT_SHARE, MOST_FOR_COUNT = 1 / 20, 0.1
# Of ε and of δ for a private vocabulary.
WORDS_SHARE = 1 / 10


@dataclass(frozen=True)
class Budget:
    """The shares of ε: for the number of units, for a private vocabulary, and for the training."""

    count: float
    words: float
    training: float | None

    @classmethod
    def of(cls, method: Mitigation, has_private_words: bool) -> Budget:
        """Divide ε; where the noise is given instead of it, only the number has a share."""
        if (method.epsilon is None) == (method.noise_multiplier is None):
            raise CapeletError("DP-SGD needs epsilon or noise_multiplier, and only one of them")
        if method.epsilon is None:
            if has_private_words:
                raise CapeletError(
                    "a private vocabulary is paid from epsilon; give epsilon instead of "
                    "noise_multiplier, or a public list of words"
                )
            return cls(MOST_FOR_COUNT, 0.0, None)
        if not (math.isfinite(method.epsilon) and method.epsilon > 0):
            raise CapeletError(f"epsilon is {method.epsilon:g}; it must be a finite number above 0")
        count = min(MOST_FOR_COUNT, COUNT_SHARE * method.epsilon)
        words = WORDS_SHARE * method.epsilon if has_private_words else 0.0
        return cls(count, words, method.epsilon - count - words)


@dataclass(frozen=True)
class Draws:
    """What was drawn before the training: how many units there are said to be, and which words.

    A resumed training must go on with the same draws: others would be paid for again.
    """

    count: int
    delta: float
    words: tuple[str, ...] | None
    identity: str

    def keep(self, path: Path) -> None:
        content = {"count": self.count, "delta": self.delta, "words": self.words}
        write_whole(path, json.dumps({**content, "identity": self.identity}) + "\n", 0o600)

    @classmethod
    def load(cls, path: Path, identity: str) -> Draws | None:
        """Those of an interrupted training with the same settings and texts, if there are any."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            words = None if content["words"] is None else tuple(content["words"])
            draws = cls(int(content["count"]), float(content["delta"]), words, content["identity"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return draws if draws.identity == identity else None


@dataclass(frozen=True)
class Units:
    """The training texts, whose they are, and what counts as one of them."""

    texts: Sequence[str]
    people: Sequence[str]
    unit: str
    length: int

    def __len__(self) -> int:
        return len(set(self.people)) if self.unit == "author" else len(self.texts)

    def words(self) -> tuple[list[set[str]], int]:
        """The words that each unit counts, and how many they are at most."""
        if self.unit == "author":
            return words_of_authors(self.texts, self.people, self.length), AUTHOR_WORDS
        return words_of_texts(self.texts, self.length), self.length


def draw(
    units: Units,
    budget: Budget,
    wanted_delta: float | None,
    identity: str,
    random: np.random.Generator | None,
) -> Draws:
    """The noised number of units, the δ that goes with it, and a private vocabulary if paid for."""
    count = noisy_count(len(units), budget.count, random)
    # δ must suit the true number, which only its noised one may decide: so one that it does not
    # exceed, but for the least of chances.
    bound = count_bound(count, budget.count)
    delta = check_delta(largest_delta(bound) if wanted_delta is None else wanted_delta, bound)
    words = None
    if budget.words:
        words = noisy_words(*units.words(), budget.words, WORDS_SHARE * delta, random)
    return Draws(count, delta, words, identity)


def identity_of_draws(digest: str, settings: Mapping[str, Any]) -> str:
    """Of the texts and of everything that a draw depends on."""
    return identity_of("draws", digest, json.dumps(settings, sort_keys=True))


@dataclass(frozen=True)
class Private:
    """The calibrated noise of a DP-SGD run and what it costs, all draws together.

    `model.json` has these names; `rate` is the sampling rate, `units` the noised number of units.
    """

    noise_multiplier: float
    epsilon: float
    delta: float
    rate: float
    steps: int
    unit: str
    units: int
    count_epsilon: float
    words_epsilon: float


@dataclass(frozen=True)
class Course:
    """How long is trained, in batches of how many units, expected."""

    epochs: int
    batch: int


def calibrate(
    method: Mitigation, course: Course, budget: Budget, draws: Draws, canaries: int
) -> Private:
    """The noise for a wanted ε, or the ε of a given noise; `canaries` are units of our own."""
    units = draws.count + canaries
    # Poisson sampling takes each unit with this probability in each step.
    rate = min(course.batch, units) / units
    steps = course.epochs * math.ceil(units / course.batch)
    delta = draws.delta * (1 - WORDS_SHARE) if budget.words else draws.delta
    noise = method.noise_multiplier
    if noise is None:
        assert budget.training is not None
        noise = noise_for(budget.training, delta, rate, steps)
    epsilon = epsilon_of(noise, rate, steps, delta) + budget.count + budget.words
    return Private(
        noise,
        epsilon,
        draws.delta,
        rate,
        steps,
        method.unit,
        units,
        budget.count,
        budget.words,
    )


def promise_of(
    private: Private,
    vocabulary: Vocabulary,
    *,
    is_seeded: bool,
    has_canaries: bool,
    texts_per_author: int,
) -> Guarantee:
    """The guarantee of the whole folder; proven only where nothing in it lies outside the proof."""
    unit: Unit = "author" if private.unit == "author" else "record"
    if unit == "author":
        remark = (
            f"all texts of an author count as one, and at most {texts_per_author} of them train"
        )
    else:
        remark = "one text is one sample; an author who wrote several is not covered as a whole"
    remarks = [remark]
    if vocabulary.source == THROUGH_NOISE:
        remarks.append("the vocabulary is a noised one, paid for")
    elif vocabulary.public:
        remarks.append(f"the vocabulary is public ({vocabulary.source})")
    outside = []
    if vocabulary.source == FROM_TEXTS:
        outside.append("the vocabulary was read off the texts")
    if has_canaries:
        # Whose they are is drawn from all authors: one more author moves them to others.
        outside.append("canaries were inserted, and whose they are depends on all authors")
    return central(
        private.epsilon,
        private.delta,
        unit,
        is_seeded=is_seeded,
        outside=outside,
        remarks=remarks,
    )
