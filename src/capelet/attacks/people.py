"""A person's attribute from many of their texts: what each text whispers, a person's texts say.

Threat model: the attacker can tie released vectors to one person (an account, a name on a file) and
holds several of each victim. It owns texts of *other* people with known attributes, also tied. Two
things can be pooled: what the attacker of single texts guesses of each (votes), and the vectors
themselves. Which pooling does best is chosen by cross-validation over people on the attacker's own
rows; no victim influences anything.

An attacker right with p > 1/2 on each of n independent texts is right about the person with a
probability that goes to 1 (Condorcet); so a slight leak of a text may be a clear one of its writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capelet.attacks.attribute import OutOfFold, Result, Secret, fit_candidate, paired_gain, race
from capelet.attacks.committee import LEAST, softmax
from capelet.attacks.families import Candidate, Logistic, fit_quietly
from capelet.attacks.views import STANDARD, View, folds_of
from capelet.data.corpus import Rows
from capelet.findings.metrics import Codes, Floats, balanced_accuracy

# Texts of a victim that are pooled; None stands for all of them.
SIZES: tuple[int | None, ...] = (1, 5, 20, None)
# Bags that one own person teaches with, at most: more are too alike to teach more.
MOST_BAGS = 4
# Own people with enough texts below which those with fewer texts teach too.
FEWEST_TEACHERS = 30
# Fewer people on either side neither teach nor show anything.
FEWEST_PEOPLE = 10

# The poolings, simplest first; of equals the first is chosen.
VOTE, WEIGHTED_VOTE, MEAN, MOMENTS = "vote", "weighted-vote", "mean", "moments"
POOLINGS: dict[str, str] = {
    VOTE: "mean log-probability of the texts",
    WEIGHTED_VOTE: "regression on the mean and the spread of the texts' log-probabilities",
    MEAN: "regression on the mean vector",
    MOMENTS: "regression on the mean and the spread of the vectors",
}


@dataclass(frozen=True)
class Regression(Logistic):
    """Logistic regression on what was pooled of a person; every coordinate standardised."""

    strengths: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)

    @property
    def grid(self) -> list[dict[str, Any]]:
        # Means of log-probabilities beside means of coordinates: their lengths compare nothing.
        return [{"input": STANDARD, "C": strength} for strength in self.strengths]


REGRESSION = Regression()


@dataclass(frozen=True, eq=False)
class Bags:
    """Texts of one person each: `rows` one bag after the other, `starts` where each begins."""

    rows: Rows
    starts: Rows
    authors: Codes

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> Codes:
        """How many texts each bag holds."""
        return np.diff(np.append(self.starts, len(self.rows)))

    @property
    def first(self) -> Rows:
        """One row of each bag, for what all texts of a person share."""
        return np.asarray(self.rows[self.starts])

    def mean(self, values: Floats) -> Floats:
        """The mean of each bag; `values` has one line for each row of the corpus."""
        sums = np.add.reduceat(np.asarray(values[self.rows], dtype=np.float64), self.starts, axis=0)
        return np.asarray(sums / self.sizes[:, None])

    def moments(self, values: Floats) -> Floats:
        """Mean and standard deviation of each bag, side by side."""
        mean = self.mean(values)
        squares = self.mean(np.asarray(values, dtype=np.float64) ** 2)
        return np.hstack([mean, np.sqrt(np.maximum(squares - mean**2, 0))])

    def __add__(self, other: Bags) -> Bags:
        return Bags(
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.starts, other.starts + len(self.rows)]),
            np.concatenate([self.authors, other.authors]),
        )


def draw_bags(
    rows: Rows, authors: Codes, size: int | None, random: np.random.Generator, most: int = 1
) -> Bags:
    """Disjoint bags of `size` of these rows for each author who has so many, `most` at most.

    `authors` numbers the author of every row of the corpus. Labels are not looked at. With None as
    the size, one bag holds all rows of an author.
    """
    bags: list[Rows] = []
    permutation = random.permutation(rows)
    order = np.argsort(authors[permutation], kind="stable")
    groups = permutation[order]
    edges = np.flatnonzero(np.diff(authors[groups])) + 1
    for own in np.split(groups, edges) if len(groups) else ():
        if size is None:
            bags.append(own)
        else:
            bags += [own[i * size : (i + 1) * size] for i in range(min(len(own) // size, most))]
    if not bags:
        empty = np.zeros(0, dtype=np.intp)
        return Bags(empty, empty, empty)
    starts = np.cumsum([0, *(len(bag) for bag in bags[:-1])])
    return Bags(np.concatenate(bags), starts, np.array([authors[bag[0]] for bag in bags]))


def own_bags(rows: Rows, authors: Codes, size: int | None, random: np.random.Generator) -> Bags:
    """Bags to learn from, of as many texts as a victim's; where few people have so many, of fewer.

    What is learnt of five texts does not fit twenty: means of more texts vary less.
    """
    bags = draw_bags(rows, authors, size, random, MOST_BAGS)
    if size is None or len(np.unique(bags.authors)) >= FEWEST_TEACHERS:
        return bags
    rest = rows[~np.isin(authors[rows], bags.authors)]
    short = draw_bags(rest, authors, None, random)
    return bags + short if len(short) else bags


@dataclass(frozen=True, eq=False)
class People:
    """The people of one split by bags of one size: own ones first, then victims."""

    own: Bags
    victims: Bags
    units: Codes  # of every row of the corpus: whom folds may not part
    seed: int

    @property
    def bags(self) -> Bags:
        return self.own + self.victims

    @property
    def enough(self) -> bool:
        """Whether there are people to learn from and to be scored."""
        sides = (self.own, self.victims)
        return all(len(np.unique(bags.authors)) >= FEWEST_PEOPLE for bags in sides)

    def view(self, features: Floats) -> View:
        """What was pooled of each bag, as the vectors of a view whose rows are bags."""
        places, own = np.arange(len(features)), len(self.own)
        units = self.units[self.bags.first]
        return View(features, places[:own], places[:0], places[own:], self.seed, units)


def attack_people(
    people: People, codes: Codes, classes: int, vectors: Floats, logs: Floats
) -> Result:
    """Every pooling's candidate, its quality and guesses of own bags; rows are bags.

    `codes` are those of the bags. `logs` are log-probabilities of every row's classes by the
    attacker of single texts: of own rows out of fold, or a person's own texts would vouch for it.
    """
    bags, own = people.bags, len(people.own)
    best: dict[str, Candidate] = {}
    quality: dict[str, float] = {}
    out_of_fold: dict[str, OutOfFold] = {}
    views: dict[str, View] = {}
    votes = softmax(bags.mean(logs))
    views[VOTE] = people.view(bags.moments(logs))
    best[VOTE] = Candidate({}, votes[:0], votes[own:])
    quality[VOTE] = balanced_accuracy(codes[:own], votes[:own].argmax(axis=1))
    out_of_fold[VOTE] = OutOfFold(np.arange(own), votes[:own])
    for name, pool in _poolings(bags, vectors, logs).items():
        view = people.view(pool())
        secret = Secret(view, codes, classes)
        (trial,) = race(secret, [REGRESSION], folds_of(view, secret))
        views[name] = view
        best[name] = fit_candidate(REGRESSION, view, secret, trial.settings)
        out_of_fold[name] = OutOfFold(trial.places, trial.probabilities)
        # A vote needs no people to learn from. What does must be right more often by a paired
        # standard error: of a hundred own people the luckiest of several poolings looks good.
        gain, error = paired_gain(out_of_fold[name], out_of_fold[VOTE], codes)
        quality[name] = quality[VOTE] + gain - error
    choice = max(quality, key=quality.__getitem__)
    return Result(best, quality, views[choice], out_of_fold)


def _poolings(bags: Bags, vectors: Floats, logs: Floats) -> Mapping[str, Callable[[], Floats]]:
    """What regressions look at; of single texts there is no spread, and a vote is a vote."""
    pools: dict[str, Callable[[], Floats]] = {MEAN: lambda: bags.mean(vectors)}
    if bags.sizes.max() > 1:
        pools[WEIGHTED_VOTE] = lambda: bags.moments(logs)
        pools[MOMENTS] = lambda: np.hstack([bags.moments(vectors), bags.moments(logs)])
    return {name: pools[name] for name in POOLINGS if name in pools}


def null_guesses(result: Result, codes: Codes, classes: int) -> Floats:
    """What the chosen pooling says of victims once it has learnt permuted labels of people.

    A plain vote learns nothing; its null is a regression on the same votes.
    """
    settings = result.best[result.strongest].settings or REGRESSION.grid[-1]
    secret = Secret(result.view, codes, classes)
    return fit_candidate(REGRESSION, result.view, secret, settings).scored


def log_probabilities(
    rows: int, classes: int, parts: Sequence[tuple[Rows, Floats]]
) -> tuple[Floats, Rows]:
    """Log-probabilities of every row of the corpus, and the rows that have any."""
    logs = np.zeros((rows, classes))
    for places, probabilities in parts:
        logs[places] = np.log(np.maximum(probabilities, LEAST))
    return logs, np.sort(np.concatenate([places for places, _ in parts]))


def calibrate(own: OutOfFold, codes: Codes, scored: Floats, texts: Codes | None = None) -> Floats:
    """Probabilities that mean what they say, also where classes are not equally frequent.

    Logistic regression of the truth on log-probabilities (Platt 1999), unweighted: attackers weigh
    classes alike, and 95 % of a rare class would be a different thing. Learnt on own rows that
    their attacker had not learnt from; `codes` are those of all rows that `own` numbers.
    `texts` says how many texts each row pools, own ones first: the same mean of ten is surer than
    of one, so the slope is a + b·log n.
    """
    from sklearn.linear_model import LogisticRegression

    truth = codes[own.rows]
    result = np.zeros_like(scored, dtype=np.float64)
    classes = np.unique(truth)
    if len(classes) < 2:
        result[:, classes] = 1.0
        return result
    counts = np.ones(len(codes)) if texts is None else texts.astype(np.float64)
    inputs = _log_ratios(own.probabilities, counts[own.rows])
    others = _log_ratios(scored, counts[len(counts) - len(scored) :])
    # A strongly regularised attacker names all classes with nearly the same probability: its
    # log-ratios are brought to size 1 first, or the penalty would keep them there.
    scale = np.maximum(inputs.std(axis=0), 1e-12)
    model = LogisticRegression(C=10.0, max_iter=2000)
    fit_quietly(model, inputs / scale, truth)
    result[:, model.classes_] = model.predict_proba(others / scale)
    return result


def _log_ratios(probabilities: Floats, texts: Floats) -> Floats:
    """Log-probabilities less their mean, and the same times log n."""
    logs = np.log(np.maximum(probabilities, LEAST))
    ratios = logs - logs.mean(axis=1, keepdims=True)
    return np.hstack([ratios, ratios * np.log(texts)[:, None]])
