"""Cells of membership: a model learns from one half of the people, and every text is asked for.

Word vectors are asked for windows of words (Song, Raghunathan 2020, figure 4), dual encoders for
pairs of neighbouring sentences, and for all pairs of a writer together (figure 5); both by how
frequent the words are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from capelet.data.corpus import Corpus
from capelet.data.splits import group_rows
from capelet.data.text import words_of
from capelet.errors import CapeletError, did_you_mean
from capelet.findings import Findings
from capelet.studies.cell import Cell, Measurement
from capelet.studies.measurements.duals import TRAINING_KEYS, trained_dual
from capelet.studies.measurements.inputs import corpus_of, measurement_of
from capelet.studies.word_models import KINDS as WORD_MODELS

# What the training of words and that of sentences share, and what only one of them reads.
MEMBERSHIP_KEYS: dict[str, Any] = {
    **{key: None for key in TRAINING_KEYS if key != "network"},
    "model": "word2vec",
    "dimension": 100,
    "epochs": 5,
    "least": 5,
    "window": 5,
}


def check_model(inputs: Mapping[str, Any]) -> None:
    """Refuse a model that is not known, and sizes that it does not have."""
    from capelet.encoders.dual_networks import NETWORKS

    name, models = inputs["model"], (*WORD_MODELS, *NETWORKS)
    if name not in models:
        raise CapeletError(f"there is no model {name!r}; {did_you_mean(str(name), models)}")
    for key in TRAINING_KEYS:
        if name in WORD_MODELS and key not in ("dimension", "epochs") and inputs.get(key):
            raise CapeletError(f"the word model {name!r} has no {key!r}; correct the plan")


def measure_membership(cell: Cell) -> Measurement:
    """Train a model on the texts of half of the people, then ask of every text."""
    corpus = corpus_of(cell)
    groups = group_rows(corpus)
    # By person: a model that knows one text of a writer knows something of the others.
    half = np.random.default_rng([cell.seed, 0x4D]).permutation(int(groups.max()) + 1) % 2 == 0
    attack = _of_words if cell.inputs["model"] in WORD_MODELS else _of_sentences
    return measurement_of(attack(cell, corpus, half[groups]).rows, cell)


def _of_words(cell: Cell, corpus: Corpus, member: np.ndarray[Any, Any]) -> Findings:
    from capelet.evaluation.membership import Membership, texts_of
    from capelet.studies.word_models import WordTraining

    inputs, texts = cell.inputs, texts_of(corpus)
    training = WordTraining(
        inputs["model"],
        dimension=int(inputs["dimension"]),
        epochs=int(inputs["epochs"]),
        least=int(inputs["least"]),
        seed=cell.seed,
    )
    table = training.fit([words_of(texts[row]) for row in np.flatnonzero(member)])
    attack = Membership(window=int(inputs["window"]), seed=cell.seed)
    return attack.of_words(corpus, member, table)


def _of_sentences(cell: Cell, corpus: Corpus, member: np.ndarray[Any, Any]) -> Findings:
    from capelet.evaluation.membership import Membership

    attack = Membership(seed=cell.seed, by_frequency=True)
    with trained_dual(cell, corpus.take(np.flatnonzero(member))) as private:
        return attack.of_encoder(corpus, member, private)
