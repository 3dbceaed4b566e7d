"""The kinds of attack an audit can make: attributes, words, writers, training texts.

All of them hold to the audit's splits. The words of victims are read by attackers that learnt on
the attacker's part; writers are told apart among people whom no defence was trained on; and
whoever asks about membership says which texts are members. Each attacker sends its own texts
through the very release that it attacks.

A kind is one class (`name`, `title`, `lacks`, `measure`) and one line of `ATTACKS`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from capelet.data.corpus import Corpus
from capelet.data.text import words_of
from capelet.errors import CapeletError, DataError, did_you_mean, name_field
from capelet.evaluation.authorship import Authorship
from capelet.evaluation.ceilings import Ceilings, TopBound
from capelet.evaluation.inversion import NEEDS_TEXTS, Inversion, unshared
from capelet.evaluation.membership import NEEDS_TEXTS as MEMBERSHIP_NEEDS_TEXTS
from capelet.evaluation.membership import Membership
from capelet.evaluation.plan import AttackPlan, Plan
from capelet.evaluation.provenance import Clock
from capelet.findings import Finding
from capelet.interfaces import Progress, Vectors, silent
from capelet.question import Attacks
from capelet.release import PrivateEncoder, Release
from capelet.release.steps import as_step

ALL = "all"
# How often the attacker sends each of its texts through a noised release.
DRAWS = 4
# Known texts of each writer: as many as enough writers have.
SHOTS = (10, 5, 3)
# Chance is one in so many: among fewer writers, guessing would already look like a find.
ENOUGH_WRITERS = 10

Measurement = tuple[list[Finding], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is there to attack with: the corpus, who is a member, what is read off the texts."""

    corpus: Corpus
    members: Sequence[bool] | None = None
    derivations: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Target:
    """What is attacked: one release of a plan's corpus, and the encoder that makes others of it."""

    plan: Plan
    private: PrivateEncoder
    release: Release
    progress: Progress = silent

    @property
    def seed(self) -> int:
        """Of the split that is attacked, and of those who attack it."""
        return self.plan.splits[0].seed


class AttackKind(Protocol):
    """One kind of attack in an audit."""

    name: str
    title: str

    def lacks(self, evidence: Evidence) -> str | None:
        """What these data would need for it, as a sentence; None where nothing is missing."""

    def measure(self, target: Target, settings: TextAttacks) -> Measurement:
        """Its findings and artefacts on one release."""


class AttributeInference:
    """Private attributes. They are attacked over all seeds, by `leakage`, not here."""

    name = "attributes"
    title = "private attributes, from labelled vectors of other texts"

    def lacks(self, evidence: Evidence) -> str | None:
        corpus = evidence.corpus
        if corpus.private or corpus.label is not None or evidence.derivations:
            return None
        return (
            f"attributes need columns to infer; name them ({name_field('private')}) or read some "
            f"off the texts ({name_field('derive')})"
        )

    def measure(self, target: Target, settings: TextAttacks) -> Measurement:
        return [], {}


class WordInversion:
    """The words of the victims, by attackers that learnt on the attacker's part."""

    name = "inversion"
    title = "the words of a text, from its vector; needs no label"

    def lacks(self, evidence: Evidence) -> str | None:
        return NEEDS_TEXTS if evidence.corpus.texts is None else None

    def measure(self, target: Target, settings: TextAttacks) -> Measurement:
        plan, private = target.plan, target.private
        parts, texts = plan.splits[0], plan.corpus.texts
        assert texts is not None
        victims = texts[parts.victims].tolist()
        # Two writers may have said the same thing; then it is no secret of the victim's.
        own = unshared(texts[parts.attacker].tolist(), victims)
        redact = not plan.attacks.asked.show_texts
        # An attacker of noise learns from the same noise.
        attack = replace(settings.inversion, seed=target.seed, draws=DRAWS, redact=redact)
        # Whoever must not be split is also resampled as one.
        units = [str(unit) for unit in plan.units[parts.victims]]
        findings = attack.measure(
            victims, private, auxiliary=own, authors=units, progress=target.progress
        )
        return list(findings.rows), dict(findings.artefacts)


class WriterIdentification:
    """Who of many wrote a text, among people whom no defence was trained on."""

    name = "authorship"
    title = "who of many wrote it, from a few texts of each; needs an author column"

    def lacks(self, evidence: Evidence) -> str | None:
        author = evidence.corpus.author
        if author is None:
            return (
                f"authorship needs to know who wrote what; name the column ({name_field('author')})"
            )
        if len(set(author)) < 2:
            return (
                "all texts are by one writer, and authorship tells writers apart: it needs two or "
                "more"
            )
        return None

    def measure(self, target: Target, settings: TextAttacks) -> Measurement:
        corpus, parts = target.plan.corpus, target.plan.splits[0]
        assert corpus.author is not None
        # A defence saw the defender's people: those whom it never saw are attacked.
        rows = np.concatenate([parts.attacker, parts.victims])
        authors = corpus.author[rows].tolist()
        attack = replace(settings.authorship, shots=shots_for(authors), seeds=target.plan.seeds)
        texts = corpus.texts
        # The baseline sees the text, so ready vectors alone have none.
        words = None if texts is None else [words_of(text) for text in texts[rows]]
        findings = attack.measure(
            target.release.vectors[rows], authors, words, target.release.recipe_hash
        )
        ceilings = Ceilings.of(target.release, corpus)
        return [_with_ceiling(row, ceilings) for row in findings], {}


class TrainingMembership:
    """Which texts the model was trained on, where somebody knows it of some."""

    name = "membership"
    title = "which texts the model was trained on; needs a column that says so"

    def lacks(self, evidence: Evidence) -> str | None:
        if evidence.members is None:
            return (
                "membership needs to know which texts the model was trained on; name the column of "
                f"yes and no ({name_field('member')})"
            )
        if evidence.corpus.texts is None:
            return MEMBERSHIP_NEEDS_TEXTS
        return None

    def measure(self, target: Target, settings: TextAttacks) -> Measurement:
        members = target.plan.attacks.asked.members
        assert members is not None
        findings = replace(settings.membership, seed=target.seed).of_encoder(
            target.plan.corpus, members, target.private, target.progress
        )
        return list(findings.rows), {}


ATTACKS: dict[str, AttackKind] = {
    "attributes": AttributeInference(),
    "inversion": WordInversion(),
    "authorship": WriterIdentification(),
    "membership": TrainingMembership(),
}


def choose_attacks(asked: Attacks, corpus: Corpus, derive: Sequence[str] = ()) -> AttackPlan:
    """`all` takes what the data allow; what is asked for by name and lacks data is refused."""
    names = asked.attacks
    for name in names:
        if name not in (*ATTACKS, ALL):
            raise CapeletError(
                f"there is no kind of attack {name!r}; {did_you_mean(name, [*ATTACKS, ALL])}"
            )
    evidence = Evidence(corpus, asked.members, derive)
    gaps = {name: kind.lacks(evidence) for name, kind in ATTACKS.items()}
    for name in names:
        # Attributes without columns are refused by the plan, with its own sentence.
        if name not in (ALL, "attributes") and (gap := gaps[name]) is not None:
            raise DataError(gap)
    candidates = [name for name in ATTACKS if ALL in names or name in names]
    kinds = tuple(name for name in candidates if gaps[name] is None or name in names)
    if not kinds:
        raise DataError(
            f"no kind of attack fits these data; name the texts ({name_field('text')}), and "
            f"private columns ({name_field('private')}) or the author ({name_field('author')})"
        )
    sentences = (gaps[name] for name in candidates if name not in kinds)
    return AttackPlan(kinds, tuple(gap for gap in sentences if gap is not None), asked)


@dataclass(frozen=True)
class TextAttacks:
    """The settings of inversion, authorship and membership, and their run on one release.

    Seeds are those of the plan, and so is whether texts are shown.
    """

    inversion: Inversion = field(default_factory=Inversion)
    authorship: Authorship = field(default_factory=Authorship)
    membership: Membership = field(default_factory=Membership)

    def measure(
        self,
        plan: Plan,
        private: PrivateEncoder,
        release: Release,
        clock: Clock,
        progress: Progress = silent,
    ) -> Measurement:
        """The rows and the artefacts of all kinds in the plan of attacks, on its first split."""
        # One split: attackers of words train networks, which would take as many times longer.
        target = Target(plan, with_texts(plan.corpus, private), release, progress)
        rows: list[Finding] = []
        artefacts: dict[str, Any] = {}
        for kind in (ATTACKS[name] for name in plan.attacks.kinds if name != "attributes"):
            with clock(kind.name):
                findings, pictures = kind.measure(target, self)
            rows += [replace(row, recipe_hash=release.recipe_hash) for row in findings]
            artefacts |= pictures
        return rows, artefacts


def shots_for(authors: Sequence[Any]) -> int:
    """How many texts of each writer are known: ten if ten writers have more, else fewer.

    >>> shots_for([name for name in "abcdefghij" for _ in range(6)])
    5
    """
    counts = np.unique(np.asarray(authors, dtype=str), return_counts=True)[1]
    fitting = (shots for shots in SHOTS if (counts > shots).sum() >= ENOUGH_WRITERS)
    return next(fitting, SHOTS[-1])


def _with_ceiling(row: Finding, ceilings: Ceilings) -> Finding:
    """What the guarantee permits to anyone who has a text, or all texts, of one of so many."""
    if row.kind != "authorship":
        return row
    # Writers count alike in the score, however many texts they wrote, so they are equally likely.
    bound = TopBound({"top1": 1, "top5": 5}[row.metric], int(row.parameters["writers"]))
    parameters = {**row.parameters, **ceilings.for_person(bound)}
    return replace(row, ceiling=bound(ceilings.guarantee), parameters=parameters)


def with_texts(corpus: Corpus, private: PrivateEncoder) -> PrivateEncoder:
    """The private encoder; for ready vectors one that looks up which vector a text has."""
    if private.consumes == "texts" or corpus.texts is None or corpus.vectors is None:
        return private
    return private.with_steps([as_step(ReadyVectors(corpus)), *private.steps])


class ReadyVectors:
    """An encoder that knows only the texts of one corpus: it gives each the vector it came with."""

    name = "ready vectors"
    backend = "none"
    isolates_rows = True

    def __init__(self, corpus: Corpus) -> None:
        assert corpus.texts is not None and corpus.vectors is not None
        self._vectors: Vectors = corpus.vectors
        self._place: dict[str, int] = {}
        for row, text in enumerate(corpus.texts):
            # Equal texts get the first one's vector: an encoder would give them the same.
            self._place.setdefault(text, row)

    @property
    def dimension(self) -> int:
        return int(self._vectors.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self._vectors).tobytes()).hexdigest()

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        unknown = sum(text not in self._place for text in texts)
        if unknown:
            raise DataError(
                f"{unknown} pieces of text have no vector of their own among the ready ones; "
                f"name an encoder ({name_field('encoder')}) instead of {name_field('vectors')}"
            )
        return np.asarray(self._vectors[[self._place[text] for text in texts]])

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(texts), dtype=bool)
