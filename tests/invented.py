"""Texts of invented words, and an encoder that shows which of them a text has."""

from __future__ import annotations

from typing import Any

import numpy as np

from capelet.studies.word_models import WordTraining

WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]  # 150 invented words


def sentences(count: int, seed: int = 0) -> list[str]:
    """Sentences of 4 to 8 invented words whose frequencies fall as 1 / rank."""
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, len(WORDS) + 1)
    share /= share.sum()
    return [
        " ".join(random.choice(WORDS, size=random.integers(4, 9), replace=False, p=share))
        for _ in range(count)
    ]


class Bag:
    """An encoder that hides nothing: the mean of one random vector per word."""

    def __init__(self, dimension: int = 96, noise: float = 0.0, silent: bool = False) -> None:
        random = np.random.default_rng(5)
        self.name, self.backend, self.fingerprint = "bag", "numpy", "bag"
        self.dimension, self.noise, self.silent = dimension, noise, silent
        self.table = random.normal(size=(len(WORDS), dimension)).astype(np.float32)
        self.random = np.random.default_rng(6)

    def encode(self, texts: Any, progress: Any = None) -> np.ndarray:
        place = {word: row for row, word in enumerate(WORDS)}
        made = [self.table[[place[word] for word in text.split()]].mean(axis=0) for text in texts]
        vectors = np.zeros_like(np.stack(made)) if self.silent else np.stack(made)
        noise = self.random.normal(size=vectors.shape) * (1.0 if self.silent else self.noise)
        return (vectors + noise).astype(np.float32)

    def truncated(self, texts: Any) -> np.ndarray:
        return np.zeros(len(texts), dtype=bool)

    def tokens(self, texts: Any) -> list[tuple[list[int], list[tuple[int, int]]]]:
        place = {word: row for row, word in enumerate(WORDS)}
        made = []
        for text in texts:
            ids, spans, at = [], [], 0
            for word in text.split():
                ids.append(place[word])
                spans.append((at, at + len(word)))
                at += len(word) + 1
            made.append((ids, spans))
        return made


class Plain:
    """A release as it is, of the shape that `Inversion` is given."""

    draws = True

    def __init__(self, encoder: Bag) -> None:
        self.encoder = encoder

    def release(self, texts: Any, progress: Any = None) -> Any:
        class Release:
            vectors = self.encoder.encode(texts)
            recipe: dict[str, Any] = {"steps": []}  # noqa: RUF012
            recipe_hash = "0" * 16

        return Release


SMALL: dict[str, Any] = {"width": 128, "depth": 1, "dropout": 0.1, "epochs": 25, "batch": 64}
AUXILIARY, VICTIMS = sentences(1200), sentences(150, seed=1)


def texts_of_words(count: int, seed: int = 0, words: int = 600) -> list[list[str]]:
    """Texts of 12 words, frequencies falling as 1 / rank: no order, no topics, only chance."""
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, words + 1)
    share /= share.sum()
    return [[f"w{number}" for number in random.choice(words, 12, p=share)] for _ in range(count)]


TRAINING = WordTraining(dimension=100, window=3, epochs=15, negatives=5, least=2)
