"""Tables of words: what is a word, where it lies, and distances by brute force."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial.distance import pdist

from capelet.data.text import private_words, spelling, treebank_pieces
from capelet.encoders.word_vectors import read_word_vectors
from capelet.errors import CapeletError, DataError, EncoderError
from capelet.mechanisms import vocabulary as module
from capelet.mechanisms.vocabulary import (
    COLUMNS,
    ROWS,
    Vocabulary,
    diameter,
    known_table,
    vocabulary,
    whole_words,
)

RANDOM = np.random.default_rng(8)


def table(count: int, width: int = 3, spread: float = 1.0) -> Vocabulary:
    return Vocabulary.of(
        [f"w{n}" for n in range(count)], spread * RANDOM.normal(size=(count, width))
    )


def brute(points: npt.NDArray[Any]) -> float:
    return float(pdist(points).max())


# ---- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Isn't it?", ["Isn't", "it"]),
        ("rock’n’roll -x- y_", ["rock’n’roll", "x", "y"]),
        ("me@home 3.5", ["me@home", "3", "5"]),
        ("¿Qué… 「ねこ」", ["Qué", "ねこ"]),
        ("", []),
    ],
)
def test_a_text_in_words_and_gaps(text: str, words: list[str]) -> None:
    parts = private_words(text)
    assert parts[1::2] == words and "".join(parts) == text


def test_spelling_and_pieces() -> None:
    assert spelling("E\u0301COLE") == "école" and spelling("DON’T") == "don't"
    assert treebank_pieces("Isn't") == ["is", "n't"] and treebank_pieces("a_b-c") == ["a", "b", "c"]
    assert treebank_pieces("--") == []


def test_a_word_lies_at_its_vector_or_at_its_pieces_or_at_the_centre() -> None:
    words = Vocabulary.of(["do", "n't", "well"], [[3.0, 0.0], [0.0, 6.0], [0.0, 0.0]])
    assert words.centre.tolist() == [1.0, 2.0]
    assert words.place("DO").tolist() == [3.0, 0.0]
    assert words.place("don't").tolist() == [1.5, 3.0]
    assert words.place("well-known").tolist() == [0.0, 0.0]
    assert words.place("known").tolist() == [1.0, 2.0]
    assert words.places(["do", "known"]).tolist() == [[3.0, 0.0], [1.0, 2.0]]
    assert words.rows == {"do": 0, "n't": 1, "well": 2} and len(words) == 3
    assert words.dimension == 2


def test_the_fingerprint_is_a_hash_of_words_and_numbers() -> None:
    words = Vocabulary.of(["a", "b"], [[1.0, 2.0], [3.0, 4.0]])
    plain = hashlib.sha256(b"a\nb" + np.array([1, 2, 3, 4], dtype="<f4").tobytes()).hexdigest()
    assert words.fingerprint == plain and words.label == f"given/{plain[:8]}"
    again = Vocabulary.of(["a", "b"], np.array([[1.0, 2.0], [3.0, 4.0]]).T.copy().T, "other")
    assert again.fingerprint == plain and again.label.startswith("other/")


def test_the_first_entry_of_a_spelling_counts_unless_a_lower_case_one_follows() -> None:
    words = Vocabulary.of(["Film", "FILM", "the", "The"], np.arange(8).reshape(4, 2))
    assert words.words == ("film", "the") and words.vectors.tolist() == [[0, 1], [4, 5]]
    assert len(Vocabulary.of(["a", "b", "c"], np.eye(3), size=2)) == 2
    for size in (1, 0, 2.0, True):
        with pytest.raises(CapeletError, match="size is"):
            Vocabulary.of(["a", "b", "c"], np.eye(3), size=size)  # type: ignore[arg-type]
    with pytest.raises(CapeletError, match="has 1 usable words"):
        Vocabulary.of(["a", "!"], np.eye(2))
    with pytest.raises(DataError, match="2 words and 3 vectors"):
        Vocabulary.of(["a", "b"], np.eye(3))
    with pytest.raises(DataError, match="entry 1 of the table"):
        Vocabulary.of(["a", 2], np.eye(2))  # type: ignore[list-item]


@pytest.mark.parametrize(
    "vectors", [np.ones(2), np.ones((2, 0)), np.ones((2, 1, 1)), [["a"], ["b"]], [[True], [False]]]
)
def test_what_is_no_matrix_of_numbers_is_refused(vectors: Any) -> None:
    with pytest.raises(DataError, match="array of numbers"):
        Vocabulary.of(["a", "b"], vectors)


def test_the_radius_must_lie_between_its_ends() -> None:
    for radius in (1.001e-9, 0.999e9):
        words = Vocabulary.of(["a", "b"], [[radius], [-radius]])
        assert words._radius == pytest.approx(radius)
    for radius in (0.0, 0.999e-9, 1.001e9):
        with pytest.raises(DataError, match="around their mean"):
            Vocabulary.of(["a", "b"], [[radius], [-radius]])
    for bad in (np.nan, np.inf, 1e39):
        with pytest.raises(DataError, match="NaN or infinity"):
            Vocabulary.of(["a", "b"], [[bad], [1.0]])


# ---- distances -----------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize(("count", "width"), [(2, 1), (3, 2), (60, 2), (200, 9), (COLUMNS + 7, 3)])
def test_the_diameter_is_no_less_and_hardly_more(count: int, width: int, spread: float) -> None:
    points = spread * RANDOM.normal(size=(count, width)) + 3.0
    exact = brute(points)
    assert exact <= diameter(points) <= exact * 1.001
    ring = spread * np.stack([np.cos(a := np.arange(count)), np.sin(a)], axis=1)
    assert brute(ring) <= diameter(ring) <= brute(ring) * 1.001


def test_a_diameter_that_no_walk_finds() -> None:
    """Three corners and a crowd at the middle: the farthest of the farthest is not the answer."""
    corners = np.array([[0.0, 1.0], [0.87, -0.5], [-0.88, -0.5], [0.0, -0.95]])
    points = np.concatenate([corners, 0.01 * RANDOM.normal(size=(500, 2))])
    assert brute(points) <= diameter(points) <= brute(points) * 1.001


@pytest.mark.parametrize(("count", "queries"), [(5, 3), (COLUMNS, 40), (COLUMNS + 5, ROWS + 3)])
def test_the_scan_gives_the_best_score_its_row_and_the_second_best(
    count: int, queries: int
) -> None:
    words = table(count, width=4)
    points = RANDOM.normal(size=(queries, 5)).astype(np.float32)
    rows, best, second = words._scan(points)
    scores = points @ words._search.T
    ordered = np.sort(scores, axis=1)
    assert np.array_equal(rows, scores.argmax(axis=1))
    assert best == pytest.approx(ordered[:, -1], rel=1e-5, abs=1e-5)
    assert second == pytest.approx(ordered[:, -2], rel=1e-5, abs=1e-5)


def test_the_search_table_ranks_by_distance() -> None:
    words = table(50, width=4, spread=7.0)
    points = 7.0 * RANDOM.normal(size=(20, 4))
    queries = np.column_stack([(points - words.centre) / words._radius, np.ones(20)])
    scores = queries @ words._search.T.astype(np.float64)
    squares = ((points[:, None] - words.vectors[None]) ** 2).sum(axis=2) / words._radius**2
    offsets = scores + squares / 2
    assert np.ptp(offsets, axis=1) == pytest.approx(np.zeros(20), abs=1e-5)
    assert np.linalg.norm(words.vectors - words.centre, axis=1).max() == pytest.approx(
        words._radius
    )


def test_a_clear_answer_is_not_searched_again_and_a_close_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = Vocabulary.of(["a", "b", "c"], [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    asked: list[list[int]] = []
    right = Vocabulary._nearest_of

    def recorded(self: Vocabulary, point: Any, candidates: Any) -> int:
        asked.append(candidates.tolist())
        return right(self, point, candidates)

    monkeypatch.setattr(Vocabulary, "_nearest_of", recorded)
    assert words.nearest(np.array([[0.1, 0.2], [0.9, 0.0], [0.2, 5.0]])).tolist() == [0, 1, 2]
    assert asked == []
    assert words.nearest(np.array([[0.5, -0.2], [0.5, 0.5]])).tolist() == [0, 0]
    assert asked == [[0, 1], [0, 1, 2]]


# ---- where tables come from ----------------------------------------------------------------------


def test_marks_decide_only_where_a_tenth_of_the_tokens_carry_them() -> None:
    plain = [f"t{n}" for n in range(18)]
    assert whole_words([*plain, "▁a", "▁b"], np.zeros((20, 1)))[0] == [*plain, "▁a", "▁b"]
    words, rows = whole_words([*plain, "▁a", "Ġb", "▁c"], np.arange(21)[:, None])
    assert words == ["a", "b", "c"] and rows.tolist() == [[18], [19], [20]]
    # A mark alone is a gap and no word.
    assert whole_words(["▁a", "▁", "Ġ", "b"], np.zeros((4, 1)))[0] == ["a"]


def test_the_vectors_of_a_vocabulary_cannot_be_written_to() -> None:
    words = Vocabulary.of(["a", "b"], [[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(ValueError, match="read-only"):
        words.vectors[0, 0] = 9.0


def test_files_of_vectors(tmp_path: Path) -> None:
    file = tmp_path / "v.txt"
    file.write_text("2 1\na 1\nb 2\n", encoding="utf-8")
    words, vectors = read_word_vectors(file)
    assert words == ["a", "b"] and vectors.tolist() == [[1.0], [2.0]]
    file.write_text("a 1 2\nb 3 4 \n", encoding="utf-8")
    assert read_word_vectors(file)[1].tolist() == [[1, 2], [3, 4]]
    read = vocabulary(str(file))
    assert read.name == "v" and read.words == ("a", "b")
    file.write_text("a\nb 1\n", encoding="utf-8")
    with pytest.raises(EncoderError, match="line 1"):
        read_word_vectors(file)


def test_tables_that_nobody_can_read_are_refused_at_once() -> None:
    words = table(5)
    known_table(words)
    assert vocabulary(words) is words and len(vocabulary(words, 3)) == 3
    for bad, message in (
        ("given", "was given in Python"),
        (3, "table is a int"),
        (None, "NoneType"),
    ):
        with pytest.raises(CapeletError, match=message):
            known_table(bad)
    with pytest.raises(EncoderError):
        known_table("no such encoder")


def test_an_encoder_without_a_token_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load", lambda name: object())
    with pytest.raises(EncoderError, match="has no token table"):
        vocabulary("an encoder without one")
