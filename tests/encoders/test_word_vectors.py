"""Word vectors from text files of one's own."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from capelet.encoders import WordFileEncoder, load
from capelet.errors import EncoderError

LINES = "the 1 0\ndog 0 2.5\nThe 9 9\n"


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


@pytest.mark.parametrize("header", ["", "3 2\n"])
@pytest.mark.parametrize("name", ["own.txt", "own.vec"])
def test_a_text_file_is_a_table(tmp_path: Path, header: str, name: str) -> None:
    encoder = load(write(tmp_path / name, header + LINES))
    assert isinstance(encoder, WordFileEncoder) and encoder.dimension == 2
    # The first spelling of a word counts: such files are sorted by frequency.
    np.testing.assert_allclose(
        encoder.encode(["The dog", "zebra", "dog dog the"]), [[0.5, 1.25], [0, 0], [1 / 3, 5 / 3]]
    )
    again = pickle.loads(pickle.dumps(encoder))
    assert again.fingerprint == encoder.fingerprint
    other = load(write(tmp_path / f"other-{name}", LINES.replace("2.5", "2.6")))
    assert other.fingerprint != encoder.fingerprint


def test_a_table_of_glove_agrees_with_the_package(tmp_path: Path) -> None:
    names, table = load("glove").token_table()  # type: ignore[attr-defined]
    rows = [" ".join([name, *map(str, row)]) for name, row in zip(names[:500], table, strict=False)]
    encoder = load(write(tmp_path / "glove.txt", "\n".join(rows)))
    text = ["the president said that it was not good"]
    words = set(text[0].split())
    assert words <= set(names[:500])
    np.testing.assert_allclose(encoder.encode(text), load("glove").encode(text), atol=1e-6)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no word vectors"),
        ("the 1 2\ndog secret 4\n", "line 2 of"),
        ("the 1 2\ndog 3\n", "line 2 of .* has 1 numbers"),
        ("the 1 nan\n", "line 1 of"),
        (b"3 2\nthe \xff\xfe\x00\x80", "not text in UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_refused(
    tmp_path: Path, content: str | bytes, sentence: str
) -> None:
    path = write(tmp_path / "own.txt", content)
    with pytest.raises(EncoderError, match=sentence) as error:
        load(path).encode(["the dog"])
    assert "secret" not in str(error.value)
