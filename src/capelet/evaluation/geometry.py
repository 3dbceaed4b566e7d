"""The vectors themselves: how far noise moved them, and what they look like on a map.

That a release can be told from the encoder's own vectors is no leak of anyone's secret, and that it
cannot is no protection. It says whether the release still lies where the encoder's vectors lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.attribute import Secret, View, attack, families
from capelet.data.corpus import Rows, Split
from capelet.data.labels import Attribute
from capelet.evaluation.plan import Plan
from capelet.evaluation.references import NULLS
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap, percentile, weighted_means
from capelet.findings.metrics import Codes, Guesses, score
from capelet.interfaces import Vectors

# Points of a map: t-SNE takes seconds for these, and more would cover each other.
POINTS = 1000
# One that sees planes and one that sees clusters.
CLASSIFIERS = ("logistic", "knn")
# Neighbours of a point on a map that are asked what they are.
NEAREST = 10
# Of how many of the attacker's texts, and of how many victims, both vectors are looked at.
MOST_PAIRS = 2000


def deviation(
    plan: Plan, original: Vectors, released_vectors: Vectors, recipe_hash: str | None
) -> list[Finding]:
    """How far the release lies from the encoder's own vectors: mean Euclidean and cosine distance.

    YAWYW tables 9 and 10. A release of another width (a projection, symbols) has none.
    """
    if original.shape != released_vectors.shape:
        return []
    before, after = (np.asarray(item, dtype=np.float64) for item in (original, released_vectors))
    # In float64: between near-equal vectors 1 − cosine is a small difference of large numbers.
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    cosine = (before * after).sum(axis=1) / np.maximum(lengths, 1e-300)
    distances = {
        "euclidean": np.linalg.norm(before - after, axis=1),
        "cosine_distance": 1.0 - cosine,
    }
    weights = Bootstrap.over(plan.units).of(plan.units)
    return [
        Finding(
            "deviation",
            "vectors",
            metric,
            *percentile(weighted_means(weights, rows)).ends,
            n=len(rows),
            recipe_hash=recipe_hash,
        )
        for metric, rows in distances.items()
    ]


def separability(
    plan: Plan, original: Vectors, released_vectors: Vectors, recipe_hash: str | None
) -> list[Finding]:
    """How often a fresh classifier tells a released vector from one that the encoder gave.

    For each seed it learns from both vectors of the attacker's texts, is chosen on those by
    cross-validation, and names both vectors of the victims. Chance is one half; vectors that were
    not changed end there exactly. The same with shuffled names stands beside it, as
    `deviation-null`.
    """
    if original.shape != released_vectors.shape:
        return []
    guesses, blind_guesses, strongest = [], [], Counter[str]()
    for parts in plan.splits:
        view, flags, rows = _both(original, released_vectors, parts)
        victims = view.rows.scored
        units = plan.units[rows[victims]]
        result = attack(view, Secret(view, flags, 2), families(CLASSIFIERS))
        best, family = result.best[result.strongest], result.family
        guesses.append(Guesses(flags[victims], best.scored, units))
        strongest[result.strongest] += 1
        (again,) = families([family])
        random = np.random.default_rng([parts.seed, 0x40])
        # The family that won, with its settings, learns names that say nothing.
        for _ in range(NULLS):
            random_flags = random.permutation(flags)
            blind_secret = Secret(result.view, random_flags, 2)
            blind = again.fit(result.view, blind_secret, result.best[family].settings)
            blind_guesses.append(Guesses(random_flags[victims], blind.scored, units))
    bootstrap = Bootstrap.over(plan.units)
    parameters = {"chosen": dict(strongest)}
    return [
        _separability("deviation", guesses, bootstrap, recipe_hash, parameters),
        _separability("deviation-null", blind_guesses, bootstrap, recipe_hash, {}),
    ]


def _both(original: Vectors, released_vectors: Vectors, parts: Split) -> tuple[View, Codes, Rows]:
    """A view of both vectors of some texts, whether each vector is released, and whose it is.

    A column says how long a vector is: noise shows there first, and no plane sees it. Lengths are
    rounded, since their last bits only tell how they were computed.
    """
    random = np.random.default_rng([parts.seed, 0x5E])
    sample = [random.permutation(part)[:MOST_PAIRS] for part in (parts.attacker, parts.victims)]
    rows = np.concatenate(sample)
    vectors = np.concatenate([original[rows], released_vectors[rows]]).astype(np.float64)
    lengths = np.log(np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)).round(5)
    # Both vectors of a text stand in one part, and in one fold: else the text, not the change,
    # would tell them apart.
    own, victims = (
        np.concatenate([places, places + len(rows)])
        for places in np.split(np.arange(len(rows)), [len(sample[0])])
    )
    both = np.concatenate([vectors, lengths], axis=1)
    whose = np.tile(rows, 2)
    view = View(both, own, own[:0], victims, parts.seed, whose)
    return view, np.repeat([0, 1], len(rows)), whose


def _separability(
    kind: str,
    guesses: Sequence[Guesses],
    bootstrap: Bootstrap,
    recipe_hash: str | None,
    parameters: dict[str, Any],
) -> Finding:
    balanced_accuracy = score("balanced_accuracy", guesses, bootstrap)
    return Finding(
        kind,
        "vectors",
        "separability",
        *balanced_accuracy.ends,
        chance=0.5,
        majority=0.5,
        n=round(np.mean([len(item.truth) / 2 for item in guesses])),  # two vectors of each victim
        attacker="strongest",
        degenerate=any(item.degenerate for item in guesses),
        parameters={"by_seed": list(balanced_accuracy.by_seed), **parameters},
        recipe_hash=recipe_hash,
    )


def tsne_shift(
    original: Vectors, released_vectors: Vectors, rows: Rows, seed: int
) -> dict[str, Any] | None:
    """One t-SNE map of both vectors of some of these rows: what the encoder gave, what left.

    YAWYW figures 7 and 8, where noise on vectors parts the two clouds and replaced words do not.
    None where the two have not one width.
    """
    if original.shape != released_vectors.shape:
        return None
    both = tsne_clouds({"original": original, "released": released_vectors}, rows, seed)
    flags = [name == "released" for name in both["clouds"]]
    return {"points": both["points"], "released": flags, "shown": both["shown"], "of": both["of"]}


def tsne_clouds(clouds: Mapping[str, Vectors], rows: Rows, seed: int) -> dict[str, Any]:
    """One t-SNE map of several vectors of each of these rows: by name, what each release gave.

    The map is of directions. By plain distance a vector that noise has thrown far out is nearer to
    every original vector than to others like it, and is drawn among them.
    """
    sample = np.random.default_rng(seed).permutation(rows)[: POINTS // len(clouds)]
    stack = np.concatenate([vectors[sample] for vectors in clouds.values()]).astype(np.float64)
    lengths = np.linalg.norm(stack, axis=1, keepdims=True)
    flat, order = _flat(stack / np.maximum(lengths, 1e-300), seed)
    names = np.repeat(list(clouds), len(sample))[order].tolist()
    return {"points": flat, "clouds": names, "shown": len(sample), "of": len(rows)}


def tsne(
    vectors: Vectors, rows: Rows, attributes: Sequence[Attribute], seed: int
) -> dict[str, Any]:
    """A t-SNE map of some of these rows, with each attribute's class for colour.

    A map shows structure where there is some; that it shows none proves nothing.
    """
    sample = np.sort(np.random.default_rng(seed).permutation(rows)[:POINTS])
    flat, order = _flat(vectors[sample], seed)
    sample = sample[order]
    return {
        "points": flat,
        "colours": {
            item.name: [item.classes[code] if code >= 0 else None for code in item.codes[sample]]
            for item in attributes
        },
        "shown": len(sample),
        "of": len(rows),
    }


def map_purity(
    points: Sequence[Sequence[float]], names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """By name: the share of a point's nearest neighbours of that name, and what chance would give.

    A figure of a map in one number: 1 where a cloud lies apart, its share of all others where the
    clouds are mixed. Names with a single point have no neighbours of their own and are left out.

    >>> map_purity([[0.0, 0.0], [0.1, 0.0], [9.0, 0.0], [9.1, 0.0]], ["a", "a", "b", "b"])["a"][1]
    0.3333333333333333
    """
    from sklearn.neighbors import NearestNeighbors

    labels = np.asarray(names)
    count = min(NEAREST, len(labels) - 1)
    # No point is its own neighbour: scikit-learn leaves it out where nothing is handed in.
    near = NearestNeighbors(n_neighbors=count).fit(np.asarray(points)).kneighbors()[1]
    same = (labels[near] == labels[:, None]).mean(axis=1)
    purities = {}
    for name in sorted(set(names)):
        own = labels == name
        if own.sum() > 1:
            chance = float((own.sum() - 1) / (len(labels) - 1))
            purities[name] = (float(same[own].mean()), chance)
    return purities


def cloud_findings(plan: Plan, clouds: Mapping[str, Vectors], seed: int) -> list[Finding]:
    """Several releases of the same texts, by name; the first is what the encoder gave.

    How far each lies from the first, whether it can be told from it, whether it mixes with the
    others on one map (YAWYW, tables 9 and 10, figures 7 and 8), and whether people of one class lie
    together on a map of its own (DPNR, figure 4). The points themselves are of single people, and
    are not findings.
    """
    names, victims = list(clouds), plan.splits[0].victims
    original = clouds[names[0]]
    rows = []
    for name in names[1:]:
        own = deviation(plan, original, clouds[name], None)
        own += separability(plan, original, clouds[name], None)
        rows += [replace(row, subgroup=name) for row in own]
    both = tsne_clouds(clouds, victims, seed)
    for name, (value, chance) in map_purity(both["points"], both["clouds"]).items():
        rows.append(_purity("vectors", value, chance, both["shown"], name))
    for name, vectors in clouds.items():
        picture = tsne(vectors, victims, plan.secrets, seed)
        for target, colours in picture["colours"].items():
            present = [place for place, colour in enumerate(colours) if colour is not None]
            classes = [str(colours[place]) for place in present]
            if len(set(classes)) < 2:
                continue
            purities = map_purity([picture["points"][place] for place in present], classes)
            # The mean over classes: a frequent one has neighbours of its own by chance.
            value, chance = np.mean(list(purities.values()), axis=0)
            rows.append(_purity(target, float(value), float(chance), len(present), name))
    return rows


def _purity(target: str, value: float, chance: float, count: int, cloud: str) -> Finding:
    return Finding("deviation", target, "map_purity", value, chance=chance, n=count, subgroup=cloud)


def _flat(vectors: Vectors, seed: int) -> tuple[list[list[float]], npt.NDArray[np.intp]]:
    """The points of a t-SNE map from left to right, and the place of each among the vectors."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    points = _in_scale(vectors)
    if not points.any():
        # All points are one: there is nothing to map, and t-SNE would divide by their spread.
        return [[0.0, 0.0]] * len(points), np.arange(len(points))
    # Principal axes first, as van der Maaten and Hinton (2008) do: less noise in the distances, and
    # faster.
    axes = PCA(min(50, *points.shape), random_state=seed).fit_transform(points)
    # t-SNE looks at three times as many neighbours as its perplexity, and few points have fewer.
    perplexity = min(30.0, (len(points) - 1) / 3)
    mapper = TSNE(perplexity=perplexity, init="pca", max_iter=500, random_state=seed, n_jobs=1)
    flat = mapper.fit_transform(axes)
    # From left to right, not in the order of the file: a point must not be traced to its row.
    order = np.argsort(flat[:, 0], kind="stable")
    return np.round(flat[order].astype(float), 2).tolist(), order


def _in_scale(vectors: Vectors) -> npt.NDArray[np.float32]:
    """The points around their mean, in units of the largest coordinate.

    A map does not depend on the unit. In single precision the square of 1e-30 is 0 and that of 1e20
    infinite; with such distances the tree of t-SNE runs over its own memory.
    """
    points = np.asarray(vectors, dtype=np.float64)
    # By the peak first: the mean of numbers near the largest double would overflow.
    points = points / (np.abs(points).max(initial=0.0) or 1.0)
    points = points - points.mean(axis=0)
    peak = np.abs(points).max(initial=0.0)
    # What is left of equal points is rounding.
    return np.zeros_like(points, np.float32) if peak < 1e-12 else (points / peak).astype(np.float32)
