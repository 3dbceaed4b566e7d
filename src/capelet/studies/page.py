"""The page of a study in Markdown: what its claims came to, and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from capelet.findings.kinds import KINDS
from capelet.reports.formatting import NOTHING
from capelet.reports.markdown import bullets, escape, table
from capelet.reports.page import Line, Table
from capelet.studies.claims import Ruling
from capelet.studies.documents import BENCH
from capelet.studies.rows import Row, format_level
from capelet.studies.statistic_tables import estimate
from capelet.studies.tables import page_table, tabulate

if TYPE_CHECKING:
    from capelet.studies.collection import Collection


def study_page(study: Collection) -> str:
    """Title, claims, tables, and what is missing."""
    plan = study.plan
    parts = [f"# {escape(plan.title or plan.name)}"]
    if plan.headline:
        asker = "Question" if plan.paper == BENCH else "The paper"
        parts.append(f"**{asker}:** {escape(plan.headline)}")
    if plan.exploratory:
        parts.append(f"**Exploratory:** {escape(plan.exploratory)}")
    if study.warning:
        parts.append(f"**{escape(study.warning)}**")
    if study.rulings:
        parts.append(table(_claims(study.rulings)))
    tables = [tabulate(study.rows, layout, plan.blocks) for layout in plan.tables]
    # A size that leaves the level of a table out has nothing to show in it.
    parts += [table(page_table(item)) for item in tables if item.rows]
    parts.append(table(_overview(study)))
    parts += _gaps(study)
    return "\n\n".join(parts) + "\n"


def _claims(rulings: Sequence[Ruling]) -> Table:
    lines = [
        Line((item.text, item.verdict, item.why or NOTHING, estimate(item), str(item.pairs)))
        for item in rulings
    ]
    columns = ("claim", "verdict", "why", "estimate (95 %)", "splits")
    return Table("Claims", columns, tuple(lines), words=3)


def _overview(study: Collection) -> Table:
    """Every combination of the axes that vary, with the mean of each measure over its seeds.

    Of each kind the measure by which it is judged; controls and references have no record.
    """
    rows = [
        row
        for row in study.rows
        if not row.candidate and row.kind in KINDS and KINDS[row.kind].metric == row.metric
    ]
    names = [*study.plan.axis_names, "attacker", "subgroup"]
    axes = [name for name in names if len({str(_axes(row).get(name)) for row in rows}) > 1]
    columns = list(dict.fromkeys(map(_column, rows)))
    by_place: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for row in rows:
        place = tuple(_level(_axes(row).get(name)) for name in axes)
        by_place.setdefault(place, {}).setdefault(_column(row), []).append(row.value)
    lines = []
    for place, scores in by_place.items():
        figures = [f"{fmean(scores[name]):.3f}" if name in scores else NOTHING for name in columns]
        seeds = max(len(values) for values in scores.values())
        lines.append(Line((*place, *figures, str(seeds))))
    return Table("All cells", (*axes, *columns, "splits"), tuple(lines), words=len(axes))


def _axes(row: Row) -> Mapping[str, Any]:
    """Its axes; groups of people and clouds of vectors are columns, deciles of words are lines."""
    if "attacker" in row.axes or "subgroup" not in row.axes:
        return row.axes
    return {name: level for name, level in row.axes.items() if name != "subgroup"}


def _column(row: Row) -> str:
    words = [row.target, row.metric]
    if "subgroup" in row.axes and "subgroup" not in _axes(row):
        words.append(f"({row.axes['subgroup']})")
    return " ".join(words).replace("_", " ")


def _level(value: Any) -> str:
    return NOTHING if value is None else format_level(value)


def _gaps(study: Collection) -> Iterable[str]:
    if study.missing:
        yield f"{study.missing} cells are not measured yet."
    if study.failures:
        items = []
        for item, reason in study.failures:
            axes = ", ".join(f"{name} {_level(value)}" for name, value in item.axes.items())
            items.append(escape(f"{axes}, seed {item.cell.seed}: {reason}"))
        yield bullets(items)
