"""What one language model remembers: canaries, the tab attack, membership, and for whom it works.

With nothing but the model folder, the canaries in it are attacked. With the texts it was trained on
the division is made again, and the model is asked which of them it saw, for the least usual text of
each author, and how well it serves the authors with most and with fewest texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.extraction import (
    Completion,
    Exposure,
    canary_findings,
    exposures,
    mean_by_author,
    membership,
    tab_attack,
)
from capelet.data.canaries import Canary
from capelet.errors import CapeletError, DataError
from capelet.evaluation.provenance import provenance
from capelet.findings import Finding, Findings
from capelet.findings.intervals import group_weights, percentile, weighted_means
from capelet.interfaces import Progress, silent
from capelet.language.folders import LanguageModel, digest_of, sentence_of
from capelet.language.model import Scorer
from capelet.language.run import Rows, rows_of
from capelet.language.vocabulary import PAD, START, Codes, Samples, Tokens, Vocabulary, divide

EACH = 5
"""How many of the largest and of the smallest authors are looked at (as in the paper)."""

LEAST_WORDS = 5
LEAST = 20
"""A subgroup with fewer test texts is not looked at apart."""


@dataclass(frozen=True, eq=False)
class CanaryAttack:
    """What was found of each canary: its level, its author, its exposure and its completion."""

    repetitions: Codes
    authors: Codes
    exposure: Exposure
    completion: Completion
    findings: list[Finding]


def canary_tokens(canaries: Sequence[Canary], vocabulary: Vocabulary) -> Tokens:
    return np.array([[vocabulary.number[word] for word in item.words] for item in canaries])


def attack_canaries(
    scorer: Scorer,
    vocabulary: Vocabulary,
    canaries: Sequence[Canary],
    *,
    samples: int = 20_000,
    seed: int = 0,
) -> CanaryAttack:
    """Exposure and tab attack on every canary of a model, with those never inserted as control."""
    tokens = canary_tokens(canaries, vocabulary)
    space = [vocabulary.number[word] for word in vocabulary.canary_words()]
    exposure = exposures(scorer, tokens, space, START, samples=samples, seed=seed)
    completion = tab_attack(scorer, tokens, START)
    levels = np.array([item.repetitions for item in canaries], dtype=np.intp)
    _, people = np.unique([item.author for item in canaries], return_inverse=True)
    chance = float(len(space)) ** -(tokens.shape[1] - 1)
    rows = canary_findings(exposure, completion, levels, people, chance)
    return CanaryAttack(levels, people, exposure, completion, rows)


def attack_model(
    folder: Path | str,
    texts: Sequence[str] | None = None,
    authors: Sequence[str] | None = None,
    *,
    groups: Mapping[str, Sequence[Any]] | None = None,
    reference: Path | str | None = None,
    baseline: Path | str | None = None,
    samples: int = 20_000,
    seed: int = 0,
    device: str = "auto",
    progress: Progress = silent,
) -> Findings:
    """Attack the model in a folder; with the texts it was trained on, in every way we know.

    `reference` is a model of other texts, for membership; `baseline` one of the same texts without
    privacy, for the loss of utility per author. `groups` are columns whose classes are looked at
    apart, such as gender.
    """
    if seed < 0:
        raise CapeletError(f"seed is {seed}; it must be at least 0")
    model = LanguageModel.load(folder)
    other = LanguageModel.load(reference) if reference is not None else None
    plain = LanguageModel.load(baseline) if baseline is not None else None
    _check(model, texts, other, plain)
    scorer = Scorer(model.network, device)
    rows: list[Finding] = []
    if model.canaries:
        progress("canaries", 0, 3)
        found = attack_canaries(
            scorer, model.vocabulary, model.canaries, samples=samples, seed=seed
        )
        rows += found.findings
    progress("attacks", 1, 3)
    if texts is not None:
        # Without authors every text is its own: intervals are then over texts.
        people = list(authors) if authors is not None else [str(i) for i in range(len(texts))]
        made = _rows(model, texts, people)
        rows.append(_utility(scorer, made.test))
        rows += _membership(model, scorer, other, made, texts, people, device, seed)
        progress("attacks", 2, 3)
        if authors is not None:
            rows += _real_canaries(plain or model, scorer, made.train, model, device)
        test = divide(texts, model.training["seed"]).test
        rows += _for_whom(scorer, plain, made, groups or {}, test, authors is not None, device)
    progress("attacks", 3, 3)
    return Findings(tuple(rows), _provenance(model), _recipe(model), {})


def _check(
    model: LanguageModel,
    texts: Sequence[str] | None,
    other: LanguageModel | None,
    plain: LanguageModel | None,
) -> None:
    if texts is None and not model.canaries:
        raise DataError(
            "there is nothing to measure: the model was trained without canaries; give the texts "
            "it was trained on with --data, or train one with --canaries 1,5,20,50"
        )
    if texts is None and (other is not None or plain is not None):
        raise DataError("a reference or baseline model needs the texts too; give them with --data")
    if texts is not None and digest_of(texts) != model.training["digest"]:
        raise DataError(
            "these are not the texts that the model was trained on; give the same file, columns "
            "and --where as in training"
        )
    if other is not None and other.training["digest"] == model.training["digest"]:
        raise DataError(
            "the reference model was trained on the same texts, so it cannot tell who was in "
            "them; train one on other texts"
        )
    if plain is not None and plain.vocabulary.words != model.vocabulary.words:
        raise DataError("the baseline has another vocabulary; train it on the same texts")


def _rows(model: LanguageModel, texts: Sequence[str], authors: Sequence[str]) -> Rows:
    return rows_of(
        texts,
        authors,
        model.vocabulary,
        model.canaries,
        model.training["length"],
        model.training["seed"],
    )


def _utility(scorer: Scorer, test: Samples) -> Finding:
    losses, counts = _losses(scorer, test.tokens)
    value, low, high = _perplexity(losses, counts, test.authors)
    return Finding("utility", "next word", "perplexity", value, low, high, n=len(test))


def _losses(scorer: Scorer, tokens: Tokens) -> tuple[npt.NDArray[np.float64], Codes]:
    return scorer.sequence_losses(tokens), (tokens[:, 1:] != PAD).sum(axis=1)


def _perplexity(
    losses: npt.NDArray[np.float64], counts: Codes, authors: Codes
) -> tuple[float, float, float]:
    """e to the loss per word, with its 95 % interval from a bootstrap over authors."""
    return percentile(np.exp(weighted_means(group_weights(authors), losses, counts))).ends


def _membership(
    model: LanguageModel,
    scorer: Scorer,
    other: LanguageModel | None,
    made: Rows,
    texts: Sequence[str],
    people: Sequence[str],
    device: str,
    seed: int,
) -> list[Finding]:
    """As many texts that were trained on as that were not, by the same loss per word."""
    parts = divide(texts, model.training["seed"])
    random = np.random.default_rng([seed, 0x3D])
    count = min(len(parts.train), len(parts.test))
    inside = np.sort(random.choice(len(parts.train), count, replace=False))
    outside = np.sort(random.choice(len(parts.test), count, replace=False))
    chosen = np.concatenate([parts.train[inside], parts.test[outside]])
    member = np.arange(2 * count) < count
    _, authors = np.unique([people[i] for i in chosen], return_inverse=True)
    tokens = np.concatenate([made.train.tokens[inside], made.test.tokens[outside]])
    losses, counts = _losses(scorer, tokens)
    against = None
    if other is not None:
        words = other.vocabulary.encode([texts[i] for i in chosen], other.training["length"])
        sums, sizes = _losses(Scorer(other.network, device), words)
        against = sums / sizes
    return membership(losses / counts, member, authors, against, seed=seed)


def _real_canaries(
    judge: LanguageModel, scorer: Scorer, train: Samples, model: LanguageModel, device: str
) -> list[Finding]:
    """The tab attack on the least usual training text of each author, as the judge finds it."""
    real = len(train) - sum(canary.repetitions for canary in model.canaries)
    tokens, authors = train.tokens[:real], train.authors[:real]
    losses, counts = _losses(Scorer(judge.network, device), tokens)
    rate = np.where(counts > LEAST_WORDS, losses / counts, -math.inf)
    order = np.lexsort((-rate, authors))
    first = order[np.r_[True, authors[order][1:] != authors[order][:-1]]]
    first = first[np.isfinite(rate[first])]
    if not len(first):
        return []
    found = tab_attack(scorer, tokens[first][:, 1:], START, PAD)
    rows = []
    for metric, values in (
        ("accuracy", found.exact.astype(float)),
        ("word_accuracy", found.share),
    ):
        mean, low, high = mean_by_author(values, authors[first])
        rows.append(
            Finding(
                "extraction",
                "real texts",
                metric,
                mean,
                low,
                high,
                n=len(first),
                attacker="tab",
            )
        )
    return rows


def _for_whom(
    scorer: Scorer,
    plain: LanguageModel | None,
    made: Rows,
    groups: Mapping[str, Sequence[Any]],
    test: Codes,
    known: bool,
    device: str,
) -> list[Finding]:
    """Perplexity per subgroup of the test texts, and the ratio to a baseline's."""
    members = _by_size(made) if known else {}
    for name, values in groups.items():
        column = np.array([str(values[i]) for i in test])
        for kind in sorted({str(values[i]) for i in test if values[i] is not None}):
            if (column == kind).sum() >= LEAST:
                members[f"{name}={kind}"] = column == kind
    losses, counts = _losses(scorer, made.test.tokens)
    before = _losses(Scorer(plain.network, device), made.test.tokens)[0] if plain else None
    rows = []
    for subgroup, inside in members.items():
        measured = [("perplexity", losses)]
        if before is not None:
            measured.append(("perplexity_ratio", losses - before))
        for metric, nats in measured:
            value, low, high = _perplexity(nats[inside], counts[inside], made.test.authors[inside])
            rows.append(
                Finding(
                    "fairness",
                    "next word",
                    metric,
                    value,
                    low,
                    high,
                    n=int(inside.sum()),
                    subgroup=subgroup,
                )
            )
    return rows


def _by_size(made: Rows) -> dict[str, npt.NDArray[np.bool_]]:
    """The test texts of the authors with most and with fewest training samples."""
    sizes = dict(zip(made.train.names, np.bincount(made.train.authors), strict=True))
    present = [name for name in made.test.names if name in sizes]
    if len(present) < 2 * EACH:
        return {}
    order = sorted(present, key=lambda name: (sizes[name], name))
    code = {name: place for place, name in enumerate(made.test.names)}
    return {
        f"author size={size}": np.isin(made.test.authors, [code[name] for name in names])
        for size, names in (("largest", order[-EACH:]), ("smallest", order[:EACH]))
    }


def _provenance(model: LanguageModel) -> dict[str, Any]:
    training = model.training
    return provenance(
        {"digest": training["digest"], **training["rows"]},
        guarantee={"sentence": sentence_of(model.guarantee)},
        canaries=len(model.canaries),
    )


def _recipe(model: LanguageModel) -> dict[str, Any]:
    kept = ("method", "epochs", "batch", "rate", "batching", "seed", "length", "privacy")
    return {
        "network": model.network.kind,
        "sizes": model.network.sizes,
        **{name: model.training[name] for name in kept},
    }
