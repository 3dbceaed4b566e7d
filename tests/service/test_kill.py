"""`kill -9` under load, thirty times: one vector for each text, and only stored ones answered."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from capelet.privacy.store import Ledger

pytestmark = pytest.mark.slow
RECIPE = """
[[steps]]
step = "encoder"
name = "minilm"

[[steps]]
step = "laplace"
epsilon = 1.0
"""
KILLS, CLIENTS, TEXTS = 30, 8, 400
Answers = dict[tuple[str, str], set[str]]


@contextmanager
def gateway(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", "from capelet.cli import main; main()", "serve"]
    command += ["--recipe", str(folder / "recipe.toml"), "--store", str(folder / "people.db")]
    command += ["--budget", "1e6", "--port", "0", "--no-demo", "--model", "m"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield process, line.split(" at ")[1].split(": ")[0]
    finally:
        process.kill()
        process.communicate()


def ask(url: str, person: str, texts: list[str]) -> list[str]:
    """The vectors as they came, each as text; an error where the gateway is gone."""
    body = {"model": "m", "input": texts, "user": person, "encoding_format": "base64"}
    answer = httpx.post(f"{url}/v1/embeddings", json=body, timeout=60)
    answer.raise_for_status()
    return [item["embedding"] for item in answer.json()["data"]]


def load(url: str, answers: Answers, lock: threading.Lock, stop: threading.Event) -> None:
    """Ask for one to four texts of one of three people, over and over, as retries would."""
    choice = random.Random()
    while not stop.is_set():
        person = f"person {choice.randrange(3)}"
        texts = [f"text number {choice.randrange(TEXTS)}" for _ in range(choice.randint(1, 4))]
        try:
            vectors = ask(url, person, texts)
        except httpx.HTTPError:
            continue
        with lock:
            for text, vector in zip(texts, vectors, strict=True):
                answers[person, text].add(vector)


def test_kill_under_load(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    answers: Answers = defaultdict(set)
    lock, chance = threading.Lock(), random.Random(7)
    for _ in range(KILLS):
        with gateway(tmp_path) as (process, url):
            stop = threading.Event()
            threads = [
                threading.Thread(target=load, args=(url, answers, lock, stop))
                for _ in range(CLIENTS)
            ]
            for thread in threads:
                thread.start()
            before = len(answers)
            end = time.monotonic() + 60
            # At some moment after the first answers of this life, in the middle of others.
            while len(answers) < before + 3 and time.monotonic() < end and len(answers) < TEXTS:
                time.sleep(0.01)
            time.sleep(chance.random())
            process.kill()
            stop.set()
            for thread in threads:
                thread.join()
    assert len(answers) > 50
    assert max(len(vectors) for vectors in answers.values()) == 1
    with Ledger(tmp_path / "people.db") as ledger:
        counts = ledger.counts()
    with sqlite3.connect(tmp_path / "people.db") as db:
        (kept,) = db.execute("SELECT COUNT(*) FROM releases").fetchone()
    db.close()
    assert counts.releases == kept >= len(answers)
    # Whatever was answered is what the store holds: asked again, it costs nothing.
    with gateway(tmp_path) as (_, url):
        for (person, text), vectors in answers.items():
            assert ask(url, person, [text]) == list(vectors)
    with Ledger(tmp_path / "people.db") as ledger:
        assert ledger.counts().releases == kept
