"""`capelet serve` as it is typed: it serves, ends in order, and refuses what it may not serve."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest

from capelet.cli import app
from capelet.ledger.store import Ledger
from capelet.mechanisms import Laplace
from capelet.release import PrivateEncoder
from capelet.release.heads import Head
from capelet.release.maps import Layer
from terminal import CliRunner

RECIPE = """
[[steps]]
step = "encoder"
name = "wordllama"

[[steps]]
step = "laplace"
epsilon = 2.0
"""
MAIN = "from capelet.cli import main; main()"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    pytest.importorskip("wordllama")
    path = tmp_path / "mails.toml"
    path.write_text(RECIPE)
    return path


@contextmanager
def started(*words: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway in a process of its own, and its address."""
    command = [sys.executable, "-c", MAIN, "serve", *map(str, words), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " at http" in line, process.communicate()
        yield process, line.split(" at ")[1].split(": ")[0]
    finally:
        process.kill()
        process.communicate()


def test_it_serves_and_ends_in_order(recipe: Path, tmp_path: Path) -> None:
    store = tmp_path / "people.db"
    options = ("--recipe", recipe, "--ledger", store, "--budget", 4, "--no-demo")
    with started(*options) as (process, url):
        body = {"model": "mails", "input": "a text", "user": "ann"}
        answer = httpx.post(f"{url}/v1/embeddings", json=body, timeout=60)
        assert answer.json()["privacy"]["left"] == 2.0
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "/v1/embeddings 200" in errors and "stopped" in errors
    # People are entered by keyed hash alone.
    assert b"ann" not in store.read_bytes()
    with Ledger(store) as ledger:
        assert ledger.counts() == (1, 1, 2.0)


# A gateway whose page never stops learning: its thread is in native code, reading a model.
LEARNING = """
import itertools

from capelet.service import demonstration
from capelet.encoders import load

def learn(self):
    for turn in itertools.count():
        load("minilm").encode(["a few words"])
        if turn == 0:
            print("learning", flush=True)

demonstration.Demonstration.learn = learn
from capelet.cli import main
main()
"""


def test_it_ends_in_order_while_the_page_still_learns(recipe: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    words = ("--recipe", recipe, "--ledger", tmp_path / "people.db", "--budget", 4, "--port", 0)
    command = [sys.executable, "-c", LEARNING, "serve", *map(str, words)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    while (line := process.stdout.readline()) and line != "learning\n":
        pass
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "stopped" in errors


def refusal(*words: object) -> str:
    result = CliRunner().invoke(app, ["serve", *map(str, words)])
    assert result.exit_code == 2, result.output
    return result.output


def test_the_line_goes_before_the_environment_and_that_before_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "service.toml"
    file.write_text('port = "none of it"\nhead = "of-the-file"\nmodel = "of the file"\n')
    monkeypatch.setenv("CAPELET_PORT", "none either")
    words = ["serve", "--config", str(file)]
    assert "--port is 'none either'" in CliRunner().invoke(app, words).stderr
    monkeypatch.setenv("CAPELET_NO_DEMO", "1")
    # What neither says is read off the file.
    assert "--model is for embeddings" in CliRunner().invoke(app, [*words, "--port", "0"]).stderr
    monkeypatch.setenv("CAPELET_HEAD", "of-the-environment")
    file.write_text('head = "of-the-file"\n')
    assert "'of-the-environment'" in CliRunner().invoke(app, [*words, "--port", "0"]).stderr


def test_refusals(recipe: Path, tmp_path: Path) -> None:
    common = ("--recipe", recipe, "--ledger", tmp_path / "p.db", "--budget", 4, "--no-demo")
    assert "no API keys" in refusal(*common, "--host", "0.0.0.0")
    assert "both files" in refusal(*common, "--key", recipe)
    assert "'fresh' or 'same'" in refusal(*common, "--repeats", "often")
    assert "'none' or 'daily'" in refusal(*common, "--refill", "weekly")
    assert "--lifetime" in refusal(*common, "--refill", "daily")
    assert "--demo-data" in refusal(*common[:-1], "--text", "body")
    bare = tmp_path / "bare.toml"
    bare.write_text(RECIPE.split("\n\n")[0])
    assert "no guarantee" in refusal("--recipe", bare, *common[2:])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen" in refusal(*common, "--port", taken.getsockname()[1])


def test_more_than_the_store_allows_is_refused(recipe: Path, tmp_path: Path) -> None:
    from capelet.ledger.budgets import Budget

    with Ledger(tmp_path / "p.db") as ledger:
        ledger.open()
        ledger.limit(Budget(2.0))
    words = ("--recipe", recipe, "--ledger", tmp_path / "p.db", "--budget", 4, "--no-demo")
    assert "limited to ε = 2" in refusal(*words)


def test_a_missing_extra_is_named(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capelet.cli.serve._PACKAGES", ("no_such_package",))
    assert "capelet[service]" in refusal("--recipe", recipe, "--ledger", "x.db", "--budget", 4)


def write_certificate(folder: Path) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(pem))
    secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(pem, *secret))
    return files


def test_tls(recipe: Path, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    options = ("--recipe", recipe, "--ledger", tmp_path / "p.db", "--budget", 4, "--no-demo")
    with started(*options, "--certificate", certificate, "--key", key) as (_, url):
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        address = url.replace("127.0.0.1", "localhost")
        answer = httpx.get(f"{address}/healthz", verify=context)
        assert answer.json() == {"status": "ok"}
        assert "max-age" in answer.headers["strict-transport-security"]
    # The control: two keys that do not belong together.
    other = tmp_path / "other"
    other.mkdir()
    _, wrong = write_certificate(other)
    assert "belong together" in refusal(*options, "--certificate", certificate, "--key", wrong)


def test_what_is_in_flight_is_finished(recipe: Path, tmp_path: Path) -> None:
    options = ("--recipe", recipe, "--ledger", tmp_path / "p.db", "--budget", 1e6, "--no-demo")
    texts = [f"text number {number}" for number in range(2000)]
    answers: list[int] = []
    with started(*options) as (process, url):
        httpx.get(f"{url}/readyz", timeout=60)
        body = {"model": "mails", "input": texts, "user": "ann"}

        def ask() -> None:
            answers.append(httpx.post(f"{url}/v1/embeddings", json=body, timeout=60).status_code)

        thread = threading.Thread(target=ask)
        thread.start()
        with Ledger(tmp_path / "p.db") as ledger:
            # Told to end while it works: the request is in, and nothing is settled yet.
            while thread.is_alive() and not (waits := _waiting(url)):
                pass
            assert waits or ledger.counts().releases
            process.send_signal(signal.SIGTERM)
            thread.join(60)
            assert answers == [200]
            assert ledger.counts().releases == len(texts)


def _waiting(url: str) -> bool:
    line = next(
        line
        for line in httpx.get(f"{url}/metrics").text.splitlines()
        if line.startswith("capelet_waiting_texts")
    )
    return float(line.split()[1]) > 0


# ---- a head --------------------------------------------------------------------------------------


@pytest.fixture
def head(tmp_path: Path) -> Path:
    """A folder with a head of two classes for vectors of two coordinates."""
    weight, bias = np.eye(2, dtype=np.float32), np.zeros(2, dtype=np.float32)
    planted = Head.of("weather", ("sun", "rain"), (Layer(weight, bias),))
    return PrivateEncoder(Laplace(epsilon=8.0), head=planted).save(tmp_path / "folder")


def test_a_head_is_served_alone(head: Path) -> None:
    with started("--head", head) as (process, url):
        answer = httpx.post(f"{url}/v1/classify", json={"vectors": [[0, 3]]})
        assert answer.json()["data"][0]["label"] == "rain"
        assert httpx.post(f"{url}/v1/embeddings", json={"input": "a text"}).status_code == 404
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        assert process.returncode == 0 and "/v1/classify 200" in log


def test_what_is_served_must_be_said(head: Path, recipe: Path, tmp_path: Path) -> None:
    store = tmp_path / "keys.db"
    with Ledger(store) as ledger:
        ledger.open()
    bare = PrivateEncoder(Laplace(epsilon=8.0)).save(tmp_path / "bare")
    for words, sentence in [
        ([], "what is to be served"),
        (["--recipe", recipe], "--ledger"),
        (["--recipe", recipe, "--ledger", store], "--budget"),
        (["--head", head, "--budget", 40], "--budget is for embeddings"),
        (["--head", head, "--ledger", store], "has no API keys"),
        (["--head", head, "--host", "0.0.0.0"], "there are no API keys"),
        (["--head", bare], "has no head"),
    ]:
        result = CliRunner().invoke(app, ["serve", *map(str, words)])
        assert result.exit_code == 2, (words, result.output)
        assert sentence in " ".join(result.output.split()), (words, result.output)
