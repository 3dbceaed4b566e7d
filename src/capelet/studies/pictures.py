"""Pictures of a study's tables: dots with intervals by strategy, or a grid of two settings."""

from __future__ import annotations

from markupsafe import Markup

from capelet.reports.draw.bars import Bar, bars, marks_of
from capelet.reports.draw.grid import Grid, heat_grid
from capelet.reports.draw.pareto import NAMES
from capelet.reports.formatting import is_share
from capelet.studies.rows import Level, format_level
from capelet.studies.tables import BEST, ResultTable, Summary, name_column

# More would be a page of their own: every attacker against every release.
MOST_DOTS = 40


def picture(table: ResultTable) -> Markup | None:
    """A grid where both axes are numbers or dots would be too many, else dots; None for neither."""
    cells = [cell for line in table.cells for cell in line if cell is not None]
    metrics = {cell.metric for cell in cells}
    # A single row or column of numbers is a list, and reads better as dots.
    is_grid = min(len(table.rows), len(table.columns)) > 1 and len(metrics) == 1
    has_numbers = _are_numbers(table.rows) and _are_numbers(table.columns)
    if is_grid and (has_numbers or len(cells) > MOST_DOTS):
        return heat_grid(_grid(table, metrics.pop()), table.title)
    # Dots have an axis from 0 to 100 %; bits and distances have none.
    if cells and all(is_share(metric) for metric in metrics):
        return bars(_dots(table), table.title)
    return None


def _are_numbers(levels: tuple[Level, ...]) -> bool:
    return all(not isinstance(level, str) for level in levels)


def _grid(table: ResultTable, metric: str) -> Grid:
    return Grid(
        NAMES.get(table.down, table.down),
        NAMES.get(table.across, table.across),
        tuple(map(format_level, table.rows)),
        tuple(map(format_level, table.columns)),
        tuple(tuple(None if cell is None else cell.value for cell in line) for line in table.cells),
        metric,
        # Stars are of a column; a grid is read both ways.
        tuple(tuple(_marks(cell, best="") for cell in line) for line in table.cells),
    )


def _dots(table: ResultTable) -> list[Bar]:
    """A group per column, a dot per row of the table."""
    return [
        Bar(
            " ".join([format_level(row), _marks(cell)]).rstrip(),
            cell.value,
            cell.low,
            cell.high,
            marks=marks_of([("chance", cell.chance)]),
            group=name_column(table, column),
        )
        for place, column in enumerate(table.columns)
        for row, line in zip(table.rows, table.cells, strict=True)
        if (cell := line[place]) is not None
    ]


def _marks(cell: Summary | None, best: str = BEST) -> str:
    if cell is None:
        return ""
    return best * cell.best + cell.marks
