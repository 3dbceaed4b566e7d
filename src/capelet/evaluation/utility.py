"""What a release is still good for: a task, or the neighbours that a vector store would return."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from capelet.evaluation.plan import Plan
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap, mean_over_seeds, weighted_means
from capelet.interfaces import Vectors


def neighbour_recall(
    original: Vectors, released_vectors: Vectors, count: int = 10
) -> npt.NDArray[np.float64]:
    """For each row, the share of its nearest neighbours (by cosine) that the release still finds.

    Needs no labels: it is what the user of a vector store sees of the protection. Rows are compared
    within the given set only.

    >>> points = np.random.default_rng(0).normal(size=(40, 8))
    >>> float(neighbour_recall(points, points).mean())
    1.0
    """
    if len(original) <= count:
        raise ValueError(f"{len(original)} rows have no {count} neighbours each")
    before, after = _nearest(original, count), _nearest(released_vectors, count)
    common = [len(np.intersect1d(a, b)) for a, b in zip(before, after, strict=True)]
    return np.array(common) / count


def neighbours(
    plan: Plan, original: Vectors, vectors_by_split: Sequence[Vectors], recipe_hash: str | None
) -> Finding:
    """Label-free utility: the recall of ten neighbours among the victims, averaged over seeds."""
    bootstrap = Bootstrap.over(plan.units)
    draws = [
        weighted_means(
            bootstrap.of(plan.units[parts.victims]),
            neighbour_recall(original[parts.victims], vectors[parts.victims]),
        )
        for vectors, parts in zip(vectors_by_split, plan.splits, strict=True)
    ]
    recall, victims = mean_over_seeds(draws), len(plan.splits[0].victims)
    return Finding(
        "utility",
        "neighbours",
        "recall_at_10",
        *recall.ends,
        # A random order of the others finds each neighbour with this probability.
        chance=10 / (victims - 1),
        n=victims,
        parameters={"by_seed": list(recall.by_seed)},
        recipe_hash=recipe_hash,
    )


def _nearest(vectors: Vectors, count: int) -> npt.NDArray[np.intp]:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.asarray(vectors / np.maximum(length, 1e-12), dtype=np.float32)
    nearest = np.empty((len(unit), count), dtype=np.intp)
    for start in range(0, len(unit), 1024):
        similar = unit[start : start + 1024] @ unit.T
        # A row is not its own neighbour.
        np.put_along_axis(similar, np.arange(start, start + len(similar))[:, None], -np.inf, axis=1)
        nearest[start : start + 1024] = np.argpartition(-similar, count - 1, axis=1)[:, :count]
    return nearest
