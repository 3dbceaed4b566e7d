"""What a store has of a study's cells: their rows, what the claims come to, and what is missing.

Nothing here depends on when, where and in which order cells were measured, so that the same cells
make the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from capelet.files import writable_folder, write_whole
from capelet.findings import Findings
from capelet.studies.cell import canonical
from capelet.studies.claims import Ruling
from capelet.studies.documents import FAILS, HOLDS, UNTESTED
from capelet.studies.plan import PlannedCell, StudyPlan
from capelet.studies.rows import (
    CHOICE,
    FIELDS,
    Row,
    count_of,
    row_of,
    rows_of,
    single_class_targets,
)
from capelet.studies.store import Store

TABLE, PAGE = "table.json", "table.md"


@dataclass(frozen=True, eq=False)
class Collection:
    """A study as far as it is done."""

    plan: StudyPlan
    size: str
    cells: tuple[PlannedCell, ...]
    rows: tuple[Row, ...]
    rulings: tuple[Ruling, ...]
    failures: tuple[tuple[PlannedCell, str], ...]
    missing: int
    broken_cells: int = 0

    @classmethod
    def of(
        cls,
        plan: StudyPlan,
        size: str,
        cells: Sequence[PlannedCell],
        store: Store,
        guesses: bool = False,
    ) -> Collection:
        """What the store has of these cells; with `guesses`, rows carry those of their victims.

        `broken_cells` counts those whose noise does not keep the ε that it states.
        """
        rows: list[Row] = []
        failures: list[tuple[PlannedCell, str]] = []
        missing, broken_cells = 0, 0
        for item in cells:
            key = item.cell.key
            if key in store:
                findings = store.read(key)
                rows += _rows_of(item, findings, store.guesses(key) if guesses else None)
                broken_cells += (
                    findings.provenance.get("unseeded_guarantee", {}).get("status") == "broken"
                )
            elif (reason := store.failure(key)) is not None:
                failures.append((item, reason))
            else:
                missing += 1
        rulings = tuple(claim.rule(rows, size) for claim in plan.claims)
        contents = tuple(cells), tuple(rows), rulings, tuple(failures)
        return cls(plan, size, *contents, missing, broken_cells)

    @property
    def verdict(self) -> str:
        """Of the whole study: fails where one claim does, holds where all of them do."""
        verdicts = {item.verdict for item in self.rulings}
        if FAILS in verdicts:
            return FAILS
        return HOLDS if verdicts == {HOLDS} else UNTESTED

    @property
    def warning(self) -> str:
        """What a page must say of the noise before anybody reads its numbers; else nothing."""
        if not self.broken_cells:
            return ""
        cells = count_of(self.broken_cells, "cell")
        return f"Status broken: in {cells} the noise does not keep the ε that it states."

    def document(self) -> dict[str, Any]:
        """For machines: a line for each combination and measure, with its values by seed."""
        lines: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            about = {"axes": dict(row.axes), **{name: getattr(row, name) for name in FIELDS}}
            new = {**about, "chance": row.chance, "by_seed": {}, "degenerate": []}
            line = lines.setdefault(canonical(about), new)
            line["by_seed"][str(row.seed)] = row.value
            if row.degenerate:
                line["degenerate"].append(row.seed)
        for line in lines.values():
            line["mean"] = fmean(line["by_seed"].values())
        return {
            "schema": 1,
            "name": self.plan.name,
            "title": self.plan.title,
            "paper": self.plan.paper,
            "kind": self.plan.kind,
            "size": self.size,
            "cells": len(self.cells),
            "missing": self.missing,
            "broken": self.broken_cells,
            "exploratory": self.plan.exploratory,
            "failures": [
                {"axes": dict(item.axes), "seed": item.cell.seed, "reason": reason}
                for item, reason in self.failures
            ],
            "claims": [asdict(ruling) for ruling in self.rulings],
            "lines": list(lines.values()),
        }

    def save(self, folder: Path | str) -> Path:
        """Write `table.json` and `table.md`."""
        from capelet.reports.markdown import draw_markdown
        from capelet.studies.page import study_page

        target = writable_folder(folder)
        text = json.dumps(self.document(), indent=1, ensure_ascii=False, allow_nan=False)
        write_whole(target / TABLE, text + "\n")
        write_whole(target / PAGE, draw_markdown(study_page(self)))
        return target


def _rows_of(item: PlannedCell, findings: Findings, guesses: Any) -> list[Row]:
    """The chosen attacker's rows, and each attacker's own: as candidates, where one was chosen."""
    rows = rows_of(findings, item.axes, item.cell.seed, guesses)
    with_choice = {(row.kind, row.target) for row in rows}
    single = single_class_targets(findings)
    for row in findings:
        is_candidate = (row.kind, row.target) in with_choice
        # Subgroups of a task are of the chosen probe alone.
        if is_candidate and (row.attacker in CHOICE or row.subgroup is not None):
            continue
        attacker = {} if row.attacker in CHOICE else {"attacker": str(row.attacker)}
        # Deciles of words, repetitions of canaries, groups of people: what such findings are about.
        subgroup = {} if row.subgroup is None else {"subgroup": row.subgroup}
        axes = {**item.axes, **attacker, **subgroup}
        other = row_of(row, axes, item.cell.seed, row.target in single)
        rows.append(replace(other, candidate=is_candidate))
    # A class without victims has no score; JSON has no NaN, and a mean would become one.
    return [row for row in rows if math.isfinite(row.value)]
