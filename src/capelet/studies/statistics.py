"""Analysis of variance with the split as a block, by statsmodels.

Cells of a study share splits: the same people are the victims of every method. A split that is hard
for one method is hard for all, so the values of a split go up and down together. The model is

    value = split + a + b + a·b + residual

where a and b are the factors of the study. Left to a plain two-way analysis, the variation between
splits falls into the residual, F is far too small, and true differences are missed (Fisher 1935,
Design of Experiments, chapter 4: randomised blocks).

With two factors the block alone assumes that a split moves all levels of a factor alike. Where one
encoder takes a split harder than another, the block's P of the encoder is too small. So each effect
of a complete design has a second P, of repeated measures: judged by how far that very effect varies
from split to split. Where the two P disagree, believe the larger.

P-values are conditional on the corpus: its splits overlap, and none is a second corpus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capelet.errors import DataError, MissingExtra
from capelet.findings.intervals import Score
from capelet.studies.rows import Design, Exclusions, Row, gather

CONDITIONAL = (
    "P-values and intervals are conditional on the corpus: its splits overlap, so they are no "
    "independent samples of corpora, and no number of them says how another corpus would be."
)
# What counts as a rare F; the page prints the F that a test at this level asks for.
SIGNIFICANCE = 0.05
# Of partial η²: 90 %, since F looks to one side. It leaves out 0 just where P < 5 % (Steiger 2004).
COVERAGE_ETA = 0.90
# Names in the formula, so that a user's name of an axis is never parsed as one.
_TERMS = ("first", "second")


@dataclass(frozen=True)
class Effect:
    """One line of an analysis of variance; `eta_squared` is the partial one, with its interval.

    `p_repeated` is that of repeated measures; None for one factor, where it would be the same, for
    the block, and where cells are missing.
    """

    source: str
    sum_of_squares: float
    df: int
    f: float
    p: float
    f_crit: float
    eta_squared: float
    eta_low: float
    eta_high: float
    p_repeated: float | None = None


@dataclass(frozen=True)
class Anova:
    """An analysis of variance within splits: an effect per line, the block, and the residual."""

    target: str
    metric: str
    splits: int
    effects: tuple[Effect, ...]
    residual: float
    residual_df: int
    exclusions: Exclusions
    note: str = CONDITIONAL

    def effect(self, source: str) -> Effect:
        """The line of a factor, of `split`, or of an interaction (`a × b`)."""
        return next(item for item in self.effects if item.source == source)


def anova(rows: Sequence[Row], factors: Sequence[str], blocks: Sequence[str] = ()) -> Anova:
    """Do the levels of one or two factors differ, within splits?

    `blocks` are axes that decide, beside the seed, what a split is: a corpus of its own has splits
    of its own. Missing and degenerate cells may be borne (sums of squares of type II: each effect
    adjusted for all that do not contain it) as long as every effect can still be estimated and
    something is left to judge it by; else the design is refused.
    """
    if not 1 <= len(set(factors)) == len(factors) <= 2:
        raise DataError(
            f"an analysis has one or two factors, {len(factors)} were given "
            f"({', '.join(factors) or 'none'}); fix the others to one level each"
        )
    design = gather(rows, factors, blocks)
    _check_levels(design)
    frame = _frame(design)
    table, residual_df = _fit(design, frame)
    p_by_source = _repeated_measures(design, frame)
    residual = float(table.loc["Residual", "sum_sq"])
    effects = tuple(
        _effect(source, table.loc[term], (residual, residual_df), p_by_source.get(source))
        for source, term in _sources(design.factors)
    )
    about = (rows[0].target, rows[0].metric, design.splits)
    return Anova(*about, effects, residual, residual_df, design.exclusions)


def _sources(factors: Sequence[str]) -> list[tuple[str, str]]:
    """What a line is called, and its name in the formula; the block first."""
    terms = [f"C({term})" for term in _TERMS[: len(factors)]]
    pairs = [("split", "C(split)"), *zip(factors, terms, strict=True)]
    return [*pairs, (" × ".join(factors), ":".join(terms))] if len(factors) == 2 else pairs


def _check_levels(design: Design) -> None:
    counts = [len(design.levels(place)) for place in range(len(design.factors))]
    for name, count in zip(design.factors, counts, strict=True):
        if count < 2:
            raise DataError(
                f"{name!r} has {count} level with values, and two are needed to differ. "
                f"{design.exclusions.sentence}".rstrip()
            )
    if design.splits < 2:
        raise DataError(
            f"{design.splits} split was measured, and within one split nothing shows how far "
            "values vary by chance; give at least two seeds"
        )


def _frame(design: Design) -> Any:
    """The observations as statsmodels wants them, a line each."""
    try:
        import pandas
        import statsmodels  # noqa: F401
    except ImportError:
        raise MissingExtra("an analysis of variance", "study") from None
    columns: dict[str, list[Any]] = {"value": [], "split": []}
    columns |= {term: [] for term in _TERMS[: len(design.factors)]}
    for (levels, split), value in design.values.items():
        columns["value"].append(value)
        # As text: a seed or an ε is a name here, not a quantity.
        columns["split"].append(repr(split))
        for term, level in zip(_TERMS, levels, strict=False):
            columns[term].append(repr(level))
    return pandas.DataFrame(columns)


def _fit(design: Design, frame: Any) -> tuple[Any, int]:
    """The table of statsmodels, and the degrees of freedom of its residual."""
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    product = " * ".join(f"C({term})" for term in _TERMS[: len(design.factors)])
    model = ols(f"value ~ C(split) + {product}", data=frame)
    _check_estimable(design, model.exog)
    fit = model.fit()
    _check_residual(design, float(fit.ssr))
    return anova_lm(fit, typ=2), int(fit.df_resid)


def _repeated_measures(design: Design, frame: Any) -> dict[str, float]:
    """P of each effect against its own variation between splits; empty where that is not asked."""
    from statsmodels.stats.anova import AnovaRM

    combinations = math.prod(len(design.levels(place)) for place in range(len(design.factors)))
    is_complete = len(design.values) == combinations * design.splits
    if len(design.factors) < 2 or not is_complete:
        return {}
    # Each F has its own denominator, the mean square of effect × split.
    table = AnovaRM(frame, "value", "split", within=list(_TERMS)).fit().anova_table
    names = [name for name, _ in _sources(design.factors)[1:]]
    return dict(zip(names, map(float, table["Pr > F"]), strict=True))


def _check_estimable(design: Design, exog: Any) -> None:
    """Full rank: every effect can be told from the others, and the residual is not used up.

    An empty combination, a factor that goes with the split, and splits that share no combination
    all show as a lack of rank.
    """
    count, parameters = exog.shape
    if np.linalg.matrix_rank(exog) < parameters:
        raise DataError(
            f"{' and '.join(map(repr, design.factors))} cannot be told apart from each other or "
            "from the split: a combination has no value at all, or a level occurs in splits of its "
            f"own only; leave such levels out. {design.exclusions.sentence}".rstrip()
        )
    if count <= parameters:
        raise DataError(
            f"{count} values are as many as the {parameters} numbers to be estimated from them, so "
            "nothing is left to judge an effect by; give more seeds"
        )


def _check_residual(design: Design, residual: float) -> None:
    values = np.array(list(design.values.values()))
    total = float(((values - values.mean()) ** 2).sum())
    # Rounding leaves about 1e-30 of the sum of squares where nothing varies.
    if residual <= 1e-20 * max(total, float((values**2).sum())):
        raise DataError(
            "within splits the values do not vary beyond the factors, so nothing shows how far "
            "chance goes (are they copies of one measurement?)"
        )


def _effect(source: str, line: Any, rest: tuple[float, int], p_repeated: float | None) -> Effect:
    """One line of the table of statsmodels; `rest` is the residual and its degrees of freedom."""
    from scipy.stats import f as f_law

    residual, residual_df = rest
    square, df, ratio = float(line["sum_sq"]), int(line["df"]), float(line["F"])
    low, high = eta_interval(ratio, df, residual_df)
    # SS / (SS + residual): partial, so that adding a factor does not shrink the others'.
    return Effect(
        source,
        square,
        df,
        ratio,
        float(line["PR(>F)"]),
        float(f_law.ppf(1 - SIGNIFICANCE, df, residual_df)),
        square / (square + residual),
        low,
        high,
        p_repeated,
    )


def student(values: Sequence[float]) -> Score:
    """The mean over splits with Student's 95 % interval; no interval of a single value.

    >>> [round(end, 3) for end in student([0.6, 0.7, 0.8]).ends]
    [0.7, 0.452, 0.948]
    """
    from scipy.stats import ttest_1samp

    mean = float(np.mean(values))
    # Values that are equal but for rounding have an interval of no width, and SciPy warns of it.
    if len(values) < 2 or np.ptp(values) <= 1e-12 * max(1.0, abs(mean)):
        return Score(mean, mean, mean)
    low, high = ttest_1samp(values, 0.0).confidence_interval(0.95)
    return Score(mean, float(low), float(high))


def eta_interval(ratio: float, df: int, residual_df: int) -> tuple[float, float]:
    """The 90 % interval of partial η² from the noncentral F (Steiger 2004; Smithson 2003).

    The noncentralities λ under which the F would be at its 95 % and its 5 % quantile are the ends;
    η² = λ / (λ + df + residual df + 1).

    >>> [round(end, 2) for end in eta_interval(8.107, 3, 15)]
    [0.22, 0.72]
    """
    tail = (1 - COVERAGE_ETA) / 2
    ends = [_noncentrality(ratio, df, residual_df, share) for share in (1 - tail, tail)]
    low, high = (end / (end + df + residual_df + 1) for end in ends)
    return low, high


def _noncentrality(ratio: float, df: int, residual_df: int, share: float) -> float:
    """The noncentrality under which so large a share of all F lies below `ratio`; 0 if none is."""
    from scipy.optimize import brentq
    from scipy.special import ncfdtr

    # It falls as the noncentrality grows. (SciPy's own inverse ends at 10,000.)
    def excess(shift: float) -> float:
        return float(ncfdtr(df, residual_df, shift, ratio)) - share

    if excess(0.0) <= 0:
        return 0.0
    reach = 1.0
    while excess(reach) > 0:
        reach *= 2
    return float(brentq(excess, 0.0, reach, xtol=1e-10))
