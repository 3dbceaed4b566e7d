"""Vectors in, vectors out, with a guarantee that is true of what comes out.

Normalisation, clipping, noise and guarantee are one object: there is no sensitivity to get wrong
and no seed to fix. A mechanism learns nothing, keeps nothing between calls, and draws fresh noise
for every row of every call. A batch is checked as a whole before anything is drawn.

What leaves is float32, or float64 where float64 came in. The width of a batch and the number of its
rows are public.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from capelet.errors import DataError
from capelet.interfaces import Kind, Vectors
from capelet.mechanisms.sampling import (
    LARGEST,
    SPAN,
    Cells,
    Integers,
    NoiseStep,
    Stream,
    discrete_laplace,
    keep_or_change,
    rounded_gaussian,
)
from capelet.numerics import row_lengths, sign_product
from capelet.privacy.composition import Normal, Response
from capelet.privacy.guarantees import (
    Guarantee,
    check_count,
    check_number,
    gaussian_sigma,
    laplace_scale,
)

Reals = npt.NDArray[np.float64]
LEAST, MOST = 1e-9, 1e6  # the ε that a mechanism accepts


class OnVectors:
    """What the steps of this page share: vectors in and out, and a recipe entry."""

    consumes: Kind = "vectors"
    emits: Kind = "vectors"
    isolates_rows = True
    step: ClassVar[str]

    def describe(self) -> dict[str, Any]:
        return entry(self)


def entry(step: Any, **instead: Any) -> dict[str, Any]:
    """The step as it stands in a recipe: its name and arguments, some of them replaced.

    Arguments that are None are left out.
    """
    arguments = {item.name: getattr(step, item.name) for item in fields(step)} | instead
    return {"step": step.step, **{k: v for k, v in arguments.items() if v is not None}}


@dataclass(frozen=True)
class Laplace(NoiseStep, OnVectors):
    """ε-local privacy of whole texts: L1-normalised vectors plus exact discrete Laplace noise.

    Each row is divided by its L1 norm and truncated towards zero to multiples of 2^−k, so that two
    rows differ by at most Δ = 2 in L1, in integers. The noise on each coordinate is a multiple of
    2^−k with P(g) ∝ exp(−ε|g|/2^(k+1)). A zero row becomes the first unit vector. `dimension`
    fixes the width; without it each batch brings its own.

    >>> Laplace(epsilon=8)(np.ones((2, 3))).shape
    (2, 3)
    """

    step: ClassVar[str] = "laplace"
    epsilon: float
    dimension: int | None = None

    def __post_init__(self) -> None:
        _settle_epsilon(self)
        _settle_dimension(self, least=1)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon)

    @property
    def grid(self) -> int:
        """k: the release is made of multiples of 2^−k, at most 2^−17 of the noise's scale."""
        return grid(laplace_scale(self.epsilon), most=40)

    def draw(self, batch: Any, stream: Stream) -> Vectors:
        rows = checked_rows(batch, self.dimension)
        out = _empty(rows)
        scale = Fraction(2 << self.grid) / Fraction(self.epsilon)
        for part in _parts(rows):
            cells = l1_grid(rows[part], self.grid)
            cells += discrete_laplace(cells.shape, scale, stream)
            _emit(cells, 2.0**-self.grid, out[part])
        return out

    def log_density(self, outputs: Vectors, batch: Any) -> Reals:
        """ln p(z|x) = −ε‖z − x/‖x‖₁‖₁/2, by (release, input); the grid is finer than matters."""
        from scipy.spatial.distance import cdist

        centres = l1_grid(checked_rows(batch, self.dimension), self.grid) * 2.0**-self.grid
        return np.asarray(cdist(outputs, centres, "cityblock") / -laplace_scale(self.epsilon))


@dataclass(frozen=True)
class Gaussian(NoiseStep, OnVectors):
    """(ε, δ)-local privacy of whole texts: unit or clipped vectors plus exact rounded normal noise.

    Rows are L2-normalised, or, given a public bound `clip`, shortened to it where they are longer;
    then truncated towards zero to a grid, so that Δ₂ = 2·bound in integers. The noise is a real
    normal rounded to the grid, so the release is the rounded output of the continuous mechanism
    and its δ is that of Balle and Wang (2018), in any dimension.

    >>> Gaussian(epsilon=1, delta=1e-5).guarantee.sentence()
    '(1, 1e-05)-local differential privacy for each text (proven)'
    """

    step: ClassVar[str] = "gaussian"
    epsilon: float
    delta: float
    clip: float | None = None
    dimension: int | None = None

    def __post_init__(self) -> None:
        _settle_epsilon(self)
        delta = check_number("delta", self.delta, 1e-30, 0.5)
        object.__setattr__(self, "delta", delta)
        if self.clip is not None:
            object.__setattr__(self, "clip", check_number("clip", self.clip, 1e-20, 1e20))
        _settle_dimension(self, least=1)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, self.delta)

    @property
    def noise(self) -> Normal:
        """The law of its losses, for several texts of one person: Δ₂ = 2 bounds."""
        return Normal(2.0 / self.sigma)

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise, as a multiple of the bound."""
        return _sigma(self.epsilon, self.delta)

    @property
    def grid(self) -> int:
        return grid(self.sigma, most=22)

    def draw(self, batch: Any, stream: Stream) -> Vectors:
        rows = checked_rows(batch, self.dimension)
        out = _empty(rows)
        sigma = Fraction(self.sigma) * (1 << self.grid)
        unit = 2.0**-self.grid * (self.clip or 1.0)
        for part in _parts(rows):
            cells = l2_grid(rows[part], self.grid, self.clip)
            cells += rounded_gaussian(cells.shape, sigma, stream)
            _emit(cells, unit, out[part])
        return out

    def log_density(self, outputs: Vectors, batch: Any) -> Reals:
        """ln p(z|x) = −‖z − x‖²/2σ², by (release, input), x as it is normalised or clipped."""
        from scipy.spatial.distance import cdist

        bound = self.clip or 1.0
        rows = checked_rows(batch, self.dimension)
        centres = l2_grid(rows, self.grid, self.clip) * (2.0**-self.grid * bound)
        squares = cdist(outputs, centres, "sqeuclidean")
        return np.asarray(squares / (-2 * (self.sigma * bound) ** 2))


@dataclass(frozen=True)
class PrivUnit(NoiseStep, OnVectors):
    """ε-local privacy of directions, with an error of about d/min(ε, ε²) where Laplace has d²/ε².

    A row is L2-normalised to u; what leaves is V/m, where the unit vector V is uniform over the cap
    {⟨V, u⟩ ≥ γ} with probability p and over its complement otherwise, and m makes it unbiased.
    γ and p are those of least error at ε (Bhowmick et al. 2018; Asi et al. 2022). The proof is in
    real arithmetic; the outcome is computed in float64 and rounded to multiples of 2^−20/m.
    """

    step: ClassVar[str] = "privunit"
    epsilon: float
    dimension: int | None = None

    def __post_init__(self) -> None:
        _settle_epsilon(self, most=200.0)
        _settle_dimension(self, least=2)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, caveat="in real arithmetic, not to the last bit of a float")

    def draw(self, batch: Any, stream: Stream) -> Vectors:
        rows = checked_rows(batch, self.dimension)
        width = rows.shape[1]
        if width < 2:
            raise DataError("privunit needs vectors of two coordinates or more; found one")
        out = _empty(rows)
        # Dividing by m makes E[V/m] = u; m, and with it the grid, is public.
        cap = spherical_cap(self.epsilon, width)
        for part in _parts(rows):
            out[part] = np.rint(_in_cap(_unit(rows[part]), cap, stream) * 2.0**20) * (
                2.0**-20 / cap.mean
            )
        return out

    def log_density(self, outputs: Vectors, batch: Any) -> Reals:
        """ln p(z|x) by (release, input): one level inside the cap around x, another outside."""
        from scipy.special import betaincinv

        units = _unit(checked_rows(batch, self.dimension))
        cap = spherical_cap(self.epsilon, units.shape[1])
        edge = 1.0 - 2.0 * betaincinv(cap.shape, cap.shape, cap.share)
        inside, outside = (
            math.log(chance / share)
            for chance, share in ((cap.inside, cap.share), (1 - cap.inside, 1 - cap.share))
        )
        cosines = np.asarray(outputs, dtype=np.float64) @ units.T * cap.mean
        return np.where(cosines >= edge, inside, outside)


@dataclass(frozen=True)
class RandomisedResponse(NoiseStep, OnVectors):
    """ε-local privacy of a label: the true class with probability e^ε/(e^ε + m − 1), else another.

    Rows are scores or probabilities of `classes` classes, whose largest entry is the label (the
    first of equals); what leaves is one-hot. It attains the ceiling: where the bottleneck is the
    label, no mechanism is better (Kairouz, Bonawitz and Ramage 2016).

    >>> float(RandomisedResponse(epsilon=2, classes=3)(np.eye(3)).sum())
    3.0
    """

    step: ClassVar[str] = "randomised-response"
    epsilon: float
    classes: int

    def __post_init__(self) -> None:
        _settle_epsilon(self)
        object.__setattr__(self, "classes", check_count("classes", self.classes, least=2))

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon)

    @property
    def outcomes(self) -> int:
        """How many values a released row can take: one for each class."""
        return self.classes

    @property
    def noise(self) -> Response:
        """The law of its losses, for several texts of one person."""
        return Response(self.epsilon, symbols=self.classes)

    def labels(self, labels: npt.NDArray[np.integer[Any]]) -> Integers:
        """Randomised labels 0 … classes − 1."""
        return self._change(labels, Stream())

    def _change(self, labels: npt.NDArray[np.integer[Any]], stream: Stream) -> Integers:
        codes = np.asarray(labels)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise DataError("labels must be one row of whole numbers")
        if codes.size and not 0 <= codes.min() <= codes.max() < self.classes:
            raise DataError(
                f"labels must lie between 0 and {self.classes - 1}; "
                f"found {codes.min()} to {codes.max()}"
            )
        change = _coin(self.epsilon, self.classes - 1).draw(codes.size, stream)
        # Another class, uniformly: 1 … classes − 1 steps round the circle.
        shift = 1 + stream.below(self.classes - 1, codes.size)
        return (codes.astype(np.int64) + change * shift) % self.classes

    def draw(self, batch: Any, stream: Stream) -> Vectors:
        rows = checked_rows(batch, self.classes)
        out = np.zeros_like(_empty(rows))
        # Only the label goes through the noise; the scores themselves never leave.
        out[np.arange(len(rows)), self._change(rows.argmax(axis=1), stream)] = 1.0
        return out

    def log_density(self, outputs: Vectors, batch: Any) -> Reals:
        """ln P(z|x) by (release, input): ε more where z is the label of x, up to a constant."""
        labels = checked_rows(batch, self.classes).argmax(axis=1)
        same = np.asarray(outputs).argmax(axis=1)[:, None] == labels
        return np.where(same, self.epsilon, 0.0)


@dataclass(frozen=True)
class Projection(OnVectors):
    """A fixed, public projection to few dimensions (Johnson and Lindenstrauss), before the noise.

    The matrix has entries ±1/√dimension read off SHAKE-256 of its shape: the same on every machine,
    independent of any text, and no secret. A row is rounded to some 2^−42 of its largest entry, and
    its sums are exact: the result is the same on every machine, too. It adds no noise and promises
    nothing by itself.
    """

    step: ClassVar[str] = "projection"
    guarantee: ClassVar[None] = None
    dimension: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimension", check_count("dimension", self.dimension))

    def __call__(self, batch: Any) -> Vectors:
        rows = checked_rows(batch, None)
        out = np.empty((len(rows), self.dimension), dtype=_empty(rows).dtype)
        most = np.finfo(out.dtype).max
        for part in _parts(rows):
            peaks, small = _over_peak(rows[part])
            sums = sign_product(small, signs(rows.shape[1], self.dimension))
            with np.errstate(over="ignore"):
                wide = sums / math.sqrt(self.dimension) * peaks
            out[part] = np.clip(wide, -most, most)
        return out


# ---- what comes in -------------------------------------------------------------------------------


def checked_rows(batch: Any, width: int | None) -> Vectors:
    """The batch as an (n, d) float array, or an error that says what is wrong with it."""
    rows = np.asarray(batch)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise DataError(
            f"vectors must come as an (n, d) array, one row per text; found shape {rows.shape}"
        )
    if rows.dtype.kind not in "fiu":
        raise DataError(f"vectors must be numbers; found the type {rows.dtype}")
    if width is not None and rows.shape[1] != width:
        raise DataError(f"vectors must have {width} coordinates; found {rows.shape[1]}")
    if rows.dtype.kind != "f" or rows.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float64)
    # Bytes in another order are the same numbers of another type.
    rows = rows.astype(rows.dtype.newbyteorder("="), copy=False)
    if not np.isfinite(rows).all():
        bad = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise DataError(f"row {bad} holds NaN or infinity; nothing was released")
    return rows


def _settle_epsilon(step: Any, most: float = MOST) -> None:
    object.__setattr__(step, "epsilon", check_number("epsilon", step.epsilon, LEAST, most))


def _settle_dimension(step: Any, least: int) -> None:
    if step.dimension is not None:
        object.__setattr__(step, "dimension", check_count("dimension", step.dimension, least))


def _empty(rows: Vectors) -> Vectors:
    return np.empty(rows.shape, dtype=np.float64 if rows.dtype == np.float64 else np.float32)


def _parts(rows: Vectors) -> Iterator[slice]:
    """Blocks of rows that fit the cache."""
    step = max(1, SPAN // rows.shape[1])  # a row is never cut, however wide it is
    return (slice(start, start + step) for start in range(0, len(rows), step))


# ---- onto the grid -------------------------------------------------------------------------------


def grid(scale: float, most: int) -> int:
    """k, for a grid of 2^−k: 2^−19 to 2^−18 of the noise's scale, never coarser than 2^−16."""
    return min(max(18 - math.floor(math.log2(scale)), 16), most)


def l1_grid(rows: Vectors, k: int) -> Integers:
    """Rows over their L1 norms, truncated to integers in units of 2^−k: Σ|n| ≤ 2^k, checked."""
    _, small = _by_peak(rows)
    norms = np.abs(small).sum(axis=1, keepdims=True)
    small *= 2.0**k
    small /= np.where(norms > 0, norms, 1.0)
    cells = small.astype(np.int64)  # towards zero: rounding could leave the ball
    cells[norms[:, 0] == 0, 0] = 1 << k
    if rows.size and int(np.abs(cells).sum(axis=1).max()) > 1 << k:
        raise AssertionError("a row left the L1 ball of the grid; nothing was released")
    return cells


def l2_grid(rows: Vectors, k: int, clip: float | None) -> Integers:
    """Directions, or rows cut to `clip` and divided by it, truncated: Σn² ≤ 4^k, checked."""
    if clip is None:
        small = _unit(rows)
    else:
        peaks, small = _by_peak(rows)
        norms = row_lengths(small)
        with np.errstate(over="ignore"):
            small *= np.minimum(peaks / clip, 1.0 / np.where(norms > 0, norms, 1.0))
    cells = (small * 2.0**k).astype(np.int64)
    if rows.size and int((cells * cells).sum(axis=1).max()) > 1 << (2 * k):
        raise AssertionError("a row left the L2 ball of the grid; nothing was released")
    return cells


def _emit(cells: Integers, unit: float, out: Vectors) -> None:
    """Integers to floats. A draw that saturated the sampler is cut with the sum, never alone."""
    np.clip(cells, -LARGEST // 2, LARGEST // 2, out=cells)
    np.multiply(cells, unit, out=out, casting="same_kind")


def _by_peak(rows: Vectors) -> tuple[Reals, Reals]:
    """The largest magnitude of each row, and the row over it: neither overflows nor vanishes."""
    if rows.dtype != np.float64:  # a float32 squared and summed is far from the ends of float64
        return np.ones((len(rows), 1)), rows.astype(np.float64, order="C")
    return _over_peak(rows)


def _over_peak(rows: Vectors) -> tuple[Reals, Reals]:
    """The same for any type: every number lies within ±1."""
    wide = rows.astype(np.float64, order="C")
    peaks = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    wide /= np.where(peaks > 0, peaks, 1.0)
    return peaks, wide


def _unit(rows: Vectors) -> Reals:
    """Rows over their L2 norms; a zero row becomes the first unit vector."""
    _, small = _by_peak(rows)
    norms = row_lengths(small)
    small /= np.where(norms > 0, norms, 1.0)
    small[norms[:, 0] == 0, 0] = 1.0
    return small


# ---- parameters, computed once -------------------------------------------------------------------


@lru_cache(maxsize=64)
def _sigma(epsilon: float, delta: float) -> float:
    return gaussian_sigma(epsilon, delta, sensitivity=2.0)


@lru_cache(maxsize=64)
def _coin(epsilon: float, others: int) -> Cells:
    return keep_or_change(Fraction(epsilon), others)


@lru_cache(maxsize=8)
def signs(width: int, dimension: int) -> Reals:
    """The (width, dimension) matrix of ±1 that `Projection` applies, over √dimension."""
    count = width * dimension
    name = f"capelet projection {width} x {dimension}".encode()
    # A hash, not a generator: numpy may change what a seed gives, and old recipes would break.
    raw = np.frombuffer(hashlib.shake_256(name).digest(-(-count // 8)), dtype=np.uint8)
    bits = np.unpackbits(raw)[:count].reshape(width, dimension)
    matrix: Reals = 2.0 * bits.astype(np.float64) - 1.0
    matrix.flags.writeable = False
    return matrix


@dataclass(frozen=True)
class Cap:
    """A spherical cap {⟨v, u⟩ ≥ γ}: its share of the sphere, p, and the mean of ⟨V, u⟩."""

    shape: float  # (⟨v, u⟩ + 1)/2 of a uniform v is Beta(shape, shape)
    share: float
    inside: float
    mean: float


@lru_cache(maxsize=64)
def spherical_cap(epsilon: float, width: int) -> Cap:
    """The cap of least error among those with p/share = e^ε · (1 − p)/(1 − share).

    The error of V/m is 1/m² − 1, so m is maximised over the share, by a grid on its logarithm.
    """
    from scipy.special import betaincinv, gammaln

    # The density of t = ⟨v, u⟩ on the sphere is ∝ (1 − t²)^((width − 3)/2): Beta((width − 1)/2) on
    # [−1, 1]. Any other exponent puts more than e^ε between cap and complement.
    shape = (width - 1) / 2
    logs = np.linspace(-min(epsilon + 8.0, 600.0), math.log(0.5), 4001)
    quantiles = betaincinv(shape, shape, np.exp(logs))  # γ = 1 − 2·quantile
    logs, quantiles = logs[quantiles > 1e-300], quantiles[quantiles > 1e-300]
    shares = np.exp(logs)
    odds = np.exp(epsilon + logs - np.log1p(-shares))  # p/(1 − p)
    inside = odds / (1.0 + odds)
    constant = gammaln(shape + 0.5) - gammaln(shape) - 0.5 * math.log(math.pi)
    log_square = np.log(4.0 * quantiles) + np.log1p(-quantiles)  # ln(1 − γ²)
    moment = np.exp(constant + shape * log_square) / (2 * shape)  # E[T; T ≥ γ]
    means = moment * (inside / shares - (1.0 - inside) / (1.0 - shares))
    # A coin of 53 bits must be able to fall outside: p stays clear of 1.
    best = int(np.argmax(np.where(odds <= 2.0**30, means, -1.0)))
    return Cap(shape, float(shares[best]), float(inside[best]), float(means[best]))


def _in_cap(units: Reals, cap: Cap, stream: Stream) -> Reals:
    """Unit vectors, inside the cap around each row with probability p, outside it otherwise."""
    from scipy.special import betaincinv, ndtri

    inside = stream.uniform(len(units)) < cap.inside
    level = stream.uniform(len(units))
    # ⟨V, u⟩ by its quantile function, restricted to the tail that is cap or complement.
    tail = np.where(inside, level * cap.share, level * (1.0 - cap.share))
    quantile = betaincinv(cap.shape, cap.shape, tail)
    along = np.where(inside, 1.0 - 2.0 * quantile, 2.0 * quantile - 1.0)[:, None]
    across = ndtri(stream.uniform(*units.shape))
    # A normal vector without its part along u, at length 1, is uniform on the sphere around u.
    across -= (across * units).sum(axis=1, keepdims=True) * units
    across /= np.sqrt((across * across).sum(axis=1, keepdims=True))
    return along * units + np.sqrt(np.maximum(1.0 - along * along, 0.0)) * across
