"""Clipped gradient sums of networks that the fast path does not know, by Opacus.

`dpsgd` knows the layers of our two networks. A network of your own (in Python) may have others: it
needs `embedding`, `hidden`, `scores`, and a `forward` that gives the scores of the next word. Here
Opacus makes one gradient per sample, which costs a model per sample in memory and many times the
time of plain training (`benchmarks/language.py --opacus` measures Opacus on an LSTM).

Opacus watches layers as they are called. Weights that are used past their layer would be seen in
part or not at all, and clipping would then bound too little. So the sum of what it found is
compared with autograd's gradient in every pass, and a difference is refused.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from capelet.errors import CapeletError, MissingExtra
from capelet.language.vocabulary import PAD

NUMBERS = 2**26
"""Gradients per sample that are in memory at once (256 MiB)."""

SAME = 1e-3
"""Sums in another order differ by rounding; a layer that was missed differs by its all."""


def clipped_sum_by_opacus(network: nn.Module, tokens: Tensor, clip: float, rows: int = 0) -> Tensor:
    """Add Σ_i g_i · min(1, clip/‖g_i‖) to every `.grad`, which must be there; the norms ‖g_i‖."""
    watched = _watched(network)
    size = sum(weight.numel() for weight in network.parameters())
    parts = torch.split(tokens, rows or max(1, NUMBERS // size))
    sums = [weight.grad for weight in network.parameters()]
    try:
        norms = [_chunk(watched, network, part, clip, sums) for part in parts if len(part)]
    finally:
        watched.remove_hooks()
        for weight, total in zip(network.parameters(), sums, strict=True):
            weight.grad = total
            for name in ("grad_sample", "_forward_counter", "_current_grad_sample"):
                if hasattr(weight, name):
                    delattr(weight, name)
    return torch.cat(norms) if norms else torch.zeros(0, device=tokens.device)


def _watched(network: nn.Module) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus import GradSampleModule
    except ImportError:
        raise MissingExtra("DP-SGD on layers that the fast path does not know", "opacus") from None
    try:
        return GradSampleModule(network, loss_reduction="sum", strict=True)
    except (NotImplementedError, ValueError) as error:
        raise CapeletError(_refused(network, error)) from None


def _chunk(
    watched: Any, network: nn.Module, tokens: Tensor, clip: float, sums: list[Any]
) -> Tensor:
    found = _gradients(watched, network, tokens)
    squares = torch.stack([each.flatten(1).square().sum(1) for each in found]).sum(0)
    norms = squares.sqrt()
    sound = norms.isfinite()
    shares = clip / norms[sound].clamp_min(clip)
    for total, each in zip(sums, found, strict=True):
        # A gradient that overflows counts as zero, since nothing clips it.
        total.add_(torch.tensordot(shares, each[sound], dims=1))
    return norms


def _gradients(watched: Any, network: nn.Module, tokens: Tensor) -> list[Tensor]:
    """One gradient per sample and weight, checked against the sum that autograd finds."""
    for weight in network.parameters():
        weight.grad = None
        weight.grad_sample = None  # type: ignore[attr-defined]
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = watched(inputs)
            losses = functional.cross_entropy(
                scores.transpose(1, 2), targets, ignore_index=PAD, reduction="none"
            )
            counts = (targets != PAD).sum(1).clamp_min(1)
            torch.autograd.backward((losses.sum(1) / counts).sum())
    except (NotImplementedError, RuntimeError, ValueError, TypeError) as error:
        raise CapeletError(_refused(network, error)) from None
    found = []
    for name, weight in network.named_parameters():
        each = weight.grad_sample  # type: ignore[attr-defined]
        if not isinstance(each, Tensor) or not _same(each.sum(0), weight.grad):
            raise CapeletError(
                f"Opacus does not see every use of {name!r}, so DP-SGD would clip too little; let "
                "each weight be used by the layer that holds it, when that layer is called"
            )
        found.append(each.detach())
    return found


def _same(sum_: Tensor, wanted: Tensor | None) -> bool:
    if wanted is None:
        return not sum_.any()
    finite = sum_.isfinite() & wanted.isfinite()
    scale = wanted[finite].abs().max() if finite.any() else torch.zeros(())
    apart = (sum_ - wanted)[finite].abs()
    return not apart.numel() or bool(apart.max() <= SAME * scale + 1e-12)


def _refused(network: nn.Module, error: Exception) -> str:
    said = str(error).strip().splitlines()
    return (
        f"Opacus cannot make gradients per sample of {type(network).__name__!r} "
        f"({said[0] if said else type(error).__name__}); take layers that it knows, such as "
        "opacus.layers.DPLSTM for nn.LSTM"
    )
