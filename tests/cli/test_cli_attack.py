"""`capelet invert` and `capelet membership`: what they write, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capelet.cli import app
from capelet.findings import Findings
from terminal import CliRunner

WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]


def run(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(item) for item in arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Invented sentences by ten writers, half of them marked as members."""
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "texts.jsonl"
    lines = []
    for row in range(400):
        body = [" ".join(random.choice(WORDS[:60], 7)).capitalize() + "." for _ in range(3)]
        entry = {"body": " ".join(body), "by": f"p{row % 10}", "in": "yes" if row % 2 else "no"}
        lines.append(json.dumps(entry))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("words") / "table.txt"
    rows = [f"{word} " + " ".join(f"{x:.4f}" for x in random.normal(size=8)) for word in WORDS]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_invert_writes_findings_without_a_word(texts: Path, tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    code, said, _ = run(
        "invert", texts, "--text", "body", "--author", "by", "--sentences", "--encoder",
        "wordllama", "--attacks", "multi-label", "--max-texts", 600, "--out", tmp_path / "run",
        "--json",
    )  # fmt: skip
    assert code == 0
    shown = json.loads(said)
    assert 0 <= shown["words"]["multi-label"]["f1"] <= 1
    found = Findings.load(tmp_path / "run")
    assert found.select(kind="inversion-null") and found.select(kind="inversion-reference")
    everything = "".join(item.read_text() for item in (tmp_path / "run").rglob("*.json"))
    assert not any(f'"{word}"' in everything or f" {word} " in everything for word in WORDS)


def test_invert_shows_words_when_asked(texts: Path, tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    code, said, _ = run(
        "invert", texts, "--text", "body", "--encoder", "wordllama", "--attacks", "sparse-coding",
        "--max-texts", 120, "--show-texts", "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 0
    assert "sparse-coding: F1" in said and "reads" not in said
    # One verdict: the terminal's first line is the Markdown's, and both name how many were used.
    page = (tmp_path / "run" / "report.md").read_text()
    label, _, sentence = said.splitlines()[0].removeprefix("[").partition("] ")
    assert f"**{label}**" in page and sentence.partition(" against ")[0] in page
    assert "120 used after cutting and drawing" in page
    shown = json.loads((tmp_path / "run" / "artefacts" / "inversion_examples.json").read_text())
    assert not shown["redacted"] and shown["examples"][0]["text"]


def test_invert_reads_sentences(texts: Path, tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    code, said, _ = run(
        "invert", texts, "--text", "body", "--sentences", "--encoder", "wordllama", "--attacks",
        "sequence", "--max-texts", 130, "--minutes", 0.05, "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 0
    assert "sequence: F1" in said and "BLEU" in said
    found = Findings.load(tmp_path / "run")
    assert found.select(kind="inversion-null", target="sentence", metric="exact_match")
    everything = "".join(item.read_text() for item in (tmp_path / "run").rglob("*.json"))
    assert not any(f'"{word}"' in everything or f" {word} " in everything for word in WORDS)


def test_membership_of_an_innocent_table_is_about_zero(
    texts: Path, table: Path, tmp_path: Path
) -> None:
    code, said, _ = run(
        "membership", texts, "--text", "body", "--member", "in", "--words", table,
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert code == 0
    whole = next(row for row in json.loads(said)["advantage"] if row["subgroup"] is None)
    assert whole["low"] < 0.03 and whole["high"] > -0.03
    code, said, _ = run(
        "membership", texts, "--text", "body", "--member", "in", "--words", table,
        "--out", tmp_path / "again",
    )  # fmt: skip
    assert code == 0 and "windows by window-cosine" in said
    # It ends in a verdict, the one of the page.
    verdict = next(line for line in said.splitlines() if line.startswith("["))
    assert "training texts: told from the similarity of words within a window" in verdict


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["invert", "{texts}", "--text", "body", "--attacks", "guess"], "no attack 'guess'"),
        (["invert", "{texts}", "--text", "body", "--draws", "0"], "--draws is 0"),
        (["invert", "{texts}", "--text", "body", "--minutes", "0"], "--minutes is 0"),
        (["invert", "nothing"], "no file and no set"),
        (["membership", "{texts}", "--text", "body", "--member", "in"], "name one model"),
        (
            ["membership", "{texts}", "--text", "body", "--member", "by", "--words", "{table}"],
            "neither yes nor no",
        ),
        (
            ["membership", "{texts}", "--text", "body", "--member", "in", "--words", "{texts}.x"],
            "cannot read",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(
    arguments: list[str], sentence: str, texts: Path, table: Path, tmp_path: Path
) -> None:
    filled = [item.format(texts=texts, table=table) for item in arguments]
    code, said, error = run(*filled, "--out", tmp_path / "run")
    assert code == 2
    assert sentence in error and error.count("\n") == 1
    assert "Traceback" not in said + error
    assert not (tmp_path / "run").exists()
