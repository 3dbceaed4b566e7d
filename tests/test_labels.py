"""Classes, bins and presence attributes: handled, counted, never dropped silently."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capelet.corpus import Corpus
from capelet.errors import DataError
from capelet.labels import OTHER, attribute, attributes, derive


def column(*values: object) -> np.ndarray:
    filled = np.empty(len(values), dtype=object)
    filled[:] = values
    return filled


def texts(*values: str) -> Corpus:
    return Corpus("t", texts=column(*values))


def test_numbers_with_many_values_are_cut_into_thirds() -> None:
    made = attribute("age", column(*range(90)))
    assert made.counts() == {"below 30": 30, "30 to below 59": 29, "59 or more": 31}
    assert "cut into thirds at 30 and 59" in made.notes[0]


def test_numbers_with_few_values_stay_classes_in_order() -> None:
    made = attribute("stars", column(*([10, 9, 1] * 30)))
    assert made.classes == ("1", "9", "10")


def test_missing_values_are_counted_and_kept_out() -> None:
    made = attribute("g", column(*(["f"] * 30 + ["m"] * 30 + [None] * 5)))
    assert made.missing == 5 and "5 rows have no value" in made.notes[-1]
    assert made.prior() == [0.5, 0.5]


def test_rare_classes_are_merged_and_said() -> None:
    made = attribute("c", column(*(["a"] * 50 + ["b"] * 40 + ["x"] * 12 + ["y"] * 11)))
    assert made.counts() == {"a": 50, "b": 40, OTHER: 23}
    assert "2 classes with fewer than 20 rows (23 rows) were merged" in made.notes[0]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["a"] * 80, "only 'a'"),
        ([None] * 80, "no value at all"),
        (["a"] * 79 + ["b"], "'b' on 1"),
        ([str(row) for row in range(80)], "80 of 80 classes on fewer than 20 rows"),
    ],
)
def test_attributes_that_cannot_be_measured_are_refused(
    values: list[object], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        attribute("x", column(*values))


def test_a_list_column_becomes_presence_attributes() -> None:
    values = column(*([["cat", "dog"]] * 30 + [["dog"]] * 30 + [["newt"]] + [None] + [[]] * 25))
    made = attributes({"pets": values})
    assert [item.name for item in made] == ["pets=dog", "pets=cat"]
    assert made[1].counts() == {"no": 56, "yes": 30} and made[1].missing == 1
    assert "1 values too rare" in made[0].notes[0]


def test_bins_need_numbers() -> None:
    with pytest.raises(DataError, match="not numeric"):
        attribute("g", column(*(["a", "b"] * 30)), edges=[1])


def test_patterns() -> None:
    corpus = texts("write to ann@example.org", "call +44 20 7946 0958 now", "I am 42", "nothing")
    made = derive(corpus, ["email", "phone", "number"])
    assert made["has email"].tolist() == ["yes", "no", "no", "no"]
    assert made["has phone"].tolist() == ["no", "yes", "no", "no"]
    assert made["has number"].tolist() == ["no", "yes", "yes", "no"]


def test_word_lists(tmp_path: Path) -> None:
    corpus = texts("my Diabetes", "diabetesque", "Heart attack!", "fine")
    (tmp_path / "illness.txt").write_text("diabetes\nheart attack\n\n")
    made = derive(corpus, [f"words:{tmp_path / 'illness.txt'}"])
    assert made["mentions illness"].tolist() == ["yes", "no", "yes", "no"]
    assert derive(corpus, ["words:fine|ok"])["mentions fine/ok"].tolist()[-1] == "yes"
    with pytest.raises(DataError, match="no file"):
        derive(corpus, ["words:nowhere.txt"])


def test_names_by_rule() -> None:
    sentences = ["Yesterday President George Bush spoke.", "He met Bush again.", "All is green."]
    corpus = texts(*(sentences * 25), "one green bush")
    made = derive(corpus, ["names"])
    assert list(made) == ["names Bush"]
    assert made["names Bush"].tolist()[:3] == ["yes", "yes", "no"]
    with pytest.raises(DataError, match="no person name on at least 20"):
        derive(texts(*(["nobody is here"] * 60)), ["names"])


def test_unknown_kinds_and_missing_texts_are_said() -> None:
    with pytest.raises(DataError, match="did you mean 'email'"):
        derive(texts("a"), ["emial"])
    with pytest.raises(DataError, match="only vectors"):
        derive(Corpus("v", vectors=np.zeros((2, 2), dtype=np.float32)), ["email"])
