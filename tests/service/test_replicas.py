"""Two gateways on one store: the last ε is spent once, and a text has one vector everywhere."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from capelet.privacy.store import Ledger
from service.processes import Place, ask, count_vectors, gateway, write_recipe

pytestmark = pytest.mark.slow
CLIENTS, REQUESTS, LIMIT = 8, 200, 1000


def test_two_replicas_race_for_the_last_epsilon(place: Place, tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    recipe = write_recipe(tmp_path, "wordllama", 1.0)
    with (
        gateway(recipe, place, LIMIT) as (_, first),
        gateway(recipe, place, LIMIT) as (_, second),
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        replicas = [first, second]

        def spend(number: int) -> list[int]:
            with httpx.Client(base_url=replicas[number % 2]) as client:
                texts = [f"client {number} text {i}" for i in range(REQUESTS)]
                return [ask(client, "ann", [text]).status_code for text in texts]

        def repeat(number: int) -> set[str]:
            with httpx.Client(base_url=replicas[number % 2]) as client:
                answers = [ask(client, "bob", ["the same"]).json() for _ in range(5)]
            return {answer["data"][0]["embedding"] for answer in answers}

        statuses = Counter(status for part in pool.map(spend, range(CLIENTS)) for status in part)
        vectors = set().union(*pool.map(repeat, range(CLIENTS)))
    assert statuses == {200: LIMIT, 429: CLIENTS * REQUESTS - LIMIT}
    assert len(vectors) == 1
    with Ledger(place) as ledger:
        spent = ledger.spent("ann"), ledger.spent("bob")
        assert [total and total.epsilon for total in spent] == [LIMIT, 1.0]
        assert ledger.counts().releases == count_vectors(place) == LIMIT + 1
