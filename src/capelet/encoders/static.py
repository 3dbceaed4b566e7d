"""A static encoder is a table of token vectors: a text's vector is the mean of its tokens'.

There is no context and no length limit. The same table gives the token vectors of a text, which is
what a transport distance between texts is made of.
"""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from capelet.encoders.folders import in_row_order
from capelet.errors import EncoderError, MissingExtra
from capelet.files import sha256_of_file
from capelet.interfaces import Progress, Vectors, silent

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CHUNK = 1024  # texts between two words of progress
_TABLE = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class StaticEncoder:
    """WordLlama: 32,000 token vectors of 256 dimensions, distilled from a language model's table.

    The vectors are means and not normalised; a text of no tokens has the zero vector.
    """

    def __init__(self, name: str = "wordllama") -> None:
        self.name = name
        self.backend = "numpy"
        self._folder = package_folder("wordllama", "the encoder 'wordllama'")
        self._table: Vectors | None = None
        self._tokenizer: Tokenizer | None = None
        self._fingerprint: str | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., StaticEncoder], tuple[str]]:
        return type(self), (self.name,)  # another process reads its own table

    @property
    def dimension(self) -> int:
        return int(self.opened()[0].shape[1])

    @property
    def fingerprint(self) -> str:
        if self._fingerprint is None:
            hashes = [sha256_of_file(self._folder / part) for part in (_TABLE, _TOKENIZER)]
            self._fingerprint = hashlib.sha256(" ".join(["mean 1", *hashes]).encode()).hexdigest()
        return self._fingerprint

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _CHUNK):
            tokens, offsets = self.token_vectors(texts[start : start + _CHUNK])
            vectors[start : start + len(offsets) - 1] = means(tokens, offsets)
            progress("encoding", start + len(offsets) - 1, len(texts))
        return vectors

    def token_vectors(self, texts: Sequence[str]) -> tuple[Vectors, npt.NDArray[np.intp]]:
        """The vectors of all tokens, one text after another, and where each text begins.

        Text `i` owns `vectors[offsets[i]:offsets[i + 1]]`; `offsets` has one entry more than there
        are texts.
        """
        table, tokenizer = self.opened()
        sound = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        encodings = tokenizer.encode_batch_fast(sound, add_special_tokens=False)
        ids = [np.array(encoding.ids, dtype=np.intp) for encoding in encodings]
        offsets = np.concatenate([[0], np.cumsum([len(some) for some in ids])]).astype(np.intp)
        flat = np.concatenate(ids) if ids else np.zeros(0, dtype=np.intp)
        return table[np.minimum(flat, len(table) - 1)], offsets

    def token_table(self) -> tuple[list[str], Vectors]:
        """Every token, as the tokenizer spells it, and its vector."""
        table, tokenizer = self.opened()
        return in_row_order(tokenizer.get_vocab(), table)

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(texts), dtype=bool)

    def opened(self) -> tuple[Vectors, Tokenizer]:
        with self._lock:
            if self._table is None or self._tokenizer is None:
                from safetensors.numpy import load_file
                from tokenizers import Tokenizer

                table = load_file(self._folder / _TABLE)["embedding.weight"]
                tokenizer = Tokenizer.from_file(str(self._folder / _TOKENIZER))
                tokenizer.no_padding()
                tokenizer.no_truncation()
                self._table, self._tokenizer = table.astype(np.float32), tokenizer
            return self._table, self._tokenizer


def token_vectors(texts: Sequence[str]) -> tuple[Vectors, npt.NDArray[np.intp]]:
    """WordLlama's token vectors of each text, ragged: one array and the offsets into it."""
    return StaticEncoder().token_vectors(texts)


def means(tokens: Vectors, offsets: npt.NDArray[np.intp]) -> Vectors:
    """The mean of each ragged piece; an empty piece is the zero vector.

    >>> means(np.array([[1.0], [3.0], [5.0]]), np.array([0, 2, 2, 3])).ravel().tolist()
    [2.0, 0.0, 5.0]
    """
    counts = np.diff(offsets)
    answer = np.zeros((len(counts), tokens.shape[1]), dtype=np.float32)
    filled = np.flatnonzero(counts)
    if len(filled):
        sums = np.add.reduceat(tokens, offsets[:-1][filled], axis=0)
        answer[filled] = sums / counts[filled, None]
    return answer


def package_folder(package: str, feature: str) -> Path:
    """Where an installed package of weights lies, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        raise MissingExtra(feature, "words")
    folder = Path(spec.origin).parent
    if not folder.is_dir():
        raise EncoderError(f"the package {package!r} is installed as an archive; unpack it")
    return folder
