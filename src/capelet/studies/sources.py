"""Where a study's texts come from, and its encoders: named sets, or files with their columns.

Workers read the corpus themselves, each once, and check that it is the one of the plan: a node of
a cluster may have another file under the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from capelet.data.corpus import Corpus
from capelet.data.datasets import DATASETS, is_available, load, path
from capelet.data.official import column_of
from capelet.data.readers import read
from capelet.data.splits import group_rows
from capelet.encoders import load as load_encoder
from capelet.encoders import with_cache
from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.interfaces import Encoder
from capelet.studies.cell import Encoding
from capelet.studies.documents import check_keys

# Texts of one encoding task: a few seconds of MiniLM, so that two workers end at about one time.
BLOCK = 2048


@dataclass(frozen=True)
class Source:
    """A corpus by its name in the plan; a file has its columns here, a named set knows its own."""

    name: str
    set: str | None = None
    file: str | None = None
    text: str | None = None
    label: str | None = None
    private: tuple[str, ...] = ()
    author: str | None = None
    where: str | None = None
    official: str | None = None

    @classmethod
    def of(cls, name: str, entries: Mapping[str, Any], folder: Path) -> Source:
        """The source of that name; `entries` is the plan's table of corpora."""
        if name not in entries:
            if name not in DATASETS:
                hint = did_you_mean(name, [*entries, *DATASETS])
                raise DataError(f"the plan names the set {name!r}, which is not known; {hint}")
            if not is_available(name):
                path(name)  # says where the set comes from and where to put it
            return cls(name)
        entry = dict(entries[name])
        keys = [item.name for item in fields(cls) if item.name != "name"]
        check_keys(entry, keys, f"the corpus {name!r} of the plan")
        if ("file" in entry) == ("set" in entry):
            raise CapeletError(f"the corpus {name!r} of the plan needs a 'file' or a 'set'")
        if "set" in entry:
            return cls._view_of_set(name, entry)
        file = (folder / str(entry["file"])).resolve()
        if not file.is_file():
            raise DataError(f"the corpus {name!r} of the plan has no file {str(file)!r}")
        return cls(name, **{**entry, "file": str(file), "private": _names(entry.get("private"))})

    @classmethod
    def _view_of_set(cls, name: str, entry: Mapping[str, Any]) -> Source:
        """A named set with other columns, or some of its rows; "" takes a column away."""
        about = DATASETS.get(str(entry["set"]))
        if about is None:
            hint = did_you_mean(str(entry["set"]), DATASETS)
            raise DataError(f"there is no data set {entry['set']!r}; {hint}")
        path(str(entry["set"]))
        known = {"text": "text", "label": about.label, "author": about.author}
        columns: dict[str, Any] = {key: value or None for key, value in {**known, **entry}.items()}
        private = _names(entry.get("private", about.private))
        return cls(name, **{**columns, "set": str(entry["set"]), "private": private})

    def for_split(self, kind: str) -> Source:
        """The source with the column that a split by official parts needs."""
        column = column_of(kind)
        return self if column is None else replace(self, official=column)

    def read(self) -> Corpus:
        if self.set is None and self.file is None:
            return load(self.name, official=self.official)
        return read(
            self.file or path(str(self.set)),
            text=self.text,
            label=self.label,
            private=self.private,
            author=self.author,
            where=self.where,
            official=self.official,
        )


def _names(value: Any) -> tuple[str, ...]:
    if not value:
        return ()
    return (value,) if isinstance(value, str) else tuple(map(str, value))


@lru_cache(maxsize=4)
def corpus_and_digest(source: Source) -> tuple[Corpus, str]:
    """The whole corpus and the hash of its content; read once in each process."""
    corpus = source.read()
    return corpus, corpus.digest()


@lru_cache(maxsize=4)
def sample(source: Source, rows: int | None, digest: str | None = None) -> Corpus:
    """About so many rows, whole people: the same for every seed, since it is no part of a split."""
    corpus, content = corpus_and_digest(source)
    if digest is not None and digest != content:
        raise DataError(
            f"the corpus {source.name!r} here is not the one of the plan (its content differs); "
            "give every machine the same files"
        )
    if rows is None or rows >= len(corpus):
        return corpus
    groups = group_rows(corpus)
    # People in random order until there are enough rows; a person's texts stay together.
    order = np.random.default_rng([0x57, rows]).permutation(int(groups.max()) + 1)
    sizes = np.bincount(groups)[order]
    count = int(np.searchsorted(np.cumsum(sizes), rows, side="right"))
    members = np.zeros(len(order), dtype=bool)
    members[order[: max(count, 1)]] = True
    return corpus.take(np.flatnonzero(members[groups]))


@lru_cache(maxsize=8)
def encoder_of(name: str, fingerprint: str | None = None) -> Encoder:
    """The encoder behind the cache; refused where it has other weights than the plan's."""
    encoder = with_cache(load_encoder(name))
    if fingerprint is not None and encoder.fingerprint != fingerprint:
        raise CapeletError(
            f"the encoder {name!r} here is not the one of the plan (its fingerprint differs: other "
            "weights, back-end or versions)"
        )
    return encoder


def encodings_of(source: Source, rows: int | None, encoder: str) -> list[Encoding]:
    """The work of encoding a corpus, in blocks."""
    count = len(sample(source, rows))
    starts = range(0, count, BLOCK)
    return [Encoding(source, rows, encoder, at, min(at + BLOCK, count)) for at in starts]


def encode_rows(task: Encoding) -> None:
    """Put the vectors of a block into the cache."""
    texts = sample(task.source, task.rows).texts
    if texts is not None:
        encoder_of(task.encoder).encode(texts[task.start : task.stop].tolist())
