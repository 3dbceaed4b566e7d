"""One method, trained on each split of a plan and released as it ships.

`protect` trains on every split of its plan; a study's cell on its own alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capelet.data.corpus import Split
from capelet.data.labels import Attribute
from capelet.defences import Defence, Settings, check_attributes, check_needs, fit, method
from capelet.defences.fitting import Part
from capelet.errors import DataError, did_you_mean, name_field
from capelet.evaluation.decision import inputs_of
from capelet.evaluation.measure import Released, encoders_of
from capelet.evaluation.plan import Plan
from capelet.interfaces import Encoder, Progress, Step, Vectors, silent
from capelet.release import PrivateEncoder
from capelet.release.steps import run, run_seeded
from capelet.workflows.units import check_classes, with_units

TRAINING = "training"  # the purpose of noise that a defence learns through


@dataclass(frozen=True, eq=False)
class TrainingInputs:
    """What the defence of a split learns from: vectors of all rows, and what they were made of."""

    vectors: Vectors
    inputs: Any


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


def check_choice(plan: Plan, against: Sequence[Attribute], name: str, settings: Settings) -> None:
    """Refuse a method without what it needs, and classes that a private training may not see."""
    check_needs(name, settings, plan.label, against)
    check_attributes(settings, [item.name for item in against])
    if settings.training is not None:
        check_classes([*against, *([plan.label] if plan.label is not None else [])])


def part_of(plan: Plan, parts: Split, vectors: Vectors, against: Sequence[Attribute]) -> Part:
    """What a defence may see of a split: the defender's rows, renumbered from 0."""
    rows = parts.defender
    place = np.full(len(plan.corpus), -1, dtype=np.intp)
    place[rows] = np.arange(len(rows))
    fit_rows, tune_rows = (place[some] for some in parts.training("defender"))

    def of_part(item: Attribute) -> Attribute:
        return replace(item, codes=item.codes[rows])

    task = of_part(plan.label) if plan.label is not None else None
    texts = plan.corpus.texts[rows].tolist() if plan.corpus.texts is not None else None
    secrets = tuple(of_part(item) for item in against)
    return Part(vectors[rows], fit_rows, tune_rows, task, secrets, texts)


def steps_with(defence: Defence, encoder: Sequence[Step]) -> tuple[Encoder | Step, ...]:
    """The steps of a fitted method behind those of the encoder, or behind the one it has learnt."""
    own_encoder = defence.encoder
    return (*(encoder if own_encoder is None else (own_encoder,)), *defence.steps)


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """A method with the settings that were chosen, on the splits of a plan.

    `against` are the attributes that it fights, `texts` its steps before the encoder, and `plain`
    is what it protects.
    """

    plan: Plan
    name: str
    settings: Settings
    against: tuple[Attribute, ...]
    texts: tuple[Step, ...]
    plain: PrivateEncoder
    inputs: Any
    progress: Progress = silent

    @classmethod
    def of(
        cls,
        plan: Plan,
        name: str,
        settings: Settings,
        against: tuple[Attribute, ...],
        plain: PrivateEncoder,
        progress: Progress = silent,
    ) -> TrainingJob:
        """The job, unless the method needs texts where there are none."""
        texts = method(name).text_steps(settings)
        if plain.consumes != "texts" and not method(name).on_vectors:
            raise DataError(
                f"the method {name!r} changes or reads texts, and there are only vectors"
            )
        inputs = inputs_of(plan.corpus, plain)
        return cls(plan, name, settings, against, texts, plain, inputs, progress)

    @property
    def whole_settings(self) -> Settings:
        """The settings, with the method's own for what nobody chose."""
        return method(self.name).complete(self.settings, [item.name for item in self.against])

    def encode(self) -> tuple[Released, list[TrainingInputs]]:
        """Split by split, what is released without protection, and what the defence learns on."""
        encoders = encoders_of(self.plain, self.plan, "original")
        released = Released.of(encoders, self.inputs, None, self.progress)
        if not self.texts:
            return released, [TrainingInputs(item, self.inputs) for item in released.vectors]
        return released, self._rewrite()

    def _rewrite(self) -> list[TrainingInputs]:
        """Text steps act before the encoder, so the defence learns on what they leave of a text."""
        plan, texts, inputs = self.plan, self.texts, self.inputs
        if not plan.protocol.seeded_noise:
            left = run(texts, inputs)
            vectors = self.plain.release(left, self.progress).vectors
            return [TrainingInputs(vectors, left)] * len(plan.splits)
        lessons = []
        # A purpose of their own: the words that taught must not come again in what is attacked.
        for encoder, parts in zip(
            encoders_of(self.plain, plan, TRAINING), plan.splits, strict=True
        ):
            left = run_seeded(texts, inputs, parts.seed, TRAINING)
            lessons.append(TrainingInputs(encoder.release(left, self.progress).vectors, left))
        return lessons

    def train(
        self, lessons: Sequence[TrainingInputs], checkpoints: Path | None = None
    ) -> list[Defence]:
        """A defence for each split, each on its own defender's part."""
        return [self._fit(place, lesson, checkpoints) for place, lesson in enumerate(lessons)]

    def _fit(self, place: int, lesson: TrainingInputs, checkpoints: Path | None) -> Defence:
        plan, parts = self.plan, self.plan.splits[place]
        settings = self._settings_of(parts)
        part = part_of(plan, parts, lesson.vectors, self.against)
        if settings.training is not None:
            part = with_units(part, plan, parts, settings.training)
        if settings.tune_layers:
            from capelet.encoders.tuning import top_layers

            encoder, layers = self.plain.encoder, settings.tune_layers
            assert encoder is not None
            # As the encoder saw them: layers of dpnr are tuned on texts whose words were dropped.
            own = [lesson.inputs[row] for row in parts.defender]
            part = replace(part, top=top_layers(encoder, own, layers, self.progress))

        def of_all_seeds(what: str, count: int, total: int) -> None:
            self.progress(what, place * total + count, len(plan.splits) * total)

        return fit(self.name, part, settings, checkpoints, of_all_seeds)

    def _settings_of(self, parts: Split) -> Settings:
        """Each split trains from its own seed, so that the mean covers the luck of training too.

        In a study the noise of a private training is from that seed as well.
        """
        settings = self.whole_settings
        schedule, training = replace(settings.schedule, seed=parts.seed), settings.training
        if self.plan.protocol.seeded_noise and training is not None:
            training = replace(training, seed_noise=parts.seed)
        return replace(settings, schedule=schedule, training=training)

    def ship(self, defence: Defence) -> PrivateEncoder:
        """The private encoder that a fitted defence is saved as."""
        steps = steps_with(defence, self.plain.steps)
        return PrivateEncoder(*self.texts, *steps, head=defence.outcome.head)

    def release(self, encoders: Sequence[PrivateEncoder], original: Vectors) -> Released:
        """All rows through the private encoder of each split, drawn anew or by its seed.

        By the objects that are saved: what is measured is what ships.
        """
        sources = encoders_of(encoders, self.plan)
        return Released.of(sources, self.inputs, original, self.progress)
