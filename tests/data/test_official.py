"""Official parts: the rows for test are the victims, and nobody learns from a victim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus, as_values
from capelet.data.datasets import is_available, load
from capelet.data.official import column_of
from capelet.data.readers import read
from capelet.data.splits import share_victims, split
from capelet.errors import DataError
from capelet.evaluation.plan import Plan

SECRET = "zq-secret"


def rows(authors: bool = False, texts: bool = True) -> Corpus:
    """300 rows: 60 for test, 60 for development; the last writer of each part is in all three."""
    words = ["train"] * 180 + ["dev"] * 60 + ["test"] * 60
    names = [f"{words[row]} {row % 20}" for row in range(300)]
    for row in (0, 1, 200, 299):
        names[row] = "everywhere"
    return Corpus(
        "official",
        texts=as_values([f"{SECRET} {row}" for row in range(300)], "texts"),
        private={"side": as_values([str(row % 2) for row in range(300)], "side")},
        author=as_values(names, "author") if authors else None,
        official_name="split",
        official=as_values(words, "split"),
    )


def test_rows_for_test_are_victims_and_the_others_are_divided_by_seed() -> None:
    corpus = rows()
    splits = [split(corpus, "column:split", seed) for seed in (0, 0, 1)]
    for parts in splits:
        assert parts.victims.tolist() == list(range(240, 300))
        assert sorted([*parts.defender, *parts.attacker]) == list(range(240))
        assert len(parts.defender) == 150  # five to three, as in the other splits
    first, same, other = splits
    assert first.attacker.tolist() == same.attacker.tolist() != other.attacker.tolist()
    assert Plan.of(corpus, 1, "column:split").warnings == ()


def test_whoever_stands_on_both_sides_is_a_victim_and_taught_nobody() -> None:
    plan = Plan.of(rows(authors=True), 1, "column:split")
    (parts,) = plan.splits
    assert parts.victims.tolist() == list(range(240, 300))
    assert {0, 1, 200}.isdisjoint([*parts.defender, *parts.attacker])
    assert len(parts.defender) + len(parts.attacker) == 237
    names = plan.corpus.author
    assert names is not None and set(names[parts.defender]).isdisjoint(names[parts.attacker])
    assert "3 rows belong to no part" in plan.warnings[0] and "everywhere" not in plan.warnings[0]
    # The control: without authors the same three rows are somebody's.
    whole = Plan.of(rows(), 1, "column:split").splits[0]
    assert {0, 1, 200} <= {*whole.defender, *whole.attacker}


def test_rows_of_nobody_stay_so_where_seeds_share_victims() -> None:
    plan = Plan.of(rows(authors=True), 2, "column:split")
    for parts in share_victims(plan.splits, plan.units):
        assert {0, 1, 200}.isdisjoint([*parts.defender, *parts.attacker, *parts.victims])


def test_rows_that_trained_are_the_defenders() -> None:
    trained = np.zeros(300, dtype=bool)
    trained[[5, 250]] = True
    parts = split(rows(), "column:split", trained=trained)
    assert {5, 250} <= set(parts.defender) and 250 not in parts.victims
    assert len(parts.victims) == 59


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["train"] * 300, "names no row for test"),
        (["Test "] * 300, "names no row for train"),
        (["train"] * 299 + [SECRET], "row 299 .* something else"),
        (["train"] * 299 + [None], "row 299 .* empty"),
    ],
)
def test_other_values_are_refused_by_row_and_never_repeated(values: Any, sentence: str) -> None:
    corpus = replace(rows(), official=as_values(values, "split"))
    with pytest.raises(DataError, match=sentence) as caught:
        split(corpus, "column:split")
    assert SECRET not in str(caught.value)


def test_a_column_that_was_not_read_is_named() -> None:
    with pytest.raises(DataError, match=r"without the column 'fold'.*there is split"):
        split(rows(), "column:fold")
    with pytest.raises(DataError, match=r"without the column 'split'.*official="):
        split(replace(rows(), official=None, official_name=None), "column:split")
    with pytest.raises(DataError, match="names no column"):
        column_of("column:")


def test_nobody_left_to_learn_from_is_said() -> None:
    corpus = replace(rows(), author=as_values(["one"] * 299 + ["two"], "author"))
    with pytest.raises(DataError, match="at least 3"):
        split(corpus, "column:split")
    names = ["one"] * 120 + ["two"] * 120 + ["one"] * 20 + ["two"] * 20 + ["three"] * 20
    with pytest.raises(DataError, match="by authors of the rows for test"):
        split(replace(rows(), author=as_values(names, "author")), "column:split")


def test_readers_take_the_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,part\n" + "".join(f"some text {n},test\n" for n in range(3)))
    corpus = read(path, text="text", official="part")
    assert corpus.official_name == "part" and corpus.official is not None
    assert corpus.official.tolist() == ["test"] * 3
    assert read(path, text="text").official is None
    assert corpus.digest() != read(path, text="text").digest()
    with pytest.raises(DataError, match="no column 'fold'"):
        read(path, text="text", official="fold")
    with pytest.raises(DataError, match="no official parts"):
        load("reviews", official="split")


@pytest.mark.skipif(not is_available("norec_gender"), reason="the set norec_gender is not here")
def test_norec_has_official_parts_that_share_critics() -> None:
    plan = Plan.of(load("norec_gender", official="split"), [0], "column:split")
    (parts,) = plan.splits
    assert len(parts.victims) == 430
    names = plan.corpus.author
    assert names is not None and set(names[parts.attacker]).isdisjoint(names[parts.victims])
    assert "2,492 rows belong to no part" in " ".join(plan.warnings)
