"""The whole membership attack on one model: windows of a word table, or pairs of an encoder.

A third of the texts (whole texts; whole writers for aggregates) are auxiliary: their membership is
known to the attacker, who chooses its thresholds on them. All scores are taken on the others. Which
third it is, is luck, and where writers are few it is much luck: so it is drawn several times, and
intervals cover the choice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.membership import (
    AuxiliaryScores,
    Flags,
    Floats,
    LearnedSimilarity,
    aggregate,
    both_everywhere,
    by_tenth,
    flags_of,
    match_frequencies,
    membership_findings,
    pair_scores,
    tenths_of,
    tenths_of_words,
    window_scores,
    windows_of,
)
from capelet.data.corpus import Corpus
from capelet.data.text import sentences_of, words_of
from capelet.defences import Defence
from capelet.errors import DataError, name_field
from capelet.evaluation.plan import Plan
from capelet.findings import Finding, Findings
from capelet.interfaces import Progress, Vectors, silent
from capelet.release import PrivateEncoder

# Words and their vectors, which is all that an attacker holds of a word model.
WordTable = tuple[Sequence[str], Floats]
NEEDS_TEXTS = f"membership is asked of texts; name their column ({name_field('text')})"


@dataclass(frozen=True)
class Membership:
    """How windows and pairs are made, and how texts are split into auxiliary and scored ones.

    With `by_frequency` pairs of sentences are looked at apart, too, by how frequent their words are
    (Song, Raghunathan 2020, figure 5); windows always are.
    """

    window: int = 5
    per_word: int = 20
    share: float = 1 / 3
    choices: int = 5
    seed: int = 0
    by_frequency: bool = False

    def of_words(
        self, corpus: Corpus, member: Sequence[bool] | Flags, table: WordTable
    ) -> Findings:
        """Attack a table of word vectors: all matched windows, and by frequency decile."""
        texts = texts_of(corpus)
        flags = flags_of(member, len(texts))
        names, vectors = table
        if len(names) < 10:
            raise DataError(f"there are {len(names)} word vectors; at least 10 are needed")
        words = [words_of(text) for text in texts]
        windows = match_frequencies(
            windows_of(words, flags, names, self.window), self.per_word, self.seed
        )
        people = _people_of(corpus)
        choices = [choice[windows.text] for choice in self._choices(people, flags)]
        # Counted over all texts: a decile must not depend on who is a member.
        counts = Counter(word for text in words for word in text)
        frequencies = np.array([counts[word] for word in names])
        units, tenths = people[windows.text], tenths_of_words(windows.centre, frequencies)
        rows: list[Finding] = []
        for name, centre in (("window-cosine", False), ("window-centred", True)):
            scores = window_scores(vectors, windows, centre)
            trials = [AuxiliaryScores(scores, auxiliary) for auxiliary in choices]
            rows += self._findings(name, "windows", trials, windows.member, units)
            about = self._about(name, "windows", trials)
            rows += by_tenth(trials, tenths, windows.member, units, **about)
        return Findings(tuple(rows))

    def of_encoder(
        self,
        corpus: Corpus,
        member: Sequence[bool] | Flags,
        private: PrivateEncoder,
        progress: Progress = silent,
    ) -> Findings:
        """Attack a text encoder: pairs of neighbouring sentences, learned similarity, writers.

        What it releases is attacked, noise and all.
        """
        texts = texts_of(corpus)
        flags = flags_of(member, len(texts))
        pieces, owner = sentences_of(texts, least=3, most=60)
        # Rows whose next row is the next sentence of the same text.
        next_too = np.flatnonzero(owner[1:] == owner[:-1]) if len(owner) > 1 else owner
        if len(next_too) < 20:
            raise DataError(
                f"{len(next_too)} pairs of neighbouring sentences stand in {len(texts)} texts; "
                "membership of an encoder needs at least 20: give longer texts"
            )
        release = private.release(pieces, progress)
        first, second = release.vectors[next_too], release.vectors[next_too + 1]
        text = owner[next_too]
        units, member_pairs = _people_of(corpus)[text], flags[text]
        choices = self._choices(units, member_pairs)
        trials = {
            name: [AuxiliaryScores(pair_scores(first, second, name), choice) for choice in choices]
            for name in ("dot", "cosine")
        }
        # The only attacker that learns: on auxiliary pairs, whose membership is known to it.
        trials["learned"] = [
            AuxiliaryScores(
                LearnedSimilarity(seed=self.seed).fit(
                    first[choice], second[choice], member_pairs[choice]
                )(first, second),
                choice,
            )
            for choice in choices
        ]
        rows: list[Finding] = []
        for name, several in trials.items():
            rows += self._findings(name, "pairs", several, member_pairs, units)
            rows += self._aggregates(name, several, member_pairs, units)
        if self.by_frequency:
            tenths = tenths_of(_pair_frequencies(pieces, next_too))
            for name, several in trials.items():
                about = self._about(name, "pairs", several)
                rows += by_tenth(several, tenths, member_pairs, units, **about)
        rows = [replace(row, recipe_hash=release.recipe_hash) for row in rows]
        return Findings(tuple(rows), recipe=release.recipe)

    def of_head(
        self,
        chances: Floats,
        truth: npt.NDArray[np.integer[Any]],
        member: Sequence[bool] | Flags,
        units: npt.NDArray[np.intp],
    ) -> list[Finding]:
        """Attack a trained map by its own head: it is surer of the texts that it was fitted to.

        `chances` are the head's, by class, for texts whose class `truth` the attacker knows; whole
        `units` are known or scored. The score is the log-chance of the true class (Yeom et al.
        2018), taken off its mean over others of that class: rare classes are guessed worse.
        """
        flags = flags_of(member, len(truth))
        own = np.log(np.maximum(chances[np.arange(len(truth)), truth], 1e-12))
        choices = self._choices(units, flags)
        trials = {
            "head-loss": [AuxiliaryScores(own, choice) for choice in choices],
            "head-loss-by-class": [
                AuxiliaryScores(own - _means_of_others(own, truth, choice & ~flags), choice)
                for choice in choices
            ],
        }
        rows: list[Finding] = []
        for name, several in trials.items():
            rows += self._findings(name, "training texts", several, flags, units)
        return rows

    def _findings(
        self,
        attacker: str,
        target: str,
        trials: Sequence[AuxiliaryScores],
        member: Flags,
        units: npt.NDArray[np.intp],
    ) -> list[Finding]:
        about = self._about(attacker, target, trials)
        return membership_findings(trials, member, units=units, **about)

    def _about(
        self, attacker: str, target: str, trials: Sequence[AuxiliaryScores]
    ) -> dict[str, Any]:
        """What all findings of one attacker say of it: how many rows it knew, drawn how often."""
        parameters = {"auxiliary": int(trials[0].auxiliary.sum()), "choices": len(trials)}
        return {
            "attacker": attacker, "target": target, "seed": self.seed, "parameters": parameters,
        }  # fmt: skip

    def _aggregates(
        self,
        name: str,
        trials: Sequence[AuxiliaryScores],
        member: Flags,
        units: npt.NDArray[np.intp],
    ) -> list[Finding]:
        """The mean over all pairs of a text or a writer, where each lies on one side."""
        flags, order = aggregate(member.astype(float), units)
        # A writer with texts on both sides has no one answer.
        pure = (flags == 0) | (flags == 1)
        parts = [
            AuxiliaryScores(
                aggregate(trial.scores, units)[0],
                aggregate(trial.auxiliary.astype(float), units)[0] > 0,
            )
            for trial in trials
        ]
        if not pure.all():
            return []
        parts = [part for part in parts if both_everywhere(flags > 0.5, part.auxiliary)]
        if not parts:
            return []
        return self._findings(name, "aggregates", parts, flags > 0.5, order)

    def _choices(self, units: npt.NDArray[np.intp], member: Flags) -> list[Flags]:
        """Several draws of the texts whose membership is known."""
        random = np.random.default_rng([self.seed, 0x2E])
        return [self._auxiliary(units, member, random) for _ in range(self.choices)]

    def _auxiliary(
        self, units: npt.NDArray[np.intp], member: Flags, random: np.random.Generator
    ) -> Flags:
        """A third of the units, of members and of others alike."""
        names, codes = np.unique(units, return_inverse=True)
        flags = aggregate(member.astype(float), units)[0] > 0.5
        marks = np.zeros(len(names), dtype=bool)
        # A third of each side: a threshold needs members and others.
        for side in (True, False):
            rows = random.permutation(np.flatnonzero(flags == side))
            marks[rows[: max(1, round(self.share * len(rows)))]] = True
        return marks[codes]


def members_of_map(plan: Plan, defence: Defence, vectors: Vectors) -> list[Finding]:
    """Whether the map's own head gives away the texts that both were fitted to, on one split.

    The attacker holds the folder and a text with its class. Noise before the map is nothing to him:
    he puts the text's own vector through the map, at the centre of the noise. `vectors` are those
    of the encoder in that folder, for all rows.
    """
    head, label = defence.outcome.head, plan.label
    if head is None or label is None:
        raise DataError("membership in a map is asked of its task's head, and this map has none")
    parts = plan.splits[0]
    fit_rows, _ = parts.training("defender")
    # Rows that stopped the training are neither: they were looked at, and not fitted to.
    rows = np.concatenate([fit_rows, parts.attacker, parts.victims])
    rows = rows[label.codes[rows] >= 0]
    centres = np.asarray(vectors[rows], dtype=np.float64)
    if defence.before is not None:
        centres = centres / np.maximum(np.abs(centres).sum(axis=1, keepdims=True), 1e-12)
    chances = head(defence.outcome.map(centres.astype(np.float32)))
    attack = Membership(seed=parts.seed)
    member = np.isin(rows, fit_rows)
    findings = attack.of_head(chances, label.codes[rows], member, plan.units[rows])
    return [replace(row, seed=parts.seed) for row in findings]


def texts_of(corpus: Corpus) -> list[str]:
    """The texts of whom it is asked."""
    if corpus.texts is None:
        raise DataError(NEEDS_TEXTS)
    return corpus.texts.tolist()


def _people_of(corpus: Corpus) -> npt.NDArray[np.intp]:
    """Whose each text is, as a number; without authors every text is a person of its own."""
    if corpus.author is None:
        return np.arange(len(corpus))
    return np.unique(corpus.author.astype(str), return_inverse=True)[1]


def _means_of_others(
    scores: Floats, classes: npt.NDArray[np.integer[Any]], others: Flags
) -> Floats:
    """For each row the mean score of its class among rows that are known not to be members."""
    means = np.full(int(classes.max()) + 1, scores[others].mean())
    for code in np.unique(classes[others]):
        means[code] = scores[others & (classes == code)].mean()
    return means[classes]


def _pair_frequencies(pieces: Sequence[str], first: npt.NDArray[np.intp]) -> Floats:
    """For each pair of neighbouring sentences how frequent its words are: the mean of log counts.

    Counted over all sentences, members' or not: a tenth must not depend on who is a member.
    """
    words = [words_of(piece) for piece in pieces]
    counts = Counter(word for piece in words for word in piece)
    logs = {word: math.log(count) for word, count in counts.items()}
    means = [
        [logs[word] for word in (*words[row], *words[row + 1])] or [0.0] for row in first.tolist()
    ]
    return np.array([math.fsum(values) / len(values) for values in means])
