"""What a training ε costs the task, and what the best-informed attacker finds in the map.

    CAPELET_DATA=… python studies/private_maps.py figures --out private_maps.jsonl
    CAPELET_DATA=… python studies/private_maps.py game

`figures` trains the private bottleneck (passing ε = 8) on `ag_entities` for each text, and on
`blog` with the label gender for each author, at several training ε, and prints the task's accuracy
on three splits with its interval, as in the card. What is in the file is not measured again.

`game` is the game that a guarantee speaks of. An attacker knows every training row but one, and
that it is one of two: a vector that no other row resembles, with one class or with another. The map
was trained on either; whoever holds it must say on which. From many trainings of both kinds follows
a lower bound on the ε that the training really has. It must lie below the stated one. The control
is a broken training, which adds a hundredth of the noise that it should: there the bound must lie
above, or the attack would show nothing.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.stats import beta

from capelet.data.corpus import Corpus
from capelet.data.datasets import load
from capelet.data.labels import Attribute, attribute
from capelet.defences import Settings, TrainingPrivacy, fit, private_training
from capelet.defences.settings import Part
from capelet.encoders import load as load_encoder
from capelet.encoders import with_cache
from capelet.training.dpsgd import add_noise
from capelet.workflows.protect import protect

DELTA = 1e-5
# The encoder and the unit of each set; a static encoder where the texts are long.
SETS = {"ag_entities": ("minilm", "text"), "blog": ("wordllama", "author")}
# What the broken training of the control states.
BROKEN = 1.0
# Of the ε that the game finds: it exceeds the true one in one study of twenty at most.
CONFIDENCE = 0.95


def corpus_of(name: str, rows: int) -> Corpus:
    """The set with its task alone: what leaks is another table."""
    corpus = load(name)
    if name == "blog":
        corpus = replace(corpus, label_name="gender", label=corpus.private["gender"])
    if rows:
        corpus = corpus.take(np.arange(rows))
    return replace(corpus, private={})


def measure(name: str, epsilon: float, arguments: argparse.Namespace) -> dict[str, Any]:
    """The task of one private encoder; a training ε of 0 stands for none."""
    encoder, unit = SETS[name]
    training = TrainingPrivacy(epsilon, DELTA, unit) if epsilon else None  # type: ignore[arg-type]
    result = protect(
        corpus_of(name, arguments.rows),
        arguments.encoder or encoder,
        "bottleneck",
        Settings(epsilon=arguments.passing, training=training),
        # The same splits with and without, so that the difference is the training's.
        split_kind="keyed",
        seeds=arguments.seeds,
        attackers=["logistic"],
    )
    # The strongest probe comes first; the rows of each kind of probe follow it.
    task = result.after.select(kind="utility", metric="accuracy", subgroup=None)[0]
    promise = result.encoder.guarantee.training
    return {
        "set": name,
        "train_epsilon": epsilon,
        "passing": arguments.passing,
        "task": task.value,
        "low": task.low,
        "high": task.high,
        "majority": task.majority,
        "promise": promise.sentence() if promise is not None else None,
    }


def show_figures(rows: Sequence[dict[str, Any]]) -> None:
    """The rows as a table of the card."""
    print("| set | training ε, for replacing one | task | commonest class |\n|---|---|---|---|")
    for row in rows:
        promise = f"{row['train_epsilon']:g}" if row["train_epsilon"] else "none"
        unit = SETS[row["set"]][1]
        figures = f"{row['task']:.3f} ({row['low']:.3f}–{row['high']:.3f})"
        print(f"| `{row['set']}` | {promise} ({unit}) | {figures} | {row['majority']:.3f} |")


def figures(arguments: argparse.Namespace) -> None:
    lines = arguments.out.read_text().splitlines() if arguments.out.is_file() else []
    rows = [json.loads(line) for line in lines]
    for name in arguments.sets:
        for epsilon in arguments.epsilon:
            job = {"set": name, "train_epsilon": epsilon, "passing": arguments.passing}
            if any(job.items() <= row.items() for row in rows):
                continue
            rows.append(measure(name, epsilon, arguments))
            with arguments.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    show_figures(rows)


# ---- the game ------------------------------------------------------------------------------------


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


def game(arguments: argparse.Namespace) -> None:
    encoder = arguments.encoder or "minilm"
    one, other, stranger = two_parts(arguments.rows or 1000, encoder, arguments.sets[0])
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["figures", "game"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="the game takes the first")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0, 4.0, 2.0], help="0: none")
    parser.add_argument("--passing", type=float, default=8.0, help="ε of texts that pass")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=0, help="0: all; in the game 1,000")
    parser.add_argument("--rounds", type=int, default=200, help="trainings of each kind")
    parser.add_argument("--encoder", default=None)
    parser.add_argument("--out", type=Path, default=Path("private_maps.jsonl"))
    arguments = parser.parse_args()
    figures(arguments) if arguments.what == "figures" else game(arguments)


if __name__ == "__main__":
    main()
