"""Every study still runs, at a size that proves none of its claims."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import capelet
from capelet.data.datasets import is_available
from scripts import run_script, scripts_in

NEEDS = {
    "maps.py": (),
    "attackers.py": ("stance",),
    "training_game.py": ("ag_entities",),
    "judge_power.py": (),
    "coverage.py": (),
    "shared_splits.py": (),
}


def need(name: str) -> None:
    missing = [item for item in NEEDS[name] if not is_available(item)]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not here; CAPELET_DATA names the folder they lie in")


def test_every_study_is_run_here() -> None:
    assert set(scripts_in("studies")) == set(NEEDS)


def test_maps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ready vectors alone, made here: no data set and no encoder are needed."""
    pytest.importorskip("concept_erasure", reason="the extra protect is not installed")
    random = np.random.default_rng(0)
    secret, task = random.integers(0, 2, (2, 300))
    vectors = random.normal(size=(300, 8)).astype(np.float32)
    vectors[:, 0] += 3 * secret
    vectors[:, 1] += 3 * task
    columns = {"private.gender": secret.astype(str), "label": task.astype(str)}
    np.savez(tmp_path / "stance.npz", vectors=vectors, **columns)
    out = tmp_path / "rows.jsonl"
    methods = ("--methods", "raw", "leace", "transport", "noise")
    command = ("maps.py", "stance", "--vectors", tmp_path, "--out", out, "--splits", 1)
    run_script("studies", *command, "--workers", 1, *methods)
    rows = {(r["method"], r["strength"]): r for r in map(json.loads, out.read_text().splitlines())}
    assert set(rows) == {("raw", 0), ("leace", 1), ("leace", 0.7), ("transport", 1), ("noise", 0.5)}
    leaks = {key: row["leak"]["gender"] for key, row in rows.items()}
    # Part of an erasure is undone by whoever has pairs; the whole of it by nobody.
    assert leaks["leace", 0.7]["by"]["pairs"] > leaks["raw", 0]["strongest"] - 0.08
    assert leaks["leace", 1]["by"]["pairs"] < 0.7
    assert 0.3 < rows["noise", 0.5]["recall"] < 0.75 and "likelihood" in leaks["noise", 0.5]["by"]
    assert "| `leace`, 1 |" in capsys.readouterr().out
    picture = tmp_path / "picture.svg"
    # Nothing is missing, so nothing is made again.
    run_script("studies", *command, "--workers", 1, *methods, "--picture", picture)
    assert len(out.read_text().splitlines()) == 5
    assert picture.read_text("utf-8").startswith("<svg")


def test_attackers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`gr+`, the slowest, is written into the file by hand; the rest runs on ready vectors."""
    need("attackers.py")
    vectors, out = tmp_path / "vectors", tmp_path / "rows.jsonl"
    run_script(
        "studies", "attackers.py", "prepare", "--sets", "stance", "--encoder", "wordllama",
        "--vectors", vectors,
    )  # fmt: skip
    scores = {"ours": 0.6, "plain": 0.65, "chosen": "knn"}
    by_hand = {"set": "stance", "split": 0, "release": "gr+", "scores": {"gender": scores}}
    out.write_text(json.dumps(by_hand) + "\n")
    size = ("--rows", 300, "--splits", 1, "--workers", 1, "--families", "logistic", "knn")
    command = ("attackers.py", "run", "--sets", "stance", "--vectors", vectors, *size, "--out", out)
    run_script("studies", *command)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[0] == by_hand and {row["release"] for row in rows} == {"raw", "leace", "gr+"}
    assert all(0 < row["scores"]["gender"]["plain"] < 1 for row in rows)
    printed = capsys.readouterr().out
    assert "| gr+ | `stance` | gender | 0.600 | 0.650 | -0.050 | knn |" in printed
    assert "gr+: mean -0.0500" in printed and "MISSED" in printed
    run_script("studies", *command)  # nothing is missing, so nothing is measured again
    assert len(out.read_text().splitlines()) == 3


def test_training_game(capsys: pytest.CaptureFixture[str]) -> None:
    need("training_game.py")
    size = ("--encoder", "wordllama", "--rows", 60, "--rounds", 10, "--epsilon", 8)
    run_script("studies", "training_game.py", *size)
    printed = capsys.readouterr().out
    assert "| 8 | 1 × |" in printed and "| 1 | 0.01 × |" in printed


def test_judge_power(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    size = ("--samples", 4000, "--power-runs", 1, "--alarm-runs", 2, "--alarm-samples", 2000)
    names = ("--names", "no-noise-below-32", "word-dropout, laplace", "bottleneck, 10 symbols")
    parts = ("--parts", "power", "alarms", "--workers", 2)
    command = ("judge_power.py", *parts, *names, *size, "--out", out)
    run_script("studies", *command)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 1 + 2 * 2
    assert [row["refuted"] for row in rows if row["part"] == "power"] == [True]
    printed = capsys.readouterr().out
    assert "| `no-noise-below-32` | 1 of 1 |" in printed and "| bottleneck, 10 symbols |" in printed
    run_script("studies", *command)  # nothing is missing, so nothing is run again
    assert len(out.read_text().splitlines()) == len(rows)


def test_the_times_of_two_judges_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, source = tmp_path / "rows.jsonl", Path(capelet.__file__).parents[1]
    size = ("--parts", "time", "--samples", 2000, "--time-runs", 1)
    names = ("--names", "randomised-response")
    run_script("studies", "judge_power.py", *size, *names, "--old", source, "--out", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["version"] for row in rows] == ["this", "other"]
    assert "| randomised-response |" in capsys.readouterr().out


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    """One interval of each kind, and verdicts; how often they are right needs more than this."""
    run_script("studies", "coverage.py", "--simulations", 2, "--victims", 30)
    printed = capsys.readouterr().out
    for name in ("balanced_accuracy", "accuracy_gap", "top5", "advantage", "recall_at_10"):
        assert f"| {name} |" in printed
    assert "| audit | victims | leak | inconclusive | no leak found |" in printed


def test_shared_splits(capsys: pytest.CaptureFixture[str]) -> None:
    """Three analyses of four cases; how often they alarm needs more than this."""
    run_script("studies", "shared_splits.py", "--simulations", 2)
    assert "| no method differs |" in capsys.readouterr().out
