"""A small causal Transformer that writes a sentence from a vector, or a better one from a worse.

What stands before the sentence is made from vectors alone: a few positions for the target. To
correct, the positions of the hypothesis' vector, of the gap between the two, and the hypothesis
itself follow. The encoder under attack is not looked into: the pieces of words are learnt from the
attacker's own texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from capelet.attacks.inversion.word_sets import Ids
from capelet.numerics import padded

if TYPE_CHECKING:
    from torch import Tensor

# REAL opens a text of a person, SYNTHETIC one that the attacker put together.
PAD, REAL, SYNTHETIC, END = range(4)
_SPECIAL = ["<|pad|>", "<|real|>", "<|made|>", "<|end|>"]


@dataclass(frozen=True, eq=False)
class Pieces:
    """Texts as rows of piece numbers, closed by END and filled with PAD; and back."""

    inner: Any
    longest: int

    @classmethod
    def of(cls, texts: Sequence[str], *, most: int, longest: int, lower: bool) -> Pieces:
        """Byte pairs learnt on the auxiliary texts; `longest` bounds a row, END included."""
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        inner: Any = Tokenizer(models.BPE())
        if lower:
            inner.normalizer = normalizers.Lowercase()
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=most,
            min_frequency=2,
            special_tokens=_SPECIAL,
            # All bytes are pieces, so that no text is unknown.
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        inner.train_from_iterator(texts, trainer)
        lengths = [len(one.ids) for one in inner.encode_batch(list(texts[:5000]))]
        # As long as nearly all texts need: every further position costs in each step.
        usual = int(np.quantile(lengths, 0.995)) + 3
        return cls(inner, min(usual, longest))

    def __len__(self) -> int:
        return int(self.inner.get_vocab_size())

    def rows(self, texts: Sequence[str]) -> Ids:
        """`(texts, longest)`; what is longer loses its end."""
        encodings = self.inner.encode_batch(list(texts))
        rows = [[*one.ids[: self.longest - 1], END] for one in encodings]
        return padded(rows, self.longest, PAD)

    def texts(self, rows: Ids) -> list[str]:
        """The sentences of these rows, each up to its END."""
        sentences = []
        for row in rows.tolist():
            stop = row.index(END) if END in row else len(row)
            sentences.append([piece for piece in row[:stop] if piece > END])
        return [" ".join(text.split()) for text in self.inner.decode_batch(sentences)]


class _Block(nn.Module):
    """One layer: attention to what came before, then a perceptron; both residual."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, state: Tensor, cache: tuple[Tensor, Tensor] | None, at: int) -> Tensor:
        rows, length, width = state.shape
        shape = (rows, length, self.heads, width // self.heads)
        parts = self.mix(self.before(state)).chunk(3, dim=2)
        query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
        if cache is not None:
            cache[0][:, :, at : at + length] = key
            cache[1][:, :, at : at + length] = value
            key, value = cache[0][:, :, : at + length], cache[1][:, :, : at + length]
        attention = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=length > 1,  # a single new position sees all that the cache holds
        )
        state = state + self.drop(self.out(attention.transpose(1, 2).reshape(rows, length, width)))
        return state + self.drop(self.think(self.after(state)))


class Decoder(nn.Module):
    """From standardised vectors (and a hypothesis) to the pieces of a sentence, one by one."""

    def __init__(
        self,
        dimension: int,
        pieces: int,
        longest: int,
        *,
        width: int,
        layers: int,
        prefix: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.longest, self.prefix, self.width = longest, prefix, width
        self.eyes = nn.ModuleList(_eye(dimension, width, prefix) for _ in range(3))
        self.piece = nn.Embedding(pieces, width)
        self.place = nn.Parameter(torch.randn(3 * prefix, width) * 0.02)
        self.draft = nn.Parameter(torch.randn(longest, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(longest + 1, width) * 0.02)
        heads = max(width // 64, 1)
        self.blocks = nn.ModuleList(_Block(width, heads, dropout) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)
        nn.init.normal_(self.piece.weight, std=0.02)

    def context(
        self, target: Tensor, gap: Tensor | None = None, draft: Tensor | None = None
    ) -> Tensor:
        """The positions before the sentence: of the target, and of a hypothesis if there is one.

        `gap` is target minus the hypothesis' vector, `draft` the hypothesis' pieces.
        """
        rows = len(target)
        inputs = [target] if gap is None else [target, target - gap, gap]
        eyes = list(self.eyes)[: len(inputs)]  # those of a hypothesis stay shut where there is none
        parts = [
            eye(one).view(rows, self.prefix, -1) for eye, one in zip(eyes, inputs, strict=True)
        ]
        state = torch.cat(parts, dim=1)
        state = state + self.place[: state.shape[1]]
        if draft is not None:
            state = torch.cat([state, self.piece(draft) + self.draft[: draft.shape[1]]], dim=1)
        return self.drop(state)

    def forward(self, context: Tensor, pieces: Tensor) -> Tensor:
        """Scores of the next piece at every position of `pieces` (opened by REAL or SYNTHETIC)."""
        state = torch.cat([context, self._embed(pieces, 0)], dim=1)
        for block in self.blocks:
            state = block(state, None, 0)
        return self._scores(state[:, context.shape[1] :])

    def logs(self, context: Tensor, rows: Tensor) -> Tensor:
        """The mean log-probability of a piece of each row, taken as the text of a person."""
        inputs = functional.pad(rows[:, :-1], (1, 0), value=REAL)
        each = functional.log_softmax(self(context, inputs).float(), dim=2)
        logs = each.gather(2, rows[:, :, None]).squeeze(2)
        there = rows != PAD
        return (logs * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)

    @torch.no_grad()
    def write(self, context: Tensor, heat: Tensor) -> Tensor:
        """One sentence for each row, drawn at a temperature of its own (0: the likeliest pieces).

        Gumbel noise times the temperature makes the largest score a draw from the softmax.
        """
        rows, start, width = context.shape
        heads = max(width // 64, 1)
        size = (rows, heads, start + self.longest + 1, width // heads)
        kind = torch.bfloat16 if torch.is_autocast_enabled("cuda") else torch.float32
        caches = [
            (
                torch.zeros(size, device=context.device, dtype=kind),
                torch.zeros(size, device=context.device, dtype=kind),
            )
            for _ in self.blocks
        ]
        pieces = torch.full((rows, self.longest), PAD, device=context.device)
        opener = torch.full((rows, 1), REAL, device=context.device)
        state = torch.cat([context, self._embed(opener, 0)], dim=1)
        finish = torch.zeros(rows, dtype=torch.bool, device=context.device)
        at = 0
        for step in range(self.longest):
            hidden_state = state
            for block, cache in zip(self.blocks, caches, strict=True):
                hidden_state = block(hidden_state, cache, at)
            at += state.shape[1]
            scores = self._scores(hidden_state[:, -1]).float()
            # Only END and pieces can be written.
            scores[:, PAD] = scores[:, REAL] = scores[:, SYNTHETIC] = -1e4
            # Clamped away from 0 and 1, where the logarithms are infinite.
            noise = -torch.log(-torch.log(torch.rand_like(scores).clamp(1e-9, 1 - 1e-7)))
            next_piece = (scores + heat[:, None] * noise).argmax(dim=1)
            pieces[:, step] = next_piece.masked_fill(finish, PAD)
            finish |= next_piece == END
            # Each look waits for the device.
            if step % 4 == 3 and bool(finish.all()):
                break
            state = self._embed(next_piece[:, None], step + 1)
        return pieces

    def _embed(self, pieces: Tensor, at: int) -> Tensor:
        return self.drop(self.piece(pieces) + self.positions[at : at + pieces.shape[1]])

    def _scores(self, state: Tensor) -> Tensor:
        # Tied: the table of pieces is the first and the last layer, as small data need fewer
        # weights.
        return functional.linear(self.last(state), self.piece.weight)


def _eye(dimension: int, width: int, prefix: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(dimension, 2 * width), nn.GELU(), nn.Linear(2 * width, prefix * width)
    )


def crop(rows: Iterable[Tensor]) -> Tensor:
    """Rows of pieces without the columns that are PAD in all of them."""
    whole = torch.stack(list(rows)) if not isinstance(rows, torch.Tensor) else rows
    longest = int((whole != PAD).sum(dim=1).max())
    return whole[:, : max(longest, 1)]
