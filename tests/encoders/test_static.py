"""Static encoders are means over a table, and give the rows of the table too."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from capelet.data.text import treebank_words
from capelet.encoders import StaticEncoder, WordVectorEncoder
from capelet.encoders.static import token_vectors
from capelet.encoders.tables import means

TEXTS = ["The quick brown fox.", "", "It isn't the dog's fault!", "zzzxqy qqqzzj"]


def test_wordllama_equals_its_own_library() -> None:
    import wordllama

    home = Path(wordllama.__file__).parent
    peer = wordllama.WordLlama.load(cache_dir=home, disable_download=True)
    np.testing.assert_allclose(StaticEncoder().encode(TEXTS), peer.embed(TEXTS), atol=1e-5)


def test_token_vectors_are_ragged_and_their_mean_is_the_vector() -> None:
    for encoder in (StaticEncoder(), WordVectorEncoder()):
        vectors, offsets = encoder.token_vectors(TEXTS)
        assert offsets[0] == 0
        assert offsets[-1] == len(vectors)
        assert len(offsets) == len(TEXTS) + 1
        np.testing.assert_array_equal(means(vectors, offsets), encoder.encode(TEXTS))
    vectors, offsets = token_vectors([])
    assert vectors.shape == (0, 256)
    assert offsets.tolist() == [0]


def test_glove_is_the_mean_of_its_words_by_hand() -> None:
    encoder = WordVectorEncoder()
    names, table = encoder.token_table()
    row = {name: number for number, name in enumerate(names)}
    expected = np.mean([table[row[w]] for w in ("the", "quick", "brown", "fox", ".")], axis=0)
    np.testing.assert_allclose(encoder.encode(TEXTS)[0], expected, atol=1e-6)


def test_glove_skips_unknown_words_and_ends_at_zero() -> None:
    vectors = WordVectorEncoder().encode(["the zzzxqy", "the", "zzzxqy qqqzzj"])
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert not vectors[2].any()


def test_words_are_split_as_the_table_was_made() -> None:
    assert treebank_words("Don't! They’ll pay 1,000.50") == [
        *("do", "n't", "!", "they", "'ll", "pay", "1,000.50")
    ]
