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

from capelet.attacks.inversion.words import Ids

if TYPE_CHECKING:
    from torch import Tensor

PAD, REAL, MADE, END = range(4)  # REAL opens a text of a person, MADE one put together by us
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
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        inner.train_from_iterator(texts, trainer)
        lengths = [len(one.ids) for one in inner.encode_batch(list(texts[:5000]))]
        usual = int(np.quantile(lengths, 0.995)) + 3
        return cls(inner, min(usual, longest))

    def __len__(self) -> int:
        return int(self.inner.get_vocab_size())

    def rows(self, texts: Sequence[str]) -> Ids:
        """`(texts, longest)`; what is longer loses its end."""
        table = np.full((len(texts), self.longest), PAD, dtype=np.int64)
        for row, one in enumerate(self.inner.encode_batch(list(texts))):
            ids = [*one.ids[: self.longest - 1], END]
            table[row, : len(ids)] = ids
        return table

    def texts(self, rows: Ids) -> list[str]:
        """The sentences of these rows, each up to its END."""
        kept = []
        for row in rows.tolist():
            stop = row.index(END) if END in row else len(row)
            kept.append([piece for piece in row[:stop] if piece > END])
        return [" ".join(text.split()) for text in self.inner.decode_batch(kept)]


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
        seen = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=length > 1,  # a single new position sees all that the cache holds
        )
        state = state + self.drop(self.out(seen.transpose(1, 2).reshape(rows, length, width)))
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
        self.seen = nn.ModuleList(_eye(dimension, width, prefix) for _ in range(3))
        self.piece = nn.Embedding(pieces, width)
        self.place = nn.Parameter(torch.randn(3 * prefix, width) * 0.02)
        self.draft = nn.Parameter(torch.randn(longest, width) * 0.02)
        self.said = nn.Parameter(torch.randn(longest + 1, width) * 0.02)
        heads = max(width // 64, 1)
        self.blocks = nn.ModuleList(_Block(width, heads, dropout) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)
        nn.init.normal_(self.piece.weight, std=0.02)

    def shown(
        self, target: Tensor, gap: Tensor | None = None, draft: Tensor | None = None
    ) -> Tensor:
        """The positions before the sentence: of the target, and of a hypothesis if there is one.

        `gap` is target minus the hypothesis' vector, `draft` the hypothesis' pieces.
        """
        rows = len(target)
        made = [target] if gap is None else [target, target - gap, gap]
        eyes = list(self.seen)[: len(made)]  # those of a hypothesis stay shut where there is none
        parts = [eye(one).view(rows, self.prefix, -1) for eye, one in zip(eyes, made, strict=True)]
        state = torch.cat(parts, dim=1)
        state = state + self.place[: state.shape[1]]
        if draft is not None:
            state = torch.cat([state, self.piece(draft) + self.draft[: draft.shape[1]]], dim=1)
        return self.drop(state)

    def forward(self, shown: Tensor, pieces: Tensor) -> Tensor:
        """Scores of the next piece at every position of `pieces` (opened by REAL or MADE)."""
        state = torch.cat([shown, self._embedded(pieces, 0)], dim=1)
        for block in self.blocks:
            state = block(state, None, 0)
        return self._scores(state[:, shown.shape[1] :])

    def logs(self, shown: Tensor, rows: Tensor) -> Tensor:
        """The mean log-probability of a piece of each row, taken as the text of a person."""
        opened = functional.pad(rows[:, :-1], (1, 0), value=REAL)
        each = functional.log_softmax(self(shown, opened).float(), dim=2)
        chosen = each.gather(2, rows[:, :, None]).squeeze(2)
        there = rows != PAD
        return (chosen * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)

    @torch.no_grad()
    def written(self, shown: Tensor, heat: Tensor) -> Tensor:
        """One sentence for each row, drawn at a temperature of its own (0: the likeliest pieces).

        Gumbel noise times the temperature makes the largest score a draw from the softmax.
        """
        rows, start, width = shown.shape
        heads = max(width // 64, 1)
        size = (rows, heads, start + self.longest + 1, width // heads)
        kind = torch.bfloat16 if torch.is_autocast_enabled("cuda") else torch.float32
        caches = [
            (
                torch.zeros(size, device=shown.device, dtype=kind),
                torch.zeros(size, device=shown.device, dtype=kind),
            )
            for _ in self.blocks
        ]
        pieces = torch.full((rows, self.longest), PAD, device=shown.device)
        opener = torch.full((rows, 1), REAL, device=shown.device)
        state = torch.cat([shown, self._embedded(opener, 0)], dim=1)
        done = torch.zeros(rows, dtype=torch.bool, device=shown.device)
        at = 0
        for step in range(self.longest):
            moved = state
            for block, cache in zip(self.blocks, caches, strict=True):
                moved = block(moved, cache, at)
            at += state.shape[1]
            scores = self._scores(moved[:, -1]).float()
            scores[:, PAD] = scores[:, REAL] = scores[:, MADE] = -1e4
            noise = -torch.log(-torch.log(torch.rand_like(scores).clamp(1e-9, 1 - 1e-7)))
            chosen = (scores + heat[:, None] * noise).argmax(dim=1)
            pieces[:, step] = chosen.masked_fill(done, PAD)
            done |= chosen == END
            if step % 4 == 3 and bool(done.all()):
                break
            state = self._embedded(chosen[:, None], step + 1)
        return pieces

    def _embedded(self, pieces: Tensor, at: int) -> Tensor:
        return self.drop(self.piece(pieces) + self.said[at : at + pieces.shape[1]])

    def _scores(self, state: Tensor) -> Tensor:
        return functional.linear(self.last(state), self.piece.weight)


def _eye(dimension: int, width: int, prefix: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(dimension, 2 * width), nn.GELU(), nn.Linear(2 * width, prefix * width)
    )


def cropped(rows: Iterable[Tensor]) -> Tensor:
    """Rows of pieces without the columns that are PAD in all of them."""
    whole = torch.stack(list(rows)) if not isinstance(rows, torch.Tensor) else rows
    longest = int((whole != PAD).sum(dim=1).max())
    return whole[:, : max(longest, 1)]
