"""Record what the commands find, with seeded noise: a refactoring must not move it.

    python tools/record.py before/            one folder per scenario, with its findings
    python tools/record.py after/ --against before/

The noise of every mechanism is replaced by a seeded stand-in, and what depends on the clock, on
paths or on the version is left out; everything else must agree to 1e-9. The second call prints
each difference and exits with 1 when there is one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TOLERANCE = 1e-9
# Depends on the machine, the moment, the version or the id that a training draws, not on what
# is measured.
VOLATILE = {
    "seconds", "training_seconds", "created", "capelet", "versions", "command", "id", "recipe_hash",
}  # fmt: skip
METHODS = ("fx", "gr", "gr+", "cgt", "leace", "bottleneck")
SCENARIOS = (
    "audit",
    "audit-laplace",
    *(f"protect-{method}" for method in METHODS),
    "invert",
    "membership",
    "language",
    "search",
    "encode",
    "dual",
    "serve",
    "study",
)
ADDRESS = "http://127.0.0.1:8377"
RECIPE = (
    '[[steps]]\nstep = "encoder"\nname = "minilm"\n\n[[steps]]\nstep = "laplace"\nepsilon = 8.0\n'
)


def seed_noise() -> None:
    """Make the stream of every mechanism repeatable: key k of the run is the hash of k."""
    from capelet.mechanisms import sampling

    count = 0

    def key(size: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.sha256(f"record {count}".encode()).digest()[:size]

    sampling.os = SimpleNamespace(urandom=key, getpid=sampling.os.getpid)  # type: ignore[attr-defined]


def commands(scenario: str, folder: Path) -> Iterator[list[str]]:
    """The command lines of a scenario; the last one writes `folder/run`."""
    run = str(folder / "run")
    if scenario == "audit":
        yield ["audit", "reviews", "--seeds", "2", "--out", run]
    elif scenario == "audit-laplace":
        yield ["audit", "reviews", "--seeds", "2", "--recipe", str(write_recipe(folder)),
               "--out", run]  # fmt: skip
    elif scenario.startswith("protect-"):
        method = scenario.removeprefix("protect-")
        epsilon = ["--epsilon", "8"] if method == "bottleneck" else []
        attackers = ["--attackers", "logistic,knn", "--seeds", "2"]
        yield ["protect", "reviews", "--method", method, *epsilon, *attackers, "--out", run]
    elif scenario == "invert":
        texts = write_texts(folder)
        attacks = "multi-label,multi-set,sparse-coding"
        yield ["invert", str(texts), "--text", "body", "--author", "by", "--encoder", "wordllama",
               "--attacks", attacks, "--max-texts", "900", "--out", run]  # fmt: skip
    elif scenario == "membership":
        texts, table = write_texts(folder), write_word_vectors(folder)
        yield ["membership", str(texts), "--text", "body", "--member", "in", "--words", str(table),
               "--out", run]  # fmt: skip
    elif scenario == "language":
        texts = write_texts(folder, 600)
        columns = ["--text", "body", "--author", "by"]
        small = ["--width", "24", "--device", "cpu", "--epochs", "2", "--vocabulary", "200",
                 "--canaries", "1,20", "--canary-authors", "6", "--method", "triplet"]  # fmt: skip
        model = str(folder / "model")
        yield ["lm", "train", str(texts), *columns, *small, "--out", model]
        yield ["lm", "attack", model, "--data", str(texts), *columns, "--samples", "2000",
               "--out", run]  # fmt: skip
    elif scenario == "search":
        yield ["protect", "reviews", "--method", "gr", "--max-leakage", "0.5", "--trials", "3",
               "--attackers", "logistic,knn", "--seeds", "1", "--out", run]  # fmt: skip
    elif scenario == "encode":
        texts, recipe = write_texts(folder, 300), write_recipe(folder)
        columns = ["--text", "body", "--subject", "by"]
        ledger = ["--ledger", str(folder / "people.db"), "--budget", "100"]
        yield ["encode", str(texts), f"{run}.parquet", *columns, *ledger, "--recipe", str(recipe)]
    elif scenario == "dual":
        texts, model = write_posts(folder), str(folder / "model")
        columns = ["--text", "body", "--author", "by"]
        small = ["--network", "lstm", "--width", "16", "--dimension", "16", "--epochs", "1",
                 "--vocabulary", "300", "--lambda-words", "1", "--lambda-authors", "1"]  # fmt: skip
        yield ["dual", "train", str(texts), *columns, *small, "--out", model]
        yield ["audit", "reviews", "--encoder", model, "--seeds", "1", "--attackers", "logistic",
               "--no-cache", "--out", run]  # fmt: skip
    elif scenario == "serve":
        ledger = ["--ledger", str(folder / "people.db"), "--budget", "100"]
        yield ["serve", "--recipe", str(write_recipe(folder)), *ledger,
               "--port", ADDRESS.rpartition(":")[2], "--no-demo"]  # fmt: skip
    elif scenario == "study":
        for plan in sorted((Path(__file__).parents[1] / "papers").glob("*/*.toml")):
            name = f"{plan.parent.name}-{plan.stem}"
            yield ["study", "run", str(plan), "--size", "small", "--workers", "1",
                   "--out", f"{run}/{name}"]  # fmt: skip


def write_recipe(folder: Path) -> Path:
    """An encoder whose vectors are the same in every batch, and noise."""
    path = folder / "laplace.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def write_posts(folder: Path) -> Path:
    """Texts of five reviews, for pairs of sentences that follow each other."""
    texts = write_texts(folder)
    rows = [json.loads(line) for line in texts.read_text(encoding="utf-8").splitlines()]
    posts = [
        json.dumps({"body": " ".join(row["body"] for row in rows[start : start + 5]), "by": by})
        for by, start in ((f"writer {start // 5 % 8}", start) for start in range(0, 1200, 5))
    ]
    texts.write_text("\n".join(posts) + "\n", encoding="utf-8")
    return texts


def ask(folder: Path) -> None:
    """Wait for the gateway, keep what it answers to a few texts, and end it."""
    import httpx

    answers = []
    body = {"model": "laplace", "input": ["a text", "another one"], "user": "ann"}
    for _ in range(600):
        try:
            answers.append(httpx.post(f"{ADDRESS}/v1/embeddings", json=body, timeout=60).json())
            break
        except httpx.ConnectError:
            time.sleep(0.5)
    body["input"] = "a third"
    answers.append(httpx.post(f"{ADDRESS}/v1/embeddings", json=body, timeout=60).json())
    (folder / "findings.json").write_text(json.dumps(answers), encoding="utf-8")
    os.kill(os.getpid(), signal.SIGTERM)


def keep_vectors(folder: Path) -> None:
    """What a release holds, as a document: the columns of its rows."""
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "run.parquet").to_pylist()
    (folder / "findings.json").write_text(json.dumps(rows, default=str), encoding="utf-8")


def write_texts(folder: Path, most: int | None = None) -> Path:
    """The embedded sample as JSONL, every other text a member."""
    import capelet

    corpus = capelet.load("reviews")
    assert corpus.texts is not None
    path = folder / "texts.jsonl"
    lines = [
        json.dumps({"body": str(text), "by": f"writer {row % 40}", "in": row % 2 == 0})
        for row, text in enumerate(corpus.texts[:most])
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_word_vectors(folder: Path) -> Path:
    """A word2vec text file over the sample's words, with seeded vectors."""
    import re

    import numpy as np

    import capelet

    corpus = capelet.load("reviews")
    assert corpus.texts is not None
    words = sorted({word for text in corpus.texts for word in re.findall(r"[a-z]+", text.lower())})
    vectors = np.random.default_rng(0).normal(size=(len(words), 16))
    lines = [f"{len(words)} 16"]
    lines += [
        f"{word} " + " ".join(f"{x:.6f}" for x in row)
        for word, row in zip(words, vectors, strict=True)
    ]
    path = folder / "words.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def play(scenario: str, folder: Path) -> None:
    """Run one scenario in this process."""
    from capelet.cli import main

    seed_noise()
    folder.mkdir(parents=True, exist_ok=True)
    if scenario == "serve":
        threading.Thread(target=ask, args=(folder,), daemon=True).start()
    for arguments in commands(scenario, folder):
        sys.argv = ["capelet", *arguments]
        try:
            main()
        except SystemExit as stop:
            # A study goes on with its next plan, and what it could not measure is in its table.
            if stop.code and scenario != "study":
                raise
    if scenario == "encode":
        keep_vectors(folder)


def record(target: Path, scenarios: list[str]) -> None:
    """Run each scenario in a process of its own."""
    for scenario in scenarios:
        print(f"== {scenario}", flush=True)
        command = [sys.executable, __file__, str(target / scenario), "--play", scenario]
        # One thread and one hash seed: sums in another order differ in their last bits.
        environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number, word and truth value of a document with its path, volatile keys left out."""
    if isinstance(value, dict):
        for key in sorted(value):
            if key not in VOLATILE:
                yield from leaves(value[key], f"{path}/{key}")
    elif isinstance(value, list):
        yield f"{path}/length", len(value)
        for place, item in enumerate(value):
            yield from leaves(item, f"{path}/{place}")
    else:
        yield path, value


def differences(before: Path, after: Path) -> list[str]:
    """What two recorded runs disagree about."""
    lines = []
    for path in sorted(before.glob("**/*.json")):
        if path.name == "findings.json" or path.parent.name == "artefacts":
            other = after / path.relative_to(before)
            if not other.is_file():
                lines.append(f"{other} is missing")
                continue
            old = dict(leaves(json.loads(path.read_text(encoding="utf-8"))))
            new = dict(leaves(json.loads(other.read_text(encoding="utf-8"))))
            for key in sorted(old.keys() | new.keys()):
                if not _agree(old.get(key), new.get(key)):
                    lines.append(
                        f"{path.relative_to(before)}{key}: {old.get(key)!r} → {new.get(key)!r}"
                    )
    return lines


def _agree(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float | int):
        return math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(old == new)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--against", type=Path, help="an earlier record to compare with")
    parser.add_argument(
        "--only", default=",".join(SCENARIOS), help="scenarios, with commas between"
    )
    parser.add_argument("--play", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        play(options.play, options.folder)
        return 0
    scenarios = options.only.split(",")
    record(options.folder, scenarios)
    if options.against is None:
        return 0
    lines = []
    for scenario in scenarios:
        lines += differences(options.against / scenario, options.folder / scenario)
    print("\n".join(lines) or "every value is equal")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
