"""Every study still runs, at a size that proves none of its claims."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capelet.data.datasets import is_available
from scripts import run_script, scripts_in

NEEDS = {
    "attackers.py": ("stance",),
    "frontiers.py": ("stance",),
    "dual_encoders.py": ("blog_authors", "blog", "trec"),
    "author_models.py": ("blog",),
}


def need(name: str) -> None:
    missing = [item for item in NEEDS[name] if not is_available(item)]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not here; CAPELET_DATA names the folder they lie in")


def test_every_study_is_run_here() -> None:
    assert set(scripts_in("studies")) == set(NEEDS)


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


def test_frontiers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is in the file is not measured again: `gr+`, the slowest, is written there by hand."""
    need("frontiers.py")
    out, picture = tmp_path / "rows.jsonl", tmp_path / "picture.svg"
    by_hand = [
        {
            "set": "stance",
            "split": 0,
            "method": "gr+",
            "strength": strength,
            "recall": 0.99,
            "task": 0.5,
            "leak": {"gender": {"strongest": 0.5}},
            "seconds": [0.0, 0.0],
        }
        for strength in (0.2, 0.4, 1.0, 2.5, 5.0)
    ]
    out.write_text("".join(json.dumps(row) + "\n" for row in by_hand))
    size = ("--rows", 240, "--splits", 1, "--jobs", 1)
    methods = ("--methods", "unprotected", "posteriors", "leace", "gr+")
    files = ("--out", out, "--vectors", tmp_path, "--picture", picture)
    run_script("studies", "frontiers.py", "stance", *size, *methods, *files)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[:5] == by_hand and len(rows) == 5 + 1 + 1 + 3
    plain = next(row for row in rows if row["method"] == "unprotected")
    assert plain["recall"] == 1.0 and 0 < plain["leak"]["gender"]["strongest"] <= 1
    printed = capsys.readouterr().out
    assert "`gr+`, λ = 0.2 | 0.990" in printed and "(1 of 1)" in printed
    assert picture.read_text("utf-8").startswith("<svg")


def test_dual_encoders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("dual_encoders.py")
    out, picture = tmp_path / "rows.jsonl", tmp_path / "picture.svg"
    size = ("--share", 0.0001, "--width", 8, "--epochs", 1, "--most", 60, "--attack-epochs", 1)
    command = ("dual_encoders.py", "--points", "0:0", "--tasks", "trec", *size, "--out", out)
    run_script("studies", *command, "--picture", picture)
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert 0 <= row["multi-set"] <= 1 and 0 < row["utility trec"] < 1
    assert "| 0 | 0 | any |" in capsys.readouterr().out
    assert picture.read_text("utf-8").startswith("<svg")
    run_script("studies", *command)  # nothing is missing, so nothing is made again
    assert len(out.read_text().splitlines()) == 1


def test_author_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("author_models.py")
    pytest.importorskip("dp_accounting", reason="the extra lm is not installed")
    out = tmp_path / "rows.jsonl"
    size = ("--writers", 40, "--width", 8, "--vocabulary", 300, "--device", "cpu")
    training = ("--epochs", 1, "--text-epochs", 1, "--author-epochs", 1, "--author-batch", 10)
    canaries = ("--canaries", 1, 5, "--canary-authors", 3, "--samples", 1100)
    command = ("author_models.py", *size, *training, *canaries, "--delta", 1e-5, "--out", out)
    run_script("studies", *command)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["row"] for row in rows] == ["none", "text", "author"]
    assert rows[0]["epsilon"] is None and all(row["epsilon"] <= 8 for row in rows[1:])
    assert rows[2]["privacy"]["unit"] == "author"
    printed = capsys.readouterr().out
    assert "| dpsgd, author, ε = " in printed and "δ = 1e-05" in printed
    run_script("studies", *command)  # nothing is missing, so nothing is trained again
    assert len(out.read_text().splitlines()) == 3
