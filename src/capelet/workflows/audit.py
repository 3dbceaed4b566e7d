"""The audit: what does a release give away, and what is it good for?

The corpus is split into defender, attacker and victims, once for each seed; `evaluation` measures
leakage, utility, fairness and geometry; what comes out are findings and artefacts for a report.
Attributes are one kind of attack. Words, writers and training texts are others (`attacks`), and an
audit of those needs no private column.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from capelet.attacks.attribute import Family, families, one_thread
from capelet.data.corpus import Corpus
from capelet.data.splits import group_rows
from capelet.encoders import with_cache
from capelet.errors import CapeletError, DataError
from capelet.evaluation.attacks import AttackPlan, TextAttacks, adds_noise
from capelet.evaluation.geometry import deviation, separability, tsne, tsne_shift
from capelet.evaluation.leakage import Redraw, attack_all, findings_of, learning_curve
from capelet.evaluation.plan import Flags, Plan, split_corpus
from capelet.evaluation.provenance import Clock, audit_provenance
from capelet.evaluation.utility import neighbours
from capelet.findings import Finding, Findings
from capelet.interfaces import Encoder, Progress, Vectors, silent
from capelet.privacy.origins import seen_in_training
from capelet.release import PrivateEncoder, Release

DEFAULT_ENCODER = "minilm"


def audit(
    corpus: Corpus,
    encoder: PrivateEncoder | Encoder | str | None = None,
    *,
    attacks: Sequence[str] = ("attributes",),
    members: Sequence[bool] | None = None,
    show_texts: bool = False,
    seeds: int = 5,
    split_kind: str = "auto",
    attackers: Sequence[str] = (),
    derived: Sequence[str] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
    cache: bool = True,
    progress: Progress = silent,
    private: PrivateEncoder | Encoder | str | None = None,
) -> Findings:
    """Measure what a release of this corpus leaks and what it is worth.

    Example: `audit(capelet.load("reviews"), "minilm")`. Without `encoder`, ready vectors are
    audited as they are, and texts through the default encoder. `attacks` are kinds of attack
    (`attributes`, `inversion`, `authorship`, `membership`) or `all` that the data allow; `members`
    says of each text whether the model was trained on it. The examples of inversion hold no text
    unless `show_texts`. `private` is the old name of `encoder`, and deprecated: elsewhere it means
    the secrets. Rows that trained the encoder are the defender's, never victims: on what it has
    learnt by heart, everything looks better than it is.
    """
    if private is not None:
        if encoder is not None:
            raise CapeletError("audit was given encoder= and its old name private=; give one")
        warnings.warn("audit(private=…) is now audit(encoder=…)", DeprecationWarning, stacklevel=2)
        encoder = private
    clock = Clock()
    # Before anything is encoded: a misspelt name must not cost a pass over the corpus.
    attacker_families = families(attackers)
    kinds = AttackPlan.of(attacks, corpus, members, derived)
    target = private_encoder(corpus, encoder, cache)
    inputs = inputs_of(corpus, target)
    trained = rows_that_trained(target, inputs)
    plan = plan_of(corpus, kinds, seeds, split_kind, derived, bins, trained)
    with clock("encoding"):
        release = target.release(inputs, progress)
    rows: list[Finding] = []
    artefacts: dict[str, Any] = {}
    if "attributes" in kinds.kinds:
        # What the noise has cost shows only beside the vectors as they were.
        plain = target.unprotected().release(inputs, progress) if target.protects else None
        original = None if plain is None else plain.vectors
        rows, artefacts = measure_releases(
            plan,
            [release] * len(plan.splits),
            original,
            attacker_families,
            clock,
            progress,
            redraws([target] * len(plan.splits), inputs),
        )
    others = TextAttacks(kinds, redact=not show_texts, seeds=seeds)
    more, pictures = others.measure(plan, target, release, members, clock, progress)
    origin = {**audit_provenance(plan, target, release, clock), **_attack_entries(kinds)}
    return Findings((*rows, *more), origin, release.recipe, {**artefacts, **pictures})


def plan_of(
    corpus: Corpus,
    attacks: AttackPlan,
    seeds: int = 5,
    split_kind: str = "auto",
    derived: Sequence[str] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
    trained: Flags | None = None,
) -> Plan:
    """The plan of the kinds that were asked for; without attributes and task it is the splits."""
    if "attributes" in attacks.kinds or corpus.private or corpus.label is not None or derived:
        # Columns that are not asked about still decide who is a victim: so runs stay comparable.
        return Plan.of(corpus, seeds, split_kind, derived, bins, trained)
    if seeds < 1:
        raise DataError(f"seeds must be at least 1, and is {seeds}")
    # Only authorship averages over seeds, and it draws its own; the others keep to one split.
    parts = split_corpus(corpus, split_kind, trained=trained)
    return Plan(corpus, (), None, (parts,), group_rows(corpus), ())


def rows_that_trained(encoder: PrivateEncoder, inputs: Any) -> Flags:
    """Which rows trained the encoder, as far as this user's state folder tells."""
    return seen_in_training([origin.id for origin in encoder.origins], inputs)


def _attack_entries(attacks: AttackPlan) -> dict[str, Any]:
    """What the provenance says of the kinds of attack; attributes only where they were tried."""
    entries: dict[str, Any] = {"attacks": list(attacks.kinds), "left_out": list(attacks.left_out)}
    if "attributes" not in attacks.kinds:
        entries |= {"attributes": {}, "label": None}
    return entries


def measure_releases(
    plan: Plan,
    releases: Sequence[Release],
    original: Vectors | None,
    attackers: Sequence[Family],
    clock: Clock,
    progress: Progress = silent,
    again: Sequence[Redraw] = (),
) -> tuple[list[Finding], dict[str, Any]]:
    """All findings and artefacts of a release, given once for each split of the plan.

    `again` are the noisy encoders that made it (`redraws`): attackers draw from them once more.

    `original` are the unprotected vectors of a protected release. What needs one release (pictures,
    deviation) is shown of the first.
    """
    first, vectors = releases[0], [release.vectors for release in releases]
    with clock("attacks"):
        tally = attack_all(plan, vectors, attackers, progress, again)
    with clock("scores"), one_thread():
        rows = findings_of(plan, first, tally)
        victims = plan.splits[0].victims
        colours = [*plan.secrets, *([plan.label] if plan.label else [])]
        artefacts = {
            "learning_curve": learning_curve(plan, tally),
            # Of the victims only: a map looks better than it is on the rows that it learnt from.
            "tsne": tsne(first.vectors, victims, colours, seed=0),
        }
        if original is not None:
            rows.append(neighbours(plan, original, vectors, first.recipe_hash))
            # A vector and its release have a distance only where both lie in one space.
            if original.shape == first.vectors.shape:
                rows += deviation(plan, original, first.vectors, first.recipe_hash)
                rows += separability(plan, original, first.vectors, first.recipe_hash)
            if (shift := tsne_shift(original, first.vectors, victims, seed=0)) is not None:
                artefacts["tsne_shift"] = shift
    return rows, artefacts


def redraws(encoders: Sequence[PrivateEncoder], inputs: Any) -> list[Redraw]:
    """What draws again from the encoder of each split; nothing where releases have no noise."""
    if not any(adds_noise(encoder) for encoder in encoders):
        return []
    # Splits of one encoder share its lock.
    by_encoder = {id(encoder): Redraw(encoder, inputs) for encoder in encoders}
    return [by_encoder[id(encoder)] for encoder in encoders]


def private_encoder(
    corpus: Corpus, encoder: PrivateEncoder | Encoder | str | None, cache: bool
) -> PrivateEncoder:
    """What is to be audited, with a cache around its encoder if there may be one."""
    if isinstance(encoder, PrivateEncoder):
        private = encoder
    elif encoder is not None:
        private = PrivateEncoder(encoder)
    else:
        private = (
            PrivateEncoder() if corpus.vectors is not None else PrivateEncoder(DEFAULT_ENCODER)
        )
    return private.with_encoder(with_cache) if cache else private


def inputs_of(corpus: Corpus, encoder: PrivateEncoder) -> Any:
    """The texts or the ready vectors of the corpus, whichever the encoder consumes."""
    texts = corpus.texts.tolist() if corpus.texts is not None else None
    inputs = texts if encoder.consumes == "texts" else corpus.vectors
    if inputs is None:
        raise DataError(
            f"the encoder consumes {encoder.consumes}, and {corpus.name!r} holds none; "
            "name the column with --text or --vectors"
        )
    return inputs
