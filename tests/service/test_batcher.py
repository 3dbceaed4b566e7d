"""The batcher: what waits shares a batch, who has left drops out, and nothing is answered twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from capelet.errors import CapeletError, StoreDown
from capelet.ledger.budgets import Budget
from capelet.ledger.settlement import Order, Settlement, undrawn
from capelet.ledger.store import Ledger
from capelet.privacy.guarantees import Guarantee
from capelet.service.batcher import Batcher, Job
from capelet.service.errors import Refusal
from capelet.service.metrics import Metrics
from capelet.service.settings import Bounds
from service.running import Running, wait_for

PROMISE = Guarantee(1.0)
WIDTH = 4


class SlowEncoder:
    """Counts what it is given, and can be held up; each call draws other numbers."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()

    def release(self, texts: Sequence[str]) -> Any:
        self.batches.append(list(texts))
        self.begun.set()
        assert self.gate.wait(30)
        if "poison" in texts:
            raise RuntimeError("this text breaks the encoder")
        vectors = np.random.default_rng().normal(size=(len(texts), WIDTH))
        return type("Release", (), {"vectors": vectors})

    def hold(self) -> None:
        self.gate.clear()
        self.begun.clear()


@pytest.fixture
def encoder() -> SlowEncoder:
    return SlowEncoder()


@pytest.fixture
def ledger(tmp_path: Any) -> Iterator[Ledger]:
    with Ledger(tmp_path / "store.db") as ledger:
        ledger.open()
        yield ledger


Make = Callable[..., Batcher]


@pytest.fixture
def make(encoder: SlowEncoder, ledger: Ledger) -> Iterator[Make]:
    batchers: list[Batcher] = []

    def start(**bounds: Any) -> Batcher:
        private: Any = encoder
        batchers.append(Batcher(private, ledger, Bounds(**bounds), Metrics()))
        return batchers[-1]

    yield start
    encoder.gate.set()
    for batcher in batchers:
        batcher.close()


def job(
    *texts: str, person: str = "ann", budget: float = 1000.0, lengths: Sequence[int] = ()
) -> Job:
    names = [f"{person} {text}".encode() for text in texts]
    people = [person] * len(texts)
    order = Order(people, names, np.zeros((0, 0)), PROMISE, "", Budget(budget))
    return Job(order, texts, lengths or [len(text) for text in texts], undrawn(names))


def result(future: Future[Settlement]) -> Settlement:
    return future.result(30)


def test_what_came_meanwhile_shares_a_batch(make: Make, encoder: SlowEncoder) -> None:
    batcher = make()
    encoder.hold()
    first = batcher.submit(job("a"))
    assert encoder.begun.wait(10)
    others = [batcher.submit(job(f"text {number}")) for number in range(20)]
    encoder.gate.set()
    assert all(result(future).is_new.all() for future in [first, *others])
    assert [len(batch) for batch in encoder.batches] == [1, 20]


def test_a_stored_vector_of_another_width_spoils_its_request_alone(make: Make) -> None:
    batcher = make()
    spoilt = job("a", "b")
    spoilt.draws[spoilt.order.names[1]] = np.zeros(WIDTH + 1, dtype=np.float32)
    spoilt.waiting.remove(1)
    with pytest.raises(Refusal, match="a fault of the gateway"):
        result(batcher.submit(spoilt))
    # The control: the store's thread goes on, and the right width is settled.
    assert batcher.is_alive
    assert result(batcher.submit(job("a", "b"))).vectors.shape == (2, WIDTH)


def test_bounds_in_texts_and_tokens(make: Make, encoder: SlowEncoder) -> None:
    batcher = make(batch_texts=8, batch_tokens=40)
    encoder.hold()
    futures = [batcher.submit(job("first", lengths=[1]))]
    assert encoder.begun.wait(10)
    futures.append(batcher.submit(job(*(f"s{n}" for n in range(20)), lengths=[2] * 20)))
    futures.append(batcher.submit(job(*(f"l{n}" for n in range(6)), lengths=[20] * 6)))
    futures.append(batcher.submit(job("huge", lengths=[1000])))
    encoder.gate.set()
    assert all(result(future).is_new.all() for future in futures)
    for batch in encoder.batches[1:]:
        assert len(batch) <= 8
        assert sum(text.startswith("l") for text in batch) <= 2
    assert ["huge"] in encoder.batches or any(batch == ["huge"] for batch in encoder.batches)


def test_a_long_request_does_not_hold_up_a_short_one(make: Make, encoder: SlowEncoder) -> None:
    batcher = make(batch_texts=64)
    encoder.hold()
    batcher.submit(job("first"))
    assert encoder.begun.wait(10)
    long = batcher.submit(job(*(f"long {n:04}" for n in range(900))))
    short = batcher.submit(job("short", person="bob"))
    encoder.gate.set()
    result(short)
    place = next(i for i, batch in enumerate(encoder.batches) if "short" in batch)
    assert place <= 3  # of 15: 64 texts in a batch
    assert result(long).is_new.sum() == 900


def test_a_lone_length_waits_for_a_partner_but_not_for_ever(
    make: Make, encoder: SlowEncoder
) -> None:
    batcher = make(batch_texts=4)
    encoder.hold()
    batcher.submit(job("first", lengths=[3]))
    assert encoder.begun.wait(10)
    lone = batcher.submit(job("lone", lengths=[99]))
    pairs = [batcher.submit(job(f"p{n:03}", lengths=[5])) for n in range(200)]
    encoder.gate.set()
    result(lone)
    place = next(i for i, batch in enumerate(encoder.batches) if "lone" in batch)
    # 128 texts in batches of 4 go before it, and not all 200.
    assert place == 33
    assert all(result(future).is_new.all() for future in pairs)


def test_lengths_of_one_batch_are_few_so_that_others_meet_their_own(
    make: Make, encoder: SlowEncoder
) -> None:
    batcher = make(batch_lengths=2)
    encoder.hold()
    batcher.submit(job("first"))
    assert encoder.begun.wait(10)
    texts = [job(f"{length} {copy}", lengths=[length]) for copy in "ab" for length in (5, 6, 7)]
    futures = [batcher.submit(text) for text in texts]
    encoder.gate.set()
    assert all(result(future).is_new.all() for future in futures)
    assert encoder.batches[1:] == [["5 a", "5 b", "6 a", "6 b"], ["7 a", "7 b"]]


def test_texts_that_travel_alone_wait_for_no_length(make: Make, encoder: SlowEncoder) -> None:
    batcher = make(batch_lengths=2)
    encoder.hold()
    batcher.submit(job("first"))
    assert encoder.begun.wait(10)
    texts = [job(f"{length}", lengths=[length]) for length in (5, 6, 7, 7)]
    for text in texts:
        text.gathers_lengths = False
    futures = [batcher.submit(text) for text in texts]
    encoder.gate.set()
    assert all(result(future) for future in futures)
    assert encoder.batches[1:] == [["5", "6", "7"]]


def test_one_name_in_two_requests_is_drawn_once_and_charged_once(
    make: Make, encoder: SlowEncoder, ledger: Ledger
) -> None:
    batcher = make()
    encoder.hold()
    batcher.submit(job("first"))
    assert encoder.begun.wait(10)
    futures = [batcher.submit(job("same", "same")) for _ in range(5)]
    encoder.gate.set()
    settlements = [result(future) for future in futures]
    assert encoder.batches[1] == ["same"]
    assert sum(int(item.is_new.sum()) for item in settlements) == 1
    assert len({item.vectors.tobytes() for item in settlements}) == 1
    assert ledger.counts().releases == 2


def test_who_has_left_is_not_drawn(make: Make, encoder: SlowEncoder, ledger: Ledger) -> None:
    batcher = make()
    encoder.hold()
    batcher.submit(job("first"))
    assert encoder.begun.wait(10)
    gone = job("gone")
    batcher.submit(gone)
    stays = batcher.submit(job("stays"))
    gone.is_abandoned = True
    encoder.gate.set()
    result(stays)
    assert "gone" not in [text for batch in encoder.batches for text in batch]
    wait_for(lambda: batcher.waiting_texts == 0)
    assert ledger.counts().releases == 2


def test_a_full_queue_refuses_and_then_goes_on(make: Make, encoder: SlowEncoder) -> None:
    batcher = make(waiting_texts=3)
    encoder.hold()
    futures = [batcher.submit(job("first")), batcher.submit(job("a", "b"))]
    with pytest.raises(Refusal) as refusal:
        batcher.submit(job("c"))
    assert refusal.value.status == 503
    assert refusal.value.headers["Retry-After"]
    encoder.gate.set()
    for future in futures:
        result(future)
    wait_for(lambda: batcher.waiting_texts == 0)
    # One that is larger than the queue fits where nothing waits.
    assert result(batcher.submit(job(*"abcdefgh", person="bob"))).is_new.all()


def test_a_text_that_breaks_the_encoder_takes_no_other_with_it(
    make: Make, encoder: SlowEncoder, ledger: Ledger
) -> None:
    batcher = make()
    encoder.hold()
    batcher.submit(job("first"))
    assert encoder.begun.wait(10)
    bad, good = batcher.submit(job("poison", "a")), batcher.submit(job("good"))
    encoder.gate.set()
    assert result(good).is_new.all()
    with pytest.raises(Refusal) as refusal:
        result(bad)
    assert refusal.value.status == 500
    assert ledger.counts().releases == 2
    wait_for(lambda: batcher.waiting_texts == 0)


def test_a_refused_order_leaves_the_others_of_its_batch(
    make: Make, encoder: SlowEncoder, ledger: Ledger
) -> None:
    batcher = make()
    encoder.hold()
    batcher.submit(job("first"))
    assert encoder.begun.wait(10)
    poor = batcher.submit(job("a", "b", person="poor", budget=1.0))
    rich = batcher.submit(job("a", "b", person="rich"))
    encoder.gate.set()
    assert result(rich).is_new.all()
    with pytest.raises(CapeletError, match="too small for 1 person"):
        result(poor)
    assert ledger.spent("poor") is None


def test_a_store_that_fails_answers_nothing(
    make: Make, encoder: SlowEncoder, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    batcher = make()

    def fail(_: object) -> list[Any]:
        raise StoreDown("gone")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "settle_all", fail)
        with pytest.raises(Refusal) as refusal:
            result(batcher.submit(job("a")))
        assert refusal.value.status == 503
    assert ledger.counts().releases == 0
    # Its thread lives, and the next request is served.
    assert result(batcher.submit(job("a"))).is_new.all()


def test_closing_finishes_what_is_there(make: Make, encoder: SlowEncoder, ledger: Ledger) -> None:
    batcher = make(batch_texts=2)
    encoder.hold()
    futures = [batcher.submit(job(f"t{n}", f"u{n}")) for n in range(10)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    time.sleep(0.1)
    with pytest.raises(Refusal, match="shutting down"):
        batcher.submit(job("new"))
    encoder.gate.set()
    closing.join(30)
    assert all(future.done() and result(future).is_new.all() for future in futures)
    assert ledger.counts().releases == 20
    assert not batcher.is_alive


# ---- through the server --------------------------------------------------------------------------

Serve = Callable[..., Running]


def test_many_clients_at_once_and_a_limit(serve: Serve) -> None:
    """Of 16 × 10 requests for one person, exactly those that the budget covers are served."""
    running = serve(budget=100.0)

    def ask(number: int) -> list[int]:
        with running.client() as client:
            bodies = [
                {"model": "private", "input": f"{number} {i}", "user": "a"} for i in range(10)
            ]
            return [client.post("/v1/embeddings", json=body).status_code for body in bodies]

    with ThreadPoolExecutor(16) as pool:
        statuses = [status for part in pool.map(ask, range(16)) for status in part]
    assert statuses.count(200) == 50 and statuses.count(429) == 110
    assert running.ledger.counts() == (1, 50, 100.0)


def test_the_same_text_from_many_clients_is_one_vector(serve: Serve) -> None:
    running = serve()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: running.ask("the same"), range(32)))
    assert len({str(answer.json()["data"]) for answer in answers}) == 1
    assert sum(answer.json()["privacy"]["charged"] for answer in answers) == 2.0
    assert running.ledger.counts().releases == 1


def test_a_caller_who_hangs_up_is_not_charged(serve: Serve) -> None:
    import httpx

    running = serve()
    release, gate = running.gateway.private.release, threading.Event()
    begun = threading.Event()

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert gate.wait(30)
        return release(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.gateway.private, "release", slow)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(running.ask, "first")
            assert begun.wait(10)
            with (
                pytest.raises(httpx.ReadTimeout),
                httpx.Client(base_url=running.url, timeout=0.3) as client,
            ):
                client.post(
                    "/v1/embeddings", json={"model": "private", "input": "gone", "user": "bob"}
                )
            wait_for(lambda: running.service.metrics.refusals["caller_gone"] == 1)
            gate.set()
            assert first.result(30).status_code == 200
    wait_for(lambda: running.service.batcher.waiting_texts == 0)
    assert running.ledger.spent("bob") is None


def test_a_caller_who_leaves_before_the_decision_is_not_drawn(serve: Serve) -> None:
    import httpx

    running = serve()
    plan, gate, end = running.gateway.plan, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        assert gate.wait(30)
        try:
            return plan(*arguments)
        finally:
            end.set()

    body = {"model": "private", "input": "gone", "user": "bob"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.gateway, "plan", slow)
        with (
            pytest.raises(httpx.ReadTimeout),
            httpx.Client(base_url=running.url, timeout=0.3) as client,
        ):
            client.post("/v1/embeddings", json=body)
        wait_for(lambda: running.service.metrics.refusals["caller_gone"] == 1)
        gate.set()
        assert end.wait(10)
        # The control: whoever stays is drawn by the same threads, after the one who left.
        assert running.ask("stays", user="ann").status_code == 200
    assert running.ledger.spent("bob") is None
    assert running.ledger.counts().releases == 1
