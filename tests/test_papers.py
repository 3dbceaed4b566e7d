"""The plans of the papers: each can be read, has both sizes, and says what it claims."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from random import Random
from statistics import fmean

import numpy as np
import pytest

from capelet.cli.commands import app
from capelet.data.datasets import DATASETS, is_available
from capelet.findings import Finding, Findings
from capelet.reports.markdown import draw_markdown
from capelet.studies.cell import Measurement, VictimGuesses, canonical
from capelet.studies.page import result_page
from capelet.studies.plan import PlannedCell, StudyPlan
from capelet.studies.publication import publish
from capelet.studies.results import Result
from capelet.studies.rows import Row, pick
from capelet.studies.statistics import anova
from capelet.studies.store import Store
from capelet.studies.tables import join_levels, tabulate
from terminal import CliRunner

PAPERS = Path(__file__).parents[1] / "papers"
PLANS = sorted(PAPERS.rglob("*.toml"))
# What the build checks at the small size; the others take longer.
CHECKED = [
    "cape/strategies",
    "dpnr/dropout",
    "dpnr/epsilon",
    "dpnr/strategies",
    "leakage/authorship",
    "leakage/inversion",
    "privreg/exposure",
    "yawyw/attacker-size",
    "yawyw/encoders",
    "yawyw/strategies",
]


def sets_of(plan: StudyPlan) -> set[str]:
    tables = (plan.axes, *plan.groups)
    names = {str(name) for axes in tables for name in axes.get("corpus", [])}
    views = {str(entry["set"]) for entry in plan.corpora.values() if "set" in entry}
    return (names | views) & set(DATASETS)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_plan_is_whole(path: Path) -> None:
    plan = StudyPlan.read(path)
    assert plan.paper == path.parent.name and plan.name == path.stem
    assert plan.title and plan.headline and plan.claims and plan.tables
    assert 0 < plan.count("small") <= 20 and plan.count("small") < plan.count("full") <= 400
    missing = sorted(name for name in sets_of(plan) if not is_available(name))
    if missing:
        pytest.skip(f"{', '.join(missing)}: not here; CAPELET_DATA names the folder they lie in")
    for size in ("small", "full"):
        # Every name is known, and every corpus can be read.
        assert len(plan.cells(size)) >= plan.count(size)


_QUANTITY = re.compile(r"\d|half|halves|quarter|third|tenth|point|at chance|at one perplexity")


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_claim_with_a_margin_says_how_much(path: Path) -> None:
    """Else a page has "more" beside a difference that is all above zero, and no verdict."""
    for claim in StudyPlan.read(path).claims:
        if claim.margin or claim.band:
            assert _QUANTITY.search(claim.text), claim.text


def test_a_plan_with_a_specimen_says_broken_where_it_is_read_first() -> None:
    """The lesson of a wrong mechanism must not be taken for a protection by a reader of titles."""
    specimens = [path for path in PLANS if "specimen:" in path.read_text(encoding="utf-8")]
    assert [path.stem for path in specimens] == ["original-noise"]
    for path in specimens:
        plan = StudyPlan.read(path)
        assert "broken" in plan.title and "broken" in plan.stand_ins


def invented_rows(plan: StudyPlan, size: str) -> list[Row]:
    """Rows as the cells of a plan would have them, of all that its tables and analyses name."""
    rows: dict[str, Row] = {}
    random = Random(0)
    selections = [(layout.where, {*layout.axes_down, layout.across}) for layout in plan.tables]
    selections += [(item.where, {"target", *item.factors}) for item in plan.analyses]
    for item, (where, axes) in itertools.product(plan.cells(size), selections):
        if any(item.axes.get(name, level) != level for name, level in where.items()):
            continue
        kind = str(where.get("kind", "utility"))
        has_secrets = kind == "attribute-inference"
        # Whatever a table leaves open is there more than once: a second secret, a second metric.
        targets = dict.fromkeys([str(where.get("target", "one")), *["two"] * has_secrets])
        metrics = dict.fromkeys([str(where.get("metric", "accuracy")), "f1_macro"])
        names = [name for name in ("attacker", "subgroup") if name in axes or name in where]
        # Attacks that are an axis are each an attacker by that name.
        other = item.axes.get("attacks", "x")
        more = {name: where.get(name, other) for name in names if name not in item.axes}
        for target, metric in itertools.product(targets, metrics):
            row = Row(
                {**item.axes, **more}, item.cell.seed, kind, target, metric, random.random(),
                candidate=has_secrets and "attacker" in more,
            )  # fmt: skip
            rows[canonical([dict(row.axes), row.seed, kind, target, metric])] = row
    return list(rows.values())


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_tables_of_a_plan_can_be_drawn(path: Path) -> None:
    """A table that mixes two encoders is refused; better before a night of computing than after."""
    plan = StudyPlan.read(path)
    if any(not is_available(name) for name in sets_of(plan)):
        pytest.skip("its data sets are not here; CAPELET_DATA names their folder")
    for size in ("small", "full"):
        rows = invented_rows(plan, size)
        tables = [tabulate(rows, layout, plan.blocks) for layout in plan.tables]
        # At the full size no table stays empty; a small one may leave the level of a table out.
        assert any(table.rows for table in tables)
        assert size == "small" or all(table.rows for table in tables)
        if size == "full":
            for item in plan.analyses:
                anova(pick(rows, **item.where), item.factors, item.blocks)


def invented_measurement(
    plan: StudyPlan, item: PlannedCell, random: np.random.Generator
) -> Measurement:
    """Guesses of victims whose task score rises along the axis of a comparison at equal utility."""
    findings: list[Finding] = []
    guesses: list[VictimGuesses] = []
    people = np.arange(300)
    for entry, measure in itertools.product(plan.matched, ("utility", "leakage")):
        where = getattr(entry, measure)
        kind, target, metric = (str(where[name]) for name in ("kind", "target", "metric"))
        if any((row.kind, row.target) == (kind, target) for row in findings):
            continue
        levels = [values[entry.axis] for values in plan.combinations("small")]
        is_low = item.axes.get(entry.axis, max(levels)) == min(levels)
        is_single = entry.axis in entry.first
        is_first = all(item.axes.get(name) == level for name, level in entry.first.items())
        # A first side of one setting lies between the ends of the second.
        share = 0.5 if is_single and is_first else 0.3 if is_low else 0.7
        truth = people % 2
        guess = np.where(random.random(len(people)) < share, truth, 1 - truth)
        recalls = [float(np.mean(guess[truth == code] == code)) for code in (0, 1)]
        score = float(np.mean(guess == truth)) if metric == "accuracy" else fmean(recalls)
        findings.append(Finding(kind, target, metric, score, attacker="strongest"))
        codes = (truth.astype(np.int16), guess.astype(np.int16))
        guesses.append(VictimGuesses(kind, target, people, people, *codes))
    return Measurement(Findings(tuple(findings)), tuple(guesses))


@pytest.mark.parametrize("name", ["yawyw/epsilon-lambda", "yawyw/dimension"])
def test_the_page_of_a_plan_compares_at_equal_utility(name: str, tmp_path: Path) -> None:
    """Else a slip in [[matched]] would be a sentence on a page, after a night of computing."""
    plan = StudyPlan.read(PAPERS / f"{name}.toml")
    assert plan.matched
    if any(not is_available(item) for item in sets_of(plan)):
        pytest.skip("its data sets are not here; CAPELET_DATA names their folder")
    cells, store, random = plan.cells("small"), Store(tmp_path), np.random.default_rng(0)
    for item in cells:
        store.write(item.cell, invented_measurement(plan, item, random), 1.0)
    result = publish(plan, "small", cells, store)
    assert "cannot be compared" not in result.why
    wishes = [item.leakage["target"] for item in plan.matched]
    assert [item.target for item in result.at_utility] == wishes
    # Every person is resampled, whatever the number of splits.
    assert all((item.unit, item.n) == ("author", 300) for item in result.at_utility)
    page = draw_markdown(result_page(Result.parse(result.to_json(), "x.json")))
    first, second = (join_levels(getattr(plan.matched[0], side)) for side in ("first", "second"))
    assert "**At equal utility**" in page and page.count(f"| {first} | {second} |") == len(wishes)
    # The control: without the second method nothing can be compared, and the page says so.
    others = [item for item in cells if item.axes.get("method") != plan.matched[0].second["method"]]
    gap = publish(plan, "small", others, store)
    assert not gap.at_utility and gap.why.count("cannot be compared") == len(wishes)


def test_papers_hold_plans_and_no_code() -> None:
    assert {path.suffix for path in PAPERS.rglob("*") if path.is_file()} == {".toml"}


def test_the_build_checks_at_least_eight_plans() -> None:
    names = {str(path.relative_to(PAPERS).with_suffix("")) for path in PLANS}
    assert set(CHECKED) <= names and len(CHECKED) >= 8


@pytest.mark.slow
def test_small_studies_come_to_what_the_plans_expect(tmp_path: Path) -> None:
    files = [PAPERS / f"{name}.toml" for name in CHECKED]
    missing = {
        item for file in files for item in sets_of(StudyPlan.read(file)) if not is_available(item)
    }
    if missing or "CAPELET_DATA" not in os.environ:
        pytest.skip("the papers' data sets are not here; CAPELET_DATA names their folder")
    command = ["study", "check", *map(str, files), "--size", "small", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*command, "--workers", "2"])
    assert result.exit_code == 0, result.stdout + result.stderr
