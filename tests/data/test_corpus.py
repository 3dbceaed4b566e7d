"""A Corpus holds what was read, frozen, and is known by its digest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus, Values
from capelet.errors import DataError


def column(*values: object) -> Values:
    filled = np.empty(len(values), dtype=object)
    filled[:] = values
    return filled


def corpus(**columns: Values) -> Corpus:
    return Corpus("two", texts=column("a text", "another"), private=columns)


def test_a_corpus_is_frozen_and_has_a_digest() -> None:
    one = corpus(gender=column("f", None))
    assert one.digest() == corpus(gender=column("f", None)).digest()
    assert one.digest() != corpus(gender=column("f", "m")).digest()
    assert one.digest() != corpus(language=column("f", None)).digest()
    assert one.texts is not None
    with pytest.raises(ValueError, match="read-only"):
        one.texts[0] = "changed"


def test_columns_of_other_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="differ in length"):
        Corpus("x", texts=column("a"), label=column(1, 2))
    with pytest.raises(DataError, match="neither"):
        len(Corpus("x"))


def test_lists_become_frozen_columns() -> None:
    texts = ["one", "two"]
    corpus = Corpus("c", texts=texts, label=[1, float("nan")], private={"sex": ["f", ""]})
    assert corpus.label is not None and corpus.label.tolist() == [1, None]
    assert corpus.private["sex"].tolist() == ["f", None]
    with pytest.raises(ValueError, match="read-only"):
        corpus.label[0] = 2
    vectors = np.ones((2, 3))
    matrix = Corpus("c", vectors=vectors).vectors
    assert matrix is not None and matrix.dtype == np.float32
    vectors[0] = 7  # the caller's own array stays the caller's
    assert matrix[0, 0] == 1


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"texts": "one text"}, "must be a list or an array"),
        ({"texts": ["a secret", 7]}, "row 1 is int"),
        ({"texts": ["a secret", ""]}, "row 1 is empty"),
        ({"texts": ["a"], "private": ["secret"]}, "as a dict"),
        ({"texts": ["a"], "private": {"sex": "secret"}}, "'sex' must be a list"),
        ({"vectors": [[1.0], [1.0, 2.0]]}, "rows of several lengths"),
        ({"vectors": [[[1.0]], [[2.0]]]}, r"shape \(2, 1, 1\)"),
        ({"vectors": [[1.0], [1e300]]}, "infinite numbers in 1 of 2 rows"),
        ({"vectors": [["secret"], ["b"]]}, "other things than numbers"),
    ],
)
def test_a_corpus_validates_its_columns(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as error:
        Corpus("c", **columns)
    assert "secret" not in str(error.value)


def test_a_corpus_shows_counts_and_no_text() -> None:
    corpus = Corpus("c", texts=["a secret"] * 3, private={"sex": ["f"] * 3}, author=["x", "y", "x"])
    assert repr(corpus) == "<Corpus 'c': 3 texts; private 'sex'; 2 authors>"
