"""Texts as rows of word numbers: the vocabulary, the samples and their parts.

One text is one sample and so one record of a guarantee; what lies beyond `length` words is cut off
and counted, never spread over further samples. A vocabulary that is read off the texts is not
covered by any ε: take a public list of words where that matters, or pay for one (`counts`).
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.data.canaries import Canary, insert_canaries
from capelet.data.text import frequent_words, spelling, words_and_signs
from capelet.errors import CapeletError, DataError, did_you_mean, name_field
from capelet.numerics import padded

Tokens = npt.NDArray[np.int64]
Codes = npt.NDArray[np.intp]

# The first numbers of every vocabulary, so that a model need not be asked for them.
PAD, UNKNOWN, START, END = range(4)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")


# Where words come from: read off the texts, off them through noise that is paid for, or a list that
# its giver declares public. A named public list has the name of its encoder after the prefix.
FROM_TEXTS, THROUGH_NOISE, FROM_FILE, PUBLIC = "texts", "private", "file", "public:"
# GloVe's words are in the order of their frequency, punctuation included, so its first n serve.
PUBLIC_LISTS = ("glove",)


@dataclass(frozen=True)
class Vocabulary:
    """The words a model knows, four special ones first; every other word is `<unk>`."""

    words: tuple[str, ...]
    source: str = FROM_TEXTS

    @property
    def public(self) -> bool:
        """Whether the words tell nothing about the texts."""
        return self.source == FROM_FILE or self.source.startswith(PUBLIC)

    @classmethod
    def of(cls, texts: Sequence[str], size: int) -> Vocabulary:
        """The `size` most frequent words of the texts; all of them where the texts have fewer.

        >>> Vocabulary.of(["a b a", "a c b"], 2).words[4:]
        ('a', 'b')
        """
        words = frequent_words(words_and_signs(text) for text in texts)
        if not words:
            raise DataError(
                f"the training texts have no words; name another column with {name_field('text')}"
            )
        if size < 1:
            raise DataError(f"a vocabulary of {size} words was asked for; give 1 or more")
        return cls((*SPECIAL, *words[:size]))

    @classmethod
    def of_public_list(cls, source: str, size: int) -> Vocabulary:
        """The first `size` words of a public list, such as `public:glove`."""
        from capelet.encoders import load

        name = source.removeprefix(PUBLIC)
        if not source.startswith(PUBLIC) or name not in PUBLIC_LISTS:
            lists = [f"{PUBLIC}{item}" for item in PUBLIC_LISTS]
            raise CapeletError(
                f"there is no public list of words {source!r}; {did_you_mean(source, lists)}"
            )
        words = load(name).token_table()[0]  # type: ignore[attr-defined]
        if not 1 <= size <= len(words):
            raise CapeletError(
                f"a vocabulary of {size} words was asked for, and {source!r} has {len(words)}"
            )
        # Some of the list are one word in our spelling, so a little more of it is read.
        entries = cls.from_list(words[: 2 * size], source).words
        return cls(entries[: len(SPECIAL) + size], source)

    @classmethod
    def from_list(cls, words: Sequence[str], source: str = FROM_FILE) -> Vocabulary:
        """A list of words that was not read off the texts, or was paid for."""
        entries = dict.fromkeys(spelling(word.strip()) for word in words if word.strip())
        if not entries:
            raise DataError("the list of words is empty; give a file with one word per line")
        return cls((*SPECIAL, *(word for word in entries if word not in SPECIAL)), source)

    @classmethod
    def of_file(cls, path: Path) -> Vocabulary:
        """All words of a public file with one per line."""
        try:
            return cls.from_list(path.read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"the list of words {str(path)!r} cannot be read ({type(error).__name__})"
            ) from None

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def number(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    def encode(self, texts: Sequence[str], length: int) -> Tokens:
        """`(n, length + 2)` numbers: start, at most `length` words, end, padding."""
        number = self.number
        codes = [
            [START, *(number.get(word, UNKNOWN) for word in words_and_signs(text)[:length]), END]
            for text in texts
        ]
        return padded(codes, length + 2, PAD)

    def canary_words(self, most: int | None = None) -> tuple[str, ...]:
        """The words a canary may have: plain ones, which a text gives back unchanged."""
        plain = tuple(word for word in self.words[len(SPECIAL) :] if word.isalpha())
        return plain if most is None else plain[:most]


def same_person(name: str) -> str:
    """One spelling of a name: in one Unicode form, without outer blanks.

    A person under two names would be two units of a guarantee, and covered half as well.
    """
    return unicodedata.normalize("NFC", name).strip()


@dataclass(frozen=True, eq=False)
class Samples:
    """What a model trains on: rows of word numbers and the code of each row's author."""

    tokens: Tokens
    authors: Codes
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, texts: Sequence[str], authors: Sequence[str], vocabulary: Vocabulary, length: int
    ) -> Samples:
        people = [same_person(author) for author in authors]
        names, codes = np.unique(np.asarray(people, dtype=str), return_inverse=True)
        return cls(vocabulary.encode(texts, length), codes.astype(np.intp), tuple(names.tolist()))

    def __len__(self) -> int:
        return len(self.tokens)

    def words(self) -> int:
        """How many words are predicted: all but the start of each sample."""
        return int((self.tokens[:, 1:] != PAD).sum())

    def describe(self) -> dict[str, Any]:
        return {"samples": len(self), "authors": len(self.names), "words": self.words()}


@dataclass(frozen=True, eq=False)
class Division:
    """Row numbers of the three parts: trained on, stopped on, and measured on."""

    train: Codes
    validation: Codes
    test: Codes


def divide(
    texts: Sequence[str], seed: int = 0, validation: float = 0.1, test: float = 0.1
) -> Division:
    """About these shares of the rows for validation and test; identical texts stay in one part.

    A text's part depends on the text and the seed alone. If it hung on the other texts, one text
    more would send many others to other parts, and no ε for one text would hold of the whole file.

    >>> parts = divide([f"text {i}" for i in range(1000)])
    >>> len(parts.train), len(parts.validation), len(parts.test)
    (786, 110, 104)
    """
    if len(texts) < 20:
        raise DataError(f"a language model needs at least 20 texts; there are {len(texts)}")
    place = np.array([_place(text, seed) for text in texts])
    parts = {
        "training": np.flatnonzero(place >= validation + test),
        "validation": np.flatnonzero(place < validation),
        "test": np.flatnonzero((place >= validation) & (place < validation + test)),
    }
    for part, rows in parts.items():
        if not len(rows):
            raise DataError(
                f"none of the {len(texts)} texts ({len(np.unique(place))} different ones) fell "
                f"into the {part} part; give more texts, or another seed"
            )
    return Division(*parts.values())


def _place(text: str, seed: int) -> float:
    """A number in [0, 1) that is as good as random, and the same for equal texts."""
    key = str(seed).encode()
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
    # 53 bits, as many as a float64 in [0, 1) can hold without rounding.
    return (int.from_bytes(digest) >> 11) * 2.0**-53


@dataclass(frozen=True, eq=False)
class DividedSamples:
    """What a folder's model trained on and is measured on; made again from the same texts."""

    train: Samples
    validation: Tokens
    test: Samples
    texts_cut: int

    @classmethod
    def of(
        cls,
        texts: Sequence[str],
        authors: Sequence[str],
        vocabulary: Vocabulary,
        canaries: Sequence[Canary],
        length: int,
        seed: int,
    ) -> DividedSamples:
        """The same division, canaries and numbers as in training, for the same texts and seed."""
        parts = divide(texts, seed)

        def select(rows: Codes) -> tuple[list[str], list[str]]:
            return [texts[i] for i in rows], [authors[i] for i in rows]

        with_canaries = insert_canaries(*select(parts.train), canaries)
        return cls(
            Samples.of(*with_canaries, vocabulary, length),
            vocabulary.encode(select(parts.validation)[0], length),
            Samples.of(*select(parts.test), vocabulary, length),
            sum(len(words_and_signs(text)) > length for text in texts),
        )
