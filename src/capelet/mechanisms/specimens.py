"""Mechanisms that are wrong, as they were found: kept to prove that our checks can fail.

Each states the ε that its authors would, with status `broken`; none is in the table of mechanisms.
They draw ordinary float noise, since exactness would not save them. `source` says where such a
form is found, `leaks` what it gives away.

>>> OneScalarPerRow(epsilon=1.0).guarantee.status
'broken'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from capelet.interfaces import Vectors
from capelet.mechanisms.vectors import OnVectors, checked_rows
from capelet.privacy.guarantees import Guarantee, check_number

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Specimen(OnVectors):
    """A wrong mechanism with the ε it claims."""

    epsilon: float
    source: ClassVar[str]
    leaks: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_number("epsilon", self.epsilon, 1e-9, 1e6))

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, status="broken")

    def describe(self) -> dict[str, Any]:
        return {"step": f"specimen:{self.step}", "epsilon": self.epsilon}

    def __call__(self, batch: Any) -> Vectors:
        return self._release(checked_rows(batch, None).astype(np.float64))

    def _release(self, rows: Reals) -> Vectors:
        raise NotImplementedError


class OneScalarPerRow(Specimen):
    """One draw of noise is added to every coordinate of a row."""

    step = "one-scalar-per-row"
    source = "the public code of Lyu et al. (2020), DPNR, which broadcasts one draw over a row"
    leaks = "everything: a row's minimum was 0, so subtracting the minimum removes the noise"

    def _release(self, rows: Reals) -> Vectors:
        return _stretch(rows, axis=1) + _laplace(1 / self.epsilon, (len(rows), 1))


class RowRange(Specimen):
    """Each row is stretched to [0, 1] and gets Lap(1/ε): its L1 sensitivity is d, not 1."""

    step = "row-range"
    source = "Lyu et al. (2020), DPNR, algorithms 1 and 2; corrected by Maheshwari et al. (2022)"
    leaks = "d times the stated ε: 38.4 where 0.05 is claimed at d = 768"

    def _release(self, rows: Reals) -> Vectors:
        return _stretch(rows, axis=1) + _laplace(1 / self.epsilon, rows.shape)


class BatchRange(Specimen):
    """The whole batch is stretched to [0, 1] by its own extremes, then gets Lap(1/ε)."""

    step = "batch-range"
    source = "the public code of Plant et al. (2021), CAPE: one minimum and maximum per batch"
    leaks = "d times the stated ε, and each row's extremes through the scale of all other rows"

    def _release(self, rows: Reals) -> Vectors:
        return _stretch(rows, axis=None) + _laplace(1 / self.epsilon, rows.shape)


class SharedNoise(Specimen):
    """One noise vector serves all rows of a call."""

    step = "shared-noise"
    source = "the public code of Plant et al. (2021), CAPE: noise of one row's shape per batch"
    leaks = "differences between rows, exactly; one known text reveals all others of its batch"

    def _release(self, rows: Reals) -> Vectors:
        return _l1(rows) + _laplace(2 / self.epsilon, (1, rows.shape[1]))


class ReusedNoise(Specimen):
    """One noise vector is drawn when the layer is built, and serves every row of every call."""

    step = "reused-noise"
    source = "the public code of Plant et al. (2021), CAPE: sampled while the model is being built"
    leaks = "differences between all releases, exactly; many releases average to the noise itself"
    _noise: dict[int, Reals]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_noise", {})

    def _release(self, rows: Reals) -> Vectors:
        width = rows.shape[1]
        if width not in self._noise:
            self._noise[width] = _laplace(2 / self.epsilon, (1, width))
        return _l1(rows) + self._noise[width]


class FixedSeed(Specimen):
    """Sound noise from a published seed: whoever knows the seed subtracts it."""

    step = "fixed-seed"
    source = "Plant et al., YAWYW, whose table of settings fixes the random seed at 42"
    leaks = "everything: the same noise comes again on every call, and anyone can compute it"

    def _release(self, rows: Reals) -> Vectors:
        return _l1(rows) + np.random.default_rng(42).laplace(0, 2 / self.epsilon, rows.shape)


class L2Laplace(Specimen):
    """Rows are L2-normalised, but the noise is Lap(2/ε), which belongs to L1-normalised ones."""

    step = "l2-laplace"
    source = "public code of these methods that L2-normalises, as encoders do by default"
    leaks = "√d times the stated ε: 27.7 where 1 is claimed at d = 768, between ±1/√d"

    def _release(self, rows: Reals) -> Vectors:
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(norms > 0, norms, 1.0) + _laplace(2 / self.epsilon, rows.shape)


class HalfNoise(Specimen):
    """Lap(1/ε) on L1-normalised rows: the sensitivity is taken for 1, the radius of the ball."""

    step = "half-noise"
    source = "a slip rather than a paper: the norm bound used where its double is needed"
    leaks = "twice the stated ε, between a unit vector and its negative"

    def _release(self, rows: Reals) -> Vectors:
        return _l1(rows) + _laplace(1 / self.epsilon, rows.shape)


class FloatLaplace(Specimen):
    """The right scale, added in floating point."""

    step = "float-laplace"
    source = "nearly every implementation; the attack is Mironov (2012)"
    leaks = "the centre, through the lowest bits: advantage about 0.27 between 0 and 1 at scale 1"

    def _release(self, rows: Reals) -> Vectors:
        return _l1(rows) + _laplace(2 / self.epsilon, rows.shape)


SPECIMENS: dict[str, Callable[[float], Specimen]] = {
    "one-scalar-per-row": OneScalarPerRow,
    "row-range": RowRange,
    "batch-range": BatchRange,
    "shared-noise": SharedNoise,
    "reused-noise": ReusedNoise,
    "fixed-seed": FixedSeed,
    "l2-laplace": L2Laplace,
    "half-noise": HalfNoise,
    "float-laplace": FloatLaplace,
}


def _laplace(scale: float, shape: tuple[int, ...]) -> Reals:
    return np.random.default_rng().laplace(0.0, scale, shape)


def _l1(rows: Reals) -> Reals:
    norms = np.abs(rows).sum(axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)


def _stretch(rows: Reals, axis: int | None) -> Reals:
    """Stretched to [0, 1] over `axis` (None: the whole batch); constants become 0, not 0/0."""
    if not rows.size:
        return rows
    low = rows.min(axis=axis, keepdims=True)
    span = rows.max(axis=axis, keepdims=True) - low
    return (rows - low) / np.where(span > 0, span, 1.0)
