"""Cells of attributes: a release with given steps, or a method trained on one split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from capelet.errors import CapeletError
from capelet.question import Network, Training, fill, names_of
from capelet.studies.cell import Cell, Measurement
from capelet.studies.measurements.inputs import (
    check_steps,
    corpus_of,
    encoder_in,
    steps_from,
    steps_in,
)


def _protocol(inputs: Mapping[str, Any]) -> Any:
    from capelet.question import Protocol

    protocol = fill(Protocol, inputs)
    return replace(protocol, seeds=[int(inputs["seed"])], seeded_noise=True, threads=1)


def check_attackers(inputs: Mapping[str, Any]) -> None:
    from capelet.evaluation.decision import attackers_of
    from capelet.question import Protocol

    attackers_of(Protocol(attackers=tuple(inputs["attackers"] or ())))
    check_steps(inputs)


def measure_audit(cell: Cell) -> Measurement:
    from capelet.studies.measurements.splits import measure_steps

    corpus = corpus_of(cell)
    return measure_steps(corpus, encoder_in(cell), steps_in(cell), _protocol(cell.inputs))


def setting_keys() -> dict[str, Any]:
    """Every setting of a method, its schedule and its promise, and the papers' presets."""
    return {name: None for record in (Training, Network) for name in names_of(record)}


def _settings(inputs: Mapping[str, Any]) -> Any:
    from capelet.defences.settings import Schedule, Settings

    # The processor always: which device there is must not change a cell's numbers.
    base = Settings(schedule=Schedule(device="cpu"))
    return Settings.of(fill(Training, inputs), fill(Network, inputs), base)


def check_method(inputs: Mapping[str, Any]) -> None:
    from capelet.defences.methods import check_mechanism, check_private_training, method
    from capelet.workflows.units import SPLIT

    check_attackers(inputs)
    if inputs.get("method") is None:
        raise CapeletError("a study of the kind 'protect' needs methods: method = [\"gr\"]")
    record = method(inputs["method"])
    if ("epsilon" in record.needs) != (inputs.get("epsilon") is not None):
        state = "needs an" if "epsilon" in record.needs else "adds no noise and takes no"
        raise CapeletError(f"the method {inputs['method']!r} {state} epsilon; correct the plan")
    settings = _settings({key: value for key, value in inputs.items() if value is not None})
    check_mechanism(inputs["method"], settings)
    check_private_training(inputs["method"], settings)
    if settings.training is not None and inputs["split"] != SPLIT:
        raise CapeletError(
            f"with train_epsilon each row's part is decided by itself: give split = {SPLIT!r} in "
            "the plan's settings, so that what is unprotected has the same parts"
        )


def measure_protect(cell: Cell) -> Measurement:
    from capelet.studies.measurements.splits import measure_method

    inputs = cell.inputs
    return measure_method(
        corpus_of(cell),
        encoder_in(cell),
        inputs["method"],
        _settings(inputs),
        _protocol(inputs),
        tuple(inputs.get("hold_out", ())),
        bool(inputs.get("members", False)),
    )


def check_clouds(inputs: Mapping[str, Any]) -> None:
    from capelet.evaluation.decision import ORIGINAL

    clouds = inputs["clouds"]
    if not clouds or not all(clouds.values()) or ORIGINAL in clouds:
        raise CapeletError(
            "a study of the kind 'geometry' needs clouds, each with its steps and none of them "
            f"named {ORIGINAL!r}: [settings.clouds]"
        )
    for steps in clouds.values():
        steps_from(steps)


def measure_geometry(cell: Cell) -> Measurement:
    from capelet.studies.measurements.splits import measure_clouds

    clouds = {name: steps_from(steps) for name, steps in cell.inputs["clouds"].items()}
    return Measurement(
        measure_clouds(corpus_of(cell), encoder_in(cell), clouds, _protocol(cell.inputs))
    )
