"""`/v1/classify` takes released vectors only, with a head alone or beside embeddings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from capelet.errors import CapeletError
from capelet.ledger.store import Ledger
from capelet.mechanisms import MECHANISMS
from capelet.release import PrivateEncoder
from capelet.service.classify import load_head
from service.running import Running, listen_head, planted_head

Serve = Callable[..., Running]
WIDTH = planted_head().map.width


@pytest.fixture
def url() -> Iterator[str]:
    with listen_head(planted_head()) as url:
        yield url


def ask(url: str, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    usual = {"content-type": "application/json"}
    return httpx.post(f"{url}/v1/classify", content=content, headers={**usual, **headers})


def test_labels_of_vectors(url: str) -> None:
    answer = ask(url, {"vectors": [[3, 0, 0, 0], [0.5, 2.5, 9, -9]]})
    assert answer.status_code == 200
    content = answer.json()
    assert content["task"] == "weather"
    assert [(item["index"], item["label"]) for item in content["data"]] == [(0, "sun"), (1, "rain")]
    # Labels only: chances would tell more of the texts that trained the head.
    assert set(content["data"][0]) == {"object", "index", "label"}
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"input": "a secret text"}, "vectors_only"),
        ({"vectors": [[1, 2, 3, 4]], "texts": ["a secret text"]}, "vectors_only"),
        ({"vectors": ["a secret text"]}, "vectors_only"),
        ({"vectors": "a secret text"}, "vectors_only"),
        ({"vectors": [["a", "secret", "text", "!"]]}, "vectors_only"),
        ({"vectors": [[True, 0, 0, 0]]}, "vectors_only"),
        ({"vectors": [[None, 0, 0, 0]]}, "vectors_only"),
        ({"vectors": [[[1], 0, 0, 0]]}, "vectors_only"),
        ({"vectors": {"secret": 1}}, "vectors_only"),
        (["a secret text"], "vectors_only"),
        ({}, "vectors_only"),
        ({"vectors": []}, None),
        ({"vectors": [[0.0] * WIDTH] * 2049}, None),
        ({"vectors": [[1, 2, 3]]}, None),
        ({"vectors": [[1e39, 0, 0, 0]]}, None),
        (b'{"vectors": [[1e999, 0, 0, 0]]}', None),
        (b'{"vectors": [[NaN, 0, 0, 0]]}', None),
        (b'{"vectors": [[' + b"9" * 400 + b", 0, 0, 0]]}", None),
        (b"\xff\xfe secret", None),
        (b"", None),
    ],
)
def test_anything_else_is_refused_and_not_repeated(url: str, body: Any, code: str | None) -> None:
    answer = ask(url, body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["code"] == code
    assert "secret" not in answer.text


def test_other_refusals(url: str) -> None:
    good = {"vectors": [[0.0] * WIDTH]}
    assert ask(url, good).status_code == 200
    assert ask(url, good, **{"content-type": "text/plain"}).status_code == 415
    # A name that was made to mean this machine: a web page cannot ask through a browser.
    assert ask(url, good, host="evil.example").status_code == 403
    assert ask(url, b" " * (9 * 2**20)).status_code == 413
    assert httpx.get(f"{url}/v1/classify").status_code == 405
    assert httpx.post(f"{url}/v1/embeddings", json={"input": "text"}).status_code == 404


def test_a_head_alone_says_how_it_is(url: str) -> None:
    assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{url}/readyz").json() == {"status": "ready"}
    ask(url, {"vectors": ["a text"]})
    figures = httpx.get(f"{url}/metrics").text
    assert 'route="/v1/classify",status="400"' in figures and "vectors_only" in figures
    assert "/v1/classify" in httpx.get(f"{url}/openapi.json").json()["paths"]


def test_keys_of_a_store_are_asked_for(tmp_path: Path) -> None:
    good = {"vectors": [[0.0] * WIDTH]}
    with ExitStack() as stack:
        ledger = stack.enter_context(Ledger(tmp_path / "keys.db"))
        _, secret = ledger.keys.add("client")
        url = stack.enter_context(listen_head(planted_head(), ledger))
        # The very first request, under the name by which others know the machine.
        first = ask(url, good, authorization=f"Bearer {secret}", host="labels.example")
        assert first.status_code == 200
        assert ask(url, good).status_code == 401
        assert ask(url, good, authorization="Bearer wrong").status_code == 401
        assert ask(url, good, authorization=f"Bearer {secret}").status_code == 200
        assert httpx.get(f"{url}/metrics").status_code == 401
        assert ledger.counts().releases == 0


def test_a_head_beside_embeddings(serve: Serve) -> None:
    running = serve(head=planted_head())
    assert ask(running.url, {"vectors": [[1, 0, 0, 0]]}).json()["data"][0]["label"] == "sun"
    assert running.ask("a text").status_code == 200
    without = serve()
    assert ask(without.url, {"vectors": [[1, 0, 0, 0]]}).status_code == 404


def test_a_server_needs_only_the_files_of_the_head(tmp_path: Path) -> None:
    private = PrivateEncoder(MECHANISMS["laplace"](epsilon=8.0), head=planted_head())
    whole = private.save(tmp_path / "whole")
    part = tmp_path / "part"
    part.mkdir()
    for name in ("manifest.json", "head.safetensors", "head.json"):
        shutil.copy(whole / name, part)
    assert load_head(part).classes == ("sun", "rain")
    (part / "head.json").write_text('{"task": "weather", "classes": ["rain", "sun"]}')
    with pytest.raises(CapeletError):  # another file than was saved
        load_head(part)
    bare = PrivateEncoder(MECHANISMS["laplace"](epsilon=8.0)).save(tmp_path / "bare")
    with pytest.raises(CapeletError, match="has no head"):
        load_head(bare)
    with pytest.raises(CapeletError, match="is not"):
        load_head(tmp_path / "nowhere")
