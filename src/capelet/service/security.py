"""What stands between the network and the routes: bounds on bodies, headers, sessions, silence.

Nothing here logs a text, a key, a person or a query string: a line of the log has the route as this
code knows it, the status and the milliseconds.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from capelet.errors import describe_fault
from capelet.service.errors import Refusal, bad_input, not_allowed, our_fault, too_large, too_slow
from capelet.service.metrics import Metrics
from capelet.service.settings import Bounds, is_loopback

LOG = logging.getLogger("capelet.service")
_PAGE = ("/", "/login", "/logout", "/try", "/style.css", "/page.js", "/favicon.ico")
_HEALTH = ("/healthz", "/readyz", "/metrics", "/openapi.json")
# The only addresses that a log or a figure names: whatever else is asked for was typed by somebody.
ROUTES = frozenset([*_PAGE, *_HEALTH, "/v1/embeddings", "/v1/models", "/v1/classify"])
# No script, style, font or frame from anywhere else, and nobody may frame the page.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": with that, browsers hide the origin of the page's own forms too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Answers are people's vectors, and the page is the operator's: no cache keeps either.
    "Cache-Control": "no-store",
}


class Guard:
    """Around all routes: security headers, a name for the host, counts, and no traceback.

    A fault becomes a refusal *here*: the server would log it with its message, which may quote.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, is_local: Callable[[], bool], has_tls: bool
    ) -> None:
        self._app, self._metrics, self._is_local = app, metrics, is_local
        transport = {"Strict-Transport-Security": "max-age=31536000"} if has_tls else {}
        self._headers = [
            (name.lower().encode(), value.encode())
            for name, value in {**HEADERS, **transport}.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        try:
            self._check_host(scope)
            await self._app(scope, receive, send_guarded)
        except Exception as error:
            refusal = error if isinstance(error, Refusal) else our_fault()
            if not isinstance(error, Refusal):
                LOG.error("a fault of the gateway: %s", describe_fault(error))
            if not status:
                await self.refuse(refusal)(scope, receive, send_guarded)
        finally:
            route = scope["path"] if scope["path"] in ROUTES else "other"
            self._metrics.count_answer(route, status)
            LOG.info("%s %d %.0f ms", route, status, 1000 * (time.perf_counter() - start))

    def refuse(self, refusal: Refusal) -> Response:
        self._metrics.count_refusal(refusal.code)
        return refuse(refusal)

    def _check_host(self, scope: Scope) -> None:
        """Without keys only this machine may ask, also not a web page that its browser shows.

        A page's own name can be made to mean 127.0.0.1 (DNS rebinding); the browser still sends
        the page's name as the host.
        """
        if not self._is_local():
            return
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1 or not _is_own_name(b"".join(hosts)):
            raise not_allowed("without API keys this gateway answers only as localhost")


# A client sends the same header with each request; a few, since anybody may send others.
@lru_cache(maxsize=16)
def _is_own_name(header: bytes) -> bool:
    """Whether a Host header names this machine, or is empty; what is no name is refused."""
    try:
        host = urlsplit("//" + header.decode("latin-1")).hostname
    # Brackets that do not close, and the like.
    except ValueError:
        return False
    return not host or is_loopback(host)


def refuse(refusal: Refusal) -> Response:
    """The answer that a refusal is."""
    content = orjson.dumps(refusal.body())
    return Response(content, refusal.status, refusal.headers, "application/json")


async def read_body(request: Request, bounds: Bounds) -> bytes:
    """The body, counted as it comes: too long or too slow is refused before it is all there."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal():
        raise bad_input("Content-Length is not a number")
    if int(length) > bounds.body_bytes:
        raise too_large(bounds.body_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(bounds.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bounds.body_bytes:
                    raise too_large(bounds.body_bytes)
    except TimeoutError:
        raise too_slow(bounds.body_seconds) from None
    return bytes(body)


async def wait_until_gone(request: Request) -> None:
    """Return when the caller has closed the connection; the body must have been read."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return


def bearer(request: Request) -> str | None:
    """The secret of the Authorization header; None where there is none."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and secret.strip() else None


# ---- the operator's session ----------------------------------------------------------------------


class Session(NamedTuple):
    """Who is logged in, until when, and the token that forms must bring back."""

    key: str
    until: int
    token: str


class Sessions:
    """Cookies that this process signed: short-lived, and void when it ends.

    Nothing is kept: the cookie holds the key's id and a time, under an HMAC.
    """

    COOKIE = "capelet_operator"
    SECONDS = 1800

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def open(self, key: str) -> str:
        """The cookie of a new session."""
        content = f"{key}.{int(time.time()) + self.SECONDS}"
        return f"{content}.{self._sign('cookie', content)}"

    def read(self, cookie: str | None) -> Session | None:
        """The session of a cookie; None where it is missing, forged or over."""
        content, _, signature = (cookie or "").rpartition(".")
        key, _, until = content.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("cookie", content).encode()):
            return None
        if int(until) < time.time():
            return None
        return Session(key, int(until), self._sign("form", content))

    def _sign(self, purpose: str, content: str) -> str:
        return hmac.digest(self._secret, f"{purpose} {content}".encode(), "sha256").hex()


def check_origin(request: Request) -> None:
    """Refuse a form that another site sent: browsers say where it came from."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    is_foreign = site not in (None, "same-origin", "none")
    if is_foreign or (origin is not None and origin.partition("://")[2] != host):
        raise not_allowed("this form must be sent from the gateway's own page")
