"""Gateways in processes of their own, as they are run: `capelet serve`, and what can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

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
    command += ["--recipe", str(recipe), "--ledger", str(store), "--budget", str(budget)]
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


# Says that it is there, waits for its texts, and asks for one after the other; the standard library
# alone, so that it starts at once.
CLIENT = """
import http.client, json, sys
host, port, person = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port), timeout=120)
print("ready", flush=True)
answers = []
for text in json.loads(sys.stdin.readline()):
    body = {"model": "m", "input": text, "user": person, "encoding_format": "base64"}
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/embeddings", json.dumps(body), headers)
    response = connection.getresponse()
    content = json.loads(response.read())
    answers.append([response.status, content["data"][0]["embedding"] if "data" in content else ""])
print(json.dumps(answers))
"""


class Answer(NamedTuple):
    """What a client got for a text: a status, and the vector where there is one."""

    status: int
    vector: str


def ask_in_processes(
    urls: Sequence[str], person: str, texts: Sequence[Sequence[str]]
) -> list[list[Answer]]:
    """A process for each list of texts, by turns at the addresses; all start when all are there."""
    clients = []
    for number, _ in enumerate(texts):
        address = urlsplit(urls[number % len(urls)])
        command = [sys.executable, "-c", CLIENT, str(address.hostname), str(address.port), person]
        clients.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
    try:
        for client in clients:
            assert client.stdout is not None and client.stdout.readline() == "ready\n"
        for client, some in zip(clients, texts, strict=True):
            assert client.stdin is not None
            client.stdin.write(json.dumps(some) + "\n")
            client.stdin.flush()
        outputs = [client.communicate(timeout=300)[0] for client in clients]
    finally:
        for client in clients:
            client.kill()
            client.wait()
    return [[Answer(*answer) for answer in json.loads(output)] for output in outputs]


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
