"""A charge counts once, is never lost, and never passes a budget; what was paid for is kept."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import CapeletError, OutputError
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.privacy.store import Budget, BudgetError, Ledger

TWO = Guarantee(epsilon=2.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_charges_add_up(path: Path) -> None:
    with Ledger(path) as ledger:
        assert not path.exists() and ledger.spent("ann") is None
        assert ledger.charge("run", 0, {"ann": 3, "bob": 1}, TWO)
        assert ledger.charge("run", 1, {"ann": 1}, Guarantee(1.0, delta=1e-6))
    with Ledger(path) as ledger:
        spent = ledger.spent("ann")
        assert spent is not None and (spent.epsilon, spent.delta) == (7.0, 1e-6)
        assert ledger.subjects() == ["ann", "bob"] and ledger.paid_blocks("run") == {0, 1}
        assert ledger.paid_blocks("another") == set()


def test_the_file_is_the_owners_and_keeps_what_it_is_told(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.charge("run", 0, {"ann": 1}, TWO)
        files = [item for item in path.parent.iterdir() if item.name.startswith(path.name)]
        assert len(files) == 3  # with its write-ahead log
        assert {stat.S_IMODE(item.stat().st_mode) for item in files} == {0o600}
    direct = sqlite3.connect(path)
    assert direct.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    direct.close()
    path.chmod(0o644)
    with Ledger(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_same_charge_counts_once(path: Path) -> None:
    with Ledger(path) as ledger:
        assert ledger.charge("run", 0, {"ann": 3}, TWO)
        assert not ledger.charge("run", 0, {"ann": 3}, TWO)
        assert ledger.charge("again", 0, {"ann": 3}, TWO)
        spent = ledger.spent("ann")
        assert spent is not None and spent.epsilon == 12.0


def test_a_budget_is_never_passed_and_a_refused_charge_leaves_nothing(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.charge("run", 0, {"ann": 2}, TWO, budget=Budget(6.0))
        vector = (b"name", np.ones(2, dtype=np.float32))
        with pytest.raises(BudgetError, match=r"1 subject: 'ann' \(ε would be 8\)") as no:
            ledger.charge(
                "run", 1, {"bob": 1, "ann": 2}, TWO, budget=Budget(6.0), releases=[vector]
            )
        assert no.value.subjects == ("ann",)
        assert ledger.paid_blocks("run") == {0} and ledger.spent("bob") is None
        assert ledger.find([b"name"]) == {}
        assert ledger.charge("run", 1, {"bob": 1, "ann": 1}, TWO, budget=Budget(6.0))


def test_an_error_names_five_subjects_and_counts_the_rest(path: Path) -> None:
    needs = [(f"u{number}", 2) for number in range(8)]
    with pytest.raises(BudgetError, match=r"8 subjects: 'u0' .*'u4' .* and 3 more"):
        Ledger(path).check(needs, TWO, Budget(3.0))
    assert not path.exists()


def test_a_budget_stays_in_the_ledger(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.limit(Budget(2.0))
    with Ledger(path) as ledger:
        assert ledger.budget == Budget(2.0)
        with pytest.raises(BudgetError):
            ledger.charge("run", 0, {"ann": 2}, TWO)
        assert ledger.charge("run", 0, {"ann": 2}, TWO, budget=Budget(4.0))


def test_a_sum_of_tenths_and_delta(path: Path) -> None:
    with Ledger(path) as ledger:
        for block in range(3):
            assert ledger.charge("run", block, {"ann": 1}, Guarantee(0.1), budget=Budget(0.3))
        with pytest.raises(BudgetError):
            ledger.charge("run", 3, {"ann": 1}, Guarantee(0.001), budget=Budget(0.3))
        risky = Guarantee(0.1, delta=0.4)
        with pytest.raises(BudgetError):  # a δ of 1 promises nothing, whatever the ε
            ledger.charge("run", 3, {"bob": 3}, risky, budget=Budget(100.0))


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "3", True])
def test_budgets_that_are_none(wrong: float) -> None:
    with pytest.raises(CapeletError, match="the budget is"):
        Budget(wrong)


def test_unlike_guarantees_are_refused(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.charge("run", 0, {"ann": 1}, TWO)
        with pytest.raises(CapeletError, match="do not add up"):
            ledger.charge("run", 1, {"ann": 1}, Guarantee(1.0, unit="word"))
        for nothing in (NONE, Guarantee(1.0, status="broken")):
            with pytest.raises(CapeletError, match="without a guarantee"):
                ledger.charge("run", 1, {"ann": 1}, nothing)
        with pytest.raises(CapeletError, match="releases"):
            ledger.charge("run", 1, {"ann": -1}, TWO)
        assert ledger.paid_blocks("run") == {0}


def test_kept_vectors_come_back_by_person_recipe_and_text(path: Path) -> None:
    vector = np.arange(3, dtype=np.float32)
    with Ledger(path) as ledger:
        ledger.open()
        name = ledger.name("recipe", "ann", b"a text")
        ledger.charge("run", 0, {"ann": 1}, TWO, releases=[(name, vector)])
        others = [
            ledger.name("recipe", "bob", b"a text"),
            ledger.name("other", "ann", b"a text"),
            ledger.name("recipe", "ann", b"a text "),
            ledger.name("recip", "eann", b"a text"),
        ]
    with Ledger(path) as ledger:
        assert ledger.name("recipe", "ann", b"a text") == name
        found = ledger.find([*others, name])
        assert list(found) == [name]
        np.testing.assert_array_equal(found[name], vector)
    assert b"a text" not in path.read_bytes()


def test_another_ledger_has_another_key(tmp_path: Path) -> None:
    names = [Ledger(tmp_path / name).name("r", "ann", b"text") for name in ("a.db", "b.db")]
    assert names[0] != names[1]


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


CHARGES = """
import sys
from capelet.privacy.guarantees import Guarantee
from capelet.privacy.store import Budget, BudgetError, Ledger
path, run, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
refused = 0
with Ledger(path) as ledger:
    for block in range(times):
        try:
            ledger.charge(run, block, {"ann": 1, run: 1}, Guarantee(1.0), budget=Budget(150.0))
        except BudgetError:
            refused += 1
print(refused)
"""


def test_two_processes_lose_no_charge_and_stop_at_the_budget(path: Path) -> None:
    """Both begin where no file is yet; 2 × 100 charges of 1 against a budget of 150."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHARGES, path, run, "100"], stdout=subprocess.PIPE, text=True
        )
        for run in ("one", "two")
    ]
    refused = [int(child.communicate(timeout=60)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0]
    with Ledger(path) as ledger:
        spent = {who: ledger.spent(who) for who in ("ann", "one", "two")}
        charged = len(ledger.paid_blocks("one")) + len(ledger.paid_blocks("two"))
    totals = {who: item.epsilon for who, item in spent.items() if item is not None}
    assert totals["ann"] == 150.0 == totals["one"] + totals["two"] == charged
    assert sum(refused) == 50
