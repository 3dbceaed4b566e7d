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
    FROM_TEXTS,
    THROUGH_NOISE,
    Samples,
    Tokens,
    Vocabulary,
    divide,
    same_person,
)
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.privacy.origins import check_state
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
    """The shape of the model; `vocabulary` is a number of words, or a public list of them.

    A number of words is taken from `words`: from the `texts`, which no ε covers; from a public list
    by name (`public:glove`); or, `private`, from the texts through noise that DP-SGD's ε pays for.
    """

    kind: str = "lstm"
    vocabulary: int | Sequence[str] = 10_000
    width: int = 256
    layers: int = 2
    length: int = 20
    words: str = FROM_TEXTS


@dataclass(frozen=True)
class ScheduleSettings:
    """How long it is trained, in which batches, and from which seed.

    With `perplexity` the weights nearest to it on validation rows are kept, for comparisons at one
    perplexity. To choose them is covered by no ε, so DP-SGD takes it with seeded noise alone.
    """

    epochs: int = 10
    batch: int = 100
    rate: float = 1e-3
    batching: str = "grouped"
    seed: int = 0
    device: str = "auto"
    perplexity: float | None = None


@dataclass(frozen=True)
class MethodSettings:
    """Which training it is, and what each method reads of its own.

    DP-SGD needs `epsilon` or `noise_multiplier`; `delta` is n^−1.1 where it is not given, below the
    1/n at which publishing one text whole would already count as private. With the `unit` `author`
    at most `texts_per_author` (16) texts of each author train, and count as one. `seeded_noise` can
    be repeated, and guarantees nothing.
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
    texts_per_author: int | None = None

    @property
    def most_texts(self) -> int:
        """How many texts of an author train."""
        return TEXTS_PER_AUTHOR if self.texts_per_author is None else self.texts_per_author

    def check(self, authors: bool) -> None:
        """Refuse a unit and bounds that the method does not have."""
        if self.unit not in UNITS:
            raise CapeletError(f"there is no unit {self.unit!r}; {did_you_mean(self.unit, UNITS)}")
        by_author = self.unit == "author"
        if by_author and self.name != "dpsgd":
            raise CapeletError(
                f"the unit 'author' is of 'dpsgd'; the method {self.name!r} promises nothing"
            )
        if self.texts_per_author is not None and not by_author:
            raise CapeletError("texts_per_author is of the unit 'author'; give that unit too")
        if by_author and not authors:
            raise DataError(
                f"the unit 'author' needs authors; name their column with {name_field('author')}"
            )
        choices = (self.epsilon, self.delta, self.noise_multiplier)
        if self.name != "dpsgd" and any(value is not None for value in choices):
            raise CapeletError(
                "epsilon, delta and noise are of 'dpsgd'; the method "
                f"{self.name!r} promises nothing"
            )


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
        method.check(authors)
        if self.network.words == THROUGH_NOISE and method.name != "dpsgd":
            raise CapeletError(
                "a private vocabulary is paid from the epsilon of 'dpsgd'; the method "
                f"{method.name!r} has none"
            )
        if schedule.perplexity is not None and method.name == "dpsgd" and not method.seeded_noise:
            raise CapeletError(
                "a training that is stopped where its perplexity is right has looked at texts that "
                "no epsilon covers; leave perplexity out"
            )
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
                + f"; name their column with {name_field('author')}"
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
    check_state()
    options.check(authors is not None)
    people = [same_person(name) for name in authors or [""] * len(texts)]
    # Everything that can be refused comes before the first step, which may take hours.
    digest = digest_of(texts)
    start = _prepare(texts, people, Path(out), options, digest)
    rows, private = start.rows, start.private
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
        perplexity=schedule.perplexity,
    )
    model = build(
        network.kind,
        len(start.words),
        network.width,
        network.layers,
        network.length,
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
        _guarantee(start, options.method),
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
    rows: Rows
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
    network, schedule, method = settings.network, settings.schedule, settings.method
    train = divide(texts, schedule.seed).train
    units = Units(
        [texts[i] for i in train], [people[i] for i in train], method.unit, network.length
    )
    draws = budget = None
    if method.name == "dpsgd":
        budget = Budget.of(method, network.words == THROUGH_NOISE)
        draws = _draws(units, budget, out / DRAWS, settings, digest)
    words = _vocabulary(network, units.texts, draws)
    canaries = _canaries(units.people, words, settings)
    rows = rows_of(texts, people, words, canaries, network.length, schedule.seed)
    private = None
    if draws is not None and budget is not None:
        # A canary's copies are texts of their own, but not authors of their own.
        copies = sum(canary.repetitions for canary in canaries)
        course = Course(schedule.epochs, schedule.batch)
        extra = copies if method.unit == "record" else 0
        private = calibrate(method, course, budget, draws, extra)
    return Start(words, canaries, rows, draws, private)


def _draws(
    units: Units, budget: Budget, path: Path, settings: LanguageSettings, digest: str
) -> Draws:
    """Those of an interrupted training with the same settings, or new ones."""
    method, seed = settings.method, settings.schedule.seed
    choices = {
        "unit": method.unit,
        "epsilon": method.epsilon,
        "delta": method.delta,
        "words": settings.network.words,
        "length": settings.network.length,
        "seed": seed,
        "is_seeded": method.seeded_noise,
    }
    identity = identity_of_draws(digest, choices)
    before = Draws.load(path, identity)
    if before is not None:
        return before
    # The tag keeps these draws apart from all others of the same seed.
    random = np.random.default_rng([seed, 0xC0]) if method.seeded_noise else None
    return draw(units, budget, method.delta, identity, random)


def _vocabulary(network: NetworkSettings, texts: Sequence[str], draws: Draws | None) -> Vocabulary:
    if not isinstance(network.vocabulary, int):
        return Vocabulary.from_list(network.vocabulary)
    if network.words == FROM_TEXTS:
        return Vocabulary.of(texts, network.vocabulary)
    if network.words == THROUGH_NOISE:
        assert draws is not None and draws.words is not None
        return Vocabulary.from_list(draws.words[: network.vocabulary], THROUGH_NOISE)
    return Vocabulary.of_public_list(network.words, network.vocabulary)


def _canaries(
    people: Sequence[str], words: Vocabulary, settings: LanguageSettings
) -> tuple[Canary, ...]:
    canaries = settings.canaries
    if not canaries.repetitions:
        return ()
    return make_canaries(
        people,
        words.canary_words(),
        canaries.repetitions,
        per_level=canaries.per_level,
        seed=settings.schedule.seed,
    )


def _method(settings: MethodSettings, private: Private | None, seed: int) -> Any:
    if private is not None:
        seed_noise = seed if settings.seeded_noise else None
        return Dpsgd(
            private.noise_multiplier,
            settings.clip,
            seed_noise,
            settings.unit,
            settings.most_texts,
            private.units,
        )
    if settings.name == "none":
        return Plain()
    kind = Adversarial if settings.name == "adversarial" else Triplet
    return replace(kind(), strength=settings.strength, position=settings.position)


def _guarantee(start: Start, method: MethodSettings) -> Guarantee:
    if start.private is None:
        return NONE
    return promise_of(
        start.private,
        start.words,
        is_seeded=method.seeded_noise,
        has_canaries=bool(start.canaries),
        texts_per_author=method.most_texts,
    )


def _account(
    plan: Training,
    rows: Rows,
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
