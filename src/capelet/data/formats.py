"""How a text file is written down: its encoding, and what parts its columns.

Only what the bytes prove is taken without being told: a byte-order mark, and UTF-8 that decodes. A
file in Latin-1 could as well be in a dozen others, and read wrongly it would still look like text;
so it is refused with the likely encoding, which the user confirms by giving it.
"""

from __future__ import annotations

import codecs
import csv
from dataclasses import dataclass
from pathlib import Path

from capelet.errors import DataError, name_field

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
_WORDS = {word: sign for sign, word in SEPARATORS.items()} | {"\\t": "\t"}
# Kinds of files with rows, by the ends of their names.
KINDS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
}
_BLOCK = 1 << 20
# Enough records to see whether a separator gives them all the same number of cells.
_SAMPLE_BYTES, _SAMPLE_RECORDS = 1 << 18, 60
# Bytes that cp1252 does not define; a file with one of them may be Latin-1.
_NOT_CP1252 = b"\x81\x8d\x8f\x90\x9d"
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class Format:
    """What the user says of a file; None where it is to be seen from the file itself."""

    encoding: str | None = None
    separator: str | None = None
    drop_empty: bool = False  # leave out rows where one of the columns that are read is empty

    def __post_init__(self) -> None:
        if self.encoding is not None:
            _check_encoding(self.encoding)
        if self.separator is not None:
            object.__setattr__(self, "separator", _separator(self.separator))

    def encoding_of(self, path: Path) -> str:
        """The encoding that was asked for, or what the first bytes prove, or UTF-8."""
        return self.encoding or _mark(path) or "utf-8"

    def separator_of(self, path: Path) -> str:
        """The separator that was asked for, or that of the kind of file."""
        return self.separator or ("\t" if path.suffix.lower() == ".tsv" else ",")


def _check_encoding(name: str) -> None:
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # codecs such as base64 are found, too, and are no encodings of text
    except (LookupError, TypeError, ValueError, UnicodeError):
        raise DataError(
            f"{name_field('encoding')} names no encoding of text; give utf-8, utf-16, cp1252 or "
            "latin-1"
        ) from None
    if codec.name in {"idna", "punycode", "unicode_escape", "raw_unicode_escape"}:
        raise DataError(
            f"{name_field('encoding')} must be an encoding of files, such as utf-8 or cp1252"
        )


def _separator(text: str) -> str:
    sign = _WORDS.get(text.lower(), text)
    if len(sign) != 1 or not sign.isascii() or sign.isalnum() or sign in "\"'\r\n":
        raise DataError(
            f"{name_field('separator')} is one sign that is no letter, digit or quote: give , ; | "
            "or tab"
        )
    return sign


def _mark(path: Path) -> str | None:
    with path.open("rb") as stream:
        start = stream.read(4)
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)


def detect_encoding(path: Path) -> str:
    """The encoding of a file: by its mark, by whether all of it is UTF-8, else the likeliest.

    Whatever decodes as UTF-8 and holds more than ASCII is UTF-8: in other encodings such sequences
    of bytes are rare. UTF-16 without a mark has a zero in every other byte of Western text.
    """
    if (by_mark := _mark(path)) is not None:
        return by_mark
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_latin, zeros, is_utf8, total = False, [0, 0], True, 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            zeros = [zeros[0] + block[::2].count(0), zeros[1] + block[1::2].count(0)]
            is_latin |= any(byte in block for byte in _NOT_CP1252)
            total += len(block)
            if is_utf8:
                try:
                    decoder.decode(block)
                except UnicodeDecodeError:
                    is_utf8 = False
    if total and max(zeros) > 0.4 * total / 2 and min(zeros) < 0.1 * max(zeros):
        return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    if is_utf8:
        return "utf-8"
    return "latin-1" if is_latin else "cp1252"


def detect_separator(path: Path, encoding: str) -> str:
    """The sign that parts the first records into the same number of cells, and into the most."""
    with path.open("rb") as stream:
        sample = stream.read(_SAMPLE_BYTES)
    text = sample.decode(encoding, "replace").lstrip("\ufeff")
    lines = text.splitlines(keepends=True)
    # The last line of a sample is cut somewhere.
    lines = lines[:-1] if len(sample) == _SAMPLE_BYTES and len(lines) > 1 else lines
    scores = {sign: _score(lines, sign) for sign in SEPARATORS}
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    return max(scores, key=lambda sign: (scores[sign], sign == usual))


def _score(lines: list[str], separator: str) -> tuple[float, int]:
    """How many records have as many cells as the first, if that is more than one; and how many."""
    widths = []
    try:
        for record in csv.reader(lines, delimiter=separator):
            if record:
                widths.append(len(record))
            if len(widths) == _SAMPLE_RECORDS:
                break
    except csv.Error:
        return 0.0, 0
    if not widths or widths[0] < 2:
        return 0.0, 0
    return round(widths.count(widths[0]) / len(widths), 2), widths[0]
