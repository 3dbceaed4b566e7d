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

from capelet.attacks.attribute import Family, families
from capelet.attacks.membership.run import Membership
from capelet.data.corpus import Corpus, Rows
from capelet.defences import Defence, Settings, check_attributes, check_needs, method
from capelet.encoders.own import TunedEncoder
from capelet.errors import DataError
from capelet.evaluation.access import access_of
from capelet.evaluation.decision import inputs_of
from capelet.evaluation.geometry import cloud_findings, deviation, separability
from capelet.evaluation.leakage import Tally, attack_all, findings_of
from capelet.evaluation.plan import Plan
from capelet.evaluation.provenance import versions
from capelet.evaluation.utility import neighbours
from capelet.findings import Finding, Findings
from capelet.findings.metrics import Codes
from capelet.interfaces import Encoder, Step, Vectors, silent
from capelet.privacy.guarantees import Guarantee
from capelet.release import PrivateEncoder, Release
from capelet.release.recipe import recipe_hash
from capelet.release.seeded import SeededEncoder
from capelet.workflows.settings_choice import steps_with
from capelet.workflows.training import (
    TrainingInputs,
    attributes_to_fight,
    fit_split,
    rewritten_lessons,
    settings_of,
)
from capelet.workflows.units import check_classes, check_units

# The name of the encoder's own vectors among several clouds.
ORIGINAL = "original"


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


@dataclass(frozen=True)
class Protocol:
    """How one split is made, who attacks it, and what is computed beside the usual metrics.

    With `members` a method's map is also asked which texts it was fitted to.
    """

    seed: int
    split: str = "auto"
    attackers: tuple[str, ...] = ()
    derive: tuple[str, ...] = ()
    bins: Mapping[str, Sequence[float]] | None = None
    metrics: tuple[str, ...] = ()
    members: bool = False

    def plan(self, corpus: Corpus) -> Plan:
        """The plan of this one split."""
        plan = Plan.of(corpus, [self.seed], self.split, self.derive, self.bins)
        return plan.with_work(1, self.metrics)

    def families(self) -> list[Family]:
        return families(self.attackers)


def with_seeded_noise(
    private: PrivateEncoder, seed: int, purpose: str = "release"
) -> PrivateEncoder:
    """The encoder with noise from the seed where it draws any, as a seeded audit has it."""
    return SeededEncoder.of(private, seed, purpose) if private.draws else private


def measure_steps(
    corpus: Corpus, encoder: Encoder | None, steps: Sequence[Step], protocol: Protocol
) -> tuple[Findings, tuple[VictimGuesses, ...]]:
    """What a release with these steps leaks on one split; without steps it is "before"."""
    plan = protocol.plan(corpus)
    plain = PrivateEncoder(*([encoder] if encoder is not None else []))
    inputs = inputs_of(corpus, plain)
    original = plain.release(inputs)
    private = with_seeded_noise(_with_encoder(steps, plain), protocol.seed)
    release = private.release(inputs) if steps else original
    return _measure(plan, private, inputs, release, original if steps else None, protocol)


def measure_method(
    corpus: Corpus,
    encoder: Encoder | None,
    name: str,
    settings: Settings,
    protocol: Protocol,
    hold_out: Sequence[str] = (),
) -> tuple[Findings, tuple[VictimGuesses, ...]]:
    """Fit a method on the defender's part of one split, and measure what its release leaks.

    `hold_out` are private attributes that the training may not see.
    """
    if settings.training is not None:
        check_units(corpus, settings.training, protocol.split, bool(protocol.derive))
    plan = protocol.plan(corpus)
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
        (lesson,) = rewritten_lessons(texts, plain, inputs, plan, True, silent)
    own = settings_of(choice, parts, True)
    # No checkpoints: a cell is short, and must not depend on what lies on a disk.
    defence = fit_split(plan, parts, lesson, against, name, own, plain)
    steps = (*texts, *steps_with(defence, plain.steps))
    private = with_seeded_noise(PrivateEncoder(*steps), protocol.seed)
    release = private.release(inputs)
    try:
        findings, guesses = _measure(plan, private, inputs, release, original, protocol)
        if protocol.members:
            rows = _membership(plan, defence, original.vectors, protocol.seed)
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
    plan = protocol.plan(corpus)
    plain = PrivateEncoder(*([encoder] if encoder is not None else []))
    inputs = inputs_of(corpus, plain)
    vectors = {ORIGINAL: plain.release(inputs).vectors}
    for name, steps in clouds.items():
        private = with_seeded_noise(_with_encoder(steps, plain), protocol.seed)
        vectors[name] = private.release(inputs).vectors
    return study_findings(cloud_findings(plan, vectors, protocol.seed), protocol.seed)


def _with_encoder(steps: Sequence[Step], plain: PrivateEncoder) -> PrivateEncoder:
    """The steps around the encoder: those on texts before it, those on vectors behind it."""
    texts = [step for step in steps if step.consumes == "texts"]
    others = [step for step in steps if step.consumes != "texts"]
    return PrivateEncoder(*texts, *plain.steps, *others)


def _membership(plan: Plan, defence: Defence, original: Vectors, seed: int) -> list[Finding]:
    """Whether the map's own head gives away the texts that both were fitted to.

    The attacker holds the folder and a text with its class. Noise before the map is nothing to him:
    he puts the text's own vector through the map, at the centre of the noise.
    """
    head, label = defence.outcome.head, plan.label
    if head is None or label is None:
        raise DataError("membership in a map is asked of its task's head, and this map has none")
    parts = plan.splits[0]
    fit_rows, _ = parts.training("defender")
    # Rows that stopped the training are neither: they were looked at, and not fitted to.
    rows = np.concatenate([fit_rows, parts.attacker, parts.victims])
    rows = rows[label.codes[rows] >= 0]
    centres = np.asarray(original[rows], dtype=np.float64)
    if defence.before is not None:
        centres = centres / np.maximum(np.abs(centres).sum(axis=1, keepdims=True), 1e-12)
    chances = head(defence.outcome.map(centres.astype(np.float32)))
    attack = Membership(seed=seed)
    member = np.isin(rows, fit_rows)
    findings = attack.of_head(chances, label.codes[rows], member, plan.units[rows])
    return [replace(row, seed=seed) for row in findings]


def _measure(
    plan: Plan,
    private: PrivateEncoder,
    inputs: Any,
    release: Release,
    original: Release | None,
    protocol: Protocol,
) -> tuple[Findings, tuple[VictimGuesses, ...]]:
    raw = None if original is None else original.vectors
    access = []
    if original is not None:
        # Whoever names families asks for those alone, as in an audit.
        access = access_of([private], inputs, None if protocol.attackers else raw)
    tally = attack_all(plan, [release.vectors], protocol.families(), silent, access)
    rows = findings_of(plan, release, tally)
    if raw is not None:
        rows.append(neighbours(plan, raw, [release.vectors], release.recipe_hash))
        if raw.shape == release.vectors.shape:
            rows += deviation(plan, raw, release.vectors, release.recipe_hash)
            rows += separability(plan, raw, release.vectors, release.recipe_hash)
    findings = study_findings(rows, protocol.seed, release.recipe, release.unseeded_guarantee)
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
