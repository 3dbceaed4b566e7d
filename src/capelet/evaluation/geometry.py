"""The vectors themselves: how far noise moved them, and what they look like on a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from capelet.corpus import Rows
from capelet.findings import Finding
from capelet.interfaces import Vectors
from capelet.labels import Attribute

POINTS = 1000


def deviation(original: Vectors, released: Vectors, recipe_hash: str | None) -> list[Finding]:
    """How far the release lies from the encoder's own vectors: mean Euclidean and cosine distance.

    YAWYW tables 9 and 10. A release of another width (a projection, symbols) has none.
    """
    if original.shape != released.shape:
        return []
    before, after = (np.asarray(item, dtype=np.float64) for item in (original, released))
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    cosine = (before * after).sum(axis=1) / np.maximum(lengths, 1e-300)
    measured = {
        "euclidean": np.linalg.norm(before - after, axis=1),
        "cosine_distance": 1.0 - cosine,
    }
    found = []
    for metric, each in measured.items():
        value = float(each.mean())
        half = 1.96 * float(each.std()) / float(np.sqrt(len(each)))
        found.append(
            Finding(
                "deviation",
                "vectors",
                metric,
                value,
                value - half,
                value + half,
                n=len(each),
                recipe_hash=recipe_hash,
            )
        )
    return found


def tsne(
    vectors: Vectors, rows: Rows, attributes: Sequence[Attribute], seed: int
) -> dict[str, Any]:
    """A t-SNE map of some of these rows, with each attribute's class for colour.

    A map shows structure where there is some; that it shows none proves nothing.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    shown = np.sort(np.random.default_rng(seed).permutation(rows)[:POINTS])
    points = np.asarray(vectors[shown], dtype=np.float32)
    axes = min(50, *points.shape)
    reduced = PCA(axes, random_state=seed).fit_transform(points)
    perplexity = min(30.0, (len(shown) - 1) / 3)
    mapper = TSNE(perplexity=perplexity, init="pca", max_iter=500, random_state=seed, n_jobs=1)
    flat = mapper.fit_transform(reduced)
    # From left to right, not in the order of the file: a point must not be traced to its row.
    order = np.argsort(flat[:, 0], kind="stable")
    shown = shown[order]
    return {
        "points": np.round(flat[order].astype(float), 2).tolist(),
        "colours": {
            item.name: [item.classes[code] if code >= 0 else None for code in item.codes[shown]]
            for item in attributes
        },
        "shown": len(shown),
        "of": len(rows),
    }
