"""Attackers from elsewhere: taught by labelled texts of another corpus, not of the victims' own.

A thief seldom has labels from the same store. Texts of another source or domain pass the same
release; attackers learn from them alone, and are scored on the audit's victims. The attackers who
own texts of the same corpus stay beside them: they are the worse case, and verdicts are theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from capelet.attacks.adaptive import VECTORS
from capelet.attacks.attribute import Draws, Secret, View, attack
from capelet.attacks.outcomes import TABLE, OutcomeTable, attack_outcomes
from capelet.data.corpus import Corpus, Rows
from capelet.data.labels import Attribute, add_derived, attributes
from capelet.data.splits import group_rows
from capelet.errors import DataError, name_field
from capelet.evaluation.access import NO_ACCESS, Access
from capelet.evaluation.plan import Plan
from capelet.evaluation.scores import Scoring
from capelet.findings import Finding
from capelet.findings.metrics import Guesses, metrics_for
from capelet.interfaces import Vectors
from capelet.numerics import one_thread
from capelet.release import Release

AUXILIARY = "auxiliary"
KIND = "attribute-inference"


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """Another corpus, without texts of the audited one, and the attributes that both have.

    `secrets` have the classes, in their order, of the audited corpus.
    """

    corpus: Corpus
    secrets: tuple[Attribute, ...]
    overlap: int = 0

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        plan: Plan,
        derived: Sequence[str] = (),
        bins: Mapping[str, Sequence[float]] | None = None,
    ) -> Auxiliary:
        """The rows and attributes that can teach; an error where there are none."""
        fresh = _fresh_rows(corpus, plan.corpus)
        overlap = len(corpus) - len(fresh)
        if len(fresh) < 2:
            raise DataError(
                f"{overlap} of {len(corpus)} auxiliary rows are rows of the audited data too, "
                "which leaves none to learn from; give texts from elsewhere"
            )
        corpus = corpus.take(fresh)
        corpus = add_derived(corpus, derived) if derived else corpus
        secrets = {secret.name: secret for secret in plan.secrets}
        edges = {name: cuts for name, cuts in (bins or {}).items() if name in corpus.private}
        others = {item.name: item for item in attributes(corpus.private, edges)}
        names = [name for name in secrets if name in others]
        if not names:
            raise DataError(
                "the auxiliary data share no private attribute with the audited ones; found "
                f"{', '.join(map(repr, others)) or 'none'} there, and "
                f"{', '.join(map(repr, secrets)) or 'none'} here"
            )
        return cls(corpus, tuple(_with_codes_of(others[n], secrets[n]) for n in names), overlap)


def _fresh_rows(corpus: Corpus, victims: Corpus) -> Rows:
    """Rows whose text (or vector) is not among the audited: a victim must not teach."""
    if corpus.texts is not None and victims.texts is not None:
        texts = set(victims.texts.tolist())
        return np.flatnonzero([text not in texts for text in corpus.texts.tolist()])
    if corpus.vectors is not None and victims.vectors is not None:
        digests = {row.tobytes() for row in np.ascontiguousarray(victims.vectors)}
        rows = np.ascontiguousarray(corpus.vectors)
        return np.flatnonzero([row.tobytes() not in digests for row in rows])
    raise DataError(
        "the audited data and the auxiliary ones must both hold texts, or both ready vectors"
    )


def _with_codes_of(other: Attribute, secret: Attribute) -> Attribute:
    """The attribute with the codes of the audited one; refused where classes differ.

    Counts only: a class may be somebody's own word.
    """
    if set(other.classes) != set(secret.classes):
        both = len(set(other.classes) & set(secret.classes))
        raise DataError(
            f"{secret.name!r} has {len(secret.classes)} classes in the audited data and "
            f"{len(other.classes)} in the auxiliary ones, {both} of them by the same name; name "
            f"classes alike, and give {name_field('bins')} for numbers"
        )
    place = {name: code for code, name in enumerate(secret.classes)}
    table = np.array([*(place[name] for name in other.classes), -1], dtype=np.intp)
    return replace(other, codes=table[other.codes], classes=secret.classes)


def attack_from_elsewhere(
    plan: Plan,
    auxiliary: Auxiliary,
    release: Release,
    own: Vectors,
    access: Access = NO_ACCESS,
) -> list[Finding]:
    """Findings of the strongest attacker that `own`, the auxiliary texts' release, teaches.

    It is taught once, and scored on the victims of each seed.
    """
    scoring = Scoring.of(plan, release)
    vectors = np.concatenate([release.vectors, own])
    rows: list[Finding] = []
    for secret in auxiliary.secrets:
        attribute = next(item for item in plan.secrets if item.name == secret.name)
        with one_thread():
            guesses, winner = _guesses(plan, secret, auxiliary.corpus, vectors, access)
        about = {
            "holds": VECTORS,
            "auxiliary": {"name": auxiliary.corpus.name, "texts": int((secret.codes >= 0).sum())},
            "chosen": {winner: len(plan.splits)},
        }
        for metric in metrics_for(len(attribute.classes)):
            row = scoring.finding(KIND, attribute, AUXILIARY, metric, guesses, winner == TABLE)
            rows.append(replace(row, parameters={**row.parameters, **about}))
    return rows


def _guesses(
    plan: Plan,
    secret: Attribute,
    corpus: Corpus,
    vectors: Vectors,
    access: Access,
) -> tuple[list[Guesses], str]:
    """Guesses of the victims of each seed, and the name of the attacker."""
    attribute = next(item for item in plan.secrets if item.name == secret.name)
    # `vectors` are of both corpora, the auxiliary rows behind the audited ones.
    first = len(plan.corpus)
    codes = np.concatenate([attribute.codes, secret.codes])
    units = np.concatenate([plan.units, group_rows(corpus) + plan.units.max() + 1])
    victims = np.unique(np.concatenate([parts.victims for parts in plan.splits]))
    victims = victims[attribute.codes[victims] >= 0]
    teachers = first + np.flatnonzero(secret.codes >= 0)
    view = View(vectors, teachers, teachers[:0], victims, plan.splits[0].seed, units)
    draws, redraw = None, access.redraw
    if redraw is not None:
        draws = Draws(view, lambda rows: redraw(rows - first), redraw.most)
    target = Secret(view, codes, len(attribute.classes))
    result = (
        attack_outcomes(view, target, OutcomeTable(access.outcomes), draws)
        if access.outcomes
        else attack(view, target, plan.attackers, draws)
    )
    scores = result.best[result.strongest].scored
    guesses = []
    for parts in plan.splits:
        rows = parts.victims[attribute.codes[parts.victims] >= 0]
        places = np.searchsorted(victims, rows)
        guesses.append(Guesses(attribute.codes[rows], scores[places], plan.units[rows]))
    return guesses, result.strongest
