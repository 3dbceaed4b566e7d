"""`capelet study`: measure a plan's cells, say how far it is, and check what plans expect."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from capelet.cli.doors import Json
from capelet.cli.terminal import answer, echo, print_json, progress_bars
from capelet.errors import CapeletError
from capelet.question import Machines, StudyFolders

if TYPE_CHECKING:
    from capelet.studies.claims import Ruling
    from capelet.studies.collection import Collection
    from capelet.studies.plan import PlannedCell, StudyPlan
    from capelet.studies.run import Counts


def run(
    plan: Annotated[Path, "A plan: a TOML file."],
    /,
    *,
    folders: StudyFolders,
    machines: Machines,
    retry: Annotated[bool, "Measure cells again that failed before."] = False,
    dry_run: Annotated[bool, "Say what would be measured and how long it would take."] = False,
    yes: Annotated[bool, "Allow more than 100,000 cells."] = False,
    json: Json = False,
) -> None:
    """Measure every cell of a plan that is not stored yet, and write its table.

    A run that was killed goes on where it was; cells that are stored are not measured again.

    Example: `capelet study run papers/yawyw/strategies.toml --size small --workers 2
    --out runs/strategies`
    """
    from capelet.files import check_writable
    from capelet.studies.plan import StudyPlan

    study, size = StudyPlan.read(plan), folders.size or "full"
    folder = folders.out or Path("runs") / f"{study.name}-{size}"
    place = folders.cells or folder / "store"
    check_writable(place)
    planned = study.cells(size, yes)
    if dry_run:
        _print_estimate(study, planned, place, machines.workers, json)
        return
    results, counts = _measure(study, size, planned, place, folder, machines, retry, json)
    if json:
        print_json(_summary(results, counts, folder))
        return
    _print_counts(counts)
    _print_rulings(results.rulings)
    _print_failures(results)
    echo(f"table: {folder / 'table.md'}")


def status(
    folder: Annotated[Path, "A folder that `capelet study` wrote."],
    /,
    *,
    json: Json = False,
) -> None:
    """Say how far a study is: cells stored, at work, failed with their reasons, and missing.

    Example: `capelet study status runs/strategies`
    """
    from capelet.studies.status import Status

    state = Status.read(folder)
    if json:
        print_json({**asdict(state), "missing": state.missing})
        return
    echo(
        f"{state.name} ({state.size}): {state.stored_cells:,} of {state.cells:,} cells are stored, "
        f"{state.running:,} at work, {state.missing - state.running:,} waiting, "
        f"{len(state.failures):,} failed"
    )
    for reason in dict.fromkeys(state.failures):
        echo(f"failed, {state.failures.count(reason)} times: {reason}")
    if state.missing and state.seconds_left is not None:
        echo(f"time left: about {_duration(state.seconds_left)}")


def check(
    plans: Annotated[list[Path], "Plans, or folders of plans."],
    /,
    *,
    folders: StudyFolders,
    machines: Machines,
    json: Json = False,
) -> None:
    """Run plans and compare what their claims come to with what they expect.

    Exit code 1 where a verdict is another than expected, or a cell failed.

    Example: `capelet study check papers --size small --out runs/papers`
    """
    from capelet.studies.plan import StudyPlan

    files, size = _plan_files(plans), folders.size or "small"
    # All of them before the first one runs: a slip in the last must not cost an hour.
    studies = [(file, StudyPlan.read(file)) for file in files]
    planned = {file: study.cells(size) for file, study in studies}
    base = folders.out or Path("runs") / "papers"
    # One store for all: unprotected cells are shared between plans.
    place = folders.cells or base / "store"
    surprises = 0
    summaries = []
    for file, study in studies:
        folder = base / file.parent.name / study.name
        results, counts = _measure(study, size, planned[file], place, folder, machines, True, json)
        surprises += sum(item.surprising for item in results.rulings) + len(results.failures)
        summaries.append(_summary(results, counts, folder))
        if not json:
            echo(f"{file}: {counts.measurements} measured, {counts.hits} stored")
            _print_rulings(results.rulings)
            _print_failures(results)
    if json:
        print_json(summaries)
    if surprises:
        raise SystemExit(1)


def results(
    plans: Annotated[
        list[Path] | None, "Plans, or folders of plans; without any all pages are drawn again."
    ] = None,
    /,
    *,
    folders: StudyFolders,
    to: Annotated[Path, "Folder of the pages of results."] = Path("docs/results"),
    json: Json = False,
) -> None:
    """Put finished studies among the pages of results: their rows and differences, no guesses.

    Of several plans those that are whole are put there, and the others named. Without plans all
    pages are drawn again from their files.

    Example: `capelet study results papers --out runs/papers --to docs/results`
    """
    from capelet.errors import OutputError
    from capelet.files import check_writable
    from capelet.studies.plan import StudyPlan
    from capelet.studies.publication import publish
    from capelet.studies.result_pages import write_results
    from capelet.studies.store import ABOUT, Store

    check_writable(to)
    if not plans:
        files = [str(path) for path in write_results(to)]
        summary = {"verdicts": {}, "gaps": [], "files": files}
        answer(json, summary, f"{len(files)} files drawn again in {to}")
        return
    studies, size = [StudyPlan.read(file) for file in _plan_files(plans)], folders.size or "full"
    # One plan has the folder of its run; several have the store that a check of them shares.
    base = Path("runs") / (f"{studies[0].name}-{size}" if len(studies) == 1 else "papers")
    place = folders.cells or (folders.out or base) / "store"
    if not (place / ABOUT).is_file():
        raise CapeletError(
            f"there are no cells in {str(place)!r}; run the study first, or name --cells"
        )
    outcomes, gaps = [], []
    for study in studies:
        try:
            outcomes.append(publish(study, size, study.cells(size, many=True), Store(place)))
        except OutputError as error:
            gaps.append(error)
    # Nothing to show is an error; of many plans some may still be waiting.
    if not outcomes:
        raise gaps[0]
    paths = write_results(to, outcomes)
    if json:
        verdicts = {result.name: result.verdict for result in outcomes}
        files = [str(path) for path in paths]
        single = {"verdict": outcomes[0].verdict} if len(studies) == 1 else {}
        print_json(
            {**single, "verdicts": verdicts, "gaps": [str(gap) for gap in gaps], "files": files}
        )
        return
    for result in outcomes:
        echo(f"[{result.verdict}] {result.why} page: {to / f'{result.name}.md'}")
    for gap in gaps:
        echo(f"left out: {gap}")


def _plan_files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        some = sorted(path.rglob("*.toml")) if path.is_dir() else [path]
        if not some:
            raise CapeletError(f"there is no plan in {str(path)!r}; give TOML files or a folder")
        files += some
    return files


def _measure(
    plan: StudyPlan,
    size: str,
    cells: Sequence[PlannedCell],
    place: Path,
    folder: Path,
    machines: Machines,
    retry: bool,
    quiet: bool,
) -> tuple[Collection, Counts]:
    from capelet.engines import engine_of
    from capelet.studies.cell import compute
    from capelet.studies.run import run_cells
    from capelet.studies.status import write_study
    from capelet.studies.store import Store

    # Before anything is written: there may be no such cluster.
    engine = engine_of(machines.engine or "local", compute, machines.workers, machines.address)
    store = Store(place)
    write_study(folder, plan, size, cells, store)
    with progress_bars(quiet) as progress:
        results, counts = run_cells(
            plan, size, cells, store, engine, retry=retry, progress=progress
        )
    results.save(folder)
    return results, counts


def _print_estimate(
    plan: StudyPlan, cells: Sequence[PlannedCell], place: Path, workers: int | None, as_json: bool
) -> None:
    """What a run would do; nothing is written."""
    from capelet.engines import core_count
    from capelet.studies.run import estimate
    from capelet.studies.store import ABOUT, Store

    missing = list(cells)
    seconds, unknown = 0.0, len(missing)
    if (place / ABOUT).is_file():
        store = Store(place)
        missing = [item for item in cells if item.cell.key not in store]
        seconds, unknown = estimate(store, [item.cell for item in missing])
    abreast = workers or core_count()
    # A cell whose like was never measured counts as the mean of the others.
    known = len(missing) - unknown
    whole = None if not known else seconds * len(missing) / known / abreast
    if as_json:
        lines = [{"axes": dict(i.axes), "seed": i.cell.seed, "key": i.cell.key} for i in missing]
        print_json(
            {"cells": len(cells), "missing": len(missing), "seconds": whole, "to_measure": lines}
        )
        return
    for item in missing:
        axes = ", ".join(f"{name} {value}" for name, value in item.axes.items())
        echo(f"{item.cell.key[:12]}  {axes}, seed {item.cell.seed}")
    time_sentence = (
        "no cell like these was measured yet, so how long it takes is not known"
        if whole is None
        else f"about {_duration(whole)} with {abreast} at once"
    )
    echo(
        f"{plan.name}: {len(cells):,} cells, {len(cells) - len(missing):,} stored, "
        f"{len(missing):,} to measure" + (f"; {time_sentence}" if missing else "")
    )


def _print_counts(counts: Counts) -> None:
    echo(f"{counts.measurements:,} cells measured, {counts.hits:,} were stored already")


def _print_rulings(rulings: Iterable[Ruling]) -> None:
    from capelet.studies.statistic_tables import estimate

    for item in rulings:
        figure = "" if item.value is None else f": {estimate(item)}"
        why = f" ({item.why})" if item.why else ""
        surprise = f"; expected: {item.expected}" if item.surprising else ""
        echo(f"[{item.verdict}] {item.text}{figure}{why}{surprise}")


def _print_failures(results: Collection) -> None:
    if not results.failures:
        return
    reasons = [reason for _, reason in results.failures]
    for reason in dict.fromkeys(reasons):
        echo(f"capelet: {reasons.count(reason)} cells failed: {reason}", file=sys.stderr)
    echo("capelet: --retry measures them again", file=sys.stderr)


def _summary(results: Collection, counts: Counts, folder: Path) -> dict[str, Any]:
    return {
        "study": results.plan.name,
        "size": results.size,
        "table": str(folder / "table.json"),
        "cells": len(results.cells),
        "measured": counts.measurements,
        "stored": counts.hits,
        "failed": len(results.failures),
        "claims": [{**asdict(item), "surprising": item.surprising} for item in results.rulings],
    }


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
