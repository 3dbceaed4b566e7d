"""Two cells of a study beside each other: on the same splits, or on the same people.

Whatever two cells share is taken out of their difference: both have the same splits, and in each
split the same victims. Two questions, two units:

- *Would it be so with other splits of this corpus?* The unit is the split: Student's t on the
  differences by split, and Hedges' g of them.
- *Would it be so with other people, given these attackers?* The unit is the author: one set of
  bootstrap weights per person serves both cells and all splits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from capelet.errors import DataError, MissingExtra
from capelet.findings.intervals import ENDS, Score, percentile
from capelet.findings.metrics import Floats
from capelet.studies.documents import Count, Number, Sentence, Word
from capelet.studies.resampling import People, Unit, guesses_of
from capelet.studies.rows import Exclusions, Level, Row, count_of, format_level, gather, split_of
from capelet.studies.statistics import CONDITIONAL, student

# Below three differences Hedges' correction is not defined, and t says next to nothing.
LEAST_SPLITS = 3


@dataclass(frozen=True)
class Comparison:
    """Two cells to be compared on the same victims: levels of the first, of the second, of both.

    `where` names kind, target and metric, and levels of axes that the two share.
    """

    first: Mapping[str, Level]
    second: Mapping[str, Level]
    where: Mapping[str, Level]


@dataclass(frozen=True)
class StandardisedEffect:
    """Hedges' g of paired differences: mean over deviation, corrected for few of them, with 95 %.

    The deviation is that of the *differences* (d_z), so it tells how surely one cell is above the
    other in a split, not how far in points.
    """

    value: Number
    low: Number
    high: Number
    name: Sentence = "Hedges' g of the differences by split (d_z)"


@dataclass(frozen=True)
class Difference:
    """Second minus first, with its 95 % interval; `n` counts the units that it rests on."""

    first: Word
    second: Word
    kind: Word
    target: Word
    metric: Word
    unit: Unit
    value: Number
    low: Number
    high: Number
    p: Number
    n: Count
    effect: StandardisedEffect | None = None
    p_holm: Number | None = None
    exclusions: Exclusions = field(default_factory=Exclusions)
    note: Sentence = CONDITIONAL


def compare_splits(
    first: Sequence[Row], second: Sequence[Row], blocks: Sequence[str] = ()
) -> Difference:
    """The mean difference over the splits that both cells have, with Student's interval."""
    from scipy.stats import ttest_1samp

    pairs, exclusions = _pairs(first, second, blocks)
    values = np.array([after.value - before.value for before, after in pairs])
    if len(values) < LEAST_SPLITS:
        raise DataError(
            f"{count_of(len(values), 'split')} to compare, and {LEAST_SPLITS} are needed; give "
            f"more seeds. {exclusions.sentence}".rstrip()
        )
    if np.ptp(values) <= 1e-12 * np.abs(values).max(initial=1.0):
        raise DataError(
            "the difference is the same in every split, so nothing shows how far it varies by "
            "chance (are the splits copies of one another?)"
        )
    test = ttest_1samp(values, 0.0)
    effect = standardised_effect(float(test.statistic), len(values))
    score, p = student(values.tolist()), float(test.pvalue)
    return _difference(pairs, "split", score, p, len(values), effect, exclusions)


def standardised_effect(t: float, pairs: int) -> StandardisedEffect:
    """Hedges' g and its interval from the t of so many pairs (Hedges 1981; Cumming, Finch 2001).

    The noncentralities under which t would be at its 97.5 % and 2.5 % quantile are the ends.

    >>> effect = standardised_effect(2.5, 10)
    >>> round(effect.value, 3), round(effect.low, 3), round(effect.high, 3)
    (0.722, 0.053, 1.363)
    """
    from scipy.special import gammaln, nctdtrinc

    df = pairs - 1
    # J(df): the mean of d is d/J, so J·d is free of bias.
    correction = math.exp(gammaln(df / 2) - gammaln((df - 1) / 2)) / math.sqrt(df / 2)
    ends = nctdtrinc(df, ENDS[::-1], t)
    value, low, high = (correction * float(end) / math.sqrt(pairs) for end in (t, *ends))
    return StandardisedEffect(value, low, high)


def compare_victims(
    first: Sequence[Row], second: Sequence[Row], blocks: Sequence[str] = ()
) -> Difference:
    """The mean difference on the same victims, with a bootstrap interval over their authors.

    It covers these attackers on new people of the same crowd; how far a difference would move with
    newly trained attackers is what `compare_splits` shows.
    """
    pairs, exclusions = _pairs(first, second, blocks)
    if not pairs:
        raise DataError(f"no split has both cells. {exclusions.sentence}".rstrip())
    people = People([row for pair in pairs for row in pair])
    for before, after in pairs:
        _check_victims(before, after, blocks)
    # The same weights for both: whatever a person adds to either cell cancels in the difference.
    draws = people.mean([after for _, after in pairs]) - people.mean([row for row, _ in pairs])
    score = percentile(draws, people=people.count)
    p = _bootstrap_p(draws, people.count)
    return _difference(pairs, "author", score, p, people.count, None, exclusions)


def adjust(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    """The differences of one family with Holm's P-values beside their own (Holm 1979).

    Of many comparisons some are small by luck. Holm's are right for all together, whatever the
    comparisons share.
    """
    if not differences:
        return ()
    try:
        from statsmodels.stats.multitest import multipletests
    except ImportError:
        raise MissingExtra("Holm's correction", "study") from None
    values = multipletests([item.p for item in differences], method="holm")[1]
    return tuple(
        dataclasses.replace(item, p_holm=float(value))
        for item, value in zip(differences, values, strict=True)
    )


def _pairs(
    first: Sequence[Row], second: Sequence[Row], blocks: Sequence[str]
) -> tuple[list[tuple[Row, Row]], Exclusions]:
    """The rows of both cells by split, without those where either is degenerate or no number."""
    for rows in (first, second):
        gather(rows, (), blocks)
    if any(getattr(first[0], name) != getattr(second[0], name) for name in ("target", "metric")):
        raise DataError("two cells are compared in one metric of one target")
    sides = [{split_of(row, blocks): row for row in rows} for rows in (first, second)]
    both = [split for split in sides[0] if split in sides[1]]
    pairs = [(sides[0][split], sides[1][split]) for split in both]
    # Both go if one does: a lone value would compare this split's people with others.
    usable = [pair for pair in pairs if all(row.is_usable for row in pair)]
    alone = [split for split in {**sides[0], **sides[1]} if split not in both]
    alone += [
        split_of(pair[0], blocks) for pair in pairs if any(not math.isfinite(r.value) for r in pair)
    ]
    missing = tuple(f"split {' '.join(map(format_level, split))}" for split in alone)
    return usable, Exclusions.of(pairs, missing)


def _check_victims(before: Row, after: Row, blocks: Sequence[str]) -> None:
    """Both cells must have been scored on the same victims, or the difference is of two crowds."""
    one, two = guesses_of(before), guesses_of(after)
    orders = [np.argsort(item.victims, kind="stable") for item in (one, two)]
    same = len(one.victims) == len(two.victims) and all(
        np.array_equal(getattr(one, name)[orders[0]], getattr(two, name)[orders[1]])
        for name in ("victims", "authors", "truth")
    )
    if not same:
        split = " ".join(map(format_level, split_of(before, blocks)))
        raise DataError(
            f"the two cells have different victims in split {split}; compare cells of one split"
        )


def _bootstrap_p(draws: Floats, people: int) -> float:
    """Two-sided P of no difference: Student's t of the value over the deviation of its draws."""
    from scipy.stats import t as t_law

    # Not the share of draws beyond 0: that cannot go below two in 500, too coarse for Holm.
    deviation = float(np.nanstd(draws[1:])) * math.sqrt(people / (people - 1))
    if deviation <= 1e-12:
        # Every person on one side: the sign test, 2·2⁻ⁿ.
        return 1.0 if abs(float(draws[0])) <= 1e-12 else 2.0 ** (1 - people)
    return float(2 * t_law.sf(abs(float(draws[0])) / deviation, people - 1))


def _difference(
    pairs: Sequence[tuple[Row, Row]],
    unit: Unit,
    score: Score,
    p: float,
    n: int,
    effect: StandardisedEffect | None,
    exclusions: Exclusions,
) -> Difference:
    before, after = pairs[0]
    about = (*_names(before.axes, after.axes), after.kind, after.target, after.metric)
    return Difference(*about, unit, *score.ends, p, n, effect, exclusions=exclusions)


def _names(before: Mapping[str, Level], after: Mapping[str, Level]) -> tuple[str, str]:
    """Each cell by the axes in which the two differ: `method = cape`."""
    axes = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    first, second = (
        ", ".join(f"{name} = {format_level(item[name])}" for name in axes if name in item)
        for item in (before, after)
    )
    return first or "without", second or "without"
