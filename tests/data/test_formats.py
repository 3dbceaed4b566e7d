"""Encodings and separators: seen from the bytes, and refused rather than guessed in an audit."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from capelet.data.formats import SEPARATORS, Format, detect_encoding, detect_separator
from capelet.data.readers import read
from capelet.errors import DataError

NAMES = ["Was, genau?", "Größe", 'Sein "Name"']
LINES = [["schön; und gut, nicht wahr?", "1", "Jörg"], ['er sagte "ja"|nein', "2", "Zoë"]] * 5
ENCODINGS = {
    "utf-8": "utf-8",
    "utf-8-sig": "utf-8-sig",
    "utf-16": "utf-16",
    "utf-16-le": "utf-16-le",
    "utf-16-be": "utf-16-be",
    "latin-1": "cp1252",  # its printable letters are the same in both
    "cp1252": "cp1252",
}


def write(path: Path, encoding: str, separator: str) -> Path:
    with path.open("w", encoding=encoding, newline="") as stream:
        csv.writer(stream, delimiter=separator).writerows([NAMES, *LINES])
    return path


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("separator", SEPARATORS)
def test_what_is_detected_reads_the_file(tmp_path: Path, encoding: str, separator: str) -> None:
    path = write(tmp_path / "x.csv", encoding, separator)
    assert detect_encoding(path) == ENCODINGS[encoding]
    assert detect_separator(path, ENCODINGS[encoding]) == separator
    corpus = read(
        path,
        text=NAMES[0],
        author=NAMES[2],
        encoding=ENCODINGS[encoding],
        separator=SEPARATORS[separator],
    )
    assert corpus.texts is not None and corpus.texts.tolist() == [line[0] for line in LINES]
    assert corpus.author is not None and corpus.author.tolist() == [line[2] for line in LINES]


def test_marks_are_proof_and_latin_1_is_not(tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert len(read(write(tmp_path / "x.csv", encoding, ","), text=NAMES[0])) == len(LINES)
    with pytest.raises(DataError, match="looks like cp1252: give encoding="):
        read(write(tmp_path / "x.csv", "latin-1", ","), text=NAMES[0])
    with pytest.raises(DataError, match='give separator="semicolon"'):
        read(write(tmp_path / "y.csv", "utf-8", ";"), text=NAMES[0])


def test_bytes_that_cp1252_lacks_are_latin_1(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n\x81\xe9,1\n")
    assert detect_encoding(tmp_path / "x.csv") == "latin-1"


@pytest.mark.parametrize("encoding", ["nonsense", "base64", "rot13", "idna"])
def test_only_encodings_of_text_are_taken(encoding: str) -> None:
    with pytest.raises(DataError, match="encoding="):
        Format(encoding)


@pytest.mark.parametrize("separator", ["", "ab", '"', "x", "\n", "ö"])
def test_only_signs_are_separators(separator: str) -> None:
    with pytest.raises(DataError, match="separator= is one sign"):
        Format(separator=separator)
    assert Format(separator="TAB").separator == "\t"
