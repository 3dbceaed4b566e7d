"""Word vectors trained here, so that membership can be measured where the truth is known.

Whoever asks what a table of word vectors remembers needs tables whose training text is known. Three
kinds, as the paper attacks them: `word2vec` (skip-gram with negative sampling, Mikolov 2013),
`fasttext` (the same, a word being the mean of itself and its character n-grams, Bojanowski 2017)
and `glove` (weighted factorisation of log counts, Pennington 2014). Rows move by AdaGrad.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.interfaces import Progress, silent

if TYPE_CHECKING:
    from torch import Tensor

Ids = npt.NDArray[np.int64]
WordTable = tuple[tuple[str, ...], npt.NDArray[np.float32]]
KINDS = ("word2vec", "fasttext", "glove")
_BATCH = 4096
_SHARED = 64  # negatives are drawn once for a batch, and weighted to count as many as asked


@dataclass(frozen=True)
class WordTraining:
    """How a table is trained; the defaults follow the paper (d = 100, window 5, 5 epochs)."""

    kind: str = "word2vec"
    dimension: int = 100
    window: int = 5
    epochs: int = 5
    negatives: int = 25
    least: int = 5
    learning_rate: float = 0.1
    frequent: float = 1e-3
    buckets: int = 20_000
    seed: int = 0

    def fit(self, texts: Sequence[Sequence[str]], progress: Progress = silent) -> WordTable:
        """Words and vectors of a table; words rarer than `least` in the texts are left out."""
        if self.kind not in KINDS:
            raise CapeletError(f"no word model {self.kind!r}; {did_you_mean(self.kind, KINDS)}")
        counter = Counter(word for text in texts for word in text)
        frequent = [item for item in counter.most_common() if item[1] >= self.least]
        if len(frequent) < 10:
            raise DataError(
                f"{len(frequent)} words stand {self.least} times or more in {len(texts)} texts; "
                "a word model needs at least 10: give more text or a smaller `least`"
            )
        words = tuple(word for word, _ in frequent)
        counts = np.array([count for _, count in frequent])
        place = {word: number for number, word in enumerate(words)}
        ids = [
            np.array([place[word] for word in text if word in place], dtype=np.int64)
            for text in texts
        ]
        train = _glove if self.kind == "glove" else _skip_gram
        return words, train(self, ids, words, counts, progress)


def pairs_of(
    ids: Sequence[Ids], window: int, random: np.random.Generator | None, keep: Any = None
) -> tuple[Ids, Ids, Ids]:
    """(centre, context, distance) of all windows; with `random` each window's size is drawn."""
    if keep is not None and random is not None:
        ids = [text[random.random(len(text)) < keep[text]] for text in ids]
    lengths = np.array([len(text) for text in ids])
    flat = np.concatenate([*ids, np.zeros(0, dtype=np.int64)])
    text = np.repeat(np.arange(len(ids)), lengths)
    reach = (
        np.full(len(flat), window) if random is None else random.integers(1, window + 1, len(flat))
    )
    centres, contexts, distances = [], [], []
    for step in range(1, window + 1):
        same = text[step:] == text[:-step]
        for here, there in (
            (slice(step, None), slice(None, -step)),
            (slice(None, -step), slice(step, None)),
        ):
            near = same & (reach[here] >= step)
            centres.append(flat[here][near])
            contexts.append(flat[there][near])
            distances.append(np.full(int(near.sum()), step))
    return np.concatenate(centres), np.concatenate(contexts), np.concatenate(distances)


def _skip_gram(
    training: WordTraining,
    ids: Sequence[Ids],
    words: Sequence[str],
    counts: Ids,
    progress: Progress,
) -> npt.NDArray[np.float32]:
    import torch

    random = np.random.default_rng([training.seed, 0x4A])
    share = counts / counts.sum()
    keep = np.minimum(1, np.sqrt(training.frequent / share) + training.frequent / share)
    noise = torch.from_numpy(share**0.75)
    pieces = torch.from_numpy(_pieces(training, words))
    rows = int(pieces.max()) + 1
    inside = _Rows(_start(rows, training, random), training.learning_rate)
    outside = _Rows(torch.zeros(len(words), training.dimension), training.learning_rate)
    generator = torch.Generator().manual_seed(training.seed)
    weight = training.negatives / _SHARED
    for epoch in range(training.epochs):
        centres, contexts, _ = pairs_of(ids, training.window, random, keep)
        for batch in _shuffled(len(centres), random):
            centre = torch.from_numpy(centres[batch])
            context = torch.from_numpy(contexts[batch])
            negatives = torch.multinomial(noise, _SHARED, replacement=True, generator=generator)
            mine = pieces[centre]
            real = mine >= 0
            size = real.sum(dim=1, keepdim=True)
            vector = (inside.table[mine.clamp(min=0)] * real[:, :, None]).sum(dim=1) / size
            true, false = outside.table[context], outside.table[negatives]
            pull = 1 - torch.sigmoid((vector * true).sum(dim=1, keepdim=True))
            push = weight * torch.sigmoid(vector @ false.T)
            change = (pull * true - push @ false) / size
            outside.add(context, pull * vector)
            outside.add(negatives, -(push.T @ vector))
            owner = torch.nonzero(real)[:, 0]
            inside.add(mine[real], change[owner])
        progress("training words", epoch + 1, training.epochs)
    present = pieces >= 0
    table = inside.table[pieces.clamp(min=0)] * present[:, :, None]
    return np.asarray((table.sum(dim=1) / present.sum(dim=1, keepdim=True)).numpy())


def _glove(
    training: WordTraining,
    ids: Sequence[Ids],
    words: Sequence[str],
    counts: Ids,
    progress: Progress,
) -> npt.NDArray[np.float32]:
    import torch
    from scipy.sparse import coo_array

    random = np.random.default_rng([training.seed, 0x4B])
    centres, contexts, distance = pairs_of(ids, training.window, None)
    shape = (len(words), len(words))
    table = coo_array((1.0 / distance, (centres, contexts)), shape=shape).tocsr().tocoo()
    row, column = (torch.from_numpy(part.astype(np.int64)) for part in (table.row, table.col))
    logs = torch.from_numpy(np.log(table.data)).float()
    trust = torch.from_numpy(np.minimum(1, (table.data / 10.0) ** 0.75)).float()
    halves = [_Rows(_start(len(words), training, random), training.learning_rate) for _ in range(2)]
    levels = [_Rows(torch.zeros(len(words), 1), training.learning_rate) for _ in range(2)]
    for epoch in range(training.epochs):
        for rows in _shuffled(len(logs), random):
            batch = torch.from_numpy(rows)
            one, two = row[batch], column[batch]
            left, right = halves[0].table[one], halves[1].table[two]
            guess = (left * right).sum(1) + levels[0].table[one, 0] + levels[1].table[two, 0]
            error = (trust[batch] * (logs[batch] - guess))[:, None]
            halves[0].add(one, error * right)
            halves[1].add(two, error * left)
            levels[0].add(one, error)
            levels[1].add(two, error)
        progress("training words", epoch + 1, training.epochs)
    return np.asarray((halves[0].table + halves[1].table).numpy())


class _Rows:
    """A table whose rows move by AdaGrad, each with one step size."""

    def __init__(self, table: Tensor, learning_rate: float) -> None:
        import torch

        self.table = table
        self.learning_rate = learning_rate
        self.squares = torch.full((len(table), 1), 1e-8)

    def add(self, rows: Tensor, change: Tensor) -> None:
        """Move rows along their summed change; a row may be named many times."""
        import torch

        unique, place = torch.unique(rows, return_inverse=True)
        total = torch.zeros(len(unique), self.table.shape[1]).index_add_(0, place, change)
        self.squares[unique] += (total**2).mean(dim=1, keepdim=True)
        self.table[unique] += self.learning_rate * total / self.squares[unique].sqrt()


def _start(rows: int, training: WordTraining, random: np.random.Generator) -> Tensor:
    import torch

    values = (random.random((rows, training.dimension)) - 0.5) / training.dimension
    return torch.from_numpy(values.astype(np.float32))


def _shuffled(rows: int, random: np.random.Generator) -> Iterator[Ids]:
    order = random.permutation(rows)
    for start in range(0, rows, _BATCH):
        yield order[start : start + _BATCH]


def _pieces(training: WordTraining, words: Sequence[str]) -> Ids:
    """The table rows of each word: itself, and for `fasttext` its n-grams (3 to 6) by hash."""
    rows: list[list[int]] = [[number] for number in range(len(words))]
    if training.kind == "fasttext":
        for row, word in zip(rows, words, strict=True):
            spelling = f"<{word}>"
            grams = {
                spelling[at : at + size]
                for size in range(3, 7)
                for at in range(len(spelling) - size + 1)
                if size < len(spelling)
            }
            row += sorted(
                len(words) + zlib.crc32(gram.encode()) % training.buckets for gram in grams
            )
    table = np.full((len(words), max(len(row) for row in rows)), -1, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table
