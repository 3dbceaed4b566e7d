"""Protect: train a private encoder, and measure before and after with fresh attackers.

For each seed the defence learns on the defender's part; its map is frozen, all rows are released
through it, and fresh attackers (of every family, trained on released vectors of the attacker's
part) try what they can. The defence's own adversary is shown beside them: the difference is the
false comfort of adversarial training. What is saved is the encoder of the first seed.

A trained map is *not* private towards the texts it was trained on, unless it was trained with
differential privacy (`settings.training`). The guarantee of a noise step is for the texts that pass
through. Which rows trained the map is remembered in the user's state folder
and nowhere else (`privacy.origins`), so that later releases and audits can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capelet.attacks.attribute import Family, families
from capelet.data.corpus import Corpus, Split
from capelet.data.labels import Attribute
from capelet.data.splits import Seeds
from capelet.defences import Defence, Settings, check_attributes, check_needs, fit, method
from capelet.encoders.cache import RememberingEncoder
from capelet.encoders.model_folder import claim_folder
from capelet.encoders.own import TunedEncoder, bare
from capelet.errors import DataError, did_you_mean
from capelet.evaluation.access import Access
from capelet.evaluation.plan import Plan
from capelet.evaluation.provenance import Clock, audit_provenance
from capelet.files import cache_folder, inner_folder
from capelet.findings import Finding, Findings
from capelet.interfaces import Encoder, Progress, Vectors, silent
from capelet.privacy.guarantees import Guarantee
from capelet.privacy.origins import check_state, keep_training_rows
from capelet.release import PrivateEncoder, Release
from capelet.release.study import StudyEncoder
from capelet.workflows.audit import (
    access_of,
    encoders_of,
    inputs_of,
    measure_releases,
    private_encoder,
    release_each,
)
from capelet.workflows.search import check_wish, part_of, search, steps_with
from capelet.workflows.units import SPLIT, check_classes, check_units, with_units

JOINT = "joint-adversary"
# Settings of which an account speaks only where somebody chose them.
OF_HEADS = ("lambdas", "adversary_loss", "heads")


@dataclass(frozen=True, eq=False)
class Protection:
    """A private encoder, and what leaked before and leaks now."""

    encoder: PrivateEncoder
    before: Findings
    after: Findings

    def save(self, folder: Path | str) -> Path:
        """Write `before/`, the findings after and, last, the private encoder; the folder."""
        target = claim_folder(folder)
        self.before.save(inner_folder(target, "before"))
        self.after.save(target)
        # Its manifest is the last file: a folder that is a private encoder is a whole one.
        return self.encoder.save(target, self.after.provenance["protect"])


def protect(
    corpus: Corpus,
    encoder: PrivateEncoder | Encoder | str | None = None,
    method_name: str = "gr+",
    settings: Settings | None = None,
    *,
    held_out: Sequence[str] = (),
    max_leakage: float | None = None,
    min_utility: float | None = None,
    fixed: Sequence[str] = (),
    trials: int = 20,
    anyway: bool = False,
    seeds: Seeds = 3,
    split_kind: str = "auto",
    attackers: Sequence[str] = (),
    derived: Sequence[str] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
    seeded_noise: bool = False,
    threads: int | None = None,
    metrics: Sequence[str] = (),
    cache: bool = True,
    progress: Progress = silent,
) -> Protection:
    """Train a private encoder for this corpus and measure what it leaks and costs.

    Example: `protect(capelet.load("reviews"), "minilm", "bottleneck", Settings(epsilon=8))`.
    `held_out` are private attributes that the training may not see: they are measured all the same.
    With `max_leakage` (the attackers' gain over chance) or `min_utility`, settings other than the
    `fixed` ones are searched first, and `NoPoint` is raised when none of the `trials` will do, or
    when fresh victims do not show that the chosen one keeps `max_leakage`.
    An ε at which nothing can beat the commonest class is refused, unless `anyway`. With
    `settings.training` the map is trained with differential privacy (`defences.private_training`).
    With `seeded_noise` what is measured are study releases, drawn from each split's seed; the
    encoder that is returned draws from the operating system like any other. `threads` is how many
    splits are attacked abreast, `metrics` are computed beside the usual ones.
    """
    clock = Clock()
    choice = method(method_name).with_lambda(settings or Settings())
    attacker_families = families(attackers)
    if choice.training is not None:
        check_units(corpus, choice.training, split_kind, bool(derived))
        split_kind = SPLIT
    plan = Plan.of(corpus, seeds, split_kind, derived, bins).with_work(threads, metrics)
    against = _against(plan, held_out)
    wish = {"max_leakage": max_leakage, "min_utility": min_utility}
    has_search = any(value is not None for value in wish.values())
    if has_search:
        plan = plan.with_common_victims()
    # An ε that will be searched need not be given.
    open_epsilon = choice.epsilon is None and "epsilon" in method(method_name).needs
    complete = replace(choice, epsilon=1.0) if has_search and open_epsilon else choice
    check_needs(method_name, complete, plan.label, against)
    check_attributes(choice, [item.name for item in against])
    if choice.training is not None:
        _check_choices(plan, against, has_search)
    texts = method(method_name).text_steps(choice)
    plain = private_encoder(corpus, encoder, cache)
    if seeded_noise and has_search:
        raise DataError(
            "a search draws noise of its own, which no seed repeats; leave --seeded-noise out, or "
            "--max-leakage and --min-utility"
        )
    if not cache:  # the texts are released once for each seed, and encoded once for all
        plain = plain.with_encoder(RememberingEncoder)
    _check_epsilon(plan, choice, method_name, anyway)
    check_state()
    inputs = inputs_of(corpus, plain)
    if plain.consumes != "texts" and not method(method_name).on_vectors:
        raise DataError(
            f"the method {method_name!r} changes or reads texts, and there are only vectors"
        )
    _check_layers(plain, choice, has_search)
    with clock("encoding"):
        unprotected = encoders_of(plain, plan, seeded_noise, "original")
        originals = release_each(unprotected, inputs, progress)
        bases, original = originals, originals[0]
        if texts:
            # Text steps act before the encoder, so the defence learns on what they leave of a text.
            teachers = PrivateEncoder(*texts, *plain.steps)
            bases = release_each(
                encoders_of(teachers, plan, seeded_noise, "training"), inputs, progress
            )
    frontier = None
    if has_search:
        with clock("search"):
            frontier = search(
                plan, bases[0].vectors, original.vectors, against, method_name, choice,
                fixed_settings=fixed, attackers=attackers, trials=trials, progress=progress,
                **wish,
            )  # fmt: skip
        choice = replace(choice, **frontier.best_settings())
    with clock("training"):
        defences = [
            _fit_split(
                plan,
                parts,
                base.vectors,
                against,
                method_name,
                _settings_of(choice, parts, seeded_noise),
                progress,
                plain,
            )
            for parts, base in zip(plan.splits, bases, strict=True)
        ]
    encoders = [
        PrivateEncoder(*texts, *steps_with(item, plain.steps), head=item.outcome.head)
        for item in defences
    ]
    _remember_rows(plan.splits[0], inputs, encoders[0], plain)
    with clock("release"):  # by the object that is saved: what is measured is what ships
        sources = _sources(encoders, plan) if seeded_noise else encoders
        releases = [private.release(inputs, progress) for private in sources]
    for item in defences[1:]:
        if isinstance(item.encoder, TunedEncoder):
            item.encoder.forget()  # only the encoder of the first seed is kept
    # The same splits and attackers before and after: only the encoder differs.
    before = _findings(plan, plain, originals, None, attacker_families, clock, progress)
    access = access_of(sources, inputs, None if attackers else original.vectors)
    after = _findings(
        plan, encoders[0], releases, original.vectors, attacker_families, clock, progress, access
    )
    if frontier is not None:
        check_wish(frontier, _strongest(after, against))
    rows = (*after.rows, *_joint(defences, against, releases[0].recipe_hash))
    about = _about(plan, method_name, choice, against, defences)
    artefacts = dict(after.artefacts) | ({"frontier": frontier.artefact()} if frontier else {})
    origin = {
        **after.provenance,
        "protect": {**about, "held_out": list(held_out), "versions": after.provenance["versions"]},
    }
    after = replace(after, rows=rows, artefacts=artefacts, provenance=origin)
    return Protection(encoders[0] if cache else encoders[0].with_encoder(bare), before, after)


def _sources(encoders: Sequence[PrivateEncoder], plan: Plan) -> list[PrivateEncoder]:
    """The encoder of each split, with noise from that split's seed where it draws any."""
    splits = zip(encoders, plan.splits, strict=True)
    return [StudyEncoder.of(item, parts.seed) if item.draws else item for item, parts in splits]


def _settings_of(settings: Settings, parts: Split, seeded: bool) -> Settings:
    """Each split trains from its own seed, so that the mean covers the luck of training too.

    In a study the noise of a private training is from that seed as well.
    """
    schedule, training = replace(settings.schedule, seed=parts.seed), settings.training
    if seeded and training is not None:
        training = replace(training, seed_noise=parts.seed)
    return replace(settings, schedule=schedule, training=training)


def _against(plan: Plan, held_out: Sequence[str]) -> tuple[Attribute, ...]:
    names = [item.name for item in plan.secrets]
    for name in held_out:
        if name not in names:
            raise DataError(
                f"--hold-out names {name!r}, which is no private attribute; "
                f"{did_you_mean(name, names)}"
            )
    return tuple(item for item in plan.secrets if item.name not in held_out)


def _strongest(findings: Findings, against: Sequence[Attribute]) -> list[Finding]:
    """The strongest attacker on each attribute that the training fought."""
    names = {item.name for item in against}
    rows = findings.select(
        kind="attribute-inference", attacker="strongest", metric="balanced_accuracy"
    )
    return [row for row in rows if row.target in names]


def _check_epsilon(plan: Plan, settings: Settings, name: str, anyway: bool) -> None:
    """Refuse an ε that cannot serve the task, before anything is trained."""
    # The ε of mdp is per unit of distance between words, and bounds no single prediction.
    if settings.epsilon is None or method(name).noise != "vectors" or anyway:
        return
    objections = plan.advance(Guarantee(settings.epsilon))
    if objections:
        raise DataError(
            f"{objections[0]}; give a larger --epsilon, or --anyway to see it for yourself"
        )


def _check_layers(plain: PrivateEncoder, settings: Settings, has_search: bool) -> None:
    """Refuse to tune where there are no layers to train, before anything is encoded."""
    if not settings.layers:
        return
    from capelet.encoders.tuning import tunable

    tunable(plain.encoder, settings.layers)
    if len(plain.steps) != 1:
        raise DataError("--tune-layers trains an encoder, and here are steps before or behind it")
    if has_search:
        raise DataError(
            "--tune-layers takes too long for a search; search without it, then give what was found"
        )


def _check_choices(plan: Plan, against: Sequence[Attribute], has_search: bool) -> None:
    """Refuse what would be chosen by looking at all rows: settings, and classes."""
    if has_search:
        raise DataError(
            "a search among settings counts as training, and --train-epsilon does not cover it; "
            "leave --max-leakage and --min-utility out"
        )
    check_classes([*against, *([plan.label] if plan.label is not None else [])])


def _fit_split(
    plan: Plan,
    parts: Split,
    vectors: Vectors,
    against: Sequence[Attribute],
    name: str,
    settings: Settings,
    progress: Progress,
    plain: PrivateEncoder,
) -> Defence:
    part = part_of(plan, parts, vectors, against)
    if settings.training is not None:
        part = with_units(part, plan, parts, settings.training)
    if settings.layers:
        from capelet.encoders.tuning import top_layers

        assert plain.encoder is not None and part.texts is not None
        top = top_layers(plain.encoder, part.texts, settings.layers, progress)
        part = replace(part, top=top)
    checkpoints = cache_folder() / "training"
    place = plan.splits.index(parts)

    def of_all_seeds(what: str, count: int, total: int) -> None:
        progress(what, place * total + count, len(plan.splits) * total)

    return fit(name, part, settings, checkpoints, of_all_seeds)


def _remember_rows(
    parts: Split, inputs: Any, private: PrivateEncoder, plain: PrivateEncoder
) -> None:
    """Keep which rows trained what is new in this encoder; held-back rows chose when to stop."""
    before = {origin.id for origin in plain.origins}
    ids = [origin.id for origin in private.origins if origin.id not in before]
    keep_training_rows(ids, [inputs[row] for row in parts.defender])


def _findings(
    plan: Plan,
    encoder: PrivateEncoder,
    releases: Sequence[Release],
    original: Vectors | None,
    attackers: Sequence[Family],
    clock: Clock,
    progress: Progress,
    access: Sequence[Access] = (),
) -> Findings:
    rows, artefacts = measure_releases(plan, releases, original, attackers, clock, progress, access)
    origin = audit_provenance(plan, encoder, releases[0], clock)
    return Findings(tuple(rows), origin, releases[0].recipe, artefacts)


def _joint(
    defences: Sequence[Defence], against: Sequence[Attribute], recipe_hash: str
) -> list[Finding]:
    """What the defence's own adversary reached, on the defender's held-back rows."""
    rows = []
    for item in against:
        heads = [one.outcome.joint for one in defences]
        scores = [joint[item.name] for joint in heads if item.name in joint]
        if scores:
            rows.append(
                Finding(
                    # A reference and no measure of leakage: the map was trained against this very
                    # adversary.
                    "attribute-inference-reference",
                    item.name,
                    "balanced_accuracy",
                    float(np.mean(scores)),
                    chance=1 / len(item.classes),
                    attacker=JOINT,
                    parameters={"by_seed": scores},
                    recipe_hash=recipe_hash,
                )
            )
    return rows


def _about(
    plan: Plan,
    name: str,
    settings: Settings,
    against: Sequence[Attribute],
    defences: Sequence[Defence],
) -> dict[str, Any]:
    """How the encoder was trained, and on what."""
    return {
        "method": name,
        "settings": _as_json(settings),
        "against": [item.name for item in against] if method(name).fights_with(settings) else [],
        "data": {"name": plan.corpus.name},
        **_figures(plan, settings, defences),
        "seeds": len(plan.splits),
        "private_towards_training_texts": all(
            item.outcome.map.training.status == "proven" for item in defences
        ),
        "ships": "the files of manifest.json; findings and report beside them are exact figures",
    }


def _figures(
    plan: Plan, settings: Settings, defences: Sequence[Defence]
) -> dict[str, float | int | None]:
    """Exact figures of the training; beside a private one none, for they would ship with it."""
    if settings.training is not None:
        return {"trained_on": None, "training_seconds": None}
    seconds = float(np.mean([item.outcome.seconds for item in defences]))
    return {"trained_on": len(plan.splits[0].defender), "training_seconds": round(seconds, 2)}


def _as_json(settings: Settings) -> dict[str, Any]:
    """The settings as JSON: what was left at None, or is about heads and as ever, is left out."""
    content, usual = asdict(settings), asdict(Settings())
    return {
        key: value
        for key, value in content.items()
        if value is not None and not (key in OF_HEADS and value == usual[key])
    }
