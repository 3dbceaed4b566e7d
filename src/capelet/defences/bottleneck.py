"""A bottleneck before the noise: few dimensions or few symbols, trained through the release.

At 384 dimensions and any reasonable ε the noise of a Laplace mechanism is a hundred times the
signal. The way out is to let less through: a map to few dimensions or to one of few symbols, learnt
*through* the noise of the mechanism that follows it. Which mechanism is best depends on ε and on
the task; each is trained, and the one that serves the task best on the held-back rows is kept.

For a symbol, m-ary randomised response attains the ceiling of ε: no mechanism does better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capelet.data.labels import Attribute
from capelet.defences.noise import drawn, twin
from capelet.defences.terms import Reversal, SymbolIndependence, SymbolTask, Task, Term
from capelet.defences.training import Body, Network, Part, Schedule, Trained, train
from capelet.interfaces import Progress, Vectors, silent
from capelet.mechanisms import Laplace, PrivUnit, RandomisedResponse
from capelet.training.networks import dense

HIDDEN = 64
MOST_SYMBOLS = 8
WIDTHS = {"laplace": 4, "privunit": 8}
DRAWS = 8
"""Releases of the held-back rows over which a candidate is judged."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A mechanism with the map that was trained for it, and the task's score on held-back rows."""

    mechanism: Any
    trained: Trained
    score: float


def squeeze(
    part: Part,
    task: Attribute,
    epsilon: float,
    lam: float,
    schedule: Schedule,
    mechanism: str = "auto",
    checkpoint: Path | None = None,
    progress: Progress = silent,
) -> Candidate:
    """The best bottleneck for this ε; with λ > 0 it is also kept from telling the secrets."""
    tried = []
    guarded = bool(lam and part.secrets)
    # What a symbol tells is known exactly, and can be held down exactly: the others cannot compete.
    chosen = _candidates(
        task, epsilon, "response" if guarded and mechanism == "auto" else mechanism
    )
    for place, noise in enumerate(chosen):
        file = (
            None if checkpoint is None else checkpoint.with_suffix(f".{place}{checkpoint.suffix}")
        )

        def told(what: str, done: int, total: int, place: int = place) -> None:
            progress(what, place * total + done, len(chosen) * total)

        made = _train(part, task, noise, lam, schedule, file, told)
        tried.append(Candidate(noise, made, _score(part, task, made, noise, schedule.seed)))
    return max(tried, key=lambda item: item.score)


def _candidates(task: Attribute, epsilon: float, mechanism: str) -> list[Any]:
    made: dict[str, list[Any]] = {
        "response": [
            RandomisedResponse(epsilon, symbols)
            for symbols in range(2, min(len(task.classes), MOST_SYMBOLS) + 1)
        ],
        "laplace": [Laplace(epsilon, WIDTHS["laplace"])],
        "privunit": [PrivUnit(min(epsilon, 200.0), WIDTHS["privunit"])],
    }
    return (
        made[mechanism]
        if mechanism != "auto"
        else [item for some in made.values() for item in some]
    )


def _train(
    part: Part,
    task: Attribute,
    noise: Any,
    lam: float,
    schedule: Schedule,
    checkpoint: Path | None,
    progress: Progress,
) -> Trained:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(schedule.seed)
        if isinstance(noise, RandomisedResponse):
            width = noise.classes
            body = Body(dense([part.width, HIDDEN, HIDDEN, width]), "softmax")
            terms: list[Term] = [SymbolTask(width, task)]
            if lam and part.secrets:
                terms.append(SymbolIndependence(part.secrets, lam))
        else:
            width = int(noise.dimension)
            body = Body(dense([part.width, HIDDEN, HIDDEN, width]))
            terms = [Task(width, task)]
            if lam and part.secrets:
                terms.append(Reversal(width, part.secrets, lam, warm=0.2))
        network = Network(body, terms, after=twin(noise))
    wide = replace(schedule, batch=max(schedule.batch, 512)) if lam and part.secrets else schedule
    return train(network, part, wide, checkpoint, progress)


def _score(part: Part, task: Attribute, made: Trained, noise: Any, seed: int) -> float:
    """Accuracy of a plain probe on noisy vectors: learnt on the rows to fit on, scored on tune.

    The noise is that of a release but seeded, or the choice could not be repeated.
    """
    import torch
    from sklearn.linear_model import LogisticRegression

    random = torch.Generator().manual_seed(seed)

    def noisy(rows: Vectors) -> Vectors:
        return drawn(noise, torch.tensor(rows), random).numpy()

    known = task.codes >= 0
    fit, tune = part.fit[known[part.fit]], part.tune[known[part.tune]]
    probe = LogisticRegression(C=1.0, max_iter=500)
    probe.fit(noisy(made.map(part.vectors[fit])), task.codes[fit])
    inside = made.map(part.vectors[tune])
    scores = [
        float((probe.predict(noisy(inside)) == task.codes[tune]).mean()) for _ in range(DRAWS)
    ]
    return float(np.mean(scores))
