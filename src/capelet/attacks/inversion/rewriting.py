"""Texts that an attacker makes of its own: new ones to learn from, and edits of a hypothesis.

The encoder answers any text, so that texts to learn from never run out: halves of two sentences put
together, pieces of one, and sentences with some words exchanged.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise

from capelet.data.text import word_spans

_ENDS = (".", "!", "?", "...", "")


class Maker:
    """Puts new texts together from the words of the auxiliary ones."""

    def __init__(self, texts: Sequence[str], seed: int) -> None:
        self.split = [text.split() for text in texts]
        counts = Counter(word for words in self.split for word in words)
        self.words = list(counts)
        # Rare words come up more often than in the texts: they are what a decoder lacks.
        self.weights = list(accumulate(count**0.6 for count in counts.values()))
        self.random = random.Random(seed)

    def __call__(self, count: int) -> list[str]:
        kinds = self.random.choices((self._join, self._part, self._exchange), (4, 1, 5), k=count)
        return [" ".join(kind()) for kind in kinds]

    def _join(self) -> list[str]:
        first, second = self.random.choices(self.split, k=2)
        head, tail = self.random.randint(1, len(first)), self.random.randint(1, len(second))
        # No longer than real texts, or the decoder would learn lengths that no victim has.
        most = max(len(first), len(second), 5)
        return (first[:head] + second[-tail:])[:most]

    def _part(self) -> list[str]:
        whole = self.random.choice(self.split)
        size = self.random.randint(min(3, len(whole)), len(whole))
        start = self.random.randint(0, len(whole) - size)
        return whole[start : start + size]

    def _exchange(self) -> list[str]:
        whole = list(self.random.choice(self.split))
        count = self.random.randint(1, max(1, len(whole) // 2))
        new_words = self.random.choices(self.words, cum_weights=self.weights, k=count)
        for place, word in zip(
            self.random.sample(range(len(whole)), count), new_words, strict=True
        ):
            whole[place] = word
        return whole


def edits(
    text: str, pool: Sequence[str], weights: Sequence[float], most: int, rng: random.Random
) -> list[str]:
    """Texts one edit away: a word exchanged, put in, left out or moved; another end.

    Words come from `pool`, likely ones more often. All that leave out a word are among them.
    """
    spans = word_spans(text)
    if not spans:
        return []
    variants = {text[:start] + text[stop:] for _, start, stop in spans} if len(spans) > 1 else set()
    bare = text.rstrip(".!? ")
    variants |= {bare + end for end in _ENDS}
    for left, right in pairwise(spans):
        variants.add(
            text[: left[1]]
            + text[right[1] : right[2]]
            + text[left[2] : right[1]]
            + text[left[1] : left[2]]
            + text[right[2] :]
        )
    count = max(most - len(variants), 0) if pool else 0
    words = rng.choices(pool, weights, k=count) if count else []
    for word in words:
        _, start, stop = rng.choice(spans)
        kind = rng.random()
        if kind < 0.6:
            variants.add(text[:start] + word + text[stop:])
        elif kind < 0.9:
            variants.add(text[:start] + word + " " + text[start:])
        else:
            variants.add(text[:stop] + " " + word + text[stop:])
    tidy = {" ".join(one.split()) for one in variants} - {text, ""}
    # Sorted before drawing: the order of a set changes with Python's hash seed.
    return sorted(tidy)[:most] if len(tidy) <= most else rng.sample(sorted(tidy), most)
