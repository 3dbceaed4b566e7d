"""What a text costs through the gateway against bulk encoding, in processor time, in one run.

    python benchmarks/gateway.py [--texts N] [--clients C] [--each E] [--repeat R]

Wall time on a busy machine tells little; processor time per text hardly feels who else runs. Four
take turns, and the median of each counts: bulk (`release` of all texts at once), the gateway with
its store under C clients that ask for E texts at a time, the same encoder on a thread for each
request (no batcher), and of the gateway the share that is noise and store. The server is this
process; the clients are another, whose time does not count. Last, requests go on, and the memory
of the server is watched.

A request itself costs 1 to 1.5 ms, whatever it asks: of one text at a time (`--each 1`) that is a
tenth of fp32's cost and a fifth of int8's, and the gateway then costs 1.2 to 1.3 × bulk.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from capelet.data.datasets import load as load_set
from capelet.encoders import load
from capelet.mechanisms import MECHANISMS
from capelet.privacy.budgets import Budget, Limits
from capelet.privacy.store import Ledger
from capelet.release import PrivateEncoder
from capelet.service.app import create_app
from capelet.service.gateway import Gateway
from capelet.service.server import Address, bind, make_server
from capelet.service.settings import Settings
from tables import result, table, wanted

RATIO, SHARE, GROWTH = 1.20, 0.10, 1.05
# Asks for its texts from C threads, E at a time, under people of its own; one line per run.
CLIENT = """
import sys, json, threading, queue, http.client
url, clients, each, person = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
host, port = url.removeprefix("http://").split(":")
texts = json.load(sys.stdin)
work = queue.SimpleQueue()
for start in range(0, len(texts), each):
    work.put(texts[start : start + each])
failures = []
def ask():
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    while True:
        try:
            part = work.get_nowait()
        except queue.Empty:
            return
        body = {"model": "m", "input": part, "user": person, "encoding_format": "base64"}
        body = json.dumps(body)
        connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            failures.append(answer.status)
threads = [threading.Thread(target=ask) for _ in range(clients)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(f"refused: {failures[:3]}" if failures else 0)
"""


def sample(count: int) -> list[str]:
    """Reviews of the embedded sample, over and over, each one a text of its own."""
    texts = load_set("reviews").texts
    assert texts is not None
    return [f"{texts[row % len(texts)]} {row}" for row in range(count)]


@contextmanager
def running(private: PrivateEncoder, store: Path) -> Iterator[tuple[Gateway, str]]:
    with Ledger(store, keeps_names=False) as ledger:
        limits = Limits(Budget(1e12))
        gateway = Gateway(private, ledger, Settings("m"), limits)
        ledger.open()
        ledger.limit(limits.budget)
        urls: list[str] = []
        address = Address(port=0)
        server = make_server(create_app(gateway), address, urls.append)
        thread = threading.Thread(target=server.run, args=([bind(address)],))
        thread.start()
        while not urls or httpx.get(f"{urls[0]}/readyz").status_code != 200:
            time.sleep(0.05)
        try:
            yield gateway, urls[0]
        finally:
            server.should_exit = True
            thread.join()


def ask(url: str, texts: Sequence[str], clients: int, each: int, person: str) -> None:
    command = [sys.executable, "-c", CLIENT, url, str(clients), str(each), person]
    subprocess.run(command, input=json.dumps(list(texts)), text=True, check=True)


def processor(work: Callable[[], object]) -> float:
    """Seconds of processor time of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


@contextmanager
def watched(thing: object, name: str, spent: list[float]) -> Iterator[None]:
    """Add up the processor time of the thread that calls a method."""
    method = getattr(thing, name)

    def timed(*values: object, **options: object) -> object:
        start = time.thread_time()
        try:
            return method(*values, **options)
        finally:
            spent[0] += time.thread_time() - start

    setattr(thing, name, timed)
    try:
        yield
    finally:
        setattr(thing, name, method)


def release_in_threads(
    private: PrivateEncoder, texts: Sequence[str], options: argparse.Namespace
) -> None:
    """What a server without a batcher does: each request by itself, on a thread of its own."""
    parts = [texts[start : start + options.each] for start in range(0, len(texts), options.each)]
    with ThreadPoolExecutor(options.clients) as pool:
        list(pool.map(private.release, parts))


def measure(backend: str, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Medians of processor seconds per text, by contestant, and the store's and noise's share."""
    noise = MECHANISMS["laplace"](epsilon=1.0)
    private = PrivateEncoder(load("minilm", backend), noise)
    texts = sample(options.texts)
    private.release(texts[:64])
    rounds: dict[str, list[float]] = {"bulk": [], "gateway": [], "threads": [], "extra": []}
    with running(private, folder / f"{backend}.db") as (gateway, url):
        ask(url, texts[:64], options.clients, options.each, "warm")
        for number in range(options.repeat):
            rounds["bulk"].append(processor(lambda: private.release(texts)))
            spent = [0.0]
            step = private.steps[-1]
            with (
                watched(gateway.ledger, "settle_all", spent),
                watched(gateway.ledger, "find", spent),
                watched(gateway.ledger, "check", spent),
                watched(type(step), "__call__", spent),
            ):
                person = f"person {number}"
                whole = processor(
                    lambda person=person: ask(url, texts, options.clients, options.each, person)
                )
            rounds["gateway"].append(whole)
            rounds["extra"].append(spent[0] / whole)
            rounds["threads"].append(processor(lambda: release_in_threads(private, texts, options)))
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    share = medians.pop("extra")
    return {**{name: value / len(texts) for name, value in medians.items()}, "extra": share}


def watch_memory(options: argparse.Namespace, folder: Path) -> float:
    """How much more memory the server has after all requests than after the first tenth."""
    private = PrivateEncoder("wordllama", MECHANISMS["laplace"](epsilon=1.0))
    first, rest = options.requests // 10, options.requests - options.requests // 10
    with running(private, folder / "memory.db") as (_, url):
        ask(url, sample(first), options.clients, 1, "a")
        before = resident()
        ask(url, sample(rest), options.clients, 1, "b")
        return resident() / before


def resident() -> float:
    """Bytes of this process in memory now; where that is not told, the most there ever were."""
    status = Path("/proc/self/status")
    if status.is_file():
        lines = status.read_text().splitlines()
        return 1024 * float(next(line.split()[1] for line in lines if line.startswith("VmRSS")))
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--backends", nargs="+", default=["onnx", "int8"])
    options = parser.parse_args()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for backend in options.backends:
            costs = measure(backend, options, folder)
            ratios = {item: costs[item] / costs["bulk"] for item in ("gateway", "threads")}
            table(
                [backend, "ms per text", "÷ bulk"],
                {
                    item: [f"{1000 * costs[item]:.2f}", f"{costs[item] / costs['bulk']:.2f}"]
                    for item in ("bulk", "gateway", "threads")
                },
            )
            wanted(
                f"{backend}: at most {RATIO:.2f} × bulk, and is {ratios['gateway']:.2f} ×",
                ratios["gateway"] <= RATIO,
            )
            wanted(
                f"{backend}: below a thread for each request, {ratios['threads']:.2f} ×",
                ratios["gateway"] < ratios["threads"],
            )
            wanted(
                f"{backend}: noise and store at most {SHARE:.0%}, and are {costs['extra']:.1%}",
                costs["extra"] <= SHARE,
            )
            figures[backend] = {**costs, **ratios}
        growth = watch_memory(options, folder)
    wanted(f"memory grows to at most {GROWTH:.2f} ×, and grows to {growth:.2f} ×", growth <= GROWTH)
    result("gateway", ["onnxruntime", "fastapi", "uvicorn"], growth=growth, **figures)


if __name__ == "__main__":
    main()
