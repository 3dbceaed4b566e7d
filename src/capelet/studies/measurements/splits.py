"""One split of one combination, measured from its seed alone: the cells that studies are made of.

A study asks for the same table twice, so everything is drawn from the seed, the noise too, and what
comes out carries the status `none`. The numbers are those of `audit` and `protect` with seeded
noise for the same seed alone. But "before" is not measured beside each method: it is the cell
without steps, which all methods of one corpus, encoder and split share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from capelet.data.corpus import Corpus
from capelet.defences import Settings
from capelet.encoders.own import TunedEncoder
from capelet.evaluation.decision import ORIGINAL, inputs_of, plan_attributes
from capelet.evaluation.geometry import cloud_findings
from capelet.evaluation.leakage import Tally
from capelet.evaluation.measure import Released, encoders_of, measure
from capelet.evaluation.membership import members_of_map
from capelet.evaluation.plan import Plan
from capelet.evaluation.provenance import Clock
from capelet.findings import Findings
from capelet.interfaces import Encoder, Step
from capelet.question import Protocol
from capelet.release import PrivateEncoder
from capelet.studies.cell import Measurement, VictimGuesses
from capelet.studies.measurements.inputs import study_findings
from capelet.workflows.training import TrainingJob, attributes_to_fight, check_choice
from capelet.workflows.units import check_units


def measure_steps(
    corpus: Corpus, encoder: Encoder | None, steps: Sequence[Step], protocol: Protocol
) -> Measurement:
    """What a release with these steps leaks on one split; without steps it is "before"."""
    plan = plan_attributes(protocol, corpus)
    plain = _plain(encoder)
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
) -> Measurement:
    """Fit a method on the defender's part of one split, and measure what its release leaks.

    `hold_out` are private attributes that the training may not see. With `members` the method's map
    is also asked which texts it was fitted to.
    """
    if settings.training is not None:
        check_units(corpus, settings.training, protocol.split or "auto", bool(protocol.derive))
    plan, plain = plan_attributes(protocol, corpus), _plain(encoder)
    against = attributes_to_fight(plan, hold_out)
    job = TrainingJob.of(plan, name, settings, against, plain)
    check_choice(plan, against, name, job.whole_settings)
    unprotected, lessons = job.encode()
    # No checkpoints: a cell is short, and must not depend on what lies on a disk.
    (defence,) = job.train(lessons)
    try:
        released = job.release([job.ship(defence)], unprotected.first.vectors)
        measured = _measure(plan, released)
        if not members:
            return measured
        # By the encoder that ships: the method may have learnt one, with vectors of its own.
        shipped = _plain(defence.encoder or encoder)
        rows = members_of_map(plan, defence, shipped.release(job.inputs).vectors)
        findings = replace(measured.findings, rows=(*measured.findings.rows, *rows))
        return replace(measured, findings=findings)
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
    plan, plain = plan_attributes(protocol, corpus), _plain(encoder)
    seed, inputs = plan.splits[0].seed, inputs_of(corpus, plain)
    vectors = {ORIGINAL: plain.release(inputs).vectors}
    for name, steps in clouds.items():
        (private,) = encoders_of(_with_encoder(steps, plain), plan)
        vectors[name] = private.release(inputs).vectors
    return study_findings(cloud_findings(plan, vectors, seed), seed)


def _plain(encoder: Encoder | None) -> PrivateEncoder:
    return PrivateEncoder(*([encoder] if encoder is not None else []))


def _with_encoder(steps: Sequence[Step], plain: PrivateEncoder) -> PrivateEncoder:
    """The steps around the encoder: those on texts before it, those on vectors behind it."""
    texts = [step for step in steps if step.consumes == "texts"]
    others = [step for step in steps if step.consumes != "texts"]
    return PrivateEncoder(*texts, *plain.steps, *others)


def _measure(plan: Plan, released: Released) -> Measurement:
    rows, tally = measure(plan, released, Clock())
    first, seed = released.first, plan.splits[0].seed
    findings = study_findings(rows, seed, first.recipe, first.unseeded_guarantee)
    return Measurement(findings, _guesses(plan, tally))


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
