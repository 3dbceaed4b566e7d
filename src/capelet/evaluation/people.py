"""Attributes of people, not of texts: the pooled attack in an audit, and who is most exposed.

Wherever authors are known and an attribute is the same in all texts of an author, the attackers of
single texts are joined by one that pools texts of a person (`capelet.attacks.people`), with 1, 5,
20 and all of them. A victim is a person here: balanced accuracy counts people, and intervals are
over them. Beside both kinds of attacker stands how many victims it is nearly certain about, and how
often it is right about those.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from capelet.attacks.attribute import (
    Family,
    OutOfFold,
    Parts,
    Result,
    Secret,
    View,
    fit_candidate,
)
from capelet.attacks.committee import softmax
from capelet.attacks.people import (
    SIZES,
    People,
    attack_people,
    calibrate,
    draw_bags,
    log_probabilities,
    null_guesses,
    own_bags,
)
from capelet.attacks.views import in_range, range_exponent
from capelet.data.corpus import Rows
from capelet.data.labels import Attribute
from capelet.evaluation.adaptive import AdaptiveGuess, holds, strongest_of
from capelet.evaluation.ceilings import bound_of
from capelet.evaluation.plan import Plan, author_numbers, changing_authors
from capelet.evaluation.references import NULLS
from capelet.evaluation.scores import Scoring
from capelet.findings import Finding
from capelet.findings.intervals import Score
from capelet.findings.metrics import (
    CERTAINTY,
    Codes,
    Guesses,
    certain_hit_rate,
    certain_share,
    metrics_for,
    people_of,
)
from capelet.interfaces import Vectors

TEXTS, PEOPLE = "attribute-inference", "person-inference"
NULL = f"{PEOPLE}-null"

# A kind, an attribute, and how many texts of a person were pooled: None for all, 0 for none.
Key = tuple[str, str, int | None]
UNPOOLED = 0


@dataclass(eq=False)
class PeopleTally:
    """Guesses of people gathered over seeds, and calibrated ones of texts and people."""

    guesses: dict[Key, list[Guesses]] = field(default_factory=lambda: defaultdict(list))
    posteriors: dict[Key, list[Guesses]] = field(default_factory=lambda: defaultdict(list))
    winners: dict[Key, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    most_texts: dict[Key, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, other: PeopleTally) -> None:
        """Take in what another seed gathered."""
        for name in ("guesses", "posteriors", "winners"):
            gather(getattr(self, name), getattr(other, name))
        for key, texts in other.most_texts.items():
            self.most_texts[key] = max(self.most_texts[key], texts)


def gather(into: dict[Any, Any], more: Mapping[Any, Any]) -> None:
    """Lists and counts of another seed behind those that are there, key by key."""
    for key, items in more.items():
        into[key] += items


@dataclass(frozen=True, eq=False)
class TextAttack:
    """What attackers of single texts did about one secret on one split; `family` did best alone."""

    plan: Plan
    secret: Attribute
    view: View
    family: Family
    result: Result
    adaptive: Mapping[str, AdaptiveGuess]

    def read(self, vector: Vectors) -> tuple[str, float]:
        """The class guessed of a vector that is nobody's in the corpus, and how sure that is.

        The best family is fitted again as it was for the victims, on the same rows and draws. It
        weighs classes alike, as their accuracy does; how sure it is follows from the frequencies
        of its own rows.
        """
        wide, classes = self.result.view, len(self.secret.classes)
        nobody = np.zeros(1, dtype=np.intp)
        view = View(wide.source, wide.rows.fit, wide.rows.tune, nobody, wide.seed, self.plan.units)
        row = in_range(np.asarray(vector)[None, :], range_exponent(wide.source))
        view.vectors = Parts(wide.vectors.fit, wide.vectors.tune, row)
        settings = self.result.best[self.family.name].settings
        target = Secret(view, self.secret.codes, classes)
        candidate = fit_candidate(self.family, view, target, settings)
        own = self.result.out_of_fold[self.family.name]
        best = int(candidate.scored[0].argmax())
        posterior = calibrate(own, self.secret.codes, candidate.scored)[0]
        return self.secret.classes[best], float(posterior[best])


def attack_by_people(texts: TextAttack) -> PeopleTally:
    """Pool texts of the victims of one split, and tell of whom attackers are nearly certain."""
    tally = PeopleTally()
    plan, secret, view = texts.plan, texts.secret, texts.view
    result, adaptive = texts.result, texts.adaptive
    name = strongest_of(result, adaptive, secret.codes)
    victims = view.rows.scored
    own, guesses = (
        (adaptive[name].trial, adaptive[name].scored)
        if name in adaptive
        else (result.out_of_fold[name], result.best[name].scored)
    )
    posterior = calibrate(own, secret.codes, guesses)
    tally.posteriors[TEXTS, secret.name, UNPOOLED].append(
        Guesses(secret.codes[victims], posterior, plan.units[victims])
    )
    authors = author_numbers(plan.corpus)
    if authors is None or changing_authors(secret.codes, authors):
        return tally
    # Texts of nobody known cannot be tied together.
    rows = victims[authors[victims] >= 0]
    # With one text each, a person is a text.
    if len(np.unique(authors[rows])) < len(rows):
        for size in SIZES:
            _attack_size(texts, authors, size, tally)
    return tally


def _attack_size(texts: TextAttack, authors: Codes, size: int | None, tally: PeopleTally) -> None:
    """Bags of one size: the attack, its null, and calibrated probabilities."""
    plan, secret, view, adaptive = texts.plan, texts.secret, texts.view, texts.adaptive
    random = np.random.default_rng([view.seed, 0x9E, size or 0])
    own, guesses = _voter(texts.result)
    parts = [(own.rows, own.probabilities), (view.rows.scored, guesses)]
    classes = len(secret.classes)
    logs, _ = log_probabilities(len(plan.corpus), classes, parts)
    own_rows, victims = (rows[authors[rows] >= 0] for rows, _ in parts)
    people = People(
        own_bags(own_rows, authors, size, random),
        draw_bags(victims, authors, size, random),
        plan.units,
        view.seed,
    )
    codes = secret.codes[people.bags.first] if people.enough else np.zeros(0, dtype=np.intp)
    if len(np.unique(codes[: len(people.own)])) < 2:
        return
    result = attack_people(people, codes, classes, view.source, logs)
    votes = {
        name: _vote(guess, people, view.rows.scored, codes, classes)
        for name, guess in adaptive.items()
    }
    adaptive_votes = {name: vote for name, vote in votes.items() if vote is not None}
    choice = strongest_of(result, adaptive_votes, codes)
    winner = adaptive_votes.get(choice)
    own = winner.trial if winner else result.out_of_fold[choice]
    probabilities = winner.scored if winner else result.best[choice].scored

    truth, units = codes[len(people.own) :], plan.units[people.victims.first]
    key = (PEOPLE, secret.name, size)
    tally.guesses[key].append(Guesses(truth, probabilities, units))
    posterior = calibrate(own, codes, probabilities, people.bags.sizes)
    tally.posteriors[key].append(Guesses(truth, posterior, units))
    tally.winners[key][choice] += 1
    tally.most_texts[key] = int(people.victims.sizes.max())
    for _ in range(NULLS):
        random_codes = _permute_people(codes, people.bags.authors, random)
        null = Guesses(
            random_codes[len(people.own) :], null_guesses(result, random_codes, classes), units
        )
        tally.guesses[NULL, secret.name, size].append(null)


def _voter(result: Result) -> tuple[OutOfFold, Any]:
    """The best attacker of single texts that guessed every own row out of fold."""
    rows = max(len(item.rows) for item in result.out_of_fold.values())
    whole = [name for name, item in result.out_of_fold.items() if len(item.rows) == rows]
    name = max(whole, key=result.quality.__getitem__)
    return result.out_of_fold[name], result.best[name].scored


def _vote(
    guess: AdaptiveGuess, people: People, victims: Rows, codes: Codes, classes: int
) -> AdaptiveGuess | None:
    """An adaptive attacker's vote over a person's texts; None where no whole own bag was tried.

    Its guesses of own texts are those of the people who played the victims.
    """
    parts = [(guess.trial.rows, guess.trial.probabilities), (victims, guess.scored)]
    logs, rows = log_probabilities(len(people.units), classes, parts)
    own = people.own
    whole = np.flatnonzero(np.minimum.reduceat(np.isin(own.rows, rows), own.starts))
    if not len(whole):
        return None
    votes = softmax(people.bags.mean(logs))
    trial = OutOfFold(whole, votes[whole])
    return AdaptiveGuess(votes[len(own) :], trial, guess.quality, guess.settings)


def _permute_people(codes: Codes, authors: Codes, random: np.random.Generator) -> Codes:
    """The attribute permuted over people: all bags of one keep one class."""
    _, first, inverse = np.unique(authors, return_index=True, return_inverse=True)
    return np.asarray(random.permutation(codes[first])[inverse])


# ---- findings ------------------------------------------------------------------------------------


def people_findings(
    tally: PeopleTally, targets: Mapping[str, Attribute], scoring: Scoring
) -> list[Finding]:
    """People's rows by number of texts, with their nulls; and who is read with near certainty."""
    rows: list[Finding] = []
    for key, guesses in tally.guesses.items():
        kind, name, size = key
        target = targets[name]
        controls = ("accuracy", "balanced_accuracy")
        for metric in controls if kind == NULL else metrics_for(len(target.classes)):
            row = scoring.finding(kind, target, "strongest", metric, guesses)
            about = _about(tally, key)
            bound = bound_of(metric, [item.truth for item in guesses], len(target.classes))
            texts = tally.most_texts[PEOPLE, name, size]
            row = replace(row, ceiling=scoring.ceilings.for_texts(bound, texts))
            rows.append(
                replace(row, subgroup=bag_name(size), parameters={**row.parameters, **about})
            )
    for key, posteriors in tally.posteriors.items():
        rows += _certainty(tally, key, posteriors, scoring)
    return rows


def bag_name(size: int | None) -> str | None:
    """The subgroup of people whom an attacker holds so many texts of; None for all of them."""
    if size is None or size == UNPOOLED:
        return None
    return f"{size} text" if size == 1 else f"{size} texts"


def _about(tally: PeopleTally, key: Key) -> dict[str, Any]:
    kind, name, size = key
    if kind == TEXTS:
        return {}
    winners = tally.winners[PEOPLE, name, size]
    about: dict[str, Any] = {"texts": "all" if size is None else size}
    if kind == PEOPLE:
        about |= {"chosen": dict(winners), "holds": holds("", winners)}
        about["most_texts"] = tally.most_texts[key]
    return about


def _certainty(
    tally: PeopleTally, key: Key, posteriors: Sequence[Guesses], scoring: Scoring
) -> list[Finding]:
    """How many victims an attacker is nearly certain about, and how often it is right there."""
    kind, name, size = key
    scores: dict[str, Score | None] = {
        "certain_share": certain_share(posteriors, scoring.bootstrap),
        "certain_hit_rate": certain_hit_rate(posteriors, scoring.bootstrap),
    }
    n = round(np.mean([len(item.truth) for item in posteriors]))
    return [
        Finding(
            kind, name, metric, *score.ends, n=n, attacker="strongest", subgroup=bag_name(size),
            parameters={
                "by_seed": list(score.by_seed), "people": people_of(posteriors),
                "certainty": CERTAINTY, **_about(tally, key),
            },
            recipe_hash=scoring.recipe_hash,
        )
        for metric, score in scores.items()
        if score is not None
    ]  # fmt: skip
