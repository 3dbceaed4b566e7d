"""From guessed word sets to findings: scores with intervals, a null, the blind guess, bands.

The null pairs each guess with another victim: what remains is what any text shares with any other.
The reference names the same most frequent words for every text, as many as pay best on auxiliary
texts. Examples show no text and no word unless asked to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.inversion.bleu import bleu, bleu_counts, exact
from capelet.attacks.inversion.word_sets import (
    BANDS,
    Floats,
    Vocabulary,
    WordSets,
    compare,
    hits_by_band,
)
from capelet.errors import DataError
from capelet.findings import Finding
from capelet.findings.intervals import (
    Codes,
    Score,
    group_weights,
    percentile,
    share_interval,
    weighted_means,
    within_unit,
)

METRICS = ("f1", "precision", "recall")
TARGET = "words"
EXAMPLES = 10  # victims that are shown


@dataclass(frozen=True, eq=False)
class Victims:
    """The texts that were read back, whose each is, and the release that they were read from.

    `units` numbers the person (or group of identical texts) of each text, who is resampled whole;
    without them every text is a person of its own.
    """

    texts: Sequence[str]
    units: Codes | None = None
    recipe_hash: str | None = None

    @cached_property
    def people(self) -> Codes:
        return np.arange(len(self.texts)) if self.units is None else self.units

    @cached_property
    def _weights(self) -> Floats:
        return group_weights(self.people)

    @property
    def count(self) -> int:
        """How many people there are."""
        return len(np.unique(self.people))

    def first(self, count: int) -> Victims:
        """The first so many texts."""
        if count == len(self.texts):
            return self
        return Victims(self.texts[:count], self.people[:count], self.recipe_hash)

    def share(self, values: Floats, of: Floats | None = None) -> Score:
        """The mean of what lies between 0 and 1 for each text, with its interval."""
        return share_interval(weighted_means(self._weights, values, of), self.count)

    def bleu(self, sentences: Sequence[str]) -> Score:
        """BLEU is no mean over sentences: its counts are summed first, for each replicate anew."""
        counts = bleu_counts(sentences, self.texts)
        return within_unit(percentile(bleu(self._weights @ counts), people=self.count))

    def finding(self, kind: str, target: str, metric: str, score: Score, **more: Any) -> Finding:
        more = {"n": len(self.texts), "recipe_hash": self.recipe_hash, **more}
        return Finding(kind, target, metric, *score.ends, **more)


@dataclass(frozen=True)
class Attacker:
    """Who guessed, and what its findings say of it."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


def inversion_findings(
    attacker: Attacker, victims: Victims, guess: WordSets, blind: WordSets, vocabulary: Vocabulary
) -> list[Finding]:
    """The rows of one attacker: F1, precision, recall, recall by frequency, and the null.

    `blind` may hold guesses of further victims, whom this attacker did not read.
    """
    if len(guess) != len(victims.texts):
        raise DataError(f"{len(guess)} guesses do not match {len(victims.texts)} victims")
    truth, size = vocabulary.sets(victims.texts), len(vocabulary)
    hits = compare(guess, truth, size)
    often = compare(blind.take(np.arange(len(guess))), truth, size)
    # Another person's guess: what remains is what any text shares with any other.
    null_hits = compare(guess.take(_others(victims.people)), truth, size)
    # Every text got the same set: then the score tells about frequent words, not about the vectors.
    same = len(np.unique(guess.ids)) == len(guess.ids) / max(len(guess), 1)
    parameters = {**attacker.parameters, "people": victims.count}

    def row(kind: str, metric: str, score: Score, **more: Any) -> Finding:
        about = {"attacker": attacker.name, "parameters": parameters, **more}
        return victims.finding(kind, TARGET, metric, score, **about)

    rows = []
    for metric in METRICS:
        majority = float(getattr(often, metric).mean())
        score = victims.share(getattr(hits, metric))
        rows.append(row("inversion", metric, score, majority=majority, degenerate=same))
    rows.append(row("inversion-null", "f1", victims.share(null_hits.f1)))
    for band, (right, there) in enumerate(hits_by_band(guess, truth, vocabulary)):
        if there.any():
            score = victims.share(right, there)
            rows.append(row("inversion", "recall", score, subgroup=band_name(band)))
    return rows


def sentence_findings(
    attacker: Attacker, victims: Victims, guesses: Sequence[str]
) -> list[Finding]:
    """The rows of whole sentences: corpus BLEU and exact match, and both of another victim's."""
    others = [guesses[row] for row in _others(victims.people).tolist()]
    about = {"attacker": attacker.name, "parameters": dict(attacker.parameters)}
    rows = []
    for kind, sentences in (("inversion", guesses), ("inversion-null", others)):
        match = victims.share(exact(sentences, victims.texts))
        rows += [
            victims.finding(kind, "sentence", metric, score, **about)
            for metric, score in (("bleu", victims.bleu(sentences)), ("exact_match", match))
        ]
    return rows


def reference_findings(victims: Victims, blind: WordSets, vocabulary: Vocabulary) -> list[Finding]:
    """The rows of the blind guess, kind `inversion-reference`, attacker `most-frequent`."""
    hits = compare(blind, vocabulary.sets(victims.texts), len(vocabulary))
    return [
        victims.finding(
            "inversion-reference",
            TARGET,
            metric,
            victims.share(getattr(hits, metric)),
            attacker="most-frequent",
        )
        for metric in METRICS
    ]


def band_name(band: int) -> str:
    """`rarest fifth` … `most frequent fifth` of running words."""
    if band == 0:
        return "rarest fifth of words"
    if band == BANDS - 1:
        return "most frequent fifth of words"
    return f"fifth {band + 1} of words"


def _others(unit: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """For each victim another one, of another person wherever there is one."""
    random = np.random.default_rng(0x1D)
    order = random.permutation(len(unit))
    if len(unit) < 2:
        return order
    answer = np.empty_like(order)
    # A ring has no fixed point: nobody is paired with its own guess.
    answer[order] = np.roll(order, 1)
    # Those of the same person draw again; where one person wrote nearly everything some stay.
    for _ in range(8):
        clash = np.flatnonzero(unit[answer] == unit)
        if not len(clash):
            break
        answer[clash] = random.integers(0, len(unit), len(clash))
    return answer


def examples(
    guesses: Mapping[str, WordSets],
    texts: Sequence[str],
    vocabulary: Vocabulary,
    *,
    redact: bool = True,
    sentences: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The artefact `inversion_examples`: some victims beside what each attacker read.

    `sentences` are what an attacker read in order. Redacted, it holds numbers only: how many words
    there were, were named and were right. The victims shown are spread evenly, not chosen by
    success.
    """
    truth, size = vocabulary.sets(texts), len(vocabulary)
    # Evenly spread: examples chosen by success would flatter or frighten.
    rows = np.unique(np.linspace(0, len(truth) - 1, min(EXAMPLES, len(truth))).astype(int))
    hits = {name: compare(guess, truth, size) for name, guess in guesses.items()}
    entries = []
    for row in rows.tolist():
        entry: dict[str, Any] = {"words": int(truth.sizes[row]), "attackers": {}}
        if not redact:
            entry["text"] = texts[row]
        for name, guess in guesses.items():
            guess_ids = guess.ids[guess.offsets[row] : guess.offsets[row + 1]]
            there = truth.ids[truth.offsets[row] : truth.offsets[row + 1]]
            read: dict[str, Any] = {
                "named": len(guess_ids),
                "right": int(hits[name].right[row]),
                "f1": float(hits[name].f1[row]),
            }
            if not redact:
                words = {word: vocabulary.words[word] for word in guess_ids}
                read["right_words"] = [words[word] for word in guess_ids if word in there]
                read["wrong_words"] = [words[word] for word in guess_ids if word not in there]
                if name in (sentences or {}):
                    read["sentence"] = (sentences or {})[name][row]
            entry["attackers"][name] = read
        entries.append(entry)
    return {"redacted": redact, "examples": entries}
