"""Vectors as vector stores keep them to save space: in half precision, in bytes, or as signs.

Rounding is no noise. Every number that it takes away is a function of the vector alone, so whoever
has texts of its own can learn what is left; it is here to be measured, and to make files smaller
after a mechanism (what follows the noise keeps the guarantee).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from capelet.errors import check_known
from capelet.interfaces import Vectors
from capelet.mechanisms.vectors import OnVectors, checked_rows

PRECISIONS = ("fp16", "int8", "binary")
# Bytes are symmetric about zero, so that −128 is not used.
_LARGEST_BYTE = 127


@dataclass(frozen=True)
class Rounding(OnVectors):
    """Fewer bits for each coordinate, as vector stores keep them; no noise, and no promise.

    `fp16` is IEEE half precision, `int8` a whole number between −127 and 127 times the row's
    largest coordinate, `binary` the sign. A row's own scale is used, never that of a batch: two
    releases of one text must be the same.

    >>> Rounding("binary")(np.array([[0.3, -2.0, 0.0]])).tolist()
    [[1.0, -1.0, 1.0]]
    """

    step: ClassVar[str] = "rounding"
    guarantee: ClassVar[None] = None
    precision: str

    def __post_init__(self) -> None:
        check_known("precision", self.precision, PRECISIONS)

    def __call__(self, batch: Any) -> Vectors:
        rows = checked_rows(batch, None)
        kind = np.float64 if rows.dtype == np.float64 else np.float32
        rows = rows.astype(kind, copy=False)
        if self.precision == "binary":
            return np.where(rows < 0, kind(-1), kind(1))
        if self.precision == "fp16":
            # Beyond the largest half a number would become infinite; stores saturate.
            most = float(np.finfo(np.float16).max)
            return np.clip(rows, -most, most).astype(np.float16).astype(kind)
        peaks = np.abs(rows).max(axis=1, keepdims=True)
        # Divided first: a denormal peak over 127 would be zero. A row of zeros stays one.
        shares = rows / np.where(peaks == 0, 1, peaks)
        return np.asarray(np.rint(shares * _LARGEST_BYTE) / _LARGEST_BYTE * peaks, dtype=kind)
