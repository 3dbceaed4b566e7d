"""`capelet dual`: a folder that is an encoder, and one sentence for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capelet.cli import app
from terminal import CliRunner

SMALL = ["--width", "32", "--layers", "1", "--dimension", "16", "--vocabulary", "200"]
SMALL += ["--epochs", "1", "--batch", "64"]


@pytest.fixture
def posts(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    path = tmp_path / "posts.jsonl"
    with path.open("w", encoding="utf-8") as lines:
        for number in range(120):
            said = [" ".join(f"w{k}" for k in random.integers(0, 60, 6)) for _ in range(3)]
            row = {"body": ". ".join(said) + ".", "user": f"u{number % 3}"}
            lines.write(json.dumps(row) + "\n")
    return path


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["dual", *arguments])
    return done.exit_code, done.output


def test_the_folder_is_an_encoder(posts: Path, tmp_path: Path) -> None:
    from capelet import PrivateEncoder
    from capelet.encoders import DualEncoder, load

    out = tmp_path / "made"
    columns = ["--text", "body", "--author", "user"]
    lambdas = ["--lambda-words", "1", "--lambda-authors", "1"]
    code, said = run("train", str(posts), *columns, *lambdas, *SMALL, "--out", str(out), "--json")
    assert code == 0, said
    assert json.loads(said)["pairs"] == 240
    encoder = load(str(out))
    assert isinstance(encoder, DualEncoder) and encoder.training["negatives"] == "author"
    released = PrivateEncoder(encoder).release(["w1 w2 w3", "w4"])
    assert released.vectors.shape == (2, 16)
    np.testing.assert_allclose(
        PrivateEncoder(str(out)).release(["w4"]).vectors, released.vectors[1:], atol=1e-6
    )


def test_bad_input_is_one_sentence(posts: Path, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "made")]
    for arguments, expected in (
        (["--text", "body", "--lambda-authors", "1"], "two authors"),
        (["--text", "body", "--network", "gru"], "no network"),
        (["--text", "body", "--start", "fasttext"], "none or glove"),
        (["--text", "nothing"], "nothing"),
    ):
        code, said = run("train", str(posts), *arguments, *SMALL, *out)
        assert code == 2 and expected in said and "Traceback" not in said
    assert not (tmp_path / "made").exists()


def test_utility_refuses_what_is_no_task(posts: Path) -> None:
    code, said = run("utility", "minilm", "--tasks", "nothing")
    assert code == 2 and "no sentence task" in said
