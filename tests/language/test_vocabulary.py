"""Texts become samples: words, numbers, padding, and a division that keeps copies together."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.errors import CapeletError, DataError
from capelet.language.vocabulary import END, PAD, START, UNKNOWN, Samples, Vocabulary, divide


def test_a_text_becomes_start_words_end_and_padding() -> None:
    words = Vocabulary.of(["one two three", "one two"], 2)
    rows = words.encode(["One three two", "one"], 3)
    one, two = words.number["one"], words.number["two"]
    assert rows.tolist() == [[START, one, UNKNOWN, two, END], [START, one, END, PAD, PAD]]


def test_what_lies_beyond_the_length_is_cut_off() -> None:
    words = Vocabulary.of(["a b c"], 3)
    assert words.encode(["a b c"], 2)[0, -1] == END


def test_a_vocabulary_is_capped_at_the_words_that_there_are() -> None:
    assert set(Vocabulary.of(["a b c"], 40_000).words[4:]) == {"a", "b", "c"}
    assert len(Vocabulary.of(["a b c"], 2)) == 6  # the control
    with pytest.raises(DataError, match="a vocabulary of 0 words"):
        Vocabulary.of(["a b c"], 0)
    with pytest.raises(DataError, match="have no words"):
        Vocabulary.of([" ", ""], 10)


def test_a_public_list_is_marked() -> None:
    words = Vocabulary.from_list(["Oak", "elm", "oak", ""])
    assert words.public and words.words[4:] == ("oak", "elm")
    with pytest.raises(DataError, match="empty"):
        Vocabulary.from_list([" "])


def test_canary_words_come_back_from_a_text_unchanged() -> None:
    words = Vocabulary.of(["don't stop , oak 7 elm"], 6)
    plain = words.canary_words()
    assert set(plain) == {"stop", "oak", "elm"}
    assert words.encode([" ".join(plain)], 3)[0, 1:4].tolist() == [words.number[w] for w in plain]


def test_identical_texts_stay_in_one_part() -> None:
    texts = [f"text {i % 50}" for i in range(200)]
    parts = divide(texts, seed=4)
    kept = [{texts[i] for i in rows} for rows in (parts.train, parts.validation, parts.test)]
    assert not kept[0] & kept[1] and not kept[0] & kept[2] and not kept[1] & kept[2]
    assert sum(len(rows) for rows in (parts.train, parts.validation, parts.test)) == 200
    assert not np.array_equal(parts.test, divide(texts, seed=5).test)


def test_one_text_more_moves_no_other_text() -> None:
    """Or ε for one text would not hold of the file: its neighbour would train on other rows."""
    texts = [f"text {i}" for i in range(300)]
    more = ["a text that comes first", *texts]
    before, after = divide(texts, seed=2), divide(more, seed=2)
    for part in ("train", "validation", "test"):
        old = {texts[i] for i in getattr(before, part)}
        new = {more[i] for i in getattr(after, part)}
        assert old <= new and len(new - old) <= 1


def test_the_shares_are_about_what_was_asked_for() -> None:
    texts = [f"text {i}" for i in range(5000)]
    parts = divide(texts, seed=1, validation=0.1, test=0.2)
    for rows, share in ((parts.train, 0.7), (parts.validation, 0.1), (parts.test, 0.2)):
        assert abs(len(rows) - 5000 * share) < 5 * np.sqrt(5000 * share * (1 - share))


def test_too_few_texts_are_refused() -> None:
    with pytest.raises(DataError, match="at least 20 texts; there are 3"):
        divide(["a", "b", "c"])
    with pytest.raises(DataError, match=r"none of the 30 texts \(1 different ones\) fell"):
        divide(["the same"] * 30)


def test_samples_number_their_authors() -> None:
    samples = Samples.of(["a b", "b"], ["zoe", "ann"], Vocabulary.of(["a b"], 2), 4)
    assert samples.names == ("ann", "zoe") and samples.authors.tolist() == [1, 0]
    assert samples.words() == 5


def test_a_named_list_is_public_and_has_punctuation() -> None:
    pytest.importorskip("wordllama", reason="the extra words is not installed")
    words = Vocabulary.of_public_list("public:glove", 1000)
    assert words.public and words.source == "public:glove" and len(words) == 1004
    assert {"the", "and", ".", ","} <= set(words.words)
    for name in ("public:glow", "glove"):
        with pytest.raises(CapeletError, match=r"no public list of words .*public:glove"):
            Vocabulary.of_public_list(name, 10)
    with pytest.raises(CapeletError, match="a vocabulary of 0 words"):
        Vocabulary.of_public_list("public:glove", 0)
    assert not Vocabulary.of(["a b"], 2).public  # the control
    assert not Vocabulary.from_list(["a"], "private").public  # paid for, not public


def test_a_person_in_two_spellings_is_one_author() -> None:
    words = Vocabulary.of(["a b"], 2)
    samples = Samples.of(["a", "b", "a"], ["Zo\u00eb", "Zoe\u0308 ", "Zoe"], words, 4)
    assert len(samples.names) == 2 and samples.authors[0] == samples.authors[1]
