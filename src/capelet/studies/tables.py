"""Tables of a study: two axes, a mean over splits in each cell, and what its numbers rest on.

A `ResultTable` holds numbers; `page_table` puts them into words as a block that every renderer of
`reports` can draw (HTML, Markdown, LaTeX).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from capelet.findings import Finding
from capelet.findings.kinds import better, kind_of, measure_of
from capelet.reports.draw.pareto import NAMES
from capelet.reports.formatting import NOTHING, score_with_interval
from capelet.reports.page import Line, Table
from capelet.studies.documents import Axes, Flag, Word, up_to
from capelet.studies.rows import (
    ATTACKER,
    CONSTANT_GUESSES,
    SINGLE_CLASS,
    Exclusions,
    Level,
    Row,
    count_of,
    format_level,
    gather,
    has_level,
    is_asked_for,
    level_of,
)
from capelet.studies.statistics import CONDITIONAL, student

BEST, CONSTANT, SINGLE = "★", "†", "‡"
# Axes along which nobody chooses: the fewest repetitions of a secret are not the best method.
CIRCUMSTANCES = {ATTACKER, "corpus", "shots", "subgroup", "target", "writers"}


@dataclass(frozen=True)
class Layout:
    """Which axis goes down, which across, and the levels that are shown of the others.

    `target` and `metric` are axes too: a table of attributes has its targets across. Several axes
    may go down together: a method with its ε. With `attacker` as an axis every attacker has its
    place, and with `winners` each cell names who was chosen, and what it held.
    """

    title: Word
    down: Word | Annotated[tuple[Word, ...], up_to(4)]
    across: Word = "target"
    where: Axes = field(default_factory=dict)
    winners: Flag = False

    @property
    def axes_down(self) -> tuple[str, ...]:
        return (self.down,) if isinstance(self.down, str) else tuple(self.down)

    def rows_of(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that the table is made of."""
        names = {*self.axes_down, self.across, *self.where}
        return [
            row
            for row in rows
            if is_asked_for(row, names)
            and all(has_level(row, name, level) for name, level in self.where.items())
        ]


@dataclass(frozen=True)
class Summary:
    """One cell of a table: the mean over `n` splits with its 95 % interval.

    `degenerate` splits, where all guesses were one class, and those whose victims are all of a
    `single_class` are left out of the mean. Where nothing else is there the mean is theirs, and `n`
    is 0: the number is shown, and never the best.
    """

    kind: str
    target: str
    metric: str
    value: float
    low: float | None
    high: float | None
    n: int
    degenerate: int = 0
    chance: float | None = None
    best: bool = False
    winners: str = ""
    single_class: int = 0

    @property
    def marks(self) -> str:
        """Why splits were left out."""
        return CONSTANT * (self.degenerate > 0) + SINGLE * (self.single_class > 0)


@dataclass(frozen=True)
class ResultTable:
    """Rows of a study by two axes; None where a combination was not measured."""

    title: str
    down: str
    across: str
    rows: tuple[Level, ...]
    columns: tuple[Level, ...]
    cells: tuple[tuple[Summary | None, ...], ...]
    exclusions: Exclusions


def tabulate(rows: Sequence[Row], layout: Layout, blocks: Sequence[str] = ()) -> ResultTable:
    """The rows as a table; refused where a cell would mix unlike measurements."""
    groups: dict[tuple[Level, Level], list[Row]] = {}
    for row in layout.rows_of(rows):
        place = _level_down(row, layout.axes_down), level_of(row, layout.across)
        # Without a level on an axis it is no cell of this table: the baseline of an ε has none.
        if None not in place:
            groups.setdefault(place, []).append(row)  # type: ignore[arg-type]
    # Refuses two values of one split in a cell: they would count its people twice.
    for group in groups.values():
        gather(group, (), blocks)
    down, across = (_in_order(place[i] for place in groups) for i in (0, 1))
    cells = [
        [_summary(groups.get((row, column)), layout.winners) for column in across] for row in down
    ]
    # Not every attacker can try every release: there is no map to undo in raw vectors.
    by_attacker = ATTACKER in (*layout.axes_down, layout.across)
    missing = tuple(
        f"{format_level(row)}, {format_level(column)}"
        for row in down
        for column in across
        if (row, column) not in groups and not by_attacker
    )
    if not set(layout.axes_down) & CIRCUMSTANCES:
        columns = map(_mark_best, zip(*cells, strict=True))
        cells = [list(line) for line in zip(*columns, strict=True)]
    heading = ", ".join(NAMES.get(name, name) for name in layout.axes_down)
    return ResultTable(
        layout.title,
        heading if len(layout.axes_down) > 1 else layout.axes_down[0],
        layout.across,
        down,
        across,
        tuple(map(tuple, cells)),
        Exclusions.of(([row] for group in groups.values() for row in group), missing),
    )


def _in_order(levels: Iterable[Level]) -> tuple[Level, ...]:
    """Numbers by size, since groups of a plan may name them in any order; names as they come."""
    once = tuple(dict.fromkeys(levels))
    return once if any(isinstance(level, str) for level in once) else tuple(sorted(once))


def _level_down(row: Row, axes: Sequence[str]) -> Level | None:
    """The level of one axis, or of several in words: `bottleneck, ε 8`."""
    first, *others = (level_of(row, name) for name in axes)
    if first is None or not others:
        return first
    levels = zip(axes, (first, *others), strict=True)
    return join_levels({name: level for name, level in levels if level is not None})


def join_levels(levels: Mapping[str, Level]) -> str:
    """Several levels in words; the first says by itself what it is.

    >>> join_levels({"method": "cape", "adversary_weight": 1.5})
    'cape, λ 1.5'
    """
    first, *others = levels.items()
    names = [f"{NAMES.get(name, name)} {format_level(level)}" for name, level in others]
    return ", ".join([format_level(first[1]), *names])


def _winners(rows: Sequence[Row]) -> str:
    """Who was chosen in how many splits, and what each held: `2 × undo (the folder)`."""
    counts = Counter((row.winner, row.holds) for row in rows if row.winner is not None)
    return ", ".join(
        f"{count} × {name}" + (f" ({holds})" if holds else "")
        for (name, holds), count in counts.most_common()
    )


def _summary(rows: Sequence[Row] | None, with_winners: bool = False) -> Summary | None:
    if not rows:
        return None
    usable = [row for row in rows if row.is_usable]
    # A constant guess has the value of chance by construction; averaged in, it would look private.
    degenerate = [row for row in rows if row.degenerate]
    values = [row.value for row in usable or degenerate]
    if not values:
        return None
    interval = student(values)
    # One value shows nothing of how far it varies; those of constant guesses mean nothing.
    low, high = (interval.low, interval.high) if len(usable) > 1 else (None, None)
    if low is not None and high is not None and measure_of(rows[0].metric).form == "share":
        # Student's interval knows nothing of the ends of a share, beyond which no mean can lie.
        low, high = max(low, 0.0), min(high, 1.0)
    exclusions = Exclusions.of([row] for row in degenerate)
    chances = {row.chance for row in rows}
    return Summary(
        rows[0].kind,
        rows[0].target,
        rows[0].metric,
        interval.value,
        low,
        high,
        len(usable),
        exclusions.degenerate,
        chances.pop() if len(chances) == 1 else None,
        winners=_winners(usable or degenerate) if with_winners else "",
        single_class=exclusions.single_class,
    )


def _mark_best(column: Sequence[Summary | None]) -> tuple[Summary | None, ...]:
    """The column with its best mean marked; of a leak that is the least."""
    candidates = [cell for cell in column if cell is not None and cell.n > 0]
    kinds = {(cell.kind, cell.metric) for cell in candidates}
    # Between unlike measurements, or where neither more nor less is better, nothing is best.
    sense = better(*kinds.pop()) if len(kinds) == 1 and len(candidates) > 1 else None
    if sense is None:
        return tuple(column)
    choose = min if sense == "less" else max
    best = choose(cell.value for cell in candidates)
    return tuple(
        replace(cell, best=cell.n > 0 and cell.value == best) if cell is not None else None
        for cell in column
    )


def page_table(table: ResultTable, alone: bool = True) -> Table:
    """The table in words: `78.4 % (76.0–80.6) ★`; `alone` it says itself what intervals mean."""
    counts = Counter(cell.n for line in table.cells for cell in line if cell is not None and cell.n)
    # What most cells have is said once, below the table.
    common_n = counts.most_common(1)[0][0] if counts else None
    lines = [
        Line((format_level(row), *(_words(cell, common_n) for cell in line)))
        for row, line in zip(table.rows, table.cells, strict=True)
    ]
    headings = [_heading(table, place) for place in range(len(table.columns))]
    columns = (NAMES.get(table.down, table.down), *headings)
    return Table(table.title, columns, tuple(lines), _note(table, common_n, alone))


def _words(cell: Summary | None, common_n: int | None) -> str:
    if cell is None:
        return NOTHING
    finding = Finding(cell.kind, cell.target, cell.metric, cell.value, cell.low, cell.high)
    marks = [BEST] * cell.best + list(cell.marks)
    size = [f"[{cell.n}]"] if cell.n not in (0, common_n) else []
    words = " ".join([score_with_interval(finding), *size, *marks])
    return f"{words}: {cell.winners}" if cell.winners else words


def _heading(table: ResultTable, place: int) -> str:
    """The level, and the metric where columns differ in it."""
    metrics = [
        {cell.metric for cell in column if cell is not None}
        for column in zip(*table.cells, strict=True)
    ]
    level = name_column(table, table.columns[place])
    if len(set.union(*metrics)) == 1 or len(metrics[place]) != 1 or table.across == "metric":
        return level
    (metric,) = metrics[place]
    return f"{level} ({measure_of(metric).title})"


def name_column(table: ResultTable, level: Level) -> str:
    """A level above its column; a bare number would not say of what it is: `λ 0.5`."""
    name = format_level(level)
    return name if isinstance(level, str) else f"{NAMES.get(table.across, table.across)} {name}"


def _note(table: ResultTable, common_n: int | None, alone: bool) -> str:
    """What the numbers are, in the order in which a reader asks."""
    cells = [cell for line in table.cells for cell in line if cell is not None]
    kinds = dict.fromkeys((cell.kind, cell.metric) for cell in cells)
    measures = "; ".join(
        f"{kind_of(kind).title}: {measure_of(metric).title}" for kind, metric in kinds
    )
    has_other_n = any(cell.n not in (0, common_n) for cell in cells)
    mean = f"mean over {count_of(common_n or 0, 'split')}" + ", or as many as in [ ]" * has_other_n
    sentences = [
        f"{measures}; {mean}" + (", with Student’s 95 % interval." if common_n != 1 else "."),
        f"{BEST} best mean of its column." if any(cell.best for cell in cells) else "",
        "After the colon: who was chosen, in how many splits, and what it held."
        if any(cell.winners for cell in cells)
        else "",
        *(
            f"{mark} {reason} in some splits, which are left out, or in all of them."
            for mark, reason, count in (
                (CONSTANT, CONSTANT_GUESSES, table.exclusions.degenerate),
                (SINGLE, SINGLE_CLASS, table.exclusions.single_class),
            )
            if count
        ),
        table.exclusions.sentence,
        f"{NOTHING} this attacker has nothing to hold there."
        if ATTACKER in (table.down, table.across) and None in itertools.chain(*table.cells)
        else "",
        CONDITIONAL if alone and any(cell.low is not None for cell in cells) else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)
