"""Attribute inference: fresh attackers that read a private attribute off released vectors.

Threat model: the attacker holds the released vectors of the victims, and vectors with labels for
texts of its own (the attacker's part). Families and settings are chosen by cross-validation on its
own rows, a person's rows in one fold; each family's best is fitted again on all of them, and the
victims are scored once. No victim influences anything.

Settings race: all are tried on the first fold, the better half of each family goes on to the next.
Where the release is noisy, the attacker sends its own texts through it again and again, as often
as that helps in cross-validation; a victim has the one draw that was released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from capelet.attacks.committee import cross_fit, learn_weights, pool
from capelet.attacks.families import FAMILIES as FAMILIES
from capelet.attacks.families import Candidate as Candidate
from capelet.attacks.families import Family as Family
from capelet.attacks.families import Settings as Settings
from capelet.attacks.families import families as families
from capelet.attacks.families import fit_quietly
from capelet.attacks.views import Fold, folds_of
from capelet.attacks.views import Parts as Parts
from capelet.attacks.views import Secret as Secret
from capelet.attacks.views import View as View
from capelet.data.corpus import Rows
from capelet.findings.metrics import Codes, Floats

COMMITTEE = "committee"
# With ten labels of each class none can be spared for tuning: the learning curve has one strength.
FEW_LABELS_STRENGTH = 1e-2
# A family that lies so many standard errors behind another after two folds runs no further.
CLEARLY_BEATEN = 2.5
# A family is preferred to the committee where it leads by more than so many standard errors. The
# best of many settings owes some of its lead to luck: by its figure alone, the yardstick of
# studies/attackers.py read up to .037 more from 1,600 own rows than what was reported.
CLEAR_LEAD = 2.0
# Draws of each of the attacker's texts at most, and rows at most: beyond, time buys too little.
MOST_DRAWS = 16
MOST_ROWS = 40_000

# One more release of these rows of the corpus, in their order.
Release = Callable[[Rows], Floats]


class Draws:
    """Further releases of a view's rows to fit on, made when they are first asked for.

    The attacker knows the release and owns these texts, so it can pass them as often as it likes.
    All secrets of a view share the draws.
    """

    def __init__(self, view: View, release: Release, most: int = MOST_DRAWS) -> None:
        self._rows, self._release = view.rows.fit, release
        # What is held in memory has a bound, however many texts there are.
        self.most = min(most, MOST_ROWS // max(len(self._rows), 1))
        self._draws: list[Floats] = []

    def first(self, count: int) -> list[Floats]:
        """So many draws beside the one that the view holds."""
        while len(self._draws) < count:
            self._draws.append(self._release(self._rows))
        return self._draws[:count]


@dataclass(frozen=True, eq=False)
class Contender:
    """One family's best settings in cross-validation, and its probabilities out of fold.

    `places` are the rows that were held back so far; a family that left the race has not all.
    """

    family: Family
    settings: Settings
    quality: float
    probabilities: Floats
    places: Rows
    complete: bool


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Probabilities of own rows, each by a candidate that had not learnt from its fold."""

    rows: Rows
    probabilities: Floats


@dataclass(frozen=True, eq=False)
class Result:
    """Each family's best candidate on one split, the committee of all, and who is strongest.

    `quality` is that of cross-validation on the attacker's own rows, and decides alone: the
    committee is preferred to a family whose lead over it is not clear. `view` is what the
    candidates learnt on, and `out_of_fold` what each said of own rows that it had not learnt from.
    """

    best: Mapping[str, Candidate]
    quality: Mapping[str, float]
    view: View
    out_of_fold: Mapping[str, OutOfFold]
    lead_error: float = 0.0
    """The standard error of the best family's lead over the committee, on the same rows."""

    @property
    def family(self) -> str:
        """The single family that did best in cross-validation."""
        return max((name for name in self.best if name != COMMITTEE), key=self.quality.__getitem__)

    @property
    def strongest(self) -> str:
        if COMMITTEE not in self.best:
            return self.family
        lead = self.quality[self.family] - self.quality[COMMITTEE]
        return self.family if lead > CLEAR_LEAD * self.lead_error else COMMITTEE


def paired_gain(one: OutOfFold, other: OutOfFold, codes: Codes) -> tuple[float, float]:
    """By how much one is right more often on the rows of both, classes alike; standard error."""
    rows, places, others = np.intersect1d(one.rows, other.rows, return_indices=True)
    if not len(rows):
        return 0.0, np.inf
    truth = codes[rows]
    counts = np.bincount(truth)
    weights = len(rows) / (np.count_nonzero(counts) * counts[truth])
    hits = (one.probabilities[places].argmax(axis=1) == truth).astype(float)
    hits -= other.probabilities[others].argmax(axis=1) == truth
    return float((weights * hits).mean()), float((weights * hits).std() / np.sqrt(len(rows)))


def attack(
    view: View, secret: Secret, attackers: Sequence[Family], draws: Draws | None = None
) -> Result:
    """Choose settings by cross-validation, fit each family's best on all rows, score victims.

    `draws` are further releases of the rows to fit on; None where a release has no noise.
    """
    whole = view.joined()
    target = secret.on(whole)
    folds = folds_of(whole, target)
    trials = race(target, attackers, folds)
    if draws is not None:
        wider = _with_draws(whole, target, trials, draws)
        if wider is not whole:
            wide_target = target.on(wider)
            wide_folds = folds_of(wider, wide_target)
            wide_trials = race(wide_target, attackers, wide_folds)
            # Many rows go through landmarks: then one exact draw may still be the better choice.
            if _best_quality(wide_trials) > _best_quality(trials):
                whole, target, folds, trials = wider, wide_target, wide_folds, wide_trials
    best = {
        trial.family.name: fit_candidate(trial.family, whole, target, trial.settings)
        for trial in trials
    }
    quality = {trial.family.name: trial.quality for trial in trials}
    rows = whole.rows.fit
    out_of_fold = {
        trial.family.name: OutOfFold(rows[trial.places], trial.probabilities) for trial in trials
    }
    members = [trial for trial in trials if trial.complete]
    lead_error = 0.0
    if len(members) > 1:
        best[COMMITTEE], quality[COMMITTEE], probabilities = _committee(
            members, best, target, folds
        )
        out_of_fold[COMMITTEE] = OutOfFold(rows[: len(probabilities)], probabilities)
        leader = max(trials, key=lambda trial: trial.quality)
        lead_error = _gain(leader, probabilities[leader.places], target)[1]
    return Result(best, quality, whole, out_of_fold, lead_error)


def race(secret: Secret, attackers: Sequence[Family], folds: Sequence[Fold]) -> list[Contender]:
    """Every family's best settings: fold by fold the better half of its settings goes on.

    A family that is clearly beaten by another is not raced to the end; it keeps what it reached.
    Nothing is sorted out on fewer rows: what is best of half of them is too coarse for all.
    """
    entries = [_Entry(family) for family in attackers]
    for number, fold in enumerate(folds, 1):
        racing = [entry for entry in entries if entry.is_racing]
        part = secret.on_fold(fold)
        for entry in racing:
            entry.run(fold, part)
        trials = [entry.best(secret) for entry in racing]
        leader = max(trials, key=lambda trial: trial.quality)
        for entry, trial in zip(racing, trials, strict=True):
            if number < len(folds):
                entry.halve()
                entry.is_racing = number == 1 or not _is_beaten(trial, leader, secret)
    return [entry.best(secret) for entry in entries]


class _Entry:
    """A family in the race: the settings that are left, and what they said of held-back rows."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.is_racing = True
        self.settings = list(range(len(family.grid)))
        self.scores: dict[int, list[Floats]] = {place: [] for place in self.settings}
        self.places: list[Rows] = []

    def run(self, fold: Fold, secret: Secret) -> None:
        self.places.append(fold.outside)
        # The last first: of trainings of one kind the longest covers the others (`_on_path`).
        for place in reversed(self.settings):
            candidate = fit_candidate(self.family, fold, secret, self.family.grid[place])
            self.scores[place].append(candidate.tune)

    def halve(self) -> None:
        """The better half of the settings goes on; of equals the first ones of the grid."""
        ranking = sorted(self.settings, key=lambda place: (-self.quality[place], place))
        self.settings = sorted(ranking[: (len(ranking) + 1) // 2])

    def best(self, secret: Secret) -> Contender:
        places = np.concatenate(self.places)
        truth = secret.codes.fit[places]
        scores = {place: np.concatenate(self.scores[place]) for place in self.settings}
        self.quality = {place: secret.quality_of(truth, item) for place, item in scores.items()}
        # Of equals the first: grids begin with the simpler settings.
        place = max(self.settings, key=self.quality.__getitem__)
        return Contender(
            self.family,
            self.family.grid[place],
            self.quality[place],
            scores[place],
            places,
            self.is_racing,
        )


def _is_beaten(trial: Contender, leader: Contender, secret: Secret) -> bool:
    """Whether the leader is right more often by more than so many paired standard errors."""
    gain, error = _gain(leader, trial.probabilities, secret)
    return gain > CLEARLY_BEATEN * error


def _gain(one: Contender, other: Floats, secret: Secret) -> tuple[float, float]:
    """By how much a trial beats other guesses of the same rows, and the standard error of that."""
    codes, weights = secret.codes.fit[one.places], secret.weights.fit[one.places]
    right = one.probabilities.argmax(axis=1) == codes
    other_right = other.argmax(axis=1) == codes
    difference = weights * (right.astype(float) - other_right.astype(float))
    return float(difference.mean()), float(difference.std() / np.sqrt(len(difference)))


def _with_draws(view: View, secret: Secret, trials: Sequence[Contender], draws: Draws) -> View:
    """The view with twice as many draws of each text, again and again, while that helps."""
    # Three families with the settings they have tell whether draws help; once the number of draws
    # is settled, all settings are raced on as many.
    ranking = sorted(trials, key=lambda trial: -trial.quality)
    leaders = [_OneSetting(trial.family, trial.settings) for trial in ranking[:3]]
    best, result = ranking[0].quality, view
    while 2 * result.draws <= draws.most:
        wider = view.with_draws(draws.first(2 * result.draws - 1))
        target = secret.on(wider)
        quality = _best_quality(race(target, leaders, folds_of(wider, target)))
        if quality <= best:
            break
        best, result = quality, wider
    return result


def _best_quality(trials: Sequence[Contender]) -> float:
    return max(trial.quality for trial in trials)


@dataclass(frozen=True)
class _OneSetting:
    """A family that has nothing to choose."""

    family: Family
    settings: Settings

    @property
    def name(self) -> str:
        return self.family.name

    @property
    def grid(self) -> Sequence[Settings]:
        return [self.settings]

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        return self.family.fit(view, secret, settings)


def _committee(
    members: Sequence[Contender],
    best: Mapping[str, Candidate],
    secret: Secret,
    folds: Sequence[Fold],
) -> tuple[Candidate, float, Floats]:
    """The calibrated committee of these families, with its quality and guesses out of fold."""
    texts = len(members[0].places)
    guesses = []
    for trial in members:
        probabilities = np.empty((texts, secret.classes))
        probabilities[trial.places] = trial.probabilities
        guesses.append(probabilities)
    codes, row_weights = secret.codes.fit[:texts], secret.weights.fit[:texts]
    out_of_fold = cross_fit(guesses, secret, folds)
    weights = learn_weights(guesses, codes, row_weights)
    names = [trial.family.name for trial in members]
    settings = {"members": dict(zip(names, weights.round(3).tolist(), strict=True))}
    candidates = [best[name] for name in names]
    posterior = pool([candidate.scored for candidate in candidates], weights)
    candidate = Candidate(settings, np.zeros((0, secret.classes)), posterior)
    return candidate, secret.quality_of(codes, out_of_fold), out_of_fold


def fit_candidate(family: Family, view: View, secret: Secret, settings: Settings) -> Candidate:
    """The family's candidate; where the rows to fit on have one class alone, it names that."""
    classes = np.unique(secret.codes.fit)
    if len(classes) > 1:
        return family.fit(view, secret, settings)
    constant = np.eye(secret.classes)[classes[0]]
    parts = (np.tile(constant, (len(rows), 1)) for rows in view.rows[1:])
    return Candidate(settings, *parts)


def few_labels(view: View, secret: Secret, count: int) -> Floats | None:
    """Scores of a logistic attacker that knows only `count` labels of each class.

    None when some class does not have so many. It may use the other vectors of the attacker's part
    without their labels (to standardise), as a real attacker could.
    """
    random = np.random.default_rng([view.seed, count])
    sample: list[Rows] = []
    for code in range(secret.classes):
        places = np.flatnonzero(secret.codes.fit == code)
        if len(places) < count:
            return None
        sample.append(random.permutation(places)[:count])
    from sklearn.linear_model import LogisticRegression

    places = np.concatenate(sample)
    model = LogisticRegression(C=FEW_LABELS_STRENGTH, max_iter=2000, tol=1e-3)
    fit_quietly(model, view.standard.fit[places], secret.codes.fit[places])
    return np.asarray(model.predict_proba(view.standard.scored))
