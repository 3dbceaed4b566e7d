"""Two small networks from rows of word numbers to one vector of length one each.

An LSTM and a Transformer, as in Song and Raghunathan (2020, section 6.1): the states of the real
words are averaged, mapped to the released width and normalised. Padding never counts; that it does
not move a last bit either is seen to where texts are encoded (`encoders.batches`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from capelet.encoders.dual import PAD
from capelet.errors import CapeletError, check_known
from capelet.training.networks import Block, check_sizes


class LstmSentence(nn.Module):
    """An LSTM that reads from left to right; its states are averaged."""

    kind = "lstm"

    def __init__(self, words: int, width: int, layers: int, dimension: int) -> None:
        super().__init__()
        self.sizes = {"words": words, "width": width, "layers": layers, "dimension": dimension}
        self.table = _table(words, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.out = nn.Linear(width, dimension)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(self.table(tokens), tokens != PAD)

    def read(self, vectors: Tensor, real: Tensor) -> Tensor:
        """The same from word vectors: whoever holds the weights can ask for mixtures of words."""
        return _pool(self.lstm(vectors)[0], real, self.out)


class TransformerSentence(nn.Module):
    """Pre-norm blocks of attention over words with sinusoidal positions."""

    kind = "transformer"

    def __init__(self, words: int, width: int, layers: int, dimension: int) -> None:
        super().__init__()
        # 64 coordinates for each head, as in Vaswani et al. (2017).
        heads = max(1, width // 64)
        if width % (2 * heads):
            raise CapeletError(
                f"the width {width} of a Transformer must divide by {2 * heads}; "
                "give a multiple of 64"
            )
        self.sizes = {"words": words, "width": width, "layers": layers, "dimension": dimension}
        self.table = _table(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.out = nn.Linear(width, dimension)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(self.table(tokens), tokens != PAD)

    def read(self, vectors: Tensor, real: Tensor) -> Tensor:
        """The same from word vectors: whoever holds the weights can ask for mixtures of words."""
        width = self.sizes["width"]
        # √width lifts the entries of a row to the size of the sines (Vaswani et al. 2017, section
        # 3.4).
        states = vectors * math.sqrt(width) + _places(real.shape[1], width, real)
        # A row without a word would have nothing to look at; it sees its padding and is zeroed.
        mask = real | ~real.any(dim=1, keepdim=True)
        for block in self.blocks:
            states = block(states, mask[:, None, None, :])
        return _pool(self.last(states), real, self.out)


SentenceNetwork = LstmSentence | TransformerSentence
NETWORKS: dict[str, Callable[..., SentenceNetwork]] = {
    "lstm": LstmSentence,
    "transformer": TransformerSentence,
}


def build(kind: str, words: int, width: int, layers: int, dimension: int) -> SentenceNetwork:
    """A new network; its first weights come from torch's generator."""
    check_known("network", kind, NETWORKS)
    sizes = {"words": words, "width": width, "layers": layers, "dimension": dimension}
    check_sizes(**sizes)
    return NETWORKS[kind](**sizes)


def _table(words: int, width: int) -> nn.Embedding:
    table = nn.Embedding(words, width, padding_idx=PAD)
    # Rows of length about 1, whatever the width.
    nn.init.normal_(table.weight, std=1 / math.sqrt(width))
    with torch.no_grad():
        table.weight[PAD].zero_()
    return table


def _places(count: int, width: int, like: Tensor) -> Tensor:
    """Sines and cosines of the position, so that any length can be read."""
    steps = torch.arange(count, device=like.device, dtype=torch.float32)[:, None]
    # sin and cos of p/10000^(2i/width), side by side (Vaswani et al. 2017, section 3.5).
    frequencies = torch.exp(
        torch.arange(0, width, 2, device=like.device, dtype=torch.float32)
        * (-math.log(10_000.0) / width)
    )
    return torch.stack(
        [torch.sin(steps * frequencies), torch.cos(steps * frequencies)], dim=2
    ).flatten(1)


def _pool(states: Tensor, real: Tensor, out: nn.Linear) -> Tensor:
    """The mean over real words, mapped and of length one; 0 where there is no word."""
    # In float32: on a GPU the states come in half precision, whose sums lose digits.
    weight = real.float()[:, :, None]
    count = weight.sum(dim=1)
    mean = (states.float() * weight).sum(dim=1) / count.clamp(min=1)
    return functional.normalize(out(mean).float(), dim=1) * (count > 0)
