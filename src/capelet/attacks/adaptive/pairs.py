"""Pairs: the raw vector regressed on the released one, from own texts sent through the release.

Threat model: the attacker may call the release, so that it has both vectors of its own texts; it
needs neither folder nor gradient. A linear inverse (ridge) undoes linear maps and rotations; a
network adds what the ridge leaves. The better of the two is chosen on held-back pairs, which needs
no label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.families import fit_quietly
from capelet.interfaces import Vectors

Matrix = npt.NDArray[np.float32]
# Of the largest eigenvalue of the releases' covariance: from nearly exact to strongly shrunk.
PENALTIES = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
HIDDEN = 512
EPOCHS = 100
SHARE = 0.1  # of the pairs, held back to choose by


# Released vectors in, guesses of the raw ones out.
Inverse = Callable[[Vectors], Matrix]


@dataclass(frozen=True, eq=False)
class RidgeInverse:
    """x̂ = mean + (z − mean)·slope, with the penalty that does best on held-back pairs."""

    slope: Matrix
    centre: Matrix
    mean: Matrix

    @classmethod
    def fit(
        cls, outputs: Vectors, raw: Vectors, penalties: Sequence[float] = PENALTIES
    ) -> RidgeInverse:
        z, x = (np.asarray(rows, dtype=np.float64) for rows in (outputs, raw))
        last = max(1, round(SHARE * len(z)))
        inner = _Ridge(z[last:], x[last:])
        # One eigendecomposition serves every penalty.
        errors = [float(((inner(p, z[:last]) - x[:last]) ** 2).mean()) for p in penalties]
        best = _Ridge(z, x)
        slope = best.slope(penalties[int(np.argmin(errors))])
        return cls(*(item.astype(np.float32) for item in (slope, best.centre, best.mean)))

    def __call__(self, outputs: Vectors) -> Matrix:
        offsets = np.asarray(outputs, dtype=np.float32) - self.centre
        return np.asarray(offsets @ self.slope + self.mean)


class _Ridge:
    """Ridge regression for many penalties from one eigendecomposition."""

    def __init__(self, z: npt.NDArray[np.float64], x: npt.NDArray[np.float64]) -> None:
        self.centre, self.mean = z.mean(axis=0), x.mean(axis=0)
        offsets = z - self.centre
        self.values, self.axes = np.linalg.eigh(offsets.T @ offsets / len(z))
        self.values = np.maximum(self.values, 0.0)
        self.cross = self.axes.T @ (offsets.T @ (x - self.mean)) / len(z)

    def slope(self, penalty: float) -> npt.NDArray[np.float64]:
        level = penalty * max(float(self.values[-1]), 1e-300)
        return np.asarray(self.axes @ (self.cross / (self.values + level)[:, None]))

    def __call__(self, penalty: float, z: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray((z - self.centre) @ self.slope(penalty) + self.mean)


@dataclass(frozen=True, eq=False)
class NetworkInverse:
    """What a network of one hidden layer adds to the linear inverse."""

    linear: RidgeInverse
    network: Any
    scales: tuple[Matrix, Matrix, float]

    @classmethod
    def fit(cls, outputs: Vectors, raw: Vectors, seed: int = 0) -> NetworkInverse:
        from sklearn.neural_network import MLPRegressor

        z, x = (np.asarray(rows, dtype=np.float32) for rows in (outputs, raw))
        linear = RidgeInverse.fit(z, x)
        rest = x - linear(z)
        deviation = z.std(axis=0)
        scale = np.where(deviation > 1e-6 * np.abs(z).max(), deviation, np.inf)
        size = float(rest.std()) or 1.0
        network = MLPRegressor(
            hidden_layer_sizes=(HIDDEN,),
            alpha=1e-3,
            learning_rate_init=3e-3,
            batch_size=min(128, len(z)),
            max_iter=EPOCHS,
            early_stopping=len(z) >= 100,
            n_iter_no_change=5,
            random_state=seed,
        )
        fit_quietly(network, (z - z.mean(axis=0)) / scale, rest / size)
        return cls(linear, network, (z.mean(axis=0), scale.astype(np.float32), size))

    def __call__(self, outputs: Vectors) -> Matrix:
        mean, scale, size = self.scales
        z = np.asarray(outputs, dtype=np.float32)
        return np.asarray(self.linear(z) + size * self.network.predict((z - mean) / scale))


def choose_inverse(outputs: Vectors, raw: Vectors, seed: int = 0) -> tuple[str, float]:
    """`ridge` or `network`, whichever explains more of held-back raw vectors, and how much.

    >>> random = np.random.default_rng(0)
    >>> x = random.normal(size=(200, 4))
    >>> choose_inverse(x @ random.normal(size=(4, 4)), x)[0]
    'ridge'
    """
    z, x = (np.asarray(rows, dtype=np.float32) for rows in (outputs, raw))
    last = max(1, round(SHARE * len(z)))
    total = float(((x[:last] - x[last:].mean(axis=0)) ** 2).mean()) or 1.0
    shares = {}
    for name, family in INVERSES.items():
        inverse = family(z[last:], x[last:], seed)
        shares[name] = 1 - float(((inverse(z[:last]) - x[:last]) ** 2).mean()) / total
        if shares[name] > SOLVED:  # a linear release: nothing is left for a network
            break
    best = max(shares, key=shares.__getitem__)
    return best, shares[best]


# Of the variance of raw vectors: more than this explained is an inverse, not a guess.
SOLVED = 0.999
INVERSES: dict[str, Any] = {
    "ridge": lambda outputs, raw, seed: RidgeInverse.fit(outputs, raw),
    "network": NetworkInverse.fit,
}


def fit_inverse(name: str, outputs: Vectors, raw: Vectors, seed: int = 0) -> Inverse:
    """The inverse of that name, from all pairs."""
    inverse: Inverse = INVERSES[name](outputs, raw, seed)
    return inverse
