"""How the server's threads behave: they wait for a core, and the loop wakes once for many."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

from capelet.service.app import _CompletionQueue, _DecisionThread
from capelet.service.server import interrupt_nobody
from service.running import Running

Serve = Callable[..., Running]


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux has this policy")
def test_threads_of_the_server_push_nobody_off_a_core(serve: Serve) -> None:
    running = serve()
    assert running.ask("a").status_code == 200
    service = running.service
    # Long enough to be decided on another thread than short ones.
    assert running.ask(["a" * 20_000] * 4).status_code == 200
    threads = [*service.batcher._threads, *service.pool._threads, service._desk.thread]
    assert service.pool._threads
    numbers = [thread.native_id for thread in threads if thread.native_id is not None]
    assert {os.sched_getscheduler(number) for number in numbers} == {os.SCHED_BATCH}
    # The control: the thread that asked is as it was.
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.parametrize("error", [PermissionError, OSError])
def test_a_sandbox_that_forbids_it_is_no_error(
    error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "sched_setscheduler", forbid, raising=False)
    interrupt_nobody()


def test_a_system_without_the_policy_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "SCHED_BATCH", raising=False)
    monkeypatch.delattr(os, "sched_setscheduler", raising=False)
    interrupt_nobody()


def test_the_loop_is_woken_once_for_all_that_end_together() -> None:
    async def receive() -> tuple[int, list[Any]]:
        loop, wakes = asyncio.get_running_loop(), 0
        call = loop.call_soon_threadsafe

        def count(*arguments: Any) -> Any:
            nonlocal wakes
            wakes += 1
            return call(*arguments)

        loop.call_soon_threadsafe = count  # type: ignore[method-assign]
        mailbox, ends = _CompletionQueue(), [Future[Any]() for _ in range(4)]
        arrivals = [mailbox.expect(end) for end in ends]
        ends[0].set_result("a")
        ends[1].set_exception(ValueError("b"))
        ends[2].cancel()
        first = await asyncio.gather(*arrivals[:3], return_exceptions=True)
        # What ends after the loop looked wakes it again.
        ends[3].set_result("d")
        return wakes, [*first, await arrivals[3]]

    wakes, (a, b, c, d) = asyncio.run(receive())
    assert wakes == 2
    assert (a, d) == ("a", "d")
    assert isinstance(b, ValueError) and isinstance(c, asyncio.CancelledError)


def test_small_requests_do_not_stand_behind_a_long_one(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = serve()
    gateway, gate, begun = running.gateway, threading.Event(), threading.Event()
    plan, bodies = gateway.plan, []

    def hold_long_ones(key: Any, body: bytes, idempotency: str | None) -> Any:
        bodies.append(len(body))
        if len(body) > 65_536:
            begun.set()
            assert gate.wait(30)
        return plan(key, body, idempotency)

    monkeypatch.setattr(gateway, "plan", hold_long_ones)
    with ThreadPoolExecutor(1) as pool:
        try:
            long = pool.submit(running.ask, ["a" * 20_000] * 4)
            assert begun.wait(10)
            assert running.ask("a").status_code == 200
            # The control: the long one was decided on before, and is not through yet.
            assert bodies[0] > bodies[1] and not long.done()
        finally:
            gate.set()
        assert long.result(30).status_code == 200


def test_small_requests_are_decided_on_in_order_and_all_before_the_end() -> None:
    desk, numbers, threads = _DecisionThread(), list[int](), set[int]()

    def decide(number: int) -> None:
        threads.add(threading.get_ident())
        numbers.append(number)

    for number in range(100):
        desk.put(partial(decide, number))
    assert desk.is_alive
    desk.close()
    assert numbers == list(range(100))
    assert len(threads) == 1 and not desk.is_alive


def test_a_gateway_where_nobody_decides_is_not_ready(serve: Serve) -> None:
    running = serve()
    assert httpx.get(f"{running.url}/readyz").status_code == 200
    running.service._desk.close()
    assert httpx.get(f"{running.url}/readyz").status_code == 503


def test_the_direct_route_has_one_method(serve: Serve) -> None:
    running = serve()
    response = httpx.get(f"{running.url}/v1/embeddings")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json()["error"]["message"] == "this address has no such method"
