"""The torch modules that training and attacks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Labelled = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
"""Inputs, codes and weights."""


def dense(widths: Sequence[int], dropout: float = 0.0) -> Any:
    """Linear layers of these widths, with ReLU and dropout after each but the last."""
    from torch import nn

    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers[:-2])


def fit_classifier(
    fit: Labelled,
    tune: Labelled,
    *,
    classes: int,
    widths: Sequence[int],
    epochs: int,
    seed: int,
    patience: int = 4,
    batch: int = 128,
    rate: float = 1e-3,
) -> Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]:
    """Train a perceptron, keep the epoch with the least loss on `tune`; gives probabilities."""
    import torch
    from torch.nn import functional

    def loss_of(rows: Any, part: tuple[Any, Any, Any]) -> Any:
        x, y, w = part
        losses = functional.cross_entropy(network(x[rows]), y[rows], reduction="none")
        return (losses * w[rows]).mean()

    fit_part, tune_part = (tuple(map(torch.as_tensor, part)) for part in (fit, tune))
    best, kept, waited = float("inf"), None, 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = dense([fit[0].shape[1], *widths, classes], dropout=0.2)
        optimiser = torch.optim.Adam(network.parameters(), lr=rate, weight_decay=1e-5)
        for _ in range(epochs):
            network.train()
            for rows in torch.randperm(len(fit[0])).split(batch):
                optimiser.zero_grad(set_to_none=True)
                loss_of(rows, fit_part).backward()
                optimiser.step()
            network.eval()
            with torch.no_grad():
                now = float(loss_of(slice(None), tune_part))
            if now < best:
                best, waited = now, 0
                kept = {name: value.clone() for name, value in network.state_dict().items()}
            elif (waited := waited + 1) >= patience:
                break
    if kept is not None:
        network.load_state_dict(kept)
    network.eval()

    def probabilities(inputs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        with torch.no_grad():
            return np.asarray(network(torch.as_tensor(inputs)).softmax(dim=1).numpy())

    return probabilities
