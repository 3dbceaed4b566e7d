"""One split of one combination, measured from its seed alone: the cells that studies are made of.

A study asks for the same table twice, so everything is drawn from the seed, the noise too, and what
comes out carries the status `none`. The numbers are those of `audit` and `protect` with seeded
noise for the same seed alone. But "before" is not measured beside each method: it is the cell
without steps, which all methods of one corpus, encoder and split share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.data.corpus import Corpus, Rows
from capelet.defences import Settings, check_attributes, check_needs, method
from capelet.encoders.own import TunedEncoder
from capelet.errors import DataError
from capelet.evaluation.decision import ORIGINAL, inputs_of, plan_attributes
from capelet.evaluation.geometry import cloud_findings
from capelet.evaluation.leakage import Tally
from capelet.evaluation.measure import Released, encoders_of, measure
from capelet.evaluation.members import members_of_map
from capelet.evaluation.plan import Plan
from capelet.evaluation.provenance import Clock, versions
from capelet.findings import Finding, Findings
from capelet.findings.metrics import Codes
from capelet.interfaces import Encoder, Step, silent
from capelet.privacy.guarantees import Guarantee
from capelet.question import Protocol
from capelet.release import PrivateEncoder
from capelet.release.recipe import recipe_hash
from capelet.workflows.settings_choice import steps_with
from capelet.workflows.training import (
    TrainingInputs,
    attributes_to_fight,
    fit_split,
    rewritten_lessons,
    settings_of,
)
from capelet.workflows.units import check_classes, check_units


@dataclass(frozen=True, eq=False)
class VictimGuesses:
    """What the strongest attacker, or the task's probe, said of each victim of one target.

    `rows` and `units` number rows of the corpus and persons in it: with the texts at hand they name
    people, so whoever keeps them replaces them by pseudonyms first.
    """

    kind: str
    target: str
    rows: Rows
    units: Codes
    truth: npt.NDArray[np.int16]
    guess: npt.NDArray[np.int16]


def measure_steps(
    corpus: Corpus, encoder: Encoder | None, steps: Sequence[Step], protocol: Protocol
) -> tuple[Findings, tuple[VictimGuesses, ...]]:
    """What a release with these steps leaks on one split; without steps it is "before"."""
    plan = plan_attributes(protocol, corpus)
    plain = PrivateEncoder(*([encoder] if encoder is not None else []))
    inputs = inputs_of(corpus, plain)
    original = plain.release(inputs).vectors if steps else None
    encoders = encoders_of(_with_encoder(steps, plain), plan)
    return _measure(plan, Released.of(encoders, inputs, original))


def measure_method(
    corpus: Corpus,
    encoder: Encoder | None,
    name: str,
    settings: Settings,
    protocol: Protocol,
    hold_out: Sequence[str] = (),
    members: bool = False,
) -> tuple[Findings, tuple[VictimGuesses, ...]]:
    """Fit a method on the defender's part of one split, and measure what its release leaks.

    `hold_out` are private attributes that the training may not see. With `members` the method's map
    is also asked which texts it was fitted to.
    """
    if settings.training is not None:
        check_units(corpus, settings.training, protocol.split or "auto", bool(protocol.derive))
    plan = plan_attributes(protocol, corpus)
    parts = plan.splits[0]
    against = attributes_to_fight(plan, hold_out)
    choice = method(name).complete(settings, [item.name for item in against])
    check_needs(name, choice, plan.label, against)
    if choice.training is not None:
        check_classes([*against, *([plan.label] if plan.label is not None else [])])
    check_attributes(choice, [item.name for item in against])
    plain = PrivateEncoder(*([encoder] if encoder is not None else []))
    if plain.consumes != "texts" and not method(name).on_vectors:
        raise DataError(f"the method {name!r} changes or reads texts, and there are only vectors")
    inputs = inputs_of(corpus, plain)
    original = plain.release(inputs)
    lesson, texts = TrainingInputs(original.vectors, inputs), method(name).text_steps(choice)
    if texts:
        (lesson,) = rewritten_lessons(texts, plain, inputs, plan, silent)
    own = settings_of(choice, parts, True)
    # No checkpoints: a cell is short, and must not depend on what lies on a disk.
    defence = fit_split(plan, parts, lesson, against, name, own, plain)
    steps = (*texts, *steps_with(defence, plain.steps))
    encoders = encoders_of(PrivateEncoder(*steps), plan)
    try:
        released = Released.of(encoders, inputs, original.vectors)
        findings, guesses = _measure(plan, released)
        if members:
            # By the encoder that ships: the method may have learnt one, with vectors of its own.
            shipped = plain if defence.encoder is None else PrivateEncoder(defence.encoder)
            rows = members_of_map(plan, defence, shipped.release(inputs).vectors)
            findings = replace(findings, rows=(*findings.rows, *rows))
        return findings, guesses
    finally:
        if isinstance(defence.encoder, TunedEncoder):
            defence.encoder.forget()


def measure_clouds(
    corpus: Corpus,
    encoder: Encoder | None,
    clouds: Mapping[str, Sequence[Step]],
    protocol: Protocol,
) -> Findings:
    """Where several releases of one corpus lie, beside each other and beside the encoder's own."""
    plan = plan_attributes(protocol, corpus)
    seed = plan.splits[0].seed
    plain = PrivateEncoder(*([encoder] if encoder is not None else []))
    inputs = inputs_of(corpus, plain)
    vectors = {ORIGINAL: plain.release(inputs).vectors}
    for name, steps in clouds.items():
        (private,) = encoders_of(_with_encoder(steps, plain), plan)
        vectors[name] = private.release(inputs).vectors
    return study_findings(cloud_findings(plan, vectors, seed), seed)


def _with_encoder(steps: Sequence[Step], plain: PrivateEncoder) -> PrivateEncoder:
    """The steps around the encoder: those on texts before it, those on vectors behind it."""
    texts = [step for step in steps if step.consumes == "texts"]
    others = [step for step in steps if step.consumes != "texts"]
    return PrivateEncoder(*texts, *plain.steps, *others)


def _measure(plan: Plan, released: Released) -> tuple[Findings, tuple[VictimGuesses, ...]]:
    rows, tally = measure(plan, released, Clock())
    first, seed = released.first, plan.splits[0].seed
    findings = study_findings(rows, seed, first.recipe, first.unseeded_guarantee)
    return findings, _guesses(plan, tally)


def study_findings(
    rows: Sequence[Finding],
    seed: int,
    recipe: Mapping[str, Any] | None = None,
    unseeded_guarantee: Guarantee | None = None,
) -> Findings:
    """The rows with their seed, and a provenance without times or names that chance gave.

    A learnt map has a random id in its recipe. In a study nothing is released, and equal cells must
    be equal files, so the id is left out. `unseeded_guarantee` is what the noise would promise in
    a release, with its status: that a specimen's is broken must be in the findings, wherever they
    are shown.
    """
    steps = [
        {key: value for key, value in step.items() if key != "id"}
        for step in (recipe or {}).get("steps", [])
    ]
    same = {"steps": steps} if steps else {}
    name = recipe_hash(same) if steps else None
    own = tuple(replace(row, recipe_hash=name, seed=seed) for row in rows)
    promise = (
        {"unseeded_guarantee": unseeded_guarantee.to_json()}
        if unseeded_guarantee is not None
        else {}
    )
    return Findings(own, {"versions": versions(), **promise}, same)


def _guesses(plan: Plan, tally: Tally) -> tuple[VictimGuesses, ...]:
    """Of the strongest attacker of each target, in the order of the split's victims."""
    targets = {("attribute-inference", item.name): item for item in plan.secrets}
    if plan.label is not None:
        targets["utility", plan.label.name] = plan.label
    victims = plan.splits[0].victims
    table = []
    for (kind, name), target in targets.items():
        (guesses,) = tally.guesses[kind, name, "strongest"]
        # A row whose value is missing is nobody's victim; see `leakage`.
        rows = victims[target.codes[victims] >= 0]
        truth, guess = guesses.truth.astype(np.int16), guesses.predictions.astype(np.int16)
        table.append(VictimGuesses(kind, name, rows, plan.units[rows], truth, guess))
    return tuple(table)
