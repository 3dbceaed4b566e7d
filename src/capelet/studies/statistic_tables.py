"""Tables of a study's statistics: analyses of variance, differences, and equal utility, in words.

Each is the block of `reports` that a table of measurements is, so that every renderer draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from capelet.findings import Finding
from capelet.findings.kinds import measure_of
from capelet.reports.formatting import NOTHING, change, decimal, score_with_interval
from capelet.reports.page import Line, Table, table_of
from capelet.studies.claims import Ruling
from capelet.studies.comparisons import Difference
from capelet.studies.documents import Triple
from capelet.studies.rows import CONSTANT_GUESSES, SINGLE_CLASS, count_of
from capelet.studies.statistics import CONDITIONAL, SIGNIFICANCE, Anova
from capelet.studies.sweeps import MatchedDifference

TWO_P_VALUES = (
    "P (repeated) judges each effect by its own variation between splits; where the two differ, "
    "the larger is to be believed."
)
# P-values below are all alike: far beyond what these models can promise.
_LEAST_P = 0.001


def anova_table(result: Anova) -> Table:
    """The analysis of variance as it is printed: SS, df, F, P, critical F, partial η²."""
    has_repeated = any(effect.p_repeated is not None for effect in result.effects)
    lines = [
        Line(
            (
                effect.source,
                _number(effect.sum_of_squares),
                str(effect.df),
                decimal(effect.f, 2),
                p_value(effect.p),
                *([_p_or_dash(effect.p_repeated)] if has_repeated else []),
                decimal(effect.f_crit, 2),
                f"{effect.eta_squared:.2f} ({effect.eta_low:.2f}–{effect.eta_high:.2f})",
            )
        )
        for effect in result.effects
    ]
    blanks = (NOTHING,) * (4 + has_repeated)
    lines.append(
        Line(("residual", _number(result.residual), str(result.residual_df), *blanks), "control")
    )
    critical = f"F at {100 * SIGNIFICANCE:g} %"
    columns = (
        "source", "SS", "df", "F", "P", *(["P (repeated)"] if has_repeated else []), critical,
        "partial η² (90 %)",
    )  # fmt: skip
    measure = measure_of(result.metric).title
    title = f"Analysis of variance of {result.target} ({measure}), within splits"
    sentences = [
        f"{count_of(result.splits, 'split')} as blocks.",
        TWO_P_VALUES if has_repeated else "",
        result.exclusions.sentence,
        result.note,
    ]
    return Table(title, columns, tuple(lines), " ".join(filter(None, sentences)))


def difference_table(differences: Sequence[Difference]) -> Table | None:
    """Second minus first, one comparison per line, with Holm's P beside the plain one."""
    columns: dict[str, Callable[[Difference], str]] = {
        "first": lambda item: item.first,
        "second": lambda item: item.second,
        "target": lambda item: item.target,
        "second − first (95 %)": lambda item: _change(
            item.metric, (item.value, item.low, item.high)
        ),
        "P": lambda item: p_value(item.p),
        "P (Holm)": lambda item: _p_or_dash(item.p_holm),
        "g (95 %)": _effect,
        "unit": lambda item: count_of(item.n, item.unit),
    }
    units = {item.unit for item in differences}
    sentences = [
        "Differences of shares are in points.",
        "Over authors the interval is for these attackers and new people." * ("author" in units),
        "g: Hedges’ g of the differences by split (d_z)." * ("split" in units),
        *dict.fromkeys(item.exclusions.sentence for item in differences),
        CONDITIONAL,
    ]
    return table_of(
        "Paired differences", differences, columns, " ".join(filter(None, sentences)), words=3
    )


def matched_table(results: Sequence[MatchedDifference]) -> Table | None:
    """What two methods leak at the same task score."""
    columns: dict[str, Callable[[MatchedDifference], str]] = {
        "first": lambda item: item.first,
        "second": lambda item: item.second,
        "target": lambda item: item.target,
        "task score": lambda item: decimal(item.utility, 3),
        "first leaks": lambda item: _score(item.metric, item.first_leakage),
        "second leaks": lambda item: _score(item.metric, item.second_leakage),
        "second − first (95 %)": lambda item: _change(item.metric, item.difference),
        "unit": lambda item: count_of(item.n, item.unit),
    }
    constant = sum(item.degenerate for item in results)
    single = sum(item.single_class for item in results)
    sentences = [
        "Read by straight lines between the settings that were measured.",
        "Differences of shares are in points.",
        f"{count_of(constant, 'setting')} left out ({CONSTANT_GUESSES})." if constant else "",
        f"{count_of(single, 'split')} left out ({SINGLE_CLASS})." if single else "",
        CONDITIONAL,
    ]
    return table_of(
        "At equal utility", results, columns, " ".join(filter(None, sentences)), words=3
    )


def estimate(ruling: Ruling) -> str:
    """What a claim came to, with its interval: shares in points, and parts of the other side in %.

    >>> estimate(Ruling("less", "holds", value=-0.05, low=-0.07, high=-0.03, metric="accuracy"))
    '−5.0 (−7.0 to −3.0)'
    """
    if ruling.value is None or ruling.low is None or ruling.high is None:
        return NOTHING
    metric = ruling.metric or "accuracy"
    ends = (ruling.value, ruling.low, ruling.high)
    if ruling.scale == "relative":
        # A share of the other side, which may be more than all of it.
        value, low, high = (change("accuracy", end) for end in ends)
        return f"{value} % ({low} to {high})"
    if ruling.relation == "within":
        return _score(metric, ends)
    return _change(metric, ends)


def p_value(p: float) -> str:
    """Three decimals; a bound where they would be noughts.

    >>> p_value(0.0214), p_value(0.00004)
    ('0.021', '<0.001')
    """
    return f"<{_LEAST_P}" if p < _LEAST_P else f"{p:.3f}"


def _p_or_dash(p: float | None) -> str:
    return NOTHING if p is None else p_value(p)


def _number(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")


def _score(metric: str, ends: Triple) -> str:
    return score_with_interval(Finding("", "", metric, *ends))


def _change(metric: str, ends: Triple) -> str:
    return _with_ends(*(change(metric, end) for end in ends))


def _effect(item: Difference) -> str:
    if (effect := item.effect) is None:
        return NOTHING
    return _with_ends(*(decimal(end, 2) for end in (effect.value, effect.low, effect.high)))


def _with_ends(value: str, low: str, high: str) -> str:
    return f"{value} ({low} to {high})"
