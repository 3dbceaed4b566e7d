"""A text auto-encoder as an encoder: a table of word vectors that was learnt on one corpus.

A text's vector is relu(mean of its words' rows + bias), from which its words could be told again:
that is all that it was trained for (`defences.autoencoder`). It replaces a language model where the
papers do so (Beigi et al. 2019), knows no order of words, and runs on numpy alone. On disk it is a
folder of safetensors and JSON. Its table lists words of the texts it was trained on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capelet.data.text import frequent_words, treebank_words
from capelet.encoders.static import means
from capelet.errors import DataError, EncoderError
from capelet.files import write_whole
from capelet.interfaces import Progress, Vectors, silent

FORMAT = 1
CARD = "autoencoder.json"
TABLE = "autoencoder.safetensors"
VOCABULARY = 10_000
"""How many words it knows, as in Beigi et al. (2019)."""
RARE = 5
"""A word that fewer texts use is not learnt, and does not stand in the folder."""
_CHUNK = 4096  # texts between two words of progress


def vocabulary(texts: Sequence[str], most: int = VOCABULARY, rare: int = RARE) -> tuple[str, ...]:
    """The words that most texts use, the commonest first.

    >>> vocabulary(["a cat", "a dog", "a dog"], rare=2)
    ('a', 'dog')
    """
    return frequent_words((set(treebank_words(text)) for text in texts), most, least=rare)


def word_rows(
    texts: Sequence[str], known: dict[str, int]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The places of all known words, one text after another, and where each text begins."""
    found = [[known[word] for word in treebank_words(text) if word in known] for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(some) for some in found])]).astype(np.intp)
    flat = np.fromiter(chain.from_iterable(found), dtype=np.intp, count=int(offsets[-1]))
    return flat, offsets


@dataclass(frozen=True, eq=False)
class AutoEncoder:
    """relu(mean of the words' rows + bias); a text of unknown words is relu(bias)."""

    name: str
    words: tuple[str, ...]
    table: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    backend: str = "numpy"

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
        return hashlib.sha256(b"\n".join([self._card, self._tensors])).hexdigest()

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _CHUNK):
            flat, offsets = word_rows(texts[start : start + _CHUNK], self._places)
            mean = means(self.table[flat], offsets)
            vectors[start : start + len(mean)] = np.maximum(mean + self.bias, 0)
            progress("encoding", start + len(mean), len(texts))
        return vectors

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(texts), dtype=bool)

    def save(self, folder: Path) -> None:
        """Write the folder; the card, which says that it is one, last."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / TABLE, self._tensors)
        write_whole(folder / CARD, self._card)

    @classmethod
    def load(cls, folder: Path, name: str) -> AutoEncoder:
        """Read what `save` wrote."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            card = json.loads((folder / CARD).read_text(encoding="utf-8"))
            found = int(card["format"])
            if found > FORMAT:
                raise EncoderError(
                    f"the auto-encoder {str(folder)!r} has format {found}, and this version reads "
                    f"up to {FORMAT}; install a newer capelet"
                )
            tensors = load_file(folder / TABLE)
            known = tuple(str(word) for word in card["words"])
            return cls(name, known, tensors["table"], tensors["bias"])
        except (SafetensorError, OSError, KeyError, TypeError, ValueError):
            raise EncoderError(
                f"{str(folder)!r} is not an auto-encoder: a folder with {CARD} and {TABLE}; "
                "restore it, or train again"
            ) from None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    @cached_property
    def _card(self) -> bytes:
        return json.dumps({"format": FORMAT, "words": self.words}, ensure_ascii=False).encode()

    @cached_property
    def _tensors(self) -> bytes:
        from safetensors.numpy import save

        return save(
            {
                "table": np.ascontiguousarray(self.table, dtype=np.float32),
                "bias": np.ascontiguousarray(self.bias, dtype=np.float32),
            }
        )


def checked_vocabulary(texts: Sequence[str]) -> tuple[str, ...]:
    """The vocabulary, or a sentence where the texts share too few words to learn anything."""
    known = vocabulary(texts)
    if len(known) < 2:
        raise DataError(
            f"an auto-encoder learns words that at least {RARE} texts use, and {len(texts)} texts "
            f"have {len(known)} of them; give more texts"
        )
    return known
