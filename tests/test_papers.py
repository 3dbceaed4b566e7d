"""The plans of the papers: each can be read, has both sizes, and says what it claims."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from capelet.cli.commands import app
from capelet.data.datasets import DATASETS, is_available
from capelet.studies.plan import Plan

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


def sets_of(plan: Plan) -> set[str]:
    tables = (plan.axes, *plan.groups)
    names = {str(name) for axes in tables for name in axes.get("corpus", [])}
    views = {str(entry["set"]) for entry in plan.corpora.values() if "set" in entry}
    return (names | views) & set(DATASETS)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_plan_is_whole(path: Path) -> None:
    plan = Plan.read(path)
    assert plan.paper == path.parent.name and plan.name == path.stem
    assert plan.title and plan.headline and plan.claims and plan.tables
    assert 0 < plan.count("small") <= 20 and plan.count("small") < plan.count("full") <= 400
    missing = sorted(name for name in sets_of(plan) if not is_available(name))
    if missing:
        pytest.skip(f"{', '.join(missing)}: not here; CAPELET_DATA names the folder they lie in")
    for size in ("small", "full"):
        # Every name is known, and every corpus can be read.
        assert len(plan.cells(size)) >= plan.count(size)


def test_a_plan_with_a_specimen_says_broken_where_it_is_read_first() -> None:
    """The lesson of a wrong mechanism must not be taken for a protection by a reader of titles."""
    specimens = [path for path in PLANS if "specimen:" in path.read_text(encoding="utf-8")]
    assert [path.stem for path in specimens] == ["original-noise"]
    for path in specimens:
        plan = Plan.read(path)
        assert "broken" in plan.title and "broken" in plan.stand_ins


def test_papers_hold_plans_and_no_code() -> None:
    assert {path.suffix for path in PAPERS.rglob("*") if path.is_file()} == {".toml"}


def test_the_build_checks_at_least_eight_plans() -> None:
    names = {str(path.relative_to(PAPERS).with_suffix("")) for path in PLANS}
    assert set(CHECKED) <= names and len(CHECKED) >= 8


@pytest.mark.slow
def test_small_studies_come_to_what_the_plans_expect(tmp_path: Path) -> None:
    files = [PAPERS / f"{name}.toml" for name in CHECKED]
    missing = {
        item for file in files for item in sets_of(Plan.read(file)) if not is_available(item)
    }
    if missing or "CAPELET_DATA" not in os.environ:
        pytest.skip("the papers' data sets are not here; CAPELET_DATA names their folder")
    command = ["study", "check", *map(str, files), "--size", "small", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*command, "--workers", "2"])
    assert result.exit_code == 0, result.stdout + result.stderr
