"""Cells of language models: trained here with canaries, which are then read out again.

With `perplexity` every method is measured where its validation perplexity is nearest to that one:
what a model has not learnt it cannot remember. With `baseline` the same network without any
mitigation is trained beside it, for the loss of utility by author.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capelet.errors import CapeletError, did_you_mean
from capelet.question import CanaryCounts, LanguageNetwork, LanguageSchedule, Mitigation, fill
from capelet.studies.cell import Cell, Measurement
from capelet.studies.measurements.inputs import corpus_of, measurement_of

if TYPE_CHECKING:
    from capelet.workflows.language import LanguageSettings

# A study's noise is seeded, so that the table can be made again; it promises nothing.
NOISY = "dpsgd"
LANGUAGE_KEYS: dict[str, Any] = {
    "sentences": None,
    "most": None,
    "method": "none",
    "strength": 4.0,
    "epsilon": None,
    "delta": None,
    "noise": None,
    "unit": None,
    "texts_per_author": None,
    "network": "lstm",
    "vocabulary": 5000,
    "words": None,
    "width": 64,
    "layers": 1,
    "length": None,
    "epochs": 2,
    "batch": 100,
    "rate": None,
    "perplexity": None,
    "canaries": (1, 10),
    "per_level": None,
    "samples": 2000,
    "baseline": None,
}


def check_language(inputs: Mapping[str, Any]) -> None:
    """Refuse a method, a network and settings that no corpus could make right."""
    from capelet.language.model import NETWORKS

    if inputs["network"] not in NETWORKS:
        hint = did_you_mean(str(inputs["network"]), NETWORKS)
        raise CapeletError(f"there is no network {inputs['network']!r}; {hint}")
    if (inputs["method"] == NOISY) != any(inputs[key] is not None for key in ("epsilon", "noise")):
        state = "needs an epsilon or a noise" if inputs["method"] == NOISY else "takes neither"
        raise CapeletError(f"the method {inputs['method']!r} {state}; correct the plan")
    settings_of({key: value for key, value in inputs.items() if value is not None}, 0).check(True)


def settings_of(inputs: Mapping[str, Any], seed: int) -> LanguageSettings:
    """The inputs of a cell as the settings of a training; what is not said is as in `lm train`."""
    from capelet.workflows.language import LanguageSettings

    values = {
        **inputs,
        "noise_multiplier": inputs.get("noise"),
        "canary_authors": inputs.get("per_level"),
        "seeded_noise": inputs["method"] == NOISY,
        "seed": seed,
        "device": "cpu",
    }
    kinds = LanguageNetwork, LanguageSchedule, Mitigation, CanaryCounts
    return LanguageSettings(*(fill(kind, values) for kind in kinds))


def measure_language(cell: Cell) -> Measurement:
    """Train a language model with canaries, and try to read them out again."""
    from capelet.evaluation.extraction import AttackSettings, TrainingTexts, attack_model
    from capelet.evaluation.inversion import texts_to_invert
    from capelet.workflows.language.train import train_model

    inputs = cell.inputs
    by_sentence, most = bool(inputs.get("sentences")), inputs.get("most")
    texts, authors = texts_to_invert(corpus_of(cell), by_sentence, most, cell.seed)
    settings = settings_of(inputs, cell.seed)
    with tempfile.TemporaryDirectory() as folder:
        place, baseline = Path(folder) / "model", None
        train_model(texts, authors, place, settings)
        if inputs.get("baseline"):
            baseline = Path(folder) / "baseline"
            train_model(texts, authors, baseline, _without_method(settings))
        findings = attack_model(
            place,
            TrainingTexts(texts, authors),
            AttackSettings(int(inputs["samples"]), cell.seed, "cpu"),
            baseline=baseline,
        )
    return measurement_of(findings.rows, cell)


def _without_method(settings: LanguageSettings) -> LanguageSettings:
    """The same training without a method, at its best perplexity: what the others lose against."""
    schedule = replace(settings.schedule, perplexity=None)
    return replace(settings, schedule=schedule, mitigation=Mitigation())
