"""What a text costs through the gateway against bulk encoding, in processor time, in one run.

    python benchmarks/gateway.py [--texts N] [--clients C] [--each E] [--infinity PYTHON]

Wall time on a busy machine tells little; processor time per text hardly feels who else runs. They
take turns, and the median of each counts: bulk (`release` of all texts at once), the gateway with
its store under C clients that ask for E texts at a time, and the same gateway with a thread for
each request in the batcher's place; of the first also the share that is noise and store. The
servers are in this process; the clients are another, whose time does not count. `--infinity` names
the Python of an environment with infinity-emb, which then serves the same weights, without noise,
store or charge, to the same clients. Then a person with many releases is charged (`store.py`), and
at last requests go on, and the memory of the server is watched.

One text at a time is the dearest way to ask, and the default: a request costs about 0.8 ms whatever
it asks (0.13 ms of it is a bare uvicorn that reads and writes the same bodies).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import httpx
import numpy as np

from capelet.data.datasets import load as load_set
from capelet.encoders import load
from capelet.encoders.transformer import TransformerEncoder
from capelet.ledger.budgets import Budget, Limits
from capelet.ledger.settlement import Settlement
from capelet.ledger.store import Ledger
from capelet.mechanisms import MECHANISMS
from capelet.question import Address
from capelet.release import PrivateEncoder
from capelet.service.app import create_app
from capelet.service.batcher import Job
from capelet.service.gateway import Gateway
from capelet.service.metrics import Metrics
from capelet.service.server import bind, make_server
from capelet.service.settings import Bounds, Settings
from store import DATABASES, measure_all
from store import RATIO as CHARGE_RATIO
from tables import Claim, claims_table, result, table

RATIO, SHARE, GROWTH = 1.20, 0.10, 1.05
CHARGES = 20  # in a round, each a transaction with its own `fsync`
# Asks for its texts over C connections, each with one request at a time, as C clients would. Lean
# on purpose (one thread, requests made beforehand, answers counted and not parsed): real clients
# are other machines, and what this one computes takes cores and caches from the server.
CLIENT = """
import json, selectors, socket, sys
host, port, clients, each, person = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
texts = json.load(sys.stdin)
def make_request(part):
    body = {"model": "m", "input": part, "user": person, "encoding_format": "base64"}
    body = json.dumps(body).encode()
    head = f"POST /v1/embeddings HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nContent-Length: {len(body)}"
    return head.encode() + b"\\r\\nContent-Type: application/json\\r\\n\\r\\n" + body
def end_of(answer):
    head, blank, _ = answer.partition(b"\\r\\n\\r\\n")
    if not blank:
        return None
    if not head.startswith(b"HTTP/1.1 200 "):
        sys.exit("refused: " + answer.decode(errors="replace"))
    length = head.lower().partition(b"\\r\\ncontent-length:")[2].split(maxsplit=1)[0]
    return len(head) + 4 + int(length)
work = iter([make_request(texts[start : start + each]) for start in range(0, len(texts), each)])
ready = selectors.DefaultSelector()
def send(connection):
    request = next(work, None)
    if request is None:
        ready.unregister(connection)
    else:
        connection.sendall(request)
for _ in range(clients):
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ready.register(connection, selectors.EVENT_READ, bytearray())
    send(connection)
while ready.get_map():
    for key, _ in ready.select(120) or sys.exit("no answer in two minutes"):
        part = key.fileobj.recv(1 << 20)
        if not part:
            sys.exit("the server closed a connection")
        key.data.extend(part)
        if len(key.data) == end_of(key.data):
            key.data.clear()
            send(key.fileobj)
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
    host, _, port = url.removeprefix("http://").partition(":")
    command = [sys.executable, "-c", CLIENT, host, port, str(clients), str(each), person]
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


class ThreadForEach:
    """What stands in the batcher's place without one: each request by itself, on its thread."""

    waiting_texts, is_alive = 0, True

    def __init__(
        self, private: PrivateEncoder, ledger: Ledger, bounds: Bounds, metrics: Metrics
    ) -> None:
        self._private, self._ledger = private, ledger
        # As many as clients ask at once; more than that wait.
        self._pool = ThreadPoolExecutor(bounds.batch_texts)

    def submit(self, job: Job) -> Future[Settlement]:
        self._pool.submit(self._serve, job)
        return job.future

    def _serve(self, job: Job) -> None:
        vectors = self._private.release([job.texts[row] for row in job.waiting]).vectors
        names = [job.order.names[row] for row in job.waiting]
        job.draws.update(zip(names, vectors.astype(np.float32), strict=True))
        (settlement,) = self._ledger.settle_all([job.complete(vectors.shape[1])])
        if isinstance(settlement, Settlement):
            job.succeed(settlement)
        else:
            job.fail(settlement)

    def close(self) -> None:
        self._pool.shutdown()


class Infinity:
    """Another server of embeddings, in a process and an environment of its own."""

    def __init__(self, python: Path, model: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [str(python.parent / "infinity_emb"), "v2", "--model-id", str(model)]
        command += ["--served-model-name", "m", "--engine", "torch", "--device", "cpu"]
        command += ["--url-prefix", "/v1", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--no-bettertransformer", "--log-level", "error"]
        # It shall ask nobody for anything, and not import our packages.
        own = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
        inherited = {name: v for name, v in os.environ.items() if not name.startswith("PYTHON")}
        self._process = subprocess.Popen(command, env={**inherited, **own})

    def wait(self, seconds: float = 300.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._process.poll() is None:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/v1/models").status_code == 200:
                    return
            time.sleep(0.5)
        self.stop()
        sys.exit("infinity-emb does not answer; its own words are above")

    def processor(self, work: Callable[[], object]) -> float:
        """Seconds of processor time of its process."""
        start = self._seconds()
        work()
        return self._seconds() - start

    def _seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def beside(options: argparse.Namespace, backend: str) -> Iterator[Infinity | None]:
    """infinity-emb with the weights of fp32, where it was asked for."""
    if options.infinity is None or backend != "onnx":
        yield None
        return
    encoder = load("minilm", backend)
    assert isinstance(encoder, TransformerEncoder)
    peer = Infinity(options.infinity, encoder.place())
    try:
        peer.wait()
        yield peer
    finally:
        peer.stop()


def measure(backend: str, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Medians of processor seconds per text, by contestant, and the store's and noise's share."""
    noise = MECHANISMS["laplace"](epsilon=1.0)
    private = PrivateEncoder(load("minilm", backend), noise)
    texts = sample(options.texts)
    private.release(texts[:64])
    rounds: dict[str, list[float]] = {"bulk": [], "gateway": [], "threads": [], "extra": []}
    with ExitStack() as stack:
        peer = stack.enter_context(beside(options, backend))
        gateway, url = stack.enter_context(running(private, folder / f"{backend}.db"))
        with patch("capelet.service.app.Batcher", ThreadForEach):
            _, other = stack.enter_context(running(private, folder / f"{backend} threads.db"))
        ask(other, texts[:64], options.clients, options.each, "warm")
        ask(url, texts[:64], options.clients, options.each, "warm")
        if peer is not None:
            ask(peer.url, texts[:64], options.clients, options.each, "warm")
            rounds["infinity"] = []
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
            rounds["threads"].append(
                processor(
                    lambda person=person: ask(other, texts, options.clients, options.each, person)
                )
            )
            if peer is not None:
                rounds["infinity"].append(
                    peer.processor(
                        lambda: ask(peer.url, texts, options.clients, options.each, "nobody")
                    )
                )
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


def claims_of(backend: str, costs: dict[str, float]) -> list[Claim]:
    """Print what each contestant costs, and say what we claim of it."""
    names = [name for name in costs if name != "extra"]
    rows = {
        name: [f"{1000 * costs[name]:.2f}", f"{costs[name] / costs['bulk']:.2f}"] for name in names
    }
    table([backend, "ms per text", "÷ bulk"], rows)
    print()
    return [
        Claim(f"{backend}: gateway ÷ bulk", RATIO, costs["gateway"] / costs["bulk"]),
        Claim(f"{backend}: gateway ÷ a thread each", 1.0, costs["gateway"] / costs["threads"]),
        Claim(f"{backend}: share of noise and store", SHARE, costs["extra"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--releases", type=int, default=50_000)
    parser.add_argument("--backends", nargs="+", default=["onnx", "int8"])
    parser.add_argument("--infinity", type=Path, help="Python of an environment that has it")
    options = parser.parse_args()
    start = time.monotonic()
    figures: dict[str, object] = {}
    claims: list[Claim] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for backend in options.backends:
            costs = measure(backend, options, folder)
            claims += claims_of(backend, costs)
            figures[backend] = costs
        times = measure_all(DATABASES, options.releases, CHARGES, 3 * options.repeat)
        for database, (none, long) in times.items():
            title = f"{database}: charge after {options.releases:,} releases ÷ after none"
            claims.append(Claim(title, CHARGE_RATIO, long / none))
        title = f"memory after {options.requests:,} requests ÷ after {options.requests // 10:,}"
        claims.append(Claim(title, GROWTH, watch_memory(options, folder)))
    claims_table(claims)
    print(f"{time.monotonic() - start:.0f} seconds")
    values = {claim.name: claim.value for claim in claims}
    result("gateway", ["onnxruntime", "fastapi", "uvicorn"], claims=values, **figures)


if __name__ == "__main__":
    main()
