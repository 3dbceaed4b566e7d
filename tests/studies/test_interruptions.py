"""A study that is killed, or loses a node of its cluster, ends with the bytes of one that is not.

The plan has over a hundred cells, most of them with noise in vectors or words.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from capelet.engines import RayCluster
from capelet.studies.cell import compute
from capelet.studies.plan import StudyPlan
from capelet.studies.run import run_cells
from capelet.studies.store import Store

pytest.importorskip("wordllama", reason="the extra words is not installed")
pytestmark = pytest.mark.slow
COMMAND = (sys.executable, "-c", "from capelet.cli import main; main()", "study")
GROUPS = [
    {"method": ["leace"]},
    {"method": ["ldp"], "epsilon": [8, 64]},
    {"method": ["cape", "dpnr"], "epsilon": [64]},
]
SEEDS = 17  # with the unprotected ones 102 cells


@pytest.fixture
def plan_file(tiny_texts: Path, tmp_path: Path) -> Path:
    lines = [
        'name = "tiny"\nkind = "protect"',
        '[settings]\nencoder = "wordllama"\nattackers = ["logistic"]\nepochs = 1',
        f'[axes]\ncorpus = ["tiny"]\nseed = {list(range(SEEDS))}',
    ]
    for group in GROUPS:
        entries = [f"{key} = {json.dumps(value)}" for key, value in group.items()]
        lines.append("\n".join(["[[axes.group]]", *entries]))
    lines.append(
        f"[corpora.tiny]\nfile = {json.dumps(str(tiny_texts))}\n"
        'text = "text"\nlabel = "topic"\nprivate = ["gender"]'
    )
    path = tmp_path / "tiny.toml"
    path.write_text("\n\n".join(lines) + "\n")
    return path


def study(plan: Path, out: Path) -> dict[str, Any]:
    """A whole run; what it says of itself."""
    command = (*COMMAND, str(plan), "--out", str(out), "--workers", "2", "--json")
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def content(out: Path) -> dict[str, bytes]:
    """Table and findings; when a cell was measured, and for how long, is not part of them."""
    files = [out / "table.json", out / "table.md"]
    files += sorted(out.glob("store/cells/*/findings.json"))
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def guesses_of(out: Path) -> list[list[tuple[str, int, int]]]:
    """Targets, truths and guesses of each cell; every store has pseudonyms of its own."""
    store = Store(out / "store")
    tables = [store.guesses(key).to_pydict() for key in store.all_keys()]
    columns = ("target", "truth", "guess")
    return [sorted(zip(*(table[name] for name in columns), strict=True)) for table in tables]


def kill_on_the_way(plan: Path, out: Path, chance: random.Random) -> None:
    """Begin the study, and kill its driver at a random moment after a few more cells."""
    cells = out / "store" / "cells"

    def stored() -> int:
        return len([path for path in cells.glob("*") if not path.name.startswith(".")])

    command = (*COMMAND, str(plan), "--out", str(out), "--workers", "2", "--json")
    goal = stored() + chance.randint(2, 9)
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while stored() < goal and driver.poll() is None:
        time.sleep(0.02)
    time.sleep(chance.random())
    assert driver.poll() is None, "the study was over before it was killed"
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()


def test_killed_five_times_it_ends_with_the_same_bytes(plan_file: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    summary = study(plan_file, whole)
    assert summary["cells"] == summary["measured"] == 102 and not summary["failed"]
    first = content(whole)
    # Twice: nothing is measured, and the table is the same.
    again = study(plan_file, whole)
    assert (again["measured"], again["stored"]) == (0, 102) and content(whole) == first
    chance = random.Random(0)
    for _ in range(5):
        kill_on_the_way(plan_file, broken, chance)
    summary = study(plan_file, broken)
    assert 0 < summary["measured"] < 102 and summary["stored"] >= 10
    assert content(broken) == first
    assert guesses_of(broken) == guesses_of(whole)
    # Nothing half-written is left, and no lock.
    assert not list((broken / "store" / "cells").glob(".*"))
    assert not list((broken / "store" / "claims").iterdir())


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes on this machine: a head without cores of its own, and two that work."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    workers = [nodes.add_node(num_cpus=1) for _ in range(2)]
    yield nodes, workers
    nodes.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("lose_a_node", [False, True], ids=["whole", "one node lost"])
def test_a_cluster_has_the_bytes_of_processes(
    document: Callable[..., dict[str, Any]], cluster: Any, tmp_path: Path, lose_a_node: bool
) -> None:
    nodes, workers = cluster
    groups = [{"method": ["leace"]}, {"method": ["ldp", "dpnr"], "epsilon": [64]}]
    axes = {"corpus": ["tiny"], "seed": [0, 1, 2, 3], "group": groups}
    plan = StudyPlan.of(document(axes=axes))
    cells, lost = plan.cells(), []

    def lose(what: str, count: int, total: int) -> None:
        if lose_a_node and what == "cells" and count >= 3 and not lost:
            nodes.remove_node(workers[0], allow_graceful=False)
            lost.append(count)

    from capelet.engines import Processes

    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    local, _ = run_cells(plan, "full", cells, here, Processes(compute, 2))
    engine = RayCluster(compute, nodes.address)
    assert engine.slots == 2
    remote, counts = run_cells(plan, "full", cells, there, engine, progress=lose)
    assert bool(lost) == lose_a_node and counts.measurements == len(cells) == 16
    assert remote.document() == local.document()
    for item in cells:
        one, other = (store.path(item.cell.key) / "findings.json" for store in (here, there))
        assert one.read_bytes() == other.read_bytes()
