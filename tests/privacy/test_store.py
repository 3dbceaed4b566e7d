"""A charge counts once, is never lost, and never passes a cap; what was paid for is kept."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import CapeletError, OutputError
from capelet.privacy.budgets import Budget, BudgetError, needs_of
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.privacy.store import Ledger, Settlement

TWO = Guarantee(epsilon=2.0)
UNIQUE = itertools.count()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def settle(
    ledger: Ledger,
    people: Sequence[str],
    guarantee: Guarantee = TWO,
    names: Sequence[bytes] | None = None,
    value: float = 0.0,
    budget: Budget | None = None,
) -> Settlement:
    """A release for each of the people, under names of their own unless some are given."""
    names = [b"%d" % next(UNIQUE) for _ in people] if names is None else names
    vectors = np.full((len(people), 3), value, dtype=np.float32)
    return ledger.settle(people, names, vectors, guarantee, run="run", budget=budget)


def spent(ledger: Ledger, person: str) -> float:
    total = ledger.spent(person)
    return 0.0 if total is None else total.epsilon


# ---- charges -------------------------------------------------------------------------------------


def test_charges_add_up_and_the_sum_is_per_person(path: Path) -> None:
    with Ledger(path) as ledger:
        assert not path.exists() and ledger.spent("ann") is None
        settle(ledger, ["ann", "ann", "bob", "ann"])
        settle(ledger, ["ann"], Guarantee(1.0, delta=1e-6))
    with Ledger(path) as ledger:
        total = ledger.spent("ann")
        assert total is not None and (total.epsilon, total.delta) == (7.0, 1e-6)
        assert total.sentence() == "(7, 1e-06)-local differential privacy for each author (proven)"
        assert ledger.subjects() == ["ann", "bob"]
        assert ledger.counts() == (2, 5, 7.0)


def test_words_are_not_summed_to_a_person(path: Path) -> None:
    """Only what holds of whole texts is, in sum, a promise to their author."""
    with Ledger(path) as ledger:
        settle(ledger, ["ann"], Guarantee(1.0, unit="word"))
        total = ledger.spent("ann")
        assert total is not None and total.unit == "word"


def test_the_file_is_the_owners_and_keeps_what_it_is_told(path: Path) -> None:
    with Ledger(path) as ledger:
        settle(ledger, ["ann"])
        files = [item for item in path.parent.iterdir() if item.name.startswith(path.name)]
        assert len(files) == 3  # with its write-ahead log
        assert {stat.S_IMODE(item.stat().st_mode) for item in files} == {0o600}
    direct = sqlite3.connect(path)
    assert direct.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    direct.close()
    path.chmod(0o644)
    with Ledger(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_first_writer_wins_and_the_second_costs_nothing(path: Path) -> None:
    """A retry gets what the first client holds; before, it was charged and overwrote it."""
    with Ledger(path) as ledger:
        first = settle(ledger, ["ann"], names=[b"name"], value=1.0)
        again = settle(ledger, ["ann"], names=[b"name"], value=2.0)
        assert first.is_new.all() and not again.is_new.any()
        np.testing.assert_array_equal(again.vectors, first.vectors)
        np.testing.assert_array_equal(ledger.find([b"name"])[b"name"], [1.0, 1.0, 1.0])
        assert spent(ledger, "ann") == 2.0
        other = settle(ledger, ["ann"], names=[b"another"], value=2.0)  # the control
        assert other.is_new.all() and spent(ledger, "ann") == 4.0


def test_a_name_that_comes_twice_in_one_call_is_one_release(path: Path) -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    with Ledger(path) as ledger:
        settlement = ledger.settle(["ann"] * 3, [b"a", b"b", b"a"], vectors, TWO)
        assert settlement.is_new.tolist() == [True, True, False]
        np.testing.assert_array_equal(settlement.vectors, vectors[[0, 1, 0]])
        assert spent(ledger, "ann") == 4.0


def test_nobody_gets_anothers_release_for_nothing(path: Path) -> None:
    with Ledger(path) as ledger:
        settle(ledger, ["ann"], names=[b"name"])
        for people, names in ((["bob"], [b"name"]), (["eve", "bob"], [b"new", b"new"])):
            with pytest.raises(CapeletError, match="belongs to another person"):
                settle(ledger, people, names=names)
        assert ledger.spent("eve") is None and ledger.find([b"new"]) == {}


def test_vectors_of_another_width_are_refused_and_cost_nothing(path: Path) -> None:
    with Ledger(path) as ledger:
        settle(ledger, ["ann"], names=[b"name"])
        with pytest.raises(CapeletError, match="another width"):
            ledger.settle(["ann", "ann"], [b"name", b"new"], np.zeros((2, 5)), TWO)
        with pytest.raises(CapeletError, match="for each row"):
            ledger.settle(["ann"], [b"x", b"y"], np.zeros((2, 3)), TWO)
        assert spent(ledger, "ann") == 2.0


def test_unlike_guarantees_are_refused(path: Path) -> None:
    with Ledger(path) as ledger:
        settle(ledger, ["ann"])
        with pytest.raises(CapeletError, match="do not add up"):
            settle(ledger, ["ann"], Guarantee(1.0, unit="word"))
        for nothing in (NONE, Guarantee(1.0, status="broken")):
            with pytest.raises(CapeletError, match="without a guarantee"):
                settle(ledger, ["ann"], nothing)
        assert spent(ledger, "ann") == 2.0


def test_what_trained_costs_nobody_who_passes(path: Path) -> None:
    with Ledger(path) as ledger:
        settle(ledger, ["ann"], Guarantee(2.0, training=NONE))
        assert ledger.spent("ann") == Guarantee(2.0, unit="author")


# ---- caps ----------------------------------------------------------------------------------------


def test_a_cap_is_never_passed_and_a_refused_charge_leaves_nothing(path: Path) -> None:
    with Ledger(path) as ledger:
        settle(ledger, ["ann"] * 2, budget=Budget(6.0))
        with pytest.raises(BudgetError, match=r"6 per person is too small for 1 person.* 1;") as no:
            settle(ledger, ["bob", "ann", "ann"], names=[b"x", b"y", b"z"], budget=Budget(6.0))
        assert (no.value.rows, no.value.count, no.value.highest) == ((1,), 1, 8.0)
        assert "ann" not in str(no.value) and "row is 101;" in str(no.value.from_row(100))
        assert ledger.spent("bob") is None and ledger.find([b"x", b"y"]) == {}
        settle(ledger, ["bob", "ann"], budget=Budget(6.0))
        assert spent(ledger, "ann") == 6.0


def test_an_error_points_at_five_rows_and_counts_the_rest(path: Path) -> None:
    needs = needs_of([f"secret{row % 8}" for row in range(16)], range(16))
    with pytest.raises(BudgetError, match=r"8 people.* 0, 1, 2, 3, 4 and those of 3 more") as no:
        Ledger(path).check(needs, TWO, Budget(3.0))
    assert "secret" not in str(no.value) and not path.exists()


def test_the_first_budget_stays_and_a_larger_one_is_refused(path: Path) -> None:
    with Ledger(path) as ledger:
        assert ledger.limit(Budget(2.0)) == Budget(2.0)
    with Ledger(path) as ledger:
        for more in (Budget(1000.0), Budget(2.1)):
            with pytest.raises(CapeletError, match=r"is limited to ε = 2 per person; .*raise"):
                ledger.limit(more)
            with pytest.raises(CapeletError, match="is limited to"):
                settle(ledger, ["ann"], budget=more)
        assert ledger.budget == Budget(2.0) and ledger.spent("ann") is None
        with pytest.raises(BudgetError):
            settle(ledger, ["ann"] * 2)
        settle(ledger, ["ann"])


def test_a_smaller_budget_holds_for_its_run_and_lowers_nothing(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.limit(Budget(6.0, delta=1e-6))
        assert ledger.limit(Budget(2.0)) == Budget(2.0, delta=1e-6)  # says nothing of δ
        assert ledger.budget == Budget(6.0, delta=1e-6)
        with pytest.raises(BudgetError, match="ε = 2"):
            settle(ledger, ["ann"] * 2, budget=Budget(2.0))
        with pytest.raises(CapeletError, match="is limited to"):
            ledger.cap(Budget(2.0, delta=1e-5))
        settle(ledger, ["ann"] * 2)


def test_raising_is_an_act_of_its_own_and_written_down(path: Path) -> None:
    with Ledger(path) as ledger:
        with pytest.raises(CapeletError, match="no budget to raise"):
            ledger.raise_budget(Budget(4.0))
        ledger.limit(Budget(2.0))
        for no_more in (Budget(2.0), Budget(1.0), Budget(4.0, delta=0.1)):
            with pytest.raises(CapeletError, match="is no more than that"):
                ledger.raise_budget(no_more)
        assert ledger.raise_budget(Budget(4.0)) == Budget(2.0)
    with Ledger(path) as ledger:
        assert ledger.budget == Budget(4.0)
        first, second = ledger.budget_changes()
        assert (first.old, first.new) == (None, Budget(2.0)) and first.time <= second.time
        assert (second.old, second.new) == (Budget(2.0), Budget(4.0)) and "T" in second.time
        settle(ledger, ["ann"] * 2)


def test_a_sum_of_tenths_and_delta(path: Path) -> None:
    with Ledger(path) as ledger:
        for _ in range(3):
            settle(ledger, ["ann"], Guarantee(0.1), budget=Budget(0.3))
        with pytest.raises(BudgetError):
            settle(ledger, ["ann"], Guarantee(0.001), budget=Budget(0.3))
        risky = Guarantee(0.1, delta=0.4)
        with pytest.raises(BudgetError):  # a δ of 1 promises nothing, whatever the ε
            settle(ledger, ["bob"] * 3, risky, budget=Budget(100.0))


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "3", True])
def test_budgets_that_are_none(wrong: float) -> None:
    with pytest.raises(CapeletError, match="the budget is"):
        Budget(wrong)


# ---- people --------------------------------------------------------------------------------------


def test_one_person_in_two_forms_has_one_budget(path: Path) -> None:
    """Composed and decomposed letters, blanks around: before, each had a budget of its own."""
    with Ledger(path) as ledger:
        settle(ledger, ["Zoë", " Zoe\u0308", "Zoë\t"])
        assert ledger.subjects() == ["Zoë"] and spent(ledger, "Zoe\u0308 ") == 6.0
        names = {ledger.release_name("recipe", who, b"text") for who in ("Zoë", "Zoe\u0308 ")}
        assert len(names) == 1
        assert (
            ledger.has_alike("zoë") and not ledger.has_alike("Zoë") and ledger.spent("zoë") is None
        )


def test_an_erased_person_leaves_only_a_sum(path: Path) -> None:
    vector = np.array([[1.25, -3.5, 7.75]], dtype=np.float32)
    with Ledger(path) as ledger:
        ledger.limit(Budget(4.0))
        ledger.settle(["Ann Lee"], [b"name"], vector, TWO)
        settle(ledger, ["bob"], names=[b"his"])
        assert vector.tobytes() in path.with_name("ledger.db-wal").read_bytes()  # the control
        assert ledger.erase(" Ann Lee ") == 1
        assert ledger.find([b"name", b"his"]).keys() == {b"his"}
        erased, bob = sorted(ledger.subjects(), reverse=True)
        assert erased.startswith("erased-") and bob == "bob"
        content = path.read_bytes() + path.with_name("ledger.db-wal").read_bytes()
        assert b"Ann Lee" not in content and vector.tobytes() not in content
        # Who comes back has spent what was spent, and stays without a name.
        assert spent(ledger, "Ann Lee") == 2.0
        settle(ledger, ["Ann Lee"])
        with pytest.raises(BudgetError):
            settle(ledger, ["Ann Lee"])
        assert "Ann Lee" not in ledger.subjects()
        with pytest.raises(CapeletError, match="nobody of this name") as no:
            ledger.erase("Eve")
        assert "Eve" not in str(no.value)
        ledger.verify(ledger.head)


# ---- names and files -----------------------------------------------------------------------------


def test_kept_vectors_come_back_by_person_recipe_and_text(path: Path) -> None:
    vector = np.arange(3, dtype=np.float32)
    with Ledger(path) as ledger:
        ledger.open()
        name = ledger.release_name("recipe", "ann", b"a text")
        ledger.settle(["ann"], [name], vector[None], TWO)
        others = [
            ledger.release_name("recipe", "bob", b"a text"),
            ledger.release_name("other", "ann", b"a text"),
            ledger.release_name("recipe", "ann", b"a text "),
            ledger.release_name("recip", "eann", b"a text"),
        ]
    with Ledger(path) as ledger:
        assert ledger.release_name("recipe", "ann", b"a text") == name
        assert ledger.names_among([*others, name]) == {name}
        stored = ledger.find([*others, name])
        assert list(stored) == [name]
        np.testing.assert_array_equal(stored[name], vector)
    assert b"a text" not in path.read_bytes()


def test_rows_of_runs_share_no_name(path: Path) -> None:
    with Ledger(path) as ledger:
        names = [ledger.row_name(run, row) for run in ("a", "a1", "b") for row in (1, 11, 111)]
        assert len(set(names)) == 9 and ledger.row_name("a", 1) == names[0]


def test_a_run_that_is_over_leaves_its_charges_and_no_vectors(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.settle(["ann"], [b"one"], np.zeros((1, 3)), TWO, run="one")
        ledger.settle(["ann"], [b"two"], np.zeros((1, 3)), TWO, run="two")
        ledger.forget("one")
        assert ledger.names_among([b"one", b"two"]) == {b"two"}
        assert (ledger.releases_of("one"), ledger.releases_of("two")) == (0, 1)
        assert spent(ledger, "ann") == 4.0


def test_names_last_though_another_process_makes_the_file(path: Path) -> None:
    """A name is asked for only under the file's own key: of two, the first decides it."""
    one, other = Ledger(path), Ledger(path)
    assert one.release_name("r", "ann", b"text") == other.release_name("r", "ann", b"text")
    assert one.row_name("run", 3) == other.row_name("run", 3)
    one.close()
    other.close()


def test_another_ledger_has_another_key(tmp_path: Path) -> None:
    with Ledger(tmp_path / "a.db") as one, Ledger(tmp_path / "b.db") as other:
        assert one.release_name("r", "ann", b"text") != other.release_name("r", "ann", b"text")


def test_what_is_no_ledger_is_left_alone(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"not a database, and long enough to be told apart " * 20)
    before = path.read_bytes()
    with pytest.raises(OutputError, match="cannot be used as a ledger"):
        Ledger(path)
    assert path.read_bytes() == before
    foreign = sqlite3.connect(tmp_path / "foreign.db")
    foreign.execute("CREATE TABLE mine (x)")
    foreign.commit()
    foreign.close()
    with pytest.raises(OutputError, match="cannot be used as a ledger"):
        Ledger(tmp_path / "foreign.db")
    with pytest.raises(OutputError):
        Ledger(tmp_path)
    with pytest.raises(OutputError):
        Ledger(tmp_path / "no" / "folder.db").open()


def test_a_store_of_a_newer_version_is_refused(path: Path) -> None:
    with Ledger(path) as ledger:
        settle(ledger, ["ann"])
    direct = sqlite3.connect(path)
    direct.execute("PRAGMA user_version = 4")
    direct.close()
    with pytest.raises(OutputError, match=r"a newer Capelet \(version 4 of the store"):
        Ledger(path)


# ---- threads and processes -----------------------------------------------------------------------


def test_threads_share_a_ledger(path: Path) -> None:
    """Ten threads, one text and one object: one vector, one charge; other rows are all charged."""
    answers: list[np.ndarray] = []
    with Ledger(path) as ledger:

        def work(number: int) -> None:
            answers.append(settle(ledger, ["ann"], names=[b"same"], value=float(number)).vectors)
            settle(ledger, ["ann"], names=[b"own%d" % number])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({answer.tobytes() for answer in answers}) == 1
        assert spent(ledger, "ann") == 2.0 * 11


def call_in_clean_process(function: str, *arguments: object) -> str:
    """What a function of this module prints in a process without threads, where forks are safe."""
    script = "import sys; sys.path.insert(0, sys.argv[1]); import test_store\n"
    script += "getattr(test_store, sys.argv[2])(*sys.argv[3:])"
    given = [str(Path(__file__).parent), function, *map(str, arguments)]
    done = subprocess.run(
        [sys.executable, "-c", script, *given], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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


def use_across_a_fork(path: str) -> None:
    with Ledger(path) as ledger:
        settle(ledger, ["ann"])
        assert wait_for([fork(settle, ledger, ["ann"], TWO, [b"of the child"])]) == [0]
        settle(ledger, ["ann"])
        print(spent(ledger, "ann"))


def test_a_ledger_can_be_used_after_a_fork(path: Path) -> None:
    assert float(call_in_clean_process("use_across_a_fork", path)) == 6.0
    with Ledger(path) as ledger:
        ledger.verify(ledger.head)


def charge_until_refused(path: Path, run: str, times: int, cap: float) -> None:
    """One of several processes: its charges, each for `ann` and for a person of its own."""
    refusals = 0
    with Ledger(path) as ledger:
        for number in range(times):
            names = [f"{run}-{number}-{side}".encode() for side in "ab"]
            try:
                ledger.settle(
                    ["ann", run], names, np.zeros((2, 2)), Guarantee(1.0), budget=Budget(cap)
                )
            except BudgetError:
                refusals += 1
    path.with_name(f"{run}.refusals").write_text(str(refusals))


def charge_from_many(path: str, processes: str, times: str, cap: str) -> None:
    work = [(Path(path), f"p{number}", int(times), float(cap)) for number in range(int(processes))]
    assert set(wait_for([fork(charge_until_refused, *item) for item in work])) == {0}


@pytest.mark.parametrize(
    ("processes", "times"), [(4, 25), pytest.param(8, 200, marks=pytest.mark.slow)]
)
def test_processes_lose_no_charge_and_stop_at_the_cap(
    path: Path, processes: int, times: int
) -> None:
    """All begin where no file is yet; three quarters of what they want fits under the cap."""
    cap = processes * times * 3 // 4
    call_in_clean_process("charge_from_many", path, processes, times, cap)
    refusals = [int(file.read_text()) for file in path.parent.glob("*.refusals")]
    with Ledger(path) as ledger:
        own = [spent(ledger, f"p{number}") for number in range(processes)]
        assert spent(ledger, "ann") == cap == sum(own)
        assert len(refusals) == processes and sum(refusals) == processes * times - cap
        assert ledger.counts().releases == 2 * cap
        ledger.verify(ledger.head)


def settle_one_text(path: Path, number: int) -> None:
    """One of several processes: wait for the others, then ask for the same text."""
    with Ledger(path) as ledger:
        while not path.with_name("gate").exists():
            time.sleep(0.001)
        draw = np.full((1, 4), number, dtype=np.float32)
        stored = ledger.settle(["ann"], [ledger.release_name("r", "ann", b"text")], draw, TWO)
        path.with_name(f"{number}.answer").write_bytes(stored.vectors.tobytes())


def settle_one_text_from_many(path: str, processes: str) -> None:
    children = [fork(settle_one_text, Path(path), number) for number in range(int(processes))]
    time.sleep(0.1)
    Path(path).with_name("gate").touch()
    assert set(wait_for(children)) == {0}


def test_the_same_text_from_eight_processes_is_one_vector_and_one_charge(path: Path) -> None:
    call_in_clean_process("settle_one_text_from_many", path, 8)
    answers = [file.read_bytes() for file in path.parent.glob("*.answer")]
    assert len(answers) == 8 and len(set(answers)) == 1
    with Ledger(path) as ledger:
        assert spent(ledger, "ann") == 2.0
        assert (
            ledger.find([ledger.release_name("r", "ann", b"text")]).popitem()[1].tobytes()
            == answers[0]
        )


def settle_for_ever(path: str) -> None:
    with Ledger(path) as ledger:
        for number in itertools.count():
            people = [f"p{number % 3}", f"p{number % 5}"]
            names = [f"{os.getpid()}-{number}-{side}".encode() for side in "ab"]
            ledger.settle(people, names, np.ones((2, 4)), TWO, run="run")


def kill_at_random_moments(path: str, kills: str) -> None:
    chance, total = random.Random(0), 0
    for _ in range(int(kills)):
        child = fork(settle_for_ever, path)
        time.sleep(0.05 + chance.random() * 0.1)
        os.kill(child, signal.SIGKILL)
        assert wait_for([child]) == [-signal.SIGKILL]
        with Ledger(path) as ledger:
            counts = ledger.counts()
            assert counts.releases == ledger.releases_of("run") >= total
            ledger.verify(ledger.head)
            total = counts.releases
    print(total)


@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_after_kills_what_is_charged_is_what_is_kept(path: Path, kills: int) -> None:
    """Never a charge without its vector, never a vector without its charge."""
    assert int(call_in_clean_process("kill_at_random_moments", path, kills)) > 0
