"""What the encoders over a table of token vectors share: read once, look rows up, take the mean.

There is no context and no length limit. The same table gives the token vectors of a text, which is
what a transport distance between texts is made of.
"""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from capelet.data.text import treebank_words
from capelet.encoders.batches import fill_in_chunks
from capelet.errors import EncoderError, MissingExtra
from capelet.files import sha256_of_file
from capelet.interfaces import Progress, Vectors, silent

Places = npt.NDArray[np.intp]
Index = TypeVar("Index")  # what finds the rows of a text: a tokenizer, a dictionary of words


class ReadsAll:
    """An encoder that reads texts of any length to their end."""

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(texts), dtype=bool)


class TableEncoder(ReadsAll, Generic[Index]):
    """A text's vector is the mean of its tokens' rows, not normalised; zero where it has none.

    The table lies in a folder, often that of an installed package of weights. A member says which
    files of it decide the vectors, how they are read, and how the tokens of a text find their rows.
    """

    files: tuple[str, ...]
    scheme: ClassVar[str]  # goes up when the same files would give other vectors
    chunk: ClassVar[int]  # texts between two calls of progress
    isolates_rows = True

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.backend = "numpy"
        self._folder = folder
        self._content: tuple[Vectors, Index] | None = None
        self._fingerprint: str | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return type(self), (self.name,)  # a lock cannot be pickled, and a table need not travel

    @property
    def dimension(self) -> int:
        return int(self.open_table()[0].shape[1])

    @property
    def fingerprint(self) -> str:
        if self._fingerprint is None:
            hashes = [sha256_of_file(self._folder / part) for part in self.files]
            self._fingerprint = hashlib.sha256(
                " ".join([self.scheme, *hashes]).encode()
            ).hexdigest()
        return self._fingerprint

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        def fill(some: Sequence[str], into: Vectors) -> None:
            into[:] = means(*self.token_vectors(some))

        # By chunks: the token vectors of all texts together would be many times their means.
        return fill_in_chunks(fill, texts, self.dimension, self.chunk, progress)

    def token_vectors(self, texts: Sequence[str]) -> tuple[Vectors, Places]:
        """The vectors of all known tokens, one text after another, and where each text begins.

        Text `i` owns `vectors[offsets[i]:offsets[i + 1]]`; `offsets` has one entry more than there
        are texts.
        """
        raise NotImplementedError

    def open_table(self) -> tuple[Vectors, Index]:
        """The table and what finds its rows, read at the first use."""
        # Two threads that come first at once must not read the table twice.
        with self._lock:
            if self._content is None:
                self._content = self._read()
            return self._content

    def _read(self) -> tuple[Vectors, Index]:
        raise NotImplementedError


def means(tokens: Vectors, offsets: Places) -> Vectors:
    """The mean of each ragged piece; an empty piece is the zero vector.

    >>> means(np.array([[1.0], [3.0], [5.0]]), np.array([0, 2, 2, 3])).ravel().tolist()
    [2.0, 0.0, 5.0]
    """
    counts = np.diff(offsets)
    answer = np.zeros((len(counts), tokens.shape[1]), dtype=np.float32)
    # reduceat gives an empty piece the row at its start, not 0: such pieces are left out.
    nonempty = np.flatnonzero(counts)
    if len(nonempty):
        sums = np.add.reduceat(tokens, offsets[:-1][nonempty], axis=0)
        answer[nonempty] = sums / counts[nonempty, None]
    return answer


def ragged(pieces: Sequence[Sequence[int]]) -> tuple[Places, Places]:
    """The numbers of all pieces, one after another, and where each begins.

    >>> ragged([[3, 4], [], [5]])[1].tolist()
    [0, 2, 2, 3]
    """
    offsets = np.concatenate([[0], np.cumsum([len(some) for some in pieces])]).astype(np.intp)
    return np.fromiter(chain.from_iterable(pieces), np.intp, int(offsets[-1])), offsets


def word_rows(texts: Sequence[str], places: Mapping[str, int]) -> tuple[Places, Places]:
    """The places of all known words of texts, one text after another, and where each begins."""
    # Split as tables' own words are ("n't", "'s"): another split would find fewer of them.
    return ragged(
        [[places[word] for word in treebank_words(text) if word in places] for text in texts]
    )


def package_folder(package: str, feature: str, extra: str = "words") -> Path:
    """Where an installed package of weights lies, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        raise MissingExtra(feature, extra)
    folder = Path(spec.origin).parent
    if not folder.is_dir():
        raise EncoderError(f"the package {package!r} is installed as an archive; unpack it")
    return folder
