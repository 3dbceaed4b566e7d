"""A text auto-encoder as an encoder: a table of word vectors that was learnt on one corpus.

A text's vector is relu(mean of its words' rows + bias), from which its words can be predicted:
that is all that it was trained for (`defences.autoencoder`). It replaces a language model where the
papers do so (Beigi et al. 2019), knows no order of words, and runs on numpy alone. On disk it is a
model folder. Its table lists words of the texts it was trained on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from capelet.data.text import frequent_words, treebank_words
from capelet.encoders.batches import fill_in_chunks
from capelet.encoders.model_folder import AUTO_ENCODER, ModelFolder, open_folder, write_folder
from capelet.encoders.tables import ReadsAll, means, word_rows
from capelet.errors import DataError, EncoderError
from capelet.interfaces import Progress, Vectors, silent
from capelet.privacy.origins import Origin

WORDS, TABLE = "autoencoder.json", "autoencoder.safetensors"
# How many words it knows, as in Beigi et al. (2019).
VOCABULARY = 10_000
# A word that fewer texts use is not learnt, and does not stand in the folder.
RARE = 5
_CHUNK = 4096  # texts between two words of progress


def vocabulary(texts: Sequence[str], most: int = VOCABULARY, rare: int = RARE) -> tuple[str, ...]:
    """The words that most texts use, the commonest first.

    >>> vocabulary(["a cat", "a dog", "a dog"], rare=2)
    ('a', 'dog')
    """
    return frequent_words((set(treebank_words(text)) for text in texts), most, least=rare)


@dataclass(frozen=True, eq=False)
class AutoEncoder(ReadsAll):
    """relu(mean of the words' rows + bias); a text of unknown words is relu(bias)."""

    name: str
    words: tuple[str, ...]
    table: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    backend: str = "numpy"
    origin: Origin = field(default_factory=Origin.draw)
    isolates_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.table.shape != (len(self.words), len(self.bias)):
            raise EncoderError(
                f"the auto-encoder {self.name!r} has {len(self.words)} words, a table of shape "
                f"{self.table.shape} and {len(self.bias)} biases, which do not fit"
            )

    @property
    def dimension(self) -> int:
        return len(self.bias)

    @cached_property
    def fingerprint(self) -> str:
        # As it was computed when words and version stood in one file: recipes hold this hash.
        words = json.dumps({"format": 1, "words": self.words}, ensure_ascii=False).encode()
        return hashlib.sha256(b"\n".join([words, self._tensors])).hexdigest()

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        def fill(some: Sequence[str], into: Vectors) -> None:
            flat, offsets = word_rows(some, self._places)
            # The first half of the trained network; the half that gives the words back is not kept.
            np.maximum(means(self.table[flat], offsets) + self.bias, 0, out=into)

        return fill_in_chunks(fill, texts, self.dimension, _CHUNK, progress)

    def save(self, folder: Path) -> None:
        """Write the model folder."""
        words = json.dumps({"words": self.words}, ensure_ascii=False)
        write_folder(folder, AUTO_ENCODER, {TABLE: self._tensors, WORDS: words}, origin=self.origin)

    @classmethod
    def load(cls, folder: Path | ModelFolder, name: str) -> AutoEncoder:
        """Read what `save` wrote."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        source = folder if isinstance(folder, ModelFolder) else open_folder(folder, AUTO_ENCODER)
        try:
            tensors = load(source.read(TABLE))
            known_words = tuple(str(word) for word in source.read_json(WORDS)["words"])
            encoder = cls(name, known_words, tensors["table"], tensors["bias"])
        except (SafetensorError, KeyError, TypeError, ValueError):
            raise EncoderError(
                f"{str(source.path)!r} is not an auto-encoder: a folder with {WORDS} and {TABLE}; "
                "restore it, or train again"
            ) from None
        return replace(encoder, origin=source.read_origin())

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    @cached_property
    def _tensors(self) -> bytes:
        from safetensors.numpy import save

        # Contiguous float32, whatever came in: the fingerprint is a hash of these bytes.
        return save(
            {
                "table": np.ascontiguousarray(self.table, dtype=np.float32),
                "bias": np.ascontiguousarray(self.bias, dtype=np.float32),
            }
        )


def checked_vocabulary(texts: Sequence[str]) -> tuple[str, ...]:
    """The vocabulary, or a sentence where the texts share too few words to learn anything."""
    shared_words = vocabulary(texts)
    if len(shared_words) < 2:
        raise DataError(
            f"an auto-encoder learns words that at least {RARE} texts use, and {len(texts)} texts "
            f"have {len(shared_words)} of them; give more texts"
        )
    return shared_words
