"""Two small language models with tied weights: a recurrent one and a Transformer.

Both give a hidden state per position; the next word's scores are its products with the word
vectors, so the table of words serves as first and as last layer. The two-layer LSTM is the network
of Mireshghallah et al. (2021); the Transformer is of the GPT kind (pre-norm, causal).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from capelet.errors import CapeletError, check_known
from capelet.language.vocabulary import PAD, SPECIAL, START, Tokens
from capelet.training.device import choose, seeded_fork
from capelet.training.ghost import (
    Direct,
    Trace,
    Tracer,
    is_plain_lstm,
    layer_weights,
    trace_layers,
    trace_lstm,
)
from capelet.training.networks import Block, check_sizes

Floats = npt.NDArray[np.float64]


class Lstm(nn.Module):
    """Two stacked LSTM layers over word vectors of the same width; output tied to the input."""

    kind = "lstm"

    def __init__(self, words: int, width: int = 256, layers: int = 2, length: int = 20) -> None:
        super().__init__()
        self.sizes = {"words": words, "width": width, "layers": layers, "length": length}
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.bias = nn.Parameter(torch.zeros(words))
        # The table is the last layer too: with entries of 1/√width the scores are of size 1.
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(width))

    def hidden(self, tokens: Tensor) -> Tensor:
        """`(rows, positions, width)`: the state after each word."""
        return self.lstm(self.embedding(tokens))[0]

    def scores(self, hidden: Tensor) -> Tensor:
        """The unnormalised log-probabilities of the next word."""
        return functional.linear(hidden, self.embedding.weight, self.bias)


class Transformer(nn.Module):
    """A small GPT: learnt positions, blocks of attention, output tied to the input."""

    kind = "transformer"

    def __init__(self, words: int, width: int = 256, layers: int = 2, length: int = 20) -> None:
        super().__init__()
        self.sizes = {"words": words, "width": width, "layers": layers, "length": length}
        heads = max(1, width // 64)
        if width % heads:
            raise CapeletError(f"the width {width} of a Transformer must divide by {heads} heads")
        self.embedding = nn.Embedding(words, width)
        # The words, and a start and an end around them.
        self.positions = nn.Parameter(torch.zeros(length + 2, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(words))
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(width))
        nn.init.normal_(self.positions, std=0.02)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens) + self.positions[: tokens.shape[1]]

    def above(self, states: Tensor) -> Tensor:
        for block in self.blocks:
            states = block(states)
        return self.last(states)

    def hidden(self, tokens: Tensor) -> Tensor:
        """`(rows, positions, width)`: the state after each word."""
        return self.above(self.embed(tokens))

    def scores(self, hidden: Tensor) -> Tensor:
        """The unnormalised log-probabilities of the next word."""
        return functional.linear(hidden, self.embedding.weight, self.bias)


Network = Lstm | Transformer
NETWORKS: dict[str, Callable[..., Network]] = {"lstm": Lstm, "transformer": Transformer}


def build(kind: str, words: int, width: int, layers: int, length: int, seed: int = 0) -> Network:
    """A new network whose first weights depend on the seed only."""
    check_known("network", kind, NETWORKS)
    check_sizes(width=width, layers=layers, length=length)
    with seeded_fork(seed):
        return NETWORKS[kind](words=words, width=width, layers=layers, length=length)


def tracer_of(network: nn.Module) -> Tracer | None:
    """How DP-SGD sees every weight of the network; None where one would be missed.

    A weight out of sight would never learn and, worse, would not be counted in the norm.
    """
    if type(network) is Lstm and is_plain_lstm(network.lstm):
        return partial(_trace_lstm, network)
    if type(network) is Transformer:
        own = (network.embedding.weight, network.positions, network.bias)
        traced_weights = layer_weights(network) | {id(weight) for weight in own}
        if all(id(weight) in traced_weights for weight in network.parameters()):
            return partial(_trace_transformer, network)
    return None


def _trace_lstm(network: Lstm, inputs: Tensor) -> Trace:
    words = network.embedding(inputs).requires_grad_()
    words.retain_grad()
    hidden, places = trace_lstm(network.lstm, words)
    return Trace(words, hidden, places)


def _trace_transformer(network: Transformer, inputs: Tensor) -> Trace:
    def forward() -> tuple[Tensor, Tensor]:
        words = network.embed(inputs).requires_grad_()
        words.retain_grad()
        return words, network.above(words)

    words, hidden, places = trace_layers(network, forward)
    # A position is added to the word's vector, so both have the same gradient.
    return Trace(words, hidden, places, [partial(Direct, network.positions)])


def losses(network: Network, tokens: Tensor) -> Tensor:
    """`(rows, positions)`: −ln p of each word after the first; 0 where there is only padding."""
    scores = network.scores(network.hidden(tokens[:, :-1]))
    return functional.cross_entropy(
        scores.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=PAD, reduction="none"
    ).view(len(tokens), -1)


class Scorer:
    """A trained model as an attacker sees it: losses of word sequences, and greedy completions.

    `word_losses` are nats of each word after the first; `sequence_losses` their sums.
    """

    def __init__(self, network: Network, device: str = "auto", rows: int = 0) -> None:
        self.device = choose(device)
        self.network = network.to(self.device).eval()
        self.rows = rows or (1024 if self.device.type == "cuda" else 256)

    @torch.no_grad()
    def word_losses(self, tokens: Tokens) -> Floats:
        parts = [
            # In double: exposure ranks sequences by small differences between sums.
            losses(self.network, self._tensor(tokens[start : start + self.rows])).double().cpu()
            for start in range(0, len(tokens), self.rows)
        ]
        width = tokens.shape[1] - 1
        return torch.cat(parts).numpy() if parts else np.zeros((0, width))

    def sequence_losses(self, tokens: Tokens) -> Floats:
        return np.asarray(self.word_losses(tokens).sum(axis=1))

    def perplexity(self, tokens: Tokens) -> float:
        """e to the mean loss per word, ends and unknown words included."""
        count = int((tokens[:, 1:] != PAD).sum())
        with np.errstate(over="ignore"):  # of a training that diverged: infinite
            return float(np.exp(self.word_losses(tokens).sum() / max(count, 1)))

    @torch.no_grad()
    def complete(self, first: Tokens, steps: int) -> Tokens:
        """The likeliest next word, `steps` times, after each row; never start or padding."""
        rows = self._tensor(first)
        for _ in range(steps):
            scores = self.network.scores(self.network.hidden(rows)[:, -1])
            scores[:, [PAD, START]] = -torch.inf  # signs that no text contains
            rows = torch.cat([rows, scores.argmax(dim=1, keepdim=True)], dim=1)
        return rows[:, first.shape[1] :].cpu().numpy()

    def _tensor(self, tokens: Tokens) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(tokens)).to(self.device)


def state_of(network: nn.Module) -> dict[str, Any]:
    """The weights on the CPU, copied, so that later steps do not change them."""
    return {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}


__all__ = ["NETWORKS", "SPECIAL", "Lstm", "Network", "Scorer", "Transformer", "build", "losses"]
