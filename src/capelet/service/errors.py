"""Refusals in the shape of OpenAI's errors, so that existing clients understand them.

No message repeats what was sent: it may be somebody's text, name or key. It names fields, types,
positions and bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capelet.errors import CapeletError, OutputError

# The `openai` client repeats 408, 409, 429 and 5xx by itself unless this header says no.
DO_NOT_RETRY = {"x-should-retry": "false"}


class Refusal(CapeletError):
    """A request that is not served: the status and the body that say why and what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, field=param, code=code or kind)
        self.status, self.kind, self.param = status, kind, param
        # OpenAI's body has null where its kind says all.
        self.body_code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        error = {"message": self.spell("page"), "type": self.kind, "param": self.param}
        return {"error": {**error, "code": self.body_code}}


def bad_input(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """What was asked cannot be understood, or may not be asked."""
    return Refusal(400, message, param=param, code=code)


def unknown_key() -> Refusal:
    """One answer for a missing, a wrong and a revoked key: it tells nothing of which keys exist."""
    return Refusal(
        401,
        "this gateway needs an API key, and none that it knows was sent; send it as "
        "'Authorization: Bearer …'; `capelet keys add` makes one",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def not_allowed(message: str) -> Refusal:
    return Refusal(403, message, kind="permission_error", code="not_allowed")


def unknown_model(model: str) -> Refusal:
    """Names the model that is served, which is public (`/v1/models`), not the one asked for."""
    return Refusal(
        404,
        f"this gateway serves the model {model!r} and no other",
        param="model",
        code="model_not_found",
    )


def too_slow(seconds: float) -> Refusal:
    return Refusal(
        408,
        f"the body did not come within {seconds:g} seconds",
        code="request_timeout",
        headers={**DO_NOT_RETRY, "Connection": "close"},
    )


def other_body() -> Refusal:
    """An idempotency key names one request; an answer for another body would be a lie."""
    return Refusal(
        409,
        "this Idempotency-Key was used for another body; send a new key with a new request",
        code="idempotency_key_reused",
        headers=DO_NOT_RETRY,
    )


def too_large(most: int) -> Refusal:
    # The rest of the body is not read, so the connection cannot go on.
    return Refusal(
        413,
        f"the body is longer than {most:,} bytes; send fewer texts at once",
        code="request_too_large",
        headers={"Connection": "close"},
    )


def over_budget(message: str) -> Refusal:
    """A budget is spent: no retry can help, and each would be work for nothing."""
    return Refusal(
        429, message, kind="insufficient_quota", code="insufficient_quota", headers=DO_NOT_RETRY
    )


def unavailable(message: str, code: str, seconds: int = 1) -> Refusal:
    """Nothing was released and nothing charged; the same request may be sent again."""
    headers = {"Retry-After": str(seconds)}
    return Refusal(503, message, kind="service_unavailable_error", code=code, headers=headers)


def store_down() -> Refusal:
    return unavailable(
        "the store of charges cannot be reached, so nothing is released; try again",
        "store_unavailable",
    )


class StoreErrors:
    """Trouble with the store becomes one refusal; its own words may name hosts and paths.

    A class and not a generator: it stands around each step of each request, and holds nothing.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OutputError | OSError):
            raise store_down() from None


def our_fault() -> Refusal:
    return Refusal(
        500, "a fault of the gateway; nothing was released", kind="server_error", code="fault"
    )
