"""What `findings.json` must look like; whatever else stands in such a file is refused.

A report is drawn from the file alone, and anybody may have edited it. So each field is held to its
type here, once, and no page has to ask what it was given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

# The only form that is read. Raised with every change that would be misread.
SCHEMA = 1
# Numbers beyond this are no measurement: pages could not draw them.
_LARGEST = 1e18

_TEXTS = ("kind", "target", "metric")
_TEXTS_OR_NULL = ("attacker", "subgroup", "recipe_hash")
_NUMBERS_OR_NULL = ("value", "low", "high", "chance", "majority", "ceiling")
_COUNTS_OR_NULL = ("n", "seed")


class OtherSchemaError(ValueError):
    """The document has another schema number; `schema` is that number."""

    def __init__(self, schema: int) -> None:
        super().__init__("another schema")
        self.schema = schema


def parse_json(content: bytes | str) -> Any:
    """JSON as Capelet writes it, without NaN; a ValueError for anything else."""
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    # Nested thousands deep: nobody's findings.
    except RecursionError:
        raise ValueError("nested too deeply") from None


def check_document(document: Any) -> None:
    """A ValueError that names the first field which is not as the schema has it, never its value.

    >>> check_document({"schema": 1, "provenance": {}, "recipe": {}, "findings": [{"kind": 3}]})
    Traceback (most recent call last):
    ValueError: finding 0 has no text 'kind'
    """
    if not isinstance(document, dict) or not _is_count(document.get("schema")):
        raise ValueError("it has no schema number")
    if document["schema"] != SCHEMA:
        raise OtherSchemaError(document["schema"])
    for name in ("provenance", "recipe"):
        if not isinstance(document.get(name), dict):
            raise ValueError(f"it has no object {name!r}")
    if not isinstance(document.get("findings"), list):
        raise ValueError("it has no list 'findings'")
    for place, row in enumerate(document["findings"]):
        _check_finding(row, f"finding {place}")
    names = document.get("artefacts")
    if not isinstance(names, list) or not all(isinstance(n, str) and _is_plain(n) for n in names):
        raise ValueError("its 'artefacts' are no list of names")


def _check_finding(row: Any, where: str) -> None:
    if not isinstance(row, dict):
        raise ValueError(f"{where} is no object")
    for name in _TEXTS:
        if not isinstance(row.get(name), str):
            raise ValueError(f"{where} has no text {name!r}")
    if "value" not in row:
        raise ValueError(f"{where} has no 'value'")
    kinds: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
        (_TEXTS_OR_NULL, lambda value: isinstance(value, str), "text"),
        (_NUMBERS_OR_NULL, _is_number, "number"),
        (_COUNTS_OR_NULL, _is_count, "whole number"),
    )
    for names, fits, kind in kinds:
        for name in names:
            if row.get(name) is not None and not fits(row[name]):
                raise ValueError(f"{where} has a {name!r} that is no {kind}")
    if not isinstance(row.get("degenerate", False), bool):
        raise ValueError(f"{where} has a 'degenerate' that is neither true nor false")
    if not isinstance(row.get("parameters", {}), Mapping):
        raise ValueError(f"{where} has 'parameters' that are no object")


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value) and abs(value) <= _LARGEST


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_plain(name: str) -> bool:
    """Whether a name stays inside its folder."""
    return bool(name) and name not in (".", "..") and not set(name) & {"/", "\\", "\0"}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
