"""Findings come back from disk as they were, and what is not findings is said to be so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import OutputError
from capelet.findings import SCHEMA, Finding, Findings


def some() -> Findings:
    row = Finding(
        "utility", "stars", "accuracy", 0.5, low=float("nan"), parameters={"by_seed": (0.4, 0.6)}
    )
    return Findings((row,), {"rows": np.int64(3)}, {"steps": []}, {"curve": {"x": np.arange(3)}})


def test_round_trip(tmp_path: Path) -> None:
    some().save(tmp_path / "run")
    back = Findings.load(tmp_path / "run")
    assert back.rows[0].value == 0.5 and back.rows[0].low is None
    assert back.artefacts == {"curve": {"x": [0, 1, 2]}} and back.provenance == {"rows": 3}
    assert back.to_json() == Findings.load(tmp_path / "run" / "findings.json").to_json()


def test_schema_of_the_design(tmp_path: Path) -> None:
    document = json.loads(some().to_json())
    assert document["schema"] == SCHEMA == 1
    assert set(document["findings"][0]) == {
        "kind", "target", "metric", "value", "low", "high", "chance", "majority", "ceiling", "n",
        "attacker", "seed", "degenerate", "subgroup", "parameters", "recipe_hash",
    }  # fmt: skip


def test_stale_artefacts_go(tmp_path: Path) -> None:
    some().save(tmp_path)
    Findings(()).save(tmp_path)
    assert Findings.load(tmp_path).artefacts == {}


def test_select_and_value() -> None:
    findings = some()
    assert findings.value(kind="utility") == 0.5
    with pytest.raises(KeyError, match="0 findings match"):
        findings.value(kind="fairness")


def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"no findings.json"):
        Findings.load(tmp_path)
    path = tmp_path / "findings.json"
    path.write_text("not json")
    with pytest.raises(OutputError, match="not a findings file"):
        Findings.load(tmp_path)
    path.write_text('{"schema": 99}')
    with pytest.raises(OutputError, match="schema 99, this version reads 1"):
        Findings.load(tmp_path)


def test_findings_that_list_no_artefacts_are_refused(tmp_path: Path) -> None:
    Findings((), artefacts={"curve": {}}).save(tmp_path)
    path = tmp_path / "findings.json"
    document = json.loads(path.read_text())
    del document["artefacts"]
    path.write_text(json.dumps(document))
    with pytest.raises(OutputError, match="its 'artefacts' are no list of names"):
        Findings.load(tmp_path)


@pytest.mark.usefixtures("usual_umask")
def test_an_artefact_that_shows_texts_is_for_its_owner_only(tmp_path: Path) -> None:
    artefacts = {"open": {"redacted": False}, "closed": {"redacted": True}, "curve": {}}
    folder = Findings((), artefacts=artefacts).save(tmp_path) / "artefacts"
    modes = {path.stem: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {"open": 0o600, "closed": 0o644, "curve": 0o644}
