"""Cells of inversion: the words of victims' texts, read back from their vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capelet.studies.cell import Cell, Measurement
from capelet.studies.measurements.inputs import (
    check_steps,
    corpus_of,
    measurement_of,
    private_encoder,
)

# How many texts are read back where the plan does not say; white-box attackers take long for each.
VICTIMS = 2000


def check_inversion(inputs: Mapping[str, Any]) -> None:
    from capelet.evaluation.inversion import check_attacks

    check_steps(inputs)
    check_attacks(inputs["attacks"])


def measure_inversion(cell: Cell) -> Measurement:
    """Words of victims' texts; with `auxiliary` the attacker learns on another corpus."""
    from capelet.evaluation.inversion import Inversion, texts_to_invert

    inputs = cell.inputs
    by_sentence, most = bool(inputs.get("sentences")), inputs.get("most")
    texts, authors = texts_to_invert(corpus_of(cell), by_sentence, most, cell.seed)
    own = None
    if "auxiliary" in inputs:
        own = texts_to_invert(corpus_of(cell, "auxiliary"), by_sentence, most, cell.seed)[0]
    attack = Inversion(
        attacks=tuple(inputs["attacks"]),
        draws=int(inputs.get("draws", 1)),
        layer=int(inputs.get("layer", 2)),
        overlap=bool(inputs.get("overlap", False)),
        victims=int(inputs.get("victims", VICTIMS)),
        seed=cell.seed,
        options=inputs.get("options"),
    )
    private = private_encoder(cell)
    findings = attack.measure(texts, private, auxiliary=own, authors=authors)
    return measurement_of(findings.rows, cell, private.recipe)
