"""Texts become tokens, and texts of one length the arrays that a transformer takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tokens:
    """What a tokenizer made of a text, in eight bytes a token; its own `Encoding` has a hundred."""

    ids: npt.NDArray[np.int32]
    type_ids: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)


class TokenizedText(str):
    """A text that carries its tokens, so that whoever encodes it need not read it again.

    To everybody else it is a plain text, and any change of it gives one: a step that rewrites words
    drops the tokens with them. Only the tokenizer that made the tokens takes them.
    """

    __slots__ = ("tokenizer", "tokens")
    tokenizer: FastTokens
    tokens: Tokens


def sound(text: str) -> str:
    """The text with any half of a surrogate pair, which no tokenizer takes, replaced by '?'."""
    if isinstance(text, TokenizedText) or text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


class FastTokens:
    """A `tokenizers` tokenizer with a length limit, and the arrays a transformer wants."""

    def __init__(self, tokenizer: Tokenizer, limit: int | None, side: str, prompt: str) -> None:
        self.limit = limit
        self.side = side
        self.prompt = prompt
        self._tokenizer = tokenizer
        self._special = tokenizer.num_special_tokens_to_add(False)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if limit is not None:
            tokenizer.enable_truncation(limit, direction=side)

    @classmethod
    def from_file(cls, path: Path, limit: int | None, side: str, prompt: str) -> FastTokens:
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_file(str(path)), limit, side, prompt)

    def save(self, path: Path) -> None:
        path.write_text(self._tokenizer.to_str(), encoding="utf-8")

    def __call__(self, texts: Sequence[str]) -> list[Encoding | Tokens]:
        """The tokens of each text, as it carries them or read now."""
        own = [self._tokens_of(text) for text in texts]
        unread = [text for text, tokens in zip(texts, own, strict=True) if tokens is None]
        # The tokenizer gives up the interpreter's lock even for nothing: another thread takes it.
        encodings = iter(self._encode(unread) if unread else [])
        return [next(encodings) if tokens is None else tokens for tokens in own]

    def tokenize(self, texts: Sequence[str]) -> list[TokenizedText]:
        """The texts, each with its tokens."""
        return [
            self._with_tokens(text, encoding)
            for text, encoding in zip(texts, self._encode(texts), strict=True)
        ]

    def _encode(self, texts: Sequence[str]) -> list[Encoding]:
        return self._tokenizer.encode_batch_fast([self.prompt + text for text in texts])

    def _with_tokens(self, text: str, encoding: Encoding) -> TokenizedText:
        ids, type_ids = (np.array(row, np.int32) for row in (encoding.ids, encoding.type_ids))
        tokenized = TokenizedText(text)
        tokenized.tokenizer, tokenized.tokens = self, Tokens(ids, type_ids)
        return tokenized

    def _tokens_of(self, text: str) -> Tokens | None:
        if isinstance(text, TokenizedText) and text.tokenizer is self:
            return text.tokens
        return None

    def counts(self, texts: Sequence[str]) -> Ints:
        """How many tokens of each text are read, special ones and the prompt included."""
        return np.array([len(encoding) for encoding in self(texts)], dtype=np.int64)

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which texts have more tokens than the limit; only those that could are tokenised.

        No tokenizer makes more tokens than there are bytes (plus one for a leading space).
        """
        answer = np.zeros(len(texts), dtype=bool)
        if self.limit is None:
            return answer
        room = self.limit - self._special - 1 - len(self.prompt.encode())
        rows = [i for i, text in enumerate(texts) if len(text.encode()) > room]
        for start in range(0, len(rows), 1024):  # overflowing pieces are kept only for one block
            block = rows[start : start + 1024]
            encodings = self._tokenizer.encode_batch([self.prompt + texts[i] for i in block])
            answer[block] = [bool(encoding.overflowing) for encoding in encodings]
        return answer


def token_arrays(encodings: Sequence[Encoding | Tokens], names: Sequence[str]) -> dict[str, Ints]:
    """The arrays of texts of one length, by input name."""
    arrays = {"input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int64)}
    arrays["attention_mask"] = np.ones_like(arrays["input_ids"])
    if "token_type_ids" in names:
        arrays["token_type_ids"] = np.array(
            [encoding.type_ids for encoding in encodings], dtype=np.int64
        )
    return arrays
