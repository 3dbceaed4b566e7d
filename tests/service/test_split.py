"""A split deployment, whole: `protect` trains, the client draws, a server with a head alone labels.

The server is a process of its own, whose folder has three files and no extractor; a proxy between
the two keeps every byte.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import orjson
import pytest

import capelet
from capelet.defences import Settings
from service.recorder import Recorder, record
from service.running import wait_for

pytestmark = pytest.mark.slow
# What a request may be made of: the address, headers without a word of the user's, and numbers.
REQUEST = re.compile(
    rb"POST /v1/classify HTTP/1\.1\r\n(?P<headers>(?:[A-Za-z-]+: [^\r\n]*\r\n)+)\r\n"
    rb'\{"vectors": (?P<vectors>[\[\]0-9eE+., -]+)\}'
)
HEADERS = {
    "accept-encoding": "identity",
    "connection": "close",
    "content-type": "application/json",
}
FREE = {"content-length", "host", "user-agent"}


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """`capelet serve --head` in a process of its own; its address."""
    program = [sys.executable, "-c", "from capelet.cli import main; main()"]
    command = [*program, "serve", "--head", str(folder), "--port", "0"]
    log = folder / "log.txt"
    with log.open("wb") as stream:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, env=os.environ)
    try:
        assert server.stdout is not None
        line = server.stdout.readline().decode()
        address = re.search(r"http://[\d.]+:\d+", line)
        assert address, line + log.read_text()
        url = address[0]
        wait_for(lambda: httpx.get(f"{url}/readyz").status_code == 200)
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        server.stdout.close()


@pytest.mark.parametrize(("method", "epsilon"), [("dpnr", 2000.0), ("bottleneck", 12.0)])
def test_a_split_deployment(method: str, epsilon: float, tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    corpus = capelet.load("reviews")
    rows = np.arange(len(corpus))
    own, others = corpus.take(rows[rows % 3 == 0]), corpus.take(rows[1:901:3])
    assert others.texts is not None and others.label is not None
    settings = Settings(epsilon=epsilon)
    protection = capelet.protect(
        own, "wordllama", method, settings, seeds=1, attackers=["logistic"]
    )
    whole = protection.save(tmp_path / "private")
    part = tmp_path / "server"
    part.mkdir()
    for name in ("manifest.json", "head.safetensors", "head.json"):
        shutil.copy(whole / name, part)
    with serve(part) as url, record(url) as recorder:
        client = capelet.Client(recorder.url, encoder=whole, store=tmp_path / "people.db")
        release = client.release(others.texts, "ann")
        labels = client.classify(release)
        again = client.classify(others.texts, "ann")
    # The store's vectors once more: the same release, and so the same answer.
    assert again == labels
    truth = np.array([str(value) for value in others.label])
    majority = np.unique(truth, return_counts=True)[1].max() / len(truth)
    accuracy = float((np.array(labels) == truth).mean())
    # Three standard errors over the commonest class.
    assert accuracy > majority + 3 * np.sqrt(majority * (1 - majority) / len(truth))
    check_requests(recorder, release.vectors, 2)
    check_words(recorder, others.texts)
    log = (part / "log.txt").read_text()
    assert "/v1/classify 200" in log and not any(text in log for text in others.texts)
    raw = protection.encoder.unprotected().release(others.texts[:20]).vectors.astype(np.float32)
    assert not any(str(row[0]).encode() in recorder.requests for row in raw)


def check_requests(recorder: Recorder, vectors: np.ndarray, count: int) -> None:
    """Nothing crossed but requests of numbers, and the numbers are the client's release."""
    requests = list(REQUEST.finditer(bytes(recorder.requests)))
    assert len(requests) == count
    assert sum(len(match[0]) for match in requests) == len(recorder.requests)
    for match in requests:
        lines = match["headers"].decode().split("\r\n")[:-1]
        headers = dict(line.lower().split(": ", 1) for line in lines)
        assert {name: value for name, value in headers.items() if name not in FREE} == HEADERS
        numbers = np.array(orjson.loads(match["vectors"]), dtype=np.float32)
        assert (numbers == vectors).all()


def check_words(recorder: Recorder, texts: np.ndarray) -> None:
    """No word of any text crossed in either direction, but those that headers consist of."""
    crossed = set(re.findall(rb"[a-z]{4,}", bytes(recorder.requests + recorder.answers).lower()))
    words = {word for text in texts for word in re.findall(r"[a-z]{4,}", text.lower())}
    common = {word.decode() for word in crossed} & words
    assert len(words) > 200 and len(common) < 5, common


@pytest.mark.parametrize(
    "content", [b"", b"hello", b'{"vectors": [[1.0]], "text": "x"}', b'{"vectors": [["x"]]}']
)
def test_the_checks_can_fail(content: bytes) -> None:
    head = b"POST /v1/classify HTTP/1.1\r\nContent-Length: 9\r\n\r\n"
    with pytest.raises(AssertionError):
        check_requests(Recorder("", bytearray(head + content)), np.ones((1, 1)), 1)
    texts = [f"{letter}" * 4 for letter in "abcdefghijklmnopqrstuvwxyz"] * 10
    with pytest.raises(AssertionError):
        check_words(Recorder("", bytearray(" ".join(texts).encode())), np.array(texts))
