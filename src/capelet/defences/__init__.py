"""Defences: they learn a map that keeps what is wanted and loses the writer.

A method is a preset: which steps stand around the learnt map, and what its training asks for. There
is one training loop (`training`) and one class for each thing that can be asked for (`terms`), and
none for each method.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from capelet.data.labels import Attribute
from capelet.defences.training import Part, Schedule, Trained
from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.interfaces import Encoder, Progress, silent
from capelet.mechanisms import Laplace
from capelet.mechanisms.words import WordDropout, WordReplacement
from capelet.privacy.guarantees import checked, checked_count

KEEPS = ("task", "neighbours", "both")
LABEL_FREE = ("gr", "gr+", "leace")
"""Methods that can keep neighbours instead of a task."""
TUNED = ("fx", "gr", "gr+", "ldp", "cape")
"""Methods that can train the last layers of the encoder along with their map."""
STEPS = 150
"""How many a training against a kernel adversary takes, however many rows there are."""
TUNED_BATCH = 256
TUNED_EPOCHS = 5
"""How often the last layers see each text, after the map was trained on vectors as they are."""


@dataclass(frozen=True)
class Settings:
    """What a user may choose of a method; each method reads what concerns it."""

    epsilon: float | None = None
    lam: float | None = None
    mu: float = 0.5
    width: int = 64
    keep: str = "task"  # or "neighbours", or "both"
    mechanism: str = "auto"
    table: str = "glove"
    layers: int = 0  # of the encoder, the last ones, trained along
    schedule: Schedule = field(default_factory=Schedule)


@dataclass(frozen=True, eq=False)
class Fitted:
    """What follows the encoder: noise, the learnt map, noise; and how the training went.

    `encoder` is the encoder itself where that was learnt too.
    """

    trained: Trained
    before: Any = None
    after: Any = None
    encoder: Encoder | None = None

    @property
    def steps(self) -> tuple[Any, ...]:
        """The vector steps, in the order of a recipe."""
        return tuple(
            step for step in (self.before, self.trained.map, self.after) if step is not None
        )


Fit = Callable[[Part, Settings, "Path | None", Progress], Fitted]


@dataclass(frozen=True)
class Method:
    """One line of the table: what it does, what it needs, how it is fitted, which texts go in."""

    summary: str
    fit: Fit
    needs: frozenset[str]
    lam: float = 1.0
    texts: Callable[[Settings], tuple[Any, ...]] = lambda settings: ()

    def settled(self, settings: Settings) -> Settings:
        """The settings with this method's own λ where none was chosen."""
        return replace(settings, lam=self.lam) if settings.lam is None else settings


def _dense(
    part: Part,
    settings: Settings,
    checkpoint: Path | None,
    progress: Progress,
    *,
    noise: bool = False,
    adversary: Literal["none", "reversal", "cross", "kernel"] = "none",
) -> Fitted:
    """A map that is trained for the task, for neighbours or for both, against an adversary."""
    import torch

    from capelet.defences.noise import twin
    from capelet.defences.readers import Mixing, read
    from capelet.defences.terms import (
        CrossGradient,
        Independence,
        Neighbourhood,
        Reversal,
        Task,
        Term,
    )
    from capelet.defences.training import Body, Network, train
    from capelet.training.networks import Residual, dense

    before = Laplace(_epsilon(settings)) if noise else None
    schedule, width = settings.schedule, settings.width
    # Without a task there is no label that a mixture of two texts could lack.
    mixed = adversary == "kernel" and settings.keep == "neighbours" and bool(part.secrets)
    if mixed:  # nothing is tuned on held-back rows, so they may be learnt from
        part = replace(part, fit=np.concatenate([part.fit, part.tune]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(schedule.seed)
        terms: list[Term] = []
        if settings.keep == "task":
            body = Body(dense([part.width, width, width]), "relu")
        else:
            width = part.width
            body = Body(Residual(width, max(2 * settings.width, 512)))
        if settings.keep != "neighbours" and part.task is not None:
            if adversary == "cross":
                terms.append(CrossGradient(width, part.task, part.secrets))
            else:
                terms.append(Task(width, part.task))
        if settings.keep != "task":
            terms.append(Neighbourhood())
        if adversary == "reversal" and part.secrets:
            terms.append(Reversal(width, part.secrets, settings.lam or 0.0, warm=0.2))
        if adversary == "kernel" and part.secrets:
            reader = read(part, schedule, progress) if mixed else None
            terms.append(Independence(part.secrets, settings.lam or 0.0, reader))
        stirred = Mixing() if mixed else twin(before) if before else None
        network = Network(body, terms, before=stirred)
    schedule = _paced(schedule, part, adversary, settings.keep)
    trained = train(network, part, schedule, checkpoint, progress)
    if part.top is None:
        return Fitted(trained, before=before)
    network.front = part.top
    epochs, batch = min(schedule.epochs, TUNED_EPOCHS), min(schedule.batch, TUNED_BATCH)
    gentle = replace(schedule, epochs=epochs, batch=batch)
    tuned = train(network, part, gentle, _beside(checkpoint, "tuned"), progress)
    tuned = replace(tuned, seconds=trained.seconds + tuned.seconds)
    return Fitted(tuned, before=before, encoder=part.top.cpu().encoder())


def _beside(checkpoint: Path | None, word: str) -> Path | None:
    """Another checkpoint of the same training."""
    return checkpoint.with_name(f"{word}-{checkpoint.name}") if checkpoint is not None else None


def _autoencoder(
    part: Part, settings: Settings, checkpoint: Path | None, progress: Progress
) -> Fitted:
    from capelet.defences.autoencoder import autoencode

    if part.texts is None:
        raise DataError("the method 'ae' learns from texts, and there are only vectors")
    began = time.monotonic()
    encoder = autoencode(part, settings.schedule, _beside(checkpoint, "words"), progress)
    made = replace(part, vectors=encoder.encode(part.texts))
    fitted = _dense(made, settings, checkpoint, progress)
    trained = replace(fitted.trained, seconds=time.monotonic() - began)
    return replace(fitted, trained=trained, encoder=encoder)


def _paced(schedule: Schedule, part: Part, adversary: str, keep: str) -> Schedule:
    """A kernel adversary needs large batches, and as many steps as small ones would make."""
    if adversary == "kernel":
        batch = max(256, min(2048, len(part.fit) // 2))
        epochs = max(1, round(STEPS * batch / max(len(part.fit), 1)))
        faster = replace(schedule, batch=batch, epochs=epochs, rate=3 * schedule.rate)
        return replace(faster, patience=None, cooling=True)
    return replace(schedule, patience=None) if keep == "neighbours" else schedule


def _preset(**fixed: Any) -> Fit:
    def fit(part: Part, settings: Settings, checkpoint: Path | None, progress: Progress) -> Fitted:
        return _dense(part, settings, checkpoint, progress, **fixed)

    return fit


def _leace(part: Part, settings: Settings, checkpoint: Path | None, progress: Progress) -> Fitted:
    from capelet.defences.erasure import erase

    return Fitted(erase(part))


def _bottleneck(
    part: Part, settings: Settings, checkpoint: Path | None, progress: Progress
) -> Fitted:
    from capelet.defences.bottleneck import squeeze

    assert part.task is not None
    best = squeeze(
        part,
        part.task,
        _epsilon(settings),
        settings.lam or 0.0,
        settings.schedule,
        settings.mechanism,
        checkpoint,
        progress,
    )
    return Fitted(best.trained, after=best.mechanism)


def _epsilon(settings: Settings) -> float:
    if settings.epsilon is None:
        raise CapeletError("this method adds noise and needs an epsilon: give --epsilon 8")
    return checked("epsilon", settings.epsilon, 1e-9, 1e6)


def _replaced(settings: Settings) -> tuple[Any, ...]:
    return (WordReplacement(_epsilon(settings), table=settings.table),)


def _dropped(settings: Settings) -> tuple[Any, ...]:
    return (WordDropout(settings.mu),)


METHODS: dict[str, Method] = {
    "fx": Method(
        "A task map without privacy: what the others are compared with.",
        _preset(),
        frozenset({"label"}),
    ),
    "ae": Method(
        "An auto-encoder of the texts in place of the encoder, then a task map without privacy.",
        _autoencoder,
        frozenset({"label", "texts"}),
    ),
    "gr": Method(
        "Gradient reversal: a joint adversary for each secret.",
        _preset(adversary="reversal"),
        frozenset({"private"}),
    ),
    "gr+": Method(
        "A fresh kernel adversary in closed form, in every step.",
        _preset(adversary="kernel"),
        frozenset({"private"}),
    ),
    "cgt": Method(
        "Cross-gradient training: each side learns on the other's perturbation.",
        _preset(adversary="cross"),
        frozenset({"label", "private"}),
    ),
    "leace": Method(
        "Linear erasure in closed form; stops linear attackers only.",
        _leace,
        frozenset({"private"}),
    ),
    "ldp": Method(
        "Laplace noise on the vector, then a task map.",
        _preset(noise=True),
        frozenset({"label", "epsilon"}),
    ),
    "cape": Method(
        "Laplace noise on the vector, then a map trained with reversal.",
        _preset(noise=True, adversary="reversal"),
        frozenset({"label", "private", "epsilon"}),
    ),
    "mdp": Method(
        "Words replaced under metric privacy, then a task map.",
        _preset(),
        frozenset({"label", "epsilon"}),
        texts=_replaced,
    ),
    "dpnr": Method(
        "Words dropped, Laplace noise on the vector, then a task map trained through the noise.",
        _preset(noise=True),
        frozenset({"label", "epsilon"}),
        texts=_dropped,
    ),
    "bottleneck": Method(
        "A learnt bottleneck before the noise: useful at a real ε.",
        _bottleneck,
        frozenset({"label", "epsilon"}),
        lam=0.0,
    ),
}


def method(name: str) -> Method:
    """The method of this name."""
    if name not in METHODS:
        raise CapeletError(f"there is no method {name!r}; {did_you_mean(name, METHODS)}")
    return METHODS[name]


def checked_for(
    name: str, settings: Settings, task: Attribute | None, secrets: Sequence[Attribute]
) -> Method:
    """The method, if it has what it needs; otherwise an error that says what is missing."""
    chosen = method(name)
    if settings.keep not in KEEPS:
        hint = did_you_mean(str(settings.keep), KEEPS)
        raise CapeletError(f"keep is {settings.keep!r}; {hint}")
    if settings.keep == "task" and name in LABEL_FREE:
        needs = chosen.needs - {"label"} if name == "leace" else chosen.needs | {"label"}
    else:
        needs = chosen.needs if settings.keep == "neighbours" else chosen.needs | {"label"}
    if "label" in needs and task is None:
        hint = ", or keep neighbours instead: --keep neighbours" if name in LABEL_FREE else ""
        raise DataError(
            f"the method {name!r} keeps a task, and there is no label; name its column with "
            f"--label{hint}"
        )
    if settings.keep != "task" and name not in LABEL_FREE:
        free = ", ".join(LABEL_FREE)
        raise CapeletError(f"the method {name!r} keeps a task; neighbours are kept by {free}")
    if "private" in needs and not secrets:
        raise DataError(f"the method {name!r} needs a private attribute to protect: --private")
    if "epsilon" in needs:
        _epsilon(settings)
    elif settings.epsilon is not None:
        noisy = ", ".join(key for key, item in METHODS.items() if "epsilon" in item.needs)
        raise CapeletError(
            f"the method {name!r} adds no noise and takes no epsilon; those that do are {noisy}"
        )
    if settings.layers and (name not in TUNED or settings.keep != "task"):
        raise CapeletError(
            "layers of the encoder are trained along with a map that keeps a task, by "
            f"{', '.join(TUNED)}; leave --tune-layers out"
        )
    if settings.lam is not None:
        checked("lambda", settings.lam, 0.0, 1e6)
    checked_count("width", settings.width)
    return chosen


def fit(
    name: str,
    part: Part,
    settings: Settings,
    checkpoint: Path | None = None,
    progress: Progress = silent,
) -> Fitted:
    """Fit a method on the defender's part, after checking that it has what it needs."""
    chosen = checked_for(name, settings, part.task, part.secrets)
    return chosen.fit(part, chosen.settled(settings), checkpoint, progress)
