"""`capelet audit --attacks`, and the reports of `capelet membership`, at the command line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from capelet.attacks.authorship import TextCnn
from capelet.cli import app
from capelet.evaluation.attacks import TextAttacks
from capelet.evaluation.authorship import Authorship
from capelet.evaluation.inversion import Inversion
from capelet.findings import Findings
from capelet.reports import all_verdicts
from capelet.workflows import audit as workflow
from terminal import CliRunner

WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]


def run(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(item) for item in arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller attackers than an audit's own: the road is tested here, not their strength."""
    options = {"multi-label": {"epochs": 25, "width": 96}, "multi-set": {"epochs": 2, "width": 32}}
    writers = Authorship(baseline=TextCnn(epochs=2, filters=8))
    others = partial(TextAttacks, inversion=Inversion(options=options), authorship=writers)
    monkeypatch.setattr(workflow, "TextAttacks", others)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two invented sentences each, by thirty writers of some fondness; half marked as members."""
    random = np.random.default_rng(0)
    share = 1 / np.arange(1, len(WORDS) + 1)
    lines = []
    for row in range(480):
        who = row % 30
        fond = share.copy()
        fond[10 + 4 * who : 16 + 4 * who] *= 8
        body = [
            " ".join(random.choice(WORDS, 7, p=fond / fond.sum())).capitalize() + "."
            for _ in range(2)
        ]
        entry = {"body": " ".join(body), "by": f"p{who}", "in": "yes" if who % 2 else "no"}
        lines.append(json.dumps({**entry, "one": "me", "never": "no"}))
    path = tmp_path_factory.mktemp("data") / "texts.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_an_audit_of_words_needs_no_private_column(texts: Path, tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    code, said, error = run(
        "audit", texts, "--text", "body", "--encoder", "wordllama", "--attacks", "inversion",
        "--out", tmp_path / "plain",
    )  # fmt: skip
    assert code == 0, error
    assert "words: F1 of those read back" in said
    found = Findings.load(tmp_path / "plain")
    assert {row.kind for row in found} == {"inversion", "inversion-null", "inversion-reference"}
    assert found.provenance["command"].startswith("capelet")
    assert found.provenance["data"]["digest"].startswith("keyed:")
    everything = "".join(item.read_text() for item in (tmp_path / "plain").rglob("*.*"))
    assert not any(f" {word} {other} " in everything for word in WORDS[:9] for other in WORDS[:9])


def test_all_attacks_and_their_comparison(texts: Path, tmp_path: Path) -> None:
    """What noise did to words, writers and members stands in one report."""
    pytest.importorskip("wordllama")
    recipe = tmp_path / "noise.toml"
    steps = ['step = "encoder"\nname = "wordllama"', 'step = "laplace"\nepsilon = 2.0']
    recipe.write_text("\n\n".join(f"[[steps]]\n{step}" for step in steps))
    common = [
        "--text",
        "body",
        "--author",
        "by",
        "--member",
        "in",
        "--attacks",
        "all",
        "--seeds",
        1,
    ]
    code, _, error = run("audit", texts, *common, "--encoder", "wordllama", "--out", tmp_path / "a")
    assert code == 0, error
    assert "left out: attributes need columns" in error
    code, _, error = run("audit", texts, *common, "--recipe", recipe, "--out", tmp_path / "b")
    assert code == 0, error
    before, after = Findings.load(tmp_path / "a"), Findings.load(tmp_path / "b")
    for findings in (before, after):
        kinds = {row.kind for row in findings}
        assert {"inversion", "authorship", "authorship-reference", "membership"} <= kinds
    plain = before.value(kind="inversion", metric="f1", attacker="multi-label", subgroup=None)
    noisy = after.value(kind="inversion", metric="f1", attacker="multi-label", subgroup=None)
    assert noisy < plain - 0.05
    assert after.provenance["guarantee"]["epsilon"] == 2.0
    code, _, _ = run("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both")
    page = (tmp_path / "both" / "comparison.html").read_text()
    assert code == 0 and "words (multi-label)" in page and "Training texts: advantage" in page


def test_membership_writes_where_it_comes_from(texts: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    table = tmp_path / "table.txt"
    lines = [f"{word} " + " ".join(f"{x:.4f}" for x in random.normal(size=8)) for word in WORDS]
    table.write_text("\n".join(lines))
    code, _, error = run(
        "membership", texts, "--text", "body", "--member", "in", "--words", table,
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 0, error
    found = Findings.load(tmp_path / "run")
    origin = found.provenance
    assert origin["data"]["members"] == 240 and origin["split"]["seeds"] == [0]
    assert origin["encoder"]["fingerprint"].startswith("keyed:")
    assert origin["encoder"]["name"].endswith(".txt")
    (judged,) = all_verdicts(found)
    assert judged.outcome != "leak"
    assert judged.title in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--attacks", "words"], "no kind of attack 'words'"),
        (["--attacks", "authorship"], "name the column (--author)"),
        (["--attacks", "authorship", "--author", "one"], "by one writer"),
        (["--attacks", "membership"], "name the column of yes and no (--member)"),
        (["--attacks", "membership", "--member", "by"], "neither yes nor no"),
        (["--attacks", "membership", "--member", "never", "--encoder", "wordllama"], "0 of 480"),
        (["--attacks", "inversion", "--fail-over", "0.1"], "needs an attribute to watch"),
        (["--attacks", "attributes"], "nothing to measure"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(
    arguments: list[str], sentence: str, texts: Path, tmp_path: Path
) -> None:
    code, said, error = run("audit", texts, "--text", "body", *arguments, "--out", tmp_path / "run")
    assert code == 2, said + error
    assert sentence in error and error.count("\n") == 1
    assert "Traceback" not in said + error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--encoder", "wordllama", "--attacks", "relaxation"], "needs gradients"),
        (["--encoder", "glove", "--attacks", "sparse-coding"], "black-box"),
        (["--encoder", "wordllama", "--max-texts", "12"], "texts"),
        (["--encoder", "wordllama", "--auxiliary", "{texts}"], "auxiliary texts too"),
    ],
)
def test_an_attack_says_what_it_needs(
    arguments: list[str], sentence: str, texts: Path, tmp_path: Path
) -> None:
    filled = [item.format(texts=texts) for item in arguments]
    code, said, error = run("invert", texts, "--text", "body", *filled, "--out", tmp_path / "run")
    assert code == 2, said + error
    assert sentence in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()
