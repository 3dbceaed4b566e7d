"""One split's training: what a defence learns from, with which settings, against which attributes.

`protect` trains on every split of its plan; a study's cell on its own alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from capelet.data.corpus import Split
from capelet.data.labels import Attribute
from capelet.defences import Defence, Settings, fit
from capelet.errors import DataError, did_you_mean, name_field
from capelet.evaluation.measure import encoders_of
from capelet.evaluation.plan import Plan
from capelet.interfaces import Progress, Step, Vectors, silent
from capelet.release import PrivateEncoder
from capelet.release.steps import run, run_seeded
from capelet.workflows.settings_choice import part_of
from capelet.workflows.units import with_units

TRAINING = "training"  # the purpose of noise that a defence learns through


@dataclass(frozen=True, eq=False)
class TrainingInputs:
    """What the defence of a split learns from: vectors of all rows, and what they were made of."""

    vectors: Vectors
    inputs: Any


def rewritten_lessons(
    texts: Sequence[Step],
    plain: PrivateEncoder,
    inputs: Any,
    plan: Plan,
    progress: Progress,
) -> list[TrainingInputs]:
    """Text steps act before the encoder, so the defence learns on what they leave of a text."""
    if not plan.protocol.seeded_noise:
        left = run(texts, inputs)
        return [TrainingInputs(plain.release(left, progress).vectors, left)] * len(plan.splits)
    lessons = []
    # A purpose of their own: the words that taught must not come again in what is attacked.
    for encoder, parts in zip(encoders_of(plain, plan, TRAINING), plan.splits, strict=True):
        left = run_seeded(texts, inputs, parts.seed, TRAINING)
        lessons.append(TrainingInputs(encoder.release(left, progress).vectors, left))
    return lessons


def settings_of(settings: Settings, parts: Split, seeded: bool) -> Settings:
    """Each split trains from its own seed, so that the mean covers the luck of training too.

    In a study the noise of a private training is from that seed as well.
    """
    schedule, training = replace(settings.schedule, seed=parts.seed), settings.training
    if seeded and training is not None:
        training = replace(training, seed_noise=parts.seed)
    return replace(settings, schedule=schedule, training=training)


def attributes_to_fight(plan: Plan, hold_out: Sequence[str]) -> tuple[Attribute, ...]:
    """The private attributes that the training may see."""
    names = [item.name for item in plan.secrets]
    for name in hold_out:
        if name not in names:
            raise DataError(
                f"{name_field('hold_out')} names {name!r}, which is no private attribute; "
                f"{did_you_mean(name, names)}"
            )
    return tuple(item for item in plan.secrets if item.name not in hold_out)


def fit_split(
    plan: Plan,
    parts: Split,
    lesson: TrainingInputs,
    against: Sequence[Attribute],
    name: str,
    settings: Settings,
    plain: PrivateEncoder,
    checkpoints: Path | None = None,
    progress: Progress = silent,
) -> Defence:
    """Fit the method on the defender's part of one split."""
    part = part_of(plan, parts, lesson.vectors, against)
    if settings.training is not None:
        part = with_units(part, plan, parts, settings.training)
    if settings.tune_layers:
        from capelet.encoders.tuning import top_layers

        assert plain.encoder is not None
        # As the encoder saw them: layers of dpnr are tuned on texts whose words were dropped.
        own = [lesson.inputs[row] for row in parts.defender]
        part = replace(part, top=top_layers(plain.encoder, own, settings.tune_layers, progress))
    place = plan.splits.index(parts)

    def of_all_seeds(what: str, count: int, total: int) -> None:
        progress(what, place * total + count, len(plan.splits) * total)

    return fit(name, part, settings, checkpoints, of_all_seeds)
