"""A charge counts once, is never lost, and never passes a cap; what was paid for is kept."""

from __future__ import annotations

import itertools
import sqlite3
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import CapeletError, OutputError, StoreDown
from capelet.ledger.budgets import Budget, BudgetError, needs_of
from capelet.ledger.database import connect
from capelet.ledger.schema import TABLE_NAMES
from capelet.ledger.store import Ledger, Settlement
from capelet.privacy.guarantees import NONE, Guarantee

Place = Path | str

TWO = Guarantee(epsilon=2.0)
UNIQUE = itertools.count()


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


def test_charges_add_up_and_the_sum_is_per_person(place: Place) -> None:
    with Ledger(place) as ledger:
        assert not ledger.is_open and ledger.spent("ann") is None
        settle(ledger, ["ann", "ann", "bob", "ann"])
        settle(ledger, ["ann"], Guarantee(1.0, delta=1e-6))
    with Ledger(place) as ledger:
        total = ledger.spent("ann")
        assert total is not None and (total.epsilon, total.delta) == (7.0, 1e-6)
        assert total.sentence() == "(7, 1e-06)-local differential privacy for each author (proven)"
        assert ledger.subjects() == ["ann", "bob"]
        assert ledger.counts() == (2, 5, 7.0)


def test_words_are_not_summed_to_a_person(place: Place) -> None:
    """Only what holds of whole texts is, in sum, a promise to their author."""
    with Ledger(place) as ledger:
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


def test_the_first_writer_wins_and_the_second_costs_nothing(place: Place) -> None:
    """A retry gets what the first client holds; before, it was charged and overwrote it."""
    with Ledger(place) as ledger:
        first = settle(ledger, ["ann"], names=[b"name"], value=1.0)
        again = settle(ledger, ["ann"], names=[b"name"], value=2.0)
        assert first.is_new.all() and not again.is_new.any()
        np.testing.assert_array_equal(again.vectors, first.vectors)
        np.testing.assert_array_equal(ledger.find([b"name"])[b"name"], [1.0, 1.0, 1.0])
        assert spent(ledger, "ann") == 2.0
        other = settle(ledger, ["ann"], names=[b"another"], value=2.0)  # the control
        assert other.is_new.all() and spent(ledger, "ann") == 4.0


def test_a_name_that_comes_twice_in_one_call_is_one_release(place: Place) -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    with Ledger(place) as ledger:
        settlement = ledger.settle(["ann"] * 3, [b"a", b"b", b"a"], vectors, TWO)
        assert settlement.is_new.tolist() == [True, True, False]
        np.testing.assert_array_equal(settlement.vectors, vectors[[0, 1, 0]])
        assert spent(ledger, "ann") == 4.0


def test_nobody_gets_anothers_release_for_nothing(place: Place) -> None:
    with Ledger(place) as ledger:
        settle(ledger, ["ann"], names=[b"name"])
        for people, names in ((["bob"], [b"name"]), (["eve", "bob"], [b"new", b"new"])):
            with pytest.raises(CapeletError, match="belongs to another person"):
                settle(ledger, people, names=names)
        assert ledger.spent("eve") is None and ledger.find([b"new"]) == {}


def test_vectors_of_another_width_are_refused_and_cost_nothing(place: Place) -> None:
    with Ledger(place) as ledger:
        settle(ledger, ["ann"], names=[b"name"])
        with pytest.raises(CapeletError, match="another width"):
            ledger.settle(["ann", "ann"], [b"name", b"new"], np.zeros((2, 5)), TWO)
        with pytest.raises(CapeletError, match="for each row"):
            ledger.settle(["ann"], [b"x", b"y"], np.zeros((2, 3)), TWO)
        assert spent(ledger, "ann") == 2.0


def test_unlike_guarantees_are_refused(place: Place) -> None:
    with Ledger(place) as ledger:
        settle(ledger, ["ann"])
        with pytest.raises(CapeletError, match="do not add up"):
            settle(ledger, ["ann"], Guarantee(1.0, unit="word"))
        for nothing in (NONE, Guarantee(1.0, status="broken")):
            with pytest.raises(CapeletError, match="without a guarantee"):
                settle(ledger, ["ann"], nothing)
        assert spent(ledger, "ann") == 2.0


def test_what_trained_costs_nobody_who_passes(place: Place) -> None:
    with Ledger(place) as ledger:
        settle(ledger, ["ann"], Guarantee(2.0, training=NONE))
        assert ledger.spent("ann") == Guarantee(2.0, unit="author")


# ---- caps ----------------------------------------------------------------------------------------


def test_a_cap_is_never_passed_and_a_refused_charge_leaves_nothing(place: Place) -> None:
    with Ledger(place) as ledger:
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


def test_the_first_budget_stays_and_a_larger_one_is_refused(place: Place) -> None:
    with Ledger(place) as ledger:
        assert ledger.limit(Budget(2.0)) == Budget(2.0)
    with Ledger(place) as ledger:
        for more in (Budget(1000.0), Budget(2.1)):
            with pytest.raises(CapeletError, match=r"is limited to ε = 2 per person; .*raise"):
                ledger.limit(more)
            with pytest.raises(CapeletError, match="is limited to"):
                settle(ledger, ["ann"], budget=more)
        assert ledger.budget == Budget(2.0) and ledger.spent("ann") is None
        with pytest.raises(BudgetError):
            settle(ledger, ["ann"] * 2)
        settle(ledger, ["ann"])


def test_a_smaller_budget_holds_for_its_run_and_lowers_nothing(place: Place) -> None:
    with Ledger(place) as ledger:
        ledger.limit(Budget(6.0, delta=1e-6))
        assert ledger.limit(Budget(2.0)) == Budget(2.0, delta=1e-6)  # says nothing of δ
        assert ledger.budget == Budget(6.0, delta=1e-6)
        with pytest.raises(BudgetError, match="ε = 2"):
            settle(ledger, ["ann"] * 2, budget=Budget(2.0))
        with pytest.raises(CapeletError, match="is limited to"):
            ledger.cap(Budget(2.0, delta=1e-5))
        settle(ledger, ["ann"] * 2)


def test_raising_is_an_act_of_its_own_and_written_down(place: Place) -> None:
    with Ledger(place) as ledger:
        with pytest.raises(CapeletError, match="no budget to raise"):
            ledger.raise_budget(Budget(4.0))
        ledger.limit(Budget(2.0))
        for no_more in (Budget(2.0), Budget(1.0), Budget(4.0, delta=0.1)):
            with pytest.raises(CapeletError, match="is no more than that"):
                ledger.raise_budget(no_more)
        assert ledger.raise_budget(Budget(4.0)) == Budget(2.0)
    with Ledger(place) as ledger:
        assert ledger.budget == Budget(4.0)
        first, second = ledger.budget_changes()
        assert (first.old, first.new) == (None, Budget(2.0)) and first.time <= second.time
        assert (second.old, second.new) == (Budget(2.0), Budget(4.0)) and "T" in second.time
        settle(ledger, ["ann"] * 2)


def test_a_sum_of_tenths_and_delta(place: Place) -> None:
    with Ledger(place) as ledger:
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


def test_one_person_in_two_forms_has_one_budget(place: Place) -> None:
    """Composed and decomposed letters, blanks around: before, each had a budget of its own."""
    with Ledger(place) as ledger:
        settle(ledger, ["Zoë", " Zoe\u0308", "Zoë\t"])
        assert ledger.subjects() == ["Zoë"] and spent(ledger, "Zoe\u0308 ") == 6.0
        names = {ledger.release_name("recipe", who, b"text") for who in ("Zoë", "Zoe\u0308 ")}
        assert len(names) == 1
        assert (
            ledger.has_alike("zoë") and not ledger.has_alike("Zoë") and ledger.spent("zoë") is None
        )


def content_of(place: Place) -> bytes:
    """All that lies in a store: the bytes of a file, or the rows of a database."""
    if isinstance(place, Path):
        return place.read_bytes() + place.with_name(f"{place.name}-wal").read_bytes()
    with connect(place) as connection:
        rows = [row for name in TABLE_NAMES for row in connection.rows(f"SELECT * FROM {name}")]
    return b"".join(
        item if isinstance(item, bytes) else str(item).encode() for row in rows for item in row
    )


def test_an_erased_person_leaves_only_a_sum(place: Place) -> None:
    vector = np.array([[1.25, -3.5, 7.75]], dtype=np.float32)
    with Ledger(place) as ledger:
        ledger.limit(Budget(4.0))
        ledger.settle(["Ann Lee"], [b"name"], vector, TWO)
        settle(ledger, ["bob"], names=[b"his"])
        assert vector.tobytes() in content_of(place)  # the control
        assert ledger.erase(" Ann Lee ") == 1
        assert ledger.find([b"name", b"his"]).keys() == {b"his"}
        erased, bob = sorted(ledger.subjects(), reverse=True)
        assert erased.startswith("erased-") and bob == "bob"
        content = content_of(place)
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


def test_kept_vectors_come_back_by_person_recipe_and_text(place: Place) -> None:
    vector = np.arange(3, dtype=np.float32)
    with Ledger(place) as ledger:
        ledger.open()
        name = ledger.release_name("recipe", "ann", b"a text")
        ledger.settle(["ann"], [name], vector[None], TWO)
        others = [
            ledger.release_name("recipe", "bob", b"a text"),
            ledger.release_name("other", "ann", b"a text"),
            ledger.release_name("recipe", "ann", b"a text "),
            ledger.release_name("recip", "eann", b"a text"),
        ]
    with Ledger(place) as ledger:
        assert ledger.release_name("recipe", "ann", b"a text") == name
        assert ledger.names_among([*others, name]) == {name}
        stored = ledger.find([*others, name])
        assert list(stored) == [name]
        np.testing.assert_array_equal(stored[name], vector)
    if isinstance(place, Path):
        assert b"a text" not in place.read_bytes()


def test_rows_of_runs_share_no_name(place: Place) -> None:
    with Ledger(place) as ledger:
        names = [ledger.row_name(run, row) for run in ("a", "a1", "b") for row in (1, 11, 111)]
        assert len(set(names)) == 9 and ledger.row_name("a", 1) == names[0]


def test_a_run_that_is_over_leaves_its_charges_and_no_vectors(place: Place) -> None:
    with Ledger(place) as ledger:
        ledger.settle(["ann"], [b"one"], np.zeros((1, 3)), TWO, run="one")
        ledger.settle(["ann"], [b"two"], np.zeros((1, 3)), TWO, run="two")
        ledger.forget("one")
        assert ledger.names_among([b"one", b"two"]) == {b"two"}
        assert (ledger.releases_of("one"), ledger.releases_of("two")) == (0, 1)
        assert spent(ledger, "ann") == 4.0


def test_names_last_though_another_process_makes_the_store(place: Place) -> None:
    """A name is asked for only under the store's own key: of two, the first decides it."""
    one, other = Ledger(place), Ledger(place)
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


@pytest.mark.parametrize("version", [0, 2, 4])
def test_a_store_of_another_version_is_refused_and_left_alone(path: Path, version: int) -> None:
    with Ledger(path) as ledger:
        settle(ledger, ["ann"])
    direct = sqlite3.connect(path)
    direct.execute(f"PRAGMA user_version = {version}")
    direct.close()
    before = path.read_bytes()
    with pytest.raises(OutputError, match=rf"is a store of version {version}, and .* reads "):
        Ledger(path)
    assert path.read_bytes() == before


def test_a_full_disk_charges_nothing_in_part(path: Path) -> None:
    with Ledger(path) as ledger:
        settle(ledger, ["ann"])
        raw = ledger._db.connection._raw
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
        raw.execute(f"PRAGMA max_page_count = {pages + 2}")
        names = [b"full %d" % number for number in range(500)]
        with pytest.raises(StoreDown, match=r"disk is full\); nothing of this charge was made"):
            settle(ledger, ["bob"] * 500, names=names)
        assert ledger.counts() == (1, 1, 2.0) and not ledger.names_among(names)
        raw.execute("PRAGMA max_page_count = 1000000")
        settle(ledger, ["bob"] * 500, names=names)
        ledger.verify(ledger.head)


def test_a_file_that_was_deleted_or_replaced_is_not_written(path: Path, tmp_path: Path) -> None:
    """Charges in a file without a name would be gone with the process."""
    with Ledger(path) as ledger:
        settle(ledger, ["ann"])
        ledger.ping()
        path.rename(tmp_path / "moved.db")
        for act in (ledger.ping, lambda: settle(ledger, ["ann"])):
            with pytest.raises(StoreDown, match=r"was deleted or replaced|is gone"):
                act()
        assert not path.exists()  # an empty one would give everybody a new budget
        with Ledger(path) as other:
            settle(other, ["ann"])
        with pytest.raises(OutputError, match="another stands in its place"):
            settle(ledger, ["ann"])


def test_another_process_may_make_the_store_later(place: Place) -> None:
    """Who looked before sees it from then on: keys that were made, budgets that were set."""
    with Ledger(place) as early, Ledger(place) as late:
        assert early.budget is None and not early.keys.exist()
        late.limit(Budget(2.0))
        late.keys.add("team")
        settle(late, ["ann"])
        assert early.budget == Budget(2.0) and early.keys.exist() and spent(early, "ann") == 2.0


# ---- threads and processes -----------------------------------------------------------------------


def test_threads_share_a_ledger(place: Place) -> None:
    """Ten threads, one text and one object: one vector, one charge; other rows are all charged."""
    answers: list[np.ndarray] = []
    with Ledger(place) as ledger:

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
