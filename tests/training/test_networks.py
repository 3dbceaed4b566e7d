"""Shapes are as drawn, maps begin as they should, and no block sees what it must not."""

from __future__ import annotations

import torch
from torch import nn

from capelet.training.networks import Block, Residual, dense, reversed_gradient


def test_dense_layers_have_relu_between_them_and_none_at_the_end() -> None:
    kinds = [type(item) for item in dense([4, 8, 8, 2])]
    assert kinds == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    assert [type(item) for item in dense([4, 2])] == [nn.Linear]
    assert dense([4, 8, 2])(torch.zeros(3, 4)).shape == (3, 2)


def test_a_residual_map_begins_as_the_identity() -> None:
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Residual(6, 16)(x), x, rtol=0, atol=0)


def test_a_residual_map_can_learn_both_its_parts() -> None:
    made = Residual(4, 8)
    made(torch.ones(2, 4)).sum().backward()
    last = made.correction[-1]
    assert made.skip.weight.grad is not None and last.weight.grad is not None  # type: ignore
    assert last.weight.grad.abs().sum() > 0  # type: ignore[union-attr]


def test_a_gradient_passes_reversed_and_scaled_once() -> None:
    x = torch.tensor([[1.0, -2.0]], requires_grad=True)
    passed = reversed_gradient(x, 3.0)
    torch.testing.assert_close(passed, x, rtol=0, atol=0)
    (passed * torch.tensor([1.0, 5.0])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[-3.0, -15.0]]


def test_strength_zero_lets_no_gradient_through() -> None:
    x = torch.ones(1, 2, requires_grad=True)
    reversed_gradient(x, 0.0).sum().backward()
    assert x.grad is not None and x.grad.abs().sum() == 0


def test_a_block_sees_what_came_before_or_what_the_mask_allows() -> None:
    torch.manual_seed(0)
    block = Block(16, 2).eval()
    states = torch.randn(1, 5, 16)
    changed = states.clone()
    # One coordinate: a shift of all of them is what layer normalisation takes away.
    changed[0, 3, 0] += 1.0
    moved = (block(states) != block(changed)).any(dim=2)[0].tolist()
    assert moved == [False, False, False, True, True]
    seen = torch.tensor([True, True, True, False, True])[None, None, None, :]
    moved = (block(states, seen) != block(changed, seen)).any(dim=2)[0].tolist()
    assert moved == [False, False, False, True, False]
