"""One place cuts texts: apostrophes and composed letters are the same word everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import capelet
from capelet.data import text as cutting
from capelet.data.text import (
    frequent_words,
    long_words,
    normalise,
    private_words,
    sentences,
    sentences_of,
    spelling,
    treebank_pieces,
    treebank_words,
    word_spans,
    words_and_emphasis,
    words_and_marks,
    words_and_signs,
    words_of,
)

WAYS = [
    words_of,
    words_and_signs,
    words_and_marks,
    words_and_emphasis,
    long_words,
    treebank_words,
    treebank_pieces,
    spelling,
]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_reads_through_normalise(way: object) -> None:
    assert callable(way)
    assert way("They don’t sell cafe\u0301s") == way("They don't sell caf\u00e9s")
    assert way("don't") != way("dont"), "the control: an apostrophe is not nothing"


def test_normalise_leaves_ascii_as_it_is() -> None:
    plain = "".join(map(chr, range(128)))
    assert normalise(plain) == plain


def test_the_ways_differ_where_they_must() -> None:
    text = "Don't_stop: 3.5 kg?!"
    assert words_of(text) == ["don", "t", "stop", "3", "5", "kg"]
    assert words_and_signs(text) == ["don't", "stop", ":", "3", ".", "5", "kg", "?", "!"]
    assert words_and_marks("a_b") == ["a", "_", "b"]
    assert words_and_emphasis("a_b c?!") == ["a_b", "c", "?!"]
    assert long_words("abc ab 123 ab_cde") == ["abc", "cde"]
    assert treebank_words("isn't 3.5") == ["is", "n't", "3.5"]


def test_private_words_join_to_the_text_again() -> None:
    text = "“Don’t”, she said: e\u0301t\u00e9 \U0001f600!"
    assert "".join(private_words(text)) == text
    assert private_words(text)[1::2] == ["Don’t", "she", "said", "e\u0301t\u00e9", "\U0001f600"]


def test_spans_are_places_in_the_text_as_it_is() -> None:
    text = "Oh, cafe\u0301 don’t"
    assert all(text[start:end].lower() == word for word, start, end in word_spans(text))


def test_sentences_and_their_texts() -> None:
    assert sentences('He said "no." Why?\n\nLine two. ') == ['He said "no.', "Why?", "Line two."]
    pieces, owners = sentences_of(["One two three. Four.", "", "Five six seven!"], least=3)
    assert pieces == ["One two three.", "Five six seven!"]
    assert owners.tolist() == [0, 2]


def test_frequent_words_do_not_depend_on_the_order_of_texts() -> None:
    texts = [["b", "a"], ["c", "b"], ["a", "c"], ["d"]]
    assert frequent_words(texts) == frequent_words(texts[::-1]) == ("a", "b", "c", "d")
    assert frequent_words(texts, most=2) == ("a", "b")
    assert frequent_words(texts, least=2) == ("a", "b", "c")


def test_no_other_module_has_a_pattern_of_words() -> None:
    """The control is this module itself, which holds several."""

    def has_word_pattern(path: Path) -> bool:
        code = path.read_text(encoding="utf-8")
        return any(mark in code for mark in (r"[^\W", r'"\w+', r"\w+|"))

    source = Path(capelet.__file__).parent
    home = Path(cutting.__file__)
    assert has_word_pattern(home)
    others = [path for path in source.rglob("*.py") if path != home and has_word_pattern(path)]
    assert not others
