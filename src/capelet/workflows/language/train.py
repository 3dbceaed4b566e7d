"""Texts in, a model folder out: everything is checked and calibrated before training begins.

What a user may choose is four records of a question: the model, how long and how it is trained, by
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
from capelet.data.canaries import WORDS, Canary, make_canaries
from capelet.encoders.model_folder import claim_folder
from capelet.errors import CapeletError, DataError, did_you_mean, name_field
from capelet.files import check_writable
from capelet.interfaces import Progress, silent
from capelet.language.folders import CHECKPOINT, DRAWS, LanguageModel, id_in
from capelet.language.methods import (
    METHODS,
    TEXTS_PER_AUTHOR,
    UNITS,
    Adversarial,
    Dpsgd,
    Plain,
    Triplet,
    check_authors,
)
from capelet.language.model import Scorer, build
from capelet.language.records import Record, digest_of
from capelet.language.regularisers import POSITIONS
from capelet.language.schedule import Training
from capelet.language.vocabulary import (
    PUBLIC,
    THROUGH_NOISE,
    DividedSamples,
    Vocabulary,
    divide,
    same_person,
)
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.privacy.origins import check_state
from capelet.question import CanaryCounts, LanguageNetwork, LanguageSchedule, Mitigation
from capelet.training.device import choose
from capelet.workflows.language.promise import (
    Budget,
    Course,
    Draws,
    Private,
    Units,
    calibrate,
    draw,
    identity_of_draws,
    promise_of,
)


@dataclass(frozen=True)
class LanguageSettings:
    """All that a user may choose of a language model."""

    model: LanguageNetwork = field(default_factory=LanguageNetwork)
    schedule: LanguageSchedule = field(default_factory=LanguageSchedule)
    mitigation: Mitigation = field(default_factory=Mitigation)
    secrets: CanaryCounts = field(default_factory=CanaryCounts)

    def check(self, authors: bool) -> None:
        """Refuse settings that no texts could make right."""
        mitigation, schedule, length = self.mitigation, self.schedule, self.model.length
        method = mitigation.method
        if method not in METHODS:
            raise CapeletError(f"there is no method {method!r}; {did_you_mean(method, METHODS)}")
        _check_unit(mitigation, authors)
        if self.model.words == THROUGH_NOISE and method != "dpsgd":
            raise CapeletError(
                "a private vocabulary is paid from the epsilon of 'dpsgd'; the method "
                f"{method!r} has none"
            )
        if schedule.perplexity is not None and method == "dpsgd" and not mitigation.seeded_noise:
            raise CapeletError(
                "a training that is stopped where its perplexity is right has looked at texts that "
                "no epsilon covers; leave perplexity out"
            )
        if mitigation.position not in POSITIONS:
            hint = did_you_mean(mitigation.position, POSITIONS)
            raise CapeletError(f"there is no position {mitigation.position!r}; {hint}")
        repetitions = self.secrets.canaries
        if not authors and (repetitions or method in ("adversarial", "triplet")):
            raise DataError(
                ("canaries belong to authors" if repetitions else f"{method!r} hides authors")
                + f"; name their column with {name_field('author')}"
            )
        if repetitions and length < WORDS:
            raise CapeletError(
                f"length is {length}, and a canary has {WORDS} words, so it would be cut off; give "
                f"{WORDS} or more"
            )


def _check_unit(mitigation: Mitigation, authors: bool) -> None:
    """Refuse a unit and bounds that the method does not have."""
    method, unit = mitigation.method, mitigation.unit
    if unit not in UNITS:
        raise CapeletError(f"there is no unit {unit!r}; {did_you_mean(unit, UNITS)}")
    by_author = unit == "author"
    if by_author and method != "dpsgd":
        raise CapeletError(
            f"the unit 'author' is of 'dpsgd'; the method {method!r} promises nothing"
        )
    if mitigation.texts_per_author is not None and not by_author:
        raise CapeletError("texts_per_author is of the unit 'author'; give that unit too")
    if by_author and not authors:
        raise DataError(
            f"the unit 'author' needs authors; name their column with {name_field('author')}"
        )
    choices = (mitigation.epsilon, mitigation.delta, mitigation.noise_multiplier)
    if method != "dpsgd" and any(value is not None for value in choices):
        raise CapeletError(
            f"epsilon, delta and noise are of 'dpsgd'; the method {method!r} promises nothing"
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
    shape, schedule = options.model, options.schedule
    check_writable(out)
    check_state()
    options.check(authors is not None)
    people = [same_person(name) for name in authors or [""] * len(texts)]
    # Everything that can be refused comes before the first step, which may take hours.
    digest = digest_of(texts)
    start = _prepare(texts, people, Path(out), options, digest)
    rows, private = start.rows, start.private
    method = _method(options.mitigation, private, schedule.seed)
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
        perplexity=schedule.perplexity,
    )
    model = build(
        shape.network,
        len(start.words),
        shape.width,
        shape.layers,
        shape.length,
        schedule.seed,
    ).to(choose(schedule.device))
    target = claim_folder(out)  # before the first checkpoint, which holds weights of private texts
    if start.draws is not None:
        start.draws.keep(target / DRAWS)
    result = plan.fit(
        model,
        rows.train,
        rows.validation,
        # Weights that were nearest before a kill would be lost, and others taken for them.
        checkpoint=target / CHECKPOINT if schedule.perplexity is None else None,
        progress=progress,
        on_epoch=on_epoch,
        allow_single=True,
    )
    account, figures = _account(plan, rows, private, result.history, result.network)
    if not math.isfinite(figures["test_perplexity"]):
        _forget_progress(target)
        raise CapeletError(
            "the training has diverged: its perplexity is no finite number; train again with a "
            "smaller rate or strength"
        )
    record = Record(digest, figures, tuple(canary.author for canary in start.canaries))
    finished_model = LanguageModel(
        result.network,
        start.words,
        _guarantee(start, options.mitigation),
        start.canaries,
        account,
        record.under(id_in(target)),
    )
    # Saved before the checkpoint goes: a kill in between loses nothing.
    finished_model.save(target)
    _forget_progress(target)
    return finished_model


def _forget_progress(target: Path) -> None:
    for name in (CHECKPOINT, DRAWS):
        (target / name).unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class Start:
    """Everything that a training begins with: words, canaries, rows, and the price of privacy."""

    words: Vocabulary
    canaries: tuple[Canary, ...]
    rows: DividedSamples
    draws: Draws | None
    private: Private | None


def _prepare(
    texts: Sequence[str],
    people: Sequence[str],
    out: Path,
    settings: LanguageSettings,
    digest: str,
) -> Start:
    """What the training rows alone decide: validation and test rows have no say in it."""
    model, schedule, mitigation = settings.model, settings.schedule, settings.mitigation
    train = divide(texts, schedule.seed).train
    units = Units(
        [texts[i] for i in train], [people[i] for i in train], mitigation.unit, model.length
    )
    draws = budget = None
    if mitigation.method == "dpsgd":
        budget = Budget.of(mitigation, model.words == THROUGH_NOISE)
        draws = _draws(units, budget, out / DRAWS, settings, digest)
    words = _vocabulary(model, units.texts, draws)
    canaries = _canaries(units.people, words, settings)
    rows = DividedSamples.of(texts, people, words, canaries, model.length, schedule.seed)
    private = None
    if draws is not None and budget is not None:
        # A canary's copies are texts of their own, but not authors of their own.
        copies = sum(canary.repetitions for canary in canaries)
        course = Course(schedule.epochs, schedule.batch)
        extra = copies if mitigation.unit == "record" else 0
        private = calibrate(mitigation, course, budget, draws, extra)
    return Start(words, canaries, rows, draws, private)


def _draws(
    units: Units, budget: Budget, path: Path, settings: LanguageSettings, digest: str
) -> Draws:
    """Those of an interrupted training with the same settings, or new ones."""
    mitigation, seed = settings.mitigation, settings.schedule.seed
    choices = {
        "unit": mitigation.unit,
        "epsilon": mitigation.epsilon,
        "delta": mitigation.delta,
        "words": settings.model.words,
        "length": settings.model.length,
        "seed": seed,
        "is_seeded": mitigation.seeded_noise,
    }
    identity = identity_of_draws(digest, choices)
    before = Draws.load(path, identity)
    if before is not None:
        return before
    # The tag keeps these draws apart from all others of the same seed.
    random = np.random.default_rng([seed, 0xC0]) if mitigation.seeded_noise else None
    return draw(units, budget, mitigation.delta, identity, random)


def _vocabulary(model: LanguageNetwork, texts: Sequence[str], draws: Draws | None) -> Vocabulary:
    """A list as it is; else so many words of the texts, of the noised ones, or of a public list."""
    words, size = model.words, model.vocabulary
    if not isinstance(size, int):
        return Vocabulary.from_list(size)
    if words is None:
        return Vocabulary.of(texts, size)
    if words == THROUGH_NOISE:
        assert draws is not None and draws.words is not None
        return Vocabulary.from_list(draws.words[:size], THROUGH_NOISE)
    if words.startswith(PUBLIC):
        return Vocabulary.of_public_list(words, size)
    return Vocabulary.of_file(Path(words))


def _canaries(
    people: Sequence[str], words: Vocabulary, settings: LanguageSettings
) -> tuple[Canary, ...]:
    secrets = settings.secrets
    if not secrets.canaries:
        return ()
    return make_canaries(
        people,
        words.canary_words(),
        secrets.canaries,
        per_level=secrets.canary_authors,
        seed=settings.schedule.seed,
    )


def _method(mitigation: Mitigation, private: Private | None, seed: int) -> Any:
    if private is not None:
        seed_noise = seed if mitigation.seeded_noise else None
        return Dpsgd(
            private.noise_multiplier,
            mitigation.clip,
            seed_noise,
            mitigation.unit,
            mitigation.texts_per_author or TEXTS_PER_AUTHOR,
            private.units,
        )
    if mitigation.method == "none":
        return Plain()
    kind = Adversarial if mitigation.method == "adversarial" else Triplet
    return replace(kind(), strength=mitigation.strength, position=mitigation.position)


def _guarantee(start: Start, mitigation: Mitigation) -> Guarantee:
    if start.private is None:
        return NONE
    return promise_of(
        start.private,
        start.words,
        is_seeded=mitigation.seeded_noise,
        has_canaries=bool(start.canaries),
        texts_per_author=mitigation.texts_per_author or TEXTS_PER_AUTHOR,
    )


def _account(
    plan: Training,
    rows: DividedSamples,
    private: Private | None,
    history: Sequence[dict[str, float]],
    network: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `model.json` says of the training, and the exact figures that are the owner's.

    Settings are public, and what `privacy` says follows from them and from the noised number of
    units. Exact figures (numbers of texts, perplexities of held-back texts, seconds) are covered by
    no ε: only a model that promises nothing may have them in its folder.
    """
    scorer = Scorer(network, plan.device)
    # JSON has no NaN.
    clean = [
        {k: v for k, v in row.items() if not (isinstance(v, float) and math.isnan(v))}
        for row in history
    ]
    settings = {
        "capelet": __version__,
        "method": asdict(plan.method),
        "epochs": plan.epochs,
        "batch": plan.batch,
        "rate": plan.rate,
        "batching": "poisson" if private else plan.batching,
        "seed": plan.seed,
        "length": network.sizes["length"],
        "privacy": None if private is None else asdict(private),
    }
    figures = {
        "rows": rows.train.describe(),
        "texts_cut": rows.texts_cut,
        "history": clean,
        "validation_perplexity": scorer.perplexity(rows.validation),
        "test_perplexity": scorer.perplexity(rows.test.tokens),
        # 0 is padding and 1 the unknown word (`language.vocabulary`).
        "unknown_words": float(np.mean(rows.test.tokens[rows.test.tokens > 0] == 1)),
    }
    return settings if private else {**settings, **figures}, figures
