"""The first layers of a transformer as an encoder of their own: `minilm:layers=3`.

A family of sizes with one vocabulary, one width and one training, for questions such as "does a
larger encoder give more away?" (YAWYW, table 8). Pooling and normalisation are those of the whole
model, which was trained to be read at its last layer: a cut one is a smaller encoder, and a worse
one than a model of that size would be.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from capelet.encoders.folders import content_hash, copy_model, make_whole, transformer_folder
from capelet.encoders.transformer import TransformerEncoder
from capelet.errors import EncoderError
from capelet.files import cache_folder, private_folder

_NAME = re.compile(r"(?P<name>.+):layers=(?P<count>\d{1,3})")
_LAYER = re.compile(r"encoder\.layer\.(\d+)\.")
_WEIGHTS, _CONFIG = "model.safetensors", "config.json"


def parse_layers(name: str) -> tuple[str, int] | None:
    """The encoder's name and how many of its layers are meant; None of a whole encoder.

    >>> parse_layers("minilm:layers=3"), parse_layers("minilm")
    (('minilm', 3), None)
    """
    match = _NAME.fullmatch(name)
    return None if match is None else (match["name"], int(match["count"]))


class CutTransformer(TransformerEncoder):
    """A transformer that ends after its first layers; its folder is made once, in the cache."""

    def place(self) -> Path:
        whole = parse_layers(self.name)
        assert whole is not None
        name, count = whole
        return cut_folder(transformer_folder(name), count)


def cut_folder(folder: Path, count: int) -> Path:
    """The model folder without the layers after the first `count`."""
    ready = cache_folder() / "models" / f"{content_hash(folder)[:32]}-layers-{count}"
    if ready.is_dir():
        return ready
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int) or not (folder / _WEIGHTS).is_file():
        raise EncoderError(
            "layers are taken from a model folder with a number of layers and one file of weights; "
            "leave ':layers=' out"
        )
    if not 1 <= count <= layers:
        raise EncoderError(f"layers={count} is asked for, and the encoder has {layers}")
    private_folder(cache_folder())
    cut = {**config, "num_hidden_layers": count}
    make_whole(ready, "layers", lambda place: _write_cut(folder, place, count, cut))
    return ready


def _write_cut(folder: Path, place: Path, count: int, config: dict[str, object]) -> None:
    from safetensors.torch import load_file, save_file

    copy_model(folder, place, lambda path: path in (folder / _WEIGHTS, folder / _CONFIG))
    weights = load_file(folder / _WEIGHTS)
    numbers = {name: _LAYER.search(name) for name in weights}
    first = {
        name: tensor
        for name, tensor in weights.items()
        if (match := numbers[name]) is None or int(match[1]) < count
    }
    if len(first) == len(weights) and not any(numbers.values()):
        raise EncoderError("the encoder has no numbered layers in its weights; take another")
    save_file(first, place / _WEIGHTS, metadata={"format": "pt"})
    (place / _CONFIG).write_text(json.dumps(config, sort_keys=True, indent=1), encoding="utf-8")
