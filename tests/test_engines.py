"""Engines say how each task ended, whoever did it, and try nothing again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capelet.engines import Processes, engine_of
from capelet.errors import CapeletError


def square(task: Any) -> Any:
    """A task of its own square; a negative one kills its worker."""
    if task < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return task * task, os.environ.get("OMP_NUM_THREADS")


def test_a_lost_worker_is_told_and_others_go_on() -> None:
    engine = Processes(square, 2)
    try:
        engine.start(3)
        engine.start(-1)
        results = []
        while len(results) < 2:
            results += engine.wait(30)
        by_task = {result.task: result for result in results}
        assert by_task[3].outcome == (9, "1") and by_task[3].loss is None
        loss = by_task[-1].loss
        assert by_task[-1].outcome is None and loss is not None and "SIGKILL" in loss
        # The worker that is left takes the next task.
        engine.start(4)
        assert [result.outcome for result in engine.wait(30)] == [(16, "1")]
    finally:
        engine.close()


def test_nobody_at_the_address_is_one_sentence_and_ray_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray itself would try for minutes."""
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    calls: list[object] = []
    monkeypatch.setattr(ray, "init", lambda **options: calls.append(options))
    # A port that was free a moment ago.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(CapeletError, match="there is no Ray cluster"):
        engine_of("ray", square, address=f"127.0.0.1:{port}")
    assert calls == []


STRANGER = """
import sys
import ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
print(ray.get(ray.remote(lambda: "inside").remote()))
"""
HOST = """
import os, subprocess, sys
from capelet.engines import RayCluster
def double(task):
    return 2 * task
engine = RayCluster(double, workers=1)
import ray
address = ray.get_runtime_context().gcs_address
engine.start(4)
print(engine.wait(60)[0].outcome)
own = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
own["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # the cluster is on loopback
keys = {k: v for k, v in os.environ.items() if k.startswith("RAY_")}
for more in ({}, keys):
    run = [sys.executable, "-c", sys.argv[1], address]
    try:  # a stranger is refused, or waits for an answer in vain
        done = subprocess.run(run, env={**own, **more}, capture_output=True, text=True, timeout=90)
        print(done.stdout.strip() or "outside")
    except subprocess.TimeoutExpired:
        print("outside")
engine.close()
"""


@pytest.mark.slow
def test_a_cluster_of_our_own_turns_strangers_away() -> None:
    """Others of this machine reach its port; whoever lacks the token gets in nowhere."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    done = subprocess.run(
        [sys.executable, "-c", HOST, STRANGER], capture_output=True, text=True, timeout=300
    )
    # Control: with the token the same program does get in.
    assert done.stdout.split() == ["8", "outside", "inside"], done.stderr


RAY_FIRST = """
import os, ray
from capelet.engines import engine_of

cluster = engine_of("ray", lambda task: task, workers=1)
print(*{node["NodeManagerAddress"] for node in ray.nodes()})
cluster.close()
print("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" in os.environ)
"""


def test_a_cluster_of_our_own_is_on_loopback_also_where_ray_was_imported_first(
    tmp_path: Path,
) -> None:
    """Ray reads its switch when it is imported; the host's environment stays as it was.

    Nor does it leave a token in the user's home, which may not be writable.
    """
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    done = subprocess.run(
        [sys.executable, "-c", RAY_FIRST], env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.split() == ["127.0.0.1", "False"], done.stderr
    assert not (tmp_path / ".ray").exists()


RAY_BEGUN = """
import os, ray
ray.init(logging_level="ERROR", log_to_driver=False, include_dashboard=False, num_cpus=1)
from capelet.engines import engine_of
engine_of("ray", lambda task: task, workers=1).close()
print(ray.is_initialized(), "RAY_AUTH_TOKEN" in os.environ)
"""


@pytest.mark.slow
def test_a_cluster_that_the_host_has_begun_is_the_hosts(tmp_path: Path) -> None:
    """It is not ended, and no token of ours replaces the host's own."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    done = subprocess.run(
        [sys.executable, "-c", RAY_BEGUN], env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "False"], done.stderr
