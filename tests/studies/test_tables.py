"""Tables of a study: means over splits, the best in its direction, and every sign escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import fmean
from xml.etree import ElementTree

import pytest

from capelet.errors import DataError
from capelet.reports import latex, markdown
from capelet.reports.draw.svg import MARGIN, standalone
from capelet.studies.pictures import picture
from capelet.studies.rows import Row
from capelet.studies.statistics import CONDITIONAL, student
from capelet.studies.tables import (
    BEST,
    CONSTANT,
    SINGLE,
    Layout,
    page_table,
    tabulate,
)

LEAK = {"fx": [0.70, 0.72, 0.74], "gr": [0.60, 0.61, 0.65], "cape": [0.50, 0.50, 0.50]}
TASK = {"fx": [0.90, 0.91, 0.92], "gr": [0.88, 0.90, 0.89], "cape": [0.60, 0.62, 0.61]}


def rows() -> list[Row]:
    """Three methods, an attribute and a task; the attacker of `cape` says one class always."""
    items = []
    for kind, target, metric, values in (
        ("attribute-inference", "gender", "balanced_accuracy", LEAK),
        ("utility", "stars", "accuracy", TASK),
    ):
        for method, by_seed in values.items():
            for seed, value in enumerate(by_seed):
                constant = method == "cape" and kind != "utility"
                chance = 0.5 if kind != "utility" else None
                axes = {"method": method}
                items.append(Row(axes, seed, kind, target, metric, value, constant, chance))
    return items


def table_of(items: list[Row], **fields: object) -> object:
    return tabulate(items, Layout("By method", "method", **fields))  # type: ignore[arg-type]


def test_means_over_splits_with_their_interval() -> None:
    table = tabulate(rows(), Layout("By method", "method"))
    assert (table.rows, table.columns) == (("fx", "gr", "cape"), ("gender", "stars"))
    cell = table.cells[0][0]
    assert cell is not None and cell.n == 3
    assert (cell.value, cell.low, cell.high) == student(LEAK["fx"]).ends


def test_the_best_leaks_least_and_works_most_and_is_never_constant() -> None:
    table = tabulate(rows(), Layout("By method", "method"))
    best = [[cell is not None and cell.best for cell in line] for line in table.cells]
    assert best == [[False, True], [True, False], [False, False]]
    constant = table.cells[2][0]
    assert constant is not None and (constant.n, constant.degenerate) == (0, 3)
    assert constant.value == 0.5 and constant.low is None
    # The control: the same values by an attacker who does guess are the best.
    honest = [replace(row, degenerate=False) for row in rows()]
    cell = tabulate(honest, Layout("By method", "method")).cells[2][0]
    assert cell is not None and cell.best


def test_nothing_is_best_along_an_axis_that_nobody_chooses() -> None:
    groups = [
        replace(row, axes={"method": "fx", "subgroup": str(row.axes["method"])}) for row in rows()
    ]
    table = tabulate(groups, Layout("By group", "subgroup"))
    assert not any(cell is not None and cell.best for line in table.cells for cell in line)


def test_in_words() -> None:
    drawn = page_table(tabulate(rows(), Layout("By method", "method")))
    assert drawn.columns == ("method", "gender (balanced accuracy)", "stars (accuracy)")
    assert drawn.lines[1].cells[1] == f"62.0 % (55.4–68.6) {BEST}"
    assert drawn.lines[2].cells[1] == f"50.0 % {CONSTANT}"
    for part in ("mean over 3 splits", "3 degenerate cells left out", BEST, CONSTANT, CONDITIONAL):
        assert part in drawn.note


def test_victims_of_one_class_have_a_mark_of_their_own() -> None:
    """One split of `gr` has victims of one class: its mean is that of the others."""
    items = [
        replace(row, degenerate=True, single_class=True, value=1.0)
        if (row.axes["method"], row.kind, row.seed) == ("gr", "attribute-inference", 0)
        else row
        for row in rows()
    ]
    table = tabulate(items, Layout("By method", "method"))
    cell, constant = table.cells[1][0], table.cells[2][0]
    assert cell is not None and (cell.n, cell.degenerate, cell.single_class) == (2, 0, 1)
    assert cell.value == pytest.approx(fmean(LEAK["gr"][1:]))
    assert constant is not None and constant.marks == CONSTANT
    assert (table.exclusions.degenerate, table.exclusions.single_class) == (3, 1)
    drawn = page_table(table)
    assert drawn.lines[1].cells[1].endswith(SINGLE) and SINGLE not in drawn.lines[2].cells[1]
    assert f"{SINGLE} victims of one class in some splits" in drawn.note
    assert "1 degenerate cell left out (victims of one class)" in drawn.note
    assert latex.table(drawn).isascii() and "ddagger" in latex.table(drawn)
    # The control: where all victims are of both classes nothing is said of it.
    assert "one class" not in page_table(tabulate(rows(), Layout("By method", "method"))).note


def test_what_is_missing_is_a_dash_and_is_named() -> None:
    items = [row for row in rows() if not (row.target == "stars" and row.axes["method"] == "gr")]
    drawn = page_table(tabulate(items, Layout("By method", "method")))
    assert drawn.lines[1].cells[2] == "–"
    assert "1 cell without a value (gr, stars)" in drawn.note
    fewer = [row for row in rows() if row.seed or row.axes["method"] != "gr"]
    drawn = page_table(tabulate(fewer, Layout("By method", "method")))
    assert drawn.lines[1].cells[1].endswith(f"[2] {BEST}")


def test_a_cell_of_unlike_rows_is_refused() -> None:
    items = [*rows(), replace(rows()[0], axes={"method": "fx", "encoder": "glove"}, seed=7)]
    with pytest.raises(DataError, match="'encoder' varies"):
        tabulate(items, Layout("By method", "method"))
    assert tabulate(rows(), Layout("t", "method", where={"kind": "utility"})).columns == ("stars",)


HOSTILE = r"a|b <script> _x_ & 50% $y$ \input{z} # ~ ^ {q}"


def test_markdown_and_latex_escape_every_sign() -> None:
    axes = {"method": HOSTILE}
    items = [Row(axes, seed, "utility", "stars", "accuracy", 0.8 + seed / 50) for seed in (0, 1)]
    drawn = page_table(tabulate(items, Layout(HOSTILE, "method")))
    text = markdown.table(drawn)
    assert "<script>" not in text and r"a\|b" in text
    code = latex.table(drawn)
    body = code.split(r"\midrule")[1].split(r"\bottomrule")[0]
    assert r"\textbackslash{}input\{z\}" in body
    # Every special sign has its backslash, other than those that our own commands are made of.
    bare = re.sub(
        r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater)\{\}", "", body
    )
    bare = re.sub(r"\\[&%#_{}$]|\\\\$|^\{\}|(?<=\d)~(?=\\%)", "", bare, flags=re.MULTILINE)
    assert bare.count("&") == 1  # between the two columns
    assert not set("%#~^$\\") & set(bare.replace(r"\%", "")), bare


def test_latex_of_our_signs() -> None:
    drawn = page_table(tabulate(rows(), Layout("ε and λ", "method")))
    code = latex.table(drawn)
    assert r"\caption{$\varepsilon$ and $\lambda$}" in code
    assert r"62.0~\% (55.4--68.6) $\star$" in code and r"$\dagger$" in code
    assert code.isascii()
    assert code.count(r"\\") == 4  # a head and three rows
    assert r"\begin{tabular}{lrr}" in code


# ---------------------------------------------------------------------------------------------
# Pictures


def grid_rows() -> list[Row]:
    return [
        Row(
            {"epsilon": epsilon, "adversary_weight": lam},
            seed,
            "attribute-inference",
            "gender",
            "accuracy",
            0.5 + 0.04 * epsilon - 0.02 * lam + 0.001 * seed,
        )
        for epsilon in (0.1, 1.0, 8.0)
        for lam in (0.5, 1.0)
        for seed in (0, 1)
    ]


def test_two_settings_are_a_grid() -> None:
    table = tabulate(grid_rows(), Layout("Leakage", "epsilon", "adversary_weight"))
    drawing = picture(table)
    assert drawing is not None and 'class="panel grid"' in drawing
    root = ElementTree.fromstring(standalone(drawing))
    numbers = [item.text for item in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "ε ↓" in numbers and "λ →" in numbers
    assert "48.5 %" in numbers and "81.1 %" in numbers
    # 264 of the grid and a margin on both sides.
    assert root.get("width") == f"{264 + 2 * MARGIN}"
    constant = [replace(row, degenerate=row.axes["epsilon"] == 0.1) for row in grid_rows()]
    drawing_of_constant = picture(
        tabulate(constant, Layout("Leakage", "epsilon", "adversary_weight"))
    )
    assert drawing_of_constant is not None and f"48.5 % {CONSTANT}</text>" in drawing_of_constant
    # The palest cell is the least, the deepest the most.
    depths = [float(item) for item in re.findall(r'fill-opacity="([\d.]+)"', drawing)]
    assert min(depths) == 0.0 and max(depths) == 0.55


def test_numbers_stand_in_their_order_whatever_the_order_of_the_plan() -> None:
    """Groups of a plan may name λ = 1 before 0.5; a reader looks for a trend along the axis."""
    items = sorted(
        grid_rows(), key=lambda row: (row.axes["adversary_weight"] != 1.0, -row.axes["epsilon"])
    )
    table = tabulate(items, Layout("Leakage", "epsilon", "adversary_weight"))
    assert (table.rows, table.columns) == ((0.1, 1.0, 8.0), (0.5, 1.0))
    assert table == tabulate(grid_rows(), Layout("Leakage", "epsilon", "adversary_weight"))
    # A number alone does not say of what it is; a name does.
    assert page_table(table).columns == ("ε", "λ 0.5", "λ 1")
    assert page_table(tabulate(rows(), Layout("By method", "target", "method"))).columns[1] == "fx"


def test_strategies_are_dots_with_intervals() -> None:
    drawing = picture(tabulate(rows(), Layout("Leakage & task", "method")))
    assert drawing is not None
    assert drawing.count('class="dot"') == 6
    assert drawing.count("95 % interval") == 5  # the constant cell has none
    assert drawing.count("chance: 50.0 %") == 3
    text = standalone(drawing)
    assert ElementTree.fromstring(text).get("width") == "640"
    assert "var(--accent)" in text and "--accent: #" in text


def test_bits_have_no_axis_of_per_cent() -> None:
    items = [
        Row({"method": name}, 0, "extraction", "canaries", "exposure_bits", 12.0) for name in "ab"
    ]
    assert picture(tabulate(items, Layout("Exposure", "method"))) is None


def test_an_interval_of_a_share_ends_with_the_share() -> None:
    items = [
        Row({"method": "fx"}, seed, "utility", "stars", metric, value)
        for metric, values in (("accuracy", (0.85, 0.99)), ("perplexity", (20.0, 90.0)))
        for seed, value in enumerate(values)
    ]
    (line,) = tabulate(items, Layout("Both", "method", "metric")).cells
    share, number = line
    assert share is not None and share.high == 1.0 and share.low is not None and share.low > 0
    # The control: a measure that is no share keeps its interval.
    assert number is not None and number.low is not None and number.low < 0


def test_many_cells_are_drawn_as_a_grid() -> None:
    """Every attacker against every release would be a page of dots."""
    items = [
        Row({"method": f"m{row}", "attacker": f"a{column}"}, 0, "utility", "t", "accuracy", 0.5)
        for row in range(7)
        for column in range(7)
    ]
    grid = picture(tabulate(items, Layout("Many", "method", "attacker")))
    dots = picture(tabulate(items[:7], Layout("Few", "method", "attacker")))
    assert grid is not None and 'class="panel grid"' in grid
    assert dots is not None and 'class="panel grid"' not in dots
