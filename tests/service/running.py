"""A real server in a thread: uvicorn, the routes, a store in a file, a fast encoder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI

from capelet.ledger.budgets import Budget, Limits
from capelet.ledger.store import Ledger
from capelet.question import Address
from capelet.release import PrivateEncoder
from capelet.release.heads import Head
from capelet.release.maps import Layer
from capelet.service.app import Service, create_app
from capelet.service.classify import create_head_app
from capelet.service.demonstration import Demonstration
from capelet.service.gateway import Gateway
from capelet.service.server import bind, make_server
from capelet.service.settings import Bounds, Settings

MODEL = "private"


@dataclass
class Running:
    """A gateway that listens."""

    url: str
    ledger: Ledger
    gateway: Gateway
    service: Service

    def client(self, secret: str | None = None, **options: Any) -> httpx.Client:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)

    def ask(self, texts: object, secret: str | None = None, **more: Any) -> httpx.Response:
        """A request for embeddings; `headers` and all other fields as they are given."""
        headers = more.pop("headers", {})
        body = {"model": MODEL, "input": texts, "user": "ann", **more}
        body = {name: value for name, value in body.items() if value is not ...}
        with self.client(secret) as client:
            return client.post("/v1/embeddings", json=body, headers=headers)


@contextmanager
def listen(
    ledger: Ledger,
    private: PrivateEncoder,
    *,
    budget: float = 1000.0,
    bounds: Bounds | None = None,
    demonstration: Demonstration | None = None,
    head: Head | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """Serve until the block ends; then everything in flight is finished."""
    gateway = Gateway(
        private,
        ledger,
        Settings(MODEL, bounds=bounds or Bounds(), **settings),
        Limits(Budget(budget)),
    )
    ledger.open()
    ledger.limit(Budget(budget))
    app = create_app(gateway, demonstration=demonstration, head=head)
    with _run(app) as url:
        yield Running(url, ledger, gateway, app.state.service)


def planted_head() -> Head:
    """Says `sun` where the first coordinate is larger than the second, and else `rain`."""
    layers = (Layer(np.eye(2, 4, dtype=np.float32), np.zeros(2, dtype=np.float32)),)
    return Head.of("weather", ("sun", "rain"), layers)


@contextmanager
def listen_head(head: Head, ledger: Ledger | None = None) -> Iterator[str]:
    """Serve a head alone until the block ends; the address."""
    with _run(create_head_app(head, ledger)) as url:
        yield url


@contextmanager
def _run(app: FastAPI) -> Iterator[str]:
    urls: list[str] = []
    address = Address(port=0)
    server = make_server(app, address, urls.append)
    thread = threading.Thread(target=server.run, args=([bind(address)],))
    thread.start()
    try:
        wait_for(lambda: bool(urls))
        wait_for(lambda: httpx.get(f"{urls[0]}/readyz").status_code == 200)
        yield urls[0]
    finally:
        server.should_exit = True
        thread.join(60)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
