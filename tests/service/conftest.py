"""Gateways for tests: on a store of their own, with an encoder that is real and fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from capelet.ledger.store import Ledger
from capelet.mechanisms import MECHANISMS
from capelet.release import PrivateEncoder
from service.running import Running, listen


@pytest.fixture(scope="session")
def private() -> PrivateEncoder:
    """WordLlama with exact Laplace noise: real, and fast."""
    pytest.importorskip("wordllama")
    return PrivateEncoder("wordllama", MECHANISMS["laplace"](epsilon=2.0))


@pytest.fixture
def serve(private: PrivateEncoder, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a gateway on a store of this test's own; several may be started."""
    with ExitStack() as stack:
        ledger = stack.enter_context(Ledger(tmp_path / "store.db", keeps_names=False))

        def start(encoder: PrivateEncoder | None = None, **options: Any) -> Running:
            store = options.pop("ledger", ledger)
            return stack.enter_context(listen(store, encoder or private, **options))

        yield start
