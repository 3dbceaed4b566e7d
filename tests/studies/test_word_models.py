"""Word models of the studies learn what stands near what, and refuse what they cannot learn."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.errors import CapeletError, DataError
from capelet.studies.word_models import KINDS, WordTraining, pairs_of


def test_pairs_of_a_text_by_hand() -> None:
    centres, contexts, distance = pairs_of([np.array([4, 5, 6]), np.array([7])], 2, None)
    found = sorted(zip(centres.tolist(), contexts.tolist(), distance.tolist(), strict=True))
    assert found == [(4, 5, 1), (4, 6, 2), (5, 4, 1), (5, 6, 1), (6, 4, 2), (6, 5, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_one_topic_come_near(kind: str) -> None:
    random = np.random.default_rng(3)
    texts = [
        [f"{topic}{number}" for number in random.integers(0, 15, 8)]
        for topic in random.choice(["a", "b"], 1500)
    ]
    words, vectors = WordTraining(kind, dimension=16, epochs=3, least=1, frequent=1.0).fit(texts)
    centred = vectors - vectors.mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    topic = np.array([word[0] for word in words])
    cosine = unit @ unit.T
    same = topic[:, None] == topic[None, :]
    assert cosine[same].mean() > cosine[~same].mean() + 0.2


def test_unknown_kinds_and_too_little_text_are_refused() -> None:
    with pytest.raises(CapeletError, match="word2vec"):
        WordTraining("word3vec").fit([["a"]])
    with pytest.raises(DataError, match="at least 10"):
        WordTraining().fit([["a", "b"]])
