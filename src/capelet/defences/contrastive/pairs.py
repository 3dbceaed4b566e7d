"""Posts become pairs of sentences that follow each other: all that the training is told.

Nobody labels anything: a sentence and the next one of the same post belong together, and sentences
of other posts are what they are told apart from. The author of a post only serves the adversary.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.data.text import frequent_words, sentences_of, words_and_signs
from capelet.encoders.dual import SPECIAL, Tokens, number_words
from capelet.errors import DataError

Codes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

# Fewer cannot fill batches with negatives of other posts.
LEAST_PAIRS = 100


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences in the order of their posts, with the post and the author's code of each.

    A code of −1 means that the author is unknown or not to be hidden.
    """

    texts: tuple[str, ...]
    posts: Codes
    authors: Codes
    names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        texts: Sequence[str],
        authors: Sequence[Any] | None = None,
        least: int = 3,
        most: int = 30,
        fewest: int = 20,
    ) -> Sentences:
        """Cut posts into sentences of `least` to `most` words.

        Authors with fewer than `fewest` posts get the code −1: an adversary could not learn them.

        >>> sentences = Sentences.of(["It rained all day. We stayed in. Why?", "Sun at last!"])
        >>> sentences.texts, sentences.posts.tolist()
        (('It rained all day.', 'We stayed in.', 'Sun at last!'), [0, 0, 1])
        """
        if authors is not None and len(authors) != len(texts):
            raise DataError(f"{len(authors)} authors do not match {len(texts)} texts")
        pieces, owners = sentences_of(texts, least, most)
        codes, names = _codes(authors, len(texts), fewest)
        rows = owners.astype(np.int64)
        return cls(tuple(pieces), rows, codes[rows], names)

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows of word numbers, and the rows that begin a pair with the row after them."""

    tokens: Tokens
    first: Rows
    posts: Codes
    authors: Codes
    writers: int
    words: tuple[str, ...]

    @classmethod
    def of(cls, sentences: Sentences, vocabulary: int, length: int) -> Pairs:
        """Number the words (the `vocabulary` most frequent ones) and find the neighbours."""
        if len(sentences.posts) != len(sentences) or len(sentences.authors) != len(sentences):
            raise DataError("sentences, posts and authors differ in number")
        # Neighbours in one post; the last sentence of a post begins no pair.
        first = np.flatnonzero(sentences.posts[:-1] == sentences.posts[1:])
        if len(first) < LEAST_PAIRS:
            raise DataError(
                f"there are {len(first)} pairs of sentences that follow each other in one post; "
                f"give at least {LEAST_PAIRS}, that is, longer texts or more of them"
            )
        words = most_frequent(sentences.texts, vocabulary)
        number = {word: place for place, word in enumerate(words)}
        return cls(
            number_words(sentences.texts, number, length),
            first,
            sentences.posts,
            sentences.authors,
            int(sentences.authors.max(initial=-1)) + 1,
            words,
        )

    def __len__(self) -> int:
        return len(self.first)

    def digest(self) -> str:
        """A hash of everything that training sees."""
        hasher = hashlib.sha256("\n".join(self.words).encode("utf-8", "surrogatepass"))
        for values in (self.tokens, self.first, self.posts, self.authors):
            hasher.update(str(values.shape).encode())
            hasher.update(np.ascontiguousarray(values, "<i8").tobytes())
        return hasher.hexdigest()


def most_frequent(texts: Sequence[str], size: int) -> tuple[str, ...]:
    """The special words, then the most frequent ones that stand in at least two texts."""
    # Counted once per text: a word that one text repeats is not frequent.
    texts_as_sets = (set(words_and_signs(text)) for text in texts)
    return (*SPECIAL, *frequent_words(texts_as_sets, size, least=2))


def batches(
    pairs: Pairs, size: int, together: int, random: np.random.Generator
) -> list[npt.NDArray[np.intp]]:
    """The pairs of one epoch in batches, `together` at a time from one author where that is > 1.

    Pairs of one author must share a batch where they are each other's negatives.
    """
    order = random.permutation(len(pairs))
    if together > 1:
        authors = pairs.authors[pairs.first[order]]
        # Stable after a permutation: an author's pairs stay in random order, and change company
        # each epoch.
        order = order[np.argsort(authors, kind="stable")]
        pieces = np.array_split(order, max(1, len(order) // together))
        order = np.concatenate([pieces[place] for place in random.permutation(len(pieces))])
    whole = max(1, len(order) // size)
    return [order[at * size : (at + 1) * size] for at in range(whole)]


def _codes(authors: Sequence[Any] | None, posts: int, fewest: int) -> tuple[Codes, tuple[str, ...]]:
    if authors is None:
        return np.full(posts, -1, dtype=np.int64), ()
    names = [str(author) for author in authors]
    counts = Counter(names)
    # Sorted by name, so that codes do not depend on the order of the rows.
    frequent = sorted(name for name, count in counts.items() if count >= fewest)
    place = {name: code for code, name in enumerate(frequent)}
    return np.array([place.get(name, -1) for name in names], dtype=np.int64), tuple(frequent)
