"""The torch modules that training and attacks share.

Only what is being trained lives here; what has been learnt leaves as a `Map` (see `maps`), which
needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from capelet.errors import CapeletError

# What a size may be at most; beyond it a number is a slip, and would take all memory there is.
_MOST = {"layers": 128}
_MOST_OF_OTHERS = 10_000_000


def check_sizes(**sizes: int) -> None:
    """Refuse sizes of which no network can be built."""
    for name, value in sizes.items():
        most = _MOST.get(name, _MOST_OF_OTHERS)
        if not 1 <= value <= most:
            raise CapeletError(f"{name} is {value}; it must be at least 1 and at most {most:,}")


def dense(widths: Sequence[int], dropout: float = 0.0) -> nn.Sequential:
    """Linear layers with ReLU (and dropout) between them; the last one is bare."""
    layers: list[nn.Module] = []
    for place, (inside, outside) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(inside, outside))
        if place < len(widths) - 2:
            layers.append(nn.ReLU())
            layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """x ↦ Ax + f(x), which begins as the identity; f begins as 0."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.skip = nn.Linear(width, width)
        self.correction = dense([width, hidden, width])
        # A map that keeps neighbours must begin where all of them are kept.
        last = self.correction[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            self.skip.weight.copy_(torch.eye(width))
            for parameter in (self.skip.bias, last.weight, last.bias):
                parameter.zero_()

    def forward(self, x: Tensor) -> Tensor:
        image: Tensor = self.skip(x) + self.correction(x)
        return image


class Block(nn.Module):
    """Attention, then two dense layers, each on a normalised copy that is added.

    Each position sees those before it, or what a mask `mask` allows.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.before_dense = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        rows, positions, width = states.shape
        split = self.attend(self.before_attention(states))
        query, key, value = split.view(rows, positions, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        # Causal without a mask: a language model may not see the word that it predicts.
        context = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )
        states = states + self.join(context.transpose(1, 2).reshape(rows, positions, width))
        change: Tensor = self.narrow(functional.gelu(self.widen(self.before_dense(states))))
        return states + change


class Front(nn.Module):
    """What makes vectors of the numbers of rows, and is trained along, `pace` times as fast."""

    pace = 1.0


class _GradientReversal(torch.autograd.Function):
    """The identity forwards; backwards the gradient times −λ (Ganin and Lempitsky 2015)."""

    @staticmethod
    def forward(context: Any, x: Tensor, strength: float) -> Tensor:
        context.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -context.strength * gradients[0], None


def reversed_gradient(x: Tensor, strength: float) -> Tensor:
    """x, through which a gradient passes reversed and λ times as strong."""
    same: Tensor = _GradientReversal.apply(x, strength)  # type: ignore[no-untyped-call]
    return same
