"""The inputs that are tried, by hand; own pairs and what is wrong with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from capelet.errors import CapeletError
from capelet.judge.pairs import GRID, Plane, corners, own_pairs


def test_the_corners_in_four_dimensions() -> None:
    pairs = {pair.name: (pair.first.tolist(), pair.second.tolist()) for pair in corners(4)}
    one, half = [1.0, 0.0, 0.0, 0.0], [0.5] * 4

    def minus(values: list[float]) -> list[float]:
        return [-value for value in values]

    assert pairs["e₁ and −e₁"] == (one, minus(one))
    assert pairs["e₁ and e₂"] == (one, [0.0, 1.0, 0.0, 0.0])
    assert pairs["1/√d everywhere and −1/√d everywhere"] == (half, minus(half))
    assert pairs["e₁ and 1/√d everywhere"] == (one, half)
    assert pairs["1000·e₁ and e₁"] == ([1000.0, 0.0, 0.0, 0.0], one)
    assert pairs["0, 1, 0, 1 … and 1, 0, 1, 0 …"] == ([0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0])
    assert pairs["first half and second half"] == ([1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0])
    signs = [-0.5, 0.5, -0.5, 0.5]
    assert pairs["alternating signs and their negatives"] == (signs, minus(signs))
    assert pairs["1/√d everywhere and one sign flipped"] == (half, [-0.5, 0.5, 0.5, 0.5])
    assert pairs["the zero vector and −e₁"] == ([0.0] * 4, minus(one))
    assert pairs["1000·e₁ and −1000·e₁"][1] == [-1000.0, 0.0, 0.0, 0.0]
    dense = pairs["a dense direction and its negative"]
    assert dense[1] == minus(dense[0]) and all(value != 0 for value in dense[0])
    assert len(pairs) == 12 and all(pair.distance == 1.0 for pair in corners(4))


def test_in_one_dimension_equal_pairs_are_left_out() -> None:
    names = [pair.name for pair in corners(1)]
    assert "e₁ and e₂" not in names and "e₁ and 1/√d everywhere" not in names
    assert "e₁ and −e₁" in names and "first half and second half" in names


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_small_table_costs_one_a_step_and_one_and_a_half_the_other_way(epsilon: float) -> None:
    plane = Plane(epsilon)
    places = plane.places
    assert len(places) == (2 * GRID + 1) ** 2 == len(set(places.values())) == 169
    along, across = (math.dist(places[one], places[other]) * epsilon for one, other in plane.pairs)
    assert (along, across) == (pytest.approx(2.0), pytest.approx(3.0))
    for one, other in plane.pairs:  # either side of the middle
        middle = [(a + b) / 2 for a, b in zip(places[one], places[other], strict=True)]
        assert middle == pytest.approx([0.0, 0.0], abs=1e-12)
    words, vectors = plane.table
    assert [tuple(row) for row in vectors.tolist()] == [places[word] for word in words]
    assert max(x for x, _ in places.values()) * epsilon == pytest.approx(1.5 * GRID)
    assert min(y for _, y in places.values()) * epsilon == pytest.approx(-GRID)


def test_own_pairs_have_names_and_distances() -> None:
    vectors = [(np.array([1, 0]), [0.0, 1.0]), ([2.0, 2.0], [0.0, 0.0])]
    first, second = own_pairs(vectors, None)
    assert first.name == "the given pair 0" and second.name == "the given pair 1"
    assert first.first.dtype == np.float64 and first.distance == second.distance == 1.0
    apart = own_pairs(vectors, lambda a, b: float(np.linalg.norm(np.subtract(a, b))))
    assert [pair.distance for pair in apart] == pytest.approx([math.sqrt(2), math.sqrt(8)])
    assert own_pairs([("a", "b")], 2.5)[0].distance == 2.5
    long = "x" * 41
    (texts,) = own_pairs([("y" * 40, long)], None)
    assert texts.name == f"{'y' * 40!r} and {'x' * 37 + '...'!r}"
    assert (texts.first, texts.second) == ("y" * 40, long)


@pytest.mark.parametrize(
    ("pairs", "distance", "message"),
    [
        ([], None, "pairs is empty"),
        (["ab"], None, "pair 0 is 'ab'"),
        ([("a", "b", "c")], None, "pair 0 is"),
        ([("a", "b"), ("a",)], None, "pair 1 is"),
        ([("a", np.ones(2))], None, "pair 0 mixes"),
        ([(np.ones(2), "a")], None, "pair 0 mixes"),
        ([("a", "a")], None, "same text twice"),
        ([([1.0], [1.0])], None, "same vector twice"),
        ([([1.0], [1.0, 2.0])], None, "one width"),
        ([([[1.0]], [[2.0]])], None, "one width"),
        ([([1.0], [math.inf])], None, "finite"),
        ([("a", "b"), ([1.0], [2.0])], None, "all texts, or all vectors of one width"),
        ([([1.0], [2.0]), ([1.0, 2.0], [2.0, 1.0])], None, "all texts, or all vectors"),
        ([("a", "b")], 0.0, "distance is 0.0"),
        ([("a", "b")], lambda a, b: -1.0, "distance is -1.0"),
    ],
)
def test_what_is_no_pair_is_refused(pairs: Any, distance: Any, message: str) -> None:
    with pytest.raises(CapeletError, match=message):
        own_pairs(pairs, distance)
