"""Integer noise whose distribution is exact to the last bit, drawn from the operating system.

A float sampler betrays its centre through the lowest bits (Mironov 2012), and a table of rounded
probabilities tilts the tail. Here every random decision is "in which cell lies a uniform real U?":
sixteen bits of U settle it by table almost always, and where they do not, more bits of U and more
digits of the cell's exact edge are computed until they do. No probability is ever rounded. The
proof, with the grid, is in docs/explanation/exact-noise.md.

- `discrete_laplace`: P(g) ∝ exp(−|g|/scale). The base-256 digits of a geometric variable are
  independent; each is one such decision, so the work per draw does not depend on the draw.
- `discrete_gaussian`: P(g) ∝ exp(−g²/2σ²), by rejection from the former (Canonne, Kamath and
  Steinke 2020).
- `rounded_gaussian`: a real N(0, σ²) rounded to the nearest integer, by the same rejection.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from capelet.privacy.guarantees import check_number

Integers = npt.NDArray[np.int64]
Shape = int | tuple[int, ...]
Boundary = Callable[[int, int], int]  # (i, bits) → floor(edge i · 2^bits), exactly

BLOCK = 1 << 15  # draws looked up at once: their words stay in the processor's cache
SPAN = 1 << 17  # draws settled at once
MARGIN = 2.0**-30  # a float comparison closer than this is decided in exact arithmetic
LARGEST = 1 << 62  # where a magnitude saturates: beyond 4,096 scales, probability below 2^−5,900
_ZEROS = memoryview(bytes(1 << 20))

# A little more than ln 2 = 0.6931471805…
_LN_2_ABOVE = Fraction(6931471806, 10**10)


class Stream:
    """Uniform bits that nobody can repeat: AES-256 in counter mode, keyed by the system.

    There is no seed to set. A mechanism makes a stream for each call and forgets it; one that is
    carried over a fork takes a new key in the child, so that two processes never share noise.
    """

    def __init__(self) -> None:
        self._rekey()

    def _rekey(self) -> None:
        self._owner = os.getpid()
        self._cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()

    def words(self, kind: type[np.unsignedinteger[Any]], *shape: int) -> npt.NDArray[Any]:
        """Independent uniform words of the given unsigned type."""
        if self._owner != os.getpid():
            self._rekey()
        out = np.empty(shape, dtype=kind)
        view = out.reshape(-1).view(np.uint8).data
        for start in range(0, len(view), len(_ZEROS)):
            part = view[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)
        return out

    def uniform(self, *shape: int) -> npt.NDArray[np.float64]:
        """Floats in (0, 1), multiples of 2^−53 moved by half a step; not for exact mechanisms."""
        words = self.words(np.uint64, *shape) >> np.uint64(11)
        return (words.astype(np.float64) + 0.5) * 2.0**-53

    def below(self, limit: int, count: int) -> Integers:
        """Integers uniform over 0 … limit − 1, exactly (words past the last multiple are redrawn).

        >>> bool((Stream().below(3, 100) < 3).all())
        True
        """
        # Without the rejection small numbers would come more often, by limit/2^64.
        last = np.uint64((1 << 64) // limit * limit - 1)
        out = self.words(np.uint64, count)
        while (again := np.flatnonzero(out > last)).size:
            out[again] = self.words(np.uint64, again.size)
        return (out % np.uint64(limit)).astype(np.int64)


class SeededStream(Stream):
    """The same bits for the same seed and place, in any process: for studies, never for a release.

    The key is a hash of both; all else is `Stream`, so whatever is drawn has the very distribution
    of a release. Anybody can draw it again and subtract it: it promises nothing.

    >>> [int(SeededStream(7, place).below(100, 1)[0]) for place in ("a", "a", "b")]
    [40, 40, 94]
    """

    def __init__(self, seed: int, *place: int | str) -> None:
        name = repr(("capelet study", seed, *place)).encode()
        key = hashlib.blake2b(name, digest_size=48).digest()
        self._cipher = Cipher(algorithms.AES(key[:32]), modes.CTR(key[32:])).encryptor()
        super().__init__()

    def _rekey(self) -> None:
        # A child process goes on where its parent was: a study must not depend on who computes it.
        self._owner = os.getpid()


class NoiseStep:
    """A step that draws: every call from a stream of its own, which nobody can repeat.

    `draw` is the same with a stream that is handed in, for studies and tests. `draws` says whether
    its settings let two calls differ.
    """

    draws = True

    def __call__(self, batch: Any) -> Any:
        return self.draw(batch, Stream())

    def draw(self, batch: Any, stream: Stream) -> Any:
        """What the step makes of a batch with this stream."""
        raise NotImplementedError


class Cells:
    """Which of `count` cells of [0, 1) holds a uniform real, decided bit by bit and exactly.

    The inner edges are irrational; `boundary(i, bits)` gives the first `bits` bits of edge i
    (1 … count − 1). Two numbers that agree in 64 bits are compared further, never called equal.
    """

    def __init__(self, count: int, boundary: Boundary, prefix: int = 16) -> None:
        self.count = count
        self.prefix = prefix
        self._boundary = boundary
        edges = [boundary(i, 64) for i in range(1, count)]
        self._edges = np.array(edges, dtype=np.uint64)
        low = np.arange(1 << prefix, dtype=np.uint64) << np.uint64(64 - prefix)
        high = low + np.uint64((1 << (64 - prefix)) - 1)
        first = np.searchsorted(self._edges, low, side="left")
        last = np.searchsorted(self._edges, high, side="right")
        # An edge that equals `low` counts as inside: such a prefix must be left undecided.
        self.table = np.where(first == last, first, -1)  # by the first bits; −1 is undecided

    def settle(self, prefixes: npt.NDArray[Any], stream: Stream) -> Integers:
        """The cells of uniforms whose first bits are given; further bits are drawn at need."""
        cells = self.table[prefixes]
        unsure = np.flatnonzero(cells < 0)
        more = stream.words(np.uint64, unsure.size) >> np.uint64(self.prefix)
        values = (prefixes[unsure].astype(np.uint64) << np.uint64(64 - self.prefix)) | more
        last = np.searchsorted(self._edges, values, side="right")
        cells[unsure] = last
        for tie in np.flatnonzero((self._edges[last - 1] == values) & (last > 0)):
            cells[unsure[tie]] = self._untie(int(values[tie]), stream)
        return cells

    def draw(self, count: int, stream: Stream) -> Integers:
        """`count` independent cells."""
        words = stream.words(np.uint16, count) >> np.uint16(16 - self.prefix)
        return self.settle(words, stream)

    def _untie(self, value: int, stream: Stream) -> int:
        """The cell of a uniform that agrees with an edge in its first 64 bits."""
        bits = 64
        while True:
            value = (value << 64) | int(stream.words(np.uint64, 1)[0])
            bits += 64
            edges = [self._boundary(i, bits) for i in range(1, self.count)]
            if value not in edges:
                return sum(edge < value for edge in edges)


def keep_or_change(epsilon: Fraction, others: int) -> Cells:
    """Cell 0 with probability e^ε/(e^ε + others), else cell 1: the coin of randomised response."""

    def boundary(_: int, bits: int) -> int:
        # With m = others < 2^b and e^(−ε) < 2^(−bits−b), the edge 1/(1 + m·e^(−ε)) lies above
        # 1 − 2^(−bits) and below 1: its first bits are all ones. Computing them would take digits
        # in proportion to ε, and at ε = 1e5 hours.
        if epsilon > (bits + others.bit_length()) * _LN_2_ABOVE:
            return (1 << bits) - 1
        precision = bits + 64
        while True:
            one = 1 << precision
            low, high = (one + others * end for end in exp_bounds(epsilon, precision))
            floors = (one << bits) // high, (one << bits) // low
            if floors[0] == floors[1]:
                return floors[0]
            precision *= 2  # the enclosure straddles a multiple of 2^−bits: compute more digits

    return Cells(2, boundary)


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Integers on both sides of e^(−exponent)·2^bits, three apart.

    `Decimal.exp` is correctly rounded; with eight digits to spare the three roundings together
    stay far below one unit.

    >>> low, high = exp_bounds(Fraction(1), 64)
    >>> low < 6786177901268885274 < high
    True
    """
    digits = math.ceil(bits * 0.30103) + len(str(math.ceil(exponent))) + 10
    context = Context(prec=digits, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    value = context.exp(context.minus(ratio))
    whole = int(context.multiply(value, Decimal(1 << bits)))
    return max(whole - 1, 0), whole + 2


class Geometric:
    """P(G = n) ∝ exp(−n/scale) on 0, 1, 2 …, digit by digit in base 256, with a free sign.

    For r = exp(−256^j/scale) digit j is v with probability (1 − r)r^v/(1 − r^256), independently.
    The top digit is itself geometric; its last cell is an escape (add and draw again, by
    memorylessness), so no tail is cut off. The top digit reads 15 bits; the sixteenth is a sign.
    """

    def __init__(self, scale: Fraction) -> None:
        places = 1
        # The top digit must have a rate of 1/8 or more, or its table would need too many cells.
        while 256**places < 8 * scale:
            places += 1
        rates = [Fraction(256**place) / scale for place in range(places)]
        # Beyond 64 mean values (probability e^−64) a draw escapes; more cells would be idle.
        top = min(256, math.ceil(64 / rates[-1]) + 2)
        self._cells = [Cells(256, _digit_edges(rate, 256)) for rate in rates[:-1]]
        self._cells.append(Cells(top, _digit_edges(rates[-1], None), prefix=15))
        kind = np.int32 if places <= 3 else np.int64
        self._tables = [self._values(place, kind) for place in range(places)]

    def _values(self, place: int, kind: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
        """Sixteen bits → digit · 256^place; very negative where the bits do not settle it."""
        cells = self._cells[place]
        table = np.repeat(cells.table, 1 << (16 - cells.prefix)).astype(np.int64)
        unsure = table < 0
        if place == len(self._cells) - 1:
            unsure |= table == cells.count - 1  # an escape is settled with the undecided
        sentinel = 1 << (29 if kind is np.int32 else 59)
        return np.where(unsure, -sentinel, table << (8 * place)).astype(kind)

    def draw(self, count: int, stream: Stream) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Magnitudes, and independent sign bits (0 or 1)."""
        total, minus = np.empty((2, count), dtype=self._tables[0].dtype)
        places, pending = [], []
        for start in range(0, count, BLOCK):
            part = total[start : start + BLOCK]
            words = stream.words(np.uint16, len(self._tables), part.size)
            self._tables[0].take(words[0], out=part, mode="clip")
            for table, row in zip(self._tables[1:], words[1:], strict=True):
                part += table.take(row, mode="clip")
            np.bitwise_and(words[-1], np.uint16(1), out=minus[start : start + BLOCK])
            unsure = np.flatnonzero(part < 0)
            places.append(unsure + start)
            pending.append(words[:, unsure])
        if places:
            total = self._fill(total, np.concatenate(places), np.hstack(pending), stream)
        return total, minus.astype(total.dtype, copy=False)

    def _fill(
        self, total: npt.NDArray[Any], places: Integers, words: npt.NDArray[Any], stream: Stream
    ) -> npt.NDArray[Any]:
        """The draws with the unsettled ones put in; wider where one of these needs it."""
        exact = self._settle(words, stream)
        if exact.size and int(exact.max()) >= 1 << 30:
            total = total.astype(np.int64)
        total[places] = exact
        return total

    def _settle(self, words: npt.NDArray[Any], stream: Stream) -> Integers:
        total = np.zeros(words.shape[1], dtype=np.int64)
        for place, (cells, row) in enumerate(zip(self._cells, words, strict=True)):
            digits = cells.settle(row >> np.uint16(16 - cells.prefix), stream)
            total += digits << (8 * place)
        top, unit = self._cells[-1], 8 * (len(self._cells) - 1)
        # Memoryless: beyond the last cell the law starts again, so a fresh digit is added.
        escapes = np.flatnonzero(digits == top.count - 1)
        while escapes.size:
            more = top.draw(escapes.size, stream)
            total[escapes] = np.minimum(total[escapes] + (more << unit), LARGEST)
            escapes = escapes[more == top.count - 1]
        return total

    def with_sign(self, count: int, stream: Stream) -> npt.NDArray[Any]:
        """Discrete Laplace: sign times magnitude, where −0 is drawn again.

        Else 0 would have twice its weight, once for each sign.
        """
        total, minus = self.draw(count, stream)
        while (again := np.flatnonzero((total == 0) & (minus == 1))).size:
            more, signs = self.draw(again.size, stream)
            total = total.astype(np.promote_types(total.dtype, more.dtype), copy=False)
            total[again], minus[again] = more, signs
        return _apply(minus, total)


def _apply(minus: npt.NDArray[Any], magnitude: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return (magnitude ^ -minus) + minus  # two's complement: x, or ~x + 1 = −x


def _digit_edges(rate: Fraction, cells: int | None) -> Boundary:
    """Edges (1 − r^i)/(1 − r^cells), or 1 − r^i for the endless top digit, where r = e^(−rate)."""

    def boundary(i: int, bits: int) -> int:
        precision = bits + 96
        while True:
            one = 1 << precision
            low, high = exp_bounds(i * rate, precision)
            ends = (0, 0) if cells is None else exp_bounds(cells * rate, precision)
            if ends[1] < one:
                floors = (
                    ((one - high) << bits) // (one - ends[0]),
                    ((one - low) << bits) // (one - ends[1]),
                )
                if floors[0] == floors[1]:
                    return floors[0]
            precision *= 2

    return boundary


@lru_cache(maxsize=64)
def geometric(scale: Fraction) -> Geometric:
    """The sampler for a scale; its tables take some 50 ms to compute and are kept."""
    return Geometric(scale)


def discrete_laplace(
    shape: Shape, scale: float | Fraction, stream: Stream | None = None
) -> Integers:
    """Integers with P(g) ∝ exp(−|g|/scale), exactly; `scale` is taken as the rational it is.

    >>> discrete_laplace((2, 3), 1000).shape
    (2, 3)
    """
    sampler = geometric(_rational("scale", scale, 2.0**-10))
    return _in_blocks(shape, lambda count, source: sampler.with_sign(count, source), stream)


def discrete_gaussian(
    shape: Shape, sigma: float | Fraction, stream: Stream | None = None
) -> Integers:
    """Integers with P(g) ∝ exp(−g²/2σ²), exactly.

    >>> discrete_gaussian(5, 1000).shape
    (5,)
    """
    exact = _rational("sigma", sigma, 0.25)
    return _in_blocks(shape, lambda count, source: _normal(count, exact, False, source), stream)


def rounded_gaussian(
    shape: Shape, sigma: float | Fraction, stream: Stream | None = None
) -> Integers:
    """round(X) for a real X ~ N(0, σ²), exactly: P(g) = Φ((g+½)/σ) − Φ((g−½)/σ).

    For an integer n, n + round(X) = round(n + X) is post-processing of the continuous Gaussian
    mechanism: its (ε, δ) holds as it stands, in any number of dimensions.
    """
    exact = _rational("sigma", sigma, 0.25)
    return _in_blocks(shape, lambda count, source: _normal(count, exact, True, source), stream)


def _rational(name: str, value: float | Fraction, least: float) -> Fraction:
    if not isinstance(value, Fraction):
        return Fraction(check_number(name, value, least, 2.0**50))
    check_number(name, float(value), least, 2.0**50)
    return value


def _in_blocks(
    shape: Shape, draw: Callable[[int, Stream], npt.NDArray[Any]], stream: Stream | None
) -> Integers:
    source = stream or Stream()
    out = np.empty(shape, dtype=np.int64)
    flat = out.reshape(-1)
    for start in range(0, flat.size, SPAN):
        part = flat[start : start + SPAN]
        part[:] = draw(part.size, source)
    return out


def _normal(count: int, sigma: Fraction, with_fraction: bool, stream: Stream) -> Integers:
    """Proposals x = G + F with G geometric of scale t, kept with probability exp(−γ(x)).

    γ = (x − σ²/t)²/2σ² + F/t, so that what is kept has density ∝ exp(−x²/2σ²). F is uniform in
    [0, 1) for the rounded normal, and only its first bit (x rounds up) is emitted; F = 0 for the
    discrete one.
    """
    sampler = geometric(Fraction(math.floor(sigma) + 1))
    batches: list[Integers] = []
    missing = count
    while missing > 0:
        tries = missing + missing // 2 + 16  # about three of four proposals are accepted
        if with_fraction:
            magnitude, minus = sampler.draw(tries, stream)
            part = stream.words(np.uint32, tries)
            up = (part >> np.uint32(31)).astype(np.int64)
            values = _apply(minus.astype(np.int64), magnitude + up)
        else:
            values = sampler.with_sign(tries, stream).astype(np.int64)
            magnitude, part = np.abs(values), None
        batches.append(values[_keeps(magnitude, part, sigma, stream)][:missing])
        missing -= batches[-1].size
    return np.concatenate(batches) if batches else np.empty(0, dtype=np.int64)


def _keeps(
    magnitude: npt.NDArray[Any],
    part: npt.NDArray[np.uint32] | None,
    sigma: Fraction,
    stream: Stream,
) -> npt.NDArray[np.bool_]:
    """Coins with probability exp(−γ): by floats where they are sure, else exactly."""
    scale = math.floor(sigma) + 1
    fraction = 0.0 if part is None else part * 2.0**-32
    distance = magnitude + fraction - float(sigma * sigma / scale)
    chance = np.exp(-(distance * distance) / float(2 * sigma * sigma) - fraction / scale)
    uniform = stream.words(np.uint64, magnitude.size)
    # The float error of `chance` is some 2^−50, far below MARGIN: outside it the sign is right.
    gap = chance - uniform * 2.0**-64
    keeps = gap > 0
    for unsure in np.flatnonzero(np.abs(gap) <= MARGIN):
        first = None if part is None else int(part[unsure])
        keeps[unsure] = _keep(int(magnitude[unsure]), first, int(uniform[unsure]), sigma, stream)
    return keeps


def _keep(magnitude: int, part: int | None, uniform: int, sigma: Fraction, stream: Stream) -> bool:
    """One coin in exact arithmetic, with as many bits of F (from 32) and U (from 64) as it takes.

    γ grows with F (its derivative is x/σ²), so the ends of F's interval bound it.
    """
    scale = math.floor(sigma) + 1
    bits, uniform_bits = 32, 64
    while True:
        ends = [Fraction(0)] * 2
        if part is not None:
            ends = [Fraction(part, 1 << bits), Fraction(part + 1, 1 << bits)]
        # U < exp(−γ) is decided when U's whole interval lies on one side of the enclosed bound.
        exponents = [
            (magnitude + end - sigma * sigma / scale) ** 2 / (2 * sigma * sigma) + end / scale
            for end in ends
        ]
        most = exp_bounds(exponents[0], uniform_bits)[1]
        least = exp_bounds(exponents[1], uniform_bits)[0]
        if uniform + 1 <= least:
            return True
        if uniform >= most:
            return False
        fresh = stream.words(np.uint64, 2)
        uniform, uniform_bits = (uniform << 64) | int(fresh[0]), uniform_bits + 64
        if part is not None:
            part, bits = (part << 64) | int(fresh[1]), bits + 64
