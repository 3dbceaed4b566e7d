"""`kill -9` at any moment: the same command again finishes, with nothing lost, doubled or left.

Commands run in children of a server that has imported everything, so that the moments fall into
the work and not into the imports. Thirty deaths are drawn by the clock, as power cuts come; others
come just before a file is made, named or removed, where litter and losses come from.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capelet.data.datasets import load
from capelet.findings import Findings
from capelet.language.folders import LanguageModel
from capelet.ledger.store import Ledger
from capelet.privacy.origins import unrecorded
from capelet.release import PrivateEncoder, Release

pytestmark = pytest.mark.slow

SERVER = """
import contextlib, importlib, json, os, signal, sys, threading, time
import capelet.training.checkpoint
from capelet.cli import main

# Every epoch writes its checkpoint, or a small training would write none.
capelet.training.checkpoint.INTERVAL = 0.0
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "sqlite3.connect"}

def watch(root, deadline):
    count = 0
    def hook(event, arguments):
        nonlocal count
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if event not in CHANGES and not writes or not isinstance(arguments[0], str | os.PathLike):
            return
        if os.path.abspath(arguments[0]).startswith(root):
            count += 1
            if count == deadline:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    return lambda: count

def work(job):
    os.chdir(job["folder"])
    for name in ("cache", "state"):
        os.environ[f"CAPELET_{name.upper()}"] = job["folder"] + "/" + name
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    count = watch(job["folder"], job["change"])
    sys.argv[1:] = job["arguments"]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdout.flush()
        with open("log.json", "w") as stream:
            json.dump({"changes": count(), "modules": sorted(sys.modules)}, stream)
        os._exit(code)

def import_all(folder):
    # What the command imported: from now on its children have it from the start.
    for name in json.load(open(folder + "/log.json"))["modules"]:
        with contextlib.suppress(Exception):
            importlib.import_module(name)

for line in sys.stdin:
    job = json.loads(line)
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            work(job)
        finally:
            os._exit(99)
    timer = threading.Timer(job["seconds"] or 1e6, os.kill, (child, signal.SIGKILL))
    timer.start()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    timer.cancel()
    if code == 0 and job["is_first"]:
        import_all(job["folder"])
    print(code, time.monotonic() - start, flush=True)
"""
COLUMNS = ["--text", "text", "--author", "who"]
MEASURED = ["--label", "stars", "--private", "gender", "--encoder", "wordllama"]
QUICK = ["--seeds", "1", "--attackers", "logistic"]
SMALL = ["--epochs", "3", "--width", "8", "--layers", "1", "--vocabulary", "100", "--length", "10"]
CHARGED = ["--subject", "who", "--ledger", "ledger.db", "--budget", "1000"]
RECIPE = """
[[steps]]
step = "encoder"
name = "wordllama"

[[steps]]
step = "laplace"
epsilon = 8.0
"""
PEOPLE, EPSILON = 24, 8.0
KILLS = 30


@dataclass(frozen=True)
class Scene:
    """A command, and how its result is read: what must be the same after any death."""

    arguments: list[str]
    read: Callable[[Path], Any]
    # What is there when the work is whole, though the process has not ended.
    result: str
    # How often it dies before a change of a file: often where a run is short.
    deaths: int = 30
    # What one death may leave: safe to keep, and nobody can tell later whether it is needed.
    spare: str = ""


def read_audit(folder: Path) -> Any:
    findings = Findings.load(folder / "out")
    assert (folder / "out" / "report.html").read_text().rstrip().endswith("</html>")
    return [(row.kind, row.target, row.metric, row.attacker, row.value) for row in findings.rows]


def read_protect(folder: Path) -> Any:
    private = PrivateEncoder.load(folder / "out")
    assert unrecorded(origin.id for origin in private.origins) == ()
    assert Findings.load(folder / "out" / "before").rows
    return private.release(["one text"]).vectors.tolist(), read_audit(folder)


def read_encode(folder: Path) -> Any:
    table, rows = pq.read_table(folder / "out"), pq.read_table(folder / "rows.parquet")
    people = rows["who"].to_pylist()
    assert table["row"].to_pylist() == list(range(len(people)))
    assert table["who"].to_pylist() == people
    assert len(np.unique(Release.load(folder / "out").vectors, axis=0)) == len(people)
    with Ledger(folder / "ledger.db") as ledger:
        ledger.verify(ledger.head)
        assert ledger.counts().releases == len(people)
        spent = {who: ledger.spent(who).epsilon for who in set(people)}
    assert spent == {who: EPSILON * count for who, count in Counter(people).items()}
    direct = sqlite3.connect(folder / "ledger.db")
    # Vectors are kept for a run that may ask again; this one is over.
    assert direct.execute("SELECT count(*) FROM releases").fetchone() == (0,)
    direct.close()


def read_model(folder: Path) -> Any:
    model = LanguageModel.load(folder / "out")
    assert model.record is not None
    return model.record.figures["test_perplexity"]


SCENES = {
    "audit": Scene(
        ["audit", "rows.parquet", *COLUMNS, *MEASURED, *QUICK, "--out", "out"],
        read_audit,
        "out/report.html",
        deaths=12,
    ),
    "protect": Scene(
        ["protect", "rows.parquet", *COLUMNS, *MEASURED, *QUICK, "--method", "gr", "--out", "out"],
        read_protect,
        "out/manifest.json",
        deaths=12,
        # A death between the record of who trained an encoder and the encoder's manifest; in the
        # other order it would leave an encoder whose training rows count as victims.
        spare="state/training/<id>",
    ),
    "encode": Scene(
        ["encode", "rows.parquet", "out", "--text", "text", "--recipe", "recipe.toml", *CHARGED],
        read_encode,
        "out",
    ),
    "lm": Scene(
        ["lm", "train", "rows.parquet", *COLUMNS, *SMALL, "--out", "out"],
        read_model,
        "out/manifest.json",
    ),
}


class Server:
    """Runs commands in folders of their own, and kills them when it is told to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A thread pool does not survive a fork.
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )

    def run(
        self,
        folder: Path,
        arguments: list[str],
        *,
        seconds: float | None = None,
        change: int = 0,
        is_first: bool = False,
    ) -> tuple[int, float]:
        """The exit code and the time of a run, killed after so long or before that change."""
        assert self.process.stdin is not None and self.process.stdout is not None
        job = {"folder": str(folder), "arguments": arguments, "is_first": is_first}
        job |= {"seconds": seconds, "change": change}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        code, duration = self.process.stdout.readline().split()
        return int(code), float(duration)

    def close(self) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All texts of some people of the sample, and a recipe."""
    folder = tmp_path_factory.mktemp("stage")
    corpus = load("reviews")
    assert corpus.texts is not None and corpus.author is not None and corpus.label is not None
    people = np.unique(corpus.author.astype(str))[:PEOPLE]
    rows = np.flatnonzero(np.isin(corpus.author.astype(str), people))
    columns = {
        "text": corpus.texts[rows].tolist(),
        "stars": [str(value) for value in corpus.label[rows]],
        "gender": corpus.private["gender"][rows].tolist(),
        "who": corpus.author[rows].tolist(),
    }
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


def listing(folder: Path) -> Counter[str]:
    """All that lies there, random names as one: a record too many is two of a name."""
    paths = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    own = [path for path in paths if path not in ("log", "log.json")]
    return Counter(re.sub(r"\b[0-9a-f]{32}\b", "<id>", path) for path in own)


@pytest.mark.parametrize("name", SCENES)
def test_a_rerun_finishes_whenever_it_was_killed(
    name: str, server: Server, stage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, random = SCENES[name], np.random.default_rng(list(name.encode()))

    def copy(label: str) -> Path:
        folder = tmp_path / label
        shutil.copytree(stage, folder)
        monkeypatch.setenv("CAPELET_CACHE", str(folder / "cache"))
        monkeypatch.setenv("CAPELET_STATE", str(folder / "state"))
        return folder

    whole = copy("undisturbed")
    code, _ = server.run(whole, scene.arguments, is_first=True)
    assert code == 0, (whole / "log").read_text()
    reference, expected = scene.read(whole), listing(whole)
    changes = json.loads((whole / "log.json").read_text())["changes"]
    # Now that all is imported.
    duration = min(server.run(copy(f"timed {item}"), scene.arguments)[1] for item in range(2))
    faults: list[Any] = []
    tries = reruns = 0

    def dies(**moment: Any) -> bool:
        """Whether a run was killed at this moment; what is amiss after another run is a fault."""
        nonlocal tries, reruns
        folder, tries = copy(str(tries)), tries + 1
        code, _ = server.run(folder, scene.arguments, **moment)
        assert code in (0, -signal.SIGKILL), (moment, (folder / "log").read_text())
        if listing(folder) != expected:
            reruns += 1
            faults.extend((moment, fault) for fault in run_again(server, scene, folder))
        faults.extend((moment, fault) for fault in compare(scene, folder, expected, reference))
        shutil.rmtree(folder)
        return code != 0

    chosen = 1 + random.permutation(changes)[: scene.deaths]
    before_changes = sum(dies(change=int(item)) for item in chosen)
    by_clock = 0
    # A run may be quicker than its death; so another moment is drawn, until enough have died.
    while by_clock < KILLS and tries < len(chosen) + 4 * KILLS:
        by_clock += dies(seconds=float(random.uniform(0.01, duration)))
    figures = f"{changes} changes of files in {duration:.1f} s"
    print(
        f"{name} ({figures}): {before_changes} + {by_clock} of {tries} killed, {reruns} run again"
    )
    assert faults == [] and by_clock == KILLS and before_changes >= 0.8 * len(chosen)


def compare(scene: Scene, folder: Path, expected: Counter[str], reference: Any) -> list[str]:
    """What is left, lost or different in a folder where the command is over."""
    litter, loss = listing(folder) - expected, expected - listing(folder)
    faults = [f"left: {dict(litter)}"] if litter - Counter([scene.spare]) else []
    if loss:
        return [*faults, f"lost: {dict(loss)}"]
    try:
        return faults if scene.read(folder) == reference else [*faults, "another result"]
    except AssertionError as error:
        return [*faults, str(error)]


def run_again(server: Server, scene: Scene, folder: Path) -> list[str]:
    """The fault of the rerun, if it has one."""
    result = folder / scene.result
    before = result.read_bytes() if result.exists() else None
    code, _ = server.run(folder, scene.arguments)
    # A run that was whole and still clearing away may be refused, and is left as it is.
    over = code == 2 and before is not None and before == result.read_bytes()
    return [] if code == 0 or over else [f"exit {code}: {(folder / 'log').read_text()}"]
