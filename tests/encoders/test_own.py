"""A tuned encoder travels inside its private encoder, and is refused without its manifest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from capelet.encoders.model_folder import MANIFEST, TUNED_ENCODER, kind_of
from capelet.encoders.own import TunedEncoder
from capelet.errors import CapeletError
from capelet.release import PrivateEncoder
from capelet.release.maps import Map, affine

TEXTS = ["the dog was good", "a very bad house"]


@pytest.fixture
def private(tiny_folder: Path) -> PrivateEncoder:
    return PrivateEncoder(
        TunedEncoder(tiny_folder, "torch"), Map((affine(np.eye(8, 32), np.zeros(8)),))
    )


def test_a_tuned_encoder_is_a_model_folder_of_its_own(
    private: PrivateEncoder, tmp_path: Path
) -> None:
    folder = private.save(tmp_path / "private")
    inner = folder / "encoder"
    assert kind_of(inner) == TUNED_ENCODER
    for path in (inner, *inner.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    back = PrivateEncoder(str(folder))
    assert isinstance(back.encoder, TunedEncoder) and back.recipe == private.recipe
    np.testing.assert_array_equal(back.release(TEXTS).vectors, private.release(TEXTS).vectors)
    onto_itself = back.save(folder)
    assert PrivateEncoder(str(onto_itself)).recipe == private.recipe


def test_changed_weights_are_refused(private: PrivateEncoder, tmp_path: Path) -> None:
    folder = private.save(tmp_path / "private")
    weights = folder / "encoder" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    with pytest.raises(CapeletError, match=r"'model.safetensors' .* was changed after"):
        PrivateEncoder(str(folder))


@pytest.mark.parametrize("outer", [True, False])
def test_a_tuned_encoder_without_a_manifest_is_refused(
    private: PrivateEncoder, tmp_path: Path, outer: bool
) -> None:
    folder = private.save(tmp_path / "private")
    (folder / "encoder" / MANIFEST).unlink()
    if outer:
        (folder / MANIFEST).unlink()
    sentence = "manifest .* is missing" if outer else "'encoder/manifest.json' is missing"
    with pytest.raises(CapeletError, match=sentence):
        PrivateEncoder(str(folder))


def test_a_tuned_encoder_that_does_not_say_what_trained_it_is_refused(
    private: PrivateEncoder, tmp_path: Path
) -> None:
    """Also by whoever may write both manifests: nobody could tell who trained it."""
    folder = private.save(tmp_path / "private")
    inner, outer = folder / "encoder" / MANIFEST, folder / MANIFEST
    manifest = json.loads(inner.read_text())
    del manifest["origin"]
    inner.write_text(json.dumps(manifest))
    listed = json.loads(outer.read_text())
    listed["files"]["encoder/manifest.json"] = hashlib.sha256(inner.read_bytes()).hexdigest()
    outer.write_text(json.dumps(listed))
    with pytest.raises(CapeletError, match=r"manifest .*encoder' is broken"):
        PrivateEncoder(str(folder))
