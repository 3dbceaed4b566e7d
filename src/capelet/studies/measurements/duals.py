"""Cells of dual encoders: trained here against readers of words and writers, then attacked.

Nothing that is attacked was learnt from. With `unseen = "authors"` half of the people are held
back, so that the writers to be told apart are new to the encoder and to its adversary; with
`"texts"` half of the texts of everybody are, the kinder case for the defence, which has met these
writers. Words are read from single sentences; writers from one sentence of each text, and from
whole texts as the mean of their sentences. What is left is worth something or not by the sentence
tasks of the paper (Song, Raghunathan 2020, sections 6.1 and 7).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capelet.data.corpus import Corpus
from capelet.data.splits import group_rows
from capelet.data.text import sentences_of, words_of
from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.findings import Finding
from capelet.interfaces import Encoder, Vectors
from capelet.studies.cell import Cell, Measurement
from capelet.studies.measurements.inputs import (
    check_task,
    corpus_of,
    measurement_of,
    start_table,
)
from capelet.studies.measurements.inversion import VICTIMS

if TYPE_CHECKING:
    from capelet.release import PrivateEncoder

UNSEEN = ("authors", "texts")
STARTS = ("glove",)
# Whose text it is, asked of the mean of all its sentences beside one of them.
OF_TEXTS = "author of texts"
# How a dual encoder is trained: a laptop's share of the paper's sizes.
TRAINING_KEYS: dict[str, Any] = {
    "network": "lstm",
    "width": 64,
    "layers": 1,
    "dimension": 64,
    "vocabulary": 5000,
    "length": 30,
    "epochs": 2,
    "batch": 256,
    "rate": None,
    "start": None,
    "fewest": 5,
}
DUAL_KEYS: dict[str, Any] = {
    **TRAINING_KEYS,
    "lambda_words": 0.0,
    "lambda_authors": 0.0,
    "negatives": "any",
    "asked": None,
    "unseen": "authors",
    "attacks": ("multi-set",),
    "options": None,
    "most": None,
    "victims": None,
    "shots": 5,
    "writers": 50,
    "baseline": None,
    "tasks": (),
}


def check_dual(inputs: Mapping[str, Any]) -> None:
    """Refuse names that no corpus could make right."""
    from capelet.encoders.dual_networks import NETWORKS
    from capelet.evaluation.inversion import check_attacks
    from capelet.evaluation.sentences import TASKS

    check_attacks(inputs["attacks"])
    for what, names, table in (
        ("network", [inputs["network"]], NETWORKS),
        ("sentence task", inputs["tasks"], TASKS),
        ("kind of unseen texts", [inputs["unseen"]], UNSEEN),
        ("table of words to start from", [inputs["start"] or STARTS[0]], STARTS),
    ):
        for name in names:
            if name not in table:
                raise CapeletError(f"there is no {what} {name!r}; {did_you_mean(str(name), table)}")


def measure_dual(cell: Cell) -> Measurement:
    """Train a dual encoder on one half of the texts, and read words and writers of the other."""
    inputs, corpus = cell.inputs, corpus_of(cell)
    own, other = (corpus.take(rows) for rows in _halves(corpus, inputs["unseen"], cell.seed))
    unseen = _Unseen.of(other)
    rows: list[Finding] = []
    with trained_dual(cell, own) as private:
        rows += _inversion_rows(cell, unseen, private)
        rows += _authorship_rows(cell, unseen, private)
        rows += _utility_rows(cell, private)
    # Its folder is gone, and so is the name that it had there.
    return measurement_of(rows, cell)


def halves_by_person(corpus: Corpus, seed: int) -> np.ndarray[Any, Any]:
    """Which rows belong to one half of the people: a row's own text never tells of the others."""
    groups = group_rows(corpus)
    half = np.random.default_rng([seed, 0xD0]).permutation(int(groups.max()) + 1) % 2 == 0
    return half[groups]


def _halves(corpus: Corpus, unseen: str, seed: int) -> tuple[Any, Any]:
    """Rows to learn from, and rows that are attacked."""
    if corpus.texts is None:
        raise DataError(f"a dual encoder learns from texts, and {corpus.name!r} has none")
    if unseen == "texts":
        # Without their authors rows are grouped by identical texts alone.
        corpus = replace(corpus, author=None)
    inside = halves_by_person(corpus, seed)
    return np.flatnonzero(inside), np.flatnonzero(~inside)


@contextmanager
def trained_dual(cell: Cell, own: Corpus) -> Iterator[PrivateEncoder]:
    """The encoder that learns from these texts, as whoever holds its folder opens it."""
    from capelet.defences.contrastive import Contrastive, Sentences
    from capelet.encoders import load
    from capelet.release import PrivateEncoder

    assert own.texts is not None
    # A cell of another kind names its network `model`, and leaves sizes as they are here.
    inputs = {**TRAINING_KEYS, "network": cell.inputs.get("model"), **cell.inputs}
    names = {item.name for item in fields(Contrastive)} - {"seed", "device"}
    settings = {key: inputs[key] for key in names & set(inputs) if inputs[key] is not None}
    writers = None if own.author is None else own.author.tolist()
    fewest = int(inputs["fewest"])
    sentences = Sentences.of(own.texts.tolist(), writers, fewest=fewest)
    training = Contrastive(**settings, seed=cell.seed, device="cpu")
    dual = training.fit(sentences, start_table(cell))
    with tempfile.TemporaryDirectory() as folder:
        encoder: Encoder = load(str(dual.save(Path(folder) / "dual")))
        yield PrivateEncoder(encoder)


@dataclass(frozen=True, eq=False)
class _Unseen:
    """Sentences of 5 to 20 words of the texts that are attacked, and whose they are."""

    sentences: list[str]
    texts: np.ndarray[Any, Any]
    authors: np.ndarray[Any, Any] | None

    @classmethod
    def of(cls, corpus: Corpus) -> _Unseen:
        assert corpus.texts is not None
        pieces, owner = sentences_of(corpus.texts.tolist())
        authors = None if corpus.author is None else corpus.author.astype(str)[owner]
        return cls(pieces, owner, authors)


def _inversion_rows(cell: Cell, unseen: _Unseen, private: PrivateEncoder) -> Sequence[Finding]:
    from capelet.evaluation.inversion import Inversion

    inputs = cell.inputs
    # The tag keeps this draw apart from the halves, which start from the same seed.
    order = np.random.default_rng([cell.seed, 0xD1]).permutation(len(unseen.sentences))
    sample = np.sort(order[: inputs.get("most")])
    # Sentences of one text stay together, as do all of one author.
    owners = unseen.texts if unseen.authors is None else unseen.authors
    attack = Inversion(
        attacks=tuple(inputs.get("attacks", ())),
        victims=int(inputs.get("victims", VICTIMS)),
        seed=cell.seed,
        options=inputs.get("options"),
    )
    if not attack.attacks:
        return []
    texts = [unseen.sentences[row] for row in sample]
    return attack.measure(texts, private, authors=owners[sample].tolist()).rows


def _authorship_rows(cell: Cell, unseen: _Unseen, private: PrivateEncoder) -> list[Finding]:
    """Few-shot attackers, linear and a perceptron, of one sentence and of the whole text."""
    from capelet.evaluation.authorship import PROBES, Authorship

    if unseen.authors is None:
        return []
    inputs = cell.inputs
    texts, first, owner = np.unique(unseen.texts, return_index=True, return_inverse=True)
    # One sentence of each text: others of the same text would tell of it, not of the writer.
    random = np.random.default_rng([cell.seed, 0xD2])
    single = first + random.integers(np.bincount(owner))
    vectors = private.release(unseen.sentences).vectors
    means = np.zeros((len(texts), vectors.shape[1]))
    np.add.at(means, owner, vectors)
    means /= np.bincount(owner)[:, None]
    authors = unseen.authors[first].tolist()
    words = [words_of(unseen.sentences[row]) for row in single]
    few = Authorship(int(inputs["shots"]), int(inputs["writers"]), seeds=[cell.seed])
    rows: list[Finding] = []
    for probe in PROBES:
        attack = replace(few, probe=probe)
        # The network on the text is asked once, of the sentence that the vectors are made of.
        read = words if inputs.get("baseline") and not rows else None
        rows += attack.measure(vectors[single], authors, read)
        whole = attack.measure(means, authors)
        rows += [replace(row, target=OF_TEXTS) for row in whole]
    return rows


def _utility_rows(cell: Cell, private: PrivateEncoder) -> list[Finding]:
    from capelet.evaluation.sentences import SentenceTask, measure_all

    def encode(texts: Sequence[str]) -> Vectors:
        return private.release(list(texts)).vectors

    names = tuple(cell.inputs.get("tasks", ()))
    for name in names:
        check_task(cell, name)
    return measure_all(encode, [SentenceTask.load(name) for name in names]) if names else []
