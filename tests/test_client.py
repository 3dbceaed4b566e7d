"""The user's half of a split deployment: only released vectors leave, and each of them once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capelet
from capelet.client import Client, ServerError
from capelet.errors import CapeletError
from capelet.ledger.budgets import BudgetError
from capelet.ledger.store import Ledger
from capelet.mechanisms import MECHANISMS
from capelet.release import PrivateEncoder


class Letters:
    """An encoder that is real enough: how often each of eight letters occurs."""

    name, backend, dimension, fingerprint = "letters", "python", 8, "0" * 16

    def encode(self, texts: Sequence[str], progress: Any = None) -> np.ndarray:
        return np.array([[text.count(c) for c in "abcdefgh"] for text in texts], dtype=np.float32)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        return np.zeros(len(texts), dtype=bool)


class Server:
    """A server that keeps what it was sent, and answers as the test says."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Any = None

    def respond(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 302:
            return status, {"Location": "/elsewhere"}, b""
        if status != 200:
            error = {"error": {"message": "not now\x1b[31m", "code": None}}
            return status, {}, json.dumps(error).encode()
        rows = json.loads(body)["vectors"]
        usual = {"data": [{"label": "yes" if row[0] > 0 else "no"} for row in rows]}
        answer = usual if self.answer is None else self.answer
        return status, {}, answer if isinstance(answer, bytes) else json.dumps(answer).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.bodies.append(body)
            state.headers.append(dict(self.headers))
            status, headers, content = state.respond(body)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nothing on the terminal of the tests."""

    http = HTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{http.server_port}"  # type: ignore[attr-defined]
    thread = threading.Thread(target=http.serve_forever, args=(0.05,))
    thread.start()
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def private() -> PrivateEncoder:
    return PrivateEncoder(Letters(), MECHANISMS["laplace"](epsilon=2.0))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capelet.client._PAUSE", 0.0)


def client(server: Any, private: PrivateEncoder, **options: Any) -> Client:
    return Client(server.url, options.pop("key", None), private, **options)


def test_what_is_sent_is_the_release(server: Server, private: PrivateEncoder) -> None:
    asking = client(server, private, key="sk-1")
    release = asking.release(["a secret", "bad"])
    labels = asking.classify(release)
    assert labels == ["yes" if row[0] > 0 else "no" for row in release.vectors]
    (body,) = server.bodies
    assert (np.array(json.loads(body)["vectors"], dtype=np.float32) == release.vectors).all()
    assert set(json.loads(body)) == {"vectors"}
    assert server.headers[0]["Authorization"] == "Bearer sk-1"
    assert asking.guarantee.epsilon == 2.0
    # Fresh noise in every call, where nothing is stored.
    asking.classify(["a secret", "bad"])
    assert server.bodies[0] != server.bodies[1]


def test_a_failed_request_is_sent_again_with_the_same_bytes(
    server: Server, private: PrivateEncoder, tmp_path: Path
) -> None:
    server.statuses = [503, 500]
    asking = client(server, private, store=tmp_path / "people.db", budget=4.0)
    asking.classify(["a text"], "ann")
    assert len(server.bodies) == 3 and len(set(server.bodies)) == 1
    server.statuses = [503, 503, 503]
    with pytest.raises(ServerError, match="status 503: not now"):
        asking.classify(["a text"], "ann")
    assert len(set(server.bodies)) == 1  # from the store: the call costs nothing more
    with Ledger(tmp_path / "people.db") as ledger:
        assert ledger.counts().releases == 1
    asking.classify(["another"], "ann")
    with pytest.raises(BudgetError):
        asking.classify(["a third"], "ann")
    assert b"third" not in b"".join(server.bodies)


def test_a_refusal_is_final_and_its_words_are_cut(server: Server, private: PrivateEncoder) -> None:
    server.statuses = [401]
    with pytest.raises(ServerError, match="status 401: not now") as error:
        client(server, private).classify(["a"])
    assert "\x1b" not in str(error.value) and len(server.bodies) == 1


def test_a_redirect_is_not_followed(server: Server, private: PrivateEncoder) -> None:
    server.statuses = [302]
    with pytest.raises(ServerError, match="302"):
        client(server, private, key="sk-1").classify(["a"])
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "answer", [b"<html>", {"labels": []}, {"data": []}, {"data": [{"label": 3}]}, [1]]
)
def test_an_answer_of_another_kind(server: Server, private: PrivateEncoder, answer: Any) -> None:
    server.answer = answer
    with pytest.raises(ServerError):
        client(server, private).classify(["a"])


def test_many_vectors_go_in_requests_that_a_server_reads(
    server: Server, private: PrivateEncoder
) -> None:
    labels = client(server, private).classify(["a"] * 2100)
    assert len(labels) == 2100
    assert [len(json.loads(body)["vectors"]) for body in server.bodies] == [2048, 52]


def test_nobody_there(private: PrivateEncoder) -> None:
    with pytest.raises(ServerError, match="cannot be reached"):
        Client("http://127.0.0.1:9", None, private).classify(["a"])


def test_what_may_not_leave_is_refused_before_anything_is_drawn(private: PrivateEncoder) -> None:
    with pytest.raises(CapeletError, match="noise step"):
        Client("https://labels.example", encoder=PrivateEncoder(Letters()))
    with pytest.raises(CapeletError, match="encoder="):
        Client("https://labels.example")
    with pytest.raises(CapeletError, match="without TLS"):
        Client("http://labels.example", "sk-1", private)
    with pytest.raises(CapeletError, match="https://"):
        Client("labels.example", None, private)
    with pytest.raises(CapeletError, match="ASCII"):
        Client("https://labels.example", "sk\n1", private)
    Client("https://labels.example", "sk-1", private)
    assert capelet.Client is Client
