"""The report as one self-contained HTML page: no network, no script, pictures inside.

User text (class names, attribute names, data names) reaches the page only through the templates'
escaping or through `svg.text`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from capelet.files import writable_folder, write_whole
from capelet.findings import Findings
from capelet.reports import (
    attack_tables,
    attacks,
    comparison,
    facts,
    figures,
    method,
    panels,
    sections,
    shift,
    tables,
)
from capelet.reports import verdicts as judged
from capelet.reports.markdown import render_markdown
from capelet.reports.words import attacker_name, count, percent


def render_html(findings: Findings, compared: Findings | None = None) -> str:
    """The page of one run or, with `compared`, of two runs side by side."""
    if compared is not None:
        content = _comparison(findings, compared)
        return templates().get_template("comparison.html").render(content)
    return templates().get_template("report.html").render(_single(findings))


def write_report(findings: Findings, folder: Path) -> Path:
    """Write `findings.json`, `artefacts/`, `report.md` and `report.html`; the page's path."""
    target = findings.save(folder)
    # What shows people's texts is for its owner only.
    mode = 0o600 if attacks.shows_texts(findings) else 0o644
    write_whole(target / "report.md", render_markdown(findings), mode=mode)
    page = target / "report.html"
    write_whole(page, render_html(findings), mode=mode)
    return page


def write_comparison(first: Findings, second: Findings, folder: Path) -> Path:
    """Write `comparison.md` and `comparison.html` of two runs; the page's path."""
    target = writable_folder(folder)
    write_whole(target / "comparison.md", render_markdown(first, second))
    page = target / "comparison.html"
    write_whole(page, render_html(first, second))
    return page


@lru_cache(maxsize=1)
def templates() -> Environment:
    """The templates, with the filters and the style that every page shares."""
    made = Environment(
        loader=PackageLoader("capelet.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["count"] = count
    made.filters["percent"] = percent
    made.filters["tied"] = tied
    made.filters["parted"] = parted
    source = PackageLoader("capelet.reports").get_source(made, "style.css")[0]
    made.globals["style"] = Markup(source)
    return made


def tied(sentence: str) -> str:
    """The sentence with each number tied to its per cent sign, so that no line parts them."""
    return re.sub(r"(\d) %", "\\1\u00a0%", sentence)


def parted(cell: str) -> tuple[str, str]:
    """A table's cell as value and interval: `78.4 % (76.0–80.6)` is two lines on the page."""
    found = re.fullmatch(r"(.+?) \(([−\d.,]+–[−\d.,]+)\)( constant)?", cell)
    return (found[1] + (found[3] or ""), found[2]) if found else (cell, "")


def _single(findings: Findings) -> dict[str, Any]:
    leaks = figures.leak_bars(findings)
    tasks = figures.task_bars(findings)
    groups = figures.group_bars(findings)
    cards = [(verdict, figures.meter(verdict)) for verdict in attacks.all_verdicts(findings)]
    return {
        "name": facts.name_of(findings),
        "headline": facts.headline(findings),
        "overall": attacks.whole(findings),
        "warnings": facts.warnings(findings),
        "unmeasured": judged.unmeasured(findings),
        "cards": cards,
        "access": method.access(findings),
        "needs": judged.needs(findings),
        "curves": _curves(findings),
        "curve_attacker": attacker_name(_artefact(findings, "learning_curve").get("attacker")),
        "leaks": rows_of(leaks, "Balanced accuracy of the strongest attacker, per attribute"),
        "tasks": rows_of(tasks, "Score of the task, from always naming the commonest class"),
        "task_sentences": judged.tasks(findings),
        "groups": rows_of(groups, "Accuracy of the task in each subgroup"),
        "gaps": judged.gaps(findings),
        "others": sections.sections(findings),
        "clouds": _clouds(findings),
        "tsne": _artefact(findings, "tsne"),
        "shift": shift.shift(findings),
        "caution": shift.CAUTION,
        "tables": _tables(findings),
        "class_notes": tables.class_notes(findings),
        "method": method.method(findings),
        "limits": method.limits(findings),
        "provenance": facts.provenance(findings),
        "command": facts.command(findings),
        "recipe": facts.recipe(findings),
    }


def _comparison(before: Findings, after: Findings) -> dict[str, Any]:
    names = facts.run_names(before, after)
    leaks, tasks = comparison.paired(before, after)
    runs = [
        {
            "name": name,
            "data": facts.name_of(run),
            "headline": facts.headline(run),
            "overall": attacks.whole(run),
            "verdicts": attacks.all_verdicts(run),
            "tasks": judged.tasks(run),
            "warnings": facts.warnings(run),
            "shift": shift.shift(run),
            "provenance": facts.provenance(run),
            "command": facts.command(run),
            "recipe": facts.recipe(run),
        }
        for name, run in zip(names, (before, after), strict=True)
    ]
    return {
        "runs": runs,
        "summary": comparison.summary(before, after),
        "changes": comparison.changes(before, after),
        "incomparable": facts.incomparable(before, after),
        "leaks": rows_of(leaks, "Balanced accuracy of the strongest attacker in both runs"),
        "tasks": rows_of(tasks, "Score of the task in both runs"),
        "others": sections.compared(before, after, names),
        "tables": [
            *tables.differences(before, after, names),
            *attacks.differences(before, after, names),
        ],
        "shift": shift.compared(before, after, names),
        "limits": method.limits(after)[:2],
    }


def rows_of(rows: list[figures.Bar], name: str) -> dict[str, Any] | None:
    """A picture of rows with its legend; None where there is nothing to draw."""
    if not rows:
        return None
    return {"picture": figures.bars(rows, name), "legend": figures.legend_of(rows)}


def _curves(findings: Findings) -> list[tuple[str, Markup]]:
    artefact = _artefact(findings, "learning_curve")
    full = {verdict.target: verdict.value for verdict in judged.verdicts(findings)}
    read = [
        panels.Curve.read(name, content or {}, full.get(name))
        for name, content in (artefact.get("curves") or {}).items()
    ]
    curves = [curve for curve in read if curve is not None]
    reach = panels.reach_of(curves) if curves else (0.0, 1.0)
    return [(curve.name, panels.curve_panel(curve, reach)) for curve in curves]


def _clouds(findings: Findings) -> list[panels.Cloud]:
    artefact = _artefact(findings, "tsne")
    points = artefact.get("points") or []
    clouds = [
        panels.cloud_panel(name, points, classes or [])
        for name, classes in (artefact.get("colours") or {}).items()
    ]
    return [cloud for cloud in clouds if cloud is not None]


def _tables(findings: Findings) -> list[tuple[str, list[tables.Table]]]:
    """The tables in groups; a group without tables is left out."""
    groups: list[tuple[str, list[tables.Table | None]]] = [
        ("Leakage and its controls", [tables.summary(findings)]),
        ("Every attacker, per attribute", [*tables.attack_tables(findings)]),
        ("The task", [*tables.task_tables(findings), tables.fairness(findings)]),
        ("Words, writers and training texts", [*attack_tables.attack_tables(findings)]),
        ("Other measurements", [*tables.others(findings)]),
        ("Learning curves", [tables.learning_curves(findings)]),
        ("Classes", [tables.classes(findings)]),
    ]
    kept = [(title, [item for item in found if item is not None]) for title, found in groups]
    return [(title, found) for title, found in kept if found]


def _artefact(findings: Findings, name: str) -> Mapping[str, Any]:
    content = findings.artefacts.get(name)
    return content if isinstance(content, Mapping) else {}
