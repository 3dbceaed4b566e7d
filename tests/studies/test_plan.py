"""Plans: every slip is refused before anything runs; equal inputs are one cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capelet.errors import CapeletError
from capelet.studies.cell import Cell, canonical
from capelet.studies.plan import UNPROTECTED, StudyPlan

pytest.importorskip("wordllama", reason="the extra words is not installed")
Make = Callable[..., StudyPlan]


def test_cells_are_all_combinations_and_share_what_is_unprotected(plan: Make) -> None:
    study = plan(axes={"corpus": ["tiny"], "seed": [0, 1], "method": ["leace", "fx", "gr"]})
    cells = study.cells()
    assert study.count() == 6
    methods = [item.axes["method"] for item in cells]
    # Three methods of a split have one cell before them, not three.
    assert methods.count(UNPROTECTED) == 2 and len(cells) == 6 + 2
    assert len({item.cell.key for item in cells}) == len(cells)
    before = next(item for item in cells if item.axes["method"] == UNPROTECTED)
    audit = StudyPlan.of({**_raw(study), "kind": "audit"}, folder=study.folder)
    # It is the very cell that a study of releases has for the raw one.
    assert before.cell.key in {item.cell.key for item in audit.cells()}


def _raw(study: StudyPlan) -> dict[str, Any]:
    settings = {key: study.settings[key] for key in ("encoder", "attackers")}
    return {
        "axes": {"corpus": ["tiny"], "seed": [0, 1], "release": ["raw"]},
        "settings": settings,
        "corpora": study.corpora,
    }


def test_groups_stand_beside_each_other(plan: Make) -> None:
    groups = [{"method": ["fx", "gr"]}, {"method": ["ldp"], "epsilon": [1, 8, 64]}]
    study = plan(axes={"corpus": ["tiny"], "seed": [0], "group": groups})
    assert study.count() == 2 + 3
    assert [c.get("epsilon") for c in study.combinations()] == [None, None, 1, 8, 64]


def test_a_size_takes_some_values_and_fewer_rows(plan: Make) -> None:
    study = plan(
        axes={"corpus": ["tiny"], "seed": [0, 1, 2], "method": ["leace", "fx"]},
        sizes={"small": {"rows": 100, "seed": [7], "method": ["fx"]}, "full": {}},
    )
    assert study.count("small") == 1 and study.count("full") == 6
    (only,) = study.combinations("small")
    assert (only["rows"], only["seed"], only["method"]) == (100, 7, "fx")


def test_a_key_depends_on_the_content_and_not_on_the_spelling(
    plan: Make, document: Callable[..., dict[str, Any]], tiny_texts: Path, tmp_path: Path
) -> None:
    def key(axes: dict[str, Any], **parts: Any) -> str:
        return plan(axes={"corpus": ["tiny"], "seed": [0], **axes}, **parts).cells()[-1].cell.key

    first = key({"method": ["ldp"], "epsilon": [8]})
    assert first == key({"epsilon": [8.0], "method": ["ldp"]})
    assert first != key({"method": ["ldp"], "epsilon": [9]})
    # The same file elsewhere is the same corpus; one other word makes it another.
    copy = tmp_path / "copy.csv"
    copy.write_text(tiny_texts.read_text())
    corpora = document()["corpora"]
    moved = {"tiny": {**corpora["tiny"], "file": str(copy)}}
    assert first == key({"method": ["ldp"], "epsilon": [8]}, corpora=moved)
    changed = tmp_path / "changed.csv"
    changed.write_text(tiny_texts.read_text().replace("number0", "number000"))
    other = {"tiny": {**corpora["tiny"], "file": str(changed)}}
    assert first != key({"method": ["ldp"], "epsilon": [8]}, corpora=other)


def test_the_version_of_a_kind_is_part_of_the_key(
    plan: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from capelet.studies import kinds

    before = plan().cells()[-1].cell.key
    record = kinds.KINDS["protect"]
    monkeypatch.setitem(kinds.KINDS, "protect", replace(record, version=record.version + 1))
    assert plan().cells()[-1].cell.key != before


AXES = {"corpus": ["tiny"], "seed": [0]}
LAPLACE = {"step": "laplace", "epsilon": 1.0}


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"axes": {**AXES, "method": ["leaze"]}}, "did you mean 'leace'"),
        ({"axes": {**AXES, "method": ["fx"], "encoder": ["wordlama"]}}, "did you mean 'wordllama'"),
        ({"axes": {"corpus": ["revews"], "method": ["fx"]}}, "did you mean 'reviews'"),
        ({"axes": {**AXES, "method": ["fx"], "attackers": [["logstic"]]}}, "logistic"),
        ({"kind": "geometry", "axes": AXES, "settings": {}}, "needs clouds"),
        (
            {"kind": "geometry", "axes": AXES, "settings": {"clouds": {"original": [LAPLACE]}}},
            "needs clouds",
        ),
        (
            {"kind": "geometry", "axes": AXES, "settings": {"clouds": {"a": [{"step": "laplas"}]}}},
            "'laplace'",
        ),
        (
            {"axes": {**AXES, "method": ["cape"], "epsilon": [1], "mechanism": ["laplas"]}},
            "did you mean 'laplace'",
        ),
        ({"axes": {**AXES, "method": []}}, "no cells at the size 'small'"),
        ({"axes": {**AXES, "method": ["fx"], "metod": ["gr"]}}, "did you mean 'method'"),
        ({"axes": {**AXES, "method": "fx"}}, "must be a list"),
        ({"axes": {"corpus": ["tiny"], "method": ["fx"], "seed": [-1]}}, "seed is -1"),
        ({"axes": {**AXES, "method": ["ldp"]}}, "needs an epsilon"),
        ({"axes": {**AXES, "method": ["fx"], "epsilon": [1]}}, "takes no epsilon"),
        ({"kind": "protct"}, "did you mean 'protect'"),
        ({"sises": {}}, "did you mean 'sizes'"),
        ({"sizes": {"tiny": {}}}, "the sizes of a plan has no 'tiny'"),
        ({"corpora": {"tiny": {"file": "nowhere.csv", "text": "text"}}}, "no file"),
        ({"corpora": {"tiny": {"text": "text"}}}, "needs a 'file' or a 'set'"),
        (
            {"axes": {**AXES, "method": ["fx"]}, "sizes": {"small": {"method": ["gr"]}}},
            "names 'gr', which the axis 'method' does not have",
        ),
        ({"sizes": {"small": {"seed": 3}}}, "seeds as a list"),
        ({"tables": [{"titel": "a"}]}, "did you mean 'title'"),
        ({"claims": [{"of": {}}]}, "needs a text"),
        ({"kind": "audit", "axes": {**AXES, "release": ["int9"]}, "settings": {}}, "no release"),
    ],
)
def test_slips_are_refused_before_anything_runs(
    plan: Make, parts: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CapeletError, match=sentence):
        plan(**parts).cells("small")


@pytest.mark.parametrize(
    ("slip", "sentence"),
    [
        ({"axis": "epsilom"}, "did you mean 'epsilon'"),
        ({"second": {"metod": "cape"}}, "did you mean 'method'"),
        ({"first": {}}, "names its levels"),
        ({"first": "ldp"}, "names its levels"),
    ],
)
def test_a_slip_in_a_comparison_at_equal_utility_is_refused(
    plan: Make, slip: dict[str, Any], sentence: str
) -> None:
    axes = {"corpus": ["tiny"], "seed": [0], "method": ["ldp", "cape"], "epsilon": [1, 8]}
    entry = {
        "first": {"method": "ldp"},
        "second": {"method": "cape"},
        "axis": "epsilon",
        "utility": {"kind": "utility", "metric": "accuracy"},
        "leakage": {"kind": "attribute-inference", "metric": "accuracy"},
    }
    assert len(plan(axes=axes, matched=[entry]).matched) == 1
    with pytest.raises(CapeletError, match=sentence):
        plan(axes=axes, matched=[{**entry, **slip}])


def test_what_had_been_seen_is_a_sentence(plan: Make) -> None:
    """`true` would leave a reader to guess what had been seen."""
    assert plan().exploratory == ""
    assert plan(exploratory="Split 0 had been seen.").exploratory == "Split 0 had been seen."
    for slip in (True, 1, ["seed 0"], "", " "):
        with pytest.raises(CapeletError, match="is a sentence"):
            plan(exploratory=slip)


def test_too_many_cells_are_refused_unless_they_are_wished_for(plan: Make) -> None:
    study = plan(
        axes={
            "corpus": ["tiny"],
            "method": ["fx"],
            "seed": list(range(317)),
            "width": [*range(317)],
        }
    )
    assert study.count() == 317 * 317
    with pytest.raises(CapeletError, match="100,489 cells"):
        study.cells()


def test_the_wish_for_many_cells_is_granted(plan: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capelet.studies.plan.MOST_CELLS", 1)
    study = plan(axes={"corpus": ["tiny"], "seed": [0, 1], "method": ["fx"]})
    with pytest.raises(CapeletError, match="yes="):
        study.cells()
    assert len(study.cells(many=True)) == 4


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("kind = ")
    with pytest.raises(CapeletError, match="not TOML"):
        StudyPlan.read(tmp_path / "plan.toml")
    with pytest.raises(CapeletError, match="cannot read"):
        StudyPlan.read(tmp_path / "absent.toml")


def test_one_spelling_for_equal_values() -> None:
    assert canonical({"a": (1, 2.0)}) == '{"a":[1,2]}'
    assert canonical(0.5) != canonical(0.25)


def test_steps_of_the_plan_stand_beside_methods(document: Any) -> None:
    """A rounding trains nothing: its cell is the very one that an audit of these steps has."""
    releases = {"signs": {"steps": [{"step": "rounding", "precision": "binary"}]}}
    axes = {"corpus": ["tiny"], "seed": [0], "method": ["signs", "leace"]}
    cells = {
        item.axes["method"]: item.cell
        for item in StudyPlan.of(document(axes=axes, releases=releases)).cells()
    }
    assert {name: cell.kind for name, cell in cells.items()} == {
        "unprotected": "audit", "signs": "audit", "leace": "protect",
    }  # fmt: skip
    audit = document(
        kind="audit",
        settings={"encoder": "wordllama", "attackers": ["logistic"]},
        axes={"corpus": ["tiny"], "seed": [0], "release": ["signs"]},
        releases=releases,
    )
    (only,) = StudyPlan.of(audit).cells()
    assert only.cell.key == cells["signs"].key
    with pytest.raises(CapeletError, match="takes no epsilon"):
        StudyPlan.of(document(axes={**axes, "epsilon": [1]}, releases=releases)).cells()
    with pytest.raises(CapeletError, match="is a method already"):
        StudyPlan.of(document(axes=axes, releases={"leace": releases["signs"]}))


def test_a_renamed_setting_leaves_the_key_of_a_stored_cell_as_it_was() -> None:
    """Keys are made from the names that settings had when the first cells were stored."""
    inputs = {"method": "gr", "seed": 0, "derive": ["names"], "tune_layers": 1}
    one = Cell("protect", 2, {**inputs, "adversary_weight": 0.5, "word_dropout": 0.1}, {})
    assert set(one.identity["inputs"]) == {"method", "seed", "derived", "layers", "lam", "mu"}
    several = Cell("protect", 2, {"adversary_weight": {"age": 1}}, {})
    assert set(several.identity["inputs"]) == {"lambdas"}
