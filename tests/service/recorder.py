"""A proxy that keeps every byte which passes between a client and a server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Recorder:
    """Where the proxy listens, and what passed: to the server, and back."""

    url: str
    requests: bytearray = field(default_factory=bytearray)
    answers: bytearray = field(default_factory=bytearray)


@contextmanager
def record(server: str) -> Iterator[Recorder]:
    """Listen in front of a server until the block ends."""
    address = urlsplit(server)
    listener = socket.create_server(("127.0.0.1", 0))
    recorder = Recorder(f"http://127.0.0.1:{listener.getsockname()[1]}")

    def pass_on(source: socket.socket, target: socket.socket, record: bytearray) -> None:
        with suppress(OSError):
            while chunk := source.recv(65536):
                record.extend(chunk)
                target.sendall(chunk)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((address.hostname, address.port))
                with near, far:
                    forward = (near, far, recorder.requests)
                    thread = threading.Thread(target=pass_on, args=forward)
                    thread.start()
                    pass_on(far, near, recorder.answers)
                    thread.join()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        # A listener that is only closed does not wake the thread that waits for it.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
