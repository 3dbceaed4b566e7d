"""The kinds of attack an audit can make, beyond attributes: words, writers, training texts.

All of them hold to the audit's first split. The words of victims are read by attackers that learnt
on the attacker's part; writers are told apart among people whom no defence was trained on; and
whoever asks about membership says which texts are members. Each attacker sends its own texts
through the very release that it attacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.authorship import Authorship, TextCnn
from capelet.attacks.inversion.run import Inversion
from capelet.attacks.membership.run import Membership
from capelet.data.corpus import Corpus
from capelet.data.text import words_of
from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.evaluation.plan import Plan
from capelet.evaluation.provenance import Clock
from capelet.findings import Finding
from capelet.interfaces import Progress, Vectors, silent
from capelet.privacy.guarantees import Guarantee, ceiling_top
from capelet.release import PrivateEncoder, Release

KINDS = {
    "attributes": "private attributes, from labelled vectors of other texts",
    "inversion": "the words of a text, from its vector; needs no label",
    "authorship": "who of many wrote it, from a few texts of each; needs an author column",
    "membership": "which texts the model was trained on; needs a column that says so",
}
ALL = "all"
DRAWS = 4
"""How often the attacker sends each of its texts through a noised release."""
SHOTS = (10, 5, 3)
"""Known texts of each writer: as many as enough writers have."""
ENOUGH_WRITERS = 10


@dataclass(frozen=True)
class Asked:
    """Which kinds will be tried, and in one sentence each why others will not."""

    kinds: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        attacks: Sequence[str],
        corpus: Corpus,
        members: Sequence[bool] | None = None,
        derived: Sequence[str] = (),
    ) -> Asked:
        """`all` takes what the data allow; what is asked for by name and lacks data is refused."""
        for name in attacks:
            if name not in (*KINDS, ALL):
                raise CapeletError(
                    f"there is no kind of attack {name!r}; {did_you_mean(name, [*KINDS, ALL])}"
                )
        missing = _missing(corpus, members, derived)
        named = [name for name in attacks if name != ALL]
        for name in named:
            # Attributes without columns are refused by the plan, with its own sentence.
            if name in missing and name != "attributes":
                raise DataError(missing[name])
        wanted = KINDS if ALL in attacks else named
        kinds = tuple(name for name in KINDS if name in wanted and name not in missing)
        if "attributes" in named and "attributes" not in kinds:
            kinds = ("attributes", *kinds)
        left_out = [missing[name] for name in KINDS if name in wanted and name not in kinds]
        if not kinds:
            raise DataError(
                "no kind of attack fits these data; name the texts (--text), and private columns "
                "(--private) or the author (--author)"
            )
        return cls(kinds, tuple(left_out))


def _missing(
    corpus: Corpus, members: Sequence[bool] | None, derived: Sequence[str]
) -> dict[str, str]:
    """For each kind that these data do not allow, what would be needed."""
    found = {}
    if not (corpus.private or corpus.label is not None or derived):
        found["attributes"] = (
            "attributes need columns to infer; name them (--private) or read some off the texts "
            "(--derive)"
        )
    if corpus.texts is None:
        found["inversion"] = "inversion reads texts back, so it needs them; name their column"
    if corpus.author is None:
        found["authorship"] = "authorship needs to know who wrote what; name the column (--author)"
    elif len(set(corpus.author)) < 2:
        found["authorship"] = (
            "all texts are by one writer, and authorship tells writers apart: it needs two or more"
        )
    if members is None:
        found["membership"] = (
            "membership needs to know which texts the model was trained on; name the column of "
            "yes and no (--member)"
        )
    elif corpus.texts is None:
        found["membership"] = "membership is asked of texts; name their column (--text)"
    return found


@dataclass(frozen=True)
class OtherAttacks:
    """Inversion, authorship and membership on one release, by the first split of a plan."""

    asked: Asked
    redact: bool = True
    seeds: int = 5
    writers: int = 100
    inversion: Inversion = field(default_factory=Inversion)
    membership: Membership = field(default_factory=Membership)
    baseline: TextCnn | None = field(default_factory=TextCnn)

    def measure(
        self,
        plan: Plan,
        private: PrivateEncoder,
        release: Release,
        members: Sequence[bool] | None,
        clock: Clock,
        progress: Progress = silent,
    ) -> tuple[list[Finding], dict[str, Any]]:
        """The rows and the artefacts of all kinds that were asked for."""
        rows: list[Finding] = []
        artefacts: dict[str, Any] = {}
        through = with_texts(plan.corpus, private)
        if "inversion" in self.asked.kinds:
            with clock("inversion"):
                found = self._invert(plan, through, progress)
            rows += [replace(row, recipe_hash=release.recipe_hash) for row in found.rows]
            artefacts.update(found.artefacts)
        if "authorship" in self.asked.kinds:
            with clock("authorship"):
                rows += self._writers(plan, release)
        if "membership" in self.asked.kinds:
            assert members is not None and plan.corpus.texts is not None
            authors = plan.corpus.author
            with clock("membership"):
                got = self.membership.of_encoder(
                    plan.corpus.texts.tolist(),
                    members,
                    through,
                    None if authors is None else [str(name) for name in authors],
                    progress,
                )
            rows += [replace(row, recipe_hash=release.recipe_hash) for row in got.rows]
        return rows, artefacts

    def _invert(self, plan: Plan, private: PrivateEncoder, progress: Progress) -> Any:
        parts, texts = plan.splits[0], plan.corpus.texts
        assert texts is not None
        victims = texts[parts.victims].tolist()
        said = {" ".join(words_of(text)) for text in victims}
        # Two writers may have said the same thing; then it is no secret of the victim's.
        own = [text for text in texts[parts.attacker] if " ".join(words_of(text)) not in said]
        attack = replace(self.inversion, draws=DRAWS if noised(private) else 1, redact=self.redact)
        units = [str(unit) for unit in plan.units[parts.victims]]
        return attack.measure(victims, private, auxiliary=own, authors=units, progress=progress)

    def _writers(self, plan: Plan, release: Release) -> list[Finding]:
        corpus, parts = plan.corpus, plan.splits[0]
        assert corpus.author is not None
        # A defence saw the defender's people: those whom it never saw are attacked.
        rows = np.concatenate([parts.attacker, parts.victims])
        authors = corpus.author[rows].tolist()
        texts = corpus.texts
        attack = Authorship(
            shots=shots_for(authors),
            writers=self.writers,
            seeds=self.seeds,
            baseline=self.baseline if texts is not None else None,
        )
        words = None if texts is None else [words_of(text) for text in texts[rows]]
        found = attack.measure(release.vectors[rows], authors, words, release.recipe_hash)
        return [_with_ceiling(row, release.guarantee) for row in found]


def shots_for(authors: Sequence[Any]) -> int:
    """How many texts of each writer are known: ten if ten writers have more, else fewer.

    >>> shots_for([name for name in "abcdefghij" for _ in range(6)])
    5
    """
    counts = np.unique(np.asarray(authors, dtype=str), return_counts=True)[1]
    fitting = (shots for shots in SHOTS if (counts > shots).sum() >= ENOUGH_WRITERS)
    return next(fitting, SHOTS[-1])


def _with_ceiling(row: Finding, guarantee: Guarantee) -> Finding:
    """What the guarantee permits to anyone who has one text of one of so many writers."""
    if row.kind != "authorship":
        return row
    most = {"top1": 1, "top5": 5}[row.metric]
    return replace(row, ceiling=ceiling_top(most, int(row.parameters["writers"]), guarantee))


def noised(private: PrivateEncoder) -> bool:
    """Whether two releases of one text differ."""
    return private.guarantee.notion != "none"


def with_texts(corpus: Corpus, private: PrivateEncoder) -> PrivateEncoder:
    """The private encoder; for ready vectors one that looks up which vector a text has."""
    if private.consumes == "texts" or corpus.texts is None or corpus.vectors is None:
        return private
    return PrivateEncoder(ReadyVectors(corpus), *private.steps)


class ReadyVectors:
    """An encoder that knows only the texts of one corpus: it gives each the vector it came with."""

    name = "ready vectors"
    backend = "none"

    def __init__(self, corpus: Corpus) -> None:
        assert corpus.texts is not None and corpus.vectors is not None
        self._vectors: Vectors = corpus.vectors
        self._place: dict[str, int] = {}
        for row, text in enumerate(corpus.texts):
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
                "name an encoder (--encoder) instead of --vectors"
            )
        return np.asarray(self._vectors[[self._place[text] for text in texts]])

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(texts), dtype=bool)
