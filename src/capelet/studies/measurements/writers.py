"""Cells of authorship: who of many wrote a text."""

from __future__ import annotations

from capelet.errors import DataError
from capelet.studies.cell import Cell, Measurement
from capelet.studies.measurements.inputs import corpus_of, measurement_of, private_encoder


def measure_authorship(cell: Cell) -> Measurement:
    from capelet.data.text import words_of
    from capelet.evaluation.authorship import Authorship

    inputs, corpus = cell.inputs, corpus_of(cell)
    if corpus.author is None or corpus.texts is None:
        raise DataError(f"authorship needs texts and their authors; {corpus.name!r} lacks them")
    private = private_encoder(cell)
    release = private.release(corpus.texts.tolist())
    baseline = bool(inputs.get("baseline"))
    attack = Authorship(int(inputs["shots"]), int(inputs["writers"]), seeds=[cell.seed])
    words = [words_of(text) for text in corpus.texts] if baseline else None
    rows = attack.measure(release.vectors, corpus.author.tolist(), words, release.recipe_hash)
    return measurement_of(rows, cell, private.recipe)
