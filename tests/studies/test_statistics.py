"""The split is a block: published examples to their digits, and false alarms where they belong."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pandas
import pytest
from scipy.stats import ncf
from statsmodels.formula.api import ols
from studies.shared_splits import NULL, rows_of_values

from capelet.errors import DataError, MissingExtra
from capelet.studies.rows import Row
from capelet.studies.statistics import CONDITIONAL, anova, eta_interval, student

# Box, Hunter, Hunter, Statistics for Experimenters (1978), p. 209: yield of penicillin, five blends
# of raw material (blocks) by four variants of the process.
PENICILLIN = np.array(
    [[89, 88, 97, 94], [84, 77, 92, 79], [81, 87, 87, 85], [87, 92, 89, 84], [79, 81, 80, 88]]
).T
# Montgomery, Design and Analysis of Experiments, example 4.1: vascular grafts, four pressures of
# extrusion by six batches of resin (blocks).
GRAFTS = np.array(
    [
        [90.3, 89.2, 98.2, 93.9, 87.4, 97.9],
        [92.5, 89.5, 90.6, 94.7, 87.0, 95.8],
        [85.5, 90.8, 89.6, 86.2, 88.0, 93.4],
        [82.5, 89.5, 85.6, 87.4, 78.9, 90.7],
    ]
)
# The same, example 5.6: a target detected on a screen, three levels of ground clutter by two filter
# types, in four operators (blocks).
RADAR = np.array(
    [
        [[90, 96, 100, 92], [86, 84, 92, 81]],
        [[102, 106, 105, 96], [87, 90, 97, 80]],
        [[114, 112, 108, 98], [93, 91, 95, 83]],
    ]
)


def test_penicillin_is_reproduced() -> None:
    result = anova(rows_of_values(PENICILLIN, ("process",)), ["process"])
    blend, process = result.effect("split"), result.effect("process")
    assert [round(item.sum_of_squares) for item in (blend, process)] == [264, 70]
    assert (round(result.residual), result.residual_df) == (226, 12)
    assert (blend.df, process.df) == (4, 3)
    assert round(process.f, 2) == 1.24
    # The book divides its rounded mean squares, 66.0 / 18.8 = 3.51; unrounded it is 3.504.
    squares = [round(item.sum_of_squares / item.df, 1) for item in (blend, process)]
    error = round(result.residual / result.residual_df, 1)
    assert [*squares, error] == [66.0, 23.3, 18.8]
    assert [round(square / error, 2) for square in squares] == [3.51, 1.24]
    assert blend.f == pytest.approx(3.504, abs=5e-4)


def test_vascular_grafts_are_reproduced() -> None:
    result = anova(rows_of_values(GRAFTS, ("pressure",)), ["pressure"])
    batch, pressure = result.effect("split"), result.effect("pressure")
    assert f"{pressure.sum_of_squares:.2f} {batch.sum_of_squares:.2f}" == "178.17 192.25"
    assert f"{result.residual:.2f} {result.residual_df}" == "109.89 15"
    assert f"{pressure.f:.2f} {pressure.p:.4f} {pressure.f_crit:.2f}" == "8.11 0.0019 3.29"


def test_two_factors_in_blocks_are_reproduced() -> None:
    result = anova(rows_of_values(RADAR, ("clutter", "filter")), ["clutter", "filter"])
    lines = {item.source: (round(item.sum_of_squares, 2), item.df) for item in result.effects}
    assert lines == {
        "split": (402.17, 3),
        "clutter": (335.58, 2),
        "filter": (1066.67, 1),
        "clutter × filter": (77.08, 2),
    }
    assert (round(result.residual, 2), result.residual_df) == (166.33, 15)
    ratios = [f"{result.effect(name).f:.2f}" for name in ("clutter", "filter", "clutter × filter")]
    assert ratios == ["15.13", "96.19", "3.48"]


def test_partial_eta_squared() -> None:
    pressure = anova(rows_of_values(GRAFTS, ("pressure",)), ["pressure"]).effect("pressure")
    assert pressure.eta_squared == pytest.approx(178.17125 / (178.17125 + 109.88625))
    assert 0 < pressure.eta_low < pressure.eta_squared < pressure.eta_high < 1


def test_the_interval_of_eta_holds_the_truth_in_nine_of_ten() -> None:
    """F of a known noncentrality, again and again; the control with another truth does not hold."""
    df, residual_df, shift = 3, 15, 12.0
    truth, other = shift / (shift + df + residual_df + 1), 0.02
    draws = ncf.rvs(df, residual_df, shift, size=400, random_state=np.random.default_rng(0))
    ends = [eta_interval(float(draw), df, residual_df) for draw in draws]
    assert 0.86 < np.mean([low <= truth <= high for low, high in ends]) < 0.94
    assert np.mean([low <= other <= high for low, high in ends]) < 0.6


def test_the_interval_of_eta_leaves_out_nought_where_p_is_small() -> None:
    # F = 3.2874 is the critical F of 3 and 15 degrees of freedom at 5 %.
    assert eta_interval(3.28, 3, 15)[0] == 0.0
    assert eta_interval(3.30, 3, 15)[0] > 0.0


def test_repeated_measures_need_a_complete_design_of_two_factors() -> None:
    result = anova(grid(), ["method", "encoder"])
    assert result.effect("split").p_repeated is None
    assert all(item.p_repeated is not None for item in result.effects[1:])
    assert all(item.p_repeated is None for item in anova(grid()[1:], ["method", "encoder"]).effects)
    assert anova(rows_of_values(GRAFTS, ("pressure",)), ["pressure"]).effects[1].p_repeated is None


# ---------------------------------------------------------------------------------------------
# Gaps


def grid() -> list[Row]:
    return rows_of_values(NULL.simulate(np.random.default_rng(3)))


def without(rows: list[Row], **levels: str) -> list[Row]:
    return [row for row in rows if any(row.axes[name] != level for name, level in levels.items())]


def constant(row: Row) -> Row:
    return Row(row.axes, row.seed, row.kind, row.target, row.metric, 0.5, degenerate=True)


def test_a_gap_is_reported_and_borne() -> None:
    """Type II sums of squares equal those of two nested models."""
    rows = grid()[1:]
    result = anova(rows, ["method", "encoder"])
    assert result.exclusions.missing == ("method0, encoder0, split 0",)
    frame = pandas.DataFrame(
        [{"value": row.value, "split": str(row.seed), **row.axes} for row in rows]
    )
    small, large = (
        ols(f"value ~ C(split) + C(encoder){term}", data=frame).fit()
        for term in ("", " + C(method)")
    )
    assert result.effect("method").sum_of_squares == pytest.approx(small.ssr - large.ssr)


def test_degenerate_cells_are_left_out_and_counted() -> None:
    rows = grid()
    rows[0], rows[7] = constant(rows[0]), constant(rows[7])
    result = anova(rows, ["method", "encoder"])
    assert result.exclusions.degenerate == 2 and result.exclusions.missing == ()
    same = anova([row for row in rows if not row.degenerate], ["method", "encoder"])
    assert result.effect("method") == same.effect("method")
    assert result.residual_df == anova(grid(), ["method", "encoder"]).residual_df - 2


def test_a_level_that_is_always_degenerate_is_left_out() -> None:
    rows = [
        constant(row) if row.axes["method"] == "method2" else row
        for row in grid()
        if row.axes["encoder"] == "encoder0"
    ]
    result = anova(rows, ["method"])
    others = anova([row for row in rows if row.axes["method"] != "method2"], ["method"])
    assert result.effects == others.effects and result.effect("method").df == 1
    assert result.exclusions.degenerate == 8


def test_an_empty_combination_is_refused() -> None:
    rows = without(grid(), method="method1", encoder="encoder1")
    with pytest.raises(DataError, match=r"cannot be told apart.*method1, encoder1, split 0"):
        anova(rows, ["method", "encoder"])
    # The control: one factor on the encoder that has all of them.
    assert anova([row for row in rows if row.axes["encoder"] == "encoder0"], ["method"]).splits == 8


def test_a_factor_with_splits_of_its_own_is_refused() -> None:
    """Two corpora share no split, so a corpus cannot be told from its splits."""
    rows = rows_of_values(NULL.simulate(np.random.default_rng(0)), ("method", "corpus"))
    with pytest.raises(DataError, match="from the split"):
        anova(rows, ["method", "corpus"], blocks=["corpus"])
    result = anova(rows, ["method"], blocks=["corpus"])
    assert result.splits == 16 and result.effect("split").df == 15


def test_what_mixes_unlike_rows_is_refused() -> None:
    with pytest.raises(DataError, match="'encoder' varies"):
        anova(grid(), ["method"])
    rows = rows_of_values(GRAFTS, ("pressure",))
    with pytest.raises(DataError, match="has two values"):
        anova([*rows, rows[0]], ["pressure"])
    other = Row(rows[0].axes, 9, "utility", "yield", "f1_macro", 0.5)
    with pytest.raises(DataError, match="'metric' varies"):
        anova([*rows, other], ["pressure"])


def test_what_cannot_be_tested_is_refused() -> None:
    rows = rows_of_values(GRAFTS, ("pressure",))
    with pytest.raises(DataError, match="did you mean 'pressure'"):
        anova(rows, ["presure"])
    with pytest.raises(DataError, match="no rows"):
        anova([], ["pressure"])
    with pytest.raises(DataError, match="one or two factors, 3"):
        anova(rows, ["pressure", "kind", "target"])
    with pytest.raises(DataError, match="two seeds"):
        anova([row for row in rows if row.seed == 0], ["pressure"])
    with pytest.raises(DataError, match="has 1 level"):
        anova([row for row in rows if row.axes["pressure"] == "pressure0"], ["pressure"])
    copies = [Row(row.axes, row.seed, "utility", "yield", "accuracy", 0.7) for row in rows]
    with pytest.raises(DataError, match="do not vary"):
        anova(copies, ["pressure"])
    two = [row for row in grid() if row.seed == 0 or row.axes["method"] == "method0"]
    with pytest.raises(DataError, match="nothing is left"):
        anova(
            [row for row in two if row.seed < 2 and row.axes["encoder"] == "encoder0"], ["method"]
        )


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("statsmodels"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r"capelet\[study\]"):
        anova(rows_of_values(GRAFTS, ("pressure",)), ["pressure"])


def test_the_record_says_what_p_is_conditional_on() -> None:
    result = anova(grid(), ["method", "encoder"])
    assert result.note == CONDITIONAL and "corpus" in CONDITIONAL
    assert [item.source for item in result.effects] == [
        "split", "method", "encoder", "method × encoder",
    ]  # fmt: skip


def test_student() -> None:
    assert student([0.6, 0.7, 0.8]).ends == pytest.approx((0.7, 0.45159, 0.94841), abs=1e-5)
    assert student([0.6]).ends == student([0.6, 0.6]).ends == (0.6, 0.6, 0.6)
