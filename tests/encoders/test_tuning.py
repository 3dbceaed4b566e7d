"""The last layers of a real MiniLM: they begin as the encoder, and what they learn is saved."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch

from capelet.encoders import load, with_cache
from capelet.encoders.own import TunedEncoder
from capelet.encoders.tuning import TopLayers, top_layers, tunable
from capelet.errors import EncoderError
from capelet.release import PrivateEncoder
from capelet.release.maps import Map, affine

TEXTS = [
    "A short one.",
    "We stayed three nights and would come back, for the view and for the breakfast.",
    "",
    "Late, and the box was open.",
] * 3


@pytest.fixture(scope="module")
def minilm() -> object:
    return load("minilm", "torch")


@pytest.fixture
def top(minilm: object) -> TopLayers:
    return top_layers(minilm, TEXTS, 2)  # type: ignore[arg-type]


def test_untrained_layers_are_the_encoder(top: TopLayers, minilm: object) -> None:
    wanted = minilm.encode(TEXTS)  # type: ignore[attr-defined]
    rows = torch.tensor([5, 0, 1, 3, 2])
    with torch.no_grad():
        np.testing.assert_allclose(top(rows).numpy(), wanted[rows.numpy()], atol=2e-3)
    assert set(top.layers) == {"4", "5"}
    same = top.encoder()
    np.testing.assert_allclose(same.encode(TEXTS), wanted, atol=1e-6)


def test_trained_layers_are_saved_and_come_back(top: TopLayers, tmp_path: Path) -> None:
    before = top.encoder().encode(TEXTS)
    with torch.no_grad():
        for name, held in top.layers.named_parameters():
            if name.endswith("output.dense.weight"):
                held.mul_(1.5)
        mine = top(torch.arange(len(TEXTS))).numpy()
    tuned = top.encoder()
    np.testing.assert_allclose(tuned.encode(TEXTS), mine, atol=2e-3)
    assert np.abs(mine - before).max() > 0.01
    whole = PrivateEncoder(tuned, Map((affine(np.eye(384), np.zeros(384)),)))
    folder = whole.save(tmp_path / "private")
    kept = tuned.encode(TEXTS)
    tuned.forget()  # the folder stands by itself
    back = PrivateEncoder(str(folder))
    assert isinstance(back.encoder, TunedEncoder)
    np.testing.assert_allclose(back.release(TEXTS).vectors, kept, atol=1e-6)


def test_the_copy_of_the_weights_goes_with_the_encoder(top: TopLayers) -> None:
    """Weights of private texts must not gather in the cache, whoever forgets to save them."""
    tuned = top.encoder()
    tuned.encode(TEXTS)
    folder = tuned.folder
    assert folder.is_dir()
    del tuned
    gc.collect()
    assert not folder.exists()


def test_training_mode_brings_no_dropout(top: TopLayers) -> None:
    rows = torch.arange(4)
    with torch.no_grad():
        assert torch.equal(top.train()(rows), top.train()(rows))


def test_encoders_without_layers_are_refused(minilm: object) -> None:
    for name in ("wordllama", "glove"):
        with pytest.raises(EncoderError, match=f"{name!r} has no layers to train"):
            tunable(load(name), 1)
    with pytest.raises(EncoderError, match="ready vectors have no layers"):
        tunable(None, 1)
    for count in (-1, 7):
        with pytest.raises(EncoderError, match="between 1 and 6"):
            tunable(minilm, count)  # type: ignore[arg-type]
    assert tunable(with_cache(minilm), 2) is minilm  # type: ignore[arg-type]
