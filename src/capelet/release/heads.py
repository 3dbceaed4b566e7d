"""The head of a private encoder: what tells the task's class from a released vector.

A defence trains its map together with a classifier of the task. In DPNR and CAPE that classifier is
the server's half: it sees nothing but released vectors, so whatever it says keeps their guarantee
(post-processing). It was learnt from the same texts as the map, in the same training, and promises
them what the map does; it is saved beside the map as a file of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.encoders.model_folder import ModelFolder
from capelet.errors import CapeletError, FolderError
from capelet.interfaces import Vectors
from capelet.privacy.origins import Origin
from capelet.release.maps import Layer, Map

WEIGHTS, CLASSES = "head.safetensors", "head.json"


@dataclass(frozen=True, eq=False)
class Head:
    """Released vectors in, the chance of each class of the task out.

    >>> map = Map((Layer(np.eye(2, dtype=np.float32), np.zeros(2, "f4"), "softmax"),))
    >>> Head("topic", ("news", "sport"), map).predict(np.array([[0.0, 3.0]]))
    ['sport']
    """

    task: str
    classes: tuple[str, ...]
    map: Map

    def __post_init__(self) -> None:
        if len(self.classes) != self.map.dimension:
            raise CapeletError(
                f"a head of {len(self.classes)} classes has {self.map.dimension} outputs"
            )
        object.__setattr__(self, "map", self.map.with_file(WEIGHTS))

    @classmethod
    def of(cls, task: str, classes: tuple[str, ...], layers: tuple[Layer, ...]) -> Head:
        """The head of these layers, the last of which gives a score for each class."""
        *first, last = layers
        return cls(task, classes, Map((*first, replace(last, activation="softmax"))))

    def __call__(self, vectors: Any) -> Vectors:
        """The chance of each class, (n, classes), by released vectors."""
        return self.map(vectors)

    def predict(self, vectors: Any) -> list[str]:
        """The likeliest class of each released vector."""
        best: npt.NDArray[np.intp] = self(vectors).argmax(axis=1)
        return [self.classes[code] for code in best]

    def with_origin(self, origin: Origin) -> Head:
        """The head of the training that made the map of this origin."""
        return replace(self, map=replace(self.map, origin=origin))

    # ---- on disk -------------------------------------------------------------------------------

    def files(self) -> dict[str, bytes | str]:
        """Its files in the folder of a private encoder."""
        about = {"task": self.task, "classes": list(self.classes)}
        return {
            WEIGHTS: self.map.content,
            CLASSES: json.dumps(about, indent=1, ensure_ascii=False) + "\n",
        }

    @classmethod
    def read(cls, folder: ModelFolder) -> Head | None:
        """The head of a folder, through its manifest; None where its training left none."""
        if WEIGHTS not in folder.files:
            return None
        weights = Map.parse(folder.read(WEIGHTS), folder.path / WEIGHTS)
        about = folder.read_json(CLASSES)
        task, classes = about.get("task"), about.get("classes")
        if not isinstance(task, str) or not isinstance(classes, list):
            raise FolderError(f"{CLASSES!r} in {str(folder.path)!r} names no task and no classes")
        return cls(task, tuple(str(item) for item in classes), weights)
