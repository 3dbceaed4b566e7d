"""Two gateways on one store: the last ε is spent once, and a text has one vector everywhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from capelet.ledger.store import Ledger
from service.processes import Place, ask_in_processes, count_vectors, gateway, write_recipe

pytestmark = pytest.mark.slow
PROCESSES, REQUESTS, LIMIT = 8, 200, 1000


def test_two_replicas_race_for_the_last_epsilon(place: Place, tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    recipe = write_recipe(tmp_path, "wordllama", 1.0)
    own_texts = [
        [f"process {number} text {place}" for place in range(REQUESTS)]
        for number in range(PROCESSES)
    ]
    with (
        gateway(recipe, place, LIMIT) as (_, first),
        gateway(recipe, place, LIMIT) as (_, second),
    ):
        replicas = [first, second]
        spending = ask_in_processes(replicas, "ann", own_texts)
        repeats = ask_in_processes(replicas, "bob", [["the same"] * 5] * PROCESSES)
    statuses = Counter(answer.status for answers in spending for answer in answers)
    assert statuses == {200: LIMIT, 429: PROCESSES * REQUESTS - LIMIT}
    assert {answer.status for answers in repeats for answer in answers} == {200}
    assert len({answer.vector for answers in repeats for answer in answers}) == 1
    # The control: texts that differ have vectors that differ.
    assert len({answer.vector for answers in spending for answer in answers}) == LIMIT + 1
    with Ledger(place) as ledger:
        totals = ledger.spent("ann"), ledger.spent("bob")
        assert [total and total.epsilon for total in totals] == [LIMIT, 1.0]
        assert ledger.counts().releases == count_vectors(place) == LIMIT + 1
