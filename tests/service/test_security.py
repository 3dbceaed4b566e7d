"""Who may ask, what is written down, and what a browser may be made to do."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from capelet.errors import CapeletError, StoreDown
from capelet.mechanisms import MECHANISMS
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.question import Address
from capelet.release import PrivateEncoder
from capelet.service.security import HEADERS, Sessions
from capelet.service.server import check_certificate, check_open
from capelet.service.settings import check_recipe
from service.running import MODEL, Running

Serve = Callable[..., Running]


# ---- keys ----------------------------------------------------------------------------------------


def test_without_keys_anyone_on_this_machine_may_ask(serve: Serve) -> None:
    running = serve()
    assert running.ask("a").status_code == 200
    # Clients insist on sending one.
    assert running.ask("a", "sk-anything").status_code == 200


def test_once_there_is_a_key_it_is_needed(serve: Serve) -> None:
    running = serve()
    assert running.ask("a").status_code == 200
    key, secret = running.ledger.keys.add("first")
    for wrong in (None, "wrong", secret + "x", secret[:-1]):
        response = running.ask("a", wrong)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_api_key"
    assert running.ask("a", secret).status_code == 200
    running.ledger.keys.revoke(key.id)
    revoked, unknown = running.ask("a", secret), running.ask("a", "wrong")
    assert revoked.status_code == 401
    assert revoked.content == unknown.content
    assert running.ask("a").status_code == 401


def test_a_store_that_is_down_lets_nobody_in(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    running = serve()
    running.ledger.keys.add("first")

    def fail(*_: Any) -> None:
        raise StoreDown("the database of 10.0.0.1 is gone")

    monkeypatch.setattr(running.ledger, "open", fail)
    response = running.ask("a")
    assert response.status_code == 503
    assert "10.0.0.1" not in response.text


def test_a_key_that_is_bound_speaks_of_one_person(serve: Serve) -> None:
    running = serve()
    _, secret = running.ledger.keys.add("ann's", subject="ann")
    assert running.ask("a", secret, user=...).status_code == 200
    assert running.ask("a", secret, user=" ann ").json()["privacy"]["charged"] == 0.0
    assert running.ask("a", secret, user="bob").status_code == 403
    assert running.ask(["a", "b"], secret, user=..., subjects=["ann", "bob"]).status_code == 403
    assert running.ledger.counts().people == 1
    # The control: a key that is bound to nobody needs a name.
    _, free = running.ledger.keys.add("free")
    assert running.ask("a", free, user=...).status_code == 400


def test_figures_are_the_operators(serve: Serve) -> None:
    running = serve()
    with running.client() as client:
        assert client.get("/metrics").status_code == 200
    _, plain = running.ledger.keys.add("plain")
    _, operator = running.ledger.keys.add("operator", is_operator=True)
    statuses = []
    for secret in (None, plain, operator):
        with running.client(secret) as client:
            statuses.append(client.get("/metrics").status_code)
    assert statuses == [401, 403, 200]


# ---- what is written down ------------------------------------------------------------------------


def test_no_text_person_or_key_is_logged_counted_or_stored(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    running = serve(budget=4.0)
    _, secret = running.ledger.keys.add("plain", subject="zanzibar-person")
    _, operator = running.ledger.keys.add("operator", is_operator=True)
    answers = [
        running.ask("zanzibar text", secret, user=...),
        running.ask(["zanzibar a", "zanzibar b"], secret, user=...),
        running.ask("zanzibar text", "zanzibar-key"),
        running.ask("", secret, user="zanzibar-person"),
    ]
    with running.client(operator) as client:
        answers.append(client.get("/v1/models?user=zanzibar"))
        client.get("/zanzibar")
        figures = client.get("/metrics").text
    assert [answer.status_code for answer in answers] == [200, 429, 401, 400, 200]
    content = b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))
    # All loggers but those of this test's own client.
    records = [item for item in caplog.records if not item.name.startswith("http")]
    log = "\n".join(record.getMessage() for record in records)
    assert "/v1/embeddings 200" in log and "capelet_requests_total" in figures
    for place in (log, figures, *(answer.text for answer in answers)):
        assert "zanzibar" not in place
        assert secret not in place and operator not in place
    assert b"zanzibar" not in content and secret.encode() not in content


def test_a_fault_is_logged_without_its_message(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = serve()

    def fail(*_: Any) -> None:
        raise RuntimeError("zanzibar text")

    monkeypatch.setattr(running.gateway, "plan", fail)
    response = running.ask("a")
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "fault"
    assert "RuntimeError at app.py:" in caplog.text
    assert "zanzibar" not in caplog.text + response.text


# ---- browsers ------------------------------------------------------------------------------------


def test_every_answer_has_the_headers(serve: Serve) -> None:
    running = serve()
    with running.client() as client:
        for response in (client.get("/"), client.get("/nothing"), running.ask("a")):
            for name, value in HEADERS.items():
                assert response.headers[name] == value
            assert "server" not in response.headers
            assert "access-control-allow-origin" not in response.headers


def test_without_keys_the_host_must_be_this_machine(serve: Serve) -> None:
    running = serve()
    body = {"model": MODEL, "input": "a", "user": "ann"}
    with running.client() as client:
        hosts = {"evil.example": 403, "[::1": 403, "[x]": 403, "localhost:1": 200, "[::1]:80": 200}
        for host, status in hosts.items():
            response = client.post("/v1/embeddings", json=body, headers={"Host": host})
            assert response.status_code == status
        # Once there are keys, a name of its own may stand before the gateway.
        _, secret = running.ledger.keys.add("first")
        assert client.post("/v1/embeddings", json=body).status_code == 401
        headers = {"Host": "gateway.example", "Authorization": f"Bearer {secret}"}
        assert client.post("/v1/embeddings", json=body, headers=headers).status_code == 200


def test_a_session_is_signed_short_and_bound_to_its_process() -> None:
    sessions = Sessions()
    cookie = sessions.open("key-1")
    session = sessions.read(cookie)
    assert session is not None and session.key == "key-1"
    assert Sessions().read(cookie) is None
    changed = cookie.replace("key-1", "key-2")
    for forged in (None, "", "a.b.c", "..", changed, cookie[:-1], cookie + "0", "é.1.x"):
        assert sessions.read(forged) is None


def test_a_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions()
    monkeypatch.setattr(Sessions, "SECONDS", -1)
    assert sessions.read(sessions.open("key-1")) is None


# ---- where it listens ----------------------------------------------------------------------------


def test_beyond_this_machine_only_with_keys() -> None:
    with pytest.raises(CapeletError, match="no API keys"):
        check_open(Address("0.0.0.0"), has_keys=False)
    assert "TLS" in (check_open(Address("0.0.0.0"), has_keys=True) or "")
    assert check_open(Address("127.0.0.1"), has_keys=False) is None
    assert check_open(Address("::1"), has_keys=False) is None


def test_both_files_of_a_certificate(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    with pytest.raises(CapeletError, match="both files"):
        Address(certificate=file)
    with pytest.raises(CapeletError, match="cannot be used"):
        check_certificate(Address(certificate=file, key=file))
    file.write_text("no certificate")
    with pytest.raises(CapeletError, match="cannot be used"):
        check_certificate(Address(certificate=file, key=file))


# ---- what may be served --------------------------------------------------------------------------


class Promising:
    """A private encoder as far as its promise goes."""

    consumes = "texts"

    def __init__(self, guarantee: Guarantee) -> None:
        self.guarantee = guarantee


@pytest.mark.parametrize(
    "guarantee",
    [
        NONE,
        Guarantee(1.0, status="none"),
        Guarantee(1.0, status="broken"),
        Guarantee(1.0, unit="word"),
        Guarantee(1.0, notion="metric", unit="word", metric="euclidean"),
        Guarantee(1.0, notion="central", unit="record", neighbours="replace"),
    ],
)
def test_what_cannot_be_charged_is_not_served(guarantee: Guarantee) -> None:
    private: Any = Promising(guarantee)
    for allow in (False, True):
        with pytest.raises(CapeletError):
            check_recipe(private, "same", allow)


def test_a_claim_is_served_only_where_that_is_allowed() -> None:
    claimed: Any = Promising(Guarantee(1.0, status="claimed"))
    with pytest.raises(CapeletError, match="only claimed"):
        check_recipe(claimed, "same")
    assert check_recipe(claimed, "same", True).status == "claimed"
    proven: Any = Promising(Guarantee(1.0))
    assert "equal is public" in check_recipe(proven, "same").caveat
    assert not check_recipe(proven, "fresh").caveat


def test_recipes_without_noise_or_without_texts_are_refused() -> None:
    with pytest.raises(CapeletError, match="no guarantee"):
        check_recipe(PrivateEncoder("wordllama"), "same")
    with pytest.raises(CapeletError, match="begins with vectors"):
        check_recipe(PrivateEncoder(MECHANISMS["laplace"](epsilon=1.0)), "same")


def test_no_page_of_the_framework(serve: Serve) -> None:
    running = serve()
    for path in ("/docs", "/redoc"):
        assert httpx.get(running.url + path).status_code == 404
    schema = httpx.get(f"{running.url}/openapi.json").json()
    assert set(schema["paths"]) == {
        "/v1/embeddings",
        "/v1/models",
        "/v1/models/{name}",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    assert not re.search("HTTPValidationError", str(schema))


def test_nothing_is_told_to_a_tracer_of_the_environment(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastAPI tells whatever provider there is of addresses, and of errors with their messages."""
    pytest.importorskip("fastapi.telemetry")
    from fastapi import FastAPI
    from fastapi.testclient import TestClient
    from opentelemetry import trace

    tracers: list[object] = []

    class Provider:
        def get_tracer(self, *names: object, **_: object) -> trace.Tracer:
            tracers.append(names)
            return trace.NoOpTracer()

    monkeypatch.setattr(trace, "get_tracer_provider", Provider)
    assert serve().ask("a").status_code == 200
    assert not tracers
    TestClient(FastAPI()).get("/")
    assert tracers  # the control: an application that leaves it as it is
