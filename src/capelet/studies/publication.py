"""A finished study as the file that may be committed: rows, paired differences, and verdicts.

The victims' guesses are used here, for differences on the same people, and go no further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capelet.errors import DataError, OutputError
from capelet.studies.collection import Collection
from capelet.studies.comparisons import (
    Comparison,
    Difference,
    adjust,
    compare_splits,
    compare_victims,
)
from capelet.studies.documents import count_verdicts
from capelet.studies.plan import PlannedCell, StudyPlan
from capelet.studies.results import Origin, Result
from capelet.studies.rows import Level, Row, count_of, pick
from capelet.studies.store import Store
from capelet.studies.sweeps import MatchedComparison, MatchedDifference, Sweep, compare_at_utility
from capelet.studies.tables import join_levels


def publish(plan: StudyPlan, size: str, cells: Sequence[PlannedCell], store: Store) -> Result:
    """The study as a result; refused while cells are missing."""
    study = Collection.of(plan, size, cells, store, guesses=True)
    if study.missing or study.failures:
        # Two papers may have plans of one name.
        name = f"{plan.paper}/{plan.name}" if plan.paper else plan.name
        raise OutputError(
            f"the study {name!r} is not whole: {study.missing} cells are missing and "
            f"{len(study.failures)} failed; run it first"
        )
    if not plan.tables:
        raise OutputError(f"the plan {plan.name!r} has no [[tables]], so there is nothing to show")
    metas = [store.meta(item.cell.key) for item in cells]
    origin = Origin(
        date=max(meta.date for meta in metas)[:10],
        seeds=tuple(sorted({item.cell.seed for item in cells})),
        seconds=round(sum(meta.seconds for meta in metas), 1),
        size=size,
        stand_ins=plan.stand_ins,
    )
    matched, gaps = _at_utility(study.rows, plan)
    return Result(
        plan.paper,
        plan.name,
        plan.title or plan.name,
        plan.headline,
        study.verdict,
        " ".join([_why(study), *gaps]),
        origin,
        tuple(_rows_on_page(study.rows, plan)),
        plan.tables,
        plan.blocks,
        plan.analyses,
        _differences(study.rows, plan),
        matched,
        claims=study.rulings,
        exploratory=plan.exploratory,
    )


def _why(study: Collection) -> str:
    words = count_verdicts([item.verdict for item in study.rulings])
    claims = count_of(len(study.rulings), "claim")
    outcome = f"Of {claims}: {words}." if words else "No claim is checked."
    return f"{outcome} {study.warning}".rstrip()


def _rows_on_page(rows: Sequence[Row], plan: StudyPlan) -> list[Row]:
    """The rows that the page's tables and analyses are made of."""
    selections = [layout.rows_of(rows) for layout in plan.tables]
    selections += [pick(rows, **analysis.where) for analysis in plan.analyses]
    identities = {id(row) for selection in selections for row in selection}
    return [row for row in rows if id(row) in identities]


def _differences(rows: Sequence[Row], plan: StudyPlan) -> tuple[Difference, ...]:
    """With Holm's adjustment: several are looked at together."""
    items = [_difference(rows, item, plan.blocks) for item in plan.differences]
    return adjust(items) if items else ()


def _at_utility(
    rows: Sequence[Row], plan: StudyPlan
) -> tuple[tuple[MatchedDifference, ...], list[str]]:
    """The comparisons at equal utility, and why some could not be made."""
    results, gaps = [], []
    for item in plan.matched:
        first, second = (_sweep(rows, item, side) for side in (item.first, item.second))
        try:
            results.append(compare_at_utility(first, second, item.at, plan.blocks))
        except DataError as error:
            # That no setting of one reaches the other's task score is a result, not a fault.
            gaps.append(
                f"At equal utility {first.name} and {second.name} cannot be compared: {error}."
            )
    return tuple(results), gaps


def _sweep(rows: Sequence[Row], item: MatchedComparison, side: Mapping[str, Level]) -> Sweep:
    measures = (pick(rows, **measure, **side) for measure in (item.utility, item.leakage))
    return Sweep(join_levels(side), item.axis, *measures)


def _difference(rows: Sequence[Row], item: Comparison, blocks: Sequence[str]) -> Difference:
    first, second = (pick(rows, **item.where, **side) for side in (item.first, item.second))
    # Kinds without guesses by victim are compared by split.
    has_guesses = all(row.guesses is not None for row in (*first, *second))
    compare = compare_victims if has_guesses and first and second else compare_splits
    return compare(first, second, blocks)
