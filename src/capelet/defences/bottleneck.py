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
import torch

from capelet.data.labels import Attribute
from capelet.defences.fitting import Part, TrainedMap, train
from capelet.defences.network import Body, Network
from capelet.defences.noise import draw, twin
from capelet.defences.private_training import LINEAR, train_privately
from capelet.defences.settings import Defence, Settings, epsilon_of
from capelet.defences.terms import (
    Reversal,
    SymbolIndependence,
    SymbolLikelihood,
    SymbolTask,
    Task,
    Term,
)
from capelet.interfaces import Progress, Vectors, silent
from capelet.mechanisms import Laplace, PrivUnit, RandomisedResponse
from capelet.training.device import seeded_fork
from capelet.training.networks import dense

# The layers of YAWYW: two of 64.
HIDDEN = 64
# A candidate is trained for each number of symbols; with more, the chance e^ε/(e^ε + m − 1) of the
# true one falls.
MOST_SYMBOLS = 8
# Few, since the noise grows with the dimension and the signal does not.
WIDTHS = {"laplace": 4, "privunit": 8}
# PrivUnit takes no larger ε: its cap is then smaller than rounding.
MOST_EPSILON = 200.0
# Releases of the held-back rows over which a candidate is judged.
DRAWS = 8
# The least batch against secrets: their shares in each symbol are estimated from it.
GUARDED_BATCH = 512


@dataclass(frozen=True, eq=False)
class Candidate:
    """A mechanism with the map that was trained for it, and the task's score on held-back rows."""

    mechanism: Any
    outcome: TrainedMap
    score: float


def fit_bottleneck(
    part: Part, settings: Settings, checkpoints: Path | None, progress: Progress
) -> Defence:
    """The best bottleneck for the ε of the settings, and the noise behind it."""
    if settings.training is not None:
        return squeeze_privately(part, settings, progress)
    best = squeeze(part, settings, checkpoints, progress)
    return Defence(best.outcome, after=best.mechanism)


def squeeze_privately(part: Part, settings: Settings, progress: Progress = silent) -> Defence:
    """One linear layer to as many symbols as there are classes, trained with DP-SGD.

    A choice among candidates by their scores would count too, so there is one. A linear layer has
    few numbers for the noise to move.
    """
    assert part.task is not None
    noise = RandomisedResponse(epsilon_of(settings), len(part.task.classes))
    with seeded_fork(settings.schedule.seed):
        body = Body(dense([part.width, noise.classes]), "softmax", unit=True)
        network = Network(body, [SymbolLikelihood(part.task, noise.epsilon)], after=twin(noise))
    outcome = train_privately(network, part, settings, LINEAR, progress)
    return Defence(outcome, after=noise)


def squeeze(
    part: Part, settings: Settings, checkpoints: Path | None = None, progress: Progress = silent
) -> Candidate:
    """The best bottleneck for this ε; with λ > 0 it is also kept from telling the secrets."""
    assert part.task is not None
    mechanism = settings.mechanism
    if settings.fights and part.secrets and mechanism == "auto":
        # What a symbol tells the best attacker is known in closed form, so it can be a term of the
        # loss (of soft symbols: the release takes the likeliest). No other mechanism has that.
        mechanism = "response"
    mechanisms = _mechanisms(part.task, epsilon_of(settings), mechanism)
    candidates = []
    # All candidates share the rows, the seed and the judge: only the mechanism differs.
    for place, noise in enumerate(mechanisms):

        def report(what: str, done: int, total: int, place: int = place) -> None:
            progress(what, place * total + done, len(mechanisms) * total)

        outcome = _train(part, part.task, noise, settings, checkpoints, report)
        score = _score(part, part.task, outcome, noise, settings.schedule.seed)
        candidates.append(Candidate(noise, outcome, score))
    return max(candidates, key=lambda item: item.score)


def _mechanisms(task: Attribute, epsilon: float, name: str) -> list[Any]:
    by_name: dict[str, list[Any]] = {
        "response": [
            RandomisedResponse(epsilon, symbols)
            for symbols in range(2, min(len(task.classes), MOST_SYMBOLS) + 1)
        ],
        "laplace": [Laplace(epsilon, WIDTHS["laplace"])],
        "privunit": [PrivUnit(min(epsilon, MOST_EPSILON), WIDTHS["privunit"])],
    }
    if name != "auto":
        return by_name[name]
    return [item for some in by_name.values() for item in some]


def _train(
    part: Part,
    task: Attribute,
    noise: Any,
    settings: Settings,
    checkpoints: Path | None,
    progress: Progress,
) -> TrainedMap:
    schedule, lam, lambdas = settings.schedule, settings.lam, settings.lambdas
    fights = bool(settings.fights and part.secrets)
    secrets = part.secrets if fights else ()
    with seeded_fork(schedule.seed):
        # Softmax: chances of symbols, through which the loss is exact in the mean over the noise.
        if isinstance(noise, RandomisedResponse):
            width = noise.classes
            body = Body(dense([part.width, HIDDEN, HIDDEN, width]), "softmax")
            terms: list[Term] = [SymbolTask(width, task)]
            terms += [SymbolIndependence(secrets, lam, lambdas)] if secrets else []
        else:
            width = int(noise.dimension)
            body = Body(dense([part.width, HIDDEN, HIDDEN, width]))
            terms = [Task(width, task)]
            terms += [Reversal(width, secrets, lam, 0.2, lambdas)] if secrets else []
        network = Network(body, terms, after=twin(noise))
    if fights:
        schedule = replace(schedule, batch=max(schedule.batch, GUARDED_BATCH))
    return train(network, part, schedule, checkpoints, progress)


def _score(part: Part, task: Attribute, outcome: TrainedMap, noise: Any, seed: int) -> float:
    """Accuracy of a plain probe on noisy vectors: learnt on the rows to fit on, scored on tune.

    The noise is that of a release but seeded, or the choice could not be repeated.
    """
    from sklearn.linear_model import LogisticRegression

    random = torch.Generator().manual_seed(seed)

    def noisy(rows: Vectors) -> Vectors:
        return draw(noise, torch.tensor(rows), random).numpy()

    present = task.codes >= 0
    fit, tune = part.fit[present[part.fit]], part.tune[present[part.tune]]
    # A fresh probe, not the head that was trained along: whoever uses the release has no head.
    probe = LogisticRegression(C=1.0, max_iter=500)
    probe.fit(noisy(outcome.map(part.vectors[fit])), task.codes[fit])
    inside = outcome.map(part.vectors[tune])
    scores = [
        float((probe.predict(noisy(inside)) == task.codes[tune]).mean()) for _ in range(DRAWS)
    ]
    return float(np.mean(scores))
