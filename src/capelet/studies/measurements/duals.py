"""Cells of dual encoders: trained here against readers of words and writers, then attacked."""

from __future__ import annotations

import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from capelet.errors import DataError
from capelet.studies.cell import Cell, Measurement
from capelet.studies.measurements.inputs import corpus_of, measurement_of

DUAL_KEYS: dict[str, Any] = {
    "network": "lstm",
    "width": 64,
    "layers": 1,
    "dimension": 64,
    "vocabulary": 5000,
    "length": 30,
    "epochs": 2,
    "batch": 256,
    "rate": None,
    "lambda_words": 0.0,
    "lambda_authors": 0.0,
    "negatives": "any",
    "fewest": 5,
    "attacks": ("multi-set",),
    "options": None,
    "shots": 5,
    "writers": 50,
}


def measure_dual(cell: Cell) -> Measurement:
    """Train a dual encoder on half of the people, and read words and writers of the others."""
    import numpy as np

    from capelet.attacks.authorship import Authorship
    from capelet.attacks.inversion.run import Inversion
    from capelet.data.splits import group_rows
    from capelet.defences.contrastive import Contrastive, Sentences
    from capelet.encoders import load
    from capelet.release import PrivateEncoder

    inputs, corpus = cell.inputs, corpus_of(cell)
    if corpus.texts is None:
        raise DataError(f"a dual encoder learns from texts, and {corpus.name!r} has none")
    names = {item.name for item in fields(Contrastive)} - {"seed", "device"}
    settings = {key: value for key, value in inputs.items() if key in names}
    groups = group_rows(corpus)
    half = np.random.default_rng([cell.seed, 0xD0]).permutation(int(groups.max()) + 1) % 2 == 0
    own = corpus.take(np.flatnonzero(half[groups]))
    other = corpus.take(np.flatnonzero(~half[groups]))
    assert own.texts is not None and other.texts is not None
    writers = None if own.author is None else own.author.tolist()
    sentences = Sentences.of(own.texts.tolist(), writers, fewest=int(inputs["fewest"]))
    dual = Contrastive(**settings, seed=cell.seed, device="cpu").fit(sentences)
    rows: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        private = PrivateEncoder(load(str(dual.save(Path(folder) / "dual"))))
        attacks = tuple(inputs["attacks"])
        authors = None if other.author is None else [str(name) for name in other.author]
        inversion = Inversion(attacks=attacks, seed=cell.seed, options=inputs.get("options"))
        rows += inversion.measure(other.texts.tolist(), private, authors=authors).rows
        if authors is not None:
            shots = Authorship(int(inputs["shots"]), int(inputs["writers"]), seeds=[cell.seed])
            rows += shots.measure(private.release(other.texts.tolist()).vectors, authors)
    # Its folder is gone, and so is the name that it had there.
    return measurement_of(rows, cell)
