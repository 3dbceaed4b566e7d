"""Products, lengths and shares of rows, each a function of its own row to the last bit.

ε is about one text because a text's vector is a function of that text. Sums of floats depend on
their order, and a library chooses its order by the number of rows, their place and their alignment:
through a plain matrix product a row would get other last bits from the company it is in. So
whatever a released row passes after its encoder is computed here, by one of two ways that are exact
by proof:

- *Rounded once* (`affine`). The product of two float32 numbers is exact in float64, and any order
  of adding K of them errs by at most γ = K·u/(1 − K·u) of the sum of magnitudes (Higham, *Accuracy
  and Stability of Numerical Algorithms*, 2002, section 3.1), u = 2⁻⁵³. Where both ends of that
  interval round to one float32, so does the exact sum: rounding is monotone. Where they do not
  (some 1.5 of 10⁵ values), `math.fsum` adds exactly. Either way the result is the exact sum rounded
  to float64 and then to float32, whatever kernel, place, alignment or number of threads.
- *Whole numbers* (`sign_product`). Sums of integers below 2⁵³ are exact in float64 in any order.

Not exact, though it looks so: a float64 product merely rounded to float32, one row at a time,
`einsum`, fixed blocks, `torch.bmm` with an expanded weight. Each moved rows for some shape.

Element-wise functions of NumPy and sums along rows in C order do not see other rows. All of this is
said of a processor that keeps denormal numbers, as NumPy leaves it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_UNIT = 2.0**-53  # of rounding, in float64
_VALUES = 1 << 20  # of one block, so that wide layers do not hold the sums of all rows at once
_MANY = 1000  # values of a block to add exactly, from which on equal rows are looked for
SHORTEST = 1e-12  # what a shorter row counts as, when rows are brought to length one


def standard_scale(rows: npt.NDArray[np.floating[Any]]) -> tuple[Reals, Reals]:
    """Mean and inverse deviation of each coordinate; of a dead one (MiniLM has three) 0."""
    wide = np.asarray(rows, dtype=np.float64)
    mean, deviation = wide.mean(axis=0), wide.std(axis=0)
    # Measured against the coordinate's own size: rounding keeps a dead one from being exactly
    # constant.
    alive = deviation > 1e-6 * np.maximum(np.abs(wide).max(axis=0), 1e-30)
    return mean, np.where(alive, 1 / np.where(alive, deviation, 1.0), 0.0)


def cosines(rows: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The cosine of each row with its counterpart; 0 where one has no length."""
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(others, axis=1)
    return np.asarray((rows * others).sum(axis=1) / np.maximum(norms, SHORTEST))


def padded(rows: Sequence[Sequence[int]], width: int, pad: int = 0) -> Integers:
    """Rows of numbers as one array of this width, filled up with `pad`.

    >>> padded([[1, 2], [3]], 2).tolist()
    [[1, 2], [3, 0]]
    """
    table = np.full((len(rows), width), pad, dtype=np.int64)
    for row, numbers in enumerate(rows):
        table[row, : len(numbers)] = numbers
    return table


def affine(rows: Matrix, weight: Matrix, bias: Matrix) -> Matrix:
    """rows·weightᵀ + bias, each value the exact sum rounded once.

    >>> affine(np.float32([[1, 2]]), np.float32([[3, 4], [1e30, 0]]), np.float32([5, 0]))
    array([[1.6e+01, 1.0e+30]], dtype=float32)
    """
    wide_weight = np.ascontiguousarray(weight.T, dtype=np.float64)
    wide_bias = bias.astype(np.float64)
    out = np.empty((len(rows), len(bias)), dtype=np.float32)
    step = max(1, _VALUES // max(1, *weight.shape))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        wide = np.ascontiguousarray(rows[part], dtype=np.float64)
        out[part] = _rounded_sums(wide, wide_weight, wide_bias)
    return out


def _rounded_sums(rows: Reals, weight: Reals, bias: Reals) -> Matrix:
    # Twice what any order of adding K products and a bias can be off, and room for the rounding of
    # the bound and of the two ends.
    share = 2.0 * (len(weight) + 4) * _UNIT
    # A sum beyond float32 is infinite, as in a plain product; the caller sees to that.
    with np.errstate(over="ignore", invalid="ignore"):
        total = rows @ weight
        total += bias
        # Σ|x·w| ≤ ‖x‖·‖w‖ (Cauchy, Schwarz).
        bound = row_lengths(rows) * np.sqrt((weight * weight).sum(axis=0))
        out, unsure = _settle(total, share * (bound + np.abs(bias)))
        if len(unsure) > _MANY:
            # Where zeros meet zeros that bound is far too wide: 0·w is 0, in any order.
            bound = np.abs(rows) @ np.abs(weight)
            out, unsure = _settle(total, share * (bound + np.abs(bias)))
        if len(unsure) > _MANY:
            # Sums of few and short numbers, as of one-hot rows, lie between two floats often; but
            # then most rows are equal.
            distinct, place = np.unique(rows, axis=0, return_inverse=True)
            if 2 * len(distinct) <= len(rows):
                return _rounded_sums(distinct, weight, bias)[place.ravel()]
        for row, column in unsure:
            products = rows[row] * weight[:, column]
            out[row, column] = math.fsum((*products.tolist(), bias[column]))
    # −0 and 0 are one sum.
    return out + np.float32(0)


def _settle(total: Reals, slack: Reals) -> tuple[Matrix, npt.NDArray[np.intp]]:
    """Sums as float32, and the places of those that their slack leaves between two floats."""
    low, high = (total - slack).astype(np.float32), (total + slack).astype(np.float32)
    is_finite = np.isfinite(total)
    return np.where(is_finite, low, total.astype(np.float32)), np.argwhere(
        (low != high) & is_finite
    )


def sign_product(rows: Reals, signs: Reals) -> Reals:
    """rows·signs, of rows within ±1 on a grid of some 2⁻⁴² and a matrix of ±1: every sum is whole.

    >>> sign_product(np.array([[0.5, -0.25]]), np.array([[1.0, -1.0], [1.0, 1.0]]))
    array([[ 0.25, -0.75]])
    """
    # K numbers of at most 2^grid add up to less than 2⁵³.
    grid = 2.0 ** (52 - math.ceil(math.log2(len(signs))))
    sums: Reals = np.rint(rows * grid) @ signs
    return sums / grid


def row_lengths(rows: npt.NDArray[np.floating]) -> Reals:
    """‖x‖ of each row, (n, 1), in float64 and C order."""
    wide = np.ascontiguousarray(rows, dtype=np.float64)
    return np.asarray(np.sqrt((wide * wide).sum(axis=1, keepdims=True)))


def unit_rows(rows: Matrix) -> Matrix:
    """Rows at length one; a row of zeros stays one."""
    return np.asarray(rows / np.maximum(row_lengths(rows), SHORTEST), dtype=np.float32)


def softmax(rows: Matrix) -> Matrix:
    """Shares of each row that add up to one.

    >>> softmax(np.float32([[0, 0, -1e30]]))
    array([[0.5, 0.5, 0. ]], dtype=float32)
    """
    rows = np.ascontiguousarray(rows)
    # The largest exponent is 0: exp cannot overflow, and the quotient stays the same.
    exponentials = np.exp(rows - rows.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def one_thread() -> Any:
    """One thread for arithmetic: an attacker's matrices are too small to share among several."""
    from threadpoolctl import threadpool_limits

    # A thread pool must be loaded before it can be limited.
    import_module("sklearn.ensemble")
    return threadpool_limits(1)
