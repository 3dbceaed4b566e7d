"""DP-SGD: clipped gradient sums at the price of one backward pass, and the noise on them.

How norms come without gradients per sample is said in `ghost`. The networks here predict the next
word and use their word table twice (tied): as first layer at the words w_s and as last layer. The
table's norm then has a cross-term 2 Σ_ts g_t[w_s] (a_t·e_s), where e_s is the gradient of the word
vector at s. The gradients are those of one sample's mean loss per word; padding has loss zero.
What is clipped is a *unit*: one sample, or several of one author whose gradients add up first.

Callers hand in how their network is traced, which number is padding, and where system noise comes
from: nothing here knows a language model or a mechanism.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from capelet.training.ghost import Place, Site, Trace, Tracer, end_to_end

# Rows whose activations are in memory at once; a Poisson batch may be larger.
ROWS = {"cpu": 256, "cuda": 1024}


class TiedNetwork(Protocol):
    """A network of the next word whose table of words is its first and its last layer."""

    embedding: nn.Embedding
    bias: Any

    def scores(self, hidden: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Clipping:
    """How a network's gradients are clipped: at the norm `clip`, by `tracer` or by Opacus.

    `tracer` None says that the network has layers without a trace; `padding` is no word.
    """

    clip: float
    padding: int
    tracer: Tracer | None = None
    rows: int = 0


def clipped_sum(network: nn.Module, tokens: Tensor, clipping: Clipping) -> Tensor:
    """Put Σ_i g_i · min(1, clip/‖g_i‖) into every `.grad`; the norms ‖g_i‖ before clipping.

    `tokens` is `(units, words)`, or `(units, samples, words)` where a unit has several samples: its
    g_i is then their sum, and a row of padding alone adds nothing to it. No unit at all leaves
    zeros, which DP-SGD still adds noise to. A unit whose gradient is not finite counts as zero. A
    network without a trace goes to Opacus.
    """
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    if clipping.tracer is None:
        from capelet.training.opacus_gradients import clipped_sum_by_opacus

        with full_precision():
            return clipped_sum_by_opacus(
                network, tokens, clipping.clip, clipping.padding, clipping.rows
            )
    units = (clipping.rows or ROWS.get(tokens.device.type, 256)) // samples_of(tokens)
    parts = torch.split(tokens, max(1, units))
    with full_precision():
        norms = [_chunk(network, part, clipping) for part in parts if len(part)]
    return torch.cat(norms) if norms else torch.zeros(0, device=tokens.device)


def samples_of(tokens: Tensor) -> int:
    """How many samples each unit has; one where no dimension says so."""
    return tokens.shape[1] if tokens.dim() == 3 else 1


def _chunk(network: Any, tokens: Tensor, clipping: Clipping) -> Tensor:
    """Units whose activations fit into memory together: their norms, their sum added."""
    assert clipping.tracer is not None
    samples = samples_of(tokens)
    rows = tokens.flatten(0, -2)
    inputs, targets = rows[:, :-1], rows[:, 1:]
    with constant_weights(network):
        trace = clipping.tracer(inputs)
        last = _last_layer(network, trace.hidden, targets, clipping.padding)
    first = _gradient(trace)
    others: list[Place] = [make(first) for make in trace.after_words]
    if samples > 1:
        # Only now: losses and states are of each text by itself, and gradients alone add up.
        for place in [*trace.places, *others, last]:
            place.merge(samples)
        first, inputs = end_to_end(first, samples), end_to_end(inputs, samples)
    squares = sum((place.squares() for place in trace.places), _table_squares(first, last, inputs))
    for place in others:
        squares = squares + place.squares()
    norms = squares.clamp_min(0).sqrt()  # rounding can leave a norm of zero below it
    finite = norms.isfinite()
    if not finite.all():
        # The chunk again, without the units whose gradients overflow: nothing clips those.
        # Which they are depends on each unit alone, so the others' sum is as bounded as before.
        if finite.any():
            norms[finite] = _chunk(network, tokens[finite], clipping)
        return norms
    shares = clipping.clip / norms.clamp_min(clipping.clip)
    for place in [*trace.places, *others]:
        place.add(shares)
    _add_table(network, first, last, inputs, shares)
    return norms


def _gradient(trace: Trace) -> Tensor:
    assert trace.words.grad is not None
    return trace.words.grad


@contextmanager
def full_precision() -> Iterator[None]:
    """No shortened floats in products: a norm found too small lets a gradient be too long."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def constant_weights(network: nn.Module) -> Iterator[None]:
    """Weights without gradients: the pass then computes only what flows between layers."""
    flags = [weight.requires_grad for weight in network.parameters()]
    network.requires_grad_(False)
    try:
        yield
    finally:
        for weight, flag in zip(network.parameters(), flags, strict=True):
            weight.requires_grad_(flag)


def _last_layer(network: TiedNetwork, hidden: Tensor, targets: Tensor, padding: int) -> Site:
    """Scores, losses and their gradient in one buffer; sends the gradient back through `hidden`."""
    states = hidden.detach()
    with torch.no_grad():
        # ∂(mean cross-entropy)/∂scores = (softmax − one-hot)/words of the sample.
        scores = network.scores(states)
        scores.sub_(scores.logsumexp(2, keepdim=True)).exp_()
        real = targets != padding
        scores.scatter_add_(2, targets[..., None], -torch.ones_like(scores[..., :1]))
        counts = real.sum(1, keepdim=True).clamp_min(1)
        scores.mul_((real.to(scores.dtype) / counts)[..., None])
        back = scores @ network.embedding.weight
    torch.autograd.backward(hidden, back)
    return Site([(network.embedding.weight, states)], [network.bias], scores)


def _table_squares(first: Tensor, last: Site, inputs: Tensor) -> Tensor:
    """The tied table's norm: last layer, first layer and the cross-term between them."""
    # Two positions with the same word meet in the same row of the table.
    same = (inputs[:, :, None] == inputs[:, None, :]).to(first.dtype)
    own = (same * torch.bmm(first, first.transpose(1, 2))).sum((1, 2))
    rows, positions = inputs.shape
    at_words = last.output_gradient.gather(2, inputs[:, None, :].expand(rows, positions, positions))
    states = last.weights[0][1]
    cross = (at_words * torch.bmm(states, first.transpose(1, 2))).sum((1, 2))
    return last.squares() + own + 2 * cross


def _add_table(
    network: TiedNetwork, first: Tensor, last: Site, inputs: Tensor, shares: Tensor
) -> None:
    last.output_gradient.mul_(shares[:, None, None])
    flat = last.output_gradient.flatten(0, 1)
    table = network.embedding.weight
    assert table.grad is not None and network.bias.grad is not None
    table.grad.addmm_(flat.T, last.weights[0][1].flatten(0, 1))
    network.bias.grad.add_(flat.sum(0))
    table.grad.index_add_(0, inputs.flatten(), (first * shares[:, None, None]).flatten(0, 1))


# ---- noise ---------------------------------------------------------------------------------------


class Noise(Protocol):
    """Standard normal numbers and Poisson samples, step by step."""

    def begin_step(self, number: int, device: torch.device) -> None: ...

    def poisson(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        """Each row independently with probability `rate`."""
        ...

    def normal(self, shape: tuple[int, ...], device: torch.device) -> Tensor: ...


class Bits(Protocol):
    """A source of secret random bits, such as the mechanisms' own."""

    def uniform(self, count: int) -> Any: ...

    def words(self, kind: Any, count: int) -> Any: ...


class SystemNoise:
    """Noise that cannot be repeated: all bits come from a source keyed by the operating system."""

    def __init__(self, bits: Bits) -> None:
        self._bits = bits

    def begin_step(self, number: int, device: torch.device) -> None:
        """Nothing: no step can be repeated."""

    def poisson(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self._bits.uniform(rows) < rate)

    def normal(self, shape: tuple[int, ...], device: torch.device) -> Tensor:
        count = int(np.prod(shape))
        half = (count + 1) // 2
        # Box and Muller. The radius takes 53 bits, so that the tail reaches 8.6 deviations: with 32
        # it would end at 6.8, which millions of weights in thousands of steps do come to.
        wide = torch.from_numpy(self._bits.words(np.uint64, half).view(np.int64)).to(device)
        words = torch.from_numpy(self._bits.words(np.uint32, half).view(np.int32)).to(device)
        radius = wide.bitwise_and_(2**53 - 1).double().add_(0.5).mul_(2.0**-53)
        radius = radius.log_().mul_(-2).sqrt_().float()
        angle = words.double().add_(2.0**31 + 0.5).mul_(2 * torch.pi * 2.0**-32).float()
        pair = torch.cat([radius * angle.cos(), radius * angle.sin()])
        return pair[:count].view(shape)


class SeededNoise:
    """Noise of the same distribution that can be repeated, for studies: it voids every guarantee.

    A step depends on (seed, step) only, so that a resumed run repeats it.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = np.random.default_rng([seed, 0, 0xD9])
        self._generator: torch.Generator | None = None

    def begin_step(self, number: int, device: torch.device) -> None:
        """Start again from the step's own seed."""
        self._random = np.random.default_rng([self.seed, number, 0xD9])
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(int(self._random.integers(2**62)))

    def poisson(self, rows: int, rate: float) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self._random.random(rows) < rate)

    def normal(self, shape: tuple[int, ...], device: torch.device) -> Tensor:
        return torch.randn(shape, generator=self._generator, device=device)


def add_noise(network: nn.Module, deviation: float, divisor: float, source: Noise) -> None:
    """Add N(0, deviation²) to every number of the sum, then divide by the expected batch size."""
    for weight in network.parameters():
        assert weight.grad is not None
        noise = source.normal(tuple(weight.shape), weight.device)
        weight.grad.add_(noise, alpha=deviation).div_(divisor)
