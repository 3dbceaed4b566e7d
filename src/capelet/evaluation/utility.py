"""What a release is still good for: a task, or the neighbours that a vector store would return."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from capelet.attacks.views import in_range, range_exponent
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
    return _common(before, after).sum(axis=1) / count


def recall_influences(
    original: Vectors, released_vectors: Vectors, count: int = 10
) -> npt.NDArray[np.float64]:
    """How much each row counts for the mean recall: its own, and what it is to its neighbours.

    A row is among the neighbours of others, so rows are no independent observations, and an
    interval from their recalls alone is too narrow (it covers 83 %). Without row j a list that held
    it gains its next row, which stands in the other list too with probability p. So j is worth
    1 − 2p hits to a row that has it in both lists, and −p to one that has it in one (the
    jackknife's pseudo-values, with p in place of what happens to happen). Moved to the mean recall.
    """
    rows, more = len(original), count + 1
    if rows <= more:
        return neighbour_recall(original, released_vectors, count)
    before, after = _nearest_in_order(original, more), _nearest_in_order(released_vectors, more)
    near, far = before[:, :count], after[:, :count]
    in_both = _common(near, far)
    recalls = in_both.sum(axis=1) / count
    # How often the next row of one list stands in the other.
    edge = np.mean([(before[:, count:] == far).any(axis=1), (after[:, count:] == near).any(axis=1)])
    both = np.bincount(near[in_both], minlength=rows)
    either = np.bincount(near.ravel(), minlength=rows) + np.bincount(far.ravel(), minlength=rows)
    # Those in one list alone are counted once in `either`, those in both twice.
    influence = recalls + (both * (1 - 2 * edge) - (either - 2 * both) * edge) / count
    return np.asarray(influence + recalls.mean() - influence.mean())


def neighbours(
    plan: Plan, original: Vectors, vectors_by_split: Sequence[Vectors], recipe_hash: str | None
) -> Finding:
    """Label-free utility: the recall of ten neighbours among the victims, averaged over seeds."""
    bootstrap = Bootstrap.over(plan.units)
    draws = [
        weighted_means(
            bootstrap.of(plan.units[parts.victims]),
            recall_influences(original[parts.victims], vectors[parts.victims]),
        )
        for vectors, parts in zip(vectors_by_split, plan.splits, strict=True)
    ]
    people = len(np.unique(np.concatenate([plan.units[parts.victims] for parts in plan.splits])))
    recall, victims = mean_over_seeds(draws, people, is_share=True), len(plan.splits[0].victims)
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


def _common(before: npt.NDArray[np.intp], after: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Which of the rows named before are named after too."""
    return np.asarray((before[:, :, None] == after[:, None, :]).any(axis=2))


def _nearest_in_order(vectors: Vectors, count: int) -> npt.NDArray[np.intp]:
    """The nearest rows, the nearest first."""
    unit = _unit(vectors)
    nearest = _nearest(vectors, count)
    similar = np.einsum("nd,nkd->nk", unit, unit[nearest])
    return np.take_along_axis(nearest, np.argsort(-similar, axis=1, kind="stable"), axis=1)


def _unit(vectors: Vectors) -> npt.NDArray[np.float32]:
    vectors = in_range(vectors, range_exponent(vectors))
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12), dtype=np.float32)


def _nearest(vectors: Vectors, count: int) -> npt.NDArray[np.intp]:
    unit = _unit(vectors)
    nearest = np.empty((len(unit), count), dtype=np.intp)
    for start in range(0, len(unit), 1024):
        similar = unit[start : start + 1024] @ unit.T
        # A row is not its own neighbour.
        np.put_along_axis(similar, np.arange(start, start + len(similar))[:, None], -np.inf, axis=1)
        nearest[start : start + 1024] = np.argpartition(-similar, count - 1, axis=1)[:, :count]
    return nearest
