"""Texts in, texts out: words replaced by noisy neighbours under metric privacy, or dropped.

Metric privacy on words bounds how well a word w can be told from another w' by ε·d(w, w'), where d
is the distance of their public vectors: near words are hidden well, far ones less. A text of n
words costs ε·Σ d(wᵢ, wᵢ'), at the worst ε·n·diameter, which `cost` reports; it is *not* ε.

The same for all of them (`vocabulary` has the rules): texts are neighbours when they differ in
words only. The number of words, punctuation and white space are public and stay; words are compared
lower-cased, and casing is not restored. A word that the table lacks has a public place like any
other and is noised there, never dropped and never passed. What goes in is checked as a whole before
anything is drawn; there is no seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from capelet.data.text import PRIVATE_WORD, private_words, spelling, treebank_pieces
from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.interfaces import Kind
from capelet.mechanisms.sampling import Integers, NoiseStep, Stream
from capelet.mechanisms.vectors import LEAST, MOST, entry
from capelet.mechanisms.vocabulary import ROWS, Table, Vocabulary, diameter, known_table, vocabulary
from capelet.privacy.guarantees import Guarantee, check_count, check_number

Reals = npt.NDArray[np.float64]
Metric = Literal["euclidean", "mahalanobis"]
METRICS = ("euclidean", "mahalanobis")
PUBLIC = "word count, punctuation, white space"
CAVEAT = f"in real arithmetic, though only words of a table leave; public: {PUBLIC}"
# Bounds the memory: 32 MB of float64.
_CELLS = 1 << 22  # weights of the exponential mechanism held at once


@dataclass(frozen=True)
class TextCost:
    """For each text its number of words and the most its release can cost: ε·words·diameter.

    `epsilon` is the local guarantee for the whole text, against any text that differs in words.
    """

    words: Integers
    epsilon: Reals


class OnTexts:
    """What the steps of this page share: texts in and out."""

    consumes: Kind = "texts"
    emits: Kind = "texts"
    isolates_rows = True
    step: ClassVar[str]


class OnWords(NoiseStep, OnTexts):
    """What the two replacements share: a table, the way through a text, a cost, a recipe entry."""

    epsilon: float
    table: Table
    size: int | None
    fingerprint: str | None
    public: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_number("epsilon", self.epsilon, LEAST, MOST))
        if self.size is not None:
            object.__setattr__(self, "size", check_count("size", self.size, least=2))
        if self.public != PUBLIC:
            raise CapeletError(
                f"public is {self.public!r}; it states a fact and must be {PUBLIC!r}"
            )
        if isinstance(self.table, tuple) and len(self.table) == 2:
            object.__setattr__(self, "table", Vocabulary.of(*self.table))
        known_table(self.table)

    @property
    def vocabulary(self) -> Vocabulary:
        """The words and vectors, read at the first use; another table than the recipe's is refused.

        The metric is a matter of the table, and so is what ε means.
        """
        table = vocabulary(self.table, self.size)
        if self.fingerprint is not None and self.fingerprint != table.fingerprint:
            raise CapeletError(
                f"the table {table.name!r} is not the one that the recipe was made with "
                f"(fingerprint {table.fingerprint[:12]}…, not {self.fingerprint[:12]}…)"
            )
        return table

    def describe(self) -> dict[str, Any]:
        """The step as it stands in a recipe, with the fingerprint of its table and what is public.

        A table that was handed over in Python stands there by its name: save it as a file of word
        vectors and name the file, to have a recipe that others can run.
        """
        table = self.table.name if isinstance(self.table, Vocabulary) else self.table
        return entry(self, table=table, fingerprint=self.vocabulary.fingerprint)

    def draw(self, batch: Any, stream: Stream) -> list[str]:
        parts = [private_words(text) for text in checked_texts(batch)]
        words = [word for text in parts for word in text[1::2]]
        table = self.vocabulary
        rows = iter(self._draw(words, stream).tolist())
        for text in parts:
            text[1::2] = [table.words[next(rows)] for _ in text[1::2]]
        return ["".join(text) for text in parts]

    def cost(self, texts: Sequence[str]) -> TextCost:
        """How many words each text has, and the most that its release can cost."""
        words = np.array(
            [len(private_words(text)) // 2 for text in checked_texts(texts)], dtype=np.int64
        )
        return TextCost(words, words.astype(np.float64) * (self.epsilon * self.diameter))

    def distance(self, one: str, other: str) -> float:
        """How far apart two texts are in the metric of the guarantee: Σ d(wᵢ, wᵢ') over the words.

        ε times it bounds how well they can be told apart. Texts that differ in what is public have
        no distance.
        """
        first, second = (private_words(text) for text in checked_texts([one, other]))
        if first[::2] != second[::2]:
            raise CapeletError(
                f"the two texts differ in what is public ({PUBLIC}); their distance is not bounded"
            )
        gaps = self.vocabulary.places(first[1::2]) - self.vocabulary.places(second[1::2])
        return math.fsum(self._lengths(gaps).tolist())

    @property
    def diameter(self) -> float:
        """The largest distance between two words, in the metric of the guarantee."""
        raise NotImplementedError

    def _lengths(self, gaps: Reals) -> Reals:
        """d for each difference of two places, one a row."""
        raise NotImplementedError

    def _draw(self, words: Sequence[str], stream: Stream) -> Integers:
        raise NotImplementedError


@dataclass(frozen=True)
class WordReplacement(OnWords):
    """ε-metric privacy of each word: the word nearest to its vector plus noise ∝ exp(−ε·‖z‖).

    z = l·g/‖g‖₂ with g ~ N(0, I) and l ~ Gamma(m, 1/ε) (Feyisetan et al. 2020; YAWYW, algorithm 3,
    whose print forgets ‖g‖₂). With `metric="mahalanobis"` z = l·Σ_λ^½·g/‖g‖₂ for the public
    Σ_λ = λΣ + (1−λ)I, Σ the table's covariance with its trace scaled to m (Xu et al. 2020): more
    noise where words are dense, and d(w, w') = ‖Σ_λ^−½(φ(w) − φ(w'))‖. `lam` is λ, 0.5 if not
    given. The search for the nearest word is Euclidean, exact, and post-processing.

    >>> table = (["good", "fine", "bad"], [[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0]])
    >>> len(WordReplacement(epsilon=5, table=table)(["A GOOD film!"])[0].split())
    3
    """

    step: ClassVar[str] = "word-replacement"
    epsilon: float
    table: Table = "glove"
    metric: Metric = "euclidean"
    lam: float | None = None
    size: int | None = None
    fingerprint: str | None = field(default=None, compare=False)
    public: str = PUBLIC

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            hint = did_you_mean(str(self.metric), METRICS)
            raise CapeletError(f"unknown metric {self.metric!r}; {hint}")
        if self.metric == "mahalanobis":
            share = 0.5 if self.lam is None else self.lam
            object.__setattr__(self, "lam", check_number("lam", share, 0, 1 - 1e-6, open_low=True))
        elif self.lam is not None:
            raise CapeletError(f"lam is {self.lam!r}; only metric='mahalanobis' has one")
        super().__post_init__()

    @property
    def guarantee(self) -> Guarantee:
        shape = self.metric if self.lam is None else f"{self.metric}({self.lam:g})"
        metric = f"{self.vocabulary.label} {shape}"
        return Guarantee(self.epsilon, notion="metric", unit="word", metric=metric, caveat=CAVEAT)

    @cached_property
    def diameter(self) -> float:
        if self.lam is None:
            return _diameter(self.vocabulary)
        values, axes = self._spectrum
        return diameter(self.vocabulary.vectors @ (axes / np.sqrt(values)))

    def _lengths(self, gaps: Reals) -> Reals:
        """Euclidean, or ‖Σ_λ^−½ gap‖."""
        if self.lam is not None:
            values, axes = self._spectrum
            gaps = gaps @ (axes / np.sqrt(values))
        return np.sqrt((gaps * gaps).sum(axis=1))

    @cached_property
    def _spectrum(self) -> tuple[Reals, Reals]:
        """The eigenvalues and axes of Σ_λ; the least value is 1 − λ or more."""
        assert self.lam is not None
        table = self.vocabulary
        covariance = np.cov(table.vectors, rowvar=False, dtype=np.float64).reshape(
            table.dimension, table.dimension
        )
        # Trace m, as the identity has: ε keeps its size, only the shape of the noise changes.
        covariance *= table.dimension / np.trace(covariance)
        values, axes = np.linalg.eigh(covariance)
        return self.lam * np.maximum(values, 0.0) + (1.0 - self.lam), axes

    def noise(self, count: int, stream: Stream) -> Reals:
        """`count` independent rows of z."""
        from scipy.special import gammaincinv, ndtri

        width = self.vocabulary.dimension
        rows: Reals = ndtri(stream.uniform(count, width))
        # In m dimensions the shell of radius l has area ∝ l^(m−1), so its length is Gamma(m, 1/ε).
        lengths = gammaincinv(width, stream.uniform(count)) / self.epsilon
        rows *= (lengths / np.sqrt((rows * rows).sum(axis=1)))[:, None]
        if self.lam is None:
            return rows
        values, axes = self._spectrum
        return (rows * np.sqrt(values)) @ axes.T  # Σ_λ^½ up to a turn, which g does not notice

    def _draw(self, words: Sequence[str], stream: Stream) -> Integers:
        out = np.empty(len(words), dtype=np.int64)
        for start in range(0, len(words), ROWS):
            points = self.vocabulary.places(words[start : start + ROWS])
            points += self.noise(len(points), stream)
            out[start : start + ROWS] = self.vocabulary.nearest(points)
        return out


@dataclass(frozen=True)
class TruncatedExponential(OnWords):
    """ε-metric privacy of each word: word v with probability ∝ exp(−½ε·min(d(w, v), γ)).

    TEM (Carvalho et al. 2021): inside {d ≤ γ} a word scores −d, ⊥ scores −γ + (2/ε)·ln|outside|,
    Gumbel(2/ε) is added, the largest wins, and ⊥ is uniform outside. That *is* the formula above,
    also where nothing lies outside, and it is drawn by its cumulative weights. min(d, γ) moves by
    at most d(w, w'), so the cost is ε·d(w, w'); it is also never more than ε·γ, for any two words.
    `gamma_for` finds a γ within which the replacement stays with a wanted probability.
    """

    step: ClassVar[str] = "truncated-exponential"
    epsilon: float
    gamma: float
    table: Table = "glove"
    size: int | None = None
    fingerprint: str | None = field(default=None, compare=False)
    public: str = PUBLIC

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_number("gamma", self.gamma, 0, 1e9, open_low=True))
        super().__post_init__()

    @property
    def guarantee(self) -> Guarantee:
        metric = f"{self.vocabulary.label} euclidean"
        return Guarantee(self.epsilon, notion="metric", unit="word", metric=metric, caveat=CAVEAT)

    @cached_property
    def diameter(self) -> float:
        """min(diameter of the table, γ): the mechanism cannot tell words farther apart."""
        return min(_diameter(self.vocabulary), self.gamma)

    def _lengths(self, gaps: Reals) -> Reals:
        """min(d, γ): words farther apart than γ cost no more."""
        return np.minimum(np.sqrt((gaps * gaps).sum(axis=1)), self.gamma)

    def weights(self, points: Reals) -> Reals:
        """exp(−½ε·min(d, γ)) for every point and every word, the largest of a row scaled to 1."""
        table = self.vocabulary
        near = points - table.centre
        halves = (near * near).sum(axis=1, keepdims=True)
        out = np.empty((len(points), len(table)))
        for start in range(0, len(table), ROWS):
            part = table.vectors[start : start + ROWS] - table.centre
            square = (part * part).sum(axis=1) - 2.0 * (near @ part.T) + halves
            # |a|² + |b|² − 2ab may round to below 0 where a and b are the same.
            out[:, start : start + ROWS] = np.sqrt(np.maximum(square, 0.0))
        np.minimum(out, self.gamma, out=out)
        # ½, because the sum of the weights may move by as much as each of them (McSherry, Talwar).
        out -= out.min(axis=1, keepdims=True)
        out *= -0.5 * self.epsilon
        return np.exp(out, out=out)

    def _draw(self, words: Sequence[str], stream: Stream) -> Integers:
        """By inverse cumulative weights; those of a word are computed once for all its places."""
        numbers: dict[str, int] = {}
        which = np.array(
            [numbers.setdefault(spelling(w), len(numbers)) for w in words], dtype=np.intp
        )
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(len(numbers) + 1))
        uniform, out = stream.uniform(len(words)), np.empty(len(words), dtype=np.int64)
        step, spellings = max(1, _CELLS // len(self.vocabulary)), list(numbers)
        for start in range(0, len(numbers), step):
            some = spellings[start : start + step]
            for row, cells in enumerate(self.weights(self.vocabulary.places(some)), start):
                cells = np.cumsum(cells)
                here = order[ends[row] : ends[row + 1]]
                out[here] = np.searchsorted(cells, uniform[here] * cells[-1], side="right")
        # A uniform so near 1 that its product rounds to the whole sum would fall off the end.
        return np.minimum(out, len(self.vocabulary) - 1)


def gamma_for(epsilon: float, words: int, beta: float = 0.001) -> float:
    """A γ within which TEM keeps the replacement of a known word with probability 1 − β or more.

    (2/ε)·ln((1 − β)(words − 1)/β), where `words` is the size of the table.

    >>> round(gamma_for(epsilon=10, words=30_000), 2)
    3.44
    """
    share = check_number("beta", beta, 0, 0.5, open_low=True)
    others = check_count("words", words, least=2) - 1
    scale = 2.0 / check_number("epsilon", epsilon, LEAST, MOST)
    return scale * math.log((1 - share) * others / share)


# ---- dropout ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordDropout(NoiseStep, OnTexts):
    """Each word is dropped with probability μ, whatever it is; words of a list always are.

    By itself it promises nothing. Before a mechanism that is ε-private for whole texts it makes
    that ε' = ln[(1−μ)e^ε + μ] for each single word (`amplify`, `amplifies`; DPNR, theorem 2). The
    words of `mask` are yours to choose, and go also as parts of others ("Anna's"): they do not
    weaken ε', and no gain is claimed for them. A dropped word takes one of the two white spaces
    around it along; punctuation stays.

    >>> WordDropout(mu=0, mask=["Anna"])(["Then Anna left, and ANNA's bag too."])
    ['Then left, and bag too.']
    """

    step: ClassVar[str] = "word-dropout"
    guarantee: ClassVar[None] = None
    mu: float
    mask: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", _check_mu(self.mu))
        object.__setattr__(self, "mask", _check_mask(self.mask))
        if self.mu == 0 and not self.mask:
            raise CapeletError("mu is 0 and mask is empty; give a mu above 0 or words to mask")

    @property
    def draws(self) -> bool:  # type: ignore[override]
        return self.mu > 0

    def describe(self) -> dict[str, Any]:
        return entry(self, mask=list(self.mask) or None)

    def amplifies(self, following: Guarantee) -> Guarantee:
        """What holds for each word when a mechanism with a guarantee for whole texts follows.

        Only a local guarantee for texts covers "this word or none", which the proof needs. δ
        becomes (1−μ)δ.
        """
        if following.notion != "local" or following.unit != "text":
            raise CapeletError(
                "word dropout amplifies a local guarantee for whole texts; "
                f"found {following.notion} privacy for each {following.unit}"
            )
        # With probability μ the word is gone and the two texts are the same to what follows
        # (DPNR, theorem 2): e^ε' = (1 − μ)·e^ε + μ.
        return Guarantee(
            amplify(following.epsilon, self.mu),
            (1.0 - self.mu) * following.delta,
            unit="word",
            status=following.status,
            caveat=following.caveat,
        )

    def draw(self, batch: Any, stream: Stream) -> list[str]:
        parts = [private_words(text) for text in checked_texts(batch)]
        total = sum(len(text) // 2 for text in parts)
        # Drawn for every word, masked ones too: the coins must not depend on the text.
        drops = iter((stream.uniform(total) < self.mu).tolist() if total else [])
        return [self._without(text, [next(drops) for _ in text[1::2]]) for text in parts]

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(self.mask)

    def _is_masked(self, word: str) -> bool:
        return bool(self.mask) and not self._words.isdisjoint(
            [spelling(word), *treebank_pieces(word)]
        )

    def _without(self, parts: Sequence[str], drops: Sequence[bool]) -> str:
        text = parts[0]
        for word, gap, drop in zip(parts[1::2], parts[2::2], drops, strict=True):
            if not drop and not self._is_masked(word):
                text += word + gap
            else:
                text += gap.lstrip() if not text or text[-1].isspace() else gap
        return text


def amplify(
    epsilon: float, mu: float, words: int = 1, unit: Literal["text", "word"] = "text"
) -> float:
    """ε' for `words` words when each is dropped with probability μ before an ε-private mechanism.

    From an ε for whole texts: ln[(1−μ^m)e^ε + μ^m]. From an ε for single words, which must also
    cover "this word or none": m·ln[(1−μ)e^ε + μ].

    >>> round(amplify(epsilon=1.0, mu=0.5), 3), round(amplify(1.0, 0.5, words=3), 3)
    (0.62, 0.918)
    """
    loss = check_number("epsilon", epsilon, 0, np.finfo(float).max, open_low=True)
    share, count = _check_mu(mu), check_count("words", words)
    if unit not in ("text", "word"):
        raise CapeletError(f"unit is {unit!r}; it must be 'text' or 'word'")
    none = share**count if unit == "text" else share  # nothing of them is left
    # One formula, written twice: neither a small ε loses its digits nor a large one overflows.
    if loss < 1.0:
        one = math.log1p((1.0 - none) * math.expm1(loss))
    else:
        one = loss + math.log1p(none * math.expm1(-loss))
    return one if unit == "text" else count * one


# ---- what comes in ------------------------------------------------------------------------------


def checked_texts(batch: Any) -> list[str]:
    """The batch as a list of texts, or an error that says what is wrong with it."""
    if isinstance(batch, str | bytes) or not isinstance(batch, Iterable):
        raise DataError(f"texts must come as a list of texts; found a {type(batch).__name__}")
    texts = list(batch)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(
                f"text {row} is a {type(text).__name__}, not a text; nothing was released"
            )
    return [str(text) for text in texts]


def _check_mu(mu: Any) -> float:
    return check_number("mu", mu, 0.0, 1.0 - 2.0**-53)


def _check_mask(mask: Any) -> tuple[str, ...]:
    """The words as they are looked up, each once, in order."""
    words = [spelling(word) for word in checked_texts(mask)]
    for word in words:
        if not PRIVATE_WORD.fullmatch(word):
            raise CapeletError(f"mask holds {word!r}; give single words, without spaces or marks")
    return tuple(sorted(set(words)))


def _diameter(table: Vocabulary) -> float:
    return diameter(table.vectors.astype(np.float64))
