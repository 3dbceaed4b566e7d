"""A Corpus holds what was read, frozen, and is known by its digest."""

from __future__ import annotations

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
