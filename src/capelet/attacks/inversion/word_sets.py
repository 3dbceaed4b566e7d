"""What inversion is scored on: the set of distinct words of each text, and who guessed which.

A text is its set of words (order and repetition are not asked for). A word that the attacker never
met still counts against its recall: the truth is the whole set, not the part that a vocabulary
covers. Every score is a mean over texts, so that texts (or their authors) can be resampled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.data.text import words_of
from capelet.errors import DataError

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]

MOST = 64  # no attacker names more words than this of one text
BANDS = 5


@dataclass(frozen=True, eq=False)
class WordSets:
    """Distinct words of many texts: text `i` owns `ids[offsets[i]:offsets[i + 1]]`.

    `sizes` counts all distinct words of a text, also those outside the vocabulary.
    """

    ids: Ids
    offsets: Ids
    sizes: Ids

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def rows(self) -> Ids:
        """The text that each of `ids` belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> WordSets:
        pieces = [self.ids[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        return WordSets.of(pieces, self.sizes[rows])

    @classmethod
    def of(cls, pieces: Sequence[Ids], sizes: Ids | None = None) -> WordSets:
        lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        ids = np.concatenate(pieces) if len(pieces) else np.zeros(0, dtype=np.int64)
        return cls(ids.astype(np.int64), offsets, lengths if sizes is None else sizes)

    def to_table(self, pad: int) -> Ids:
        """`(texts, longest)` with `pad` where a text has fewer words."""
        lengths = np.diff(self.offsets)
        table = np.full((len(self), int(lengths.max(initial=1))), pad, dtype=np.int64)
        table[self.rows, np.arange(len(self.ids)) - self.offsets[:-1][self.rows]] = self.ids
        return table


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The words that an attacker can name, most frequent first, with its own count of each.

    `counts` is in how many of the `texts` auxiliary texts a word stands.
    """

    words: tuple[str, ...]
    counts: Ids
    texts: int

    @classmethod
    def of(
        cls,
        texts: Iterable[str],
        *,
        most: int | None = None,
    ) -> Vocabulary:
        """Learnt on auxiliary texts only; refuses texts that are too few to learn words from."""
        counter: Counter[str] = Counter()
        rows = 0
        for text in texts:
            counter.update(set(words_of(text)))
            rows += 1
        # Equal counts in order of spelling: a set comes in the order of Python's hash seed, which
        # differs from run to run, and a word's place decides which random weights it starts from.
        ranking = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
        frequent = ranking[:most]
        if rows < 50 or len(frequent) < 20:
            raise DataError(
                f"the auxiliary text is too small to learn words from: {rows} texts with "
                f"{len(frequent)} words; give at least 50 texts and 20 words"
            )
        return cls(tuple(word for word, _ in frequent), np.array([n for _, n in frequent]), rows)

    def with_words(self, words: Iterable[str]) -> Vocabulary:
        """Also words that no auxiliary text holds, such as those of an encoder's token table."""
        new = sorted({word for word in words if words_of(word) == [word]} - set(self.words))
        counts = np.concatenate([self.counts, np.zeros(len(new), dtype=np.int64)])
        return Vocabulary((*self.words, *new), counts, self.texts)

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    def sets(self, texts: Iterable[str]) -> WordSets:
        """The word set of each text, in this vocabulary."""
        place = self._place
        pieces, sizes = [], []
        for text in texts:
            distinct = set(words_of(text))
            ids = sorted(place[word] for word in distinct if word in place)
            pieces.append(np.array(ids, dtype=np.int64))
            sizes.append(len(distinct))
        return WordSets.of(pieces, np.array(sizes, dtype=np.int64))

    @property
    def shares(self) -> Floats:
        """The share of auxiliary texts that hold each word, never quite 0 or 1."""
        # Half a text more keeps the logit of a word that no text holds finite.
        return (self.counts + 0.5) / (self.texts + 1.0)

    def bands(self) -> Ids:
        """A frequency band for each word: 0 the rarest; all bands weigh alike in running text.

        Each band holds a fifth of all occurrences, so that a recall by band is well measured.
        """
        # Words are sorted by frequency, so the sum from the rear is the share of all rarer
        # occurrences.
        share = np.cumsum(self.counts[::-1])[::-1] / max(int(self.counts.sum()), 1)
        return np.minimum((share * BANDS).astype(np.int64), BANDS - 1)


@dataclass(frozen=True, eq=False)
class Hits:
    """How many words of each text were guessed right, were guessed, and were there."""

    right: Ids
    guess: Ids
    true: Ids

    @property
    def precision(self) -> Floats:
        return _share(self.right, self.guess)

    @property
    def recall(self) -> Floats:
        return _share(self.right, self.true)

    @property
    def f1(self) -> Floats:
        """Per text; the mean over texts is the score."""
        return _share(2 * self.right, self.guess + self.true)


def _share(part: Ids, whole: Ids) -> Floats:
    return np.where(whole > 0, part / np.maximum(whole, 1), 0.0)


def compare(guess: WordSets, truth: WordSets, vocabulary: int) -> Hits:
    """Count the hits of each text.

    >>> truth = WordSets.of([np.array([0, 1, 2])], np.array([4]))
    >>> hits = compare(WordSets.of([np.array([1, 2, 5])]), truth, 6)
    >>> hits.precision.tolist(), hits.recall.tolist()
    ([0.6666666666666666], [0.5])
    """
    hit = _hit(guess, truth, vocabulary)
    right = np.bincount(guess.rows[hit], minlength=len(truth)).astype(np.int64)
    return Hits(right, np.diff(guess.offsets), truth.sizes)


def _hit(guess: WordSets, truth: WordSets, vocabulary: int) -> npt.NDArray[np.bool_]:
    # Each pair of a text and a word becomes one number, so that one look-up serves all texts.
    return np.isin(guess.rows * vocabulary + guess.ids, truth.rows * vocabulary + truth.ids)


def hits_by_band(
    guess: WordSets, truth: WordSets, vocabulary: Vocabulary
) -> list[tuple[Floats, Floats]]:
    """For each frequency band, per text: words found and words there; rare words first."""
    band = vocabulary.bands()[truth.ids]
    # From the side of the truth: recall asks which true words were found.
    hit = _hit(truth, guess, len(vocabulary))
    answer = []
    for number in range(BANDS):
        inside = band == number
        there = np.bincount(truth.rows[inside], minlength=len(truth)).astype(float)
        right = np.bincount(truth.rows[inside & hit], minlength=len(truth)).astype(float)
        answer.append((right, there))
    return answer


def draws_of(vectors: Floats, texts: int, least: int = 1) -> Floats:
    """An attacker's own vectors as `(draws, texts, d)`; one draw may be given as `(texts, d)`."""
    draws = vectors if vectors.ndim == 3 else vectors[None]
    if draws.shape[1] != texts:
        raise DataError(f"{draws.shape[1]} vectors do not match {texts} auxiliary texts")
    if texts < least:
        raise DataError(f"{texts} auxiliary texts are too few; give at least {least}")
    return draws


def best_cut(chances: Floats, sizes: Floats, weight: float) -> Ids:
    """How many words to name, so that the expected F1 of each text is largest.

    `chances` are the probabilities that a text's 1st, 2nd … word is right, `sizes` how many words
    it is thought to have. Naming k gives about 2·Σchances / (k + size); `weight` scales the size
    and is tuned on held-back auxiliary texts, which makes up for chances that are not calibrated.

    >>> best_cut(np.array([[0.9, 0.8, 0.1]]), np.array([2.0]), 1.0).tolist()
    [2]
    """
    count = np.arange(1, chances.shape[1] + 1)
    # The factor 2 of F1 does not move the maximum.
    f1 = np.cumsum(chances, axis=1) / (count + weight * sizes[:, None])
    return np.asarray(f1.argmax(axis=1) + 1, dtype=np.int64)


def tuned_cut(
    words: Ids, chances: Floats, sizes: Floats, truth: WordSets, vocabulary: int
) -> float:
    """The weight of `best_cut` with the highest mean F1 on held-back auxiliary texts."""
    # 1 would be right for calibrated chances; below it fewer words are named, above it more.
    weights = np.linspace(0.2, 4.0, 20)
    f1 = [
        compare(cut_sets(words, best_cut(chances, sizes, weight)), truth, vocabulary).f1.mean()
        for weight in weights
    ]
    return float(weights[int(np.argmax(f1))])


def cut_sets(words: Ids, counts: Ids) -> WordSets:
    """The first so many words of each row."""
    inside = np.arange(words.shape[1]) < counts[:, None]
    offsets = np.concatenate([[0], np.cumsum(inside.sum(axis=1))]).astype(np.int64)
    return WordSets(words[inside], offsets, np.diff(offsets))


def most_frequent(truth: WordSets, vocabulary: int, texts: int) -> WordSets:
    """The blind guess: the same most frequent words for every text, as many as pay best.

    `truth` are held-back auxiliary sets, on which the number of words is chosen. Word 0 must be the
    most frequent, as in a `Vocabulary`.
    """
    most = min(MOST, vocabulary)
    # Tuned like any attacker, or it would be too easy to beat.
    ids = np.tile(np.arange(most), (len(truth), 1))
    f1 = [
        compare(cut_sets(ids, np.full(len(truth), count)), truth, vocabulary).f1.mean()
        for count in range(1, most + 1)
    ]
    count = int(np.argmax(f1)) + 1
    return cut_sets(np.tile(np.arange(most), (texts, 1)), np.full(texts, count))
