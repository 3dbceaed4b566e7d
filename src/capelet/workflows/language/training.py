"""Texts in, a model folder out: everything is checked and calibrated before training begins.

What a user may choose is four small records in one: the network, how long and how it is trained, by
which method, and the canaries that are inserted into a model that is to be measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from capelet import __version__
from capelet.data.canaries import WORDS, Canary, insert_canaries, make_canaries
from capelet.data.text import words_and_signs
from capelet.encoders.model_folder import claim_folder
from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.files import check_writable
from capelet.interfaces import Progress, silent
from capelet.language.folders import CHECKPOINT, LanguageModel, digest_of
from capelet.language.model import Scorer, build
from capelet.language.regularisers import POSITIONS
from capelet.language.training import (
    METHODS,
    Adversarial,
    Dpsgd,
    Plain,
    Training,
    Triplet,
    check_authors,
)
from capelet.language.vocabulary import Samples, Tokens, Vocabulary, divide
from capelet.privacy.accounting import central, check_delta, epsilon_of, noise_for
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.training.device import choose


@dataclass(frozen=True, eq=False)
class Rows:
    """What a folder's model trained on and is measured on; made again from the same texts."""

    train: Samples
    validation: Tokens
    test: Samples
    texts_cut: int


def rows_of(
    texts: Sequence[str],
    authors: Sequence[str],
    vocabulary: Vocabulary,
    canaries: Sequence[Canary],
    length: int,
    seed: int,
) -> Rows:
    """The same division, canaries and numbers as in training, for the same texts and seed."""
    parts = divide(texts, seed)

    def select(rows: Any) -> tuple[list[str], list[str]]:
        return [texts[i] for i in rows], [authors[i] for i in rows]

    with_canaries = insert_canaries(*select(parts.train), canaries)
    return Rows(
        Samples.of(*with_canaries, vocabulary, length),
        vocabulary.encode(select(parts.validation)[0], length),
        Samples.of(*select(parts.test), vocabulary, length),
        sum(len(words_and_signs(text)) > length for text in texts),
    )


@dataclass(frozen=True)
class NetworkSettings:
    """The shape of the model; `vocabulary` is a number of words, or a public list of them."""

    kind: str = "lstm"
    vocabulary: int | Sequence[str] = 10_000
    width: int = 256
    layers: int = 2
    length: int = 20


@dataclass(frozen=True)
class ScheduleSettings:
    """How long it is trained, in which batches, and from which seed."""

    epochs: int = 10
    batch: int = 100
    rate: float = 1e-3
    batching: str = "grouped"
    seed: int = 0
    device: str = "auto"


@dataclass(frozen=True)
class MethodSettings:
    """Which training it is, and what each method reads of its own.

    DP-SGD needs `epsilon` or `noise_multiplier`; `delta` is 1/(2n) where it is not given, below
    the 1/n at which publishing one text whole would already count as private. `unit="author"` is
    refused. `seeded_noise` can be repeated, and guarantees nothing.
    """

    name: str = "none"
    strength: float = 4.0
    position: str = "random"
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    clip: float = 1.0
    unit: str = "record"
    seeded_noise: bool = False


@dataclass(frozen=True)
class CanarySettings:
    """How often made-up secrets are inserted, and for how many authors; none by default."""

    repetitions: Sequence[int] = ()
    per_level: int | None = None


@dataclass(frozen=True)
class LanguageSettings:
    """All that a user may choose of a language model."""

    network: NetworkSettings = field(default_factory=NetworkSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    method: MethodSettings = field(default_factory=MethodSettings)
    canaries: CanarySettings = field(default_factory=CanarySettings)

    def check(self, authors: bool) -> None:
        """Refuse settings that no texts could make right."""
        method, schedule, length = self.method, self.schedule, self.network.length
        if method.name not in METHODS:
            hint = did_you_mean(method.name, METHODS)
            raise CapeletError(f"there is no method {method.name!r}; {hint}")
        for name, value, least in (("batch", schedule.batch, 1), ("seed", schedule.seed, 0)):
            if value < least:
                raise CapeletError(f"{name} is {value}; it must be at least {least}")
        if method.position not in POSITIONS:
            hint = did_you_mean(method.position, POSITIONS)
            raise CapeletError(f"there is no position {method.position!r}; {hint}")
        repetitions = self.canaries.repetitions
        if not authors and (repetitions or method.name in ("adversarial", "triplet")):
            raise DataError(
                ("canaries belong to authors" if repetitions else f"{method.name!r} hides authors")
                + "; name their column with --author"
            )
        if repetitions and length < WORDS:
            raise CapeletError(
                f"length is {length}, and a canary has {WORDS} words, so it would be cut off; give "
                f"{WORDS} or more"
            )


def train_model(
    texts: Sequence[str],
    authors: Sequence[str] | None,
    out: Path | str,
    settings: LanguageSettings | None = None,
    *,
    progress: Progress = silent,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
) -> LanguageModel:
    """Train a language model on the texts and write its folder; `on_epoch` gets each row."""
    options = settings or LanguageSettings()
    network, schedule = options.network, options.schedule
    check_writable(out)
    options.check(authors is not None)
    people = list(authors) if authors is not None else [""] * len(texts)
    # Everything that can be refused comes before the first step, which may take hours.
    words, canaries = _words_and_canaries(texts, people, options)
    rows = rows_of(texts, people, words, canaries, network.length, schedule.seed)
    private = _private(options, len(rows.train))
    method = _method(options.method, private, schedule.seed)
    # Of all texts: the division may take one of an author's two, which is no fault of theirs.
    check_authors(np.unique(people, return_inverse=True)[1], method)
    plan = Training(
        method,
        schedule.epochs,
        schedule.batch,
        schedule.rate,
        schedule.batching,
        seed=schedule.seed,
        device=schedule.device,
    )
    model = build(
        network.kind, len(words), network.width, network.layers, network.length, schedule.seed
    ).to(choose(schedule.device))
    target = claim_folder(out)  # before the first checkpoint, which holds weights of private texts
    result = plan.fit(
        model,
        rows.train,
        rows.validation,
        checkpoint=target / CHECKPOINT,
        progress=progress,
        on_epoch=on_epoch,
        allow_single=True,
    )
    account = _account(plan, rows, private, result.history, texts, result.network)
    if not math.isfinite(account["test_perplexity"]):
        (target / CHECKPOINT).unlink(missing_ok=True)
        raise CapeletError(
            "the training has diverged: its perplexity is no finite number; train again with a "
            "smaller rate or strength"
        )
    promise = _guarantee(private, options.method.seeded_noise, words)
    finished_model = LanguageModel(result.network, words, promise, canaries, account)
    # Saved before the checkpoint goes: a kill in between loses nothing.
    finished_model.save(target)
    (target / CHECKPOINT).unlink(missing_ok=True)
    return finished_model


def _words_and_canaries(
    texts: Sequence[str], people: Sequence[str], settings: LanguageSettings
) -> tuple[Vocabulary, tuple[Canary, ...]]:
    """What the training rows alone decide: validation and test rows have no say in it."""
    seed, canaries = settings.schedule.seed, settings.canaries
    train = divide(texts, seed).train
    vocabulary = settings.network.vocabulary
    if isinstance(vocabulary, int):
        words = Vocabulary.of([texts[i] for i in train], vocabulary)
    else:
        words = Vocabulary.from_list(vocabulary)
    if not canaries.repetitions:
        return words, ()
    writers = [people[i] for i in train]
    secrets = make_canaries(
        writers,
        words.canary_words(),
        canaries.repetitions,
        per_level=canaries.per_level,
        seed=seed,
    )
    return words, secrets


@dataclass(frozen=True)
class Private:
    """The calibrated noise of a DP-SGD run and what it costs."""

    noise_multiplier: float
    epsilon: float
    delta: float
    # The sampling rate; `model.json` has it under this name.
    rate: float
    steps: int


def _private(settings: LanguageSettings, samples: int) -> Private | None:
    """The noise for a wanted ε, or the ε of a given noise; refused before any work."""
    method, schedule = settings.method, settings.schedule
    choices = (method.epsilon, method.delta, method.noise_multiplier)
    if method.name != "dpsgd":
        if any(value is not None for value in choices):
            raise CapeletError(
                "epsilon, delta and noise are of 'dpsgd'; the method "
                f"{method.name!r} promises nothing"
            )
        return None
    # Half of 1/n, at which publishing one text whole would already count as private.
    delta = check_delta(0.5 / samples if method.delta is None else method.delta, samples)
    # Poisson sampling takes each text with this probability in each step.
    sample_rate = min(schedule.batch, samples) / samples
    steps = schedule.epochs * math.ceil(samples / schedule.batch)
    if (method.epsilon is None) == (method.noise_multiplier is None):
        raise CapeletError("DP-SGD needs epsilon or noise_multiplier, and only one of them")
    noise = method.noise_multiplier
    if noise is None:
        assert method.epsilon is not None
        noise = noise_for(method.epsilon, delta, sample_rate, steps)
    epsilon = epsilon_of(noise, sample_rate, steps, delta)
    return Private(noise, epsilon, delta, sample_rate, steps)


def _method(settings: MethodSettings, private: Private | None, seed: int) -> Any:
    if private is not None:
        seed_noise = seed if settings.seeded_noise else None
        return Dpsgd(private.noise_multiplier, settings.clip, seed_noise, settings.unit)
    if settings.name == "none":
        return Plain()
    kind = Adversarial if settings.name == "adversarial" else Triplet
    return replace(kind(), strength=settings.strength, position=settings.position)


def _guarantee(private: Private | None, is_seeded: bool, words: Vocabulary) -> Guarantee:
    if private is None:
        return NONE
    return central(private.epsilon, private.delta, is_seeded, words.public)


def _account(
    plan: Training,
    rows: Rows,
    private: Private | None,
    history: Sequence[dict[str, float]],
    texts: Sequence[str],
    network: Any,
) -> dict[str, Any]:
    """What `model.json` says of the training; no text, no author."""
    scorer = Scorer(network, plan.device)
    # JSON has no NaN.
    clean = [
        {k: v for k, v in row.items() if not (isinstance(v, float) and math.isnan(v))}
        for row in history
    ]
    return {
        "capelet": __version__,
        "method": asdict(plan.method),
        "epochs": plan.epochs,
        "batch": plan.batch,
        "rate": plan.rate,
        "batching": "poisson" if private else plan.batching,
        "seed": plan.seed,
        "length": network.sizes["length"],
        "rows": rows.train.describe(),
        "texts_cut": rows.texts_cut,
        "digest": digest_of(list(texts)),
        "privacy": None if private is None else asdict(private),
        "history": clean,
        "validation_perplexity": scorer.perplexity(rows.validation),
        "test_perplexity": scorer.perplexity(rows.test.tokens),
        # 0 is padding and 1 the unknown word (`language.vocabulary`).
        "unknown_words": float(np.mean(rows.test.tokens[rows.test.tokens > 0] == 1)),
    }
