"""Norms of per-sample gradients that are never made, from what one backward pass leaves behind.

DP-SGD clips the gradient of every sample before it sums them. Keeping one gradient per sample costs
a model per sample; here none is ever made ("book-keeping", Bu et al. 2022). One backward pass runs
with the weights held constant and keeps, at every place where weights meet activations, the
activations a and the gradients g of what came out. For a sample with positions t, s

    ‖Σ_t g_t a_tᵀ‖² = Σ_ts (a_t·a_s)(g_t·g_s),        a bias:  Σ_ts g_t·g_s,

so norms come from small Gram matrices. Then each weight's clipped sum is one weighted product.

A unit of several samples, such as all texts of an author, has the *sum* of their gradients. That
sum runs over all their positions, so laying its samples end to end (`merge`) makes the same formula
give the norm of the sum, with every cross-term between two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional


class Place(Protocol):
    """Weights whose gradients have a norm per sample, and a weighted sum over samples."""

    def merge(self, samples: int) -> None:
        """From now on so many neighbouring rows are one unit, whose gradients add up."""
        ...

    def squares(self) -> Tensor:
        """Per sample the squared norm of the gradient of all weights here."""
        ...

    def add(self, shares: Tensor) -> None:
        """Add the weighted sum over samples to the gradient of each weight."""
        ...


@dataclass
class Site:
    """A place where weights meet activations: `(rows, positions, ·)` each, g after the pass."""

    weights: list[tuple[Tensor, Tensor]]
    biases: list[Tensor]
    gradient: Tensor | None = None

    def keep(self, gradient: Tensor) -> None:
        self.gradient = gradient

    @property
    def output_gradient(self) -> Tensor:
        assert self.gradient is not None
        return self.gradient

    def merge(self, samples: int) -> None:
        self.gradient = end_to_end(self.output_gradient, samples)
        self.weights = [(weight, end_to_end(a, samples)) for weight, a in self.weights]

    def squares(self) -> Tensor:
        gram = torch.bmm(self.output_gradient, self.output_gradient.transpose(1, 2))
        # All weights here share g, so their Gram matrices of activations add up; a bias is a
        # weight whose activation is always 1.
        other = torch.full_like(gram, float(len(self.biases)))
        for _, activation in self.weights:
            other.baddbmm_(activation, activation.transpose(1, 2))
        return (gram * other).sum((1, 2))

    def add(self, shares: Tensor) -> None:
        clipped_gradient = (self.output_gradient * shares[:, None, None]).flatten(0, 1)
        for weight, activation in self.weights:
            accumulate(weight, clipped_gradient.T @ activation.flatten(0, 1))
        total = clipped_gradient.sum(0)
        for bias in self.biases:
            accumulate(bias, total)


@dataclass
class Direct:
    """Weights whose gradient per sample is small enough to be made: gains and positions."""

    weight: Tensor
    gradient: Tensor

    def merge(self, samples: int) -> None:
        self.gradient = self.gradient.view(-1, samples, *self.gradient.shape[1:]).sum(1)

    def squares(self) -> Tensor:
        return self.gradient.flatten(1).square().sum(1)

    def add(self, shares: Tensor) -> None:
        total = torch.tensordot(shares, self.gradient, dims=1)
        # Positions beyond the batch's longest text have had no gradient.
        full = torch.zeros_like(self.weight)
        full[: len(total)] = total
        accumulate(self.weight, full)


@dataclass(eq=False)
class Trace:
    """One forward pass with its places in sight.

    `words` are the vectors that go into the first layer and will hold their gradient; `hidden` are
    the states that the last layer sees; `after_words` makes a place of the words' gradient, for
    weights that were added to them.
    """

    words: Tensor
    hidden: Tensor
    places: list[Place]
    after_words: list[Callable[[Tensor], Place]] = field(default_factory=list)


# Inputs in, the trace of their forward pass out.
Tracer = Callable[[Tensor], Trace]


def end_to_end(rows: Tensor, samples: int) -> Tensor:
    """`(units, samples · positions, …)`: each `samples` neighbouring rows laid end to end."""
    return rows.reshape(-1, samples * rows.shape[1], *rows.shape[2:])


def accumulate(weight: Tensor, total: Tensor) -> None:
    """Add to a weight's gradient, which must be there."""
    assert weight.grad is not None
    weight.grad.add_(total)


# ---- an LSTM, with its gates in sight ------------------------------------------------------------


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
        cell_tanh = gates.new_empty(positions, rows, width)
        for t in range(positions):
            gate = gates[t]
            gate.addmm_(states[t], recurrent.T)
            gate[:, : 2 * width].sigmoid_()
            gate[:, 2 * width : 3 * width].tanh_()
            gate[:, 3 * width :].sigmoid_()
            enter, keep, new, out = gate.chunk(4, dim=1)
            # c_t = f·c_{t−1} + i·g,  h_t = o·tanh c_t, in torch's order of gates i, f, g, o.
            torch.mul(keep, cells[t], out=cells[t + 1])
            cells[t + 1].addcmul_(enter, new)
            torch.tanh(cells[t + 1], out=cell_tanh[t])
            torch.mul(out, cell_tanh[t], out=states[t + 1])
        ctx.save_for_backward(gates, cells, cell_tanh, recurrent)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, state_gradient: Tensor) -> tuple[Tensor, None]:
        gates, cells, cell_tanh, recurrent = ctx.saved_tensors
        positions, rows, width = cell_tanh.shape
        enter, keep, new, out = gates.view(positions, rows, 4, width).unbind(2)
        slopes = torch.stack(
            [
                new * enter * (1 - enter),
                cells[:-1] * keep * (1 - keep),
                enter * (1 - new * new),
                cell_tanh * out * (1 - out),
            ],
            dim=2,
        )
        to_cell = out * (1 - cell_tanh * cell_tanh)
        gate_gradient = torch.empty_like(slopes)
        state, cell = state_gradient[-1], torch.zeros_like(state_gradient[0])
        for t in reversed(range(positions)):
            cell = torch.addcmul(cell, state, to_cell[t])
            torch.mul(slopes[t, :, :3], cell[:, None], out=gate_gradient[t, :, :3])
            torch.mul(slopes[t, :, 3], state, out=gate_gradient[t, :, 3])
            cell = cell * keep[t]
            if t:
                before = state_gradient[t - 1]
                state = torch.addmm(before, gate_gradient[t].view(rows, -1), recurrent)
        return gate_gradient.view(positions, rows, -1), None


def is_plain_lstm(lstm: nn.LSTM) -> bool:
    """Whether `trace_lstm` knows all of its weights."""
    plain = lstm.bias and not lstm.bidirectional and not lstm.proj_size
    return bool(plain and not lstm.dropout)


def trace_lstm(lstm: nn.LSTM, words: Tensor) -> tuple[Tensor, list[Place]]:
    """The states of all layers' last one, `(rows, positions, width)`, and a site for each layer."""
    states = words.transpose(0, 1)
    places: list[Place] = []
    for layer in range(lstm.num_layers):
        into, recurrent, bias, other = (
            getattr(lstm, f"{name}_l{layer}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        gates = functional.linear(states, into, bias + other)
        after = _Recurrence.apply(gates, recurrent)  # type: ignore[no-untyped-call]
        # The recurrent weight met the state one position earlier; before the first there is none.
        before = functional.pad(after.detach()[:-1], (0, 0, 0, 0, 1, 0))
        activations = [(into, states.detach().transpose(0, 1)), (recurrent, before.transpose(0, 1))]
        site = Site(activations, [bias, other])
        gates.register_hook(lambda g, site=site: site.keep(g.transpose(0, 1)))  # type: ignore[no-untyped-call]
        places.append(site)
        states = after
    return states.transpose(0, 1), places


# ---- any stack of dense and normalising layers, by hooks -----------------------------------------


def layer_weights(network: nn.Module) -> set[int]:
    """The ids of the weights that `trace_layers` sees."""
    return {
        id(weight)
        for module in network.modules()
        if type(module) in (nn.Linear, nn.LayerNorm)
        for weight in module.parameters()
    }


def trace_layers(
    network: nn.Module, forward: Callable[[], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor, list[Place]]:
    """What `forward` gives, and a place for every dense and normalising layer that it calls."""
    places: list[Place] = []

    def dense(module: nn.Linear, inputs: tuple[Tensor], out: Tensor) -> None:
        site = Site([(module.weight, inputs[0].detach())], [module.bias])
        out.register_hook(site.keep)  # type: ignore[no-untyped-call]
        places.append(site)

    def norm(module: nn.LayerNorm, inputs: tuple[Tensor], out: Tensor) -> None:
        plain = functional.layer_norm(inputs[0].detach(), module.normalized_shape, eps=module.eps)

        def keep(gradient: Tensor) -> None:
            places.append(Direct(module.weight, (gradient * plain).sum(1)))
            places.append(Direct(module.bias, gradient.sum(1)))

        out.register_hook(keep)  # type: ignore[no-untyped-call]

    hooks = [
        module.register_forward_hook(dense if isinstance(module, nn.Linear) else norm)
        for module in network.modules()
        if isinstance(module, nn.Linear | nn.LayerNorm)
    ]
    try:
        words, hidden = forward()
    finally:
        for hook in hooks:
            hook.remove()
    return words, hidden, places
