"""What a measurement of a cell begins from: its corpus, its encoder, the steps of its release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from capelet.data.corpus import Corpus
from capelet.findings import Finding
from capelet.interfaces import Encoder, Step
from capelet.studies.cell import Cell, Measurement
from capelet.studies.sources import encoder_of, sample

# An input that the driver adds: what the name of the encoder stands for on this day.
FINGERPRINT = "fingerprint"


def corpus_of(cell: Cell, name: str = "corpus") -> Corpus:
    digest = cell.inputs["digests"][name]
    return sample(cell.sources[name], cell.inputs.get("rows"), digest)


def encoder_in(cell: Cell) -> Encoder:
    return encoder_of(cell.inputs["encoder"], cell.inputs[FINGERPRINT])


def steps_in(cell: Cell) -> list[Step]:
    from capelet.release.steps import steps_of

    entries = [dict(entry) for entry in cell.inputs.get("steps", ())]
    return steps_of({"steps": entries}) if entries else []


def check_steps(inputs: Mapping[str, Any]) -> None:
    from capelet.release.steps import steps_of

    if inputs.get("steps"):
        steps_of({"steps": [dict(entry) for entry in inputs["steps"]]})


def private_encoder(cell: Cell) -> Any:
    from capelet.release import PrivateEncoder
    from capelet.workflows.cells import with_seeded_noise

    return with_seeded_noise(PrivateEncoder(encoder_in(cell), *steps_in(cell)), cell.seed)


def measurement_of(
    rows: Sequence[Finding], cell: Cell, recipe: Mapping[str, Any] | None = None
) -> Measurement:
    """The findings of an attack that makes its releases itself; it gives no guesses by row."""
    from capelet.workflows.cells import study_findings

    return Measurement(study_findings(rows, cell.seed, recipe))
