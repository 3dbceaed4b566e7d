"""How often does each printed 95 % interval hold the truth, and how often is a verdict wrong?

The estimand of an interval is what *these* attackers reach on *new* victims of the same crowd. For
each kind of interval a crowd is invented whose truth is known (from a closed form or from a crowd
of a million), victims are drawn from it again and again, and the very functions of the reports
give the interval. Nothing is trained here: attackers are fixed, as the estimand says.

    python studies/coverage.py                     # all, 2,000 simulations of 200 victims each
    python studies/coverage.py verdicts --simulations 200

Prints Markdown tables, line by line as they are ready.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from capelet.attacks.authorship import Shots
from capelet.attacks.membership import RARE, AuxiliaryScores, membership_findings
from capelet.evaluation.authorship import Authorship
from capelet.evaluation.sentences import rank_score
from capelet.evaluation.utility import neighbour_recall, recall_influences
from capelet.findings import Finding
from capelet.findings.intervals import (
    Bootstrap,
    Score,
    group_weights,
    mean_of,
    mean_over_seeds,
    normal_mean,
    percentile,
    share_interval,
    weighted_means,
)
from capelet.findings.metrics import Guesses, accuracy_gap, metrics_for, replicates, score, tpr_at
from capelet.findings.verdicts import Outcome, classify

Floats = npt.NDArray[np.floating]
Random = np.random.Generator
# What one simulation gives: by the name of the interval, its ends and the truth.
Intervals = dict[str, tuple[Score, float]]

SEEDS = 3
TEXTS = 2
# People in the corpus for each victim of one seed: the victims' part is a fifth.
CORPUS = 5


@dataclass(frozen=True)
class Crowd:
    """People with a secret of two classes and some texts each, and attackers that read it.

    `signal` is how far the two classes lie apart in an attacker's score; the rest of it is the
    person's (the same in all seeds or the attacker's own) and the text's.
    """

    signal: float
    rare: float = 0.4

    def corpus(self, people: int, random: Random, seeds: int = SEEDS) -> tuple[Floats, ...]:
        """Truth and unit of each text, and each seed's attacker's score of it."""
        unit = np.repeat(np.arange(people), TEXTS)
        truth = (random.random(people) < self.rare).astype(np.intp)[unit]
        common = random.normal(size=people)[unit] + random.normal(size=len(unit))
        own = random.normal(size=(seeds, people))[:, unit] + random.normal(size=(seeds, len(unit)))
        return truth, unit, self.signal * (2 * truth - 1) + (common + own) / 2

    def truths(self, metrics: Sequence[str]) -> dict[str, float]:
        """The metrics of an attacker on a crowd so large that nothing is left to chance."""
        truth, unit, scores = self.corpus(300_000, np.random.default_rng(1), seeds=1)
        guesses = _guesses(truth, scores[0], unit)
        ones = np.ones((1, len(truth)), dtype=np.float32)
        return {metric: float(replicates(metric, guesses, ones)[0]) for metric in metrics}


def _guesses(truth: Floats, scores: Floats, unit: Floats) -> Guesses:
    return Guesses(truth, np.stack([-scores, scores], axis=1), unit)


def attributes(
    victims: int, crowd: Crowd, metrics: Sequence[str] = metrics_for(2)
) -> Callable[[Random], Intervals]:
    """Metrics of an attribute: means over seeds, people resampled whole."""
    truths = crowd.truths(metrics)
    bootstrap = Bootstrap(CORPUS * victims)

    def simulate(random: Random) -> Intervals:
        truth, unit, scores = crowd.corpus(CORPUS * victims, random)
        guesses = []
        for seed in range(SEEDS):
            rows = np.isin(unit, random.permutation(CORPUS * victims)[:victims])
            guesses.append(_guesses(truth[rows], scores[seed][rows], unit[rows]))
        return {metric: (score(metric, guesses, bootstrap), truths[metric]) for metric in metrics}

    return simulate


def gaps(victims: int, shares: Sequence[float]) -> Callable[[Random], Intervals]:
    """The largest gap in accuracy between subgroups, whose true accuracies are `shares`."""
    bootstrap = Bootstrap(victims * len(shares))

    def simulate(random: Random) -> Intervals:
        unit = np.arange(victims * len(shares))
        groups = [unit[place :: len(shares)] for place in range(len(shares))]
        parts, means = [], []
        for share, rows in zip(shares, groups, strict=True):
            hits = random.random(len(rows)) < share
            means.append(hits.mean())
            parts.append([_guesses(np.ones(len(rows), dtype=np.intp), hits - 0.5, rows)])
        pair = shares[int(np.argmax(means))] - shares[int(np.argmin(means))]
        return {"accuracy_gap": (accuracy_gap(parts, bootstrap), pair)}

    return simulate


@dataclass(frozen=True)
class Oracle:
    """A probe whose success on each text was decided beforehand: it stands in the vectors."""

    name: str = "linear"

    def scores(self, vectors: Floats, shots: Shots, codes: npt.NDArray[np.intp]) -> Floats:
        ranks = vectors[shots.test, 0].astype(int)
        # So many writers score above the true one; they are taken from the others in turn.
        others = (np.arange(shots.writers)[None, :] - codes[shots.test][:, None]) % shots.writers
        return np.where(others == 0, 0.5, (others <= ranks[:, None]).astype(float))


def writers(victims: int) -> Callable[[Random], Intervals]:
    """Authorship: writers drawn anew by each seed from those there are."""
    attack = Authorship(shots=2, writers=victims, tests=10, seeds=SEEDS, probe=Oracle())
    people = 2 * victims
    authors = np.repeat(np.arange(people), 12)

    def simulate(random: Random) -> Intervals:
        # A writer is found often or seldom: Beta(1, 3), mean 1/4; else a rank of 0 to 19.
        skill = random.beta(1, 3, people)[authors]
        ranks = np.where(
            random.random(len(authors)) < skill, 0, random.integers(1, 20, len(authors))
        )
        rows = attack.measure(ranks[:, None].astype(float), authors.tolist())
        truths = {"top1": 0.25, "top5": 0.25 + 0.75 * 4 / 19}
        return {
            row.metric: (_score_of(row), truths[row.metric])
            for row in rows
            if row.kind == "authorship"
        }

    return simulate


def members(victims: int) -> Callable[[Random], Intervals]:
    """Membership: the threshold is chosen on a third of the people, whichever third is known."""
    shift = 0.5
    people = 3 * victims // 2
    truths = _membership_truths(people, shift)

    def simulate(random: Random) -> Intervals:
        scores, member, unit = _membership(people, shift, random)
        trials = [AuxiliaryScores(scores, _third(member, unit, random)) for _ in range(SEEDS)]
        rows = membership_findings(trials, member, attacker="x", units=unit)
        return {
            row.metric: (_score_of(row), truths[row.metric])
            for row in rows
            if row.kind == "membership"
        }

    return simulate


def rare_alarms(victims: int) -> Callable[[Random], Intervals]:
    """Found at 0.1 % false alarms, which is asked of many others only."""
    members_and_others = victims + RARE
    member = np.arange(members_and_others) >= RARE
    weights = Bootstrap(members_and_others).weights
    shift = 2.0

    def simulate(random: Random) -> Intervals:
        scores = shift * member + random.normal(size=len(member))
        draws = tpr_at(0.001, member, scores, weights)
        truth = float(1 - norm.cdf(norm.ppf(0.999) - shift))
        return {"tpr_at_01_fpr": (share_interval(draws, len(member)), truth)}

    return simulate


def _membership(people: int, shift: float, random: Random) -> tuple[Floats, ...]:
    unit = np.repeat(np.arange(people), TEXTS)
    member = (np.arange(people) % 2 == 0)[unit]
    noise = random.normal(size=people)[unit] / 2 + random.normal(size=len(unit))
    return shift * member + noise, member, unit


def _third(member: Floats, unit: Floats, random: Random) -> npt.NDArray[np.bool_]:
    sides = [np.unique(unit[member == side]) for side in (True, False)]
    few = [random.permutation(side)[: len(side) // 3] for side in sides]
    return np.isin(unit, np.concatenate(few))


def _membership_truths(people: int, shift: float) -> dict[str, float]:
    """Of the advantage: its mean over choices of the known people; of the others, the limit."""
    from capelet.attacks.membership import threshold_of

    random = np.random.default_rng(2)
    wide, inside, unit = _membership(200_000, shift, random)
    guesses = _guesses(inside.astype(np.intp), wide, unit)
    ones = np.ones((1, len(wide)), dtype=np.float32)
    truths = {name: float(replicates(name, guesses, ones)[0]) for name in ("auc", "tpr_at_1_fpr")}
    advantages = []
    for _ in range(400):
        scores, member, units = _membership(people, shift, random)
        few = _third(member, units, random)
        threshold = threshold_of(scores[few], member[few])
        advantages.append((wide[inside] >= threshold).mean() - (wide[~inside] >= threshold).mean())
    return {**truths, "advantage": float(np.mean(advantages))}


def means(victims: int) -> Callable[[Random], Intervals]:
    """Means over people: F1 of words, recall by frequency, distances, exposure, perplexity."""
    unit = np.repeat(np.arange(victims), TEXTS)
    weights = group_weights(unit)
    rare = 0.01

    def simulate(random: Random) -> Intervals:
        of_person = random.normal(size=victims)[unit]
        bell = 1 / (1 + np.exp(-(of_person + random.normal(size=len(unit)))))
        heavy = np.exp(0.5 * of_person + 0.5 * random.normal(size=len(unit)))
        sizes = random.poisson(8, len(unit)) + 1
        hits = random.binomial(sizes, 0.3)
        exact = (random.random(len(unit)) < rare).astype(float)
        nothing = np.zeros(len(unit))
        losses = random.normal(3.0, 1.0, len(unit)) + 0.3 * of_person
        return {
            "mean of F1, recall": (share_interval(weighted_means(weights, bell), victims), 0.5),
            "recall of a band (ratio)": (
                share_interval(weighted_means(weights, hits, sizes), victims),
                0.3,
            ),
            "exact match, 1 %": (share_interval(weighted_means(weights, exact), victims), rare),
            "exact match, none": (share_interval(weighted_means(weights, nothing), victims), 0.001),
            "distance, bits": (
                percentile(weighted_means(weights, heavy)),
                float(np.exp(0.25)),
            ),
            "perplexity": (percentile(np.exp(weighted_means(weights, losses))), float(np.exp(3.0))),
        }

    return simulate


def neighbours(victims: int) -> Callable[[Random], Intervals]:
    """Recall of ten neighbours, of whom all are victims: rows depend on each other."""
    dimension, noise = 8, 0.5

    def vectors(random: Random) -> tuple[Floats, Floats]:
        points = random.normal(size=(victims, dimension))
        return points, points + noise * random.normal(size=points.shape)

    many = np.random.default_rng(3)
    truth = float(np.mean([neighbour_recall(*vectors(many)).mean() for _ in range(400)]))
    bootstrap = Bootstrap(victims)

    def simulate(random: Random) -> Intervals:
        draws = weighted_means(bootstrap.weights, recall_influences(*vectors(random)))
        return {"recall_at_10": (mean_over_seeds([draws], victims, is_share=True), truth)}

    return simulate


def sentences(victims: int) -> Callable[[Random], Intervals]:
    """Tasks of sentence analysis: hits among unknown people, their mean, a rank correlation."""
    slope = 0.7

    def simulate(random: Random) -> Intervals:
        tasks = [
            normal_mean((random.random(victims) < p).astype(float)) for p in (0.97, 0.9, 0.8, 0.7)
        ]
        one = random.normal(size=victims)
        other = slope * one + np.sqrt(1 - slope**2) * random.normal(size=victims)
        return {
            "accuracy of a task": (tasks[0], 0.97),
            "mean of four tasks": (mean_of(tasks), 0.8425),
            # Spearman's ρ of a Gaussian pair with correlation r is 6/π·arcsin(r/2).
            "spearman": (rank_score(one, other), 6 / np.pi * np.arcsin(slope / 2)),
        }

    return simulate


def _score_of(row: Finding) -> Score:
    assert row.low is not None and row.high is not None
    return Score(row.value, row.low, row.high)


CASES: dict[str, Callable[[int], Callable[[Random], Intervals]]] = {
    "attribute, no leak (null)": lambda victims: attributes(victims, Crowd(0.0)),
    "attribute, strong leak": lambda victims: attributes(victims, Crowd(1.8)),
    "attribute, class of 10 %": lambda victims: attributes(victims, Crowd(0.2, rare=0.1)),
    "subgroups, two, equal": lambda victims: gaps(victims, (0.8, 0.8)),
    "subgroups, four, equal": lambda victims: gaps(victims, (0.8,) * 4),
    "subgroups, four, apart": lambda victims: gaps(victims, (0.9, 0.8, 0.8, 0.7)),
    "writers": writers,
    "training texts": members,
    "training texts, 10,000 others": rare_alarms,
    "words, distances, bits": means,
    "neighbours": neighbours,
    "sentence tasks": sentences,
}


def coverage(name: str, victims: int, simulations: int) -> Iterator[tuple[str, float, float]]:
    """For each interval of a case: its name, how often it held the truth, its mean width."""
    simulate = CASES[name](victims)
    random = np.random.default_rng([0xC0, len(name)])
    hits: dict[str, list[bool]] = {}
    widths: dict[str, list[float]] = {}
    for _ in range(simulations):
        for interval, (ends, truth) in simulate(random).items():
            hits.setdefault(interval, []).append(ends.low - 1e-9 <= truth <= ends.high + 1e-9)
            widths.setdefault(interval, []).append(ends.high - ends.low)
    for interval in hits:
        yield interval, float(np.mean(hits[interval])), float(np.mean(widths[interval]))


@dataclass(frozen=True)
class Verdicts:
    """Audits of one attribute: how often each outcome is said."""

    victims: int
    signal: float
    title: str


VERDICTS = (
    Verdicts(40, 0.0, "no leak"),
    Verdicts(40, 0.1, "weak leak of 54 %"),
    Verdicts(40, 1.645, "planted leak of 95 %"),
    Verdicts(200, 0.0, "no leak"),
    Verdicts(1000, 0.0, "no leak"),
    Verdicts(1000, 0.2, "weak leak of 58 %"),
)


def outcomes(case: Verdicts, simulations: int) -> dict[Outcome, float]:
    """The share of each outcome among simulated audits, each of five seeds."""
    simulate = attributes(case.victims, Crowd(case.signal, rare=0.5), ["balanced_accuracy"])
    random = np.random.default_rng([0xC1, case.victims])
    counts = dict.fromkeys(Outcome, 0)
    for _ in range(simulations):
        ends, _ = simulate(random)["balanced_accuracy"]
        row = Finding("attribute-inference", "secret", "balanced_accuracy", *ends.ends, chance=0.5)
        counts[classify(row).outcome] += 1
    return {outcome: number / simulations for outcome, number in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help=f"of: verdicts, {', '.join(CASES)}; all")
    parser.add_argument("--simulations", type=int, default=2_000)
    parser.add_argument("--victims", type=int, default=200)
    options = parser.parse_args()
    cases = options.cases or [*CASES, "verdicts"]
    names = [name for name in CASES if name in cases]
    if names:
        print("| what | interval | covers | mean width |\n|---|---|---|---|", flush=True)
    for name in names:
        for interval, share, width in coverage(name, options.victims, options.simulations):
            print(f"| {name} | {interval} | {share:.1%} | {width:.3f} |", flush=True)
    if "verdicts" in cases:
        print(f"\n| audit | victims | {' | '.join(Outcome)} |\n|---|---|---|---|---|", flush=True)
        for case in VERDICTS:
            shares = outcomes(case, options.simulations)
            cells = " | ".join(f"{share:.1%}" for share in shares.values())
            print(f"| {case.title} | {case.victims} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
