"""A map computes what its layers say, is comes back from its file, and takes no other file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from capelet.errors import CapeletError, DataError, OutputError
from capelet.release.maps import ACTIVATIONS, FORMAT, ROWS, Layer, Map, affine


def some_map(seed: int = 0, skip: bool = False) -> Map:
    random = np.random.default_rng(seed)

    def layer(inside: int, outside: int, activation: str) -> Layer:
        weight = random.normal(size=(outside, inside)).astype(np.float32)
        return Layer(weight, random.normal(size=outside).astype(np.float32), activation)

    layers = (layer(5, 7, "none"), layer(7, 6, "relu"), layer(6, 3, "softmax"))
    return Map(layers, layer(7, 3, "none") if skip else None)


def by_hand(made: Map, row: np.ndarray) -> np.ndarray:
    """The definition, one row at a time, in double precision."""
    first = passed = None
    for layer in made.layers:
        inside = row if passed is None else passed
        z = layer.weight.astype(float) @ inside + layer.bias
        if layer.activation == "relu":
            z = np.where(z > 0, z, 0)
        if layer.activation == "softmax":
            z = np.exp(z) / np.exp(z).sum()
        passed = z
        first = z if first is None else first
    if made.skip is not None:
        passed = passed + made.skip.weight.astype(float) @ first + made.skip.bias
    return passed


@pytest.mark.parametrize("skip", [False, True])
def test_a_map_is_its_layers_in_order(skip: bool) -> None:
    made = some_map(skip=skip)
    rows = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    wanted = np.stack([by_hand(made, row.astype(float)) for row in rows])
    np.testing.assert_allclose(made(rows), wanted, rtol=1e-5, atol=1e-6)
    assert (made.width, made.dimension) == (5, 3)
    assert made.guarantee is None and made(rows).dtype == np.float32


def test_blocks_of_rows_make_no_difference_and_no_rows_are_no_error() -> None:
    made = some_map()
    rows = np.random.default_rng(2).normal(size=(ROWS + 3, 5))
    np.testing.assert_allclose(made(rows)[-2:], made(rows[-2:]), rtol=1e-5, atol=1e-7)
    assert made(np.empty((0, 5))).shape == (0, 3)


def test_activations_are_what_their_names_say() -> None:
    x = np.array([[-1.0, 0.0, 1000.0]], dtype=np.float32)
    assert ACTIVATIONS["relu"](x).tolist() == [[0.0, 0.0, 1000.0]]
    assert ACTIVATIONS["softmax"](x).tolist() == [[0.0, 0.0, 1.0]]  # and no overflow
    np.testing.assert_allclose(ACTIVATIONS["tanh"](x), np.tanh(x))
    assert ACTIVATIONS["none"](x) is x


@pytest.mark.parametrize("skip", [False, True])
def test_a_map_comes_back_from_its_file_bit_by_bit(tmp_path: Path, skip: bool) -> None:
    made = some_map(skip=skip).with_file("other.safetensors")
    path = made.save(tmp_path)
    assert path.name == "other.safetensors" and made.describe()["file"] == path.name
    back = Map.load(path)
    assert back.content == made.content
    assert back.origin == made.origin and back.describe() == made.describe()
    rows = np.random.default_rng(3).normal(size=(4, 5))
    np.testing.assert_array_equal(back(rows), made(rows))
    assert back.digest == made.digest != some_map(seed=1, skip=skip).digest


def test_files_that_are_no_maps_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.safetensors"
    with pytest.raises(OutputError, match="cannot read the map"):
        Map.load(path)
    layer = {"0.weight": np.eye(2, dtype=np.float32), "0.bias": np.zeros(2, dtype=np.float32)}
    for content in (
        b"",
        b"no safetensors at all",
        save(layer),
        save(layer, {"capelet": "[]"}),
        save(layer, {"capelet": json.dumps({"format": FORMAT, "activations": {"1": "none"}})}),
        save(layer, {"capelet": json.dumps({"format": FORMAT, "activations": {"x": "none"}})}),
        save(layer, {"capelet": json.dumps({"format": FORMAT, "activations": {"0": "none"}})}),
    ):
        path.write_bytes(content)
        with pytest.raises(OutputError, match="is not a map"):
            Map.load(path)
    for number in (1, FORMAT + 1):
        other = {"format": number, "activations": {"0": "none"}}
        path.write_bytes(save(layer, {"capelet": json.dumps(other)}))
        with pytest.raises(OutputError, match=f"has format {number}, and this version reads"):
            Map.load(path)


def test_layers_that_do_not_fit_are_refused() -> None:
    wide, narrow = affine(np.eye(3), np.zeros(3)), affine(np.ones((2, 3)), np.zeros(2))
    assert Map((wide, narrow)).dimension == 2
    with pytest.raises(CapeletError, match="do not fit each other"):
        Map((narrow, wide))
    with pytest.raises(CapeletError, match="at least one layer"):
        Map(())
    with pytest.raises(CapeletError, match="skip of the map"):
        Map((wide, narrow), wide)
    with pytest.raises(CapeletError, match="no activation"):
        Layer(np.eye(2, dtype=np.float32), np.zeros(2, dtype=np.float32), "gelu")
    with pytest.raises(CapeletError, match="a layer needs"):
        affine(np.eye(2), np.zeros(3))
    with pytest.raises(CapeletError, match="training diverged"):
        affine([[np.nan]], [0.0])


def test_vectors_that_do_not_fit_are_refused() -> None:
    made = some_map()
    for bad in (np.zeros((2, 4)), np.zeros(5)):
        with pytest.raises(DataError, match="takes vectors of 5 coordinates"):
            made(bad)
    with pytest.raises(DataError, match="NaN, infinity, or"):
        made(np.full((1, 5), np.nan))
