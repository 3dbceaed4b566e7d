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

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capelet.data.corpus import Corpus, Split
from capelet.data.labels import Attribute, makes_task
from capelet.defences import Defence, Settings, check_choices
from capelet.defences import method as method_record
from capelet.defences.settings import SPECIMEN
from capelet.encoders.cache import RememberingEncoder
from capelet.encoders.model_folder import claim_folder
from capelet.encoders.own import TunedEncoder, unwrap
from capelet.errors import CapeletError, DataError, name_field
from capelet.evaluation.decision import plan_attributes
from capelet.evaluation.measure import Released, measure, pictures
from capelet.evaluation.plan import Plan
from capelet.evaluation.provenance import Clock, audit_provenance
from capelet.files import cache_folder, inner_folder
from capelet.findings import Finding, Findings
from capelet.interfaces import Encoder, Progress
from capelet.privacy.guarantees import Guarantee
from capelet.privacy.origins import check_state, remember_training_rows
from capelet.question import (
    Columns,
    Network,
    Protocol,
    Search,
    Training,
    collect,
    listed,
    takes,
)
from capelet.release import PrivateEncoder, recipe_hash
from capelet.workflows.audit import corpus_of, private_encoder
from capelet.workflows.progress import default_progress
from capelet.workflows.settings_choice import check_wish, search
from capelet.workflows.training import TrainingJob, attributes_to_fight, check_choice
from capelet.workflows.units import SPLIT, check_units

JOINT = "joint-adversary"
# Settings of which an account speaks only where somebody chose them.
OF_HEADS = ("adversary_loss", "heads")
# Splits where nobody chose: fewer than of an audit, for each is a training.
SEEDS = 3


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


@takes(Columns, Protocol, Search, Training, Network)
def protect(
    corpus: Any,
    encoder: PrivateEncoder | Encoder | str | None = None,
    method: str = "gr+",
    settings: Settings | None = None,
    *,
    hold_out: str | Sequence[str] = (),
    cache: bool = True,
    progress: Progress | None = None,
    **question: Any,
) -> Protection:
    """Train a private encoder for this corpus and measure what it leaks and costs.

    Example: `protect(frame, private="gender", label="stars", method="bottleneck", epsilon=8)`.
    `corpus` may also be a `Corpus`; the question is asked by the fields of `question.Columns` (the
    arguments of `capelet.read`), `Protocol`, `Search`, and of `Training` and `Network`, which go
    before what `settings` say. Which method serves which use is told by `capelet.propose`.
    `hold_out` are private attributes that the training may not see: they are measured all the same.
    With `max_leakage` (the attackers' gain over chance) or `min_utility`, settings that nobody
    chose are searched first, and `TargetNotMet` is raised when none of the `trials` will do,
    or when fresh victims do not show that the chosen one keeps `max_leakage`.
    An ε at which nothing can beat the commonest class is refused, unless `allow_useless_epsilon`.
    With `settings.training` the map is trained with differential privacy
    (`defences.private_training`). With `seeded_noise` what is measured are study releases, drawn
    from each split's seed; the encoder that is returned draws from the operating system like any
    other. `threads` is how many splits are attacked in parallel, `metrics` are computed beside the
    usual ones.
    """
    clock, progress = Clock(), default_progress(progress)
    columns, protocol, wish, training, network = collect(
        question, Columns, Protocol, Search, Training, Network
    )
    corpus, hold_out = corpus_of(corpus, columns, protocol.split), listed(hold_out)
    check_choices(method, training, network)
    choice = Settings.of(training, network, settings)
    if settings is None and training.keep is None:
        choice = replace(choice, keep=_what_to_keep(corpus, protocol.derive, method))
    if choice.training is not None:
        check_units(corpus, choice.training, protocol.split, bool(protocol.derive))
        protocol = replace(protocol, split=SPLIT)
    if protocol.seeds is None:
        protocol = replace(protocol, seeds=SEEDS)
    plan = plan_attributes(protocol, corpus)
    plan.check_victims()
    against = attributes_to_fight(plan, hold_out)
    has_search = wish.max_leakage is not None or wish.min_utility is not None
    if has_search:
        plan = plan.with_common_victims()
    _check_choice(plan, against, method, choice, has_search)
    if has_search:
        plan.search_split(against)  # refused before anything is encoded
    if protocol.seeded_noise and has_search:
        raise DataError(
            "a search draws noise of its own, which no seed repeats; leave "
            f"{name_field('seeded_noise')} out, or {name_field('max_leakage')} and "
            f"{name_field('min_utility')}"
        )
    plain = private_encoder(corpus, encoder, cache)
    if not cache:  # the texts are released once for each seed, and encoded once for all
        plain = plain.with_encoder(RememberingEncoder)
    job = TrainingJob.of(plan, method, choice, against, plain, progress)
    _check_epsilon(plan, choice, method, wish.allow_useless_epsilon)
    check_state()
    _check_layers(job, has_search)
    with clock("encoding"):
        unprotected, lessons = job.encode()
    original = unprotected.first
    frontier = None
    if has_search:
        with clock("search"):
            frontier = search(
                job, lessons[0].vectors, original.vectors, max_leakage=wish.max_leakage,
                min_utility=wish.min_utility, trials=wish.trials,
            )  # fmt: skip
        job = replace(job, settings=replace(choice, **frontier.best_settings()))
    with clock("training"):
        defences = job.train(lessons, cache_folder() / "training")
    encoders = [job.ship(item) for item in defences]
    _remember_rows(plan.splits[0], job.inputs, encoders[0], plain)
    with clock("release"):
        released = job.release(encoders, original.vectors)
    # The same splits and attackers before and after: only the encoder differs.
    before = _measure(job, plain, unprotected, clock)
    after = _measure(job, encoders[0], released, clock)
    for item in defences[1:]:
        if isinstance(item.encoder, TunedEncoder):
            item.encoder.forget()  # only the encoder of the first seed is kept
    if frontier is not None:
        check_wish(frontier, _strongest(after, against))
        after = replace(after, artefacts={**after.artefacts, "frontier": frontier.artefact()})
    after = _with_account(job, after, defences, hold_out)
    return Protection(encoders[0] if cache else encoders[0].with_encoder(unwrap), before, after)


def _what_to_keep(corpus: Corpus, derive: Sequence[str], name: str) -> str:
    """The task where there is one, or where the method knows nothing else to keep."""
    has_task = corpus.label is not None or any(map(makes_task, derive))
    return "task" if has_task or "neighbours" not in method_record(name).keeps else "neighbours"


def _measure(
    job: TrainingJob, encoder: PrivateEncoder, released: Released, clock: Clock
) -> Findings:
    """What fresh attackers read off these releases, one for each split, and their worth."""
    rows, tally = measure(job.plan, released, clock, job.progress)
    artefacts = pictures(job.plan, released, tally, clock)
    origin = audit_provenance(job.plan, encoder, released.first, clock)
    return Findings(tuple(rows), origin, released.first.recipe, artefacts)


def _strongest(findings: Findings, against: Sequence[Attribute]) -> list[Finding]:
    """The strongest attacker on each attribute that the training fought."""
    names = {item.name for item in against}
    rows = findings.select(
        kind="attribute-inference", attacker="strongest", metric="balanced_accuracy"
    )
    return [row for row in rows if row.target in names]


def _check_epsilon(plan: Plan, settings: Settings, name: str, allow_useless_epsilon: bool) -> None:
    """Refuse an ε that cannot serve the task, before anything is trained."""
    # The ε of mdp is per unit of distance between words, and bounds no single prediction.
    if settings.epsilon is None or method_record(name).noise != "vectors" or allow_useless_epsilon:
        return
    objections = plan.epsilon_warnings(Guarantee(settings.epsilon))
    if objections:
        raise DataError(
            f"{objections[0]}; give a larger {name_field('epsilon')}, or "
            f"{name_field('allow_useless_epsilon')} to see it for yourself"
        )


def _check_layers(job: TrainingJob, has_search: bool) -> None:
    """Refuse to train layers that cannot be trained, before anything is encoded."""
    if not job.settings.tune_layers:
        return
    from capelet.encoders.tuning import tunable

    tunable(job.plain.encoder, job.settings.tune_layers)
    if len(job.plain.steps) != 1:
        raise DataError(
            f"{name_field('tune_layers')} trains an encoder, and here are steps before or behind it"
        )
    if has_search:
        raise DataError(
            f"{name_field('tune_layers')} takes too long for a search; search without it, then "
            "give what was found"
        )


def _check_choice(
    plan: Plan, against: Sequence[Attribute], name: str, choice: Settings, has_search: bool
) -> None:
    """Refuse a method without what it needs, and what a private training would choose by looking.

    Settings, and classes cut by frequency, are chosen by looking at all rows.
    """
    if choice.mechanism.startswith(SPECIMEN):
        raise CapeletError(
            f"the mechanism {choice.mechanism!r} is known to be broken: a study may measure it, "
            "and nothing is protected with it"
        )
    if choice.training is not None and has_search:
        raise DataError(
            f"a search among settings counts as training, and {name_field('train_epsilon')} does "
            f"not cover it; leave {name_field('max_leakage')} and {name_field('min_utility')} out"
        )
    # An ε that will be searched need not be given.
    is_open = has_search and choice.epsilon is None and "epsilon" in method_record(name).needs
    check_choice(plan, against, name, replace(choice, epsilon=1.0) if is_open else choice)


def _remember_rows(
    parts: Split, inputs: Any, private: PrivateEncoder, plain: PrivateEncoder
) -> None:
    """Know which rows trained what is new in this encoder; held-back rows chose when to stop."""
    before = {origin.id for origin in plain.origins}
    ids = [origin.id for origin in private.origins if origin.id not in before]
    remember_training_rows(ids, [inputs[row] for row in parts.defender])


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


def _with_account(
    job: TrainingJob, after: Findings, defences: Sequence[Defence], hold_out: Sequence[str]
) -> Findings:
    """The findings, with what the training believed and how it was made."""
    rows = (*after.rows, *_joint(defences, job.against, recipe_hash(after.recipe)))
    about = {
        **_about(job, defences),
        "hold_out": list(hold_out),
        "versions": after.provenance["versions"],
    }
    return replace(after, rows=rows, provenance={**after.provenance, "protect": about})


def _about(job: TrainingJob, defences: Sequence[Defence]) -> dict[str, Any]:
    """How the encoder was trained, and on what."""
    plan, record = job.plan, method_record(job.name)
    against = [item.name for item in job.against] if record.fights_with(job.whole_settings) else []
    return {
        "method": job.name,
        "settings": _as_json(job.whole_settings, record.fights == "by lambda"),
        "against": against,
        "data": {"name": plan.corpus.name},
        **_figures(plan, job.whole_settings, defences),
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


def _as_json(settings: Settings, by_lambda: bool) -> dict[str, Any]:
    """The settings as JSON, without those at None, heads as ever, and a λ that does nothing.

    A page that printed λ = 1 of a method without a λ would speak of a strength that it has not.
    """
    content = asdict(settings if by_lambda else replace(settings, adversary_weight=None))
    usual = asdict(Settings())
    return {
        key: value
        for key, value in content.items()
        if value is not None and not (key in OF_HEADS and value == usual[key])
    }
