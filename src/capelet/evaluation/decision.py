"""The decision: all that can be wrong with a question is refused here, and once.

Every door asks the same way and gets the same plan or the same refusal. Of the encoder nothing is
asked that needs its weights: what it consumes, and what it was trained on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from capelet.attacks.families import Family, families
from capelet.data.corpus import Corpus
from capelet.errors import DataError, name_field
from capelet.evaluation.attacks import choose_attacks
from capelet.evaluation.plan import Flags, Plan, seeds_of
from capelet.evaluation.transfer import Auxiliary
from capelet.findings.metrics import check_metrics
from capelet.privacy.guarantees import check_count
from capelet.privacy.origins import seen_in_training
from capelet.question import Attacks, Protocol
from capelet.release import PrivateEncoder

# How a picture calls the vectors of the encoder, and those of the audited release.
ORIGINAL, RELEASE = "original", "released"


def decide(protocol: Protocol, asked: Attacks, corpus: Corpus, encoder: PrivateEncoder) -> Plan:
    """The plan of these attacks on what this encoder makes of the corpus; nothing is encoded."""
    attackers_of(protocol)  # a misspelt name must not cost a pass over the corpus
    attacks = choose_attacks(asked, corpus, protocol.derive)
    trained = rows_that_trained(encoder, inputs_of(corpus, encoder))
    is_of_attributes = "attributes" in attacks.kinds
    if is_of_attributes or corpus.private or corpus.label is not None or protocol.derive:
        # Columns that are not asked about are planned too: so that runs stay comparable.
        plan = plan_attributes(protocol, corpus, trained)
    else:
        # Only authorship averages over seeds, and it draws its own; the others keep to one split.
        first = seeds_of(protocol)[:1]
        plan = Plan.of(corpus, first, _split(protocol), trained=trained, has_targets=False)
        plan = _with_protocol(plan, protocol)
    if is_of_attributes:
        plan.check_victims()
    _check_compared(asked, encoder)
    auxiliary = _auxiliary(asked, plan, protocol, is_of_attributes)
    return replace(plan, attacks=attacks, auxiliary=auxiliary)


def plan_attributes(protocol: Protocol, corpus: Corpus, trained: Flags | None = None) -> Plan:
    """The plan of what attackers of attributes and probes of the task do, and of nothing else."""
    plan = Plan.of(
        corpus, seeds_of(protocol), _split(protocol), protocol.derive, protocol.bins, trained
    )
    return _with_protocol(plan, protocol)


def _with_protocol(plan: Plan, protocol: Protocol) -> Plan:
    if protocol.threads is not None:
        check_count("threads", protocol.threads)
    protocol = replace(protocol, metrics=check_metrics(protocol.metrics))
    return replace(plan, protocol=protocol, attackers=attackers_of(protocol))


def attackers_of(protocol: Protocol) -> tuple[Family, ...]:
    """The families that were named, or all; a name that there is not is refused."""
    return tuple(families(protocol.attackers))


def _split(protocol: Protocol) -> str:
    return protocol.split or "auto"


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


def rows_that_trained(encoder: PrivateEncoder, inputs: Any) -> Flags:
    """Which rows trained the encoder, as far as this user's state folder tells."""
    return seen_in_training([origin.id for origin in encoder.origins], inputs)


def _auxiliary(
    asked: Attacks, plan: Plan, protocol: Protocol, is_of_attributes: bool
) -> Auxiliary | None:
    """The rows of another corpus that can teach an attacker of attributes, where one was given."""
    if asked.auxiliary is None:
        return None
    if not is_of_attributes:
        raise DataError("auxiliary data teach attackers of attributes; ask for those too")
    return Auxiliary.of(asked.auxiliary, plan, protocol.derive, protocol.bins)


def _check_compared(asked: Attacks, target: PrivateEncoder) -> None:
    """Refuse what has no place in one map with the target's vectors."""
    for name, private in (asked.compare_map or {}).items():
        if name in (ORIGINAL, RELEASE):
            raise DataError(f"a release beside this one is called {name!r}; give it another name")
        if private.consumes != target.consumes:
            raise DataError(
                f"{name!r} consumes {private.consumes}, and what is audited {target.consumes}; "
                f"leave it out of {name_field('compare_map')}"
            )
