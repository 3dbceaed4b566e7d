"""`POST /v1/classify`: the server's half of a split deployment, which sees no text.

Extractor and noise ran in the caller's process (`capelet.client`); what comes here is released
vectors, and what is answered is computed from them alone. So nothing is drawn and nobody is
charged: post-processing keeps a guarantee.

Labels only: exact probabilities would tell a caller more about the texts that trained the head,
which was learnt without noise unless its folder says otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
from fastapi import FastAPI, Request
from starlette.responses import Response

from capelet.encoders.model_folder import PRIVATE_ENCODER, open_folder
from capelet.errors import CapeletError
from capelet.files import expand_user
from capelet.interfaces import Vectors
from capelet.ledger.store import Ledger
from capelet.release.heads import Head
from capelet.service.callers import Callers
from capelet.service.errors import bad_input
from capelet.service.front import Front, frame_app
from capelet.service.schemas import describe_refusals, refuse_media
from capelet.service.security import read_body
from capelet.service.settings import Bounds

ROUTE = "/v1/classify"
_NO_TEXTS = (
    "this address takes released vectors and never texts: encode on your own machine "
    "(capelet.client) and send 'vectors', lists of numbers"
)


def load_head(folder: Path | str) -> Head:
    """The head in a private encoder's folder; of its files only the head's need to be there.

    So the server of a split deployment can do without the extractor.
    """
    head = Head.read(open_folder(expand_user(folder), PRIVATE_ENCODER))
    if head is None:
        raise CapeletError(
            f"the folder {str(folder)!r} has no head: `capelet protect` saves one where the method "
            "trains a classifier of the task, such as bottleneck, cape or dpnr"
        )
    return head


class Classifier:
    """Released vectors in, the task's labels out."""

    def __init__(self, head: Head, bounds: Bounds) -> None:
        self.head, self.bounds = head, bounds

    def answer(self, body: bytes) -> bytes:
        """The answer to a request, or the refusal that says what is wrong with it."""
        labels = self.head.predict(self.parse(body))
        items = [
            {"object": "label", "index": place, "label": label}
            for place, label in enumerate(labels)
        ]
        return orjson.dumps({"object": "list", "task": self.head.task, "data": items})

    def parse(self, body: bytes) -> Vectors:
        """The vectors of a request; no refusal repeats anything that was sent."""
        try:
            content = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise bad_input("the body is not JSON in UTF-8") from None
        # Anything beside vectors may be somebody's text: refused, so that nobody sends it twice.
        if not isinstance(content, dict) or set(content) - {"vectors"}:
            raise bad_input(_NO_TEXTS, code="vectors_only")
        rows = content.get("vectors")
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise bad_input(_NO_TEXTS, "vectors", "vectors_only")
        if not 1 <= len(rows) <= self.bounds.texts:
            raise bad_input(
                f"'vectors' has {len(rows):,} entries; it must have 1 to {self.bounds.texts:,}",
                "vectors",
            )
        return self._as_floats(rows)

    def _as_floats(self, rows: list[list[Any]]) -> Vectors:
        width = self.head.map.width
        for place, row in enumerate(rows):
            if len(row) != width:
                raise bad_input(
                    f"'vectors' number {place} has {len(row):,} numbers; this head takes {width}",
                    "vectors",
                )
            # Of exactly these types: a bool is an int to Python, and a string might be a word.
            if not set(map(type, row)) <= {int, float}:
                raise bad_input(_NO_TEXTS, "vectors", "vectors_only")
        # A double beyond float32 becomes infinite here, and is refused as such.
        with np.errstate(over="ignore"):
            vectors = np.array(rows, dtype=np.float64).astype(np.float32)
        if not np.isfinite(vectors).all():
            raise bad_input("'vectors' holds a number beyond the range of float32", "vectors")
        return vectors


def create_head_app(head: Head, ledger: Ledger | None = None, *, has_tls: bool = False) -> FastAPI:
    """An application that serves a head alone: no encoder, no texts, no charges.

    The store, where one is given, is only asked for API keys.
    """
    front = Front(Callers(ledger))
    app = frame_app("Capelet classifier", front, has_tls)
    add_classify(app, front, Classifier(head, Bounds()))
    return app


def add_classify(app: FastAPI, front: Front, classifier: Classifier) -> None:
    """The route, in an application that knows who asks and answers refusals."""

    @app.post(
        ROUTE,
        summary="The task's labels of released vectors; never of texts",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _query_schema(classifier)}},
            }
        },
        responses={
            200: {"content": {"application/json": {"schema": _ANSWER_SCHEMA}}},
            **describe_refusals(400, 401, 403, 408, 413, 415, 500, 503),
        },
    )
    async def classify(request: Request) -> Response:
        await front.authenticate(request)
        if (refusal := refuse_media(request.headers.get("content-type", ""))) is not None:
            raise refusal
        body = await read_body(request, classifier.bounds)
        answer = await front.decide(classifier.answer, body)
        return Response(answer, media_type="application/json")


def _query_schema(classifier: Classifier) -> dict[str, Any]:
    width = classifier.head.map.width
    vector = {
        "type": "array",
        "items": {"type": "number"},
        "minItems": width,
        "maxItems": width,
    }
    return {
        "type": "object",
        "required": ["vectors"],
        "additionalProperties": False,
        "properties": {
            "vectors": {
                "type": "array",
                "items": vector,
                "minItems": 1,
                "maxItems": classifier.bounds.texts,
            }
        },
    }


_ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["object", "task", "data"],
    "properties": {
        "object": {"const": "list"},
        "task": {"type": "string"},
        "data": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["object", "index", "label"],
                "properties": {
                    "object": {"const": "label"},
                    "index": {"type": "integer"},
                    "label": {"type": "string"},
                },
            },
        },
    },
}
