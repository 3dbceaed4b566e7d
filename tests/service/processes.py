"""Gateways in processes of their own, as they are run: `capelet serve`, and what can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

Place = Path | str


def write_recipe(folder: Path, encoder: str, epsilon: float) -> Path:
    path = folder / "recipe.toml"
    path.write_text(
        f'[[steps]]\nstep = "encoder"\nname = "{encoder}"\n\n'
        f'[[steps]]\nstep = "laplace"\nepsilon = {epsilon}\n'
    )
    return path


@contextmanager
def gateway(
    recipe: Path, store: Place, budget: float
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves the model `m`, and its address."""
    command = [sys.executable, "-c", "from capelet.cli import main; main()", "serve"]
    command += ["--recipe", str(recipe), "--store", str(store), "--budget", str(budget)]
    command += ["--port", "0", "--no-demo", "--model", "m"]
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


def ask(client: httpx.Client, person: str, texts: list[str]) -> httpx.Response:
    body = {"model": "m", "input": texts, "user": person, "encoding_format": "base64"}
    return client.post("/v1/embeddings", json=body, timeout=60)


def count_vectors(store: Place) -> int:
    """How many vectors lie in a store, asked of the database itself."""
    if isinstance(store, Path):
        import sqlite3

        with sqlite3.connect(store) as file:
            (count,) = file.execute("SELECT COUNT(*) FROM releases").fetchone()
        file.close()
        return int(count)
    import psycopg

    with psycopg.connect(store) as server:
        row = server.execute("SELECT COUNT(*) FROM capelet.releases").fetchone()
    assert row is not None
    return int(row[0])
