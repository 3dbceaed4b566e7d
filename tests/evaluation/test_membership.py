"""Membership asked of a table of words and of an encoder: found where they remember."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.encoders.word_vectors import read_word_vectors
from capelet.errors import DataError, EncoderError
from capelet.evaluation.membership import Membership
from capelet.release import PrivateEncoder
from invented import TRAINING, texts_of_words


def people(texts: list[str], authors: list[str] | None = None) -> Corpus:
    return Corpus("made here", texts=texts, author=authors)  # type: ignore[arg-type]


def test_the_whole_attack_on_a_table_and_its_file(tmp_path: Path) -> None:
    texts = texts_of_words(1200)
    model = TRAINING.fit(texts[:600])
    path = tmp_path / "table.txt"
    lines = [f"{len(model[0])} 100"] + [
        f"{word} " + " ".join(f"{number:.6f}" for number in row)
        for word, row in zip(model[0], model[1], strict=True)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    table = read_word_vectors(path)
    assert np.allclose(table[1], model[1], atol=1e-5)
    joined = [" ".join(text) for text in texts]
    found = Membership(window=3).of_words(people(joined), np.arange(1200) < 600, table)
    whole = [row for row in found.select(kind="membership", metric="auc") if row.subgroup is None]
    assert whole[0].value > 0.52
    assert found.select(kind="membership-null", metric="advantage")
    # With authors, who is known and who is resampled are people, not texts.
    writers = [str(number // 30) for number in range(1200)]
    by_author = Membership(window=3).of_words(people(joined, writers), np.arange(1200) < 600, table)
    row, same = (
        next(row for row in one.select(kind="membership", metric="auc") if row.subgroup is None)
        for one in (by_author, found)
    )
    assert row.low is not None and row.high is not None and row.low < row.value < row.high
    assert row.value != same.value and row.value == pytest.approx(same.value, abs=0.05)


class Twin:
    """An encoder that gives neighbouring sentences of members nearly one vector."""

    name = backend = fingerprint = "twin"
    dimension = 8

    def __init__(self, remembers: bool) -> None:
        self.remembers = remembers

    def encode(self, texts: list[str], progress: object = None) -> np.ndarray:
        made = []
        for text in texts:
            number = int(text.split()[1])
            own = np.random.default_rng([number, len(text) % 97, zlib.crc32(text.encode())])
            shared = np.random.default_rng(number).normal(size=8)
            near = 1.0 if self.remembers and number < 60 else 0.0
            made.append(near * shared + own.normal(size=8))
        return np.stack(made).astype(np.float32)

    def truncated(self, texts: list[str]) -> np.ndarray:
        return np.zeros(len(texts), dtype=bool)


def test_pairs_of_an_encoder_and_writers() -> None:
    texts = [
        " ".join(f"Text {row} has the sentence {part}." for part in range(5)) for row in range(120)
    ]
    member = np.arange(120) < 60
    writers = [f"p{row // 4}" for row in range(120)]
    for remembers in (True, False):
        found = Membership().of_encoder(
            people(texts, writers), member, PrivateEncoder(Twin(remembers))
        )
        pairs = found.value(kind="membership", target="pairs", attacker="cosine", metric="auc")
        group = found.value(kind="membership", target="aggregates", attacker="cosine", metric="auc")
        assert (pairs > 0.7) is remembers
        assert (group > 0.8) is remembers


class RemembersRareWords:
    """An encoder that gives the sentences of a member text one direction, if their words are rare.

    What it knows of membership stands in the texts' own first word: `in` or `out`.
    """

    name, backend, dimension, fingerprint = "remembers", "none", 16, "remembers"

    def encode(self, texts: Sequence[str], progress: Any = None) -> Any:
        rows = []
        for text in texts:
            words = text.lower().replace(".", "").split()
            random = np.random.default_rng(zlib.crc32(text.encode()))
            row = random.normal(size=16)
            if words[1] == "in" and words[2].startswith("rare"):
                row += 8 * np.random.default_rng(zlib.crc32(words[0].encode())).normal(size=16)
            rows.append(row)
        return np.array(rows, dtype=np.float32)

    def truncated(self, texts: Sequence[str]) -> Any:
        return np.zeros(len(texts), dtype=bool)


def test_pairs_by_frequency_show_where_an_encoder_remembers() -> None:
    texts, member = [], []
    for number in range(400):
        side = "in" if number % 2 else "out"
        word = f"rare{number}" if number % 4 < 2 else "frequent"
        texts.append(" ".join(f"Text{number} {side} {word} {word} tail{part}." for part in "abcd"))
        member.append(side == "in")
    attack = Membership(choices=2, by_frequency=True)
    private = PrivateEncoder(RemembersRareWords())
    findings = attack.of_encoder(people(texts), member, private)
    plain = replace(attack, by_frequency=False).of_encoder(people(texts), member, private)
    tenths = [
        row
        for row in findings.select(kind="membership", target="pairs", metric="advantage")
        if row.subgroup and row.attacker == "cosine"
    ]
    assert len(tenths) == 10 and tenths[0].subgroup == "decile 1 by word frequency"
    assert np.mean([row.value for row in tenths[:4]]) > 0.7
    assert abs(np.mean([row.value for row in tenths[-4:]])) < 0.2
    # What is measured without the option does not change.
    whole = [row for row in findings if row.subgroup is None]
    assert [row.value for row in whole] == [row.value for row in plain]


def test_files_that_are_no_table_and_tables_of_few_words_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("one 1 2\ntwo 1\n", encoding="utf-8")
    with pytest.raises(EncoderError, match="line 2"):
        read_word_vectors(tmp_path / "bad.txt")
    with pytest.raises(EncoderError, match="cannot read"):
        read_word_vectors(tmp_path / "none.txt")
    with pytest.raises(DataError, match="2 word vectors"):
        Membership().of_words(people(["a b", "b a"]), [True, False], (["a", "b"], np.eye(2)))
