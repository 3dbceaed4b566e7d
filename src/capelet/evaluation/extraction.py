"""What one language model remembers: canaries, the tab attack, membership, and for whom it works.

With nothing but the model folder, the canaries in it are attacked. With the texts it was trained on
the division is made again, and the model is asked which of them it saw, for the least usual text of
each author, and how well it serves the authors with most and with fewest texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.extraction import (
    canary_findings,
    exposures,
    mean_by_author,
    membership,
    tab_attack,
)
from capelet.data.canaries import Canary
from capelet.errors import CapeletError, DataError, name_field
from capelet.evaluation.provenance import provenance
from capelet.findings import Finding, Findings
from capelet.findings.intervals import group_weights, percentile, weighted_means
from capelet.findings.metrics import Flags
from capelet.interfaces import Progress, silent
from capelet.language.folders import LanguageModel, sentence_of
from capelet.language.model import Scorer
from capelet.language.records import digest_of
from capelet.language.vocabulary import (
    PAD,
    START,
    Codes,
    DividedSamples,
    Samples,
    Tokens,
    Vocabulary,
    divide,
)

# How many of the largest and of the smallest authors are looked at (as in the paper).
EACH = 5

# A shorter text is guessed by luck, and is not taken as the least usual one of its author.
LEAST_WORDS = 5

# A subgroup with fewer test texts is not reported separately.
LEAST = 20


def attack_canaries(
    scorer: Scorer,
    vocabulary: Vocabulary,
    canaries: Sequence[Canary],
    *,
    samples: int = 20_000,
    seed: int = 0,
) -> list[Finding]:
    """Exposure and tab attack on every canary of a model, with those never inserted as control."""
    tokens = np.array([[vocabulary.number[word] for word in item.words] for item in canaries])
    space = [vocabulary.number[word] for word in vocabulary.canary_words()]
    exposure = exposures(scorer, tokens, space, START, samples=samples, seed=seed)
    completion = tab_attack(scorer, tokens, START)
    levels = np.array([item.repetitions for item in canaries], dtype=np.intp)
    people = np.unique([item.author for item in canaries], return_inverse=True)[1]
    # The first word is given to the attacker; each other is one of the space by chance.
    chance = float(len(space)) ** -(tokens.shape[1] - 1)
    return canary_findings(exposure, completion, levels, people, chance)


@dataclass(frozen=True)
class TrainingTexts:
    """The texts that a model was trained on, whose they are, and columns to report separately."""

    texts: Sequence[str]
    authors: Sequence[str] | None = None
    groups: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def people(self) -> list[str]:
        """Whose each text is; without authors every text is its own: intervals are over texts."""
        if self.authors is not None:
            return list(self.authors)
        return [str(row) for row in range(len(self.texts))]


@dataclass(frozen=True)
class AttackSettings:
    """How many random sequences rank a canary, from which seed, and where the model runs."""

    samples: int = 20_000
    seed: int = 0
    device: str = "auto"


def attack_model(
    folder: Path | str,
    data: TrainingTexts | None = None,
    settings: AttackSettings | None = None,
    *,
    reference: Path | str | None = None,
    baseline: Path | str | None = None,
    progress: Progress = silent,
) -> Findings:
    """Attack the model in a folder; with the texts it was trained on, in every way we know.

    `reference` is a model of other texts, for membership; `baseline` one of the same texts without
    privacy, for the loss of utility per author.
    """
    options = settings or AttackSettings()
    if options.seed < 0:
        raise CapeletError(f"seed is {options.seed}; it must be at least 0")
    attack = _Attack(
        LanguageModel.load(folder),
        LanguageModel.load(reference) if reference is not None else None,
        LanguageModel.load(baseline) if baseline is not None else None,
        options,
    )
    attack.check(data)
    model = attack.model
    rows: list[Finding] = []
    if model.canaries:
        progress("canaries", 0, 3)
        rows += attack_canaries(
            attack.scorer,
            model.vocabulary,
            model.canaries,
            samples=options.samples,
            seed=options.seed,
        )
    progress("attacks", 1, 3)
    if data is not None:
        samples = attack.rows_again(data)
        rows.append(_utility(attack.scorer, samples.test))
        rows += attack.membership(samples, data)
        progress("attacks", 2, 3)
        if data.authors is not None:
            rows += attack.real_canaries(samples.train)
        rows += attack.for_whom(samples, data)
    progress("attacks", 3, 3)
    return Findings(tuple(rows), _provenance(model), _recipe(model), {})


@dataclass(frozen=True, eq=False)
class _Attack:
    """The model that is attacked, the models it is compared with, and the attacker's settings."""

    model: LanguageModel
    reference: LanguageModel | None
    baseline: LanguageModel | None
    settings: AttackSettings

    @cached_property
    def scorer(self) -> Scorer:
        return self.scorer_of(self.model)

    def scorer_of(self, model: LanguageModel) -> Scorer:
        return Scorer(model.network, self.settings.device)

    def check(self, data: TrainingTexts | None) -> None:
        """Refuse what would measure nothing, or something else than it says."""
        model, digest = self.model, _digest(self.model)
        if data is None and not model.canaries:
            raise DataError(
                "there is nothing to measure: the model was trained without canaries; give the "
                f"texts it was trained on with {name_field('data')}, or train one with "
                f"{name_field('canaries', '1,5,20,50')}"
            )
        if data is None and (self.reference is not None or self.baseline is not None):
            raise DataError(
                "a reference or baseline model needs the texts too; give them with "
                f"{name_field('data')}"
            )
        if data is not None and digest is None:
            raise DataError(
                "what this model was trained on is recorded where it was trained (in the folder "
                "CAPELET_STATE names), and not here; attack it there, or copy that record"
            )
        if data is not None and digest_of(data.texts) != digest:
            raise DataError(
                "these are not the texts that the model was trained on; give the same file, "
                f"columns and {name_field('where')} as in training"
            )
        if self.reference is not None and _digest(self.reference) == digest:
            raise DataError(
                "the reference model was trained on the same texts, so it cannot tell who was in "
                "them; train one on other texts"
            )
        if self.baseline is not None and self.baseline.vocabulary.words != model.vocabulary.words:
            raise DataError("the baseline has another vocabulary; train it on the same texts")

    def rows_again(self, data: TrainingTexts) -> DividedSamples:
        """The division, canaries and numbers of the training, made again from its texts."""
        model = self.model
        length, seed = model.training["length"], model.training["seed"]
        return DividedSamples.of(
            data.texts, data.people, model.vocabulary, model.canaries, length, seed
        )

    def membership(self, rows: DividedSamples, data: TrainingTexts) -> list[Finding]:
        """As many texts that were trained on as that were not, by the same loss per word."""
        seed, people = self.settings.seed, data.people
        parts = divide(data.texts, self.model.training["seed"])
        # The tag keeps this draw apart from all others of the same seed.
        random = np.random.default_rng([seed, 0x3D])
        # Equal numbers of both, so that chance is one half.
        count = min(len(parts.train), len(parts.test))
        inside = np.sort(random.choice(len(parts.train), count, replace=False))
        outside = np.sort(random.choice(len(parts.test), count, replace=False))
        both = np.concatenate([parts.train[inside], parts.test[outside]])
        member = np.arange(2 * count) < count
        _, authors = np.unique([people[i] for i in both], return_inverse=True)
        tokens = np.concatenate([rows.train.tokens[inside], rows.test.tokens[outside]])
        losses, counts = _losses(self.scorer, tokens)
        # A reference model takes away what makes a text likely anyway: its language.
        reference_losses = None
        if self.reference is not None:
            words = self.reference.vocabulary.encode(
                [data.texts[i] for i in both], self.reference.training["length"]
            )
            sums, sizes = _losses(self.scorer_of(self.reference), words)
            reference_losses = sums / sizes
        return membership(losses / counts, member, authors, reference_losses, seed=seed)

    def real_canaries(self, train: Samples) -> list[Finding]:
        """The tab attack on the least usual training text of each author, as a judge finds it.

        The judge is the baseline where there is one: a private model would not find a text unusual
        that it has never learnt.
        """
        # Canaries were appended, so the first rows are the texts of people.
        real = len(train) - sum(canary.repetitions for canary in self.model.canaries)
        tokens, authors = train.tokens[:real], train.authors[:real]
        losses, counts = _losses(self.scorer_of(self.baseline or self.model), tokens)
        per_word = np.where(counts > LEAST_WORDS, losses / counts, -math.inf)
        # By author, then by falling loss: each author's first row is the least usual one.
        order = np.lexsort((-per_word, authors))
        first = order[np.r_[True, authors[order][1:] != authors[order][:-1]]]
        first = first[np.isfinite(per_word[first])]
        if not len(first):
            return []
        completion = tab_attack(self.scorer, tokens[first][:, 1:], START, PAD)
        shares = {"accuracy": completion.exact.astype(float), "word_accuracy": completion.share}
        return [
            Finding("extraction", "real texts", metric, *ends, n=len(first), attacker="tab")
            for metric, values in shares.items()
            for ends in [mean_by_author(values, authors[first])]
        ]

    def for_whom(self, rows: DividedSamples, data: TrainingTexts) -> list[Finding]:
        """Perplexity per subgroup of the test texts, and the ratio to a baseline's."""
        test = rows.test
        losses, counts = _losses(self.scorer, test.tokens)
        nats = {"perplexity": losses}
        if self.baseline is not None:
            # e to the difference of two mean losses is the ratio of the two perplexities.
            before = _losses(self.scorer_of(self.baseline), test.tokens)[0]
            nats["perplexity_ratio"] = losses - before
        findings = []
        for subgroup, inside in self._subgroups(rows, data).items():
            for metric, values in nats.items():
                ends = _perplexity(values[inside], counts[inside], test.authors[inside])
                about: dict[str, Any] = {"n": int(inside.sum()), "subgroup": subgroup}
                findings.append(Finding("fairness", "next word", metric, *ends, **about))
        return findings

    def _subgroups(self, rows: DividedSamples, data: TrainingTexts) -> dict[str, Flags]:
        members = _by_size(rows) if data.authors is not None else {}
        test = divide(data.texts, self.model.training["seed"]).test
        for name, values in data.groups.items():
            column = np.array([str(values[i]) for i in test])
            for kind in sorted({str(values[i]) for i in test if values[i] is not None}):
                if (column == kind).sum() >= LEAST:
                    members[f"{name}={kind}"] = column == kind
        return members


def _utility(scorer: Scorer, test: Samples) -> Finding:
    losses, counts = _losses(scorer, test.tokens)
    ends = _perplexity(losses, counts, test.authors)
    return Finding("utility", "next word", "perplexity", *ends, n=len(test))


def _losses(scorer: Scorer, tokens: Tokens) -> tuple[npt.NDArray[np.float64], Codes]:
    return scorer.sequence_losses(tokens), (tokens[:, 1:] != PAD).sum(axis=1)


def _perplexity(
    losses: npt.NDArray[np.float64], counts: Codes, authors: Codes
) -> tuple[float, float, float]:
    """e to the loss per word, with its 95 % interval from a bootstrap over authors."""
    # Over authors, not texts: those of one author are alike; the interval would be too narrow.
    return percentile(np.exp(weighted_means(group_weights(authors), losses, counts))).ends


def _by_size(rows: DividedSamples) -> dict[str, Flags]:
    """The test texts of the authors with most and with fewest training samples."""
    sizes = dict(zip(rows.train.names, np.bincount(rows.train.authors), strict=True))
    present = [name for name in rows.test.names if name in sizes]
    # With fewer, somebody would be among the largest and the smallest.
    if len(present) < 2 * EACH:
        return {}
    order = sorted(present, key=lambda name: (sizes[name], name))
    code = {name: place for place, name in enumerate(rows.test.names)}
    return {
        f"author size={size}": np.isin(rows.test.authors, [code[name] for name in names])
        for size, names in (("largest", order[-EACH:]), ("smallest", order[:EACH]))
    }


def _digest(model: LanguageModel) -> str | None:
    """Of the texts it was trained on, where its owner's record is here."""
    return None if model.record is None else model.record.digest


def _provenance(model: LanguageModel) -> dict[str, Any]:
    """What the folder tells, and no more: findings may lie in it, or go to other people."""
    return provenance(
        dict(model.training.get("rows", {})),
        guarantee={"sentence": sentence_of(model.guarantee)},
        canaries=len(model.canaries),
    )


def _recipe(model: LanguageModel) -> dict[str, Any]:
    names = ("method", "epochs", "batch", "rate", "batching", "seed", "length", "privacy")
    return {
        "network": model.network.kind,
        "sizes": model.network.sizes,
        **{name: model.training[name] for name in names},
    }
