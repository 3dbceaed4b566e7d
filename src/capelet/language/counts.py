"""What a private training may know of its texts before it begins: how many there are, which words.

Both leave with the model: the number of units decides sampling rate, steps and δ, and the words lie
in the folder. So both are noised, and paid for. A unit is one text, or all texts of an author;
neighbours differ in one unit.

- The number: n + discrete Laplace noise of scale 1/ε is ε-private.
- The words: each unit counts at most k words, each once, so the counts have the L2 sensitivity √k.
  Gaussian noise covers the words that others use too. A word that one unit alone uses has the count
  1; the threshold τ = 1 + σ·Φ⁻¹(1 − δ/k) keeps all of its at most k such words in, but for δ
  (stability-based histograms: Korolova et al. 2009; with Gaussian noise: Gopi et al. 2020).

Noise comes from the operating system and is exact on the integers; `random` makes it repeatable,
and void.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist

import numpy as np

from capelet.data.text import words_and_signs
from capelet.errors import DataError, name_field
from capelet.mechanisms.sampling import discrete_laplace, rounded_gaussian
from capelet.privacy.guarantees import gaussian_sigma

# Words that an author counts at most: more reach further down the tail, and cost noise on all.
AUTHOR_WORDS = 100
# A count is further off than this many scales with probability e^-12 / 2 = 3·10⁻⁶.
FAR = 12


def noisy_count(exact: int, epsilon: float, random: np.random.Generator | None = None) -> int:
    """The number of units, ε-private for one unit more or less; at least 1."""
    if random is None:
        noise = int(discrete_laplace(1, 1 / epsilon)[0])
    else:
        # A difference of two geometric numbers is discrete Laplace.
        pair = random.geometric(-math.expm1(-epsilon), 2)
        noise = int(pair[0] - pair[1])
    return max(1, exact + noise)


def count_bound(count: int, epsilon: float) -> int:
    """A number that the exact count exceeds with a probability of 3·10⁻⁶ only."""
    return count + math.ceil(FAR / epsilon)


def words_of_texts(texts: Sequence[str], length: int) -> list[set[str]]:
    """The words of each text, as far as a model reads it."""
    return [set(words_and_signs(text)[:length]) for text in texts]


def words_of_authors(
    texts: Sequence[str], authors: Sequence[str], length: int, most: int = AUTHOR_WORDS
) -> list[set[str]]:
    """The words that each author uses most, at most `most`; it depends on that author alone."""
    counts: dict[str, Counter[str]] = {}
    for text, author in zip(texts, authors, strict=True):
        counts.setdefault(author, Counter()).update(words_and_signs(text)[:length])
    return [set(_first(own, most, author)) for author, own in counts.items()]


def _first(counts: Mapping[str, int], most: int, author: str) -> list[str]:
    """By falling count; equal ones by a hash with the author's name, not the same words for all."""
    salt = hashlib.blake2b(author.encode("utf-8", "surrogatepass")).digest()

    def place(word: str) -> tuple[int, bytes]:
        return -counts[word], hashlib.blake2b(word.encode(), digest_size=8, key=salt).digest()

    return sorted(counts, key=place)[:most]


def noisy_words(
    units: Iterable[set[str]],
    most: int,
    epsilon: float,
    delta: float,
    random: np.random.Generator | None = None,
) -> tuple[str, ...]:
    """The words that enough units use, most used first: (ε, δ)-private for one unit more or less.

    No unit may have more than `most` words.
    """
    counts: Counter[str] = Counter()
    for own in units:
        if len(own) > most:
            raise ValueError(f"a unit has {len(own)} words, and at most {most} are paid for")
        counts.update(own)
    # Half of δ for the noise, half for the words that only one unit has.
    sigma = gaussian_sigma(epsilon, delta / 2, math.sqrt(most))
    # Φ⁻¹(1 − x) = −Φ⁻¹(x), which does not round a small x away.
    threshold = 1 - sigma * NormalDist().inv_cdf(delta / 2 / most)
    words = sorted(counts)  # not in the order of rows, which would tell it
    noise = (
        rounded_gaussian(len(words), sigma)
        if random is None
        else random.normal(0.0, sigma, len(words)).round()
    )
    noisy = {word: counts[word] + int(more) for word, more in zip(words, noise, strict=True)}
    # Rounding adds at most a half, which must not lift a word over the threshold.
    above = [word for word in words if noisy[word] - 0.5 >= threshold]
    if not above:
        raise DataError(
            f"no word is used often enough to be let out at this epsilon (by some {threshold:.0f} "
            f"texts or authors); give a public list with {name_field('words')}, a larger epsilon, "
            "or more texts"
        )
    return tuple(sorted(above, key=lambda word: (-noisy[word], word)))
