"""Engines: where tasks run. Processes of this machine, or the nodes of a Ray cluster.

An engine takes tasks, up to `slots` at once, and says how each ended: with an outcome, or lost with
the process or node that was at work on it. It only schedules: it tries nothing again and stores
nothing, since a second try of a task that draws noise would be a second release. Whoever gives the
tasks decides what becomes of a lost one. This module imports nothing heavy: every worker process
begins with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any, Protocol

from capelet.errors import CapeletError, MissingExtra, check_known, name_field

# Seconds to wait for the head of a cluster before saying that there is none.
_PATIENCE = 5.0

# Ray names sockets in its folder, with some 65 letters of its own and 13 of ours; the kernel takes
# 107 for the path of a socket.
_LONGEST_FOLDER = 28

# What the libraries of linear algebra read when they are loaded.
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)

# What is computed of a task. It raises nothing, and can be imported by a worker.
Compute = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Ending:
    """A task that is over; `loss` says how its worker was lost, and then there is no outcome."""

    task: Any
    outcome: Any = None
    loss: str | None = None


class Engine(Protocol):
    """Where tasks run; `start` is called at most `slots` times ahead of `wait`."""

    @property
    def slots(self) -> int: ...

    def start(self, task: Any) -> None: ...

    def wait(self, seconds: float) -> list[Ending]:
        """What has ended since; waits for the first, but no longer than so many seconds."""

    def close(self) -> None: ...


def core_count() -> int:
    """How many processes can work at once: the cores that this one may use."""
    return max(1, len(os.sched_getaffinity(0)))


# ---- processes -----------------------------------------------------------------------------------


class Processes:
    """Processes of this machine with one thread each; they end with this one, however it ends."""

    def __init__(self, compute: Compute, workers: int | None = None) -> None:
        self.slots = workers or core_count()
        self._compute = compute
        self._idle: list[_Worker] = []
        self._busy: dict[Any, tuple[_Worker, Any]] = {}

    def start(self, task: Any) -> None:
        while self._idle:
            worker = self._idle.pop()
            # It may have died since its last task.
            if worker.send(task):
                self._busy[worker.pipe] = (worker, task)
                return
            worker.stop()
        worker = _Worker(self._compute)
        worker.send(task)
        self._busy[worker.pipe] = (worker, task)

    def wait(self, seconds: float) -> list[Ending]:
        results = []
        # A pipe is ready when there is an outcome, and also when its other end is gone.
        for pipe in connection.wait(list(self._busy), seconds):
            worker, task = self._busy.pop(pipe)
            try:
                results.append(Ending(task, worker.pipe.recv()))
                self._idle.append(worker)
            except (EOFError, OSError):
                results.append(Ending(task, loss=worker.stop()))
        return results

    def close(self) -> None:
        for worker in [*self._idle, *(pair[0] for pair in self._busy.values())]:
            worker.stop()
        self._idle, self._busy = [], {}


class _Worker:
    """One process, and the pipe to it."""

    def __init__(self, compute: Compute) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        # Not forked: a copy of this process would have a copy of its stream of noise, too.
        # The function goes packed: to unpack it is to load numpy, which must know its threads.
        arguments = (other, pickle.dumps(compute))
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        # Ours must be the only copy of their end, or its death would not be noticed.
        other.close()

    def send(self, task: Any) -> bool:
        try:
            self.pipe.send(task)
        except OSError:
            return False
        return True

    def stop(self) -> str:
        """End the process; how it ended, if it had ended by itself."""
        # A process that broke its pipe is about to end, and then has a code to tell.
        self.process.join(0.5)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
        self.pipe.close()
        if code is not None and code < 0:
            return f"its process was ended by the signal {_signal_name(-code)}"
        return f"its process ended with code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _serve(pipe: Any, function: bytes) -> None:
    """A worker's life: take a task, compute it, send what came out, until the pipe closes."""
    # An interrupt from the keyboard reaches all processes; the driver alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # As many processes as were asked for; more threads than cores would only wait for each other.
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    # From our own parent through our own arguments: no file's pickle is ever read.
    compute: Compute = pickle.loads(function)
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(compute(pipe.recv()))


def _end_with_parent() -> None:
    """A killed driver leaves no workers behind, which nobody would listen to."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


# ---- Ray -----------------------------------------------------------------------------------------


class RayCluster:
    """The nodes of a Ray cluster; each must have this version of Capelet and what tasks name.

    Without an address a small cluster is begun on this machine. A node that joins or leaves on the
    way changes how many tasks run at once.
    """

    def __init__(
        self, compute: Compute, address: str | None = None, workers: int | None = None
    ) -> None:
        ray = _import_ray(address)
        # Ray's own functions have no types.
        self._ray = ray
        self._most = workers
        self._own = not ray.is_initialized()
        folder = _short_folder() if self._own and address is None else None
        # Also where no cluster comes about, and where nobody closes it.
        self._end = weakref.finalize(self, _end_cluster, ray if self._own else None, folder)
        if self._own:
            _connect(ray, address, folder)
        # No retries by Ray itself: it would not tell that a task was run twice.
        self._remote = ray.remote(max_retries=0, num_cpus=1)(compute)
        self._busy: dict[Any, Any] = {}

    @property
    def slots(self) -> int:
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        return max(1, cores if self._most is None else min(cores, self._most))

    def start(self, task: Any) -> None:
        self._busy[self._remote.remote(task)] = task

    def wait(self, seconds: float) -> list[Ending]:
        if not self._busy:
            return []
        ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=seconds)
        return [self._ending_of(reference, self._busy.pop(reference)) for reference in ready]

    def _ending_of(self, reference: Any, task: Any) -> Ending:
        try:
            return Ending(task, self._ray.get(reference))
        # Whatever Ray raises here is about its workers: what is computed raises nothing itself.
        except self._ray.exceptions.RayError as error:
            return Ending(task, loss=f"its worker on the cluster was lost ({type(error).__name__})")

    def close(self) -> None:
        for reference in self._busy:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True)
        self._busy = {}
        self._end()


def _import_ray(address: str | None) -> Any:
    """Ray, with settings that it reads when it is imported; the user's own go first."""
    host = sys.modules.get("ray")
    # A cluster that the host has begun is the host's, with a token of its own.
    is_own = address is None and not (host is not None and host.is_initialized())
    if is_own and "RAY_AUTH_MODE" not in os.environ:
        # Whoever reaches a cluster of our own may run code. With a token that only its processes
        # have, others are turned away (Ray 2.52 and newer). Ray would write one of its own into the
        # user's home, which may not be writable, and leave it there.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        if host is None:  # once it was imported it switches tokens on by itself
            os.environ["RAY_AUTH_MODE"] = "token"
    try:
        import ray
    except ImportError:
        raise MissingExtra("the engine 'ray'", "ray") from None
    return ray


def _connect(ray: Any, address: str | None, folder: str | None) -> None:
    """Join the cluster at the address; one sentence where there is none.

    Without an address one is begun here, with its logs and sockets in the folder.
    """
    # Its messages would mix with ours, and results are for standard output.
    settings = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        try:
            with _of_this_machine(ray):
                ray.init(**settings, include_dashboard=False, _temp_dir=folder)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise CapeletError(
                f"Ray could not begin a cluster on this machine ({type(error).__name__}); try "
                f"again, or give the address of one that runs with {name_field('address')}"
            ) from None
        return
    missing = (
        f"there is no Ray cluster at {address!r}; begin one with `ray start` (as head), and give "
        f"the address that it prints with {name_field('address')}"
    )
    if not _answers(address):
        raise CapeletError(missing)
    try:
        ray.init(address=address, **settings)
    except (ConnectionError, ValueError, RuntimeError):
        raise CapeletError(missing) from None


def _short_folder() -> str | None:
    """A folder for a cluster of our own, to be removed with it; None where Ray's own must do.

    Ray would else leave its logs in the temporary folder, for all to read.
    """
    if "RAY_TMPDIR" in os.environ or len(tempfile.gettempdir()) > _LONGEST_FOLDER:
        return None
    return tempfile.mkdtemp(prefix="ray-")


def _end_cluster(ray: Any, folder: str | None) -> None:
    if ray is not None:
        ray.shutdown()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _of_this_machine(ray: Any) -> Iterator[None]:
    """Begin a cluster on loopback, and without the process that serves its dashboard.

    Ray would else listen on every interface, and learn its own address by a socket towards a public
    name server; the switch is the one that it has for other systems, read when it is imported and,
    by processes that it begins, from the environment. The dashboard takes jobs from anybody who
    reaches it. Without it its process still asks the hosts of three clouds whether it runs there,
    also where it may not report; there is no switch for that. Ray takes this answer for a server
    that could not be started, and goes on.
    """
    services, constants = ray._private.services, ray._private.ray_constants
    switch = constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    originals = services.start_api_server, constants.ENABLE_RAY_CLUSTER, os.environ.get(switch)
    services.start_api_server = lambda *_, **__: (None, None)
    constants.ENABLE_RAY_CLUSTER, os.environ[switch] = False, "0"
    try:
        yield
    finally:
        services.start_api_server, constants.ENABLE_RAY_CLUSTER, value = originals
        if value is None:
            del os.environ[switch]
        else:
            os.environ[switch] = value


def _answers(address: str) -> bool:
    """Whether anything listens there: Ray itself would wait for minutes before it gave up."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return address == "auto"
    try:
        with socket.create_connection((host or "127.0.0.1", int(port)), timeout=_PATIENCE):
            return True
    except (OSError, OverflowError):
        return False


ENGINES: dict[str, Callable[[Compute, int | None, str | None], Engine]] = {
    "local": lambda compute, workers, address: Processes(compute, workers),
    "ray": lambda compute, workers, address: RayCluster(compute, address, workers),
}


def engine_of(
    name: str, compute: Compute, workers: int | None = None, address: str | None = None
) -> Engine:
    """The engine of that name."""
    check_known("engine", name, ENGINES)
    if address is not None and name != "ray":
        raise CapeletError(
            f"{name_field('address')} is of a Ray cluster; give {name_field('engine', 'ray')} "
            "with it"
        )
    if workers is not None and workers < 1:
        raise CapeletError(f"{name_field('workers')} is {workers}; it must be at least 1")
    return ENGINES[name](compute, workers, address)
