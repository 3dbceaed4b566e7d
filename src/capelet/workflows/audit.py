"""The audit: what does a release give away, and what is it good for?

The corpus is split into defender, attacker and victims, once for each seed; `evaluation` measures
leakage, utility, fairness and geometry; what comes out are findings and artefacts for a report.
Attributes are one kind of attack. Words, writers and training texts are others (`attacks`), and an
audit of those needs no private column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from capelet.attacks.attribute import Family, families, one_thread
from capelet.attacks.inversion.run import Inversion
from capelet.attacks.membership.run import Membership
from capelet.data.corpus import Corpus
from capelet.data.datasets import DATASETS, load
from capelet.data.official import column_of
from capelet.data.readers import read
from capelet.data.splits import Seeds, group_rows, seed_list
from capelet.encoders import DEFAULT, with_cache
from capelet.encoders.cache import RememberingEncoder
from capelet.errors import CapeletError, DataError, name_field, spell
from capelet.evaluation.access import Access, access_of
from capelet.evaluation.attacks import AttackPlan, TextAttacks
from capelet.evaluation.geometry import (
    deviation,
    separability,
    tsne,
    tsne_clouds,
    tsne_shift,
)
from capelet.evaluation.leakage import attack_all, findings_of, learning_curve
from capelet.evaluation.plan import Flags, Plan, rows_left_out, split_corpus
from capelet.evaluation.provenance import Clock, audit_provenance, describe_auxiliary
from capelet.evaluation.transfer import Auxiliary, attack_from_elsewhere
from capelet.evaluation.utility import neighbours
from capelet.findings import Finding, Findings
from capelet.interfaces import Encoder, Progress, Vectors, silent
from capelet.privacy.origins import seen_in_training
from capelet.question import Columns, chosen, collect, listed
from capelet.release import PrivateEncoder, Release
from capelet.release.seeded import SeededEncoder
from capelet.workflows.progress import default_progress

# How a picture calls the vectors of the encoder, and those of the audited release.
ORIGINAL, RELEASE = "original", "released"


def audit(
    corpus: Any,
    encoder: PrivateEncoder | Encoder | str | None = None,
    *,
    attacks: str | Sequence[str] = ("attributes",),
    members: Sequence[bool] | None = None,
    auxiliary: Corpus | None = None,
    show_texts: bool = False,
    seeds: Seeds = 5,
    split: str = "auto",
    attackers: Any = (),
    derive: str | Sequence[str] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
    seeded_noise: bool = False,
    threads: int | None = None,
    metrics: str | Sequence[str] = (),
    compare_map: Mapping[str, PrivateEncoder] | None = None,
    cache: bool = True,
    progress: Progress | None = None,
    **columns: Any,
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
    (named,) = collect(columns, Columns)
    corpus = corpus_of(corpus, named, split)
    progress = default_progress(progress)
    attacks, attackers, derive, metrics = map(listed, (attacks, attackers, derive, metrics))
    clock = Clock()
    # Before anything is encoded: a misspelt name must not cost a pass over the corpus.
    attacker_families = families(attackers)
    kinds = AttackPlan.of(attacks, corpus, members, derive)
    target = private_encoder(corpus, encoder, cache)
    inputs = inputs_of(corpus, target)
    trained = rows_that_trained(target, inputs)
    plan = plan_of(corpus, kinds, seeds, split, derive, bins, trained).with_work(threads, metrics)
    if compare_map:
        _check_compared(compare_map, target)
    if auxiliary is not None and "attributes" not in kinds.kinds:
        raise DataError("auxiliary data teach attackers of attributes; ask for those too")
    other = None if auxiliary is None else Auxiliary.of(auxiliary, plan, derive, bins)
    if seeded_noise and not cache:  # the texts are released once for each seed
        target = target.with_encoder(RememberingEncoder)
    encoders = encoders_of(target, plan, seeded_noise)
    with clock("encoding"):
        releases = release_each(encoders, inputs, progress)
    rows: list[Finding] = []
    artefacts: dict[str, Any] = {}
    if "attributes" in kinds.kinds:
        # What the noise has cost shows only beside the vectors as they were.
        plain = target.unprotected().release(inputs, progress) if target.protects else None
        original = None if plain is None else plain.vectors
        rows, artefacts = measure_releases(
            plan,
            releases,
            original,
            attacker_families,
            clock,
            progress,
            # Whoever names families asks for those alone.
            access_of(encoders, inputs, None if attackers else original),
        )
    if compare_map:
        with clock("scores"), one_thread():
            artefacts["tsne_clouds"] = _clouds(plan, target, releases[0], compare_map, inputs)
    if other is not None:
        with clock("auxiliary"):
            more = _from_elsewhere(plan, other, encoders[0], releases[0], attacker_families)
            rows = [*rows, *more]
    first_seed = plan.splits[0].seed
    others = TextAttacks(
        kinds,
        redact=not show_texts,
        seeds=seeds,
        inversion=Inversion(seed=first_seed),
        membership=Membership(seed=first_seed),
    )
    more, pictures = others.measure(plan, encoders[0], releases[0], members, clock, progress)
    origin = {**audit_provenance(plan, target, releases[0], clock), **_attack_entries(kinds)}
    if other is not None:
        origin |= {"auxiliary": describe_auxiliary(other.corpus, other.overlap)}
    return Findings((*rows, *more), origin, releases[0].recipe, {**artefacts, **pictures})


def _check_compared(compare_map: Mapping[str, PrivateEncoder], target: PrivateEncoder) -> None:
    """Refuse, before anything is encoded, what has no place in one map with the target's."""
    for name, private in compare_map.items():
        if name in (ORIGINAL, RELEASE):
            raise DataError(f"a release beside this one is called {name!r}; give it another name")
        if private.consumes != target.consumes:
            raise DataError(
                f"{name!r} consumes {private.consumes}, and what is audited {target.consumes}; "
                f"leave it out of {name_field('compare_map')}"
            )


def encoders_of(
    private: PrivateEncoder, plan: Plan, is_study: bool, purpose: str = "release"
) -> list[PrivateEncoder]:
    """For each split what its release is drawn by: the encoder itself, or with the split's seed."""
    if not (is_study and private.draws):
        return [private] * len(plan.splits)
    return [SeededEncoder.of(private, parts.seed, purpose) for parts in plan.splits]


def release_each(
    encoders: Sequence[PrivateEncoder], inputs: Any, progress: Progress
) -> list[Release]:
    """The release of each split; where splits share an encoder, they share its release."""
    releases = {id(item): item.release(inputs, progress) for item in dict.fromkeys(encoders)}
    return [releases[id(item)] for item in encoders]


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
    attackers: Sequence[Family],
) -> list[Finding]:
    """What attackers read who learn from another corpus, sent through the same release."""
    inputs = inputs_of(auxiliary.corpus, target)
    (access,) = access_of([target], inputs, None)
    own = target.release(inputs).vectors
    return attack_from_elsewhere(plan, auxiliary, release, own, attackers, access)


def corpus_of(data: Any, columns: Columns, split: str = "auto") -> Corpus:
    """A corpus as it is, that of a named set, or that of whatever `read` takes.

    A split by a column needs that column, whoever reads the table.
    """
    given = chosen(columns)
    if isinstance(data, Corpus):
        if given:
            raise CapeletError(
                f"a Corpus knows its columns; leave out {', '.join(given)}, or give the table "
                "itself"
            )
        return data
    if isinstance(data, str) and data in DATASETS and not Path(data).exists():
        if given:
            raise DataError(
                f"the set {data!r} knows its own columns; read its file to choose others"
            )
        return load(data, official=column_of(split))
    return read(data, official=column_of(split), **given)


def plan_of(
    corpus: Corpus,
    attacks: AttackPlan,
    seeds: Seeds = 5,
    split: str = "auto",
    derive: Sequence[str] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
    trained: Flags | None = None,
) -> Plan:
    """The plan of the kinds that were asked for; without attributes and task it is the splits."""
    if "attributes" in attacks.kinds or corpus.private or corpus.label is not None or derive:
        # Columns that are not asked about still decide who is a victim: so runs stay comparable.
        plan = Plan.of(corpus, seeds, split, derive, bins, trained)
        if "attributes" in attacks.kinds:
            plan.check_victims()
        return plan
    # Only authorship averages over seeds, and it draws its own; the others keep to one split.
    parts = split_corpus(corpus, split, seed_list(seeds)[0], trained=trained)
    notes = (*corpus.notes, *rows_left_out(parts, len(corpus)))
    return Plan(corpus, (), None, (parts,), group_rows(corpus), notes)


def rows_that_trained(encoder: PrivateEncoder, inputs: Any) -> Flags:
    """Which rows trained the encoder, as far as this user's state folder tells."""
    return seen_in_training([origin.id for origin in encoder.origins], inputs)


def _attack_entries(attacks: AttackPlan) -> dict[str, Any]:
    """What the provenance says of the kinds of attack; attributes only where they were tried."""
    entries: dict[str, Any] = {
        "attacks": list(attacks.kinds),
        "left_out": [spell(reason, "page") for reason in attacks.left_out],
    }
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
    access: Sequence[Access] = (),
) -> tuple[list[Finding], dict[str, Any]]:
    """All findings and artefacts of a release, given once for each split of the plan.

    `original` are the unprotected vectors of a protected release; `access` is what attackers may
    use beside the released ones. What needs one release (pictures,
    deviation) is shown of the first.
    """
    first, vectors = releases[0], [release.vectors for release in releases]
    with clock("attacks"):
        tally = attack_all(plan, vectors, attackers, progress, access)
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


def inputs_of(corpus: Corpus, encoder: PrivateEncoder) -> Any:
    """The texts or the ready vectors of the corpus, whichever the encoder consumes."""
    texts = corpus.texts.tolist() if corpus.texts is not None else None
    inputs = texts if encoder.consumes == "texts" else corpus.vectors
    if inputs is None:
        raise DataError(
            f"the encoder consumes {encoder.consumes}, and {corpus.name!r} holds none; "
            f"name the column with {name_field('text')} or {name_field('vectors')}"
        )
    return inputs
