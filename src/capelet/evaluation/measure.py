"""The one road by which attributes are measured: releases of a plan's corpus, and their attackers.

What an attacker may use beside the vectors (further draws of its own texts, what insiders hold, the
table of few outcomes) follows from the very encoders that made them. So an audit, a protection and
a study's cell cannot give some of it and another less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from capelet.attacks.outcomes import TABLE
from capelet.data.labels import Attribute
from capelet.evaluation.access import Access, access_of
from capelet.evaluation.geometry import deviation, separability, tsne, tsne_shift
from capelet.evaluation.leakage import (
    Tally,
    attack_all,
    attempts_on,
    findings_of,
    learning_curve,
)
from capelet.evaluation.plan import Plan
from capelet.evaluation.provenance import Clock
from capelet.evaluation.scores import Scoring
from capelet.evaluation.utility import neighbours
from capelet.findings import Finding
from capelet.interfaces import Progress, Vectors, silent
from capelet.numerics import one_thread
from capelet.release import PrivateEncoder, Release
from capelet.release.seeded import seeded


@dataclass(frozen=True, eq=False)
class Released:
    """What is attacked: a release of all rows for each split of a plan, and what made it.

    `original` are the vectors without protection, where these are protected: insiders hold those of
    their own texts.
    """

    encoders: Sequence[PrivateEncoder]
    inputs: Any
    releases: Sequence[Release]
    original: Vectors | None = None

    @classmethod
    def of(
        cls,
        encoders: Sequence[PrivateEncoder],
        inputs: Any,
        original: Vectors | None = None,
        progress: Progress = silent,
    ) -> Released:
        """All rows through the encoder of each split; splits that share one share its release."""
        releases = {id(item): item.release(inputs, progress) for item in dict.fromkeys(encoders)}
        return cls(encoders, inputs, [releases[id(item)] for item in encoders], original)

    @property
    def first(self) -> Release:
        """The release of which is shown what needs one: pictures, deviation, the recipe."""
        return self.releases[0]

    @property
    def vectors(self) -> list[Vectors]:
        return [release.vectors for release in self.releases]

    def access(self, plan: Plan) -> list[Access]:
        """What attackers may use of each split's release; who names families has those alone."""
        raw = None if plan.protocol.attackers else self.original
        return access_of(self.encoders, self.inputs, raw)


def encoders_of(
    private: PrivateEncoder | Sequence[PrivateEncoder], plan: Plan, purpose: str = "release"
) -> list[PrivateEncoder]:
    """For each split what its release is drawn by: its encoder itself, or with the split's seed."""
    count = len(plan.splits)
    encoders = [private] * count if isinstance(private, PrivateEncoder) else list(private)
    if not plan.protocol.seeded_noise:
        return encoders
    return [
        seeded(item, parts.seed, purpose) for item, parts in zip(encoders, plan.splits, strict=True)
    ]


def guess(plan: Plan, released: Released, *, from_vectors_alone: bool = False) -> Tally:
    """What every attacker of the plan says of the victims of each split, without any control.

    From vectors alone nobody draws again and nobody is an insider: a first look, for a search.
    """
    access = released.access(plan)
    if from_vectors_alone:
        access = [Access(outcomes=item.outcomes) for item in access]
    return attack_all(plan, released.vectors, silent, access, controls=False)


def worst_case(plan: Plan, released: Released, tally: Tally, secret: Attribute) -> Finding:
    """What the strongest attacker reads of one attribute, with the interval that verdicts have."""
    key = ("attribute-inference", secret.name)
    guesses, is_exact = tally.guesses[(*key, "strongest")], TABLE in tally.winners[key]
    scoring = Scoring.of(plan, released.first)
    return scoring.finding(key[0], secret, "strongest", "balanced_accuracy", guesses, is_exact)


@dataclass(frozen=True, eq=False)
class FittedAttacker:
    """Who did best on one attribute, ready to read more vectors, and how often it was right."""

    secret: Attribute
    accuracy: float
    read: Callable[[Vectors], tuple[str, float]]


def fitted_attackers(plan: Plan, released: Released) -> list[FittedAttacker]:
    """The attackers of a plan's first split, each with its balanced accuracy on the victims."""
    tally, attempts = attempts_on(plan, released.first.vectors, released.access(plan)[0])
    return [
        FittedAttacker(item.secret, worst_case(plan, released, tally, item.secret).value, item.read)
        for item in attempts
    ]


def measure(
    plan: Plan, released: Released, clock: Clock, progress: Progress = silent
) -> tuple[list[Finding], Tally]:
    """All findings on a plan's attributes, task and geometry, and the guesses they were made of."""
    first, original = released.first, released.original
    with clock("attacks"):
        access = released.access(plan)
        tally = attack_all(plan, released.vectors, progress, access)
    with clock("scores"), one_thread():
        rows = findings_of(plan, first, tally)
        if original is not None:
            rows.append(neighbours(plan, original, released.vectors, first.recipe_hash))
            # Nothing where the two do not lie in one space.
            rows += deviation(plan, original, first.vectors, first.recipe_hash)
            rows += separability(plan, original, first.vectors, first.recipe_hash)
    return rows, tally


def pictures(plan: Plan, released: Released, tally: Tally, clock: Clock) -> dict[str, Any]:
    """The curve of few labels, and maps of the first release: what a page draws."""
    first, victims = released.first, plan.splits[0].victims
    colours = [*plan.secrets, *([plan.label] if plan.label else [])]
    with clock("scores"), one_thread():
        artefacts = {
            "learning_curve": learning_curve(plan, tally),
            # Of the victims only: a map looks better than it is on the rows that it learnt from.
            "tsne": tsne(first.vectors, victims, colours, seed=0),
        }
        if released.original is not None:
            shift = tsne_shift(released.original, first.vectors, victims, seed=0)
            artefacts |= {} if shift is None else {"tsne_shift": shift}
    return artefacts
