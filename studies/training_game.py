"""What the best-informed attacker finds in a map that was trained with differential privacy.

    CAPELET_DATA=… python studies/training_game.py --rounds 150 --epsilon 8 1

The game is the one that a guarantee speaks of. An attacker knows every training row but one, and
that it is one of two: a vector that no other row resembles, with one class or with another. The map
was trained on either; whoever holds it must say on which. From many trainings of both kinds follows
a lower bound on the ε that the training really has. It must lie below the stated one. The control
is a broken training, which adds a hundredth of the noise that it should: there the bound must lie
above, or the attack would show nothing.

What a training ε costs the task is a study: `papers/bench/training-epsilon.toml`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.stats import beta

from capelet.data.datasets import load
from capelet.data.labels import Attribute, attribute
from capelet.defences import Settings, TrainingPrivacy, fit, private_training
from capelet.defences.settings import Part
from capelet.encoders import load as load_encoder
from capelet.encoders import with_cache
from capelet.training.dpsgd import add_noise

DELTA = 1e-5
# What the broken training of the control states.
BROKEN = 1.0
# Of the ε that the game finds: it exceeds the true one in one study of twenty at most.
CONFIDENCE = 0.95


def two_parts(rows: int, encoder: str, name: str) -> tuple[Part, Part, np.ndarray]:
    """Two trainings that differ in the class of one row, and that row's vector.

    It points where all others together point least, so that nothing but it moves the map there.
    """
    corpus = load(name).take(np.arange(rows))
    assert corpus.texts is not None and corpus.label is not None
    vectors = with_cache(load_encoder(encoder)).encode(corpus.texts.tolist()).astype(np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    stranger = np.linalg.svd(vectors, full_matrices=False)[2][-1]
    vectors[0] = stranger
    task = attribute("label", corpus.label, rare=1)

    def part(code: int) -> Part:
        codes = task.codes.copy()
        codes[0] = code
        own = Attribute("label", codes, task.classes)
        return Part(vectors, np.arange(rows), np.arange(0), own, ())

    return part(0), part(1), stranger


def play(part: Part, stranger: np.ndarray, settings: Settings, rounds: int) -> np.ndarray:
    """How far each map leans towards the first class at that row: all that its class moved."""
    scores = []
    for _ in range(rounds):
        (layer,) = fit("bottleneck", part, settings).outcome.map.layers
        scores.append(float((layer.weight[0] - layer.weight[1]) @ stranger))
    return np.array(scores)


def weaken(share: float) -> Callable[..., None]:
    """A step that adds this share of the noise that it should."""

    def add_some(network: Any, deviation: float, *rest: Any) -> None:
        add_noise(network, share * deviation, *rest)

    return add_some


def least_epsilon(first: np.ndarray, second: np.ndarray, delta: float) -> float:
    """A lower bound on ε: P(S | D) ≤ e^ε P(S | D′) + δ for a threshold chosen on other rounds."""
    half = len(first) // 2
    thresholds = np.concatenate([first[:half], second[:half]])
    gains = [np.mean(first[:half] > t) - np.mean(second[:half] > t) for t in thresholds]
    threshold = thresholds[int(np.argmax(gains))]
    hits, misses = first[half:] > threshold, second[half:] > threshold
    return max(
        _bound(hits.sum(), misses.sum(), len(hits), delta),
        _bound((~misses).sum(), (~hits).sum(), len(hits), delta),
    )


def _bound(hits: int, errors: int, count: int, delta: float) -> float:
    # Clopper and Pearson, both sides and both directions sharing the error.
    error = (1 - CONFIDENCE) / 4
    low = beta.ppf(error, hits, count - hits + 1) if hits else 0.0
    high = beta.ppf(1 - error, errors + 1, count - errors) if errors < count else 1.0
    return math.log(max((low - delta) / high, 1.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="ag_entities")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200, help="trainings of each kind")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0, 4.0, 2.0])
    arguments = parser.parse_args()
    one, other, stranger = two_parts(arguments.rows, arguments.encoder, arguments.set)
    print("| stated ε | noise | ε that the attacker proves | maps named rightly |")
    print("|---|---|---|---|")
    for epsilon, share in [(item, 1.0) for item in arguments.epsilon] + [(BROKEN, 0.01)]:
        settings = Settings(epsilon=8.0, training=TrainingPrivacy(epsilon, DELTA))
        with patch.object(private_training, "add_noise", weaken(share)):
            first = play(one, stranger, settings, arguments.rounds)
            second = play(other, stranger, settings, arguments.rounds)
        middle = np.median(np.concatenate([first, second]))
        right = (np.mean(first > middle) + np.mean(second <= middle)) / 2
        bound = least_epsilon(first, second, DELTA)
        print(f"| {epsilon:g} | {share:g} × | {bound:.2f} | {right:.2f} |", flush=True)


if __name__ == "__main__":
    main()
