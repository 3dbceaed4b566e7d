"""Clipped sums over units equal a naive loop over gradients, for rows and for authors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from capelet.training.networks import dense
from capelet.training.units import clipped_unit_sum

CLIP = 0.7


def world(members: int, units: int = 9) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    network = dense([5, 6, 3])
    rows = 2 * torch.randn(units * members, 5)
    codes = torch.randint(3, (units * members,))
    return network, rows, codes


def total_loss(network: nn.Module, x: Tensor, codes: Tensor) -> Tensor:
    return cross_entropy(network(x)[codes >= 0], codes[codes >= 0], reduction="sum")


def naive(network: nn.Module, rows: Tensor, codes: Tensor, members: int) -> tuple[Tensor, Tensor]:
    """Each unit's gradient by itself: the norms, and the sum of the clipped ones, as one vector."""
    norms, total = [], torch.zeros(sum(weight.numel() for weight in network.parameters()))
    for some, own in zip(rows.split(members), codes.split(members), strict=True):
        gradient = torch.zeros_like(total)
        if (own >= 0).any():
            loss = total_loss(network, some, own)
            parts = torch.autograd.grad(loss, list(network.parameters()))
            gradient = torch.cat([part.flatten() for part in parts])
        norms.append(gradient.norm())
        total += gradient * (CLIP / gradient.norm().clamp_min(CLIP))
    return torch.stack(norms), total


def sum_of(network: nn.Module) -> Tensor:
    return torch.cat([weight.grad.flatten() for weight in network.parameters()])  # type: ignore[union-attr]


@pytest.mark.parametrize("members", [1, 4])
def test_norms_and_sums_equal_a_naive_loop(members: int) -> None:
    network, rows, codes = world(members)
    codes[-members // 2 :] = -1  # an author with fewer texts: rows that are none
    norms, total = naive(network, rows, codes, members)
    mine = clipped_unit_sum(network, rows, members, lambda x: total_loss(network, x, codes), CLIP)
    torch.testing.assert_close(mine, norms)
    torch.testing.assert_close(sum_of(network), total)
    assert (norms > CLIP).any() and (norms < 10 * CLIP).all()
    assert all(weight.requires_grad for weight in network.parameters())


def test_one_unit_moves_the_sum_by_no_more_than_the_clip() -> None:
    network, rows, codes = world(4)
    rows[:4] *= 1e4  # however long its gradients are
    clipped_unit_sum(network, rows, 4, lambda x: total_loss(network, x, codes), CLIP)
    whole = sum_of(network)
    clipped_unit_sum(network, rows[4:], 4, lambda x: total_loss(network, x, codes[4:]), CLIP)
    assert 0.99 * CLIP < (whole - sum_of(network)).norm() <= CLIP * (1 + 1e-5)


def test_a_unit_that_overflows_counts_as_zero_and_touches_no_other() -> None:
    network, rows, codes = world(2)
    clipped_unit_sum(network, rows[2:], 2, lambda x: total_loss(network, x, codes[2:]), CLIP)
    others = sum_of(network)
    rows[0] = torch.inf
    norms = clipped_unit_sum(network, rows, 2, lambda x: total_loss(network, x, codes), CLIP)
    assert not norms[0].isfinite() and norms[1:].isfinite().all()
    torch.testing.assert_close(sum_of(network), others)


def test_no_unit_leaves_zeros_for_the_noise() -> None:
    network, rows, _ = world(1)
    assert not len(clipped_unit_sum(network, rows[:0], 1, lambda x: x.sum(), CLIP))
    assert not sum_of(network).any()


def test_weights_without_a_norm_are_refused() -> None:
    network = nn.Sequential(dense([5, 3]), nn.PReLU())
    with pytest.raises(TypeError, match="only dense layers"):
        clipped_unit_sum(network, torch.ones(2, 5), 1, lambda x: network(x).sum(), CLIP)
