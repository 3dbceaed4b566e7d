"""The routes: embeddings as OpenAI's clients ask for them, health, figures, and the page.

A request goes through three places: a thread that decides (`gateway`: key, fields, what is stored,
budget), the batcher that draws and settles, and this event loop, which waits, never computes, and
never touches the store.
"""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from capelet.errors import OutputError, describe_fault
from capelet.ledger.budgets import BudgetError
from capelet.ledger.settlement import RequestConflict, Settlement
from capelet.release.heads import Head
from capelet.service.answers import describe_privacy, privacy_headers, write_answer
from capelet.service.batcher import Batcher
from capelet.service.classify import Classifier, add_classify
from capelet.service.demonstration import Demonstration
from capelet.service.errors import Refusal, StoreErrors, other_body, store_down, unavailable
from capelet.service.front import Front, answer_json, frame_app
from capelet.service.gateway import AdmittedRequest, Gateway, refuse_budget
from capelet.service.page import OperatorPage
from capelet.service.schemas import (
    ANSWER_SCHEMA,
    describe_refusals,
    parse_idempotency_key,
    query_schema,
    refuse_media,
)
from capelet.service.security import LOG, bearer, read_body, wait_until_gone

# Nobody reads the answer; the number is what nginx writes for a caller who left.
_NO_CALLER = 499
# Bytes of a body that is read from anybody, with a key or without.
_SMALL = 65_536


class Service(Front):
    """A gateway that runs: its batcher, its threads, its figures."""

    def __init__(self, gateway: Gateway, demonstration: Demonstration | None = None) -> None:
        super().__init__(gateway.callers)
        self.gateway, self.demonstration = gateway, demonstration
        self._batcher: Batcher | None = None
        self._mailbox: _CompletionQueue
        self._desk: _DecisionThread

    @property
    def batcher(self) -> Batcher:
        if self._batcher is None:
            raise unavailable("this gateway is not running", "shutting_down")
        return self._batcher

    def start(self) -> None:
        super().start()
        self._mailbox, self._desk = _CompletionQueue(), _DecisionThread()
        gateway = self.gateway
        self._batcher = Batcher(
            gateway.private, gateway.ledger, gateway.settings.bounds, self.metrics
        )
        # In the background: health can be asked while a model is exported for the first time, and
        # nobody waits for either when the process is told to end.
        threading.Thread(target=self._prepare, daemon=True).start()

    def _prepare(self) -> None:
        try:
            self.gateway.load()
            if self.demonstration is not None:
                self.demonstration.learn()
            # Models and modules stay until the end: the garbage collector need not look through
            # them again and again.
            gc.collect()
            gc.freeze()
        except Exception as error:
            LOG.error("cannot get ready: %s", describe_fault(error))

    def stop(self) -> None:
        """Finish what is in flight, refuse what is new."""
        self.batcher.close()
        self._desk.close()
        super().stop()

    async def answer(
        self,
        decide: Callable[[], AdmittedRequest],
        request: Request | None = None,
        is_small: bool = True,
    ) -> tuple[AdmittedRequest, Settlement]:
        """A plan, decided on a thread, and what the store holds for it once drawn and charged."""
        errand = _PendingRequest()
        arrival = self._mailbox.expect(errand.future)
        if is_small:
            self._desk.put(partial(self._send, errand, decide))
        else:
            # To read the longest takes some half a second: small ones do not stand behind it.
            self.pool.submit(self._send, errand, decide)
        watch = None if request is None else asyncio.ensure_future(wait_until_gone(request))
        if watch is not None:
            watch.add_done_callback(lambda _: _leave(errand, arrival))
        try:
            settlement = await arrival
            assert errand.plan is not None
            return errand.plan, settlement
        except BudgetError as error:
            assert errand.plan is not None
            self.gateway.note_refusal(errand.plan.job.order)
            raise refuse_budget(error) from None
        # Two requests under one key raced, and the other was first.
        except RequestConflict:
            raise other_body() from None
        except OutputError:
            raise store_down() from None
        finally:
            if watch is not None:
                watch.cancel()

    def _send(self, errand: _PendingRequest, decide: Callable[[], AdmittedRequest]) -> None:
        """On a thread: decide, and hand the job to the batcher from here.

        So the loop wakes once for a request, when it is settled; each time costs two switches
        between threads, and a short text hardly costs a hundred of them.
        """
        try:
            plan = decide()
            errand.take(plan)
            if not errand.is_abandoned:
                self.batcher.submit(plan.job)
        except Exception as error:
            errand.future.set_exception(error)

    def is_ready(self) -> bool:
        with StoreErrors():
            self.gateway.ledger.ping()
        return self.gateway.is_loaded and self.batcher.is_alive and self._desk.is_alive


class _CallerGone(Exception):
    """The connection was closed before there was an answer."""


class _DecisionThread:
    """One thread decides on small requests, in the order in which they came.

    They would wait for each other on many threads, too, since a store has one connection and the
    interpreter one lock; only that each would wake a thread of its own, and find the cores taken.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="capelet-decide", daemon=True)
        self.thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether anybody decides: without this thread small requests would wait for ever."""
        return self.thread.is_alive()

    def put(self, task: Callable[[], None]) -> None:
        """Have a task done, which raises nothing."""
        self._tasks.put(task)

    def close(self) -> None:
        """Do what lies here, and end."""
        self._tasks.put(None)
        self.thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


class _CompletionQueue:
    """The ends of errands on their way from the threads to the loop.

    The store's thread ends many at once, and the loop is woken once for all that lie here:
    `asyncio.wrap_future` would wake it for each.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends: deque[tuple[asyncio.Future[Settlement], Future[Settlement]]] = deque()
        self._is_called = False

    def expect(self, end: Future[Settlement]) -> asyncio.Future[Settlement]:
        """What the loop waits for; it is over when the other is, on whichever thread."""
        arrival = self._loop.create_future()
        end.add_done_callback(lambda _: self._put(arrival, end))
        return arrival

    def _put(self, arrival: asyncio.Future[Settlement], end: Future[Settlement]) -> None:
        # First the end and then the question, and `_empty` the other way: none is left lying.
        self._ends.append((arrival, end))
        if not self._is_called:
            self._is_called = True
            # After the last answers nobody waits any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._is_called = False
        while self._ends:
            arrival, end = self._ends.popleft()
            if arrival.done():
                continue
            if end.cancelled():
                arrival.cancel()
            elif (error := end.exception()) is not None:
                arrival.set_exception(error)
            else:
                arrival.set_result(end.result())


@dataclass(eq=False)
class _PendingRequest:
    """A request between the loop and the threads: its plan, once there is one, and its end."""

    future: Future[Settlement] = field(default_factory=Future)
    plan: AdmittedRequest | None = None
    is_abandoned: bool = False

    def take(self, plan: AdmittedRequest) -> None:
        """The job's end is this errand's; whoever left meanwhile has left the job, too."""
        plan.job.future = self.future
        self.plan = plan
        # Only ever set, never cleared: `abandon` may have come in between.
        if self.is_abandoned:
            plan.job.is_abandoned = True

    def abandon(self) -> None:
        # First the errand and then its plan, and `take` the other way: one of both is seen.
        self.is_abandoned = True
        if self.plan is not None:
            self.plan.job.is_abandoned = True


def _leave(errand: _PendingRequest, arrival: asyncio.Future[Settlement]) -> None:
    """The caller has gone. Not cancelled: what is drawn is settled, and a retry finds it."""
    if not arrival.done():
        errand.abandon()
        arrival.set_exception(_CallerGone())


class _DirectRoute(APIRoute):
    """A route whose function takes the request and gives the response, with nothing in between.

    FastAPI would look for dependencies, fields and forms with every request, and find none.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


def create_app(
    gateway: Gateway,
    *,
    demonstration: Demonstration | None = None,
    head: Head | None = None,
    has_tls: bool = False,
) -> FastAPI:
    """The application for a server; it owns its threads, and not the store.

    With a head it labels released vectors, too.
    """
    service = Service(gateway, demonstration)

    app = frame_app("Capelet gateway", service, has_tls)

    @app.exception_handler(_CallerGone)
    async def answer_nobody(_: Request, error: _CallerGone) -> Response:
        service.metrics.count_refusal("caller_gone")
        return Response(status_code=_NO_CALLER)

    _add_embeddings(app, service)
    if head is not None:
        add_classify(app, service, Classifier(head, gateway.settings.bounds))
    OperatorPage(service, has_tls).add_routes(app)
    return app


def _add_embeddings(app: FastAPI, service: Service) -> None:
    gateway = service.gateway
    model = gateway.settings.model

    async def embed(request: Request) -> Response:
        start = time.perf_counter()
        decide, is_small = await _decision(service, request)
        plan, settlement = await service.answer(decide, request, is_small)
        response = _respond(plan, settlement, gateway)
        service.metrics.time_answer(time.perf_counter() - start)
        return response

    app.router.add_api_route(
        "/v1/embeddings",
        embed,
        methods=["POST"],
        route_class_override=_DirectRoute,
        summary="Private embeddings of texts, charged to the people whom they are about",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": query_schema(model)}},
            },
            "parameters": [
                {
                    "name": "Idempotency-Key",
                    "in": "header",
                    "required": gateway.settings.repeats == "fresh",
                    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
                }
            ],
        },
        responses={
            200: {"content": {"application/json": {"schema": ANSWER_SCHEMA}}},
            **describe_refusals(400, 401, 403, 404, 408, 409, 413, 415, 429, 500, 503),
        },
    )
    # Routes are tried in their order, and this is the one that is asked for.
    app.router.routes.insert(0, app.router.routes.pop())

    @app.get("/v1/models", responses=describe_refusals(401, 503))
    async def list_models(request: Request) -> Response:
        """The one model that is served."""
        await service.authenticate(request)
        return answer_json({"object": "list", "data": [_describe_model(gateway)]})

    @app.get("/v1/models/{name}", responses=describe_refusals(400, 401, 404, 503))
    async def show_model(name: str, request: Request) -> Response:
        """The model, by its name."""
        await service.authenticate(request)
        if name != model:
            raise Refusal(404, f"this gateway serves the model {model!r}", code="model_not_found")
        return answer_json(_describe_model(gateway))


async def _decision(
    service: Service, request: Request
) -> tuple[Callable[[], AdmittedRequest], bool]:
    """How to plan a request, on a thread, and whether it is small.

    A small one is planned in one go; of another the key comes first.
    """
    gateway, headers = service.gateway, request.headers
    length = headers.get("content-length", "")
    is_small = length.isdecimal() and int(length) <= _SMALL
    key = None if is_small else await service.authenticate(request)
    body = await read_body(request, gateway.settings.bounds)

    def decide() -> AdmittedRequest:
        caller = key or service.callers.authenticate(bearer(request))
        if (refusal := refuse_media(headers.get("content-type", ""))) is not None:
            raise refusal
        idempotency = parse_idempotency_key(headers.get("idempotency-key"))
        return gateway.plan(caller, body, idempotency)

    return decide, is_small


def _respond(plan: AdmittedRequest, settlement: Settlement, gateway: Gateway) -> Response:
    repeats = gateway.settings.repeats
    privacy = describe_privacy(settlement, gateway.guarantee, repeats, plan.charged_before)
    content = write_answer(
        settlement.vectors, plan.encoding_format, gateway.settings.model, plan.tokens, privacy
    )
    return Response(content, 200, privacy_headers(privacy), "application/json")


def _describe_model(gateway: Gateway) -> dict[str, Any]:
    guarantee = gateway.guarantee
    return {
        "id": gateway.settings.model,
        "object": "model",
        "created": 0,
        "owned_by": "capelet",
        "privacy": {
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "unit": guarantee.unit,
            "budget": gateway.limits.total.epsilon,
            "repeats": gateway.settings.repeats,
            "guarantee": guarantee.sentence(),
        },
    }
