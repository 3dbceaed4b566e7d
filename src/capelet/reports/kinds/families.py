"""Every attacker or probe under every metric: the table that attributes and tasks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capelet.findings import Finding, Findings
from capelet.findings.kinds import control_of, kind_of, reference_of, split_kind
from capelet.reports.ceilings import ONE_TEXT, person_ceilings
from capelet.reports.formatting import (
    ATTACKERS,
    attacker_name,
    is_number,
    metric_name,
    score,
)
from capelet.reports.kinds.generic import cell, in_order
from capelet.reports.page import Line, Table

# The exact attacker of releases of few values.
TABLE = "outcomes"
METRIC_ORDER = ("balanced_accuracy", "accuracy", "f1_weighted", "f1_macro", "auc", "tpr_at_1_fpr")
# What an attacker held, in words; findings made by hand need not say.
HOLDINGS = {
    "vectors": "released vectors",
    "pairs": "released vectors and the raw vectors of its own texts",
    "the folder": "the folder of the private encoder",
}
BOUNDS = {"chance": "chance", "majority": "commonest class", "ceiling": ONE_TEXT}


def family_table(findings: Findings, kind: str, target: str) -> Table:
    """Of one attribute or task: every family under every metric, and every control."""
    is_leak = kind_of(kind).sense == "leak"
    rows = findings.select(kind=kind, target=target, subgroup=None)
    # A leak is judged class by class, a task by what its users see.
    order = METRIC_ORDER if is_leak else ("accuracy", *METRIC_ORDER)
    metrics = in_order((row.metric for row in rows), order)
    families = in_order((row.attacker or "" for row in rows), tuple(ATTACKERS))
    lines = [
        Line(
            (attacker_name(family or None), *_cells(rows, family, metrics)),
            "strong" if family == "strongest" else "",
        )
        for family in families
    ]
    columns = ("attacker" if is_leak else "probe", *(metric_name(name) for name in metrics))
    lines += [*_bounds(rows, metrics), *_controls(findings, kind, target, metrics)]
    return Table(target, columns, tuple(lines), _choices(rows))


def _bounds(rows: Sequence[Finding], metrics: Sequence[str]) -> list[Line]:
    """What needs no vectors, and what nobody can exceed."""
    # Bounds belong to the victims and not to an attacker; the strongest one's row has them all.
    rows = [row for row in rows if row.attacker in (None, "strongest")] or list(rows)
    bounds: dict[str, dict[str, float]] = {name: {} for name in BOUNDS.values()}
    for row in rows:
        known = {name: getattr(row, field) for field, name in BOUNDS.items()}
        known |= {item.title: item.ceiling for item in person_ceilings(row)}
        for name, value in known.items():
            if is_number(value):
                bounds.setdefault(name, {}).setdefault(row.metric, value)
    return [
        Line((name, *(score(metric, values.get(metric)) for metric in metrics)), "control")
        for name, values in bounds.items()
        if values
    ]


def _controls(findings: Findings, kind: str, target: str, metrics: Sequence[str]) -> list[Line]:
    rows = findings.select(kind=control_of(kind), target=target)
    rows += findings.select(kind=reference_of(kind), target=target)
    lines = []
    for name, attacker in dict.fromkeys((row.kind, row.attacker or "") for row in rows):
        matching = [row for row in rows if (row.kind, row.attacker or "") == (name, attacker)]
        is_control = split_kind(name)[1] == "control"
        label = kind_of(kind).control if is_control else attacker_name(attacker or None)
        lines.append(Line((label, *_cells(matching, attacker, metrics)), "control"))
    return lines


def _cells(rows: Sequence[Finding], family: str, metrics: Sequence[str]) -> list[str]:
    cells = []
    for metric in metrics:
        matching = [r for r in rows if (r.attacker or "") == family and r.metric == metric]
        # The mean over seeds where there is one.
        matching.sort(key=lambda row: row.seed is not None)
        cells.append(cell(matching[0] if matching else None))
    return cells


def _choices(rows: Sequence[Finding]) -> str:
    """Which family the strongest attacker was, seed by seed."""
    for row in rows:
        choices = row.parameters.get("chosen")
        if row.attacker == "strongest" and isinstance(choices, Mapping) and choices:
            ranking = sorted(choices.items(), key=lambda item: -item[1])
            names = ", ".join(f"{attacker_name(name)} × {times}" for name, times in ranking)
            sentence = (
                "Strongest: the table of outcomes, which is exact and was not chosen among others."
                if is_exact(row)
                else f"Strongest, chosen on the attacker’s own part, per seed: {names}."
            )
            holding = f" It {_holding(row)}." if _holding(row) else ""
            return f"{sentence}{holding}{_best_family(row)}{_draws(row)}"
    return ""


def winner_sentence(row: Finding) -> str:
    """Who was strongest, where it held more than vectors or is exact; else nothing."""
    if is_exact(row):
        return (
            "The vectors take few values, so the attacker is the table of how often each one comes "
            "in each class: nobody reads more from one vector than such a table."
        )
    if row.parameters.get("holds") in (None, "vectors"):
        return ""
    winners = row.parameters.get("chosen")
    name = max(winners, key=winners.__getitem__) if isinstance(winners, Mapping) else None
    return f"The strongest attacker, {attacker_name(name)}, {_holding(row)}."


def is_exact(row: Finding) -> bool:
    """Whether the strongest attacker is the table of all values that a vector can take."""
    winners = row.parameters.get("chosen")
    return isinstance(winners, Mapping) and TABLE in winners


def _holding(row: Finding) -> str:
    """What the strongest attacker held beside labelled texts of its own."""
    words = HOLDINGS.get(str(row.parameters.get("holds")))
    return f"held {words}" if words else ""


def _best_family(row: Finding) -> str:
    """The luckiest family on these victims; its bounds allow for its being picked."""
    best = row.parameters.get("best_family")
    if not isinstance(best, Mapping):
        return ""
    value, low, high = (score(row.metric, best[key]) for key in ("value", "low", "high"))
    return (
        f" Best single family on these victims: {attacker_name(best['attacker'])}, {value} "
        f"({low} to {high}, bounds that hold for all families at once)."
    )


def _draws(row: Finding) -> str:
    draws = row.parameters.get("draws")
    if not draws:
        return ""
    numbers = ", ".join(map(str, draws))
    return f" Draws of the noise of each of the attacker’s own texts, per seed: {numbers}."
