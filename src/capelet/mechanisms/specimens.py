"""Mechanisms that are wrong: kept to prove that our checks can fail.

Each states the ε that its authors would, with status `broken`; none is in the table of mechanisms.
`source` says where such a form is found, `leaks` what it gives away. The published ones draw
ordinary float noise, since exactness would not save them. The planted ones have a single fault each
and are right otherwise, on a grid with exact noise: no lowest bit convicts them of something else.

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
from capelet.mechanisms.sampling import NoiseStep, Stream, discrete_laplace
from capelet.mechanisms.vectors import OnVectors, checked_rows
from capelet.privacy.guarantees import Guarantee, check_number

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

CELL = 2.0**-20  # the grid of the planted specimens
POOL = 4096  # rows of noise in a pool
RAW = 1e-3  # the share of rows without noise


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


class RowRange(NoiseStep, Specimen):
    """Each row is stretched to [0, 1] and gets Lap(1/ε): its L1 sensitivity is d, not 1."""

    step = "row-range"
    source = "Lyu et al. (2020), DPNR, algorithms 1 and 2; corrected by Maheshwari et al. (2022)"
    leaks = "d times the stated ε: 38.4 where 0.05 is claimed at d = 768"

    # From a stream, so that a study can put it where the right noise stands, and repeat it.
    def draw(self, batch: Any, stream: Stream) -> Vectors:
        rows = checked_rows(batch, None).astype(np.float64)
        # The inverse of Laplace's distribution at u + 1/2: −sgn(u) ln(1 − 2|u|).
        u = stream.uniform(*rows.shape) - 0.5
        return _stretch(rows, axis=1) - np.sign(u) * np.log1p(-2 * np.abs(u)) / self.epsilon


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
    draws = False
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
    draws = False

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


# ---- planted: one fault each, all else exact -----------------------------------------------------


class Planted(Specimen):
    """L1-unit rows on a grid plus exact Laplace noise: right but for what a subclass changes."""

    source = "planted: a slip that a test of single outputs, or of large calls, does not see"

    def _release(self, rows: Reals) -> Vectors:
        return (self._cells(rows) + self._noise(rows.shape)) * CELL

    def _cells(self, rows: Reals) -> Integers:
        """The rows before the noise, in cells of the grid."""
        return _truncate(_l1(rows))

    def _noise(self, shape: tuple[int, ...]) -> Integers:
        return discrete_laplace(shape, self._scale)

    @property
    def _scale(self) -> float:
        return 2 / self.epsilon / CELL


class ScaleNineTenths(Planted):
    """The noise has 0.9 times its scale."""

    step = "scale-0.9"
    source = "planted: a scale that was rounded, or tuned a little"
    leaks = "1.11 times the stated ε, between a unit vector and its negative"
    factor: ClassVar[float] = 0.9

    @property
    def _scale(self) -> float:
        return self.factor * super()._scale


class ScaleThreePerCentLess(ScaleNineTenths):
    """The noise has 0.97 times its scale."""

    step = "scale-0.97"
    source = "planted: the least error of scale that a million outputs can prove at ε = 1"
    leaks = "1.03 times the stated ε, between a unit vector and its negative"
    factor = 0.97


class L2Clip(Planted):
    """Rows are clipped to the L2 ball of radius 1; the noise belongs to the L1 ball."""

    step = "l2-clip"
    source = "planted: clipping as for normal noise, the scale as for L1"
    leaks = "√d times the stated ε between ±1/√d: 4 for 1 at d = 16"

    def _cells(self, rows: Reals) -> Integers:
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return _truncate(rows / np.maximum(norms, 1.0))


class LInfClip(Planted):
    """Each coordinate is clipped to [−1, 1]; the noise belongs to the L1 ball."""

    step = "linf-clip"
    source = "planted: clipping coordinate by coordinate, the scale as for whole rows"
    leaks = "d times the stated ε between corners of the cube"

    def _cells(self, rows: Reals) -> Integers:
        return _truncate(np.clip(rows, -1.0, 1.0))


class BatchScale(Planted):
    """All rows of a call are divided by the longest one's L1 norm."""

    step = "batch-scale"
    source = "planted: one scale a batch, which keeps each row within the L1 ball"
    leaks = "a long row shrinks all others: up to half the stated ε through each of them"

    def _cells(self, rows: Reals) -> Integers:
        longest = np.abs(rows).sum(axis=1).max(initial=0.0)
        return _truncate(rows / (longest or 1.0))


class LowBit(Planted):
    """The lowest bit of each released coordinate is the sign of the input's."""

    step = "low-bit"
    source = "planted: a watermark, or a flag packed into what seemed to be noise"
    leaks = "the sign of every coordinate, exactly"

    def _release(self, rows: Reals) -> Vectors:
        cells = self._cells(rows) + self._noise(rows.shape)
        return ((cells & ~np.int64(1)) | (rows > 0)) * CELL


class AntitheticNeighbours(Planted):
    """Every second row of a call has the negated noise of the row before it."""

    step = "antithetic-neighbours"
    source = "planted: antithetic variates, which halve the variance of a mean"
    leaks = "the sum of two neighbours, exactly; one known text reveals the other"

    def _noise(self, shape: tuple[int, ...]) -> Integers:
        noise = super()._noise(shape)
        noise[1::2] = -noise[0::2][: len(noise) // 2]
        return noise


class SharedAtDistance2(Planted):
    """Rows i and i + 2 of a call have the same noise."""

    step = "shared-at-2"
    source = "planted: a generator that is reset for every block of rows"
    leaks = "the difference of two rows so far apart, exactly"
    distance: ClassVar[int] = 2

    def _noise(self, shape: tuple[int, ...]) -> Integers:
        noise = super()._noise(shape)
        places = np.arange(len(noise))
        return noise[np.where(places // self.distance % 2, places - self.distance, places)]


class SharedAtDistance64(SharedAtDistance2):
    """Rows i and i + 64 of a call have the same noise."""

    step = "shared-at-64"
    distance = 64


class NoisePool(Planted):
    """Each row takes one of 4,096 rows of noise that were drawn once."""

    step = "noise-pool"
    source = "planted: noise drawn ahead, to save time"
    leaks = "differences of rows that drew the same noise: every pair of calls has such rows"
    _pools: dict[int, Integers]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_pools", {})

    def _noise(self, shape: tuple[int, ...]) -> Integers:
        width = shape[1]
        if width not in self._pools:
            self._pools[width] = super()._noise((POOL, width))
        return self._pools[width][np.random.default_rng().integers(POOL, size=shape[0])]


class RawRow(Planted):
    """One row in a thousand leaves without noise."""

    step = "raw-row"
    source = "planted: a branch that is hardly ever taken"
    leaks = "the row itself, with probability 1/1000: no ε is finite"

    def _noise(self, shape: tuple[int, ...]) -> Integers:
        is_raw = np.random.default_rng().random((shape[0], 1)) < RAW
        return np.where(is_raw, 0, super()._noise(shape))


class NoNoiseBelow32(Planted):
    """A call of fewer than 32 rows adds no noise."""

    step = "no-noise-below-32"
    source = "planted: a path for small batches that was forgotten"
    leaks = "everything, in calls of fewer than 32 rows"
    least: ClassVar[int] = 32

    def _noise(self, shape: tuple[int, ...]) -> Integers:
        return super()._noise(shape) * (shape[0] >= self.least)


class NoNoiseForOneRow(NoNoiseBelow32):
    """A call of a single row adds no noise."""

    step = "no-noise-for-one-row"
    source = "planted: a fast path for single requests"
    leaks = "everything, in calls of one row"
    least = 2


class ZeroSumBatches(Planted):
    """The noise of all rows of a call adds up to 0."""

    step = "zero-sum"
    source = "planted: noise that is made to cancel in the mean of a batch"
    leaks = "the sum of a call, exactly: whoever knows all texts but one knows that one"

    def _noise(self, shape: tuple[int, ...]) -> Integers:
        noise = super()._noise(shape)
        if len(noise) > 1:
            noise[-1] = -noise[:-1].sum(axis=0)
        return noise


_PUBLISHED = (
    *(OneScalarPerRow, RowRange, BatchRange, SharedNoise, ReusedNoise, FixedSeed),
    *(L2Laplace, HalfNoise, FloatLaplace),
)
_PLANTED = (
    *(ScaleNineTenths, ScaleThreePerCentLess, L2Clip, LInfClip, BatchScale, LowBit),
    *(AntitheticNeighbours, SharedAtDistance2, SharedAtDistance64, NoisePool, RawRow),
    *(NoNoiseForOneRow, NoNoiseBelow32, ZeroSumBatches),
)
PUBLISHED: dict[str, Callable[[float], Specimen]] = {item.step: item for item in _PUBLISHED}
PLANTED: dict[str, Callable[[float], Specimen]] = {item.step: item for item in _PLANTED}
SPECIMENS = PUBLISHED | PLANTED


def _laplace(scale: float, shape: tuple[int, ...]) -> Reals:
    return np.random.default_rng().laplace(0.0, scale, shape)


def _l1(rows: Reals) -> Reals:
    norms = np.abs(rows).sum(axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)


def _truncate(rows: Reals) -> Integers:
    """Cells of the grid, towards zero: no coordinate grows, so no bound on the row is passed."""
    return np.trunc(rows / CELL).astype(np.int64)


def _stretch(rows: Reals, axis: int | None) -> Reals:
    """Stretched to [0, 1] over `axis` (None: the whole batch); constants become 0, not 0/0."""
    if not rows.size:
        return rows
    low = rows.min(axis=axis, keepdims=True)
    span = rows.max(axis=axis, keepdims=True) - low
    return (rows - low) / np.where(span > 0, span, 1.0)
