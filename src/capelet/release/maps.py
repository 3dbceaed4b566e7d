"""Fitted maps: what a defence has learnt, frozen, applied with numpy alone.

A map is a list of affine layers, each with an activation, and possibly a skip past all but the
first. It saves as safetensors with its architecture in the file's own header, never as pickle.

A map adds no noise and promises nothing to the texts that pass. What it promises to the texts that
*trained* it stands in its `origin`: nothing, unless it was trained with differential privacy. A
recipe names it by the origin's random id, never by a hash: a recipe leaves with every release, and
whoever can guess a training text could train again and compare hashes. That the file is the right
one, and unchanged, is told by the manifest of the folder that holds it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from capelet import numerics
from capelet.errors import CapeletError, DataError, OutputError
from capelet.files import write_whole
from capelet.interfaces import Kind, Vectors
from capelet.privacy.guarantees import Guarantee
from capelet.privacy.origins import Origin

# The only layout of a map's file that is read. Raised with every change of it.
FORMAT = 2
ROWS = 4096  # rows that go through all layers together

Matrix = npt.NDArray[np.float32]


ACTIVATIONS: dict[str, Callable[[Matrix], Matrix]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "softmax": numerics.softmax,
    "tanh": np.tanh,
}


@dataclass(frozen=True, eq=False)
class Layer:
    """x ↦ activation(x·weightᵀ + bias), of each row by itself to the last bit (`numerics`)."""

    weight: Matrix
    bias: Matrix
    activation: str = "none"

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise CapeletError(f"a map has no activation {self.activation!r}")
        if self.weight.ndim != 2 or self.bias.shape != self.weight.shape[:1]:
            raise CapeletError(
                f"a layer needs a weight (out, in) and a bias (out); found {self.weight.shape} "
                f"and {self.bias.shape}"
            )
        if not (np.isfinite(self.weight).all() and np.isfinite(self.bias).all()):
            raise CapeletError("a layer of the map holds NaN or infinity: its training diverged")

    def __call__(self, rows: Matrix) -> Matrix:
        return ACTIVATIONS[self.activation](numerics.affine(rows, self.weight, self.bias))

    def linearise(self, rows: Matrix, slopes: Matrix) -> tuple[Matrix, Matrix]:
        """Images and their slopes by whatever `slopes` are the slopes of the rows by.

        Slopes are (n, out, in), or (out, in) while they are the same for all rows.
        """
        images = self(rows)
        inner = self.weight @ slopes
        if self.activation == "none":
            return images, inner
        if self.activation == "softmax":
            # ∂p = p∘∂a − p·(pᵀ∂a)
            mean = images[:, None, :] @ inner
            return images, images[:, :, None] * (inner - mean)
        gain = (images > 0) if self.activation == "relu" else 1 - images**2
        return images, gain.astype(np.float32)[:, :, None] * inner


class _Step:
    """Vectors in, vectors out."""

    consumes: Kind = "vectors"
    emits: Kind = "vectors"
    isolates_rows = True
    guarantee: ClassVar[None] = None


@dataclass(frozen=True, eq=False)
class Map(_Step):
    """Layers in order; what the first gives may also go through `skip` and be added at the end.

    With `unit` each row is brought to length one before the first: a scaling that nobody fitted.

    >>> double = Map((Layer(np.float32(2) * np.eye(3, dtype=np.float32), np.zeros(3, "f4")),))
    >>> double(np.ones((1, 3), dtype=np.float32))
    array([[2., 2., 2.]], dtype=float32)
    """

    layers: tuple[Layer, ...]
    skip: Layer | None = None
    file: str = "map.safetensors"
    origin: Origin = field(default_factory=Origin.draw)
    unit: bool = False

    def __post_init__(self) -> None:
        if not self.layers:
            raise CapeletError("a map needs at least one layer")
        widths = [layer.weight.shape for layer in self.layers]
        if any(one[0] != two[1] for one, two in pairwise(widths)):
            raise CapeletError(f"the layers of the map do not fit each other: {widths}")
        if self.skip is not None and self.skip.weight.shape != (widths[-1][0], widths[0][0]):
            raise CapeletError("the skip of the map does not lead from its first to its last layer")

    @property
    def training(self) -> Guarantee:
        """What the texts that trained it are promised."""
        return self.origin.training

    @property
    def width(self) -> int:
        """How many coordinates go in."""
        return int(self.layers[0].weight.shape[1])

    @property
    def dimension(self) -> int:
        """How many coordinates come out."""
        return int(self.layers[-1].weight.shape[0])

    def __call__(self, batch: Any) -> Vectors:
        rows = np.asarray(batch)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise DataError(
                f"the map {self.file!r} takes vectors of {self.width} coordinates; "
                f"found shape {rows.shape}"
            )
        # NaN would pass through every layer and leave as a release that nobody can use.
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float32, copy=False)
        if not np.isfinite(rows).all():
            raise DataError(
                f"the map {self.file!r} was given NaN, infinity, or numbers beyond float32"
            )
        out = np.empty((len(rows), self.dimension), dtype=np.float32)
        # In blocks, so that wide layers do not hold states of all rows at once.
        for start in range(0, len(rows), ROWS):
            out[start : start + ROWS] = self._apply(rows[start : start + ROWS])
        if not np.isfinite(out).all():
            raise DataError(
                f"vectors are so large that the map {self.file!r} overflows on them; bring them to "
                "the size of those that it learnt from"
            )
        return out

    def _apply(self, rows: Matrix) -> Matrix:
        if self.unit:
            rows = numerics.unit_rows(rows)
        # What overflows is refused by the caller.
        with np.errstate(over="ignore", invalid="ignore"):
            first = rows_out = self.layers[0](rows)
            for layer in self.layers[1:]:
                rows_out = layer(rows_out)
            return rows_out if self.skip is None else rows_out + self.skip(first)

    def linearise(self, rows: Matrix) -> tuple[Matrix, Matrix]:
        """The images of some rows, and ∂image/∂row of each, (n, out, in): whoever holds the map
        has its gradient too, and can walk back along it.
        """
        first, slope = self.layers[0].linearise(rows, np.eye(self.width, dtype=np.float32))
        images, slopes = first, slope
        for layer in self.layers[1:]:
            images, slopes = layer.linearise(images, slopes)
        if self.skip is not None:
            past, past_slopes = self.skip.linearise(first, slope)
            images, slopes = images + past, slopes + past_slopes
        return images, np.broadcast_to(slopes, (len(rows), self.dimension, self.width))

    # ---- on disk -------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """The step as it stands in a recipe: which file, and the random name of what is in it."""
        return {"step": "map", "file": self.file, "id": self.origin.id}

    @cached_property
    def digest(self) -> str:
        """A hash of what was learnt, whatever its name: to compare maps here, never to let out."""
        return hashlib.sha256(self._save({})).hexdigest()

    @cached_property
    def content(self) -> bytes:
        """The file of this map, byte for byte."""
        return self._save({"format": FORMAT, "origin": self.origin.to_json()})

    def _save(self, header: dict[str, Any]) -> bytes:
        from safetensors.numpy import save

        layer_by_name = {str(place): layer for place, layer in enumerate(self.layers)}
        if self.skip is not None:
            layer_by_name["skip"] = self.skip
        tensors: dict[str, Matrix] = {}
        for name, layer in layer_by_name.items():
            tensors[f"{name}.weight"] = np.ascontiguousarray(layer.weight, dtype=np.float32)
            tensors[f"{name}.bias"] = np.ascontiguousarray(layer.bias, dtype=np.float32)
        activations = {name: layer.activation for name, layer in layer_by_name.items()}
        # Sorted, so that equal maps are equal bytes.
        shape = {**header, "activations": activations, **({"unit": True} if self.unit else {})}
        return save(tensors, {"capelet": json.dumps(shape, sort_keys=True)})

    def save(self, folder: Path) -> Path:
        """Write the file into a folder, whole or not at all."""
        path = folder / self.file
        write_whole(path, self.content)
        return path

    def with_file(self, file: str) -> Map:
        """The same map under another file name."""
        return replace(self, file=file)

    @classmethod
    def load(cls, path: Path) -> Map:
        """Read what `save` wrote; a file of another format is refused."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise OutputError(
                f"cannot read the map {str(path)!r} ({error.strerror}); "
                "a private encoder needs its whole folder"
            ) from None
        return cls.parse(content, path)

    @classmethod
    def parse(cls, content: bytes, path: Path) -> Map:
        """The map from the bytes of its file, which are those that were hashed."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            tensors = load(content)
            # A safetensors file begins with the length of its JSON header; `load` drops the
            # metadata.
            length = int.from_bytes(content[:8], "little")
            shape = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["capelet"])
            _check_format(path, shape)
            layers = {
                name: Layer(tensors[f"{name}.weight"], tensors[f"{name}.bias"], kind)
                for name, kind in shape["activations"].items()
            }
            skip = layers.pop("skip", None)
            # By number: as texts, "10" would come before "2".
            in_order = tuple(layers[name] for name in sorted(layers, key=int))
            unit = bool(shape.get("unit", False))
            return cls(in_order, skip, path.name, Origin.from_json(shape["origin"]), unit)
        except (SafetensorError, AttributeError, KeyError, TypeError, ValueError):
            raise OutputError(
                f"{str(path)!r} is not a map: a safetensors file with its layers and their "
                "activations; restore the file, or train again"
            ) from None


def _check_format(path: Path, shape: dict[str, Any]) -> None:
    version = int(shape["format"])
    if version != FORMAT:
        raise OutputError(
            f"the map {str(path)!r} has format {version}, and this version reads {FORMAT}; use the "
            "version of capelet that wrote it, or train again"
        )


def affine(weight: npt.ArrayLike, bias: npt.ArrayLike) -> Layer:
    """A layer without activation, in float32."""
    return Layer(np.asarray(weight, dtype=np.float32), np.asarray(bias, dtype=np.float32))
