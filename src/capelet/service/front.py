"""What every application of the service has: guard, callers, refusals, figures, health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response

from capelet import __version__
from capelet.ledger.keys import ApiKey
from capelet.service.callers import Callers
from capelet.service.errors import Refusal, unavailable
from capelet.service.metrics import Metrics
from capelet.service.schemas import describe_refusals
from capelet.service.security import Guard, bearer, refuse
from capelet.silence import NO_TRACING

_T = TypeVar("_T")
_THREADS = 8  # decide on requests: mostly waiting for the store


class Front:
    """A server that runs: who may ask, its figures, and threads that may wait for the store."""

    def __init__(self, callers: Callers) -> None:
        self.callers = callers
        self.metrics = Metrics()
        self.pool = ThreadPoolExecutor(_THREADS, "capelet-decide")

    @property
    def is_local(self) -> bool:
        """Whether there are no keys yet: then only this machine may ask."""
        return not self.callers.has_keys

    def start(self) -> None:
        """What is to be known and running before the first answer."""
        # A store that cannot be reached now is asked again with the first request.
        with suppress(Refusal):
            self.callers.look_for_keys()

    def stop(self) -> None:
        """Finish what is in flight, refuse what is new."""
        self.pool.shutdown()

    def is_ready(self) -> bool:
        """Whether a request could be answered now."""
        return True

    async def decide(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call what may wait for the store on a thread, so that the loop goes on."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, function, *arguments)

    async def authenticate(self, request: Request) -> ApiKey:
        return await self.decide(self.callers.authenticate, bearer(request))


def frame_app(title: str, front: Front, has_tls: bool) -> FastAPI:
    """An application with guard, refusals, health and figures; routes are added to it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        front.start()
        yield
        # Off the loop, on which the last answers are still to be sent.
        await asyncio.to_thread(front.stop)

    # No pages of FastAPI's own: they load scripts from elsewhere.
    app = FastAPI(
        title=title,
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        default_response_class=Response,
        # Versions without telemetry take no notice.
        telemetry=NO_TRACING,
    )
    app.state.service = front
    app.add_middleware(
        Guard, metrics=front.metrics, is_local=lambda: front.is_local, has_tls=has_tls
    )
    _add_refusals(app, front)
    _add_health(app, front)
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    return app


def answer_json(content: dict[str, Any]) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")


def _add_refusals(app: FastAPI, front: Front) -> None:
    @app.exception_handler(Refusal)
    async def answer_refusal(_: Request, error: Refusal) -> Response:
        front.metrics.count_refusal(error.code)
        return refuse(error)

    @app.exception_handler(HTTPException)
    async def answer_unknown(_: Request, error: HTTPException) -> Response:
        messages = {404: "there is no such address", 405: "this address has no such method"}
        message = messages.get(error.status_code, "this cannot be answered")
        return refuse(Refusal(error.status_code, message, headers=dict(error.headers or {})))


def _add_health(app: FastAPI, front: Front) -> None:
    @app.get("/healthz")
    async def show_health() -> Response:
        """Whether the process answers."""
        return answer_json({"status": "ok"})

    @app.get("/readyz", responses=describe_refusals(503))
    async def show_readiness() -> Response:
        """Whether the store can be reached and the encoder is loaded."""
        if not await front.decide(front.is_ready):
            raise unavailable("the encoder is not loaded yet", "not_ready")
        return answer_json({"status": "ready"})

    @app.get("/metrics", responses=describe_refusals(401, 403, 503))
    async def show_metrics(request: Request) -> Response:
        """Figures for Prometheus; once there are keys, for an operator's."""
        await front.decide(front.callers.require_operator, bearer(request))
        return Response(front.metrics.export(), media_type=Metrics.content_type)


def _describe(app: FastAPI) -> dict[str, Any]:
    """OpenAPI without FastAPI's own 422, which is never answered here."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for path in schema["paths"].values():
            for method in path.values():
                method["responses"].pop("422", None)
        schema["components"] = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        schema["security"] = [{"key": []}, {}]
        app.openapi_schema = schema
    return app.openapi_schema
