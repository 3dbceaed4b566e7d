"""The page of a study in Markdown: what its claims came to, and its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from capelet.studies.claims import Ruling, Value

if TYPE_CHECKING:
    from capelet.studies.run import Results

# Of each finding the measure that verdicts are made of; a plan may ask for others (`table`).
METRICS = {
    "attribute-inference": "balanced_accuracy",
    "utility": "accuracy",
    "inversion": "f1",
    "authorship": "top5",
    "membership": "advantage",
    "extraction": "exposure",
}
_MANY = 16


def study_page(results: Results) -> str:
    """Title, claims, table, and what is missing."""
    plan = results.plan
    lines = [f"# {plan.title or plan.name}", ""]
    if plan.headline:
        lines += [f"The paper: {plan.headline}", ""]
    lines += _claims(results.rulings)
    lines += _table(results)
    lines += _gaps(results)
    return "\n".join(lines).rstrip() + "\n"


def _claims(rulings: Sequence[Ruling]) -> list[str]:
    if not rulings:
        return []
    lines = ["| claim | verdict | difference (95 %) | splits |", "|---|---|---|---|"]
    for item in rulings:
        figure = "–" if item.value is None else f"{item.value:.3f} ({item.low:.3f}–{item.high:.3f})"
        why = f": {item.why}" if item.why else ""
        lines.append(f"| {_escape(item.text)} | {item.verdict}{why} | {figure} | {item.pairs} |")
    return [*lines, ""]


def _table(results: Results) -> list[str]:
    """A row for each combination of the axes that vary, a column for each measure."""
    values = [item for item in results.values if _is_shown(item, results.plan.table)]
    axes = [name for name in results.plan.axis_names if _varies(name, results)] or ["corpus"]
    columns = dict.fromkeys(map(_column, values))
    by_place: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for item in values:
        place = tuple(_level(item.axes.get(name)) for name in axes)
        by_place.setdefault(place, {}).setdefault(_column(item), []).append(item.value)
    shown = list(columns)[:_MANY]
    head = [*axes, *map(_escape, shown), "seeds"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for place, scores in by_place.items():
        figures = [f"{fmean(scores[name]):.3f}" if name in scores else "–" for name in shown]
        seeds = max(len(some) for some in scores.values())
        lines.append("| " + " | ".join([*map(_escape, place), *figures, str(seeds)]) + " |")
    return [*lines, ""]


def _is_shown(item: Value, table: Any) -> bool:
    metrics = table.get("metrics")
    if metrics is not None:
        return item.metric in metrics and not item.kind.endswith(("-null", "-reference"))
    if METRICS.get(item.kind) != item.metric:
        return item.metric == "recall_at_10"
    # Of attributes the attacker that its own part chose; other attacks are named one by one.
    return item.attacker in (None, "strongest") or item.kind not in (
        "attribute-inference",
        "utility",
    )


def _column(item: Value) -> str:
    who = "" if item.attacker in (None, "strongest") else f" by {item.attacker}"
    return f"{item.target} {item.metric}{who}".replace("_", " ")


def _varies(name: str, results: Results) -> bool:
    return len({str(item.axes.get(name)) for item in results.cells}) > 1


def _level(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _gaps(results: Results) -> Iterable[str]:
    lines = []
    if results.missing:
        lines.append(f"{results.missing} cells are not measured yet.")
    for item, reason in results.failures:
        axes = ", ".join(f"{name} {_level(value)}" for name, value in item.axes.items())
        lines.append(f"- {axes}, seed {item.cell.seed}: {reason}")
    return lines


def _escape(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
