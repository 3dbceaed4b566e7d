"""Words with public vectors: how a text is cut into words, where a word lies, what is nearest.

The rules of cutting are stated in one place, `data.text`: a *word* is a run of anything that is
neither white space nor one of the listed marks; an apostrophe, hyphen, underscore or at-sign
between two such runs belongs to it ("don't", "well-known"). What is not a word is public and stays
as it is. Letters, digits, accents, emoji and control characters are all parts of words, so none of
them slips through.

Every word has a place, whether the table knows it or not: see `Vocabulary.places`. The search for
the nearest word is exact; it is post-processing, so its arithmetic decides nothing about privacy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from capelet.data.text import PRIVATE_WORD, spelling, treebank_pieces
from capelet.encoders import load
from capelet.encoders.word_vectors import read_word_vectors
from capelet.errors import CapeletError, DataError, EncoderError
from capelet.files import expand_user
from capelet.interfaces import Vectors
from capelet.mechanisms.sampling import Integers
from capelet.privacy.guarantees import check_count

Reals = npt.NDArray[np.float64]
Table = Any  # a name, a file, a (words, matrix) pair or a Vocabulary

ROWS, COLUMNS = 1024, 2048  # queries × words of one matrix product
LEAST, MOST = 1e-9, 1e9  # the radius that a table may have, so that no square overflows


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Two or more words with finite vectors, all public; made by `Vocabulary.of` or `vocabulary`.

    >>> table = Vocabulary.of(["good", "bad", "film"], np.eye(3))
    >>> table.words, table.fingerprint[:8]
    (('good', 'bad', 'film'), '0063d5b3')
    """

    name: str
    words: tuple[str, ...]
    vectors: npt.NDArray[np.float32]

    @classmethod
    def of(
        cls, words: Iterable[str], vectors: Any, name: str = "given", size: int | None = None
    ) -> Vocabulary:
        """The first `size` entries that are words; of one spelling, the lower-case entry.

        Entries that a text could not hold as one word (punctuation, phrases) are left out, so that
        a replaced text has as many words as before.
        """
        entries, matrix = list(words), _matrix(vectors)
        if len(entries) != len(matrix):
            raise DataError(
                f"a table needs one vector per word; found {len(entries)} words "
                f"and {len(matrix)} vectors"
            )
        rows: dict[str, int] = {}
        for row, entry in enumerate(entries):
            if not isinstance(entry, str):
                raise DataError(f"entry {row} of the table is {entry!r}; words must be texts")
            key = spelling(entry)
            if PRIVATE_WORD.fullmatch(key) and (key not in rows or entry == key):
                rows[key] = row
        spellings = list(rows)[: None if size is None else check_count("size", size, least=2)]
        if len(spellings) < 2:
            raise CapeletError(
                f"the table {name!r} has {len(spellings)} usable words; "
                "replacement needs at least 2"
            )
        return cls(name, tuple(spellings), _in_range(matrix[[rows[word] for word in spellings]]))

    def __len__(self) -> int:
        return len(self.words)

    @property
    def dimension(self) -> int:
        return int(self.vectors.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of words and vectors: equal fingerprints mean the same metric on words."""
        digest = hashlib.sha256("\n".join(self.words).encode("utf-8", "surrogatepass"))
        digest.update(np.ascontiguousarray(self.vectors, dtype="<f4").tobytes())
        return digest.hexdigest()

    @property
    def label(self) -> str:
        """A name that no other table has, for the metric of a guarantee."""
        return f"{self.name}/{self.fingerprint[:8]}"

    @cached_property
    def centre(self) -> Reals:
        """The mean of all vectors: the public place of a word that nobody knows."""
        return self.vectors.mean(axis=0, dtype=np.float64)

    @cached_property
    def rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def place(self, word: str) -> Reals:
        """φ(word), a public function of its spelling, never farther out than the table itself.

        The vector of the word; else the mean over those of its pieces that the table has ("don't"
        is "do" and "n't"); else the centre. So a word is never dropped and never passed unchanged,
        and words unknown to the last piece have one place: nothing tells them apart.
        """
        row = self.rows.get(spelling(word))
        if row is not None:
            return self.vectors[row].astype(np.float64)
        rows = [self.rows[piece] for piece in treebank_pieces(word) if piece in self.rows]
        return self.vectors[rows].mean(axis=0, dtype=np.float64) if rows else self.centre

    def places(self, words: Sequence[str]) -> Reals:
        """φ of each word, as an (n, dimension) array."""
        out = np.empty((len(words), self.dimension))
        for row, word in enumerate(words):
            out[row] = self.place(word)
        return out

    # ---- the nearest word ----------------------------------------------------------------------

    @cached_property
    def _radius(self) -> float:
        return _radius(self.vectors, self.centre)

    @cached_property
    def _search(self) -> npt.NDArray[np.float32]:
        """Rows [t, −½‖t‖²] of the centred table at radius 1: the largest [q, 1]·row is nearest."""
        table = np.empty((len(self), self.dimension + 1), dtype=np.float32)
        for start in range(0, len(self), COLUMNS):
            part = (self.vectors[start : start + COLUMNS] - self.centre) / self._radius
            table[start : start + COLUMNS, :-1] = part
            table[start : start + COLUMNS, -1] = -0.5 * (part * part).sum(axis=1)
        return table

    def nearest(self, points: Reals) -> Integers:
        """The row of the word nearest to each point, exactly; of equals the first.

        Scores are products in float32, in blocks. Where the two best are closer than the rounding
        of such a product can tell apart, every word so close is compared again in float64.
        """
        queries = np.ones((len(points), self.dimension + 1), dtype=np.float32)
        queries[:, :-1] = (points - self.centre) / self._radius
        rows, best, second = self._scan(queries)
        # Twice the most that a sum of so many products, each rounded, can be off.
        norms = np.sqrt((queries.astype(np.float64) ** 2).sum(axis=1))
        slack = (self.dimension + 16) * 1.125 * 2.0**-23 * norms
        unsure = np.flatnonzero(best - second <= slack)
        step = max(1, (ROWS * COLUMNS) // len(self))
        for start in range(0, len(unsure), step):
            some = unsure[start : start + step]
            close = queries[some] @ self._search.T >= (best[some] - slack[some])[:, None]
            for row, candidates in zip(some, close, strict=True):
                rows[row] = self._nearest_of(points[row], np.flatnonzero(candidates))
        return rows

    def _nearest_of(self, point: Reals, candidates: npt.NDArray[np.intp]) -> int:
        apart = ((self.vectors[candidates] - point) ** 2).sum(axis=1)
        return int(candidates[apart.argmin()])

    def _scan(self, queries: npt.NDArray[np.float32]) -> tuple[Integers, Vectors, Vectors]:
        """For each query the row of the largest score, that score, and the second largest."""
        rows = np.zeros(len(queries), dtype=np.int64)
        best, second = np.full((2, len(queries)), -np.inf, dtype=np.float32)
        room = np.empty(min(ROWS, len(queries)) * min(COLUMNS, len(self)), dtype=np.float32)
        for first in range(0, len(queries), ROWS):
            block = slice(first, first + ROWS)
            some = queries[block]
            every = np.arange(len(some))
            for start in range(0, len(self), COLUMNS):
                part = self._search[start : start + COLUMNS]
                scores = room[: len(some) * len(part)].reshape(len(some), len(part))
                np.matmul(some, part.T, out=scores)
                here = scores.argmax(axis=1)
                value = scores[every, here]
                scores[every, here] = -np.inf
                # The second best of all: of this block, or whichever of the two best lost.
                below = np.maximum(scores.max(axis=1), np.minimum(best[block], value))
                second[block] = np.maximum(second[block], below)
                rows[block] = np.where(value > best[block], here + start, rows[block])
                best[block] = np.maximum(best[block], value)
        return rows, best, second


# ---- distances ----------------------------------------------------------------------------------


def diameter(points: Reals) -> float:
    """The largest distance between two of the points, rounded up by less than a thousandth.

    Only points that could be an end are compared: with D found by walking to the farthest point a
    few times and R the largest distance from the mean, those farther than D − R from the mean.
    """
    points = points - points.mean(axis=0)
    radii = np.sqrt((points * points).sum(axis=1))
    # A lower bound D of the diameter: walk to the farthest point, and again from there.
    far, longest = int(radii.argmax()), 0.0
    for _ in range(8):
        away = np.sqrt(((points - points[far]) ** 2).sum(axis=1))
        far, longest = int(away.argmax()), max(longest, float(away.max()))
    # Two points D or more apart: the triangle inequality puts each at least D − R from the mean.
    ends = points[radii >= (longest - radii.max()) * (1 - 1e-9)].astype(np.float32)
    halves = 0.5 * (ends * ends).sum(axis=1)
    most = 0.5 * longest * longest  # half the square: ½|a|² + ½|b|² − ab is one product
    for first in range(0, len(ends), COLUMNS):
        for second in range(first, len(ends), COLUMNS):
            one, two = slice(first, first + COLUMNS), slice(second, second + COLUMNS)
            product = ends[one] @ ends[two].T
            product -= halves[two]
            most = max(most, float((halves[one] - product.min(axis=1)).max()))
    slack = (points.shape[1] + 8) * 2.0**-22 * float(radii.max()) ** 2  # of the float32 products
    upper = np.sqrt(2 * (most + slack))
    return float(min(upper, 2 * radii.max()) * (1 + 1e-6))


def _radius(vectors: npt.NDArray[np.float32], centre: Reals) -> float:
    most = 0.0
    for start in range(0, len(vectors), COLUMNS):
        part = vectors[start : start + COLUMNS] - centre
        most = max(most, float((part * part).sum(axis=1).max()))
    return float(np.sqrt(most))


def _matrix(vectors: Any) -> npt.NDArray[np.float32]:
    matrix = np.asarray(vectors)
    if matrix.ndim != 2 or matrix.shape[1] == 0 or matrix.dtype.kind not in "fiu":
        raise DataError(
            "the vectors of a table must be an (n, d) array of numbers; "
            f"found shape {matrix.shape} of {matrix.dtype}"
        )
    with np.errstate(over="ignore"):
        return matrix.astype(np.float32, copy=False)


def _in_range(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The vectors, unwritable; refused where they are not finite, all alike, or of absurd size."""
    if not np.isfinite(vectors).all():
        raise DataError("the table holds NaN or infinity; every word needs a finite vector")
    radius = _radius(vectors, vectors.mean(axis=0, dtype=np.float64))
    if not LEAST <= radius <= MOST:
        raise DataError(
            f"the vectors of the table lie {radius:g} around their mean; "
            f"scale them to between {LEAST:g} and {MOST:g}"
        )
    # Public and shared: whoever changed it would change what ε means.
    vectors.flags.writeable = False
    return vectors


# ---- where tables come from ----------------------------------------------------------------------


@runtime_checkable
class HasTokenTable(Protocol):
    """An encoder whose tokens have vectors of their own, one row each."""

    def token_table(self) -> tuple[list[str], Vectors]: ...


def known_table(table: Table) -> None:
    """Refuse at once what `vocabulary` could not read; nothing heavy is loaded."""
    if table == "given":
        raise CapeletError(
            "the table of this recipe was given in Python; give it again, or save it as a file of "
            "word vectors and name the file"
        )
    if isinstance(table, str):
        if not expand_user(table).is_file():
            load(table)
    elif not isinstance(table, Vocabulary):
        raise CapeletError(
            f"table is a {type(table).__name__}; give the name of an encoder, a file of word "
            "vectors, or Vocabulary.of(words, vectors)"
        )


def vocabulary(table: Table, size: int | None = None) -> Vocabulary:
    """The words and vectors that `table` stands for, read once for each process.

    `glove` and `wordllama`; any other encoder by name, folder or Hugging Face id (its own token
    table, whole-word tokens only); a file of word vectors in text form; or a `Vocabulary`.
    """
    if isinstance(table, str):
        return _read(table, size)
    known_table(table)
    return table if size is None else _cut_down(table, size)


@lru_cache(maxsize=16)
def _cut_down(table: Vocabulary, size: int) -> Vocabulary:
    return Vocabulary.of(table.words, table.vectors, table.name, size)


@lru_cache(maxsize=4)
def _read(name: str, size: int | None) -> Vocabulary:
    file = expand_user(name)
    if file.is_file():
        return Vocabulary.of(*read_word_vectors(file, "replace"), file.stem, size)
    encoder = load(name)
    if not isinstance(encoder, HasTokenTable):
        raise EncoderError(
            f"the encoder {name!r} has no token table; give the words and vectors by "
            "Vocabulary.of(words, vectors)"
        )
    return Vocabulary.of(*whole_words(*encoder.token_table()), name, size)


def whole_words(tokens: Sequence[str], table: Vectors) -> tuple[list[str], Vectors]:
    """The tokens that begin a word, without their mark, and their rows of the table.

    Where tokens carry a mark for "begins a word" (▁ or Ġ), only those count; elsewhere all do, and
    continuations ("##ing") drop out as punctuation.
    """
    rows = [row for row, token in enumerate(tokens) if token[:1] in "▁Ġ" and len(token) > 1]
    if 10 * len(rows) <= len(tokens):
        return list(tokens), table
    return [tokens[row][1:] for row in rows], table[rows]
