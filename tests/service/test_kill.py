"""`kill -9` under load, thirty times: one vector for each text, and only stored ones answered."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from pathlib import Path

import httpx
import pytest

from capelet.ledger.store import Ledger
from service.processes import Place, ask, count_vectors, gateway, write_recipe

pytestmark = pytest.mark.slow
KILLS, CLIENTS, TEXTS = 30, 8, 400
Answers = dict[tuple[str, str], set[str]]


def load(url: str, answers: Answers, lock: threading.Lock, stop: threading.Event) -> None:
    """Ask for one to four texts of one of three people, over and over, as retries would."""
    choice = random.Random()
    while not stop.is_set():
        person = f"person {choice.randrange(3)}"
        texts = [f"text number {choice.randrange(TEXTS)}" for _ in range(choice.randint(1, 4))]
        try:
            with httpx.Client(base_url=url) as client:
                answer = ask(client, person, texts)
        except httpx.HTTPError:
            continue
        # Without its database a gateway that lives says so.
        assert answer.status_code in (200, 503), answer.text
        vectors = [item["embedding"] for item in answer.json().get("data", ())]
        with lock:
            for text, vector in zip(texts, vectors, strict=False):
                answers[person, text].add(vector)


def test_kill_under_load(place: Place, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    recipe = write_recipe(tmp_path, "minilm", 1.0)
    server = None if isinstance(place, Path) else request.getfixturevalue("postgres")
    answers: Answers = defaultdict(set)
    lock, chance = threading.Lock(), random.Random(7)
    for life in range(KILLS):
        with gateway(recipe, place, 1e6) as (process, url):
            stop = threading.Event()
            threads = [
                threading.Thread(target=load, args=(url, answers, lock, stop))
                for _ in range(CLIENTS)
            ]
            for thread in threads:
                thread.start()
            before, end = len(answers), time.monotonic() + 60
            # At some moment after the first answers of this life, in the middle of others.
            while len(answers) < min(before + 3, TEXTS) and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(chance.random())
            if server is not None and life % 3 == 0:
                server.kill()
                time.sleep(chance.random())
            process.kill()
            stop.set()
            for thread in threads:
                thread.join()
        if server is not None and life % 3 == 0:
            server.start()
    assert len(answers) > 50
    assert max(len(vectors) for vectors in answers.values()) == 1
    stored = count_vectors(place)
    with Ledger(place) as ledger:
        assert ledger.counts().releases == stored >= len(answers)
    # Whatever was answered is what the store holds: asked again, it costs nothing.
    with gateway(recipe, place, 1e6) as (_, url), httpx.Client(base_url=url) as client:
        for (person, text), (vector,) in answers.items():
            assert ask(client, person, [text]).json()["data"][0]["embedding"] == vector
    assert count_vectors(place) == stored
