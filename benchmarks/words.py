"""Metric-private word replacement against faiss, the usual loop and a bare product, in one run.

    python benchmarks/words.py [--words N] [--tokens N] [--repeat R]

A table of 30,522 words in 384 dimensions, ε = 20. Ours takes texts to texts: it cuts them, draws
noise, searches and joins. faiss' IndexFlatL2 only searches, for points that are noised before the
clock runs. The usual loop draws one word's noise by `multivariate_normal` and subtracts its point
from the whole table; the plain loop draws by `normal`. The ceiling is the bare float32 product of
all points with the table, block by block. They take turns and the best time of each counts. The
last line is JSON. faiss takes part where it is installed: pip install 'capelet[bench]'
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.mechanisms.sampling import Stream
from capelet.mechanisms.vocabulary import COLUMNS, ROWS, Vocabulary
from capelet.mechanisms.words import WordReplacement
from tables import Contestant, best_of, result, table, wanted

WORDS, WIDTH, EPSILON = 30_522, 384, 20.0
WANTED = {"faiss": 4.0, "ceiling": 0.6, "usual loop": 300.0}


def loop(table: npt.NDArray[np.float32], rows: npt.NDArray[Any], usual: bool) -> list[int]:
    """A word at a time, as published code does it."""
    rng = np.random.default_rng()
    nearest = []
    for row in rows:
        if usual:
            direction = rng.multivariate_normal(np.zeros(WIDTH), np.eye(WIDTH))
        else:
            direction = rng.normal(size=WIDTH)
        length = rng.gamma(WIDTH, 1 / EPSILON)
        point = table[row] + length * direction / np.linalg.norm(direction)
        nearest.append(int(np.linalg.norm(table - point, axis=1).argmin()))
    return nearest


def product(table: npt.NDArray[np.float32], points: npt.NDArray[np.float32]) -> None:
    """The arithmetic that no exact search can do without."""
    out = np.empty((min(ROWS, len(points)), COLUMNS), dtype=np.float32)
    for first in range(0, len(points), ROWS):
        some = points[first : first + ROWS]
        for start in range(0, len(table), COLUMNS):
            part = table[start : start + COLUMNS]
            np.matmul(some, part.T, out=out[: len(some), : len(part)])


def contestants(step: WordReplacement, tokens: int) -> dict[str, Contestant]:
    vectors = step.vocabulary.vectors
    rows = np.random.default_rng(0).integers(0, len(vectors), tokens)
    words = [f"w{row}" for row in rows]
    texts = [" ".join(words[start : start + 32]) for start in range(0, tokens, 32)]
    points = (vectors[rows] + step.noise(tokens, Stream())).astype(np.float32)
    return {
        "capelet": (lambda: step(texts), tokens),
        **(search_by_faiss(vectors, points) if find_spec("faiss") else {}),
        "ceiling": (lambda: product(vectors, points), tokens),
        "plain loop": (lambda: loop(vectors, rows[:8], usual=False), 8),
        "usual loop": (lambda: loop(vectors, rows[:4], usual=True), 4),
    }


def search_by_faiss(
    vectors: npt.NDArray[np.float32], points: npt.NDArray[np.float32]
) -> dict[str, Contestant]:
    import faiss

    index = faiss.IndexFlatL2(WIDTH)
    index.add(vectors)
    return {"faiss": (lambda: index.search(points, 1), len(points))}


def wrong(step: WordReplacement, count: int) -> int:
    """How many of `count` noised points get another word than brute force in float64 finds."""
    vectors = step.vocabulary.vectors
    points = vectors[:count] + step.noise(count, Stream())
    brute = [int(((vectors - point) ** 2).sum(axis=1).argmin()) for point in points]
    return int((step.vocabulary.nearest(points) != brute).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=4)
    arguments = parser.parse_args()

    matrix = np.random.default_rng(1).normal(size=(arguments.words, WIDTH)) / np.sqrt(WIDTH)
    names = [f"w{number}" for number in range(arguments.words)]
    step = WordReplacement(EPSILON, Vocabulary.of(names, matrix))
    rounds = arguments.repeat + 1
    best = best_of(contestants(step, arguments.tokens), rounds)
    ours = best["capelet"]
    print(f"{arguments.words:,} words × {WIDTH}, best of {rounds}")
    table(
        ("", "tokens/s", "capelet is"),
        {name: (f"{1 / each:,.0f}", f"{each / ours:.2f} ×") for name, each in best.items()},
    )
    for name, least in WANTED.items():
        if name in best:
            wanted(f"replacement against {name}: wanted {least:g} ×", best[name] / ours >= least)
    count = min(48, arguments.words)
    misses = wrong(step, count)
    wanted(f"exact: {misses} of {count} differ from brute force, wanted 0", misses == 0)
    figures = {
        name: {"tokens_per_second": round(1 / each, 1), "ratio": round(each / ours, 3)}
        for name, each in best.items()
    }
    packages = ("numpy", "faiss-cpu") if "faiss" in best else ("numpy",)
    result("words", packages, words=arguments.words, width=WIDTH, result=figures, wrong=misses)


if __name__ == "__main__":
    main()
