"""A vector depends on its own text alone, to the last bit, whatever travels with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capelet.encoders import load
from capelet.encoders.onnx import OnnxEngine
from capelet.encoders.tokens import equal_batches, pad_batch
from capelet.interfaces import Vectors

# Of many lengths, some of them several times, some once.
TEXTS = [
    " ".join(["the dog was good and red", "a cat", "is not very bad !"][i % 3 :] * (1 + i % 5))
    for i in range(30)
]
TEXTS += ["blue", "", "a very bad cat, and not a red house !" * 3]
CASES = ["minilm/onnx", "minilm/int8", "tiny/onnx", "tiny/int8", "wordllama/auto", "glove/auto"]


def bits(vectors: Vectors) -> np.ndarray:
    return np.ascontiguousarray(vectors, dtype=np.float32).view(np.uint32)


@pytest.mark.parametrize("case", CASES)
def test_neighbours_do_not_move_a_bit(case: str, tiny_folder: Path) -> None:
    name, backend = case.split("/")
    encoder = load(str(tiny_folder) if name == "tiny" else name, backend)
    together = bits(encoder.encode(TEXTS))
    alone = bits(np.concatenate([encoder.encode([text]) for text in TEXTS]))
    backwards = bits(encoder.encode(TEXTS[::-1])[::-1])
    others = bits(encoder.encode(["not good", *TEXTS[::2], "red dog house"])[1:-1])
    assert np.array_equal(together, alone)
    assert np.array_equal(together, backwards)
    assert np.array_equal(together[::2], others)


def engine_of(name: str, backend: str = "onnx") -> OnnxEngine:
    encoder = load(name, backend)
    encoder.encode(["a"])
    engine = encoder._engine  # type: ignore[attr-defined]
    assert isinstance(engine, OnnxEngine)
    return engine


def test_padding_and_being_alone_do_move_bits() -> None:
    """Why batches are of one length and of two texts at least: the control of the test above."""
    engine = engine_of("minilm")
    card, session = engine._card, engine.session

    def run(*texts: str) -> Vectors:
        arrays = pad_batch(engine.tokens(texts), card["inputs"], card["pad"])
        return session.run(None, arrays)[0]

    text, longer = TEXTS[4], TEXTS[4] + TEXTS[3]
    pair = bits(run(text, text)[:1])
    padded, alone = bits(run(text, longer)[:1]), bits(run(text))
    assert not np.array_equal(pair, padded) or not np.array_equal(pair, alone)
    assert np.allclose(run(text, text)[0], run(text)[0], atol=1e-6)


def test_int8_scales_over_a_batch_so_texts_travel_alone() -> None:
    engine = engine_of("minilm", "int8")
    assert not engine.is_independent
    assert not engine.gathers_lengths
    card = engine._card

    def run(*texts: str) -> Vectors:
        arrays = pad_batch(engine.tokens(texts), card["inputs"], card["pad"])
        return engine.session.run(None, arrays)[0]

    # The control: together, a neighbour of the same length moves far more than the last bits.
    apart = np.abs(run("a good dog")[0] - run("a good dog", "nobody was there")[0]).max()
    assert apart > 1e-5


def test_a_machine_whose_kernels_mix_texts_sends_them_alone(
    monkeypatch: pytest.MonkeyPatch, tiny_folder: Path
) -> None:
    engine = engine_of(str(tiny_folder))
    inner, shapes = engine.session, []

    class Mixing:
        """A session in which the size of a batch moves the last bits."""

        def run(self, names: object, arrays: dict[str, np.ndarray]) -> list[Vectors]:
            vectors = inner.run(names, arrays)[0]
            shapes.append(len(vectors))
            return [vectors * np.float32(1 + len(vectors) * 1e-6)]

    assert engine.is_independent and engine.gathers_lengths  # the control
    del engine.is_independent
    monkeypatch.setattr(engine, "_session", Mixing())
    assert not engine.is_independent
    shapes.clear()
    engine.encode(["a dog", "a cat", "red"], lambda *_: None)
    assert shapes == [1, 1, 1]


def test_batches_are_of_one_length_and_hold_every_row() -> None:
    lengths = np.random.default_rng(0).integers(0, 40, 500)
    batches = equal_batches(lengths, 64)
    assert all(len(batch) > 1 and len(set(lengths[batch])) == 1 for batch in batches)
    rows = np.unique(np.concatenate(batches))
    assert np.array_equal(rows, np.flatnonzero(lengths > 0))
    total = sum(len(batch) for batch in batches)
    assert total - len(rows) == int((np.bincount(lengths)[1:] == 1).sum())
    assert equal_batches(np.array([0, 0]), 64) == []


def test_a_text_with_its_tokens_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch, tiny_folder: Path
) -> None:
    engine = engine_of(str(tiny_folder))
    texts = ["a dog", "ein Bär, grün", "red"]
    expected = engine.encode(texts, lambda *_: None)
    tokenized = engine.tokenize(texts)
    assert list(tokenized) == texts
    assert np.array_equal(engine.token_counts(tokenized), engine.token_counts(texts))
    reads: list[list[str]] = []
    encode = engine.tokens._encode
    monkeypatch.setattr(
        engine.tokens, "_encode", lambda some: (reads.append(list(some)), encode(some))[1]
    )
    # In between one that has none: it alone is read.
    mixed = [tokenized[0], "a cat", tokenized[2]]
    vectors = engine.encode(mixed, lambda *_: None)
    assert reads == [["a cat"]]
    assert np.array_equal(bits(vectors[[0, 2]]), bits(expected[[0, 2]]))


def test_tokens_of_another_tokenizer_or_of_a_changed_text_are_not_taken(tiny_folder: Path) -> None:
    """The control: what is carried along counts only for the very text and tokenizer."""
    engine, other = (OnnxEngine(lambda: engine_of(str(tiny_folder))._folder) for _ in range(2))
    (text,) = engine.tokenize(["a dog"])
    text.tokens.ids[:] = 0  # type: ignore[attr-defined]
    honest = bits(engine.encode(["a dog"], lambda *_: None))
    assert not np.array_equal(bits(engine.encode([text], lambda *_: None)), honest)
    assert np.array_equal(bits(other.encode([text], lambda *_: None)), honest)
    assert np.array_equal(bits(engine.encode([text + ""], lambda *_: None)), honest)
