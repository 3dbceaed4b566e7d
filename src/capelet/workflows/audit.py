"""The audit: what does a release give away, and what is it good for?

The corpus is split into defender, attacker and victims, once for each seed; `evaluation` measures
leakage, utility, fairness and geometry; what comes out are findings and artefacts for a report.
Attributes are one kind of attack. Words, writers and training texts are others (`attacks`), and an
audit of those needs no private column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from capelet.data.corpus import Corpus
from capelet.data.datasets import load
from capelet.data.official import column_of
from capelet.data.readers import read
from capelet.data.streams import is_named
from capelet.encoders import DEFAULT, with_cache
from capelet.encoders.cache import RememberingEncoder
from capelet.errors import CapeletError, DataError, name_field, spell
from capelet.evaluation.access import access_of
from capelet.evaluation.attacks import TextAttacks
from capelet.evaluation.decision import ORIGINAL, RELEASE, decide, inputs_of
from capelet.evaluation.geometry import tsne_clouds
from capelet.evaluation.measure import Released, encoders_of, measure, pictures
from capelet.evaluation.plan import AttackPlan, Plan
from capelet.evaluation.provenance import Clock, audit_provenance, describe_auxiliary
from capelet.evaluation.transfer import Auxiliary, attack_from_elsewhere
from capelet.findings import Finding, Findings
from capelet.interfaces import Encoder, Progress, silent
from capelet.question import Attacks, Columns, Protocol, chosen, collect, takes
from capelet.release import PrivateEncoder, Release
from capelet.workflows.progress import default_progress


@takes(Columns, Protocol, Attacks)
def audit(
    corpus: Any,
    encoder: PrivateEncoder | Encoder | str | None = None,
    *,
    cache: bool = True,
    progress: Progress | None = None,
    **question: Any,
) -> Findings:
    """Measure what a release of this corpus leaks and what it is worth.

    Example: `audit(capelet.load("reviews"), "minilm")`. `corpus` may also be whatever
    `capelet.read` takes (a file, a data frame …) with its arguments beside it:
    `audit(frame, text="body", private="gender")`. Without `encoder`, ready vectors are
    audited as they are, and texts through the default encoder. `attacks` are kinds of attack
    (`attributes`, `inversion`, `authorship`, `membership`) or `all` that the data allow; `members`
    says of each text whether the model was trained on it; `auxiliary` is another corpus that
    teaches one more attacker of attributes. The examples of inversion hold no text unless
    `show_texts`. Progress shows as a line in a terminal or a notebook, unless `progress` is given.
    Rows that trained the encoder are the defender's, never victims: on what it has learnt by heart,
    everything looks better than it is. With `seeded_noise` the release of each split is a study's,
    drawn from the split's seed, so that the audit can be repeated to the last digit. `threads` is
    how many splits are attacked in parallel, `metrics` are computed beside the usual ones.
    `compare_map` are other private encoders by name, plotted on one t-SNE map with these vectors.
    """
    columns, protocol, asked = collect(question, Columns, Protocol, Attacks)
    corpus = corpus_of(corpus, columns, protocol.split)
    progress = default_progress(progress)
    return PlannedAudit.of(corpus, encoder, protocol, asked, cache).measure(progress)


@dataclass(frozen=True, eq=False)
class PlannedAudit:
    """An audit after all that is refused was refused, and before anything is encoded.

    Whoever tells people what will be done reads it off the plan, and then measures by the same.
    """

    plan: Plan
    target: PrivateEncoder
    inputs: Any

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        encoder: PrivateEncoder | Encoder | str | None,
        protocol: Protocol,
        asked: Attacks,
        cache: bool = True,
    ) -> PlannedAudit:
        """Decide on this question, of a corpus and of what makes vectors of it."""
        target = private_encoder(corpus, encoder, cache)
        plan = decide(protocol, asked, corpus, target)
        if protocol.seeded_noise and not cache:  # the texts are released once for each seed
            target = target.with_encoder(RememberingEncoder)
        return cls(plan, target, inputs_of(corpus, target))

    def measure(self, progress: Progress = silent) -> Findings:
        """Encode, release and attack, as the plan says."""
        plan, target, inputs, clock = self.plan, self.target, self.inputs, Clock()
        asked = plan.attacks.asked
        encoders = encoders_of(target, plan)
        with clock("encoding"):
            released = Released.of(encoders, inputs, None, progress)
        first = released.first
        rows: list[Finding] = []
        artefacts: dict[str, Any] = {}
        if "attributes" in plan.attacks.kinds:
            if target.protects:
                # What the noise has cost shows only beside the vectors as they were.
                plain = target.unprotected().release(inputs, progress)
                released = replace(released, original=plain.vectors)
            rows, tally = measure(plan, released, clock, progress)
            artefacts = pictures(plan, released, tally, clock)
        if asked.compare_map:
            with clock("scores"):
                artefacts["tsne_clouds"] = _clouds(plan, target, first, asked.compare_map, inputs)
        if plan.auxiliary is not None:
            with clock("auxiliary"):
                rows += _from_elsewhere(plan, plan.auxiliary, encoders[0], first)
        more, others = TextAttacks().measure(plan, encoders[0], first, clock, progress)
        origin = {**audit_provenance(plan, target, first, clock), **_attack_entries(plan.attacks)}
        if plan.auxiliary is not None:
            other = plan.auxiliary
            origin |= {"auxiliary": describe_auxiliary(other.corpus, other.overlap)}
        return Findings((*rows, *more), origin, first.recipe, {**artefacts, **others})


def _clouds(
    plan: Plan,
    target: PrivateEncoder,
    release: Release,
    compare_map: Mapping[str, PrivateEncoder],
    inputs: Any,
) -> dict[str, Any]:
    """One map of the original vectors of the victims and of what several releases make of them."""
    original = target.unprotected().release(inputs).vectors
    clouds = {ORIGINAL: original} | ({RELEASE: release.vectors} if target.protects else {})
    seed = plan.splits[0].seed
    for name, private in compare_map.items():
        # Drawn from the seed: a picture is no release, and can be drawn again.
        vectors = private.with_encoder(_same_vectors(target)).study_release(inputs, seed).vectors
        if vectors.shape != original.shape:
            raise DataError(
                f"the vectors of {name!r} have {vectors.shape[1]} coordinates, and the original "
                f"ones {original.shape[1]}: they have no common map; leave it out of "
                f"{name_field('compare_map')}"
            )
        clouds[name] = vectors
    return tsne_clouds(clouds, plan.splits[0].victims, seed=0)


def _same_vectors(target: PrivateEncoder) -> Callable[[Encoder], Encoder]:
    """An encoder of the same weights is the one at hand, whose vectors are in the cache."""

    def change(encoder: Encoder) -> Encoder:
        own = target.encoder
        return own if own is not None and own.fingerprint == encoder.fingerprint else encoder

    return change


def _from_elsewhere(
    plan: Plan,
    auxiliary: Auxiliary,
    target: PrivateEncoder,
    release: Release,
) -> list[Finding]:
    """What attackers read who learn from another corpus, sent through the same release."""
    inputs = inputs_of(auxiliary.corpus, target)
    (access,) = access_of([target], inputs, None)
    own = target.release(inputs).vectors
    return attack_from_elsewhere(plan, auxiliary, release, own, access)


def corpus_of(data: Any, columns: Columns, split: str | None = None) -> Corpus:
    """A corpus as it is, that of a named set, or that of whatever `read` takes.

    A split by a column needs that column, whoever reads the table.
    """
    choices, official = chosen(columns), column_of(split or "auto")
    if isinstance(data, Corpus):
        if choices:
            raise CapeletError(
                f"a Corpus knows its columns; leave out {', '.join(choices)}, or give the table "
                "itself"
            )
        return data
    if isinstance(data, str) and is_named(data):
        if others := [name_field(name) for name in choices if name != "where"]:
            raise DataError(
                f"the set {data!r} knows its own columns; leave {', '.join(others)} out, or give "
                "its file to choose others"
            )
        return load(data, where=columns.where, official=official)
    return read(data, official=official, **choices)


def _attack_entries(attacks: AttackPlan) -> dict[str, Any]:
    """What the provenance says of the kinds of attack; attributes only where they were tried."""
    entries: dict[str, Any] = {
        "attacks": list(attacks.kinds),
        "left_out": [spell(reason, "page") for reason in attacks.left_out],
    }
    if "attributes" not in attacks.kinds:
        entries |= {"attributes": {}, "label": None}
    return entries


def private_encoder(
    corpus: Corpus, encoder: PrivateEncoder | Encoder | str | None, cache: bool
) -> PrivateEncoder:
    """What is to be audited, with a cache around its encoder if there may be one."""
    if isinstance(encoder, PrivateEncoder):
        private = encoder
    elif encoder is not None:
        private = PrivateEncoder(encoder)
    else:
        private = PrivateEncoder() if corpus.vectors is not None else PrivateEncoder(DEFAULT)
    return private.with_encoder(with_cache) if cache else private
