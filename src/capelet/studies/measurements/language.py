"""Cells of language models: trained here with canaries, which are then read out again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from capelet.errors import DataError
from capelet.studies.cell import Cell, Measurement
from capelet.studies.measurements.inputs import corpus_of, measurement_of


def measure_language(cell: Cell) -> Measurement:
    """Train a language model with canaries, and try to read them out again."""
    from capelet.workflows.language.attack import AttackSettings, TrainingTexts, attack_model
    from capelet.workflows.language.training import (
        CanarySettings,
        LanguageSettings,
        MethodSettings,
        NetworkSettings,
        ScheduleSettings,
        train_model,
    )

    inputs, corpus = cell.inputs, corpus_of(cell)
    if corpus.texts is None:
        raise DataError(f"a language model learns from texts, and {corpus.name!r} has none")
    texts = corpus.texts.tolist()
    authors = None if corpus.author is None else [str(name) for name in corpus.author]
    is_noisy = inputs["method"] == "dpsgd"
    settings = LanguageSettings(
        NetworkSettings(
            inputs["network"],
            int(inputs["vocabulary"]),
            int(inputs["width"]),
            int(inputs["layers"]),
        ),
        ScheduleSettings(int(inputs["epochs"]), int(inputs["batch"]), seed=cell.seed, device="cpu"),
        MethodSettings(
            inputs["method"],
            float(inputs["strength"]),
            epsilon=inputs.get("epsilon"),
            seeded_noise=is_noisy,
        ),
        CanarySettings(tuple(inputs["canaries"]), inputs.get("per_level")),
    )
    with tempfile.TemporaryDirectory() as folder:
        train_model(texts, authors, Path(folder) / "model", settings)
        findings = attack_model(
            Path(folder) / "model",
            TrainingTexts(texts, authors),
            AttackSettings(int(inputs["samples"]), cell.seed, "cpu"),
        )
    return measurement_of(findings.rows, cell)
