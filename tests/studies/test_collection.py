"""Rows of a study: groups and clouds have an axis of their own, and broken noise is named first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from capelet.findings import Finding, Findings
from capelet.privacy.guarantees import Guarantee
from capelet.reports.markdown import draw_markdown
from capelet.studies.cell import Measurement
from capelet.studies.claims import HOLDS, Claim
from capelet.studies.collection import Collection
from capelet.studies.documents import read_entry
from capelet.studies.page import study_page
from capelet.studies.plan import StudyPlan
from capelet.studies.publication import publish
from capelet.studies.store import Store

pytest.importorskip("wordllama", reason="the extra words is not installed")
Make = Callable[..., StudyPlan]
AXES = {"corpus": ["tiny"], "seed": [0, 1], "method": ["ldp"], "epsilon": [1]}
WHERE = {"kind": "utility", "metric": "accuracy"}
TABLES = [{"title": "Task", "down": "method", "across": "target", "where": WHERE}]


def markdown_page(study: Collection) -> str:
    return draw_markdown(study_page(study))


def write_store(study: StudyPlan, folder: Path, status: str | None = None) -> Store:
    """A store with made-up findings; the noise of protected cells has this status."""
    store = Store(folder)
    for item in study.cells():
        rows = [
            Finding("utility", "topic", "accuracy", 0.7, attacker="strongest"),
            *(
                Finding("fairness", "topic", metric, value, attacker="strongest", subgroup=group)
                for metric, value, group in (
                    # Not quite the same on all splits: else the difference would have no spread.
                    ("accuracy", 0.75 + item.cell.seed / 1000, "gender=f"),
                    ("accuracy", 0.65, "gender=m"),
                    ("accuracy_gap", 0.1, "gender"),
                )
            ),
            # A decile of an attack that has a whole beside it is no row of its own.
            Finding("utility", "topic", "accuracy", 0.1, attacker="strongest", subgroup="decile 1"),
        ]
        provenance = {}
        if status is not None and item.cell.kind == "protect":
            provenance = {"unseeded_guarantee": Guarantee(1.0, status=status).to_json()}  # type: ignore[arg-type]
        store.write(item.cell, Measurement(Findings(tuple(rows), provenance)), 1.0)
    return store


def test_groups_of_people_are_rows_with_a_subgroup(plan: Make, tmp_path: Path) -> None:
    study = plan(axes=AXES, tables=TABLES)
    cells = study.cells()
    collection = Collection.of(study, "full", cells, write_store(study, tmp_path / "store"))
    fair = [row for row in collection.rows if row.kind == "fairness"]
    groups = {row.axes["subgroup"] for row in fair}
    assert groups == {"gender=f", "gender=m", "gender"} and len(fair) == 3 * len(cells)
    assert not any("attacker" in row.axes for row in fair)
    assert {row.value for row in collection.rows if row.kind == "utility"} == {0.7}
    claim = read_entry(
        Claim,
        {
            "text": "women are served better",
            "of": {"subgroup": "gender=f"},
            "than": {"subgroup": "gender=m"},
            "measure": {"kind": "fairness", "target": "topic", "metric": "accuracy"},
            "relation": "higher",
            "margin": 0.05,
        },
        "claims",
    )
    ruling = claim.rule(collection.rows)
    assert ruling.verdict == HOLDS and ruling.value == pytest.approx(0.1, abs=0.002)
    page = markdown_page(collection)
    assert "topic accuracy gap (gender)" in page


def test_a_page_begins_with_noise_that_is_broken(plan: Make, tmp_path: Path) -> None:
    study = plan(axes=AXES, tables=TABLES)
    cells = study.cells()
    sentence = "Status broken: in 2 cells the noise does not keep the ε that it states."
    broken = write_store(study, tmp_path / "broken", "broken")
    collection = Collection.of(study, "full", cells, broken)
    assert collection.broken_cells == 2 and collection.document()["broken"] == 2
    page = markdown_page(collection)
    assert sentence in page and page.index(sentence) < page.index("| ")
    assert sentence in publish(study, "full", cells, broken).why
    # The control: noise that keeps its word is not mentioned.
    sound = write_store(study, tmp_path / "sound", "proven")
    assert "broken" not in markdown_page(Collection.of(study, "full", cells, sound))
    assert "broken" not in publish(study, "full", cells, sound).why


def test_a_cell_whose_victims_are_of_one_class_is_marked_without_being_measured_again(
    plan: Make, tmp_path: Path
) -> None:
    """What a store of an earlier day holds tells of it; each attacker by itself is marked, too."""
    study = plan(axes=AXES, tables=TABLES)
    store = Store(tmp_path / "store")
    for item in study.cells():
        share = 1.0 if item.cell.seed == 0 else 0.6
        rows = [
            Finding("utility", "topic", "accuracy", 0.7, majority=share, attacker=attacker)
            for attacker in ("strongest", "logistic")
        ]
        store.write(item.cell, Measurement(Findings(tuple(rows))), 1.0)
    collection = Collection.of(study, "full", study.cells(), store)
    assert {row.candidate for row in collection.rows} == {True, False}
    for row in collection.rows:
        assert row.single_class == row.degenerate == (row.seed == 0)
    assert "2 degenerate cells left out (victims of one class)" in markdown_page(collection)


def test_what_had_been_seen_goes_from_the_plan_to_the_page_and_the_result(
    plan: Make, tmp_path: Path
) -> None:
    sentence = "Split 0 had been seen."
    study = plan(axes=AXES, tables=TABLES, exploratory=sentence)
    store, cells = write_store(study, tmp_path / "store"), study.cells()
    collection = Collection.of(study, "full", cells, store)
    assert f"**Exploratory:** {sentence}" in markdown_page(collection)
    assert collection.document()["exploratory"] == sentence
    assert publish(study, "full", cells, store).exploratory == sentence
    # The control: the same cells, of which nothing had been seen.
    other = plan(axes=AXES, tables=TABLES)
    assert [item.cell.key for item in other.cells()] == [item.cell.key for item in cells]
    assert "xploratory" not in markdown_page(Collection.of(other, "full", cells, store))


def test_a_table_without_rows_is_not_drawn(plan: Make, tmp_path: Path) -> None:
    empty = {**TABLES[0], "title": "Another", "where": {**WHERE, "method": "cape"}}
    study = plan(axes=AXES, tables=[*TABLES, empty])
    store = write_store(study, tmp_path / "store")
    page = markdown_page(Collection.of(study, "full", study.cells(), store))
    assert "**Task**" in page and "Another" not in page
