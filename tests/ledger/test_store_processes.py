"""Many processes, kills and crashes: no charge is lost, none is passed, no name has two vectors.

The functions without `test_` run in processes of their own, where forks are safe.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import StoreDown
from capelet.ledger.budgets import Budget, BudgetError
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee
from postgres import Server

Place = Path | str
TWO = Guarantee(epsilon=2.0)


def spent(ledger: Ledger, person: str) -> float:
    total = ledger.spent(person)
    return 0.0 if total is None else total.epsilon


def start_clean_process(function: str, *arguments: object) -> subprocess.Popen[str]:
    """A process without threads that calls a function of this module."""
    script = "import sys; sys.path[:0] = sys.argv[1:3]; import test_store_processes as module\n"
    script += "getattr(module, sys.argv[3])(*sys.argv[4:])"
    here = Path(__file__).parent
    call = [sys.executable, "-c", script, here, here.parent, function, *arguments]
    return subprocess.Popen(
        [str(item) for item in call], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def call_in_clean_process(function: str, *arguments: object) -> str:
    """What the function prints."""
    process = start_clean_process(function, *arguments)
    output, error = process.communicate(timeout=900)
    assert process.returncode == 0, error
    return output


def fork(function: Callable[..., None], *arguments: object) -> int:
    """The number of a child process that runs the function and ends."""
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)
            os._exit(0)
        finally:
            os._exit(1)
    return child


def wait_for(children: Sequence[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


# ---- forks ---------------------------------------------------------------------------------------


def use_across_a_fork(place: str) -> None:
    def charge(ledger: Ledger, name: bytes) -> None:
        ledger.settle(["ann"], [name], np.zeros((1, 3)), TWO)

    with Ledger(place) as ledger:
        charge(ledger, b"before")
        assert wait_for([fork(charge, ledger, b"of the child")]) == [0]
        charge(ledger, b"after")
        print(spent(ledger, "ann"))


def test_a_ledger_can_be_used_after_a_fork(place: Place) -> None:
    assert float(call_in_clean_process("use_across_a_fork", place)) == 6.0
    with Ledger(place) as ledger:
        ledger.verify(ledger.head)


# ---- caps ----------------------------------------------------------------------------------------


def charge_until_refused(place: str, folder: str, run: str, times: int, cap: float) -> None:
    """One of several processes: its charges, each for `ann` and for a person of its own."""
    refusals = 0
    with Ledger(place) as ledger:
        for number in range(times):
            names = [f"{run}-{number}-{side}".encode() for side in "ab"]
            try:
                ledger.settle(
                    ["ann", run], names, np.zeros((2, 2)), Guarantee(1.0), budget=Budget(cap)
                )
            except BudgetError:
                refusals += 1
    (Path(folder) / f"{run}.refusals").write_text(str(refusals))


def charge_from_many(
    place: str, folder: str, group: str, processes: str, times: str, cap: str
) -> None:
    """One replica: so many worker processes."""
    work = [
        (place, folder, f"{group}{number}", int(times), float(cap))
        for number in range(int(processes))
    ]
    assert set(wait_for([fork(charge_until_refused, *item) for item in work])) == {0}


@pytest.mark.parametrize(
    ("processes", "times", "cap"),
    [(2, 25, 75), pytest.param(4, 200, 1000, marks=pytest.mark.slow)],
)
def test_two_replicas_lose_no_charge_and_stop_at_the_cap(
    place: Place, tmp_path: Path, processes: int, times: int, cap: int
) -> None:
    """All begin where no store is yet; exactly what fits under the cap is charged."""
    work = (tmp_path, processes, times, cap)
    folder, *counts = work
    replicas = [
        start_clean_process("charge_from_many", place, folder, group, *counts) for group in "ab"
    ]
    for replica in replicas:
        assert replica.communicate(timeout=900)[1] == "" and replica.returncode == 0
    refusals = [int(file.read_text()) for file in tmp_path.glob("*.refusals")]
    with Ledger(place) as ledger:
        own = [spent(ledger, f"{group}{number}") for group in "ab" for number in range(processes)]
        assert spent(ledger, "ann") == cap == sum(own)
        assert len(refusals) == 2 * processes
        assert sum(refusals) == 2 * processes * times - cap
        assert ledger.counts().releases == 2 * cap
        ledger.verify(ledger.head)


# ---- one text from many --------------------------------------------------------------------------


def settle_one_text(place: str, folder: str, number: int) -> None:
    """One of several processes: wait for the others, then ask for the same text."""
    with Ledger(place) as ledger:
        while not (Path(folder) / "gate").exists():
            time.sleep(0.001)
        draw = np.full((1, 4), number, dtype=np.float32)
        stored = ledger.settle(["ann"], [ledger.release_name("r", "ann", b"text")], draw, TWO)
        (Path(folder) / f"{number}.answer").write_bytes(stored.vectors.tobytes())


def settle_one_text_from_many(place: str, folder: str, processes: str) -> None:
    children = [fork(settle_one_text, place, folder, number) for number in range(int(processes))]
    time.sleep(0.1)
    (Path(folder) / "gate").touch()
    assert set(wait_for(children)) == {0}


def test_the_same_text_from_eight_processes_is_one_vector_and_one_charge(
    place: Place, tmp_path: Path
) -> None:
    call_in_clean_process("settle_one_text_from_many", place, tmp_path, 8)
    answers = [file.read_bytes() for file in tmp_path.glob("*.answer")]
    assert len(answers) == 8 and len(set(answers)) == 1
    with Ledger(place) as ledger:
        assert spent(ledger, "ann") == 2.0
        name = ledger.release_name("r", "ann", b"text")
        assert ledger.find([name])[name].tobytes() == answers[0]


# ---- kills ---------------------------------------------------------------------------------------


def settle_for_ever(place: str, folder: str, worker: int) -> None:
    """Ask for texts that other workers ask for as well, and note every answer before the next.

    An answer that was let out is one line of a file: name and vector. Where the store is down
    nothing is let out, and the same is asked again.
    """
    draws = np.random.default_rng()
    with (
        Ledger(place, keeps_names=False) as ledger,
        (Path(folder) / f"{worker}.answers").open("a", buffering=1) as answers,
    ):
        for number in itertools.count(int(time.time() * 20)):
            person, texts = f"p{number % 3}", [b"%d %d" % (number, text) for text in range(2)]
            vectors = draws.normal(size=(2, 4)).astype(np.float32)
            try:
                names = [ledger.release_name("r", person, text) for text in texts]
                stored = ledger.settle([person] * 2, names, vectors, TWO, run="run")
            except StoreDown:
                time.sleep(0.02)
                continue
            for name, vector in zip(names, stored.vectors, strict=True):
                answers.write(f"{name.hex()} {vector.tobytes().hex()}\n")


def kill_workers(place: str, folder: str, kills: str) -> None:
    """Two workers at a time; one of them is killed at a random moment, and replaced."""
    chance = random.Random(0)
    with Ledger(place) as ledger:  # made, and its modules imported, before anybody is killed
        ledger.open()
    workers = [fork(settle_for_ever, place, folder, number) for number in range(2)]
    for number in range(int(kills)):
        time.sleep(0.1 + chance.random() * 0.2)
        os.kill(workers[0], signal.SIGKILL)
        assert wait_for(workers[:1]) == [-signal.SIGKILL]
        workers = [workers[1], fork(settle_for_ever, place, folder, number + 2)]
    end(workers)


def end(workers: Sequence[int]) -> None:
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    wait_for(workers)


def check_answers(place: Place, folder: Path) -> int:
    """Charges are what is kept, and every answer is what the store holds; how many there are."""
    with Ledger(place) as ledger:
        assert ledger.counts().releases == ledger.releases_of("run") > 0
        ledger.verify(ledger.head)
        answers: dict[bytes, set[str]] = {}
        for file in folder.glob("*.answers"):
            # A worker that was killed while it wrote leaves half a line.
            for line in file.read_text().split("\n")[:-1]:
                name, vector = line.split()
                answers.setdefault(bytes.fromhex(name), set()).add(vector)
        stored = ledger.find(answers)
        assert {name: {stored[name].tobytes().hex()} for name in answers} == answers
    return len(answers)


@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_after_kills_what_is_charged_is_what_is_kept(
    place: Place, tmp_path: Path, kills: int
) -> None:
    """Never a charge without its vector, a vector without its charge, or a name with two."""
    call_in_clean_process("kill_workers", place, tmp_path, kills)
    assert check_answers(place, tmp_path) > 0


def work_until_the_end(place: str, folder: str) -> None:
    """Four workers, until the file `end` appears."""
    with Ledger(place) as ledger:
        ledger.open()
    workers = [fork(settle_for_ever, place, folder, number) for number in range(4)]
    while not (Path(folder) / "end").exists():
        time.sleep(0.02)
    end(workers)


@pytest.fixture
def own_server(postgres: Server) -> Server:
    """A server of the test's own, which may be killed."""
    del postgres  # only for its reason to skip
    return Server()


@pytest.mark.slow
def test_a_database_that_is_killed_under_load_loses_no_charge(
    own_server: Server, tmp_path: Path
) -> None:
    own_server.start()
    try:
        url, chance = own_server.create("people"), random.Random(1)
        load = start_clean_process("work_until_the_end", url, tmp_path)
        while len(list(tmp_path.glob("*.answers"))) < 4:
            time.sleep(0.05)
        for _ in range(30):
            time.sleep(0.5 + chance.random() * 0.5)
            own_server.kill()
            with pytest.raises(StoreDown):
                Ledger(url)
            own_server.start()
        time.sleep(2.0)  # the workers find it again
        (tmp_path / "end").touch()
        _, error = load.communicate(timeout=60)
        assert load.returncode == 0, error
        assert check_answers(url, tmp_path) > 30
    finally:
        own_server.delete()
