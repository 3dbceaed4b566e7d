"""The attack suite against encoding: 5 families × 3 attributes × 5 seeds on 10,000 × 384 vectors.

Claim: all of it takes at most half the time that sentence-transformers' default `encode` needs for
the same 10,000 texts, with attackers no weaker than scikit-learn's plain ones.

    python benchmarks/attacks.py [--rows 10000] [--peer-texts 1000] [--seeds 5]

The peer encodes `--peer-texts` texts, several times, and its best time is scaled to all of them.
Needs `ag_entities` (see `capelet list`).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from capelet.attacks.attribute import Secret, View, attack, families
from capelet.data.corpus import Split
from capelet.data.datasets import load
from capelet.encoders import load as load_encoder
from capelet.encoders import with_cache
from capelet.encoders.folders import transformer_folder
from capelet.evaluation.leakage import in_threads
from capelet.evaluation.plan import Plan
from capelet.findings.metrics import balanced_accuracy
from capelet.numerics import one_thread
from tables import result, table, wanted

MOST = 0.5  # of the peer's encoding time
PLAIN_SEEDS = 2
ATTRIBUTES = ("entity_0", "entity_1", "entity_2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--peer-texts", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    corpus = load("ag_entities")
    assert corpus.texts is not None
    rows = slice(arguments.rows)
    corpus = replace(
        corpus,
        texts=corpus.texts[rows],
        label=None,
        label_name=None,
        private={name: corpus.private[name][rows] for name in ATTRIBUTES},
    )
    texts = corpus.texts.tolist()
    vectors = with_cache(load_encoder("minilm")).encode(texts)
    plan = Plan.of(corpus, arguments.seeds, "balanced")

    suite, scores = suite_of(plan, vectors)  # scores on the seeds that the plain ones get too
    sample = texts[: arguments.peer_texts]
    peer = peer_seconds(sample) * len(texts) / len(sample)
    plain = plain_scores(plan, vectors)

    table(
        ("", "seconds"),
        {"attack suite": (f"{suite:.1f}",), "sentence-transformers encode": (f"{peer:.1f}",)},
    )
    wanted(f"ratio {suite / peer:.2f}: wanted at most {MOST:g}", suite / peer <= MOST)
    none = float("nan")
    table(
        ("balanced accuracy", "ours", "plain"),
        {name: (f"{value:.3f}", f"{plain.get(name, none):.3f}") for name, value in scores.items()},
    )
    figures = {"suite_s": suite, "encode_s": peer, "ratio": suite / peer}
    result("attacks", ("numpy", "scikit-learn"), **figures, ours=scores, plain=plain)


def suite_of(plan: Plan, vectors: np.ndarray) -> tuple[float, dict[str, float]]:
    """Seconds for the whole suite, and each family's mean score on the seeds compared."""
    tried = families()
    start = time.perf_counter()

    def one(parts: Split) -> list[tuple[str, int, float]]:
        own = parts.attacker
        view = View(vectors, own, own[:0], parts.victims, parts.seed, plan.units)
        scores = []
        for attribute in plan.secrets:
            secret = Secret(view, attribute.codes, len(attribute.classes))
            for name, best in attack(view, secret, tried).best.items():
                guesses = best.scored.argmax(axis=1)
                value = balanced_accuracy(secret.codes.scored, guesses)
                scores.append((name, parts.seed, value))
        return scores

    all_scores = [item for scores in in_threads(one, plan.splits) for item in scores]
    seconds = time.perf_counter() - start
    plain_seeds = {parts.seed for parts in plan.splits[:PLAIN_SEEDS]}
    by_family: dict[str, list[float]] = {}
    for name, seed, value in all_scores:
        if seed in plain_seeds:
            by_family.setdefault(name, []).append(value)
    return seconds, {name: float(np.mean(values)) for name, values in by_family.items()}


def peer_seconds(texts: list[str]) -> float:
    """The best of three runs of sentence-transformers' own default."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(transformer_folder("minilm")))
    model.encode(texts[:64])
    times = []
    for _ in range(3):
        start = time.perf_counter()
        model.encode(texts)
        times.append(time.perf_counter() - start)
    return min(times)


def plain_scores(plan: Plan, vectors: np.ndarray) -> dict[str, float]:
    """scikit-learn's estimators as they come, class-balanced where they offer it."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC

    plain = {
        "logistic": LogisticRegression(class_weight="balanced", max_iter=1000),
        "mlp": MLPClassifier(random_state=0, early_stopping=True),
        "boosting": HistGradientBoostingClassifier(random_state=0, class_weight="balanced"),
        "knn": KNeighborsClassifier(),
        "kernel": SVC(class_weight="balanced"),
    }
    scores: dict[str, list[float]] = {name: [] for name in plain}
    with one_thread():
        for parts in plan.splits[:PLAIN_SEEDS]:
            for attribute in plan.secrets:
                for name, model in plain.items():
                    model.fit(vectors[parts.attacker], attribute.codes[parts.attacker])
                    guesses = model.predict(vectors[parts.victims])
                    truth = attribute.codes[parts.victims]
                    scores[name].append(balanced_accuracy(truth, guesses))
    return {name: float(np.mean(values)) for name, values in scores.items()}


if __name__ == "__main__":
    main()
