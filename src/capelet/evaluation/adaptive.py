"""Adaptive attackers in an audit: those who hold pairs, or the folder, of the release.

They are prepared once for each split and asked for each secret. Everything is learnt and chosen on
the attacker's own rows. A third of its people plays the victims: their releases are undone with
what the others teach, and read by families that learnt on *raw* vectors; the balanced accuracy
there is the attacker's `quality`, by which the strongest of all attackers is chosen. Then the
victims are read with all that the attacker owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from capelet.attacks.adaptive import HOLDS, LIKELIHOOD, PAIRS, UNDO, VECTORS
from capelet.attacks.adaptive.likelihood import POWERS, posterior
from capelet.attacks.adaptive.pairs import choose_inverse, fit_inverse
from capelet.attacks.adaptive.step_chain import StepChain
from capelet.attacks.adaptive.undo import Undo
from capelet.attacks.attribute import (
    CLEAR_LEAD,
    FAMILIES,
    OutOfFold,
    Result,
    Secret,
    View,
    paired_gain,
)
from capelet.data.corpus import Rows, Split
from capelet.data.labels import Attribute
from capelet.evaluation.plan import Plan
from capelet.findings.metrics import Codes, Floats, balanced_accuracy
from capelet.interfaces import Step, Vectors
from capelet.release import PrivateEncoder
from capelet.release.steps import EncoderStep

# Readers of raw vectors: one linear, two that are not. Trees and networks add little on raw vectors
# and cost as much as all of these.
READERS = ("logistic", "kernel", "knn")
# The share of its people whom the attacker treats as victims to choose by, and rows at most: those
# that are undone by iteration take a tenth of a second each.
TRIAL_SHARE, MOST_TRIALS, MOST_ITERATED = 1 / 3, 4000, 600
# Fewer own rows teach no inverse.
FEWEST = 30


@dataclass(frozen=True, eq=False)
class Insider:
    """What somebody holds who can use the encoder: raw vectors, and the steps that follow."""

    raw: Vectors
    steps: tuple[Step, ...]
    from_texts: bool = False  # noise on texts comes first, so that raw vectors do not pass here

    @classmethod
    def of(cls, private: PrivateEncoder, raw: Vectors) -> Insider:
        """Of a private encoder, whose own encoder alone makes these raw vectors."""
        steps = private.steps
        places = [place for place, step in enumerate(steps) if isinstance(step, EncoderStep)]
        first = places[0] + 1 if places else 0
        return cls(raw, tuple(steps[first:]), from_texts=first > 1)


@dataclass(frozen=True, eq=False)
class AdaptiveGuess:
    """The victims' class probabilities by one adaptive attacker, and those of own rows.

    The own rows of `trial` were read as victims are, by what all others taught.
    """

    scored: Floats
    trial: OutOfFold
    quality: float
    settings: Mapping[str, Any]


class AdaptiveAttackers:
    """All adaptive attackers of one split, prepared once for every secret."""

    def __init__(self, plan: Plan, parts: Split, outputs: Vectors, insider: Insider) -> None:
        self.raw, self.outputs = insider.raw, outputs
        self.units, self.seed = plan.units, parts.seed
        self.own, self.victims = np.sort(parts.attacker), parts.victims
        self.road = None if insider.from_texts else StepChain.of(insider.steps)
        own = self.own
        if self.road is not None and not self.road.leads(self.raw[own], outputs[own]):
            self.road = None

    @property
    def names(self) -> list[str]:
        """Who can try: an inverse needs pairs, undo a learnt map, likelihood a known noise."""
        if len(self.own) < FEWEST:
            return []
        names = [PAIRS]
        if self.road is not None and self.road.noise is not None:
            names.append(LIKELIHOOD)
        elif self.road is not None and self.road.is_learnt:
            names.append(UNDO)
        return names

    def guesses(self, secret: Attribute) -> dict[str, AdaptiveGuess]:
        """The guesses of each attacker on the victims whose secret is known."""
        present = secret.codes >= 0
        own, victims = self.own[present[self.own]], self.victims[present[self.victims]]
        if len(np.unique(secret.codes[own])) < 2 or not len(victims):
            return {}
        guesses: dict[str, AdaptiveGuess] = {}
        for name in self.names:
            if name == LIKELIHOOD:
                guesses[name] = self._likelihood(secret, own, victims)
            else:
                guess = self._read(secret, own, victims, self._vectors[name])
                if guess is not None:
                    guesses[name] = guess
        return guesses

    # ---- undone vectors, read as raw ones ------------------------------------------------------

    @cached_property
    def _trial(self) -> Rows:
        """Own rows that play the victims: a third of the people, as many rows as time allows."""
        random = np.random.default_rng([self.seed, 0xAD])
        people = np.unique(self.units[self.own])
        order = random.permutation(len(people))
        players = people[order[: max(1, round(TRIAL_SHARE * len(people)))]]
        rows = self.own[np.isin(self.units[self.own], players)]
        iterates = UNDO in self.names and self.road is not None and not self.road.is_linear
        return np.sort(random.permutation(rows)[: MOST_ITERATED if iterates else MOST_TRIALS])

    @cached_property
    def _known(self) -> Rows:
        """The other people's rows, with which the trial is read."""
        return self.own[~np.isin(self.units[self.own], np.unique(self.units[self._trial]))]

    @cached_property
    def _vectors(self) -> dict[str, Vectors]:
        """By attacker: raw vectors of all rows, with guesses in the place of trial and victims."""
        known, everything = self._known, self.own
        undone: dict[str, Vectors] = {}
        for name in self.names:
            if name == LIKELIHOOD:
                continue
            vectors = np.array(self.raw, dtype=np.float32)
            for teachers, rows in ((known, self._trial), (everything, self.victims)):
                vectors[rows] = self._invert(name, teachers)(self.outputs[rows])
            undone[name] = vectors
        return undone

    def _invert(self, name: str, teachers: Rows) -> Any:
        outputs, raw = self.outputs[teachers], self.raw[teachers]
        if name == UNDO:
            assert self.road is not None
            return Undo.of(self.road.linearise, raw, outputs, self.road.is_linear)
        return fit_inverse(self._inverse, outputs, raw, self.seed)

    @cached_property
    def _inverse(self) -> str:
        return choose_inverse(self.outputs[self._known], self.raw[self._known], self.seed)[0]

    def _read(
        self, secret: Attribute, own: Rows, victims: Rows, vectors: Vectors
    ) -> AdaptiveGuess | None:
        """Families of raw vectors, chosen on the trial rows, then taught by all own rows."""
        known, trial = (np.intersect1d(own, rows) for rows in (self._known, self._trial))
        if len(np.unique(secret.codes[known])) < 2 or not len(trial):
            return None
        classes = len(secret.classes)
        codes = np.where(secret.codes < 0, 0, secret.codes)
        view = View(vectors, known, trial, trial[:0], self.seed, self.units)
        target = Secret(view, codes, classes)
        candidates = [
            (name, FAMILIES[name].fit(view, target, settings))
            for name in READERS
            for settings in FAMILIES[name].grid
        ]
        # Guesses of raw vectors lean to one class where undone ones have lost something; so every
        # class is weighed by how often it is named among the trial's, of which as many have each.
        leanings = [_leaning(item.tune, target.weights.tune) for _, item in candidates]
        qualities = [
            target.quality(item.tune / leaning)
            for (_, item), leaning in zip(candidates, leanings, strict=True)
        ]
        place = int(np.argmax(qualities))
        (name, candidate), leaning = candidates[place], leanings[place]
        # The trial rows are raw vectors again: they teach with the others.
        teachers = vectors.copy()
        teachers[own] = self.raw[own]
        whole = View(teachers, own, own[:0], victims, self.seed, self.units)
        reader = FAMILIES[name].fit(whole, Secret(whole, codes, classes), candidate.settings)
        return AdaptiveGuess(
            _without_leaning(reader.scored, leaning),
            OutOfFold(trial, _without_leaning(candidate.tune, leaning)),
            qualities[place],
            {"reader": name, **candidate.settings},
        )

    # ---- the noise itself ----------------------------------------------------------------------

    @cached_property
    def _inputs(self) -> Vectors:
        """What the noise is given of each own row."""
        assert self.road is not None
        return self.road(self.raw[self.own])

    def _likelihood(self, secret: Attribute, own: Rows, victims: Rows) -> AdaptiveGuess:
        assert self.road is not None
        inputs = self._inputs[np.searchsorted(self.own, own)]
        codes, classes = secret.codes[own], len(secret.classes)
        log_density = self.road.noise.log_density
        units = self.units[own]
        # Own texts, each read by the texts of all others.
        rows = np.random.default_rng([self.seed, 0xAE]).permutation(len(own))[:MOST_TRIALS]
        on_own = posterior(
            log_density, self.outputs[own[rows]], inputs, codes, classes,
            own=units[rows], units=units,
        )  # fmt: skip
        qualities = [balanced_accuracy(codes[rows], item.argmax(axis=1)) for item in on_own]
        # Of equals the first, which is Bayes' rule.
        place = int(np.argmax(qualities))
        guesses = posterior(
            log_density, self.outputs[victims], inputs, codes, classes, powers=(POWERS[place],)
        )[0]
        trial = OutOfFold(own[rows], on_own[place])
        return AdaptiveGuess(guesses, trial, qualities[place], {"power": POWERS[place]})


def _leaning(probabilities: Floats, weights: Floats) -> Floats:
    """How often each class is named on average, where all classes have the same weight."""
    return np.maximum(np.average(probabilities, axis=0, weights=weights), 1e-6)


def _without_leaning(probabilities: Floats, leaning: Floats) -> Floats:
    odds = probabilities / leaning
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def strongest_of(result: Result, guesses: Mapping[str, AdaptiveGuess], codes: Codes) -> str:
    """The choice among attackers of vectors, or the adaptive one that does better on own rows.

    Both are judged on the same rows, and the adaptive one must be right more often by as clear a
    lead as a family needs over the committee: it had fewer rows to be chosen on, and the luckiest
    of several looks good. By a lead of one standard error, inverses were chosen on the bench of
    releases that read no more from victims than the committee did (37 cells: −.003 ± .004).
    """
    choice = result.strongest
    gains = {name: paired_gain(guess.trial, result.out_of_fold[choice], codes) for name, guess in
             guesses.items()}  # fmt: skip
    better = {name: gain for name, (gain, error) in gains.items() if gain > CLEAR_LEAD * error}
    return max(better, key=better.__getitem__) if better else choice


def holds(attacker: str, winners: Mapping[str, int] | None = None) -> str:
    """What an attacker held beside labels; of the strongest, what its most frequent winner held."""
    if winners:
        attacker = max(winners, key=lambda name: winners[name])
    return HOLDS.get(attacker, VECTORS)
