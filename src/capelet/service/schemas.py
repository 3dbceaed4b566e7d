"""What a request for embeddings says, checked field by field, and the schema that says so.

Checked by hand and not by a model of pydantic: its messages repeat what was sent, which here is
people's texts, and its numbers and strings are lenient where this protocol is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from capelet.ledger.people import normalise_person
from capelet.service.errors import Refusal, bad_input, unknown_model
from capelet.service.settings import Bounds

EncodingFormat = Literal["float", "base64"]
_FORMATS = ("float", "base64")
_LANGCHAIN = (
    "token arrays cannot be read: the texts themselves are embedded here; send strings (in "
    "LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))"
)


@dataclass(frozen=True)
class Query:
    """A request that was understood: the texts, and whom each is about where it says so."""

    texts: tuple[str, ...]
    subjects: tuple[str, ...] | None
    encoding_format: EncodingFormat = "float"
    dimensions: int | None = None


def parse_query(body: bytes, model: str, bounds: Bounds) -> Query:
    """The request that a body is, or the refusal that says what is wrong with it."""
    try:
        content = orjson.loads(body)
    # Also half of a surrogate pair, which is no text in any encoding.
    except orjson.JSONDecodeError:
        raise bad_input("the body is not JSON in UTF-8") from None
    if not isinstance(content, dict):
        raise bad_input(f"the body is {_kind(content)}; it must be an object")
    if not isinstance(content.get("model"), str):
        raise bad_input("'model' must be a string", "model")
    if content["model"] != model:
        raise unknown_model(model)
    texts = _texts(content.get("input"), bounds)
    encoding = content.get("encoding_format")
    if encoding is not None and encoding not in _FORMATS:
        raise bad_input("'encoding_format' must be 'float' or 'base64'", "encoding_format")
    dimensions = content.get("dimensions")
    if dimensions is not None and type(dimensions) is not int:
        raise bad_input(f"'dimensions' is {_kind(dimensions)}; it must be a number", "dimensions")
    return Query(texts, _subjects(content, len(texts), bounds), encoding or "float", dimensions)


def _texts(value: Any, bounds: Bounds) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise bad_input(f"'input' is {_kind(value)}; it must be a string or strings", "input")
    if not 1 <= len(items) <= bounds.texts:
        raise bad_input(
            f"'input' has {len(items):,} texts; it must have 1 to {bounds.texts:,}", "input"
        )
    # One text as token ids, or a list of such texts.
    if all(_is_number(item) or isinstance(item, list) for item in items):
        raise bad_input(_LANGCHAIN, "input", "token_arrays_not_supported")
    for place, item in enumerate(items):
        if not isinstance(item, str):
            raise bad_input(f"'input' number {place} is {_kind(item)}, not a string", "input")
        if not item:
            raise bad_input(f"'input' number {place} is empty", "input")
        if len(item) > bounds.characters:
            raise bad_input(
                f"'input' number {place} has more than {bounds.characters:,} characters; no "
                "encoder reads so many: cut it into passages",
                "input",
                "string_above_max_length",
            )
    return tuple(items)


def _subjects(content: Mapping[str, Any], count: int, bounds: Bounds) -> tuple[str, ...] | None:
    """About whom each text is, from `user` (all of them) or `subjects` (one for each text)."""
    user, subjects = content.get("user"), content.get("subjects")
    if user is not None and subjects is not None:
        raise bad_input("give 'user' (one person) or 'subjects' (one for each text), not both")
    if user is not None:
        return (_person(user, "user", bounds),) * count
    if subjects is None:
        return None
    if not isinstance(subjects, list):
        raise bad_input(f"'subjects' is {_kind(subjects)}; it must be a list", "subjects")
    if len(subjects) != count:
        raise bad_input(
            f"'subjects' has {len(subjects):,} entries for {count:,} texts; give one for each",
            "subjects",
        )
    return tuple(_person(item, "subjects", bounds) for item in subjects)


def _person(value: Any, field: str, bounds: Bounds) -> str:
    if not isinstance(value, str) or not normalise_person(value):
        raise bad_input(f"'{field}' must name a person: a string that is not empty", field)
    if len(value) > bounds.person:
        raise bad_input(f"'{field}' has more than {bounds.person} characters", field)
    return value


def parse_idempotency_key(value: str | None) -> str | None:
    """The header as it is, where it is one; printable ASCII, so that no proxy changes it."""
    if value is None:
        return None
    if not 1 <= len(value) <= 255 or not value.isascii() or not value.isprintable():
        raise bad_input("Idempotency-Key must be 1 to 255 printable ASCII characters")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    """The JSON type of a value, and nothing of the value."""
    if value is None:
        return "missing or null"
    if isinstance(value, bool):
        return "true or false"
    kinds = {str: "a string", list: "a list", dict: "an object", int: "a number", float: "a number"}
    return kinds[type(value)]


# ---- OpenAPI -------------------------------------------------------------------------------------

_PERSON = {"type": "string", "minLength": 1, "maxLength": Bounds.person}
_TEXT = {"type": "string", "minLength": 1, "maxLength": Bounds.characters}
_VECTOR = {"oneOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]}


def query_schema(model: str) -> dict[str, Any]:
    """The request as JSON Schema."""
    return {
        "type": "object",
        "required": ["input", "model"],
        "properties": {
            "input": {
                "oneOf": [
                    _TEXT,
                    {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": Bounds.texts},
                ]
            },
            "model": {"type": "string", "enum": [model]},
            "encoding_format": {"type": "string", "enum": list(_FORMATS), "default": "float"},
            "dimensions": {"type": "integer", "description": "only the recipe's own"},
            "user": {**_PERSON, "description": "the person whom all texts are about"},
            "subjects": {
                "type": "array",
                "items": _PERSON,
                "description": "the person whom each text is about, in order, instead of 'user'",
            },
        },
    }


ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["object", "data", "model", "usage", "privacy"],
    "properties": {
        "object": {"const": "list"},
        "data": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["object", "index", "embedding"],
                "properties": {
                    "object": {"const": "embedding"},
                    "index": {"type": "integer"},
                    "embedding": _VECTOR,
                },
            },
        },
        "model": {"type": "string"},
        "usage": {
            "type": "object",
            "properties": {
                "prompt_tokens": {"type": "integer"},
                "total_tokens": {"type": "integer"},
            },
        },
        "privacy": {
            "type": "object",
            "required": ["epsilon", "delta", "unit", "charged", "left", "repeats"],
            "properties": {
                "epsilon": {"type": "number", "description": "of one release of one text"},
                "delta": {"type": "number"},
                "unit": {"type": "string"},
                "charged": {"type": "number", "description": "ε, over all people of this request"},
                "left": {"type": "number", "description": "ε, of the person who has least"},
                "left_by_text": {"type": "array", "items": {"type": "number"}},
                "repeats": {"type": "string", "enum": ["same", "fresh"]},
                "guarantee": {"type": "string"},
            },
        },
    },
}
ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def describe_refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The answers of a route that are refusals, for OpenAPI."""
    content = {"application/json": {"schema": ERROR_SCHEMA}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


_REASONS = {
    400: "what was asked cannot be understood",
    401: "no key, or none that is known",
    403: "the key may not ask this",
    404: "no such model",
    408: "the body came too slowly",
    409: "the Idempotency-Key was used for another body",
    413: "the body is too long",
    415: "the body is not declared to be JSON",
    429: "a budget is exhausted",
    500: "a fault of the gateway",
    503: "the store or the queue has no room now",
}


def refuse_media(content_type: str) -> Refusal | None:
    """A refusal where a body is not declared as JSON.

    A web page anywhere may make a browser post a form or plain text to this machine, without
    asking; it may not post JSON. So nobody's budget is spent by a page that somebody visits.
    """
    if content_type.partition(";")[0].strip().lower() == "application/json":
        return None
    return Refusal(
        415, "send the body as Content-Type: application/json", code="unsupported_media_type"
    )
