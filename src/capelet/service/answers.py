"""Answers in OpenAI's shape, with what they cost beside the vectors and again in headers.

Headers, since some clients (LiteLLM) drop fields of the body that they do not know.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import orjson

from capelet.interfaces import Vectors
from capelet.ledger.settlement import Settlement
from capelet.privacy.guarantees import Guarantee
from capelet.release.charging import Repeats
from capelet.service.schemas import EncodingFormat


def describe_privacy(
    settlement: Settlement, guarantee: Guarantee, repeats: Repeats, charged_before: int | None
) -> dict[str, Any]:
    """What these vectors promise, what they cost, and what is left to whom they are about.

    The answer to an Idempotency-Key that was used before says what the first one was charged.
    """
    charges = int(settlement.is_new.sum()) if charged_before is None else charged_before
    left = [float(epsilon) for epsilon in settlement.left]
    privacy = {
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "unit": guarantee.unit,
        "charged": charges * guarantee.epsilon,
        "left": min(left),
        "repeats": repeats,
        "guarantee": guarantee.sentence(),
    }
    return privacy if len(set(left)) == 1 else {**privacy, "left_by_text": left}


def privacy_headers(privacy: dict[str, Any]) -> dict[str, str]:
    names = ("epsilon", "delta", "unit", "charged", "left", "repeats")
    return {f"x-capelet-{name}": f"{privacy[name]}" for name in names}


def write_answer(
    vectors: Vectors, encoding: EncodingFormat, model: str, tokens: int, privacy: dict[str, Any]
) -> bytes:
    """The body of an answer; the same stored vectors always give the same bytes."""
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    data = [
        {"object": "embedding", "index": place, "embedding": _embedding(row, encoding)}
        for place, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = {"object": "list", "data": data, "model": model, "usage": usage, "privacy": privacy}
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def _embedding(row: Vectors, encoding: EncodingFormat) -> Any:
    return base64.b64encode(row.tobytes()).decode() if encoding == "base64" else row
