"""From guessed word sets to findings: scores with intervals, a null, the blind guess, bands.

The null pairs each guess with another victim: what remains is what any text shares with any other.
The reference names the same most frequent words for every text, as many as pay best on auxiliary
texts. Examples show no text and no word unless asked to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    group_weights,
    percentile,
    share_interval,
    weighted_means,
    within_unit,
)

METRICS = ("f1", "precision", "recall")
TARGET = "words"


def inversion_findings(
    guess: WordSets,
    truth: WordSets,
    blind: WordSets,
    vocabulary: Vocabulary,
    *,
    attacker: str,
    units: npt.NDArray[np.intp] | None = None,
    recipe_hash: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """The rows of one attacker: F1, precision, recall, recall by frequency, and the null.

    `units` numbers the person (or group of identical texts) of each victim, who is resampled whole.
    """
    if not len(guess) == len(truth) == len(blind):
        raise DataError(f"{len(guess)} guesses do not match {len(truth)} victims")
    unit = np.arange(len(truth)) if units is None else units
    weights = group_weights(unit)
    size = len(vocabulary)
    hits, often = compare(guess, truth, size), compare(blind, truth, size)
    # Another person's guess: what remains is what any text shares with any other.
    null_hits = compare(guess.take(_others(unit)), truth, size)
    # Every text got the same set: then the score tells about frequent words, not about the vectors.
    same = len(np.unique(guess.ids)) == len(guess.ids) / max(len(guess), 1)
    people = len(np.unique(unit))
    extra = {**(parameters or {}), "people": people}

    def row(kind: str, metric: str, values: Floats, of: Floats | None, **more: Any) -> Finding:
        return Finding(
            kind,
            TARGET,
            metric,
            *share_interval(weighted_means(weights, values, of), people).ends,
            n=len(truth),
            recipe_hash=recipe_hash,
            **{"attacker": attacker, "parameters": extra, **more},
        )

    rows = []
    for metric in METRICS:
        blind_score = float(getattr(often, metric).mean())
        values = getattr(hits, metric)
        rows.append(row("inversion", metric, values, None, majority=blind_score, degenerate=same))
    rows.append(row("inversion-null", "f1", null_hits.f1, None))
    for band, (right, there) in enumerate(hits_by_band(guess, truth, vocabulary)):
        if there.any():
            rows.append(row("inversion", "recall", right, there, subgroup=band_name(band)))
    return rows


def sentence_findings(
    guesses: Sequence[str],
    truths: Sequence[str],
    *,
    attacker: str,
    units: npt.NDArray[np.intp] | None = None,
    recipe_hash: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """The rows of whole sentences: corpus BLEU and exact match, and both of another victim's."""
    unit = np.arange(len(truths)) if units is None else units
    weights, people = group_weights(unit), len(np.unique(unit))
    others = [guesses[row] for row in _others(unit).tolist()]
    rows = []
    for kind, sentences in (("inversion", list(guesses)), ("inversion-null", others)):
        scores = {
            # BLEU is no mean over sentences: its counts are summed first, for each replicate anew.
            "bleu": within_unit(
                percentile(bleu(weights @ bleu_counts(sentences, truths)), people=people)
            ),
            "exact_match": share_interval(
                weighted_means(weights, exact(sentences, truths)), people
            ),
        }
        rows += [
            Finding(
                kind,
                "sentence",
                metric,
                *score.ends,
                n=len(truths),
                attacker=attacker,
                recipe_hash=recipe_hash,
                parameters=dict(parameters or {}),
            )
            for metric, score in scores.items()
        ]
    return rows


def reference_findings(
    truth: WordSets,
    blind: WordSets,
    vocabulary: Vocabulary,
    *,
    units: npt.NDArray[np.intp] | None = None,
    recipe_hash: str | None = None,
) -> list[Finding]:
    """The rows of the blind guess, kind `inversion-reference`, attacker `most-frequent`."""
    unit = np.arange(len(truth)) if units is None else units
    weights, people = group_weights(unit), len(np.unique(unit))
    hits = compare(blind, truth, len(vocabulary))
    return [
        Finding(
            "inversion-reference",
            TARGET,
            metric,
            *share_interval(weighted_means(weights, getattr(hits, metric)), people).ends,
            n=len(truth),
            attacker="most-frequent",
            recipe_hash=recipe_hash,
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
    truth: WordSets,
    texts: Sequence[str],
    vocabulary: Vocabulary,
    *,
    count: int = 10,
    redact: bool = True,
    sentences: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The artefact `inversion_examples`: some victims beside what each attacker read.

    `sentences` are what an attacker read in order. Redacted, it holds numbers only: how many words
    there were, were named and were right. The victims shown are spread evenly, not chosen by
    success.
    """
    # Evenly spread: examples chosen by success would flatter or frighten.
    rows = np.unique(np.linspace(0, len(truth) - 1, min(count, len(truth))).astype(int))
    size = len(vocabulary)
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
