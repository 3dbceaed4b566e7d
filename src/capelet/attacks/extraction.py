"""Extraction: does a language model give single writers' words back?

Threat model: the attacker may ask the model for the probability of any word sequence, and for its
likeliest continuation (black box). It does not see the weights.

- `Exposure` of a canary: log2|R| − log2 rank, where R are all sequences that could have been drawn
  and the rank is the canary's place among them by the model's loss, other canaries left out
  (Carlini et al. 2019), ranked among a sample of R.
- `tab_attack`: the first word goes in, the likeliest words come out; a hit gives all the rest.
- `membership`: was this text trained on? By its loss, and by its loss against a reference model.

A sequence that was never inserted has an exposure of 1/ln 2 ≈ 1.44 bits on average: that, and not
0, is chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from capelet.attacks.membership import CHANCE, RARE, advantages
from capelet.errors import DataError
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap, group_weights, percentile, weighted_means
from capelet.findings.metrics import Codes, Flags, Guesses, score, tpr_at

Floats = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64]

# The rank of a secret that was never inserted is uniform, and E[−log2 U] = 1/ln 2.
CHANCE_BITS = 1 / math.log(2)
# Where fewer samples than this lie below a canary, a fitted tail helps counting.
ANCHOR = 32

# So many of the lowest samples give the tail its shape.
TAIL = 256


class Model(Protocol):
    """What an attacker may ask: losses (nats) of sequences, and greedy continuations."""

    def sequence_losses(self, tokens: Tokens) -> Floats: ...

    def complete(self, first: Tokens, steps: int) -> Tokens: ...


@dataclass(frozen=True, eq=False)
class Exposure:
    """Bits of exposure per canary, which of them are extrapolated, and how well the tail fits.

    `bits` counts samples where there are any below a canary, and uses the fitted skew-normal only
    beyond all of them. `misfit` is the Kolmogorov–Smirnov distance of the fit.
    """

    bits: Floats
    is_extrapolated: Flags
    misfit: float
    space_bits: float
    samples: int


def exposures(
    model: Model,
    canaries: Tokens,
    words: Sequence[int],
    start: int,
    *,
    samples: int = 20_000,
    seed: int = 0,
) -> Exposure:
    """The exposure of each row of `canaries`, from random sequences of the same words.

    `words` are the numbers a canary was drawn from, `start` what every sequence begins with. A
    canary below all samples is extrapolated; none exceeds log2|R|.
    """
    length = canaries.shape[1]
    if samples < 4 * TAIL:
        raise DataError(f"exposure needs at least {4 * TAIL} samples; {samples} were asked for")
    random = np.random.default_rng([seed, 0xE4])
    sequences = np.asarray(words, dtype=np.int64)[
        random.integers(len(words), size=(samples, length))
    ]
    sequences = sequences[~_among(sequences, canaries)]
    reference = np.sort(model.sequence_losses(_begun(sequences, start)))
    losses = model.sequence_losses(_begun(canaries, start))
    return exposure_of(losses, reference, length * math.log2(len(words)), seed)


def exposure_of(losses: Floats, reference: Floats, space_bits: float, seed: int = 0) -> Exposure:
    """Exposure from losses alone: of the canaries, and of a sample of the space.

    With `ANCHOR` samples or more below a canary they are counted. With fewer, the shape of the
    lowest samples smooths the count. With none, the fitted skew-normal goes on from the last point
    that counting settles.
    """
    reference = np.sort(reference)
    count = len(reference)
    if not (np.isfinite(reference).all() and np.isfinite(losses).all()) or not np.ptp(reference):
        raise DataError(
            "the model's losses are not finite, or alike for all sequences, so it ranks nothing; "
            "its training has diverged: train again with a smaller rate"
        )
    fit = SkewNormal.fit(reference, seed)
    below = np.searchsorted(reference, losses, side="left")
    # Carlini et al. (2019), by modelling the distribution: −log2 of the fitted distribution below
    # the canary's loss.
    parametric = -fit.log_cdf(losses) / math.log(2)
    # The fit may be off by a factor this far out. So only its fall from the last point that
    # counting settles is used, added to what counting says there.
    settled = -fit.log_cdf(reference[ANCHOR - 1 : ANCHOR]) / math.log(2)
    beyond = parametric - settled - math.log2(ANCHOR / (count + 1))
    tail_rank = np.maximum(_smooth(losses, reference, below), 1e-9)
    # rank/|R| ≈ (below + 1)/(samples + 1): the canary is one of those ranked. With none below, its
    # rank is at most one in samples + 1.
    bits = np.select(
        [below >= ANCHOR, below > 0],
        [-np.log2((below + 1) / (count + 1)), -np.log2(tail_rank / (count + 1))],
        np.maximum(beyond, math.log2(count + 1)),
    )
    return Exposure(
        np.clip(bits, 0.0, space_bits),
        below == 0,
        fit.misfit(reference),
        space_bits,
        count,
    )


def _smooth(losses: Floats, reference: Floats, below: Codes) -> Floats:
    """The expected count below each loss from a generalised Pareto tail of the lowest samples.

    It stays near the count itself (inside its 50 % Poisson interval).
    """
    from scipy.stats import chi2, genpareto

    threshold = reference[TAIL]
    # Excesses over a far threshold follow a generalised Pareto law (Pickands 1975). The low end of
    # the losses is the tail, so they are mirrored.
    excess = np.maximum(threshold - reference[:TAIL], 1e-12)
    shape, _, scale = genpareto.fit(excess, floc=0.0)
    rank = TAIL * genpareto.sf(threshold - losses, shape, scale=scale)
    # The exact interval of a Poisson mean given its count (Garwood 1936), at 50 %.
    low, high = chi2.ppf(0.25, 2 * np.maximum(below, 1)) / 2, chi2.ppf(0.75, 2 * below + 2) / 2
    return np.clip(rank, low, high)


def _among(rows: Tokens, canaries: Tokens) -> Flags:
    """Which rows are canaries: one secret's rank must not depend on how many others there are."""
    members = {tuple(row) for row in canaries.tolist()}
    return np.array([tuple(row) in members for row in rows.tolist()], dtype=bool)


def _begun(rows: Tokens, start: int) -> Tokens:
    return np.concatenate([np.full((len(rows), 1), start, dtype=np.int64), rows], axis=1)


@dataclass(frozen=True)
class SkewNormal:
    """A skew-normal distribution whose lower tail is right to any depth.

    Density 2 φ(z) Φ(shape·z)/scale, z = (x − place)/scale. The CDF's logarithm is integrated in log
    space; a library's `logcdf` is −inf where a well memorised canary lies.
    """

    shape: float
    place: float
    scale: float

    @classmethod
    def fit(cls, values: Floats, seed: int = 0) -> SkewNormal:
        """Maximum likelihood from the moments' start, on at most 20,000 values."""
        from scipy.optimize import minimize

        if len(values) > 20_000:
            values = np.random.default_rng([seed, 0x5F]).choice(values, 20_000, replace=False)
        begin = cls._moments(values)

        # The scale is searched as a logarithm, so that it cannot become negative.
        def cost(point: Floats) -> float:
            return -float(
                cls(point[0], point[1], math.exp(min(point[2], 50)))._log_density(values).mean()
            )

        start = np.array([begin.shape, begin.place, math.log(begin.scale)])
        best = minimize(cost, start, method="Nelder-Mead", options={"maxiter": 600}).x
        return cls(float(best[0]), float(best[1]), math.exp(float(best[2])))

    @classmethod
    def _moments(cls, values: Floats) -> SkewNormal:
        mean, deviation = float(values.mean()), float(values.std()) or 1e-9
        # No skew-normal is more skewed than 0.995: beyond it the moments have no solution.
        skew = float(np.clip(np.mean(((values - mean) / deviation) ** 3), -0.95, 0.95))
        third = abs(skew) ** (2 / 3)
        delta = math.sqrt(math.pi / 2 * third / (third + ((4 - math.pi) / 2) ** (2 / 3)))
        delta = math.copysign(min(delta, 0.99), skew)
        scale = deviation / math.sqrt(1 - 2 * delta**2 / math.pi)
        return cls(
            delta / math.sqrt(1 - delta**2), mean - scale * delta * math.sqrt(2 / math.pi), scale
        )

    def _log_density(self, values: Floats | float) -> Floats:
        from scipy.special import log_ndtr

        z = (np.asarray(values, dtype=float) - self.place) / self.scale
        tail = log_ndtr(self.shape * z)
        return np.asarray(math.log(2 / self.scale) - z * z / 2 - 0.5 * math.log(2 * math.pi) + tail)

    def log_cdf(self, values: Floats) -> Floats:
        return np.array([self._one_log_cdf(float(value)) for value in values])

    def _one_log_cdf(self, value: float) -> float:
        """ln of the density at the value, plus ln of the integral of its fall to the left."""
        from scipy.stats import skewnorm

        # Where the CDF is not small, the library is accurate.
        bulk = float(skewnorm.cdf(value, self.shape, self.place, self.scale))
        if bulk > 1e-3:
            return math.log(min(bulk, 1.0))
        here = float(self._log_density(value))
        # The density is log-concave: left of here it falls at least as fast as at this slope.
        step = 1e-4 * self.scale
        slope = (here - float(self._log_density(value - step))) / step
        # Beyond it the density is below e⁻⁶⁰ of what it is here.
        reach = 60 / max(slope, 1 / (60 * self.scale))
        # Squared: fine near the value, where nearly all of the integral lies.
        grid = np.linspace(0.0, 1.0, 4001) ** 2 * reach
        heights = np.exp(self._log_density(value - grid) - here)
        return here + math.log(float(np.trapezoid(heights, grid)))

    def misfit(self, values: Floats) -> float:
        """The Kolmogorov–Smirnov distance to the (sorted) values."""
        from scipy.stats import skewnorm

        model_cdf = skewnorm.cdf(np.sort(values), self.shape, self.place, self.scale)
        steps = np.arange(len(values) + 1) / len(values)
        return float(max(np.max(model_cdf - steps[:-1]), np.max(steps[1:] - model_cdf)))


# ---- the tab attack ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Completion:
    """Per sequence: was all the rest given back, and what share of its words in order."""

    exact: Flags
    share: Floats


def tab_attack(model: Model, sequences: Tokens, start: int, pad: int = -1) -> Completion:
    """Give the first word, take the likeliest next ones, and compare with the rest.

    Rows may end in `pad`; a row then counts up to there.
    """
    if sequences.shape[1] < 2:
        raise DataError("the tab attack needs sequences of at least two words")
    completion = model.complete(_begun(sequences[:, :1], start), sequences.shape[1] - 1)
    rest = sequences[:, 1:]
    real = rest != pad
    right = (completion == rest) & real
    return Completion((right | ~real).all(axis=1), right.sum(axis=1) / real.sum(axis=1).clip(1))


# ---- membership ----------------------------------------------------------------------------------


def membership(
    losses: Floats, member: Flags, author: Codes, reference: Floats | None = None, *, seed: int = 0
) -> list[Finding]:
    """How well trained-on texts are told from others by their loss; findings with a null.

    `losses` are mean nats per word under the model; with `reference` the attacker subtracts the
    loss under a model that saw none of these texts, which removes what is merely easy. The
    threshold of the advantage is chosen on one half of the authors and scored on the other.
    """
    if len(np.unique(member)) != 2:
        raise DataError("membership needs texts that were trained on and texts that were not")
    scores = {"loss": -losses}
    if reference is not None:
        scores["loss-against-reference"] = reference - losses
    random = np.random.default_rng([seed, 0x3E])
    rows: list[Finding] = []
    for name, values in scores.items():
        rows += _membership_rows("membership", name, values, member, author, seed)
        random_member = random.permutation(member)
        rows += _membership_rows("membership-null", name, values, random_member, author, seed)
    return rows


def _membership_rows(
    kind: str, attacker: str, scores: Floats, member: Flags, author: Codes, seed: int
) -> list[Finding]:
    people, places = np.unique(author, return_inverse=True)
    half = np.random.default_rng([seed, 0x3F]).permutation(people)[: len(people) // 2]
    auxiliary = np.isin(author, half)
    # Other people's rows choose the threshold: on its own rows, the best one of pure noise would
    # have an advantage too.
    threshold = (
        _best_threshold(scores[auxiliary], member[auxiliary])
        if auxiliary.any()
        else np.median(scores)
    )
    bootstrap = Bootstrap(len(people), seed=seed)
    two = np.stack([-scores, scores], axis=1)
    guesses = Guesses(member.astype(np.intp), two, places)
    # These need no threshold, so that all rows can serve.
    scores_by_metric = {
        metric: score(metric, [guesses], bootstrap) for metric in ("auc", "tpr_at_1_fpr")
    }
    if (~member).sum() >= RARE:
        scores_by_metric["tpr_at_01_fpr"] = percentile(
            tpr_at(0.001, member, scores, bootstrap.of(places))
        )
    positive, others = scores[~auxiliary] > threshold, member[~auxiliary]
    weights = bootstrap.weights[:, places[~auxiliary]]
    scores_by_metric["advantage"] = percentile(advantages(positive, others, weights))
    return [
        Finding(
            kind,
            "training texts",
            metric,
            *value.ends,
            chance=CHANCE[metric],
            n=len(scores),
            attacker=attacker,
        )
        for metric, value in scores_by_metric.items()
    ]


def _best_threshold(score: Floats, member: Flags) -> float:
    """The value above which true minus false positive rate is largest."""
    # One step of the ROC curve for each row; the threshold lies just below the best row, for `>` to
    # take it in.
    order = np.argsort(-score)
    hits = np.cumsum(member[order]) / max(member.sum(), 1)
    false = np.cumsum(~member[order]) / max((~member).sum(), 1)
    return float(score[order][int(np.argmax(hits - false))]) - 1e-12


# ---- findings ------------------------------------------------------------------------------------


def canary_findings(
    exposure: Exposure, completion: Completion, repetitions: Codes, author: Codes, chance_tab: float
) -> list[Finding]:
    """Mean exposure and tab accuracy for each number of repetitions; 0 is the control.

    The target is `canaries`, the subgroup `repetitions=N`; intervals are over authors.
    """
    rows = []
    # Canaries with 0 repetitions were drawn like the others and never inserted: the control.
    for level in np.unique(repetitions):
        inside = repetitions == level
        kind = "extraction" if level else "extraction-null"
        about = {
            "repetitions": int(level),
            "extrapolated": int(exposure.is_extrapolated[inside].sum()),
            "space_bits": exposure.space_bits,
            "samples": exposure.samples,
            "misfit": round(exposure.misfit, 4),
        }
        measures = (
            ("exposure_bits", exposure.bits, CHANCE_BITS, "exposure"),
            ("accuracy", completion.exact.astype(float), chance_tab, "tab"),
        )
        for metric, values, chance, attacker in measures:
            rows.append(
                Finding(
                    kind,
                    "canaries",
                    metric,
                    *mean_by_author(values[inside], author[inside]),
                    chance=chance,
                    n=int(inside.sum()),
                    attacker=attacker,
                    subgroup=f"repetitions={level}",
                    parameters=about,
                )
            )
    return rows


def mean_by_author(values: Floats, author: Codes, seed: int = 0) -> tuple[float, float, float]:
    """The mean with its 95 % interval from a bootstrap over authors.

    >>> mean_by_author(np.array([1.0, 1.0]), np.array([0, 1]))
    (1.0, 1.0, 1.0)
    """
    return percentile(weighted_means(group_weights(author, seed), values)).ends
