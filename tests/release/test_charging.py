"""Repeated texts, people in several forms, caps and anchors, as `encode` treats them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capelet.errors import CapeletError, OutputError
from capelet.ledger.budgets import Budget
from capelet.ledger.people import EQUALITY_IS_PUBLIC
from capelet.ledger.store import Ledger
from capelet.mechanisms import Laplace, WordDropout
from capelet.release import PrivateEncoder, Release
from capelet.release.batch import encode
from capelet.release.recipe import METADATA

T, U = [1.0, 0.0, 0.5], [0.0, 1.0, 0.5]


def write(path: Path, rows: list[list[float]], people: list[str]) -> Path:
    pq.write_table(pa.table({"v": rows, "who": people}), path)
    return path


def release(folder: Path, rows: list[list[float]], people: list[str], **options: Any) -> np.ndarray:
    """The vectors that leave for these rows at ε = 0.1, with a ledger."""
    source, target = write(folder / "in.parquet", rows, people), folder / "out.parquet"
    asked = {"vectors": "v", "subject": "who", "ledger": folder / "l.db", "block": 2, **options}
    encode(source, target, PrivateEncoder(Laplace(0.1)), overwrite=True, **asked)
    return Release.load(target).vectors


# ---- repeats -------------------------------------------------------------------------------------


def test_equal_texts_of_one_person_cannot_be_told_from_unequal_ones(tmp_path: Path) -> None:
    """(t, t) against (t, u) at ε = 0.1: equal rows for the first would tell them apart with
    certainty, where ε permits 52 % at most. In one block, across blocks, and in a run that follows.
    """
    for people in (["ann"] * 3, ["ann", "bob", "ann"]):
        vectors = release(tmp_path, [T, T, T], people)
        assert len(np.unique(vectors, axis=0)) == 3
    again = release(tmp_path, [T, T, T], ["ann"] * 3)
    assert len(np.unique(np.concatenate([vectors, again]), axis=0)) == 6
    assert len(np.unique(release(tmp_path, [T, U], ["ann"] * 2), axis=0)) == 2  # nor these


def test_every_fresh_row_is_charged(tmp_path: Path) -> None:
    release(tmp_path, [T, T, U], ["ann"] * 3)
    release(tmp_path, [T, T, U], ["ann"] * 3)
    with Ledger(tmp_path / "l.db") as ledger:
        total = ledger.spent("ann")
        assert total is not None and total.epsilon == pytest.approx(0.6) and total.caveat == ""
        # The runs are over, and nobody will ask for their rows again.
        assert ledger.counts().releases == 6


def test_the_same_vector_for_repeats_is_declared_wherever_the_guarantee_stands(
    tmp_path: Path,
) -> None:
    """The control of the test above: equal rows leave, and are said to."""
    vectors = release(tmp_path, [T, T, U, T], ["ann"] * 4, repeats="same")
    assert len(np.unique(vectors, axis=0)) == 2
    out = tmp_path / "out.parquet"
    assert EQUALITY_IS_PUBLIC in Release.load(out).guarantee.sentence()
    metadata = json.loads(pq.read_schema(out).metadata[METADATA])
    assert metadata["repeats"] == "same" and metadata["guarantee"]["caveat"] == EQUALITY_IS_PUBLIC
    with Ledger(tmp_path / "l.db") as ledger:
        total = ledger.spent("ann")
        assert total is not None and total.epsilon == pytest.approx(0.2)
        assert total.caveat == EQUALITY_IS_PUBLIC
    release(tmp_path, [T], ["bob"])
    metadata = json.loads(pq.read_schema(out).metadata[METADATA])
    assert metadata["repeats"] == "fresh" and metadata["guarantee"]["caveat"] == ""


def test_the_promise_for_words_declares_it_too(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": ["a film", "a film"], "who": ["a", "a"]}), tmp_path / "i.parquet")
    private = PrivateEncoder(WordDropout(0.5), "wordllama", Laplace(2.0))
    summary = encode(
        tmp_path / "i.parquet", tmp_path / "o.parquet", private,
        text="t", subject="who", ledger=tmp_path / "l.db", repeats="same",
    )  # fmt: skip
    assert summary.word_guarantee is not None
    assert summary.word_guarantee.caveat == EQUALITY_IS_PUBLIC
    assert private.word_guarantee is not None and private.word_guarantee.caveat == ""


def test_without_a_ledger_every_row_is_drawn(tmp_path: Path) -> None:
    vectors = release(tmp_path, [T, T], ["ann"] * 2, ledger=None)
    assert len(np.unique(vectors, axis=0)) == 2


def test_a_fresh_run_that_is_taken_up_draws_nothing_again(tmp_path: Path) -> None:
    """A rerun after a crash is the same run: its rows come back as they were, at no cost."""

    def stop(what: str, done: int, total: int) -> None:
        if what == "releasing" and done == 4:
            raise KeyboardInterrupt

    rows, people = [T] * 6, ["ann"] * 6
    with pytest.raises(KeyboardInterrupt):
        release(tmp_path, rows, people, progress=stop)
    stored = [
        pq.read_table(path)["vector"].to_pylist()
        for path in sorted((tmp_path / ".out.parquet.parts").glob("*.parquet"))
    ]
    vectors = release(tmp_path, rows, people)
    np.testing.assert_array_equal(np.concatenate(stored), vectors[:4])
    with Ledger(tmp_path / "l.db") as ledger:
        assert ledger.counts().releases == 6
    # And the next run is another: its noise is new, and paid for.
    assert not (release(tmp_path, rows, people) == vectors).all(axis=1).any()
    with Ledger(tmp_path / "l.db") as ledger:
        assert ledger.counts().releases == 12


# ---- people --------------------------------------------------------------------------------------


def test_people_are_charged_in_one_form_and_leave_as_they_came(tmp_path: Path) -> None:
    people = ["Zoë", "Zoe\u0308 ", "bob"]
    release(tmp_path, [T, T, T], people)
    assert pq.read_table(tmp_path / "out.parquet")["who"].to_pylist() == people
    with Ledger(tmp_path / "l.db") as ledger:
        total = ledger.spent("Zoë")
        assert ledger.subjects() == ["Zoë", "bob"] and total is not None
        assert total.epsilon == pytest.approx(0.2)
    with pytest.raises(CapeletError, match="too small for 1 person") as no:
        release(tmp_path, [T] * 3, people, budget=0.3)
    assert "Zo" not in str(no.value)


def warnings(folder: Path, people: list[str]) -> tuple[str, ...]:
    source = write(folder / "in.parquet", [T] * len(people), people)
    summary = encode(
        source, folder / "out.parquet", PrivateEncoder(Laplace(0.1)), vectors="v",
        subject="who", ledger=folder / "l.db", block=2, overwrite=True,
    )  # fmt: skip
    return summary.warnings


def test_near_equal_identifiers_are_pointed_out_by_row(tmp_path: Path) -> None:
    people = ["Ann Lee", "bob", "ann  lee", "bob", "O'Hara", "anna lee", "O’Hara", "ann  lee"]
    (sentence,) = warnings(tmp_path, people)
    assert sentence.startswith("rows 0 and 2, 4 and 6 name people who differ only in capitals")
    assert not any(name.strip() in sentence for name in people)
    # Against the ledger: row 1 looks like somebody of the run before, row 0 *is* somebody.
    (sentence,) = warnings(tmp_path, ["bob", "B O B"])
    assert sentence.startswith("rows 0 and 1 ")
    (sentence,) = warnings(tmp_path, ["Eve", "ANN LEE"])
    assert sentence.startswith("rows 1 name people who differ from others in the ledger")
    assert warnings(tmp_path, ["Eve", "Dora", "Eve"]) == ()


def test_many_are_counted(tmp_path: Path) -> None:
    people = [name for number in range(8) for name in (f"p{number}", f"P{number}")]
    (sentence,) = warnings(tmp_path, people)
    assert "8 and 9 and 3 more name" in sentence


# ---- caps ----------------------------------------------------------------------------------------


def test_a_run_cannot_raise_the_cap_and_may_keep_to_less(tmp_path: Path) -> None:
    release(tmp_path, [T], ["ann"], budget=0.2)
    with pytest.raises(CapeletError, match=r"is limited to ε = 0\.2 per person"):
        release(tmp_path, [T], ["ann"], budget=1000)
    with pytest.raises(CapeletError, match=r"the budget of ε = 0\.1 per person is too small"):
        release(tmp_path, [T], ["ann"], budget=0.1)
    release(tmp_path, [T], ["bob"], budget=0.1)
    with Ledger(tmp_path / "l.db") as ledger:
        assert ledger.budget == Budget(0.2)
        total = ledger.spent("ann")
        assert total is not None and total.epsilon == pytest.approx(0.1)
    release(tmp_path, [T], ["ann"])


def test_a_summary_says_the_highest_sum_per_person(tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", [T, T, T], ["ann", "ann", "bob"])
    asked: dict[str, Any] = {"vectors": "v", "subject": "who"}
    private = PrivateEncoder(Laplace(2.0))
    paid = encode(source, tmp_path / "1.parquet", private, ledger=tmp_path / "l.db", **asked)
    assert paid.sentence().endswith("; the ledger's highest sum is ε = 4 per person")
    assert "person" not in encode(source, tmp_path / "2.parquet", private, **asked).sentence()


# ---- anchors -------------------------------------------------------------------------------------


def test_a_ledger_that_was_put_back_or_deleted_is_noticed_before_a_draw(tmp_path: Path) -> None:
    anchor, book = tmp_path / "elsewhere.json", tmp_path / "l.db"
    release(tmp_path, [T], ["ann"], anchor=anchor)
    copy, first = book.read_bytes(), anchor.read_text()
    release(tmp_path, [T], ["ann"], anchor=anchor)
    newer = book.read_bytes()
    assert anchor.read_text() != first and "ann" not in anchor.read_text()
    before = Release.load(tmp_path / "out.parquet").vectors
    book.write_bytes(copy)
    with pytest.raises(OutputError, match="does not contain entry 2 as it was; nothing was drawn"):
        release(tmp_path, [T], ["ann"], anchor=anchor)
    book.unlink()
    with pytest.raises(OutputError, match="is gone, or another stands in its place"):
        release(tmp_path, [T], ["ann"], anchor=anchor)
    assert not book.exists()
    np.testing.assert_array_equal(Release.load(tmp_path / "out.parquet").vectors, before)
    book.write_bytes(newer)
    release(tmp_path, [T], ["ann"], anchor=anchor)
    # Without an anchor nobody can notice.
    book.unlink()
    release(tmp_path, [T], ["ann"])


def test_a_run_that_ends_with_an_error_is_anchored_too(tmp_path: Path) -> None:
    anchor = tmp_path / "elsewhere.json"

    def stop(what: str, done: int, total: int) -> None:
        if what == "releasing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        release(tmp_path, [T] * 4, ["ann"] * 4, anchor=anchor, progress=stop)
    with Ledger(tmp_path / "l.db") as ledger:
        assert json.loads(anchor.read_text())["head"] == ledger.head.link
    release(tmp_path, [T] * 4, ["ann"] * 4, anchor=anchor)
