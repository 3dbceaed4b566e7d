"""Cells of membership: which texts a model was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.studies.cell import Cell, Measurement
from capelet.studies.measurements.inputs import corpus_of, measurement_of


def check_word_model(inputs: Mapping[str, Any]) -> None:
    from capelet.studies.word_models import KINDS as MODELS

    if inputs["model"] not in MODELS:
        hint = did_you_mean(inputs["model"], MODELS)
        raise CapeletError(f"there is no word model {inputs['model']!r}; {hint}")


def measure_membership(cell: Cell) -> Measurement:
    """Train word vectors on the texts of half of the people, then ask of every text."""
    import numpy as np

    from capelet.attacks.membership.run import Membership
    from capelet.data.splits import group_rows
    from capelet.data.text import words_of
    from capelet.studies.word_models import WordTraining

    inputs, corpus = cell.inputs, corpus_of(cell)
    if corpus.texts is None:
        raise DataError(f"membership is asked of texts, and {corpus.name!r} has none")
    groups = group_rows(corpus)
    # By person: a table that knows one text of a writer knows something of the others.
    half = np.random.default_rng([cell.seed, 0x4D]).permutation(int(groups.max()) + 1) % 2 == 0
    member = half[groups]
    texts = corpus.texts.tolist()
    training = WordTraining(
        inputs["model"],
        dimension=int(inputs["dimension"]),
        epochs=int(inputs["epochs"]),
        least=int(inputs["least"]),
        seed=cell.seed,
    )
    table = training.fit([words_of(texts[row]) for row in np.flatnonzero(member)])
    authors = None if corpus.author is None else [str(name) for name in corpus.author]
    attack = Membership(window=int(inputs["window"]), seed=cell.seed)
    findings = attack.of_words(texts, member, table, authors)
    return measurement_of(findings.rows, cell)
