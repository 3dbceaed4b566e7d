"""A file, a process and the gateway call a release by one name, decided in one place."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capelet
from capelet.ledger.budgets import Budget, Limits
from capelet.ledger.keys import ApiKey
from capelet.ledger.settlement import Order, undrawn
from capelet.ledger.store import Ledger
from capelet.mechanisms import MECHANISMS
from capelet.release import PrivateEncoder
from capelet.release.batch import encode
from capelet.release.charging import Repeats
from capelet.release.metered import ChargingPolicy, MeteredEncoder
from capelet.service.gateway import Gateway
from capelet.service.settings import Settings

SOURCE = Path(capelet.__file__).parent
KEY = ApiKey("", "tests", None, False, "", None)


class Lengths:
    """An encoder of two coordinates: how long a text is, and a constant."""

    name, backend, dimension, fingerprint = "lengths", "python", 2, "0" * 16
    isolates_rows = True

    def encode(self, texts: Sequence[str], progress: Any = None) -> np.ndarray:
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        return np.zeros(len(texts), dtype=bool)


@pytest.fixture
def private() -> PrivateEncoder:
    return PrivateEncoder(Lengths(), MECHANISMS["laplace"](epsilon=2.0))


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """Whatever is settled, in turn."""
    seen: list[Order] = []
    settle = Ledger.settle_all

    def record(ledger: Ledger, given: Sequence[Order]) -> Any:
        seen.extend(given)
        return settle(ledger, given)

    monkeypatch.setattr(Ledger, "settle_all", record)
    return seen


def gateway(private: PrivateEncoder, ledger: Ledger, repeats: Repeats) -> Gateway:
    return Gateway(private, ledger, Settings("m", repeats), Limits(Budget(100.0)))


def body(*texts: str) -> bytes:
    return json.dumps({"model": "m", "input": texts, "user": "ann"}).encode()


def test_all_call_the_release_of_a_text_by_one_name(
    private: PrivateEncoder, orders: list[Order], tmp_path: Path
) -> None:
    source, store = tmp_path / "in.csv", tmp_path / "people.db"
    source.write_text("text,who\na letter,ann\nanother,ann\na letter,ann\n")
    charges = {"subject": "who", "ledger": store, "repeats": "same"}
    encode(source, tmp_path / "out.parquet", private, text="text", **charges)
    texts = ["a letter", "another", "a letter"]
    with Ledger(store) as ledger:
        MeteredEncoder(private, ChargingPolicy(ledger)).release(texts, " ann")
        gate = gateway(private, ledger, "same")
        job = gate.plan(KEY, body(*texts), None).job
        of_key = gate.plan(replace(KEY, id="other"), body(*texts), None).job
    of_file, of_process = (list(order.names) for order in orders)
    assert of_file == of_process == job.order.names
    assert len(set(of_file)) == 2 and of_file[0] == of_file[2]
    # The file drew them; nobody draws them again, but for a key that has not asked yet.
    assert job.waiting == [] and of_key.waiting == [0, 1]
    assert not set(of_key.order.names) & set(of_file)


def test_fresh_names_are_shared_by_a_retry_alone(private: PrivateEncoder, tmp_path: Path) -> None:
    with Ledger(tmp_path / "people.db") as ledger:
        gate = gateway(private, ledger, "fresh")
        first, again, other = (
            gate.plan(KEY, body("a", "a"), retry).job.order.names for retry in ("1", "1", "2")
        )
    assert first == again
    assert len({*first, *other}) == 4


def test_what_is_still_undrawn() -> None:
    names = [b"a", b"b", b"a", b"c", b"b"]
    assert undrawn(names) == [0, 1, 3]
    assert undrawn(names, {b"a"}, {b"c": 1}) == [1]
    assert undrawn(names, names) == undrawn([]) == []


def callers(*functions: str) -> set[str]:
    """The modules that call one of these functions or methods."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                found |= {path.relative_to(SOURCE).as_posix()} if name in functions else set()
    return found


def test_names_and_what_is_undrawn_are_decided_in_one_place() -> None:
    assert callers("release_name", "row_name") == {"release/charging.py"}
    who_draws = {"release/batch.py", "release/metered.py", "service/gateway.py"}
    who_charges = {"release/charging.py", "ledger/settlement.py"}
    assert callers("undrawn") == who_draws | who_charges
    # Nobody else looks for the first row of a name.
    for path in who_draws:
        assert "enumerate(names)" not in (SOURCE / path).read_text("utf-8")
