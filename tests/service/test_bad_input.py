"""Nothing that a caller can send is a fault of ours: every bad body has a sentence and a 4xx."""

from __future__ import annotations

import json
import socket
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capelet.ledger.store import Ledger
from capelet.release import PrivateEncoder
from capelet.service.settings import Bounds
from service.running import MODEL, Running, listen

Serve = Callable[..., Running]
SECRET = "zanzibar-person"
CLIENTS: dict[str, httpx.Client] = {}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def running(private: PrivateEncoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("store") / "store.db"
    with (
        Ledger(path, keeps_names=False) as ledger,
        listen(ledger, private, budget=1e9) as running,
    ):
        yield running
    CLIENTS.pop(running.url).close()


def post(running: Running, body: bytes, **headers: str) -> httpx.Response:
    # One connection for all of them: most of the time of a small request is its making.
    if running.url not in CLIENTS:
        CLIENTS[running.url] = running.client()
    return CLIENTS[running.url].post("/v1/embeddings", content=body, headers={**JSON, **headers})


def refusal(response: httpx.Response) -> dict[str, Any]:
    """The error of an answer, which has OpenAI's shape."""
    assert 400 <= response.status_code < 500, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    assert SECRET not in response.text
    return dict(error)


BODIES: dict[str, object] = {
    "no input": {"model": MODEL, "user": "ann"},
    "empty text": {"model": MODEL, "user": "ann", "input": ""},
    "empty text in a list": {"model": MODEL, "user": "ann", "input": ["a", ""]},
    "no texts": {"model": MODEL, "user": "ann", "input": []},
    "10,000 texts": {"model": MODEL, "user": "ann", "input": ["a"] * 10_000},
    "1 MB text": {"model": MODEL, "user": "ann", "input": SECRET * 70_000},
    "too many tokens": {"model": MODEL, "user": "ann", "input": ["one two " * 500] * 400},
    "a number": {"model": MODEL, "user": "ann", "input": 7},
    "an object": {"model": MODEL, "user": "ann", "input": {SECRET: 1}},
    "null in a list": {"model": MODEL, "user": "ann", "input": ["a", None]},
    "tokens and texts": {"model": MODEL, "user": "ann", "input": ["a", 1]},
    "no model": {"input": "a", "user": "ann"},
    "model is a number": {"model": 1, "input": "a", "user": "ann"},
    "nobody": {"model": MODEL, "input": "a"},
    "an empty person": {"model": MODEL, "input": "a", "user": "  "},
    "a person who is a number": {"model": MODEL, "input": "a", "user": 7},
    "a long person": {"model": MODEL, "input": "a", "user": SECRET * 100},
    "user and subjects": {"model": MODEL, "input": "a", "user": "ann", "subjects": ["ann"]},
    "too few subjects": {"model": MODEL, "input": ["a", "b"], "subjects": [SECRET]},
    "subjects is a string": {"model": MODEL, "input": ["a"], "subjects": SECRET},
    "a subject is null": {"model": MODEL, "input": ["a"], "subjects": [None]},
    "dimensions": {"model": MODEL, "input": "a", "user": "ann", "dimensions": 7},
    "dimensions true": {"model": MODEL, "input": "a", "user": "ann", "dimensions": True},
    "dimensions huge": {"model": MODEL, "input": "a", "user": "ann", "dimensions": 10**18},
    "format": {"model": MODEL, "input": "a", "user": "ann", "encoding_format": SECRET},
    "a list": [1, 2],
    "a string": SECRET,
    "null": None,
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_refused(running: Running, name: str) -> None:
    response = post(running, orjson.dumps(BODIES[name]))
    refusal(response)
    assert response.status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json " + SECRET.encode(),
        b"\xff\xfe",
        b'{"model": "private", "user": "ann", "input": "\\ud800"}',
        b'{"model": "private", "user": "\\udfff", "input": "a"}',
        b'{"model": "private", "user": "ann", "input": "\xed\xa0\x80"}',
        b'{"model": "private", "user": "ann", "input": NaN}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_json(running: Running, body: bytes) -> None:
    assert "JSON" in refusal(post(running, body))["message"]


def test_odd_texts_that_are_texts(running: Running) -> None:
    texts = ["\0", "a\0b", " ", "\u202e", "\U0001f600" * 50, "ａ", "\ufffd"]
    response = post(running, orjson.dumps({"model": MODEL, "user": "a\0b", "input": texts}))
    assert response.status_code == 200, response.text
    assert response.json()["privacy"]["charged"] == 2.0 * len(texts)


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2], [3]], [[]]])
def test_token_arrays_name_the_setting_of_langchain(running: Running, tokens: object) -> None:
    response = post(running, orjson.dumps({"model": MODEL, "user": "ann", "input": tokens}))
    error = refusal(response)
    assert "check_embedding_ctx_length=False" in error["message"]
    assert (error["param"], error["code"]) == ("input", "token_arrays_not_supported")


def test_an_unknown_model_is_404(running: Running) -> None:
    response = post(running, orjson.dumps({"model": SECRET, "user": "ann", "input": "a"}))
    assert refusal(response)["code"] == "model_not_found"
    assert response.status_code == 404


def test_another_content_type_is_415(running: Running) -> None:
    body = orjson.dumps({"model": MODEL, "user": "ann", "input": "a"})
    response = post(running, body, **{"Content-Type": "text/plain"})
    assert response.status_code == 415
    refusal(response)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/embeddings", 405),
        ("GET", f"/{SECRET}", 404),
        ("POST", "/v1/../../etc/passwd", 404),
        ("DELETE", "/", 405),
    ],
)
def test_unknown_addresses(running: Running, method: str, path: str, status: int) -> None:
    with running.client() as client:
        response = client.request(method, path)
    assert response.status_code == status
    refusal(response)


# ---- bodies of any kind --------------------------------------------------------------------------

_texts = st.text(st.characters(codec="utf-8"), max_size=12)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=12,
)
_fields = st.sampled_from(
    ["input", "model", "user", "subjects", "dimensions", "encoding_format", "extra"]
)
_bodies = st.dictionaries(_fields, _values | st.just(MODEL) | st.lists(_texts), max_size=7)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=_bodies, is_meant_well=st.booleans())
def test_no_body_is_a_fault(running: Running, body: dict[str, Any], is_meant_well: bool) -> None:
    body = {"model": MODEL, "input": "a", "user": "b", **body} if is_meant_well else body
    response = post(running, json.dumps(body).encode())
    assert response.status_code in (200, 400, 404), response.text


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    body=st.binary(max_size=80),
    name=st.text(string.ascii_letters + "-", min_size=1, max_size=12),
    value=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40),
)
def test_no_bytes_are_a_fault(running: Running, body: bytes, name: str, value: str) -> None:
    response = post(running, body, **{f"x-{name}": value, "Idempotency-Key": value})
    assert response.status_code == 400, response.text


# ---- bodies that are too long or too slow --------------------------------------------------------


def raw(running: Running, parts: list[bytes], pause: float = 0.0) -> bytes:
    """The answer to bytes that are sent one part after the other."""
    host, _, port = running.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            # The gateway has answered and hung up.
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(pause)
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
                if b"\r\n\r\n" in answer and b'"error"' in answer:
                    break
        except ConnectionResetError:
            pass
        return answer


HEAD = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_long_body_is_refused_by_its_length_and_on_the_stream(serve: Serve) -> None:
    running = serve(bounds=Bounds(body_bytes=1000))
    announced = raw(running, [HEAD + b"Content-Length: 1000000\r\n\r\n"])
    assert announced.startswith(b"HTTP/1.1 413")
    chunk = b"1f4\r\n" + b" " * 500 + b"\r\n"
    streamed = raw(running, [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 5])
    assert streamed.startswith(b"HTTP/1.1 413")
    # The control: what fits is served.
    assert running.ask("a").status_code == 200


def test_a_slow_body_is_refused(serve: Serve) -> None:
    """Of a hundred bytes, thirty come, one by one; nobody waits for the others."""
    running = serve(bounds=Bounds(body_seconds=0.5))
    answer = raw(running, [HEAD + b"Content-Length: 100\r\n\r\n", *[b" "] * 30], pause=0.1)
    assert answer.startswith(b"HTTP/1.1 408") and b"within 0.5 seconds" in answer
    # The control: with time enough, what was slow is read, and refused for what it says.
    patient = serve(bounds=Bounds(body_seconds=600.0))
    answer = raw(patient, [HEAD + b"Content-Length: 5\r\n\r\n", *[b" "] * 5], pause=0.1)
    assert answer.startswith(b"HTTP/1.1 400")


def test_a_store_in_the_way(serve: Serve, tmp_path: Path) -> None:
    """A database that fails is a 503 with nothing released; afterwards the gateway goes on."""
    running = serve()
    assert running.ask("a").status_code == 200
    before = running.ledger.counts().releases
    path = tmp_path / "store.db"
    running.ledger.close()
    hidden = path.rename(tmp_path / "away.db")
    path.mkdir()
    try:
        refused = running.ask("b")
        assert refused.status_code == 503, refused.text
        assert refused.json()["error"]["code"] == "store_unavailable"
        assert str(tmp_path) not in refused.text
        with running.client() as client:
            assert client.get("/readyz").status_code == 503
            assert client.get("/healthz").status_code == 200
    finally:
        path.rmdir()
        hidden.rename(path)
    assert running.ask("b").json()["privacy"]["charged"] == 2.0
    assert running.ledger.counts().releases == before + 1
