"""A realistic run, made in code: one attribute leaks strongly, one clearly, one not at all."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from capelet.findings import Finding, Findings

FAMILIES = ("logistic", "mlp", "boosting", "knn", "kernel")
METRICS = ("balanced_accuracy", "accuracy", "f1_weighted", "f1_macro", "auc", "tpr_at_1_fpr")
SEEDS = [0, 1, 2, 3, 4]
ATTRIBUTES: dict[str, dict[str, int]] = {
    "gender": {"female": 4210, "male": 3875},
    "age group": {"18–28": 2810, "29–41": 2705, "42–89": 2655},
    "region": {"north": 3120, "south": 2480, "east": 1344, "west": 1101, "(other)": 125},
}
SCORES = {"gender": 0.784, "age group": 0.427, "region": 0.203}
TEXTS = {"gender": 0.812, "age group": 0.471, "region": 0.212}
LABELS = {"gender": 0.548, "age group": 0.361, "region": 0.201}


def make_leak(target: str, value: float, **changes: Any) -> Finding:
    """The strongest attacker's balanced accuracy on an attribute of two classes."""
    row = Finding(
        kind="attribute-inference",
        target=target,
        metric="balanced_accuracy",
        value=value,
        low=value - 0.03,
        high=value + 0.03,
        chance=0.5,
        n=1640,
        attacker="strongest",
    )
    return replace(row, **changes)


def _attack_rows(target: str, shift: float, ceiling: float | None) -> list[Finding]:
    classes = len(ATTRIBUTES[target])
    chance = 1 / classes
    best = chance + (SCORES[target] - chance) * shift
    metrics = METRICS if classes == 2 else METRICS[:-1]
    rows = []
    for place, family in enumerate(("strongest", *FAMILIES)):
        for metric in metrics:
            value = best - (0.008 * place if family != "strongest" else 0.0)
            value = {"auc": 0.5 + (value - chance) * 1.1, "tpr_at_1_fpr": 0.12}.get(metric, value)
            chosen = {"chosen": {"kernel": 4, "logistic": 1}} if family == "strongest" else {}
            rows.append(
                Finding(
                    kind="attribute-inference",
                    target=target,
                    metric=metric,
                    value=value,
                    low=value - 0.024,
                    high=value + 0.022,
                    chance={"auc": 0.5, "tpr_at_1_fpr": 0.01}.get(metric, chance),
                    majority=0.52 if metric == "accuracy" else None,
                    ceiling=ceiling if metric == "balanced_accuracy" else None,
                    n=1640,
                    attacker=family,
                    parameters={"seeds": SEEDS, "by_seed": [value] * 5, **chosen},
                    recipe_hash="5f0c2a91",
                )
            )
    return rows


def _controls(target: str) -> list[Finding]:
    chance = 1 / len(ATTRIBUTES[target])
    null = make_leak(target, chance + 0.004, kind="attribute-inference-null", chance=chance)
    rows = [replace(null, low=chance - 0.018, high=chance + 0.025)]
    for attacker, values in (("predicted-label", LABELS), ("tf-idf", TEXTS)):
        for metric in ("balanced_accuracy", "accuracy"):
            rows.append(
                make_leak(
                    target,
                    values[target],
                    kind="attribute-inference-reference",
                    chance=chance,
                    attacker=attacker,
                    metric=metric,
                )
            )
    return rows


def _task_rows(accuracy: float) -> list[Finding]:
    rows = []
    for place, family in enumerate(("strongest", *FAMILIES)):
        for metric in ("accuracy", "balanced_accuracy", "f1_weighted", "f1_macro", "auc"):
            value = accuracy - 0.006 * place
            rows.append(
                Finding(
                    "utility",
                    "stars",
                    metric,
                    value,
                    value - 0.018,
                    value + 0.017,
                    chance=0.5,
                    majority=0.614 if metric == "accuracy" else None,
                    n=1640,
                    attacker=family,
                )
            )
    rows.append(Finding("utility-reference", "stars", "accuracy", 0.887, attacker="tf-idf"))
    for group, value in (
        ("gender=female", accuracy + 0.012),
        ("gender=male", accuracy - 0.014),
        ("age group=18–28", accuracy + 0.004),
        ("age group=29–41", accuracy - 0.002),
        ("age group=42–89", accuracy - 0.021),
    ):
        rows.append(
            Finding(
                "fairness",
                "stars",
                "accuracy",
                value,
                value - 0.03,
                value + 0.03,
                n=512,
                subgroup=group,
            )
        )
    rows.append(Finding("fairness", "stars", "accuracy_gap", 0.026, n=1640, subgroup="gender"))
    rows.append(Finding("fairness", "stars", "accuracy_gap", 0.025, n=1640, subgroup="age group"))
    return rows


def _curves(shift: float) -> dict[str, Any]:
    curves = {}
    for target, best in SCORES.items():
        chance = 1 / len(ATTRIBUTES[target])
        values = [
            chance + (best - chance) * shift * (1 - math.exp(-labels / 28))
            for labels in (10, 20, 30, 40, 50)
        ]
        curves[target] = {
            "labels_per_class": [10, 20, 30, 40, 50],
            "value": values,
            "low": [value - 0.035 for value in values],
            "high": [value + 0.033 for value in values],
            "chance": chance,
        }
    return {"attacker": "logistic", "metric": "balanced_accuracy", "curves": curves}


def _points(shown: int = 900) -> dict[str, Any]:
    draw = random.Random(7)
    points: list[list[float]] = []
    colours: dict[str, list[str | None]] = {name: [] for name in ATTRIBUTES}
    for _ in range(shown):
        gender = draw.choice(["female", "male"])
        angle, radius = draw.uniform(0, 6.283), draw.gauss(18, 6)
        pull = 9 if gender == "female" else -9
        points.append([radius * math.cos(angle) + pull, radius * math.sin(angle) + pull / 3])
        colours["gender"].append(gender if draw.random() > 0.05 else None)
        for name in ("age group", "region"):
            weights = list(ATTRIBUTES[name].values())
            colours[name].append(draw.choices(list(ATTRIBUTES[name]), weights)[0])
    return {"points": points, "colours": colours, "shown": shown, "of": 8170}


def _moved(shown: int = 300) -> dict[str, Any]:
    """Both vectors of so many victims: the released cloud lies beside the original one."""
    draw = random.Random(11)
    flags = [place % 2 == 1 for place in range(2 * shown)]
    points = [[draw.gauss(14 if flag else -14, 5), draw.gauss(0, 8)] for flag in flags]
    return {"points": points, "released": flags, "shown": shown, "of": 1640}


def _deviation() -> list[Finding]:
    told = {"chance": 0.5, "majority": 0.5, "n": 1640, "attacker": "strongest"}
    return [
        Finding("deviation", "vectors", "euclidean", 7.041, 7.02, 7.06, n=8170),
        Finding("deviation", "vectors", "cosine_distance", 0.853, 0.85, 0.856, n=8170),
        Finding("deviation", "vectors", "separability", 0.997, 0.995, 0.999, **told),
        Finding("deviation-null", "vectors", "separability", 0.503, 0.48, 0.52, **told),
    ]


def provenance() -> dict[str, Any]:
    attributes: dict[str, Any] = {
        name: {"classes": classes, "missing": 85 if name == "gender" else 0, "notes": []}
        for name, classes in ATTRIBUTES.items()
    }
    attributes["age group"]["notes"] = ["numeric; cut into thirds at 28 and 41"]
    attributes["region"]["notes"] = ["3 classes with fewer than 20 rows were merged into '(other)'"]
    return {
        "capelet": "0.1.0",
        "created": "2026-11-15T09:00:00+00:00",
        "seconds": {"encoding": 12.3, "attacks": 200.1, "total": 240.2},
        "command": "capelet audit reviews.parquet --text review --label stars "
        "--private gender,age,region --author user --encoder minilm --seeds 5 --out runs/reviews",
        "data": {
            "name": "reviews",
            "rows": 8170,
            "digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "authors": 2254,
            "duplicates": {"identical": 31, "near": 112, "victims_near_attacker": 0.013},
            "truncated": 204,
            "where": None,
        },
        "attributes": attributes,
        "label": {
            "name": "stars",
            "classes": {"good": 5016, "bad": 3154},
            "missing": 0,
            "notes": ["4 and 5 stars are 'good'"],
        },
        "encoder": {
            "name": "minilm",
            "backend": "torch",
            "fingerprint": "b1946ac92492d2347c6235b4d2611184b1946ac92492d2347c6235b4d2611184",
            "dimension": 384,
        },
        "cache": None,
        "split": {
            "kind": "by_author",
            "shares": {"defender": 0.5, "attacker": 0.3, "victims": 0.2},
            "sizes": {"defender": 4085, "attacker": 2445, "victims": 1640},
            "seeds": SEEDS,
        },
        "guarantee": {
            "epsilon": None,
            "delta": 0,
            "notion": "none",
            "unit": "text",
            "status": "none",
            "sentence": "no guarantee: the vectors are released as they are",
        },
        "versions": {
            "python": "3.11.7",
            "numpy": "2.1.3",
            "torch": "2.5.1",
            "scikit-learn": "1.6.0",
        },
        "warnings": ["1.3 % of the victims’ texts are near copies of an attacker’s text"],
    }


def make_run(
    shift: float = 1.0,
    accuracy: float = 0.861,
    ceiling: float | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Findings:
    """A whole run; `shift` scales every leak, `changes` replaces parts of the provenance."""
    rows = [
        row
        for target in ATTRIBUTES
        for row in (*_attack_rows(target, shift, ceiling), *_controls(target))
    ]
    return Findings(
        rows=(*rows, *_task_rows(accuracy)),
        provenance={**provenance(), **(changes or {})},
        recipe={"encoder": "minilm", "steps": []},
        artefacts={"learning_curve": _curves(shift), "tsne": _points()},
    )


@pytest.fixture(scope="session")
def leak() -> Callable[..., Finding]:
    """Makes the row that a verdict is read from."""
    return make_leak


@pytest.fixture(scope="session")
def run() -> Callable[..., Findings]:
    """Makes a whole run."""
    return make_run


@pytest.fixture(scope="session")
def findings() -> Findings:
    return make_run()


@pytest.fixture(scope="session")
def protected() -> Findings:
    guarantee = {
        "epsilon": 8.0,
        "delta": 0,
        "notion": "local",
        "unit": "text",
        "status": "proven",
        "sentence": "8-local differential privacy for each text (proven)",
        "words": "7.31-local differential privacy for each word (proven)",
    }
    changes = {"guarantee": guarantee, "warnings": []}
    made = make_run(shift=0.4, accuracy=0.842, ceiling=0.9996, changes=changes)
    return replace(
        made,
        rows=(*made.rows, *_deviation()),
        recipe={"encoder": "minilm", "steps": [{"step": "laplace", "epsilon": 8.0}]},
        artefacts={**made.artefacts, "tsne_shift": _moved()},
    )


def make_frontier(**changes: Any) -> dict[str, Any]:
    """Six settings, of which one is chosen; `changes` replaces parts of the artefact."""
    points = [
        {
            "leakage": 0.012 * epsilon,
            "utility": 0.62 + 0.02 * epsilon - 0.03 * lam,
            "settings": {"adversary_weight": lam, "epsilon": epsilon},
            "chosen": (lam, epsilon) == (0.0, 4.0),
        }
        for epsilon in (2.0, 4.0, 8.0)
        for lam in (0.0, 1.0)
    ]
    made = {
        "points": points,
        "unprotected": {"leakage": 0.284, "utility": 0.861},
        "chance": 0.0,
        "ceiling": 0.48,
        "wanted": {"max_leakage": 0.06},
        "leakage": "gain over chance in balanced accuracy, worst attribute",
        "utility": "accuracy of stars",
    }
    return {**made, **changes}


def make_after(protected: Findings, **about: Any) -> Findings:
    """The run after a protection: adversaries of its own, neighbours, a frontier."""
    joint = [
        Finding(
            "attribute-inference-reference",
            target,
            "balanced_accuracy",
            value,
            chance=1 / len(ATTRIBUTES[target]),
            attacker="joint-adversary",
        )
        for target, value in (("gender", 0.51), ("age group", 0.36))
    ]
    kept = Finding("utility", "neighbours", "recall_at_10", 0.41, 0.40, 0.42, n=1640)
    said = {
        "method": "cape",
        "settings": {
            "epsilon": 8.0,
            "adversary_weight": 1.0,
            "keep": "task",
            "schedule": {"epochs": 60},
        },
        "against": ["gender", "age group"],
        "hold_out": ["region"],
        "trained_on": 4085,
        "seeds": 5,
        "training_seconds": 12.5,
        "private_towards_training_texts": False,
        **about,
    }
    passing = protected.provenance["guarantee"]
    guarantee = {**passing, "sentence": f"{passing['sentence']}; training texts: no guarantee"}
    return replace(
        protected,
        rows=(*protected.rows, *joint, kept),
        provenance={**protected.provenance, "protect": said, "guarantee": guarantee},
        artefacts={**protected.artefacts, "frontier": make_frontier()},
    )


@pytest.fixture(scope="session")
def after(protected: Findings) -> Findings:
    """What `protect` measured with its private encoder."""
    return make_after(protected)


@pytest.fixture(scope="session")
def frontier() -> Callable[..., dict[str, Any]]:
    """Makes the artefact of a search."""
    return make_frontier
