"""What ONNX Runtime is asked, and that carried tokens are used; rows alone are in `test_rows`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capelet.encoders import load
from capelet.encoders.onnx import OnnxEngine
from capelet.encoders.tokens import token_arrays
from capelet.interfaces import Vectors

TEXT = "the dog was good and red"


def bits(vectors: Vectors) -> np.ndarray:
    return np.ascontiguousarray(vectors, dtype=np.float32).view(np.uint32)


def engine_of(name: str, backend: str = "onnx") -> OnnxEngine:
    encoder = load(name, backend)
    encoder.encode(["a"])
    engine = encoder._engine  # type: ignore[attr-defined]
    assert isinstance(engine, OnnxEngine)
    return engine


def test_padding_and_being_alone_do_move_bits() -> None:
    """Why batches are of one length and of two texts at least."""
    engine = engine_of("minilm")
    text = engine.tokens([TEXT])[0]

    def run(count: int, padding: int = 0) -> Vectors:
        arrays = token_arrays([text] * count, engine._card["inputs"])
        wide = {name: np.pad(array, ((0, 0), (0, padding))) for name, array in arrays.items()}
        return engine.session.run(None, wide)[0][:1]

    pair = run(2)
    assert any(not np.array_equal(bits(pair), bits(other)) for other in (run(1), run(2, 20)))
    assert np.allclose(pair, run(1), atol=1e-6) and np.allclose(pair, run(2, 20), atol=1e-6)


def test_int8_scales_over_a_batch_so_texts_travel_alone() -> None:
    engine = engine_of("minilm", "int8")
    assert engine.batch_size is None
    assert not engine.gathers_lengths
    probe, other = engine.tokens(["a good dog", "the bad cat"])
    assert len(probe) == len(other)
    # The control: together, a neighbour of the same length moves far more than the last bits.
    apart = np.abs(engine._run([probe])[0] - engine._run([probe, other])[0]).max()
    assert apart > 1e-5


def test_a_machine_whose_kernels_mix_texts_sends_them_alone(
    monkeypatch: pytest.MonkeyPatch, tiny_folder: Path
) -> None:
    engine = engine_of(str(tiny_folder))
    shapes: list[int] = []

    class Session:
        """One in which the size of a batch moves the last bits, or does not."""

        is_mixing = False

        def run(self, names: object, arrays: dict[str, np.ndarray]) -> list[Vectors]:
            shapes.append(len(arrays["input_ids"]))
            sums = arrays["input_ids"].sum(axis=1, keepdims=True).astype(np.float32)
            move = np.float32(1 + self.is_mixing * shapes[-1] * 1e-6)
            return [np.repeat(sums, engine.dimension, axis=1) * move]

    monkeypatch.setattr(engine, "_session", Session())
    for is_mixing in (False, True):
        monkeypatch.setattr(Session, "is_mixing", is_mixing)
        vars(engine).pop("batch_size", None)
        assert (engine.batch_size is None) is is_mixing
        assert engine.gathers_lengths is not is_mixing
    shapes.clear()
    engine.encode(["a dog", "a cat", "red"], lambda *_: None)
    assert shapes == [1, 1, 1]


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
