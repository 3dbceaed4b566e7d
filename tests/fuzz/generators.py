"""Hostile values, names and files, of a seeded generator."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from fuzz.oracle import DIGITS, SECRET

NAMES = (
    "text", "label", "private", "author", "vector", "", " ", "a,b", 'quo"te', "tab\tname",
    "\x1b[31mred", "ünï", "line\nbreak", "--text", "'", "null", "0", "row", "x" * 300, "\u202eevil",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 10**9, 10**18, 10**20, -(10**30), 1e308, -1e308, 1e-308, 1e-30, 0.5, 1e20,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
BYTES = (b"\xff\xfe", b"\x00", b"\xef\xbb\xbf", b"\r", b'"', b"\xc3\x28", b"\xed\xa0\x80", b",,,,")


def name(rng: random.Random) -> str:
    return rng.choice(NAMES) if rng.random() < 0.5 else rng.choice(NAMES[:5])


def text(rng: random.Random) -> str:
    words = [SECRET + rng.choice("abcdef") * rng.randint(0, 4) for _ in range(rng.randint(0, 6))]
    extra = rng.choice(["", "", "", "\x00", "\u202e", "😀", "a@b.c", " " * 40, "\n", "é" * 9])
    return " ".join(words) + extra


def number(rng: random.Random) -> Any:
    return rng.choice(NUMBERS) if rng.random() < 0.7 else rng.uniform(-9, 9)


def cell(rng: random.Random, depth: int = 0) -> Any:
    """A value of any type, secrets in it wherever they fit."""
    makers = [
        lambda: text(rng), lambda: text(rng), lambda: None, lambda: rng.random() < 0.5,
        lambda: number(rng), lambda: int(DIGITS), lambda: rng.choice(["a", "b", SECRET]),
    ]  # fmt: skip
    if depth < 3:
        makers += [
            lambda: [cell(rng, depth + 1) for _ in range(rng.randint(0, 3))],
            lambda: {name(rng): cell(rng, depth + 1) for _ in range(rng.randint(0, 2))},
        ]
    return rng.choice(makers)()


def column(rng: random.Random, rows: int) -> list[Any]:
    """Values of one kind mostly, as columns are; sometimes anything."""
    kind = rng.choice(
        ["text", "class", "number", "vector", "nested", "any", "id", "same", "people"]
    )
    width = rng.choice([0, 1, 3, 3, 3])
    makers = {
        "text": lambda row: text(rng),
        "class": lambda row: rng.choice(["a", SECRET, None]),
        "number": lambda row: number(rng),
        "vector": lambda row: [number(rng) for _ in range(width)],
        "nested": lambda row: [[1.0, 2.0], [3.0, number(rng)]],
        "any": lambda row: cell(rng),
        "id": lambda row: f"{SECRET}{row}",
        "same": lambda row: SECRET,
        "people": lambda row: f"Ann {SECRET}{row // 3}",
    }
    return [makers[kind](row) for row in range(rows)]


def table(rng: random.Random) -> dict[str, list[Any]]:
    rows = rng.choice([0, 1, 2, 7, 40, 60])
    return {name(rng): column(rng, rows) for _ in range(rng.randint(1, 5))}


def file(rng: random.Random, folder: Path) -> Path:
    """A table in some format, often broken on the way."""
    makers = {"csv": _csv, "tsv": _csv, "jsonl": _jsonl, "parquet": _parquet}
    kind = rng.choice(list(makers))
    path = folder / f"rows.{kind}"
    content = makers[kind](rng, table(rng))
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        place = rng.randint(0, len(content))
        content = content[:place] + rng.choice(BYTES) + content[place + rng.randint(0, 4) :]
    path.write_bytes(content)
    return path


def _csv(rng: random.Random, columns: dict[str, list[Any]]) -> bytes:
    sign = rng.choice([",", ",", ";", "\t", "|"])
    rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    if rng.random() < 0.1:
        rows = rows[1:]
    if rng.random() < 0.1:
        rows = [row + row[:1] for row in rows]

    def quote(value: Any) -> str:
        plain = "" if value is None else str(value)
        doubled = plain.replace('"', '""')
        return f'"{doubled}"' if rng.random() < 0.8 else plain

    lines = [sign.join(map(quote, row)) for row in rows]
    encoding = rng.choice(["utf-8", "utf-8", "utf-16", "latin-1"])
    return "\n".join(lines).encode(encoding, "replace")


def _jsonl(rng: random.Random, columns: dict[str, list[Any]]) -> bytes:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    lines = [json.dumps(row, ensure_ascii=rng.random() < 0.5) for row in rows]
    extra = [
        "", "[" * 3000 + "]" * 3000, '{"text": "\\ud800"}', "3", "{",
        '{"text": ' + "9" * 5000 + "}",
        '{"text": "a", "text": "b"}', "null",
    ]  # fmt: skip
    if rng.random() < 0.3:
        lines.insert(rng.randint(0, len(lines)), rng.choice(extra))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _parquet(rng: random.Random, columns: dict[str, list[Any]]) -> bytes:
    arrays, names = [], []
    for key, values in columns.items():
        try:
            arrays.append(pa.array(values))
        except (pa.ArrowException, OverflowError, UnicodeError):
            arrays.append(pa.array([json.dumps(value) for value in values]))
        names.append(key)
    if rng.random() < 0.2:
        arrays, names = arrays + arrays[:1], names + names[:1]
    metadata = rng.choice(
        [{}, {b"huggingface": b"{"}, {b"huggingface": b'{"info": 3}'}, {b"capelet": b"\xff"}]
    )
    whole = pa.table(arrays, names=names).replace_schema_metadata(metadata or None)
    sink = pa.BufferOutputStream()
    try:
        pa.parquet.write_table(whole, sink)
    except pa.ArrowNotImplementedError:  # a record without fields
        return b"PAR1"
    return bytes(sink.getvalue().to_pybytes())


def mutate(rng: random.Random, document: Any) -> Any:
    """The same JSON document with one place of it replaced, removed or added."""
    if rng.random() < 0.25 or not isinstance(document, dict | list) or not document:
        value = cell(rng)
        # A number in a document, such as an ε, is nobody's secret, and may be told.
        return 7 if value == int(DIGITS) else value
    if isinstance(document, list):
        place = rng.randrange(len(document))
        changed = list(document)
        changed[place] = mutate(rng, document[place])
        return changed[:-1] if rng.random() < 0.1 else changed
    # The number of a format is nobody's secret, and is told.
    key = rng.choice([key for key in document if key not in ("schema", "format")] or [""])
    changed = dict(document)
    action = rng.random()
    if action < 0.15:
        changed.pop(key, None)
    elif action < 0.25:
        changed[name(rng)] = cell(rng)
    else:
        changed[key] = mutate(rng, document.get(key))
    return changed
