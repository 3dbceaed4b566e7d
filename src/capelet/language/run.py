"""Texts in, a model folder out: everything is checked and calibrated before training begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capelet import __version__
from capelet.data.canaries import WORDS, Canary, insert_canaries, make_canaries
from capelet.data.text import words_and_signs
from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.files import check_writable, writable_folder
from capelet.interfaces import Progress, silent
from capelet.language.folders import CHECKPOINT, LanguageModel, digest_of
from capelet.language.model import Scorer, build, device_of
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


@dataclass(frozen=True, eq=False)
class Rows:
    """What a folder's model trained on and is measured on; made again from the same texts."""

    train: Samples
    validation: Tokens
    test: Samples
    cut: int


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

    def chosen(rows: Any) -> tuple[list[str], list[str]]:
        return [texts[i] for i in rows], [authors[i] for i in rows]

    inserted = insert_canaries(*chosen(parts.train), canaries)
    return Rows(
        Samples.of(*inserted, vocabulary, length),
        vocabulary.encode(chosen(parts.validation)[0], length),
        Samples.of(*chosen(parts.test), vocabulary, length),
        sum(len(words_and_signs(text)) > length for text in texts),
    )


def train_model(
    texts: Sequence[str],
    authors: Sequence[str] | None,
    out: Path | str,
    *,
    method: str = "none",
    network: str = "lstm",
    vocabulary: int | Sequence[str] = 10_000,
    width: int = 256,
    layers: int = 2,
    length: int = 20,
    epochs: int = 10,
    batch: int = 100,
    rate: float = 1e-3,
    batching: str = "grouped",
    strength: float = 4.0,
    position: str = "random",
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    clip: float = 1.0,
    unit: str = "record",
    seeded_noise: bool = False,
    repetitions: Sequence[int] = (),
    per_level: int | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress = silent,
    told: Callable[[dict[str, float]], None] | None = None,
) -> LanguageModel:
    """Train a language model on the texts and write its folder.

    `repetitions` insert canaries, for a model that is to be measured. DP-SGD needs `epsilon` or
    `noise_multiplier`; `delta` is 1/(2n) where it is not given. `unit="author"` is refused.
    """
    check_writable(out)
    _check(method, authors is not None, batch, seed, position, length, repetitions)
    people = list(authors) if authors is not None else [""] * len(texts)
    parts = divide(texts, seed)
    words = _vocabulary([texts[i] for i in parts.train], vocabulary)
    canaries: tuple[Canary, ...] = ()
    if repetitions:
        writers = [people[i] for i in parts.train]
        canaries = make_canaries(
            writers, words.canary_words(), repetitions, per_level=per_level, seed=seed
        )
    rows = rows_of(texts, people, words, canaries, length, seed)
    steps = epochs * math.ceil(len(rows.train) / batch)
    private = None
    if method == "dpsgd":
        private = _calibrated(
            len(rows.train), min(batch, len(rows.train)), steps, epsilon, delta, noise_multiplier
        )
    elif any(value is not None for value in (epsilon, delta, noise_multiplier)):
        raise CapeletError(
            f"epsilon, delta and noise are of 'dpsgd'; the method {method!r} promises nothing"
        )
    chosen = _method(
        method, strength, position, private, clip, unit, seed if seeded_noise else None
    )
    # Of all given texts: the division may take one of an author's two, which is no fault of theirs.
    check_authors(np.unique(people, return_inverse=True)[1], chosen)
    plan = Training(chosen, epochs, batch, rate, batching, seed=seed, device=device)
    made = build(network, len(words), width, layers, length, seed).to(device_of(device))
    target = writable_folder(out)
    done = plan.fit(
        made,
        rows.train,
        rows.validation,
        checkpoint=target / CHECKPOINT,
        progress=progress,
        told=told,
        allow_single=True,
    )
    account = _account(plan, rows, private, done.history, texts, done.network)
    if not math.isfinite(account["test_perplexity"]):
        (target / CHECKPOINT).unlink(missing_ok=True)
        raise CapeletError(
            "the training has diverged: its perplexity is no finite number; train again with a "
            "smaller rate or strength"
        )
    promise = _guarantee(private, seeded_noise, words)
    model = LanguageModel(done.network, words, promise, canaries, account)
    model.save(target)
    (target / CHECKPOINT).unlink(missing_ok=True)
    return model


def _check(
    method: str,
    written: bool,
    batch: int,
    seed: int,
    position: str,
    length: int,
    repetitions: Sequence[int],
) -> None:
    """What can be said of the settings before the texts are looked at."""
    if method not in METHODS:
        raise CapeletError(f"there is no method {method!r}; {did_you_mean(method, METHODS)}")
    for name, value, least in (("batch", batch, 1), ("seed", seed, 0)):
        if value < least:
            raise CapeletError(f"{name} is {value}; it must be at least {least}")
    if position not in POSITIONS:
        raise CapeletError(
            f"there is no position {position!r}; {did_you_mean(position, POSITIONS)}"
        )
    if not written and (repetitions or method in ("adversarial", "triplet")):
        raise DataError(
            ("canaries belong to authors" if repetitions else f"{method!r} hides authors")
            + "; name their column with --author"
        )
    if repetitions and length < WORDS:
        raise CapeletError(
            f"length is {length}, and a canary has {WORDS} words, so it would be cut off; give "
            f"{WORDS} or more"
        )


@dataclass(frozen=True)
class Private:
    """The calibrated noise of a DP-SGD run and what it costs."""

    noise_multiplier: float
    epsilon: float
    delta: float
    rate: float
    steps: int


def _calibrated(
    samples: int,
    batch: int,
    steps: int,
    epsilon: float | None,
    delta: float | None,
    noise_multiplier: float | None,
) -> Private:
    """The noise for a wanted ε, or the ε of a given noise; refused before any work."""
    small = check_delta(0.5 / samples if delta is None else delta, samples)
    rate = batch / samples
    if (epsilon is None) == (noise_multiplier is None):
        raise CapeletError("DP-SGD needs epsilon or noise_multiplier, and only one of them")
    if noise_multiplier is None:
        assert epsilon is not None
        noise_multiplier = noise_for(epsilon, small, rate, steps)
    reached = epsilon_of(noise_multiplier, rate, steps, small)
    return Private(noise_multiplier, reached, small, rate, steps)


def _method(
    name: str,
    strength: float,
    position: str,
    private: Private | None,
    clip: float,
    unit: str,
    seed_noise: int | None,
) -> Any:
    if private is not None:
        return Dpsgd(private.noise_multiplier, clip, seed_noise, unit)
    if name == "none":
        return Plain()
    kind = Adversarial if name == "adversarial" else Triplet
    return replace(kind(), strength=strength, position=position)


def _vocabulary(texts: Sequence[str], wanted: int | Sequence[str]) -> Vocabulary:
    if isinstance(wanted, int):
        return Vocabulary.of(texts, wanted)
    return Vocabulary.from_list(wanted)


def _guarantee(private: Private | None, seeded: bool, words: Vocabulary) -> Guarantee:
    if private is None:
        return NONE
    return central(private.epsilon, private.delta, seeded, words.public)


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
        "texts_cut": rows.cut,
        "digest": digest_of(list(texts)),
        "privacy": None if private is None else asdict(private),
        "history": clean,
        "validation_perplexity": scorer.perplexity(rows.validation),
        "test_perplexity": scorer.perplexity(rows.test.tokens),
        "unknown_words": float(np.mean(rows.test.tokens[rows.test.tokens > 0] == 1)),
    }
