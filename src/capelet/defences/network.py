"""The network of a defence: noise, the layers that will be released, noise, and the loss terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from capelet.data.labels import Attribute
from capelet.defences.noise import Twin
from capelet.defences.terms import Batch, Term
from capelet.numerics import SHORTEST
from capelet.release.heads import Head
from capelet.release.maps import Layer, Map, affine
from capelet.training.networks import Front, Residual


class Body(nn.Module):
    """The layers that will be released, behind a fixed scaling learnt on the rows to fit on.

    With `unit` rows are brought to length one instead, and nothing is learnt of their scale.
    """

    def __init__(self, inner: nn.Module, activation: str = "none", unit: bool = False) -> None:
        super().__init__()
        self.inner, self.activation, self.unit = inner, activation, unit
        self.register_buffer("shift", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1))

    def fit_scaling(self, x: Tensor) -> None:
        """Learn the scaling: of each coordinate or, so that angles stay, of all of them alike."""
        if isinstance(self.inner, Residual):
            self.scale = 1 / x.norm(dim=1).mean().clamp(min=1e-12).reshape(1)
            return
        deviation = x.std(dim=0)
        # MiniLM has three dead coordinates: divided by their deviation, rounding would be signal.
        alive = deviation > 1e-6 * x.abs().max().clamp(min=1e-12)
        self.shift = x.mean(dim=0)
        self.scale = torch.where(alive, 1 / deviation.clamp(min=1e-12), torch.zeros_like(deviation))

    def forward(self, x: Tensor) -> Tensor:
        if self.unit:
            x = normalize(x, dim=1, eps=SHORTEST)
        features: Tensor = self.inner((x - self.shift) * self.scale)
        if self.activation == "relu":
            return torch.relu(features)
        return torch.softmax(features, dim=1) if self.activation == "softmax" else features

    def to_map(self, width: int) -> Map:
        """What was learnt, for numpy: from vectors of this width."""
        scale = _numpy(self.scale) * np.ones(width, dtype=np.float32)
        first = affine(np.diag(scale), -_numpy(self.shift) * scale)
        chain = self.inner.correction if isinstance(self.inner, Residual) else self.inner
        layers = layers_of(chain, self.activation)
        if isinstance(self.inner, Residual):
            skip = affine(_numpy(self.inner.skip.weight), _numpy(self.inner.skip.bias))
            return Map((first, *layers), skip)
        # W(Sx + s) + b = (WS)x + (Ws + b): the scaling is folded into the first layer.
        joint = Layer(
            (layers[0].weight @ first.weight).astype(np.float32),
            (layers[0].weight @ first.bias + layers[0].bias).astype(np.float32),
            layers[0].activation,
        )
        return Map((joint, *layers[1:]), unit=self.unit)


def layers_of(chain: nn.Module, activation: str = "none") -> list[Layer]:
    """The linear layers of a network for numpy: ReLU between them, and this at the end."""
    linear = [item for item in chain.modules() if isinstance(item, nn.Linear)]
    return [
        Layer(_numpy(item.weight), _numpy(item.bias), activation if item is linear[-1] else "relu")
        for item in linear
    ]


class Network(nn.Module):
    """Noise, body, noise, and the terms that ask for something of what comes out.

    With a front the vectors are not given but made, from the numbers of the rows.
    """

    def __init__(
        self,
        body: Body,
        terms: Sequence[Term],
        before: Twin | None = None,
        after: Twin | None = None,
        front: Front | None = None,
    ) -> None:
        super().__init__()
        self.body, self.terms, self.front = body, nn.ModuleList(terms), front
        self.before, self.after = before, after
        self.weights: dict[str, Tensor] = {}

    def batch(
        self, x: Tensor, codes: Mapping[str, Tensor], share: float, random: torch.Generator
    ) -> Batch:
        vectors = x if self.front is None else self.front(x)
        noisy = vectors if self.before is None else self.before(vectors, random)
        features = self.body(noisy)
        if self.after is not None:
            features = self.after(features, random)
        rows = None if self.front is None else x
        return Batch(noisy, features, codes, share, random, rows)

    def forward(self, batch: Batch) -> Tensor:
        """The loss of each term; their sum is what is minimised."""
        return torch.stack([term(batch, self) for term in self.terms])

    def head(self, task: Attribute | None) -> Head | None:
        """The task's classifier among the terms, for numpy; None where no term has one."""
        if task is None:
            return None
        for term in self.terms:
            chain = term.task_head()  # type: ignore[operator]
            if chain is not None:
                return Head.of(task.name, task.classes, tuple(layers_of(chain.cpu())))
        return None

    def settings(self) -> str:
        """The layers and every number of the terms and the noise: λ and ε too, not only shapes."""
        owners = [*self.terms, self.before, self.after]
        numbers = [
            (type(owner).__name__, key, value)
            for owner in owners
            for key, value in sorted(vars(owner).items() if owner is not None else ())
            if isinstance(value, int | float | str | tuple) and key != "training"
        ]
        return f"{self} {numbers}"


def _numpy(tensor: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float32)
