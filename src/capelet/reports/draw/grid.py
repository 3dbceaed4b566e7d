"""A grid of values over two settings, as ε and λ: a number in every cell, a shade for the eye."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from capelet.reports.draw.svg import short, svg, text, words
from capelet.reports.formatting import NOTHING, is_number, score

# A cell, and the room for the names of rows and columns.
WIDE, HIGH, WEST, NORTH = 84.0, 44.0, 92.0, 40.0


@dataclass(frozen=True)
class Grid:
    """Values by row and column, None where nothing was measured; `metric` says how they print.

    `marks` stand behind the number of a cell (constant guesses), as in the table.
    """

    down: str
    across: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    metric: str
    marks: tuple[tuple[str, ...], ...] = ()

    def mark(self, row: int, column: int) -> str:
        return self.marks[row][column] if self.marks else ""


def heat_grid(grid: Grid, name: str) -> Markup:
    """The grid with its smallest value palest; numbers are printed, so that no colour is needed."""
    parts = [
        f'<text class="axis" x="{WEST:g}" y="14">{text(short(grid.across, 30))} →</text>',
        f'<text class="axis" x="0" y="{NORTH - 8:g}">{text(short(grid.down, 12))} ↓</text>',
    ]
    for place, column in enumerate(grid.columns):
        x = WEST + (place + 0.5) * WIDE
        parts.append(words("tick", f"{x:g}", f"{NORTH - 8:g}", text(short(column, 12))))
    for place, row in enumerate(grid.rows):
        y = NORTH + (place + 0.5) * HIGH + 4
        parts.append(f'<text class="label" x="0" y="{y:g}">{text(short(row, 12))}</text>')
        parts += [_cell(grid, place, column) for column in range(len(grid.columns))]
    wide, tall = WEST + WIDE * len(grid.columns) + 4, NORTH + HIGH * len(grid.rows) + 4
    size = f'viewBox="0 0 {wide:g} {tall:g}"'
    return svg("panel grid", size, name, _description(grid), parts)


def _cell(grid: Grid, row: int, column: int) -> str:
    value = grid.values[row][column]
    x, y = WEST + column * WIDE, NORTH + row * HIGH
    middle = f"{x + WIDE / 2:g}", f"{y + HIGH / 2 + 5:g}"
    frame = f'x="{x + 1:g}" y="{y + 1:g}" width="{WIDE - 2:g}" height="{HIGH - 2:g}" rx="3"'
    if not is_number(value):
        return f'<rect class="track" {frame}/>' + words("tick", *middle, NOTHING)
    title = f"{grid.down} {grid.rows[row]}, {grid.across} {grid.columns[column]}: "
    title += score(grid.metric, value)
    content = text(f"{score(grid.metric, value)} {grid.mark(row, column)}".rstrip())
    # Up to 55 % of the accent: darker, and the number on it could not be read.
    return (
        f'<g><title>{text(title)}</title><rect class="track" {frame}/>'
        f'<rect class="fill" fill-opacity="{0.55 * _depth(grid, value):.2f}" {frame}/>'
        f"{words('label', *middle, content)}</g>"
    )


def _depth(grid: Grid, value: float) -> float:
    """Where a value lies between the least and the largest of the grid; 0 where all are equal."""
    values = [item for line in grid.values for item in line if is_number(item)]
    least, most = min(values), max(values)
    return (value - least) / (most - least) if most > least else 0.0


def _description(grid: Grid) -> str:
    sentences = [
        f"{grid.down} {row}, {grid.across} {column}: {score(grid.metric, value)}"
        for row, line in zip(grid.rows, grid.values, strict=True)
        for column, value in zip(grid.columns, line, strict=True)
    ]
    return ". ".join(sentences) + "."
