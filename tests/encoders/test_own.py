"""A tuned encoder travels inside its private encoder: covered by the manifest, and once without."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from capelet.encoders.model_folder import MANIFEST, TUNED_ENCODER, kind_of
from capelet.encoders.own import TunedEncoder
from capelet.errors import CapeletError
from capelet.privacy.guarantees import NONE
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


def test_an_old_folder_with_a_tuned_encoder_still_loads(
    private: PrivateEncoder, tmp_path: Path
) -> None:
    """As the first version wrote it: no manifest anywhere, the fingerprint in the recipe."""
    folder = private.save(tmp_path / "private")
    for path in (folder, folder / "encoder"):
        (path / MANIFEST).unlink()
    encoder, learnt = private.encoder, private.steps[1]
    assert isinstance(encoder, TunedEncoder) and isinstance(learnt, Map)
    (folder / learnt.file).write_bytes(learnt._save({"format": 1}))
    recipe = (folder / "recipe.toml").read_text()
    recipe = recipe.replace(f'id = "{encoder.origin.id}"', f'fingerprint = "{encoder.fingerprint}"')
    recipe = recipe.replace(f'id = "{learnt.origin.id}"', f'sha256 = "{learnt.digest}"')
    (folder / "recipe.toml").write_text(recipe)
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    (folder / "private.json").write_text(json.dumps({"format": 1, "recipe_sha256": digest}))
    back = PrivateEncoder(str(folder))
    assert isinstance(back.encoder, TunedEncoder) and back.guarantee.training == NONE
    assert back.encoder.fingerprint == encoder.fingerprint  # the same model, under a keyed name
    assert encoder.fingerprint not in back.to_recipe() and learnt.digest not in back.to_recipe()
    assert PrivateEncoder(str(folder)).recipe == back.recipe
    settings = folder / "encoder" / "tokenizer_config.json"
    settings.write_text(settings.read_text() + " ")
    with pytest.raises(CapeletError, match="fingerprint differs"):
        PrivateEncoder(str(folder))
