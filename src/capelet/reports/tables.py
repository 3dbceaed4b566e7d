"""Tables of findings and provenance as plain values, shared by the HTML and the Markdown report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capelet.findings import Finding, Findings
from capelet.reports.verdicts import LEAK, PRIMARY, first, primary_task_row, targets
from capelet.reports.words import (
    NOTHING,
    attacker_name,
    count,
    kind_name,
    known,
    metric_name,
    percent,
    score,
    score_with_interval,
    signed,
)

METRIC_ORDER = ("balanced_accuracy", "accuracy", "f1_weighted", "f1_macro", "auc", "tpr_at_1_fpr")
FAMILY_ORDER = ("strongest", "committee", "logistic", "mlp", "boosting", "knn", "kernel")
SHOWN_APART = (LEAK, "utility", "fairness", "deviation")
SHOWN_METRICS = {
    "inversion": ("f1", "precision", "recall"),
    "authorship": ("top1", "top5"),
    "membership": ("advantage", "auc", "tpr_at_1_fpr", "tpr_at_01_fpr"),
}
"""What `attack_tables` shows of the other kinds of attack; any further metric is listed here."""


@dataclass(frozen=True)
class Line:
    """One row of a table; `role` is `strong`, `control` or nothing."""

    cells: tuple[str, ...]
    role: str = ""


@dataclass(frozen=True)
class Table:
    """A title, columns and rows ready to print; the first `words` columns are not numbers."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    note: str = ""
    words: int = 1


def summary(findings: Findings) -> Table | None:
    """One line per attribute: the strongest attacker beside all its controls."""
    lines = []
    for target in targets(findings, LEAK):
        row = first(findings, kind=LEAK, target=target, attacker="strongest", metric=PRIMARY)
        if row is None:
            continue
        null = first(findings, kind=f"{LEAK}-null", target=target, metric=PRIMARY)
        references = [
            first(findings, kind=f"{LEAK}-reference", target=target, attacker=name, metric=PRIMARY)
            for name in ("predicted-label", "tf-idf")
        ]
        others = [score(PRIMARY, item.value if item else None) for item in (null, *references)]
        scores = [score_with_interval(row), score(PRIMARY, row.chance), *others]
        lines.append(Line((target, *scores, score(PRIMARY, row.ceiling), count(row.n))))
    columns: tuple[str, ...] = (
        "attribute",
        "strongest attacker",
        "chance",
        "shuffled labels",
        "predicted label",
    )
    columns += ("text itself", "ceiling", "victims")
    note = "Balanced accuracy with its 95 % interval; means over all seeds. Victims per seed."
    return _table("Leakage and its controls", columns, lines, note)


def attack_tables(findings: Findings) -> list[Table]:
    """Per attribute, every attacker family under every metric."""
    return [_families(findings, LEAK, target) for target in targets(findings, LEAK)]


def task_tables(findings: Findings) -> list[Table]:
    """Per task, every probe under every metric."""
    return [_families(findings, "utility", target) for target in targets(findings, "utility")]


def _families(findings: Findings, kind: str, target: str) -> Table:
    rows = findings.select(kind=kind, target=target, subgroup=None)
    order = METRIC_ORDER if kind == LEAK else ("accuracy", *METRIC_ORDER)
    metrics = _ordered({row.metric for row in rows}, order)
    names = list(dict.fromkeys(row.attacker or "" for row in rows))
    families = _ordered(set(names), FAMILY_ORDER)
    lines = [
        Line(
            (attacker_name(family or None), *_cells(rows, family, metrics)),
            "strong" if family == "strongest" else "",
        )
        for family in families
    ]
    judge = [row for row in rows if row.attacker in (None, "strongest")]
    for field, said in (
        ("chance", "chance"),
        ("majority", "commonest class"),
        ("ceiling", "ceiling"),
    ):
        cells = [_control(judge, metric, field) for metric in metrics]
        if any(cell != NOTHING for cell in cells):
            lines.append(Line((said, *cells), "control"))
    controls = findings.select(kind=f"{kind}-null", target=target)
    controls += findings.select(kind=f"{kind}-reference", target=target)
    for name in dict.fromkeys((row.kind, row.attacker or "") for row in controls):
        matching = [row for row in controls if (row.kind, row.attacker or "") == name]
        said = "shuffled labels" if name[0].endswith("-null") else attacker_name(name[1] or None)
        lines.append(Line((said, *_cells(matching, name[1], metrics)), "control"))
    columns = ("attacker" if kind == LEAK else "probe", *(metric_name(name) for name in metrics))
    return Table(target, columns, tuple(lines), _chosen(rows))


def _cells(rows: Sequence[Finding], family: str, metrics: Sequence[str]) -> list[str]:
    cells = []
    for metric in metrics:
        matching = [r for r in rows if (r.attacker or "") == family and r.metric == metric]
        matching.sort(key=lambda row: row.seed is not None)
        cells.append(_scored(matching[0]) if matching else NOTHING)
    return cells


def _scored(row: Finding) -> str:
    return score_with_interval(row) + (" constant" if row.degenerate else "")


def _control(rows: Sequence[Finding], metric: str, field: str) -> str:
    values = [getattr(row, field) for row in rows if row.metric == metric]
    return score(metric, next((value for value in values if known(value)), None))


def _chosen(rows: Sequence[Finding]) -> str:
    """Which family the strongest attacker was, seed by seed."""
    for row in rows:
        chosen = row.parameters.get("chosen")
        if row.attacker == "strongest" and isinstance(chosen, Mapping) and chosen:
            ranked = sorted(chosen.items(), key=lambda item: -item[1])
            said = ", ".join(f"{attacker_name(name)} × {times}" for name, times in ranked)
            return f"Strongest, chosen on the attacker’s own part, per seed: {said}."
    return ""


def fairness(findings: Findings) -> Table | None:
    """The task's score per subgroup and the largest gap."""
    rows = findings.select(kind="fairness")
    lines = [
        Line(
            (
                (row.subgroup or NOTHING).replace("=", ": ", 1),
                metric_name(row.metric),
                score_with_interval(row),
                count(row.n),
            ),
            "strong" if row.metric.endswith("_gap") else "",
        )
        for row in rows
    ]
    return _table("The task by subgroup", ("subgroup", "metric", "value", "texts"), lines, words=2)


def learning_curves(findings: Findings) -> Table | None:
    """The numbers of the learning curves: a line per attribute, a column per number of labels."""
    artefact = findings.artefacts.get("learning_curve") or {}
    metric = artefact.get("metric", PRIMARY)
    curves = {name: _points(metric, name, curve) for name, curve in _items(artefact.get("curves"))}
    numbers = sorted({number for points in curves.values() for number in points})
    lines = [
        Line((name, *(points.get(number, NOTHING) for number in numbers)))
        for name, points in curves.items()
    ]
    columns = ("attribute", *(f"{count(number)} labels" for number in numbers))
    note = f"{metric_name(metric).capitalize()} by labelled texts per class, with 95 % intervals."
    return _table("Learning curves", columns, lines, note)


def _points(metric: str, name: str, curve: Mapping[str, Any]) -> dict[float, str]:
    labels, values = curve.get("labels_per_class") or [], curve.get("value") or []
    lows, highs = (list(curve.get(end) or [None] * len(labels)) for end in ("low", "high"))
    return {
        number: score_with_interval(Finding("", name, metric, value, low=low, high=high))
        for number, value, low, high in zip(labels, values, lows, highs, strict=False)
    }


def _items(content: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """The pairs of a mapping of mappings; what is missing or of another shape is empty."""
    if not isinstance(content, Mapping):
        return []
    return [
        (str(name), item if isinstance(item, Mapping) else {}) for name, item in content.items()
    ]


def classes(findings: Findings) -> Table | None:
    """How many texts each class of each attribute and of the label has."""
    lines: list[Line] = []
    label = findings.provenance.get("label")
    for name, entry in _items(findings.provenance.get("attributes")):
        lines += _class_lines(name, entry)
    if isinstance(label, Mapping):
        lines += _class_lines(f"{label.get('name', 'label')} (task)", label)
    return _table("Classes", ("column", "class", "texts", "share"), lines, words=2)


def _class_lines(name: str, entry: Mapping[str, Any]) -> list[Line]:
    sizes = dict(entry.get("classes") or {})
    missing = entry.get("missing") or 0
    total = sum(sizes.values()) + missing
    pairs = [*sizes.items(), *([("(missing)", missing)] if missing else [])]
    return [
        Line((name, str(group), count(size), percent(size / total if total else None, 1)))
        for group, size in pairs
    ]


def class_notes(findings: Findings) -> list[str]:
    """What was done to a column before it was measured, one sentence each."""
    described = dict(_items(findings.provenance.get("attributes")))
    label = findings.provenance.get("label")
    if isinstance(label, Mapping):
        described[str(label.get("name", "label"))] = label
    return [
        f"{name}: {note}" for name, entry in described.items() for note in entry.get("notes") or []
    ]


def others(findings: Findings) -> list[Table]:
    """Every kind of finding that has no section of its own, row by row."""
    kinds: dict[str, list[Finding]] = {}
    for row in findings:
        base = row.kind.removesuffix("-null").removesuffix("-reference")
        if base not in SHOWN_APART and row.metric not in SHOWN_METRICS.get(base, ()):
            kinds.setdefault(base, []).append(row)
    columns = ("target", "attacker", "metric", "value", "chance", "commonest class", "ceiling", "n")
    return [
        Table(kind_name(kind), columns, tuple(_any(row) for row in rows), words=3)
        for kind, rows in kinds.items()
    ]


def _any(row: Finding) -> Line:
    target = row.target + (f", {row.subgroup}" if row.subgroup else "")
    target += " (shuffled labels)" if row.kind.endswith("-null") else ""
    target += " (reference)" if row.kind.endswith("-reference") else ""
    bounds = (score(row.metric, value) for value in (row.chance, row.majority, row.ceiling))
    name = metric_name(row.metric)
    return Line((target, attacker_name(row.attacker), name, _scored(row), *bounds, count(row.n)))


def differences(before: Findings, after: Findings, names: tuple[str, str]) -> list[Table]:
    """Two runs side by side: leakage, task and fairness, with the difference in points."""
    wanted = {"kind": LEAK, "attacker": "strongest", "metric": PRIMARY}
    both = list(dict.fromkeys(targets(before, LEAK) + targets(after, LEAK)))
    leaks = [
        pair_line(name, first(before, target=name, **wanted), first(after, target=name, **wanted))
        for name in both
    ]
    jobs = list(dict.fromkeys(targets(before, "utility") + targets(after, "utility")))
    works = [
        pair_line(
            name,
            *(primary_task_row(run.select(kind="utility", target=name)) for run in (before, after)),
        )
        for name in jobs
    ]
    gaps = [(run.select(kind="fairness", metric="accuracy_gap")) for run in (before, after)]
    uneven = [
        pair_line(name, *(next((r for r in rows if r.subgroup == name), None) for rows in gaps))
        for name in dict.fromkeys(row.subgroup or row.target for rows in gaps for row in rows)
    ]
    columns = (*names, "difference in points", "intervals")
    tables = [
        _table(
            "Leakage: strongest attacker, balanced accuracy",
            ("attribute", *columns),
            leaks,
            "Less is better.",
        ),
        _table("Utility", ("task", *columns), works, "More is better."),
        _table(
            "Fairness: largest gap in accuracy", ("attribute", *columns), uneven, "Less is better."
        ),
    ]
    return [table for table in tables if table is not None]


def pair_line(name: str, before: Finding | None, after: Finding | None) -> Line:
    """One measurement of both runs, with the difference in points and whether it is sure."""
    shown = [NOTHING if row is None else _scored(row) for row in (before, after)]
    if before is None or after is None or before.metric != after.metric:
        return Line((name, *shown, NOTHING, NOTHING))
    change = after.value - before.value if known(before.value) and known(after.value) else None
    return Line((name, *shown, signed(change), _overlap(before, after)))


def _overlap(before: Finding, after: Finding) -> str:
    ends = (before.low, before.high, after.low, after.high)
    if any(end is None for end in ends):
        return NOTHING
    low_b, high_b, low_a, high_a = (float(end) for end in ends if end is not None)
    return "overlap" if low_a <= high_b and low_b <= high_a else "apart"


def _ordered(names: set[str], order: Sequence[str]) -> list[str]:
    places = {name: place for place, name in reversed(list(enumerate(order)))}
    return sorted(names, key=lambda name: (places.get(name, len(order)), name))


def _table(
    title: str, columns: tuple[str, ...], lines: Sequence[Line], note: str = "", words: int = 1
) -> Table | None:
    return Table(title, columns, tuple(lines), note, words) if lines else None
