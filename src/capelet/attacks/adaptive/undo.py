"""Undo: the likeliest raw vector behind a release, by the learnt map's own gradient.

Threat model: the attacker holds the folder (the map f), a released vector z = f(x), and raw vectors
of own texts, whose mean μ and covariance Σ are its prior of x. It minimises over u

    ‖z − f(u)‖²/σ² + (u − μ)ᵀ Σ⁻¹ (u − μ)

by Gauss–Newton steps damped after Levenberg and Marquardt, for a block of victims at once, from
several starts, and keeps the likeliest. For a map that loses nothing this *is* x; where the map has
lost directions, the prior fills them in with what is most likely.

With Σ = LLᵀ and u = μ + Lv the prior is ‖v‖², and a step solves, for J = ∂f/∂v and r = z − f,

    min over δ:  ‖r − Jδ‖²/σ² + ‖v + δ‖² + λ‖δ‖².

Its dual form needs a matrix of as many rows as z has coordinates, however singular Σ is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capelet.attacks.adaptive.pairs import RidgeInverse
from capelet.interfaces import Vectors

Matrix = npt.NDArray[np.float32]
# Images of some rows and their slopes, (n, out) and (n, out, in).
Linearise = Callable[[Matrix], tuple[Matrix, Matrix]]

# Victims whose slopes are in memory at once: 64 · 384 · 384 floats are 38 MB.
BLOCK = 64
# The variance of f(u) − z, as shares of that of z. A noiseless map is met to rounding, but not at
# once: first nearly so, while the prior still leads, or ReLUs far from the solution trap the walk.
SLACKS = (1e-2, 1e-4, 1e-6)
STEPS = 8  # at each slack
STARTS = 6  # regression, and the raw vectors of so many nearest own releases less one
# A residual of less than this share of the variance of z meets the release. Where the pre-image is
# also as likely as nine in ten own texts are, no other start is tried: a map may have several.
SOLVED, PLAUSIBLE = 1e-4, 0.9
SHRINKAGE = 1e-3


@dataclass(frozen=True, eq=False)
class Prior:
    """A Gaussian of raw vectors: its mean and a root of its covariance, Σ = root·rootᵀ."""

    mean: Matrix
    root: Matrix

    @classmethod
    def of(cls, raw: Vectors) -> Prior:
        """Shrunk towards a sphere: few own texts, or dead coordinates, make Σ singular."""
        rows = np.asarray(raw, dtype=np.float64)
        mean = rows.mean(axis=0)
        covariance = np.cov(rows.T, bias=True)
        covariance = np.atleast_2d(covariance)
        level = np.trace(covariance) / len(covariance)
        covariance += SHRINKAGE * level * np.eye(len(covariance))
        root = np.linalg.cholesky(covariance)
        return cls(mean.astype(np.float32), root.astype(np.float32))

    def whiten(self, rows: Vectors) -> Matrix:
        """v of u = mean + root·v."""
        from scipy.linalg import solve_triangular

        offsets = (np.asarray(rows, dtype=np.float32) - self.mean).T
        return np.asarray(solve_triangular(self.root, offsets, lower=True).T, dtype=np.float32)

    def colour(self, rows: Matrix) -> Matrix:
        """u = mean + root·v."""
        return np.asarray(rows @ self.root.T + self.mean)


@dataclass(frozen=True, eq=False)
class Undo:
    """What an attacker has prepared: the map, its own raw vectors and what became of them."""

    linearise: Linearise
    raw: Matrix
    outputs: Matrix
    prior: Prior
    regression: RidgeInverse
    plausible: float
    is_linear: bool = False

    @classmethod
    def of(
        cls, linearise: Linearise, raw: Vectors, outputs: Vectors, is_linear: bool = False
    ) -> Undo:
        """`is_linear` promises that the slopes are everywhere the same: then one step is exact."""
        own, images = (np.asarray(rows, dtype=np.float32) for rows in (raw, outputs))
        regression = RidgeInverse.fit(images, own)
        prior = Prior.of(own)
        # By the prior of the other half: rows that made Σ look likelier under it than they are.
        strangers = Prior.of(own[::2]).whiten(own[1::2])
        plausible = float(np.quantile((strangers**2).sum(axis=1), PLAUSIBLE))
        return cls(linearise, own, images, prior, regression, plausible, is_linear)

    def __call__(self, outputs: Vectors, starts: int = STARTS) -> Matrix:
        """The likeliest raw vector of each release."""
        targets = np.asarray(outputs, dtype=np.float32)
        scale = float(self.outputs.var(axis=0).sum()) or 1.0
        if self.is_linear:
            return self._conditional_mean(targets, SLACKS[-1] * scale / targets.shape[1])
        best = self.regression(targets)
        for start in range(0, len(targets), BLOCK):
            block = slice(start, start + BLOCK)
            best[block] = self._block(targets[block], best[block], starts, scale)
        return best

    def _conditional_mean(self, targets: Matrix, sigma: float) -> Matrix:
        """E[x | z] of a linear map: μ + L·Jᵀ(JJᵀ + σ²I)⁻¹(z − f(μ)), with one J for all."""
        zero = np.zeros((1, len(self.prior.mean)), dtype=np.float32)
        images, slopes = self._slopes(zero)
        slope = slopes[0].astype(np.float64)
        gram = slope @ slope.T
        gram[np.diag_indices_from(gram)] += sigma + 1e-9 * np.trace(gram) / len(gram)
        gain = np.linalg.solve(gram, slope)
        return self.prior.colour(((targets - images) @ gain).astype(np.float32))

    def _block(self, targets: Matrix, first: Matrix, starts: int, scale: float) -> Matrix:
        v, loss, residual = self._walk(targets, first, scale)
        for others in self._neighbours(targets, starts - 1):
            implausible = (v**2).sum(axis=1) > self.plausible
            open_rows = np.flatnonzero((residual > SOLVED * scale) | implausible)
            if not len(open_rows):
                break
            other, other_loss, other_residual = self._walk(
                targets[open_rows], others[open_rows], scale
            )
            better = other_loss < loss[open_rows]
            places = open_rows[better]
            v[places], loss[places] = other[better], other_loss[better]
            residual[places] = other_residual[better]
        return self.prior.colour(v)

    def _neighbours(self, targets: Matrix, count: int) -> Sequence[Matrix]:
        """Raw vectors of the own texts whose releases are nearest: nearest, second nearest, …"""
        if count < 1:
            return []
        squares = (self.outputs**2).sum(axis=1) - 2 * targets @ self.outputs.T
        order = np.argsort(squares, axis=1, kind="stable")[:, :count]
        return [self.raw[column] for column in order.T]

    def _walk(self, targets: Matrix, first: Matrix, scale: float) -> tuple[Matrix, Matrix, Matrix]:
        """Solutions from one start, their loss (less is likelier) and squared residuals."""
        v = self.prior.whiten(first)
        width = targets.shape[1]
        for slack in SLACKS:
            sigma = slack * scale / width  # σ², per coordinate
            v, loss, residual = self._descend(v, targets, sigma)
        return v, loss, residual

    def _descend(self, v: Matrix, targets: Matrix, sigma: float) -> tuple[Matrix, Matrix, Matrix]:
        damping = np.full(len(v), 1e-2, dtype=np.float32)
        images, slopes = self._slopes(v)
        gaps = targets - images
        loss = _loss(gaps, v, sigma)
        active = np.arange(len(v))
        for _ in range(STEPS):
            trial = v[active] + _step(
                slopes[active], gaps[active], v[active], sigma, damping[active]
            )
            trial_images, map_slopes = self.linearise(self.prior.colour(trial))
            trial_gaps = targets[active] - trial_images
            trial_loss = _loss(trial_gaps, trial, sigma)
            better = trial_loss < loss[active]
            places = active[better]
            gain = (loss[places] - trial_loss[better]) / loss[places]
            v[places], gaps[places] = trial[better], trial_gaps[better]
            # Only of steps that are taken, a third of them: the product is dear.
            slopes[places] = map_slopes[better] @ self.prior.root
            loss[places] = trial_loss[better]
            damping[places] *= 0.1
            damping[active[~better]] = np.minimum(damping[active[~better]] * 10 + 1e-3, 1e6)
            # Rows whose loss no longer falls have arrived.
            active = np.concatenate([places[gain > 1e-4], active[~better]])
            if not len(active):
                break
        return v, loss, (gaps**2).sum(axis=1)

    def _slopes(self, v: Matrix) -> tuple[Matrix, Matrix]:
        images, slopes = self.linearise(self.prior.colour(v))
        return images, slopes @ self.prior.root


def _loss(gaps: Matrix, v: Matrix, sigma: float) -> Matrix:
    return np.asarray((gaps**2).sum(axis=1) / sigma + (v**2).sum(axis=1))


def _step(slopes: Matrix, gaps: Matrix, v: Matrix, sigma: float, damping: Matrix) -> Matrix:
    """δ = −v/(1+λ) + Jᵀ(JJᵀ + σ²(1+λ)I)⁻¹(r + Jv/(1+λ)), for each row."""
    inside = 1 / (1 + damping)[:, None]
    gram = slopes @ slopes.transpose(0, 2, 1)
    diagonal = np.arange(gram.shape[1])
    # The jitter is below single precision's rounding of the largest entry.
    largest = gram[:, diagonal, diagonal].max(axis=1)
    gram[:, diagonal, diagonal] += (sigma / inside[:, 0] + 1e-6 * largest)[:, None]
    right = gaps + inside * np.einsum("noi,ni->no", slopes, v)
    dual = np.linalg.solve(gram, right[:, :, None])[:, :, 0]
    return np.asarray(np.einsum("noi,no->ni", slopes, dual) - inside * v, dtype=np.float32)
