"""A real Chromium, driven by keys alone over its debugging protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from service.running import wait_for

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1100,1000",
]
# Keys that are no letters: code, the number that Windows gave it, the text it types.
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r")}
# Chromium drops keys, and says so to nobody, until it has painted a page for the first time.
_TAKES_KEYS = (
    "document.readyState === 'complete' && performance.getEntriesByType('paint').length > 0"
)


class ProtocolError(Exception):
    """Chromium could not do what it was told, as between two pages."""


class Browser:
    """One tab: keys in, the document and the console out."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.console: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == number:
                if "error" in message:
                    raise ProtocolError(message["error"])
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if message["method"] in (
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        ):
            self.console.append(json.dumps(message["params"]))

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_until(f"location.href.startsWith({url!r})")

    def evaluate(self, script: str) -> Any:
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"]
        return result.get("value")

    def wait_until(self, script: str) -> None:
        """Until it holds on a page that takes keys; else what the page shows instead."""
        try:
            wait_for(lambda: self._holds(f"({script}) && {_TAKES_KEYS}"))
        except AssertionError as error:
            page = self.evaluate("location.href + '\\n' + document.body.innerText")
            raise AssertionError(f"{script}\n{page}\n{self.console}") from error

    def _holds(self, script: str) -> bool:
        with suppress(ProtocolError):
            return self.evaluate(script) is True
        return False

    def press(self, key: str) -> None:
        number, text = _KEYS[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Into the field that has the focus, which then holds the text."""
        self.wait_until("document.activeElement.matches('input, textarea')")
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=letter, key=letter)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=letter)
        assert self.evaluate("document.activeElement.value") == text

    def tab_to(self, selector: str) -> None:
        """Press Tab until the element has the focus; it must be reachable."""
        for _ in range(30):
            if self.evaluate(f"document.activeElement.matches({selector!r})"):
                return
            self.press("Tab")
        raise AssertionError(f"{selector} cannot be reached by keyboard")

    def picture(self, path: Path) -> None:
        content = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(content))


@contextmanager
def browse(folder: Path) -> Iterator[Browser]:
    assert CHROMIUM is not None
    profile = folder / "profile"
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    environment = {**os.environ, "HOME": str(folder)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port_file = profile / "DevToolsActivePort"
        wait_for(lambda: port_file.is_file() and "\n" in port_file.read_text())
        port = port_file.read_text().splitlines()[0]
        targets = httpx.get(f"http://127.0.0.1:{port}/json").json()
        url = next(item["webSocketDebuggerUrl"] for item in targets if item["type"] == "page")
        with connect(url, max_size=None) as socket:
            yield Browser(socket)
    finally:
        process.terminate()
        process.wait(30)
