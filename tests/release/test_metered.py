"""A metered encoder charges for what it draws, returns what the store holds, or charges nobody."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.errors import CapeletError, DataError
from capelet.ledger.budgets import BudgetError
from capelet.ledger.store import Ledger
from capelet.mechanisms import MECHANISMS
from capelet.release import PrivateEncoder
from capelet.release.metered import ChargingPolicy, MeteredEncoder
from capelet.release.seeded import SeededEncoder


class Letters:
    """An encoder that is real enough: how often each of eight letters occurs."""

    name, backend, dimension, fingerprint = "letters", "python", 8, "0" * 16
    isolates_rows = True

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str], progress: Any = None) -> np.ndarray:
        self.calls.append(list(texts))
        return np.array([[text.count(c) for c in "abcdefgh"] for text in texts], dtype=np.float32)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        return np.zeros(len(texts), dtype=bool)


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture
def private(letters: Letters) -> PrivateEncoder:
    return PrivateEncoder(letters, MECHANISMS["laplace"](epsilon=2.0))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "people.db"


def metered(private: PrivateEncoder, store: Path, **options: Any) -> MeteredEncoder:
    return MeteredEncoder(private, ChargingPolicy.of(store, **options))


def spent(store: Path, person: str) -> float:
    with Ledger(store) as ledger:
        total = ledger.spent(person)
    return 0.0 if total is None else total.epsilon


def test_each_text_is_charged_to_its_person(private: PrivateEncoder, store: Path) -> None:
    encoder = metered(private, store)
    release = encoder.release(["a", "b", "c"], ["ann", "bob", " ann "])
    assert release.vectors.shape == (3, 8)
    assert (spent(store, "ann"), spent(store, "bob")) == (4.0, 2.0)


def test_a_repeated_text_is_neither_drawn_nor_charged(
    private: PrivateEncoder, letters: Letters, store: Path
) -> None:
    first = metered(private, store).release(["a", "b", "a"], "ann").vectors
    assert letters.calls == [["a", "b"]]
    assert (first[0] == first[2]).all() and spent(store, "ann") == 4.0
    # Another object, as after a restart: the store remembers, not the process.
    again = metered(private, store).release(["b", "c"], "ann")
    assert letters.calls[1:] == [["c"]]
    assert (again.vectors[0] == first[1]).all() and spent(store, "ann") == 6.0
    assert "equal is public" in str(again.guarantee.caveat)


def test_the_same_text_of_another_person_is_drawn(private: PrivateEncoder, store: Path) -> None:
    release = metered(private, store).release(["a", "a"], ["ann", "bob"])
    assert (release.vectors[0] != release.vectors[1]).any()
    assert (spent(store, "ann"), spent(store, "bob")) == (2.0, 2.0)


def test_fresh_draws_every_text_and_charges_it(private: PrivateEncoder, store: Path) -> None:
    encoder = metered(private, store, repeats="fresh")
    first, second = encoder.release(["a", "a"], "ann"), encoder.release(["a", "a"], "ann")
    vectors = np.concatenate([first.vectors, second.vectors])
    assert len(np.unique(vectors, axis=0)) == 4
    assert spent(store, "ann") == 8.0 and not first.guarantee.caveat


def test_a_budget_that_is_too_small_stops_everything(
    private: PrivateEncoder, letters: Letters, store: Path
) -> None:
    encoder = metered(private, store, budget=4.0)
    encoder.release(["a"], "ann")
    with pytest.raises(BudgetError):
        encoder.release(["b", "c", "d"], ["ann", "ann", "bob"])
    assert letters.calls == [["a"]]
    assert (spent(store, "ann"), spent(store, "bob")) == (2.0, 0.0)
    encoder.release(["b", "d"], ["ann", "bob"])  # the control: within the budget
    assert (spent(store, "ann"), spent(store, "bob")) == (4.0, 2.0)
    # The cap is the store's from now on.
    with pytest.raises(BudgetError):
        metered(private, store).release(["e"], "ann")


def test_without_a_store_nobody_is_charged_and_it_says_so_once(
    private: PrivateEncoder, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = MeteredEncoder(private)
    with caplog.at_level(logging.WARNING, "capelet"):
        first, second = encoder.release(["a"]), encoder.release(["a"])
    assert (first.vectors != second.vectors).any()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "nobody is charged" in line and "2-local differential privacy" in line
    with pytest.raises(CapeletError, match="no store to charge in"):
        encoder.release(["a"], "ann")
    with pytest.raises(CapeletError, match="store="):
        ChargingPolicy.of(None, budget=8.0)


def test_with_a_store_there_is_no_such_line(
    private: PrivateEncoder, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "capelet"):
        metered(private, store).release(["a"], "ann")
    assert not caplog.records


@pytest.mark.parametrize(
    ("texts", "subjects", "sentence"),
    [
        ("abc", "ann", "give \\[text\\]"),
        (["a", 3], "ann", "number 1 is int"),
        (["secret \ud800"], "ann", "number 0 holds half"),
        (["a"], None, "whom are these texts about"),
        (["a", "b"], ["ann"], "1 subjects for 2 texts"),
        (["a"], "  ", "not empty"),
        (["a"], [None], "not empty"),
    ],
)
def test_bad_input_draws_nothing(
    private: PrivateEncoder,
    letters: Letters,
    store: Path,
    texts: Any,
    subjects: Any,
    sentence: str,
) -> None:
    with pytest.raises((CapeletError, DataError), match=sentence) as error:
        metered(private, store).release(texts, subjects)
    assert "secret" not in str(error.value)
    assert not letters.calls


def test_no_texts_cost_nothing(private: PrivateEncoder, store: Path) -> None:
    assert metered(private, store).release([], "ann").vectors.shape == (0, 8)
    assert not store.exists()


def test_what_cannot_be_charged_is_refused(letters: Letters, store: Path) -> None:
    with pytest.raises(CapeletError, match="charges people for whole texts"):
        metered(PrivateEncoder(letters), store)
    with pytest.raises(CapeletError, match="repeats is 'often'"):
        ChargingPolicy.of(store, repeats="often")  # type: ignore[arg-type]
    with pytest.raises(CapeletError, match="takes vectors"):
        MeteredEncoder(PrivateEncoder(MECHANISMS["laplace"](epsilon=2.0)))


def test_seeded_noise_is_refused(private: PrivateEncoder) -> None:
    with pytest.raises(CapeletError, match="seeded"):
        MeteredEncoder(SeededEncoder.of(private, 3))
    MeteredEncoder(private)
