"""Clipped gradient sums at the price of one backward pass, and the noise that makes them private.

DP-SGD clips the gradient of every sample before it sums them. Keeping one gradient per sample costs
a model per sample; here none is ever made ("book-keeping", Bu et al. 2022). One backward pass runs
with the weights held constant and keeps, at every place where weights meet activations, the
activations a and the gradients g of what came out. For a sample with positions t, s

    ‖Σ_t g_t a_tᵀ‖² = Σ_ts (a_t·a_s)(g_t·g_s),        a bias:  Σ_ts g_t·g_s,

so norms come from small Gram matrices. The word table is used twice (tied), as first layer at the
words w_s and as last layer, and gets the cross-term 2 Σ_ts g_t[w_s] (a_t·e_s), where e_s is the
gradient of the word vector at s. Then each weight's clipped sum is one weighted product.

The gradients are those of one sample's mean loss per word. Padding has loss zero and adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from capelet.language.model import Lstm, Network, Transformer
from capelet.language.vocabulary import PAD

ROWS = {"cpu": 256, "cuda": 1024}
"""Samples whose activations are in memory at once; a Poisson batch may be larger."""


@dataclass
class Site:
    """A place where weights meet activations: `(rows, positions, ·)` each, g after the pass."""

    weights: list[tuple[Tensor, Tensor]]
    biases: list[Tensor]
    gradient: Tensor | None = None

    def keep(self, gradient: Tensor) -> None:
        self.gradient = gradient

    @property
    def seen(self) -> Tensor:
        assert self.gradient is not None
        return self.gradient

    def squares(self) -> Tensor:
        """Per sample the squared norm of the gradient of all weights and biases here."""
        gram = torch.bmm(self.seen, self.seen.transpose(1, 2))
        other = torch.full_like(gram, float(len(self.biases)))
        for _, activation in self.weights:
            other.baddbmm_(activation, activation.transpose(1, 2))
        return (gram * other).sum((1, 2))

    def add(self, shares: Tensor) -> None:
        """Add the weighted sum over samples to the gradient of each weight and bias."""
        weighted = (self.seen * shares[:, None, None]).flatten(0, 1)
        for weight, activation in self.weights:
            _accumulate(weight, weighted.T @ activation.flatten(0, 1))
        total = weighted.sum(0)
        for bias in self.biases:
            _accumulate(bias, total)


@dataclass
class Direct:
    """Weights whose gradient per sample is small enough to be made: gains and positions."""

    weight: Tensor
    gradient: Tensor

    def squares(self) -> Tensor:
        return self.gradient.flatten(1).square().sum(1)

    def add(self, shares: Tensor) -> None:
        total = torch.tensordot(shares, self.gradient, dims=1)
        full = torch.zeros_like(self.weight)
        full[: len(total)] = total
        _accumulate(self.weight, full)


def clipped_sum(network: nn.Module, tokens: Tensor, clip: float, rows: int = 0) -> Tensor:
    """Put Σ_i g_i · min(1, clip/‖g_i‖) into every `.grad`; the norms ‖g_i‖ before clipping.

    No sample at all leaves zeros, which DP-SGD still adds noise to. A sample whose gradient is not
    finite counts as zero. A network with layers that are not known here goes to Opacus.
    """
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    if not is_known(network):
        from capelet.language.by_opacus import clipped_sum_by_opacus

        with _whole_precision():
            return clipped_sum_by_opacus(network, tokens, clip, rows)
    assert isinstance(network, Lstm | Transformer)
    parts = torch.split(tokens, rows or ROWS.get(tokens.device.type, 256))
    with _whole_precision():
        norms = [_chunk(network, part, clip) for part in parts if len(part)]
    return torch.cat(norms) if norms else torch.zeros(0, device=tokens.device)


def is_known(network: nn.Module) -> bool:
    """Whether the fast path sees every weight of the network; one it missed would never learn."""
    if type(network) is Lstm:
        layers = network.lstm
        plain = layers.bias and not layers.bidirectional and not layers.proj_size
        return bool(plain and not layers.dropout)
    if type(network) is not Transformer:
        return False
    seen = {id(weight) for weight in (network.embedding.weight, network.positions, network.bias)}
    for module in network.modules():
        if type(module) in (nn.Linear, nn.LayerNorm):
            seen |= {id(weight) for weight in module.parameters()}
    return all(id(weight) in seen for weight in network.parameters())


def add_noise(network: nn.Module, deviation: float, divisor: float, source: Noise) -> None:
    """Add N(0, deviation²) to every number of the sum, then divide by the expected batch size."""
    for weight in network.parameters():
        assert weight.grad is not None
        noise = source.normal(tuple(weight.shape), weight.device)
        weight.grad.add_(noise, alpha=deviation).div_(divisor)


class Noise:
    """Standard normal numbers and Poisson samples: from the system, or seeded for studies.

    Without a seed all bits come from AES in counter mode, keyed by the operating system, and cannot
    be repeated. Seeded noise has the same distribution and voids every guarantee. A seeded step
    depends on (seed, step) only, so that a resumed run repeats it.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self._stream: Any = None
        self._generator: torch.Generator | None = None
        if seed is None:
            from capelet.mechanisms.sampling import Stream

            self._stream = Stream()

    def step(self, number: int, device: torch.device) -> None:
        """Begin a step; a seeded source starts again from the step's own seed."""
        if self.seed is not None:
            self._random = np.random.default_rng([self.seed, number, 0xD9])
            self._generator = torch.Generator(device=device)
            self._generator.manual_seed(int(self._random.integers(2**62)))

    def poisson(self, rows: int, rate: float) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Each row independently with probability `rate`."""
        drawn = self._stream.uniform(rows) if self.seed is None else self._random.random(rows)
        return np.flatnonzero(drawn < rate)

    def normal(self, shape: tuple[int, ...], device: torch.device) -> Tensor:
        if self.seed is not None:
            return torch.randn(shape, generator=self._generator, device=device)
        count = int(np.prod(shape))
        half = (count + 1) // 2
        # Box and Muller. The radius takes 53 bits, so that the tail reaches 8.6 deviations: with 32
        # it would end at 6.8, which millions of weights in thousands of steps do come to.
        wide = torch.from_numpy(self._stream.words(np.uint64, half).view(np.int64)).to(device)
        words = torch.from_numpy(self._stream.words(np.uint32, half).view(np.int32)).to(device)
        radius = wide.bitwise_and_(2**53 - 1).double().add_(0.5).mul_(2.0**-53)
        radius = radius.log_().mul_(-2).sqrt_().float()
        angle = words.double().add_(2.0**31 + 0.5).mul_(2 * torch.pi * 2.0**-32).float()
        pair = torch.cat([radius * angle.cos(), radius * angle.sin()])
        return pair[:count].view(shape)


# ---- one pass ------------------------------------------------------------------------------------


def _chunk(network: Network, tokens: Tensor, clip: float) -> Tensor:
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    with _constant(network):
        if isinstance(network, Lstm):
            words, hidden, sites = _lstm(network, inputs)
        else:
            words, hidden, sites = _transformer(network, inputs)
        last = _last_layer(network, hidden, targets)
    squares = sum((site.squares() for site in sites), _table_squares(words, last, inputs))
    squares = squares + _positions_squares(network, words)
    norms = squares.clamp_min(0).sqrt()
    sound = norms.isfinite()
    if not sound.all():
        return _without(network, tokens, clip, norms, sound)
    shares = clip / norms.clamp_min(clip)
    for site in sites:
        site.add(shares)
    if isinstance(network, Transformer):
        assert words.grad is not None
        Direct(network.positions, words.grad).add(shares)
    _add_table(network, words, last, inputs, shares)
    return norms


def _without(network: Network, tokens: Tensor, clip: float, norms: Tensor, sound: Tensor) -> Tensor:
    """The chunk again, without the samples whose gradients overflow: nothing clips those.

    Which they are depends on each sample alone, so the others' sum is as bounded as before.
    """
    if sound.any():
        norms[sound] = _chunk(network, tokens[sound], clip)
    return norms


@contextmanager
def _whole_precision() -> Iterator[None]:
    """No shortened floats in products: a norm found too small lets a gradient be too long."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _constant(network: nn.Module) -> Iterator[None]:
    """Weights without gradients: the pass then computes only what flows between layers."""
    wanted = [weight.requires_grad for weight in network.parameters()]
    network.requires_grad_(False)
    try:
        yield
    finally:
        for weight, want in zip(network.parameters(), wanted, strict=True):
            weight.requires_grad_(want)


def _last_layer(network: Network, hidden: Tensor, targets: Tensor) -> Site:
    """Scores, losses and their gradient in one buffer; sends the gradient back through `hidden`."""
    states = hidden.detach()
    with torch.no_grad():
        scores = network.scores(states)
        scores.sub_(scores.logsumexp(2, keepdim=True)).exp_()
        real = targets != PAD
        scores.scatter_add_(2, targets[..., None], -torch.ones_like(scores[..., :1]))
        scores.mul_((real / real.sum(1, keepdim=True).clamp_min(1))[..., None])
        back = scores @ network.embedding.weight
    torch.autograd.backward(hidden, back)
    return Site([(network.embedding.weight, states)], [network.bias], scores)


def _table_squares(words: Tensor, last: Site, inputs: Tensor) -> Tensor:
    """The tied table's norm: last layer, first layer and the cross-term between them."""
    first = words.grad
    assert first is not None
    same = (inputs[:, :, None] == inputs[:, None, :]).to(first.dtype)
    own = (same * torch.bmm(first, first.transpose(1, 2))).sum((1, 2))
    rows, positions = inputs.shape
    at_words = last.seen.gather(2, inputs[:, None, :].expand(rows, positions, positions))
    states = last.weights[0][1]
    cross = (at_words * torch.bmm(states, first.transpose(1, 2))).sum((1, 2))
    return last.squares() + own + 2 * cross


def _add_table(network: Network, words: Tensor, last: Site, inputs: Tensor, shares: Tensor) -> None:
    last.seen.mul_(shares[:, None, None])
    flat = last.seen.flatten(0, 1)
    table = network.embedding.weight
    assert table.grad is not None and network.bias.grad is not None and words.grad is not None
    table.grad.addmm_(flat.T, last.weights[0][1].flatten(0, 1))
    network.bias.grad.add_(flat.sum(0))
    table.grad.index_add_(0, inputs.flatten(), (words.grad * shares[:, None, None]).flatten(0, 1))


def _positions_squares(network: Network, words: Tensor) -> Tensor | float:
    if isinstance(network, Lstm):
        return 0.0
    assert words.grad is not None
    return Direct(network.positions, words.grad).squares()


def _accumulate(weight: Tensor, total: Tensor) -> None:
    assert weight.grad is not None
    weight.grad.add_(total)


# ---- the LSTM, with its gates in sight -----------------------------------------------------------


class _Recurrence(torch.autograd.Function):
    """One LSTM layer from the inputs' share of its gates; its backward pass gives gate gradients.

    Everything is `(positions, rows, ·)`. What does not depend on later positions is computed for
    all of them at once; a step is one product and four products of elements.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, recurrent: Tensor) -> Tensor:
        positions, rows, four = gates.shape
        width = four // 4
        gates = gates.clone()
        cells = gates.new_zeros(positions + 1, rows, width)
        states = gates.new_zeros(positions + 1, rows, width)
        squashed = gates.new_empty(positions, rows, width)
        for t in range(positions):
            gate = gates[t]
            gate.addmm_(states[t], recurrent.T)
            gate[:, : 2 * width].sigmoid_()
            gate[:, 2 * width : 3 * width].tanh_()
            gate[:, 3 * width :].sigmoid_()
            enter, keep, new, out = gate.chunk(4, dim=1)
            torch.mul(keep, cells[t], out=cells[t + 1])
            cells[t + 1].addcmul_(enter, new)
            torch.tanh(cells[t + 1], out=squashed[t])
            torch.mul(out, squashed[t], out=states[t + 1])
        ctx.save_for_backward(gates, cells, squashed, recurrent)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor, None]:
        gates, cells, squashed, recurrent = ctx.saved_tensors
        positions, rows, width = squashed.shape
        enter, keep, new, out = gates.view(positions, rows, 4, width).unbind(2)
        slopes = torch.stack(
            [
                new * enter * (1 - enter),
                cells[:-1] * keep * (1 - keep),
                enter * (1 - new * new),
                squashed * out * (1 - out),
            ],
            dim=2,
        )
        to_cell = out * (1 - squashed * squashed)
        made = torch.empty_like(slopes)
        state, cell = given[-1], torch.zeros_like(given[0])
        for t in reversed(range(positions)):
            cell = torch.addcmul(cell, state, to_cell[t])
            torch.mul(slopes[t, :, :3], cell[:, None], out=made[t, :, :3])
            torch.mul(slopes[t, :, 3], state, out=made[t, :, 3])
            cell = cell * keep[t]
            if t:
                state = torch.addmm(given[t - 1], made[t].view(rows, -1), recurrent)
        return made.view(positions, rows, -1), None


def _lstm(network: Lstm, inputs: Tensor) -> tuple[Tensor, Tensor, list[Any]]:
    words = network.embedding(inputs).requires_grad_()
    words.retain_grad()
    states = words.transpose(0, 1)
    sites: list[Any] = []
    for layer in range(network.lstm.num_layers):
        into, recurrent, bias, other = (
            getattr(network.lstm, f"{name}_l{layer}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        gates = functional.linear(states, into, bias + other)
        after = _Recurrence.apply(gates, recurrent)  # type: ignore[no-untyped-call]
        before = functional.pad(after.detach()[:-1], (0, 0, 0, 0, 1, 0))
        activations = [
            (into, states.detach().transpose(0, 1)),
            (recurrent, before.transpose(0, 1)),
        ]
        site = Site(activations, [bias, other])
        gates.register_hook(lambda g, site=site: site.keep(g.transpose(0, 1)))  # type: ignore[no-untyped-call]
        sites.append(site)
        states = after
    return words, states.transpose(0, 1), sites


# ---- the Transformer, watched by hooks -----------------------------------------------------------


def _transformer(network: Transformer, inputs: Tensor) -> tuple[Tensor, Tensor, list[Any]]:
    sites: list[Any] = []

    def dense(module: nn.Linear, given: tuple[Tensor], out: Tensor) -> None:
        site = Site([(module.weight, given[0].detach())], [module.bias])
        out.register_hook(site.keep)  # type: ignore[no-untyped-call]
        sites.append(site)

    def norm(module: nn.LayerNorm, given: tuple[Tensor], out: Tensor) -> None:
        plain = functional.layer_norm(given[0].detach(), module.normalized_shape, eps=module.eps)

        def keep(gradient: Tensor) -> None:
            sites.append(Direct(module.weight, (gradient * plain).sum(1)))
            sites.append(Direct(module.bias, gradient.sum(1)))

        out.register_hook(keep)  # type: ignore[no-untyped-call]

    hooks = [
        module.register_forward_hook(dense if isinstance(module, nn.Linear) else norm)
        for module in network.modules()
        if isinstance(module, nn.Linear | nn.LayerNorm)
    ]
    try:
        words = network.embedded(inputs).requires_grad_()
        words.retain_grad()
        hidden = network.above(words)
    finally:
        for hook in hooks:
            hook.remove()
    return words, hidden, sites
