"""Clipped gradient sums of dense networks: one backward pass, a norm for each unit, one product.

A unit is one row, or several rows of one author whose gradients add up before they are clipped.
The norms come from activations and output gradients (`ghost`); no gradient per row is ever made.
The loss must be a *sum* over rows in which each row's term depends on that row alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from capelet.training.dpsgd import constant_weights, full_precision
from capelet.training.ghost import Site, layer_weights, trace_layers


def clipped_unit_sum(
    network: nn.Module, rows: Tensor, members: int, loss: Callable[[Tensor], Tensor], clip: float
) -> Tensor:
    """Put Σ_u g_u · min(1, clip/‖g_u‖) into every `.grad`; the norms ‖g_u‖ before clipping.

    `rows` are the inputs, `members` neighbouring ones to a unit; `loss` gives the sum over them. A
    unit whose gradient is not finite counts as zero. No unit at all leaves zeros.
    """
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    if not len(rows):
        return torch.zeros(0, device=rows.device)
    if not {id(weight) for weight in network.parameters()} <= layer_weights(network):
        raise TypeError("only dense layers have norms per unit here")
    with full_precision():
        with constant_weights(network):
            # The pass must begin somewhere, or nothing flows: at the biases, which cost a sum each,
            # where gradients of weights or inputs would cost a product.
            biases = [item.bias for item in network.modules() if isinstance(item, nn.Linear)]
            for bias in biases:
                bias.requires_grad_()
            total, _, places = trace_layers(network, lambda: (loss(rows), rows))
            total.backward()  # type: ignore[no-untyped-call]
            for bias in biases:
                assert bias.grad is not None
                bias.grad.zero_()
        sites = [_by_unit(place, members) for place in places if isinstance(place, Site)]
        squares = torch.stack([_squares(site) for site in sites]).sum(0)
        norms = squares.clamp_min(0).sqrt()
        finite = norms.isfinite()
        shares = torch.where(finite, clip / norms.clamp_min(clip), torch.zeros_like(norms))
        for site in sites:
            if not finite.all():
                # 0 · ∞ is not 0: such a unit's own numbers are taken out, and touch no other.
                site.gradient = site.output_gradient.where(
                    finite[:, None, None], torch.zeros_like(site.output_gradient)
                )
                site.weights = [
                    (weight, a.where(finite[:, None, None], torch.zeros_like(a)))
                    for weight, a in site.weights
                ]
            site.add(shares)
    return norms


def _by_unit(site: Site, members: int) -> Site:
    """The site with the rows of a unit as its positions: `(units, members, ·)`."""
    gradient = site.output_gradient
    return Site(
        [(weight, a.reshape(-1, members, a.shape[-1])) for weight, a in site.weights],
        site.biases,
        gradient.reshape(-1, members, gradient.shape[-1]),
    )


def _squares(site: Site) -> Tensor:
    """Per unit the squared norm; of a single row it needs no Gram matrix: ‖g aᵀ‖² = ‖g‖²‖a‖²."""
    if site.output_gradient.shape[1] > 1:
        return site.squares()
    lengths = [torch.linalg.vector_norm(a, dim=(1, 2)).square() for _, a in site.weights]
    activations = torch.stack(lengths).sum(0) + len(site.biases)
    return torch.linalg.vector_norm(site.output_gradient, dim=(1, 2)).square() * activations
