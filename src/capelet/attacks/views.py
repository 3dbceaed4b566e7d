"""What an attacker learns from: vectors and a secret, prepared once and cut into folds.

What does not depend on the attribute (standardised and projected vectors, kernels, sorted
neighbours) is computed once per split in a `View` and shared by all families and attributes. A
`Fold` of a view holds some of its rows back; its preparations are rows of the whole view's, for
they need no labels, and every row that they are learnt from is the attacker's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from capelet.data.corpus import Rows
from capelet.findings.metrics import Codes, Floats, balanced_accuracy
from capelet.numerics import standard_scale

Matrix = npt.NDArray[np.float32]
T = TypeVar("T")

# Up to so many rows kernels are exact: solving costs n³/3, and memory n² for each width.
MOST_EXACT = 3500
# Kernel features of a text where rows are more. Their own Cholesky factor costs 1024³/3 per width.
LANDMARKS = 1024
# The largest k that is tried.
NEIGHBOURS = 100
# Rows among which neighbours are looked for. All pairs of rows would make the cost quadratic.
MOST_BASE = 16_384
# Trees look at every axis in every node: the full width of 384 costs about thirty times more.
AXES = 32
# Five folds: each attacker that is judged has four fifths of the rows that the final one has.
FOLDS = 5
# What attackers look at: centred and brought to length one, or each coordinate standardised.
UNIT, STANDARD = "unit", "standard"
INPUTS = (UNIT, STANDARD)


class Parts(NamedTuple):
    """One thing for the rows to fit on, to tune on, and to be scored."""

    fit: Any
    tune: Any
    scored: Any


def range_exponent(vectors: Floats) -> int:
    """The power of two by which vectors of an extreme unit must be divided; 0 of all others.

    No attacker depends on the unit, but in single precision the square of 1e20 is infinite and that
    of 1e-30 is 0. A power of two changes no digit.
    """
    peak = float(np.abs(vectors).max(initial=0.0))
    return 0 if peak == 0.0 or 1e-12 <= peak <= 1e12 else math.frexp(peak)[1]


def in_range(vectors: Floats, exponent: int) -> Matrix:
    """The vectors divided by that power of two, in single precision."""
    if exponent:
        vectors = np.ldexp(np.asarray(vectors, dtype=np.float64), -exponent)
    return np.asarray(vectors, dtype=np.float32)


class _Sharing:
    """What several families, or settings of one, need and make once."""

    @cached_property
    def _shared(self) -> dict[Any, Any]:
        return {}

    def share(self, key: Any, make: Callable[[], T]) -> T:
        """What was made under this key, or is made now."""
        if key not in self._shared:
            self._shared[key] = make()
        value: T = self._shared[key]
        return value


class View(_Sharing):
    """One split's vectors, prepared once for every attacker.

    Whatever is learnt here (means, axes, landmarks) is learnt on the rows to fit on only. `units`
    number the person whom each row of the corpus belongs to (or the group of identical texts):
    folds never part the rows of one. Without them every row is a person of its own.
    """

    def __init__(
        self,
        vectors: Floats,
        fit: Rows,
        tune: Rows,
        scored: Rows,
        seed: int,
        units: Codes | None = None,
    ) -> None:
        self.rows = Parts(fit, tune, scored)
        self.seed = seed
        # How often each text stands among the rows to fit on; see `with_draws`.
        self.draws = 1
        self._units = units
        self._vectors = vectors
        self._exponent = range_exponent(vectors)

    @property
    def source(self) -> Floats:
        """The vectors of every row of the corpus, as they were released."""
        return self._vectors

    @cached_property
    def vectors(self) -> Parts:
        parts = (self._vectors[rows] for rows in self.rows)
        return Parts(*(in_range(part, self._exponent) for part in parts))

    @cached_property
    def units(self) -> Codes:
        """The person of each row to fit on."""
        return self.rows.fit if self._units is None else self._units[self.rows.fit]

    def joined(self) -> View:
        """The same view with the rows to tune on among those to fit on: folds take their place."""
        if not len(self.rows.tune):
            return self
        fit = np.concatenate([self.rows.fit, self.rows.tune])
        return View(self._vectors, fit, fit[:0], self.rows.scored, self.seed, self._units)

    def with_draws(self, draws: Sequence[Floats]) -> View:
        """The view of an attacker that sent its own texts through the noise again.

        Each of `draws` holds one more release of all rows to fit on, in their order. Victims keep
        the one draw that they released.
        """
        wider = View(
            self._vectors,
            np.tile(self.rows.fit, len(draws) + 1),
            self.rows.tune,
            self.rows.scored,
            self.seed,
            self._units,
        )
        own = [self.vectors.fit, *(in_range(draw, self._exponent) for draw in draws)]
        wider.vectors = Parts(np.concatenate(own), self.vectors.tune, self.vectors.scored)
        wider.draws = len(draws) + 1
        return wider

    @cached_property
    def standard(self) -> Parts:
        """Each coordinate with mean 0 and deviation 1; dead ones (MiniLM has three) are 0."""
        mean, scale = standard_scale(self.vectors.fit)
        return Parts(
            # A coordinate that hardly varies among the rows to fit on may be huge in a victim:
            # clipped, it does not drown all others.
            *(np.clip((part - mean) * scale, -30, 30).astype(np.float32) for part in self.vectors)
        )

    @cached_property
    def principal(self) -> Parts:
        """Standardised vectors in their principal axes, strongest first."""
        # eigh sorts upwards, hence the reversed columns.
        _, axes = np.linalg.eigh(self.standard.fit.T @ self.standard.fit)
        return Parts(*(part @ axes[:, ::-1] for part in self.standard))

    @cached_property
    def levels(self) -> Parts:
        """Principal axes cut into at most 128 levels each, which is all that trees look at."""
        shares = np.linspace(0, 1, 129)[1:-1]
        axes = Parts(*(part[:, :AXES] for part in self.principal))
        edges = np.quantile(axes.fit, shares, axis=0)
        return Parts(
            *(
                np.stack(
                    [
                        np.searchsorted(edge, column)
                        for edge, column in zip(edges.T, part.T, strict=True)
                    ],
                    axis=1,
                ).astype(np.float32)
                for part in axes
            )
        )

    @cached_property
    def unit(self) -> Parts:
        """Centred vectors of length one: the geometry of cosines."""
        mean = self.vectors.fit.mean(axis=0)
        return Parts(*(_length_one(part - mean) for part in self.vectors))

    def inputs(self, name: str) -> Parts:
        """The vectors as a linear attacker or a network sees them, coordinates of size about 1."""
        if name == STANDARD:
            return self.standard
        # A vector of length one has coordinates of about 1/√d; with a factor of √d the same
        # strengths of regularisation fit both inputs.
        width = np.float32(np.sqrt(self.vectors.fit.shape[1]))
        return self.share(("inputs", name), lambda: Parts(*(part * width for part in self.unit)))

    @property
    def is_exact(self) -> bool:
        """Whether every row to fit on is a landmark, so that kernels need no approximation."""
        return len(self.rows.fit) <= MOST_EXACT

    @cached_property
    def landmarks(self) -> Rows:
        """Places in `fit` of the points whose kernels with a text are taken: all, or a sample."""
        places = np.arange(len(self.rows.fit))
        if self.is_exact:
            return places
        return np.random.default_rng(self.seed).permutation(places)[:LANDMARKS]

    def distances(self, name: str, part: str = "fit") -> Matrix:
        """Squared distances of a part's rows to the landmarks, in units of their median."""
        inputs = self.unit if name == UNIT else self.standard

        def squares(rows: Matrix) -> Matrix:
            return _squares(rows, inputs.fit[self.landmarks])

        # Of the first rows: they tell the median well enough.
        scale = self.share(
            ("median", name), lambda: max(float(np.median(squares(inputs.fit[:512]))), 1e-12)
        )
        return self.share(
            ("distances", name, part), lambda: squares(getattr(inputs, part)) / np.float32(scale)
        )

    def kernel(self, name: str, width: float, part: str = "fit") -> Matrix:
        """RBF kernels of a part's rows with the landmarks; width 1 is the median distance."""

        def make() -> Matrix:
            return np.asarray(np.exp(self.distances(name, part) / np.float32(-width)))

        # Of many rows only the features are kept: both would be too much for the memory.
        return self.share(("kernel", name, width, part), make) if self.is_exact else make()

    def features(self, name: str, width: float, part: str = "fit") -> Matrix:
        """Features whose products are RBF kernels, up to what the landmarks miss (Nyström)."""

        def turn() -> Matrix:
            corner = self.kernel(name, width)[self.landmarks].astype(np.float64)
            # Nyström features K·L⁻ᵀ with L·Lᵀ = the landmarks' own kernels: their products are
            # kernels again (Williams, Seeger 2001). The jitter is for landmarks that are near
            # copies.
            root = np.linalg.cholesky(corner + 1e-4 * np.eye(len(corner)))
            return np.asarray(np.linalg.inv(root).T, dtype=np.float32)

        return self.share(
            ("features", name, width, part),
            lambda: np.asarray(
                self.kernel(name, width, part) @ self.share(("turn", name, width), turn)
            ),
        )

    def neighbours(self, name: str) -> Parts:
        """(places in `fit`, cosines) of the nearest rows to fit on, nearest first."""

        def make() -> Parts:
            inputs = self.unit if name == UNIT else Parts(*map(_length_one, self.standard))
            base = np.arange(len(inputs.fit))
            if len(base) > MOST_BASE:
                base = np.random.default_rng([self.seed, 0x6E]).permutation(base)[:MOST_BASE]
            most = min(NEIGHBOURS, len(base))
            near = [nearest(part, inputs.fit[base], most) for part in inputs[1:]]
            return Parts(None, *((base[places], cosines) for places, cosines in near))

        return self.share(("neighbours", name), make)

    def fold(self, inside: Rows, outside: Rows) -> Fold:
        """The attacker's rows without some, which take the place of those to tune on."""
        return Fold(self, inside, outside)


class Fold(View):
    """Some rows to fit on held back: places `inside` remain, those `outside` are judged."""

    def __init__(self, whole: View, inside: Rows, outside: Rows) -> None:
        self.whole, self.inside, self.outside = whole, inside, outside
        rows = whole.rows.fit
        super().__init__(
            whole._vectors, rows[inside], rows[outside], rows[:0], whole.seed, whole._units
        )

    def _cut(self, parts: Parts) -> Parts:
        return Parts(parts.fit[self.inside], parts.fit[self.outside], parts.fit[:0])

    @cached_property
    def vectors(self) -> Parts:
        return self._cut(self.whole.vectors)

    @cached_property
    def standard(self) -> Parts:
        return self._cut(self.whole.standard)

    @cached_property
    def principal(self) -> Parts:
        return self._cut(self.whole.principal)

    @cached_property
    def levels(self) -> Parts:
        return self._cut(self.whole.levels)

    @cached_property
    def unit(self) -> Parts:
        return self._cut(self.whole.unit)

    @property
    def is_exact(self) -> bool:
        return self.whole.is_exact

    def kernel(self, name: str, width: float, part: str = "fit") -> Matrix:
        kernel = self.whole.kernel(name, width)
        # Where every row is a landmark, those that are held back may not be one.
        columns = self.inside if self.is_exact else np.arange(kernel.shape[1])
        return np.asarray(kernel[np.ix_(self._places(part), columns)])

    def features(self, name: str, width: float, part: str = "fit") -> Matrix:
        return np.asarray(self.whole.features(name, width)[self._places(part)])

    def _places(self, part: str) -> Rows:
        return {"fit": self.inside, "tune": self.outside, "scored": self.outside[:0]}[part]


def _length_one(rows: Matrix) -> Matrix:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def _squares(rows: Matrix, points: Matrix) -> Matrix:
    """‖u − v‖² = ‖u‖² + ‖v‖² − 2·u·v; rounding can leave it below 0."""
    lengths = (rows**2).sum(axis=1)[:, None] + (points**2).sum(axis=1)
    return np.asarray(np.maximum(lengths - 2 * rows @ points.T, 0))


def nearest(queries: Matrix, base: Matrix, most: int) -> tuple[Rows, Matrix]:
    """Places in the base of the rows with the largest products, largest first, and those."""
    places = np.empty((len(queries), most), dtype=np.intp)
    cosines = np.empty((len(queries), most), dtype=np.float32)
    # In blocks: the products of all queries with all rows would not fit into memory. argpartition
    # is linear in the rows; only the few nearest are then sorted.
    for start in range(0, len(queries), 1024):
        block = slice(start, start + 1024)
        similar = queries[block] @ base.T
        near = np.argpartition(-similar, most - 1, axis=1)[:, :most]
        best = np.take_along_axis(similar, near, axis=1)
        order = np.argsort(-best, axis=1, kind="stable")
        places[block] = np.take_along_axis(near, order, axis=1)
        cosines[block] = np.take_along_axis(best, order, axis=1)
    return places, cosines


class Secret(_Sharing):
    """What is to be guessed on a view: codes per part and the number of classes.

    `balanced` weighs every class alike; a task probe, whose score is plain accuracy, does not.
    """

    def __init__(self, view: View, codes: Codes, classes: int, balanced: bool = True) -> None:
        self.codes = Parts(*(codes[rows] for rows in view.rows))
        self.classes = classes
        self.balanced = balanced
        self.weights = Parts(*(self._weights(part) for part in self.codes))
        self.whole: Secret | None = None
        self._all_codes = codes

    def _weights(self, codes: Codes) -> npt.NDArray[np.float32]:
        """A weight per row with mean one; balanced, every class has the same total."""
        if not self.balanced or not len(codes):
            return np.ones(len(codes), dtype=np.float32)
        # Unweighted, an attacker of a rare attribute names the majority and looks like privacy.
        counts = np.bincount(codes, minlength=self.classes)
        return (len(codes) / (np.count_nonzero(counts) * counts[codes])).astype(np.float32)

    def on(self, view: View) -> Secret:
        """The same secret on another view of the same rows of the corpus."""
        return Secret(view, self._all_codes, self.classes, self.balanced)

    def on_fold(self, fold: Fold) -> Secret:
        """The secret on a fold; rows keep their weights, so that sums over folds are one sum."""
        part = self.on(fold)
        part.weights = fold._cut(self.weights)
        part.whole = self
        return part

    def quality(self, scores: Floats) -> float:
        """Of guesses for the rows to tune on; see `quality_of`."""
        return self.quality_of(self.codes.tune, scores)

    def quality_of(self, truth: Codes, scores: Floats) -> float:
        """What a choice maximises: balanced accuracy of a secret, plain accuracy of a task."""
        guesses = scores.argmax(axis=1)
        if self.balanced:
            return balanced_accuracy(truth, guesses)
        return float((truth == guesses).mean())


def folds_of(view: View, secret: Secret, count: int = FOLDS) -> list[Fold]:
    """Folds that keep a person's rows, and all draws of a text, together, and classes even.

    Held back is the first draw of each text alone: it is what a victim's vector is like, and so
    quality does not depend on how many draws there are.
    """
    texts = len(view.rows.fit) // view.draws
    units = np.unique(view.units[:texts], return_inverse=True)[1]
    if units.max(initial=0) == 0:
        units = np.arange(texts)  # one person alone cannot be parted from others
    place = _deal(units, secret.codes.fit[:texts], count, view.seed)
    of_rows = np.tile(place, view.draws)
    return [
        view.fold(np.flatnonzero(of_rows != number), np.flatnonzero(place == number))
        for number in range(int(place.max()) + 1)
    ]


def _deal(units: Codes, codes: Codes, count: int, seed: int) -> Codes:
    """A fold for each row: units sorted by class and size are dealt out there and back.

    A unit of several classes counts as its commonest (of equals the first).
    """
    people = int(units.max()) + 1
    table = np.zeros((people, int(codes.max()) + 1), dtype=np.intp)
    np.add.at(table, (units, codes), 1)
    chance = np.random.default_rng([seed, 0xF0]).permutation(people)
    order = np.lexsort((chance, -table.sum(axis=1), table.argmax(axis=1)))
    # 0 1 2 3 4 4 3 2 1 0 …: whoever deals in one direction only gives the first the largest.
    count = min(count, people)
    turns = np.concatenate([np.arange(count), np.arange(count)[::-1]])
    place = np.empty(people, dtype=np.intp)
    place[order] = np.resize(turns, people)
    return np.asarray(place[units])
