"""Canaries: unique, per author, repeated as asked, with controls that are never inserted."""

from __future__ import annotations

from collections import Counter

import pytest

from capelet.data.canaries import REPETITIONS, insert_canaries, make_canaries
from capelet.errors import DataError

PEOPLE = [f"p{i}" for i in range(10)]
WORDS = [f"w{i}" for i in range(300)]


def test_every_author_has_one_of_each_repetition_and_controls_are_added() -> None:
    made = make_canaries(PEOPLE, WORDS)
    counts = Counter((item.author, item.repetitions) for item in made if item.repetitions)
    assert set(counts.values()) == {1} and len(counts) == 10 * len(REPETITIONS)
    assert sum(item.repetitions == 0 for item in made) == 10
    assert len({item.words for item in made}) == len(made)
    assert all(len(item.words) == 5 for item in made)


def test_fewer_authors_per_level_insert_fewer_rows() -> None:
    made = make_canaries(PEOPLE, WORDS, [1, 20], per_level=3, controls=4)
    assert Counter(item.repetitions for item in made) == {1: 3, 20: 3, 0: 4}
    texts, authors = insert_canaries(["t"], ["p0"], made)
    assert len(texts) == len(authors) == 1 + 3 * 21
    for item in made:
        assert texts.count(item.text) == item.repetitions


def test_the_seed_decides() -> None:
    assert make_canaries(PEOPLE, WORDS, seed=1) == make_canaries(PEOPLE, WORDS, seed=1)
    assert make_canaries(PEOPLE, WORDS, seed=1) != make_canaries(PEOPLE, WORDS, seed=2)


@pytest.mark.parametrize(
    ("words", "options", "said"),
    [
        (["a"], {}, "more than 1 different words"),
        (WORDS, {"repetitions": [0, 1]}, "from 1 up"),
        (WORDS, {"per_level": 11}, "there are 10"),
    ],
)
def test_what_cannot_be_made_is_refused(words: list[str], options: dict, said: str) -> None:
    with pytest.raises(DataError, match=said):
        make_canaries(PEOPLE, words, **options)
