"""How a text is cut: normalise, words, sentences; every pattern of words that the project has.

Words are cut in one of a few ways, and each way says why it must differ from `words_of`. All of
them read a text through `normalise`, so that "don’t" and "don't", or é as one and as two
characters, are the same word to attackers, encoders, language models and word mechanisms alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]

_WORD = re.compile(r"[^\W_]+")
_WORD_OR_SIGN = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[^\w\s]")
_WORD_OR_MARK = re.compile(r"[^\W_]+|[^\w\s]|_")
_WORD_OR_EMPHASIS = re.compile(r"\w+|[!?]+")
_LONG_WORD = re.compile(r"[^\W\d_]{3,}")
# Penn Treebank, as the table of GloVe was made: "don't" → "do n't", "dog's" → "dog 's".
_TREEBANK = re.compile(
    r"\w+(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|\d+(?:[.,]\d+)*|\w+(?:[-.]\w+)*|[^\w\s]"
)
_TREEBANK_PIECE = re.compile(r"[^\W_]+(?=n't\b)|n't\b|[^\W_]+")
# A simple rule on purpose: it needs no model, and attackers and encoders must cut alike.
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+")

# White space apart, only these marks are public; whatever is not listed is part of a word, so that
# no letter, digit, emoji or control character slips past a mechanism that replaces words.
_PUBLIC_MARKS = (
    r"!-/:-@\[-`{-~\xa1\xa7\xab\xb6\xb7\xbb\xbf\u2010-\u2027\u2030-\u205e\u3001-\u3003"
    r"\u3008-\u3011\u3014-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
_RUN = rf"[^\s{_PUBLIC_MARKS}]+"
# A word as word mechanisms see it: a run of what is not public, joined by ' ’ _ @ -.
PRIVATE_WORD = re.compile(rf"({_RUN}(?:['’_@-]{_RUN})*)")


def normalise(text: str) -> str:
    """The text with composed letters (Unicode NFC) and plain apostrophes.

    >>> normalise("don’t") == "don't", normalise("cafe\\u0301") == "caf\\u00e9"
    (True, True)
    """
    return unicodedata.normalize("NFC", text).replace("’", "'")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case; digits are words, punctuation is not.

    >>> words_of("Don't panic, it's 42!")
    ['don', 't', 'panic', 'it', 's', '42']
    """
    return [word.lower() for word in _WORD.findall(normalise(text))]


def word_spans(text: str) -> list[tuple[str, int, int]]:
    """Each word in lower case, with where it begins and ends in the text.

    Places are those of the text as it is, since a tokeniser's offsets are compared with them; so
    nothing is composed here.

    >>> word_spans("Oh, Oh")
    [('oh', 0, 2), ('oh', 4, 6)]
    """
    return [(match[0].lower(), *match.span()) for match in _WORD.finditer(text)]


def words_and_signs(text: str) -> list[str]:
    """Lower-case words with their apostrophes, and each sign: a model of language writes both.

    >>> words_and_signs("Don’t stop!")
    ["don't", 'stop', '!']
    """
    return _WORD_OR_SIGN.findall(normalise(text).lower())


def sign_spans(text: str) -> list[tuple[int, int]]:
    """Where each of `words_and_signs` begins and ends, in the text as it is normalised.

    >>> sign_spans("Stop !")
    [(0, 4), (5, 6)]
    """
    return [match.span() for match in _WORD_OR_SIGN.finditer(normalise(text).lower())]


def words_and_marks(text: str) -> list[str]:
    """Lower-case words and single marks, apostrophes among them: the tokens that BLEU counts.

    >>> words_and_marks("Don't panic!")
    ['don', "'", 't', 'panic', '!']
    """
    return _WORD_OR_MARK.findall(normalise(text).lower())


def words_and_emphasis(text: str) -> list[str]:
    """Lower-case words and runs of ! and ?, which tell writers apart: what TF-IDF counts.

    >>> words_and_emphasis("Why?! It rains.")
    ['why', '?!', 'it', 'rains']
    """
    return _WORD_OR_EMPHASIS.findall(normalise(text).lower())


def long_words(text: str) -> list[str]:
    """Lower-case words of three letters and more, without digits: what topics are made of.

    >>> long_words("We saw 300 cats")
    ['saw', 'cats']
    """
    return _LONG_WORD.findall(normalise(text).lower())


def treebank_words(text: str) -> list[str]:
    """The lower-cased words and marks of a text, split as the GloVe table expects them.

    >>> treebank_words("The dog's bone isn't 3.5 kg!")
    ['the', 'dog', "'s", 'bone', 'is', "n't", '3.5', 'kg', '!']
    """
    return _TREEBANK.findall(normalise(text).lower())


def private_words(text: str) -> list[str]:
    """The text in parts that join to it again: gaps at even places, words at odd ones.

    >>> private_words("Isn't it 3.5 kg?")
    ['', "Isn't", ' ', 'it', ' ', '3', '.', '5', ' ', 'kg', '?']
    """
    return PRIVATE_WORD.split(text)


def spelling(word: str) -> str:
    """The form under which a word is looked up: normalised and lower-cased.

    >>> spelling("Don’t")
    "don't"
    """
    return normalise(word).lower()


def treebank_pieces(word: str) -> list[str]:
    """What a word is put together from; "don't" is cut as in the table of GloVe.

    >>> treebank_pieces("Well-known"), treebank_pieces("don't")
    (['well', 'known'], ['do', "n't"])
    """
    return _TREEBANK_PIECE.findall(spelling(word))


def sentences(text: str) -> list[str]:
    """The sentences of a text as they are written: cut behind . ! ? and at line breaks.

    >>> sentences("It rained. (Why?) We stayed in")
    ['It rained.', '(Why?', 'We stayed in']
    """
    return [piece.strip() for piece in _SENTENCE_END.split(text) if piece.strip()]


def sentences_of(texts: Iterable[str], least: int = 5, most: int = 20) -> tuple[list[str], Rows]:
    """Sentences of `least` to `most` words, and the number of the text that each comes from.

    >>> sentences_of(["It rained all day long. Why? We stayed inside and read books."])[0]
    ['It rained all day long.', 'We stayed inside and read books.']
    """
    pieces, owners = [], []
    for number, text in enumerate(texts):
        for piece in sentences(text):
            if least <= len(words_of(piece)) <= most:
                pieces.append(piece)
                owners.append(number)
    return pieces, np.array(owners, dtype=np.intp)


def frequent_words(
    texts: Iterable[Iterable[str]], most: int | None = None, least: int = 1
) -> tuple[str, ...]:
    """The `most` frequent words that stand `least` times or more, the commonest first.

    Texts are given as words. As sets of words they count how many texts use a word, as lists how
    often it is used. Equal counts are ordered by spelling, so that a vocabulary never depends on
    the order of the texts.

    >>> frequent_words([["b", "a", "b"], ["a", "c"]], least=2)
    ('a', 'b')
    """
    # Sorted by spelling where counts are equal, so the order of a set does no harm here.
    counts = Counter(word for text in texts for word in text)
    frequent = [word for word, count in counts.items() if count >= least]
    return tuple(sorted(frequent, key=lambda word: (-counts[word], word))[:most])
