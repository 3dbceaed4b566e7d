"""A head tells classes from released vectors, comes with its folder, and belongs to its map."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import CapeletError, FolderError
from capelet.privacy.origins import Origin
from capelet.release import PrivateEncoder
from capelet.release.heads import CLASSES, WEIGHTS, Head
from capelet.release.maps import Layer, Map, affine

ROWS = np.array([[3.0, 0.0], [0.0, 3.0], [-1.0, 1.0]], dtype=np.float32)


def head(classes: tuple[str, ...] = ("news", "sport")) -> Head:
    return Head.of("topic", classes, (affine(np.eye(2), np.zeros(2)),))


def private_with(own: Head | None) -> PrivateEncoder:
    return PrivateEncoder(Map((affine(2 * np.eye(2), np.zeros(2)),)), head=own)


def test_chances_and_classes() -> None:
    chances = head()(ROWS)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-6)
    assert chances[0, 0] == pytest.approx(1 / (1 + np.exp(-3)), abs=1e-6)
    assert head().predict(ROWS) == ["news", "sport", "sport"]
    with pytest.raises(CapeletError, match="3 classes has 2 outputs"):
        head(("a", "b", "c"))


def test_a_folder_brings_its_head_and_one_without_a_head_has_none(tmp_path: Path) -> None:
    private_with(head()).save(tmp_path / "new")
    private_with(None).save(tmp_path / "bare")  # as of a method that trains no head
    for loaded in (PrivateEncoder.load(tmp_path / "new"), PrivateEncoder(str(tmp_path / "new"))):
        assert loaded.head is not None
        assert (loaded.head.task, loaded.head.classes) == ("topic", ("news", "sport"))
        np.testing.assert_array_equal(loaded.head(ROWS), head()(ROWS))
        changed = loaded.with_encoder(lambda encoder: encoder)
        assert changed.head is loaded.head
    assert PrivateEncoder.load(tmp_path / "bare").head is None
    manifest = json.loads((tmp_path / "new" / "manifest.json").read_text())
    assert {WEIGHTS, CLASSES} <= set(manifest["files"])
    # It is no step: what is released does not change.
    vectors = [
        PrivateEncoder.load(tmp_path / name).release(ROWS).vectors for name in ("new", "bare")
    ]
    np.testing.assert_array_equal(*vectors)


@pytest.mark.parametrize("name", [WEIGHTS, CLASSES])
def test_a_head_that_was_exchanged_is_refused(tmp_path: Path, name: str) -> None:
    private_with(head()).save(tmp_path / "one")
    other = Head.of("topic", ("sport", "news"), (affine(-np.eye(2), np.zeros(2)),))
    private_with(other).save(tmp_path / "two")
    (tmp_path / "one" / name).write_bytes((tmp_path / "two" / name).read_bytes())
    with pytest.raises(FolderError):
        PrivateEncoder.load(tmp_path / "one")
    assert PrivateEncoder.load(tmp_path / "two").head is not None


def test_layers_between_keep_their_activation_and_the_origin_is_the_maps() -> None:
    origin = Origin.draw()
    layers = (
        Layer(np.eye(2, dtype=np.float32), np.zeros(2, "f4"), "relu"),
        affine(np.eye(2), [0, 0]),
    )
    own = Head.of("topic", ("a", "b"), layers).with_origin(origin)
    assert [layer.activation for layer in own.map.layers] == ["relu", "softmax"]
    assert own.map.origin == origin and own.map.file == WEIGHTS
