"""A server around the gateway: where it listens, with which files, and how it ends."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from capelet.errors import CapeletError, MissingExtra, name_field
from capelet.question import Address
from capelet.service.settings import is_loopback

if TYPE_CHECKING:
    from fastapi import FastAPI

# Seconds for what is in flight when the process is told to end; the largest request takes longer
# only on a machine that is too slow for it.
_GRACE = 30
# Connections beyond this are answered with 503: each may hold a body of 8 MiB.
_CONNECTIONS = 1000


def check_open(address: Address, has_keys: bool) -> str | None:
    """Refuse to be open to others without keys; a warning where keys would travel unhidden."""
    if is_loopback(address.host):
        return None
    if not has_keys:
        raise CapeletError(
            f"at {address.host!r} others can reach the gateway, and there are no API keys; make "
            "one with `capelet keys add`, or listen at 127.0.0.1"
        )
    if address.has_tls:
        return None
    return (
        f"texts and keys travel without TLS; give {name_field('certificate')} and "
        f"{name_field('key')}, or put a proxy with TLS in front"
    )


def check_certificate(address: Address) -> None:
    """Refuse files that are no certificate and its key; no files are no TLS."""
    if address.certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            address.certificate, address.key, password=_refuse_password
        )
    except (OSError, ValueError) as error:
        # ssl.SSLError is an OSError; its text names neither content nor key.
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise CapeletError(
            f"the certificate {str(address.certificate)!r} and the key {str(address.key)!r} cannot "
            f"be used ({reason}); give PEM files that belong together, the key without a password"
        ) from None


def _refuse_password() -> str:
    raise ValueError("the key has a password")


def bind(address: Address) -> socket.socket:
    """A socket that listens; refused where the address is taken, or not this machine's."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        # So that a restart need not wait for connections of the last run.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host.strip("[]"), address.port))
    except OSError as error:
        listener.close()
        raise CapeletError(
            f"cannot listen at {address.host}:{address.port} ({error.strerror}); choose another "
            f"{name_field('host')} or {name_field('port')}"
        ) from None
    return listener


def make_server(app: FastAPI, address: Address, announce: Callable[[str], None]) -> Any:
    """A server that says where it listens once it does; `run` serves until it is told to end."""
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("the gateway", "service") from None

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            # Before any other thread is there: they take it over from this one.
            interrupt_nobody()
            await super().startup(sockets)
            if self.started and sockets:
                announce(_url(address, sockets[0].getsockname()[1]))

    settings = uvicorn.Config(
        app,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
        # Our own lines name no query string and no caller.
        access_log=False,
        log_config=None,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE,
        # Who asks is told by keys, and never by a header that anyone can write.
        proxy_headers=False,
    )
    return Server(settings)


def serve(app: FastAPI, address: Address, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; what is in flight is finished, and the call returns."""
    listener = bind(address)
    server = make_server(app, address, announce)
    # The server raises the signal again when it is done; here that is no error.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    server.run([listener])


def end_process() -> None:
    """End here where a thread is still getting ready; nothing of a request is lost by it.

    It may be inside a model's native code, and where the interpreter ends around such a thread the
    whole process aborts: to whoever started it, a server that was told to stop would have crashed.
    """
    if not any(thread.daemon for thread in threading.enumerate()):
        return
    atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def interrupt_nobody() -> None:
    """Let this thread, and those that it starts, wait for a core and not push others off it.

    All cores are at work on the encoder. A thread that wakes for one more request would take a core
    at once, and leave cold caches behind. One that waits for its turn, a few milliseconds, finds
    several requests. Linux calls it "batch"; it needs no privilege, and where a core is free it
    changes nothing.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    # A sandbox may forbid the call; then requests cost a little more.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def quiet_logs() -> None:
    """Lines of the gateway on standard error; of the server only what is wrong."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("capelet.service").setLevel(logging.INFO)


def _url(address: Address, port: int) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{'https' if address.has_tls else 'http'}://{host}:{port}"
