"""Clipped gradient sums of networks that the fast path does not know, by Opacus.

`ghost` knows some kinds of layers. A network of your own (in Python) may have others: it needs a
`forward` that gives the scores of the next word. Here Opacus makes one gradient per sample, which
costs a model per sample in memory and many times the time of plain training
(`benchmarks/language.py --opacus` measures Opacus on an LSTM).

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

# Gradients per sample that are in memory at once (256 MiB).
NUMBERS = 2**26

# Sums in another order differ by rounding; a layer that was missed differs by its all.
SAME = 1e-3


def clipped_sum_by_opacus(
    network: nn.Module, tokens: Tensor, clip: float, padding: int, rows: int = 0
) -> Tensor:
    """Add Σ_i g_i · min(1, clip/‖g_i‖) to every `.grad`, which must be there; the norms ‖g_i‖."""
    module = _per_sample(network)
    size = sum(weight.numel() for weight in network.parameters())
    samples = tokens.shape[1] if tokens.dim() == 3 else 1
    parts = torch.split(tokens, max(1, (rows or NUMBERS // size) // samples))
    sums = [weight.grad for weight in network.parameters()]
    try:
        norms = []
        for part in parts:
            if len(part):
                each = _gradients(module, network, part.flatten(0, -2), padding)
                # A unit's gradient is the sum over its samples, and is clipped as one.
                units = [one.reshape(-1, samples, *one.shape[1:]).sum(1) for one in each]
                norms.append(_add(units, clip, sums))
    finally:
        module.remove_hooks()
        for weight, total in zip(network.parameters(), sums, strict=True):
            weight.grad = total
            for name in ("grad_sample", "_forward_counter", "_current_grad_sample"):
                if hasattr(weight, name):
                    delattr(weight, name)
    return torch.cat(norms) if norms else torch.zeros(0, device=tokens.device)


def _per_sample(network: nn.Module) -> Any:
    """The network with Opacus's hooks on every layer."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus import GradSampleModule
    except ImportError:
        raise MissingExtra("DP-SGD on layers that the fast path does not know", "opacus") from None
    try:
        return GradSampleModule(network, loss_reduction="sum", strict=True)
    except (NotImplementedError, ValueError) as error:
        raise CapeletError(_refusal(network, error)) from None


def _add(gradients: list[Tensor], clip: float, sums: list[Any]) -> Tensor:
    """Clip each sample's gradients and add them to the sums; the norms before clipping."""
    squares = torch.stack([each.flatten(1).square().sum(1) for each in gradients]).sum(0)
    norms = squares.sqrt()
    finite = norms.isfinite()
    shares = clip / norms[finite].clamp_min(clip)
    for total, each in zip(sums, gradients, strict=True):
        # A gradient that overflows counts as zero, since nothing clips it.
        total.add_(torch.tensordot(shares, each[finite], dims=1))
    return norms


def _gradients(module: Any, network: nn.Module, tokens: Tensor, padding: int) -> list[Tensor]:
    """One gradient per sample and weight, checked against the sum that autograd finds."""
    for weight in network.parameters():
        weight.grad = None
        weight.grad_sample = None  # type: ignore[attr-defined]
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = module(inputs)
            losses = functional.cross_entropy(
                scores.transpose(1, 2), targets, ignore_index=padding, reduction="none"
            )
            counts = (targets != padding).sum(1).clamp_min(1)
            torch.autograd.backward((losses.sum(1) / counts).sum())
    except (NotImplementedError, RuntimeError, ValueError, TypeError) as error:
        raise CapeletError(_refusal(network, error)) from None
    gradients = []
    for name, weight in network.named_parameters():
        each = weight.grad_sample  # type: ignore[attr-defined]
        if not isinstance(each, Tensor) or not _same(each.sum(0), weight.grad):
            raise CapeletError(
                f"Opacus does not see every use of {name!r}, so DP-SGD would clip too little; let "
                "each weight be used by the layer that holds it, when that layer is called"
            )
        gradients.append(each.detach())
    return gradients


def _same(sum_: Tensor, gradient: Tensor | None) -> bool:
    """Whether Opacus's sum is autograd's gradient, but for rounding."""
    if gradient is None:
        return not sum_.any()
    finite = sum_.isfinite() & gradient.isfinite()
    scale = gradient[finite].abs().max() if finite.any() else torch.zeros(())
    apart = (sum_ - gradient)[finite].abs()
    return not apart.numel() or bool(apart.max() <= SAME * scale + 1e-12)


def _refusal(network: nn.Module, error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (
        f"Opacus cannot make gradients per sample of {type(network).__name__!r} "
        f"({lines[0] if lines else type(error).__name__}); take layers that it knows, such as "
        "opacus.layers.DPLSTM for nn.LSTM"
    )
