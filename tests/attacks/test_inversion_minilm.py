"""The figures of inversion at a small size, on real sentences and real MiniLM vectors.

The [card](docs/cards/inversion.md) has them at full size. Here a hundredth of the auxiliary texts
keeps their order: black box above the blind guess, and the lower the layer the more is read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from capelet.attacks.inversion.blackbox import MultiLabel
from capelet.attacks.inversion.layers import OpenModel
from capelet.attacks.inversion.sparse import SparseCoding
from capelet.attacks.inversion.word_sets import Vocabulary, WordSets, compare, most_frequent
from capelet.data.corpus import Corpus
from capelet.data.text import sentences_of
from capelet.encoders import load

AUXILIARY, LEARNT, VICTIMS = 2000, 500, 80
LAYERS = (0, 2, 4, 6)


@pytest.fixture(scope="module")
def sentences(dataset: Callable[..., Corpus]) -> tuple[list[str], list[str]]:
    """Short sentences of blog writers: the attacker's, and the victims'."""
    found, _ = sentences_of(dataset("blog_authors").texts[:4000:4].tolist(), most=12)
    chosen = np.random.default_rng(0).permutation(len(found))[: AUXILIARY + VICTIMS]
    texts = list(dict.fromkeys(found[row] for row in chosen))
    return texts[VICTIMS:], texts[:VICTIMS]


def reached(guess: WordSets, victims: list[str], vocabulary: Vocabulary) -> float:
    truth = vocabulary.sets(victims)
    return float(compare(guess, truth, len(vocabulary)).f1.mean())


def test_black_box_reads_more_than_the_blind_guess(sentences: tuple[list[str], list[str]]) -> None:
    own, victims = sentences
    vocabulary = Vocabulary.of(own)
    encoder = load("minilm")
    attack = MultiLabel(width=96, epochs=15, device="cpu")
    fitted = attack.fit(encoder.encode(own), vocabulary.sets(own), vocabulary)
    guess = fitted.predict(encoder.encode(victims))
    blind = most_frequent(vocabulary.sets(own), len(vocabulary), len(victims))
    value, base = reached(guess, victims, vocabulary), reached(blind, victims, vocabulary)
    other = reached(guess.take(np.roll(np.arange(len(victims)), 1)), victims, vocabulary)
    assert 0.1 < base < 0.3
    assert value > base + 0.05 and value > other + 0.05, (value, base, other)


def test_the_lower_the_layer_the_more_is_read(sentences: tuple[list[str], list[str]]) -> None:
    own, victims = sentences[0][:LEARNT], sentences[1]
    model = OpenModel.of(load("minilm"))
    learnt, seen = model.means(own, LAYERS), model.means(victims, LAYERS)
    vocabulary = Vocabulary.of(own)  # words that it never met count against every layer alike
    coder = SparseCoding(("back",), (0.03,), (0.0,), device="cpu", tune=100)
    found = []
    for layer in LAYERS:
        fitted = coder.fit(learnt[layer], own, model.tokens, model.table, vocabulary)
        found.append(reached(fitted.predict(seen[layer]), victims, vocabulary))
    assert found[0] > 0.6
    assert found[0] > found[1] > found[2] > found[3] > 0.1, found
