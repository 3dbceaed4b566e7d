"""Certain equality is made; likely equality is pointed out; different people stay apart."""

from __future__ import annotations

import pytest

from capelet.ledger.people import fold_person, normalise_person


@pytest.mark.parametrize(
    ("one", "other"),
    [("Ann", "ann"), ("Ann Lee", "AnnLee"), ("Ann  Lee", "Ann\u00a0Lee"), ("O'Hara", "O’Hara"),
     ("a-b", "a\u2010b"), ("a-b", "a–b"), ("a_b", "a-b"), ("Straße", "STRASSE"),
     ("ａｎｎ", "ann"), ("an\u200bn", "ann"), ("ann.lee", "ann·lee"), ('"ann"', "“ann”")],
)  # fmt: skip
def test_alike_and_not_the_same(one: str, other: str) -> None:
    assert fold_person(one) == fold_person(other)
    assert normalise_person(one) != normalise_person(other)


@pytest.mark.parametrize(
    ("one", "other"), [("ann", "anna"), ("zoe", "zoë"), ("u1", "u2"), ("ann.lee", "ann-lee")]
)
def test_not_alike(one: str, other: str) -> None:
    assert fold_person(one) != fold_person(other)


@pytest.mark.parametrize("other", ["Zoe\u0308", " Zoë", "Zoë\n", "\u3000Zoë"])
def test_the_same(other: str) -> None:
    assert normalise_person(other) == "Zoë" == normalise_person(normalise_person(other))


def test_nothing_visible_is_still_somebody() -> None:
    assert fold_person("\u200b") == "\u200b"
