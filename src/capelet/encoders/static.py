"""A static encoder is a table of token vectors: a text's vector is the mean of its tokens'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from capelet.encoders.folders import in_row_order
from capelet.encoders.tables import TableEncoder, package_folder, ragged
from capelet.encoders.tokens import sound
from capelet.interfaces import Vectors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TABLE = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class StaticEncoder(TableEncoder["Tokenizer"]):
    """WordLlama: 32,000 token vectors of 256 dimensions, distilled from a language model's table.

    The vectors are means and not normalised; a text of no tokens has the zero vector.
    """

    files, scheme, chunk = (_TABLE, _TOKENIZER), "mean 1", 1024

    def __init__(self, name: str = "wordllama") -> None:
        super().__init__(name, package_folder("wordllama", f"the encoder {name!r}"))

    def token_vectors(self, texts: Sequence[str]) -> tuple[Vectors, npt.NDArray[np.intp]]:
        table, tokenizer = self.open_table()
        sound_texts = [sound(text) for text in texts]
        encodings = tokenizer.encode_batch_fast(sound_texts, add_special_tokens=False)
        flat, offsets = ragged([encoding.ids for encoding in encodings])
        return table[np.minimum(flat, len(table) - 1)], offsets

    def token_table(self) -> tuple[list[str], Vectors]:
        """Every token, as the tokenizer spells it, and its vector."""
        table, tokenizer = self.open_table()
        return in_row_order(tokenizer.get_vocab(), table)

    def _read(self) -> tuple[Vectors, Tokenizer]:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        table = load_file(self._folder / _TABLE)["embedding.weight"]
        tokenizer = Tokenizer.from_file(str(self._folder / _TOKENIZER))
        # Whatever the file says: padding would enter the means, and no length is cut here.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return table.astype(np.float32), tokenizer


def token_vectors(texts: Sequence[str]) -> tuple[Vectors, npt.NDArray[np.intp]]:
    """WordLlama's token vectors of each text, ragged: one array and the offsets into it."""
    return StaticEncoder().token_vectors(texts)
