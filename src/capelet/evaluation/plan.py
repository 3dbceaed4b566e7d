"""The plan of a measurement: what is secret, what is the task, who is split from whom.

Nothing decides again what stands in a plan; `decision.decide` makes it of a question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.families import Family, families
from capelet.data.corpus import PARTS, Corpus, Rows, Split
from capelet.data.labels import Attribute, add_derived, attribute, attributes
from capelet.data.splits import Seeds, group_rows, seed_list, share_victims, split
from capelet.encoders.static import token_vectors
from capelet.errors import DataError, name_field
from capelet.findings.metrics import Codes
from capelet.privacy.guarantees import Guarantee, ceiling, least_epsilon
from capelet.question import Attacks, Protocol

if TYPE_CHECKING:
    from capelet.evaluation.transfer import Auxiliary

Flags = npt.NDArray[np.bool_]
SEEDS = 5  # of a measurement, unless it is told otherwise
# Of what a defender has to fit on: up to 0.6 a search learns from, up to 0.8 attacks, then tests.
SEARCH_SHARES = (0.6, 0.8)
# Cuts of a search that are tried before the data are called too few for one.
MOST_CUTS = 100


def split_corpus(
    corpus: Corpus,
    kind: str = "auto",
    seed: int = 0,
    balance: Sequence[Attribute] = (),
    trained: Flags | None = None,
    groups: Rows | None = None,
) -> Split:
    """The split of that kind, with the word vectors that ship with Capelet where it needs some."""
    return split(corpus, kind, seed, balance, token_vectors, trained, groups)


@dataclass(frozen=True, eq=False)
class AttackPlan:
    """Which kinds of attack will be tried, and in one sentence each why others will not.

    `asked` is what it was decided from: it also says who is a member, and whether texts are shown.
    """

    kinds: tuple[str, ...] = ("attributes",)
    left_out: tuple[str, ...] = ()
    asked: Attacks = field(default_factory=Attacks)


@dataclass(frozen=True, eq=False)
class Plan:
    """What will be measured: the secrets, the task, the splits, and who counts as one person.

    `trained` are rows that the encoder has learnt by heart, the defender's in every split, and
    `auxiliary` is another corpus that teaches one more attacker.
    """

    corpus: Corpus
    secrets: tuple[Attribute, ...]
    label: Attribute | None
    splits: tuple[Split, ...]
    units: Codes
    warnings: tuple[str, ...]
    protocol: Protocol = field(default_factory=Protocol)
    attackers: tuple[Family, ...] = field(default_factory=lambda: tuple(families()))
    attacks: AttackPlan = field(default_factory=AttackPlan)
    trained: Flags | None = None
    auxiliary: Auxiliary | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """All that were asked for, also where one split is enough."""
        return seeds_of(self.protocol)

    @property
    def targets(self) -> int:
        return len(self.secrets) + (self.label is not None)

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        seeds: Seeds = SEEDS,
        split_kind: str = "auto",
        derived: Sequence[str] = (),
        bins: Mapping[str, Sequence[float]] | None = None,
        trained: Flags | None = None,
        *,
        has_targets: bool = True,
    ) -> Plan:
        """Check everything that can be wrong with the data before anything is encoded.

        Rows that `trained` the encoder are the defender's in every split. Without targets neither
        attributes nor a task are measured.
        """
        numbers = seed_list(seeds)
        corpus = add_derived(corpus, derived) if derived else corpus
        unknown = set(bins or {}) - {*corpus.private, corpus.label_name}
        if unknown:
            raise DataError(
                f"{name_field('bins')} names {sorted(unknown)[0]!r}, which is not among the columns"
            )
        authors = author_numbers(corpus)
        secrets = tuple(_with_note(item, authors) for item in attributes(corpus.private, bins))
        label = None
        if corpus.label is not None:
            name = corpus.label_name or "label"
            label = attribute(name, corpus.label, (bins or {}).get(name))
        if has_targets and not secrets and label is None:
            raise DataError(
                f"there is nothing to measure: name private columns ({name_field('private')}), a "
                f"task label ({name_field('label')}), let attributes be read off the texts "
                f"({name_field('derive', 'names,number')}), or attack words "
                f"({name_field('attacks', 'inversion')})"
            )
        # What the split `balanced` spreads evenly over the parts; the others look at none of it.
        balance = [*secrets, *([label] if label else [])]
        groups = group_rows(corpus)
        parts = tuple(
            split_corpus(corpus, split_kind, seed, balance, trained, groups) for seed in numbers
        )
        warnings = (
            *corpus.notes,
            *rows_left_out(parts[0], len(corpus)),
            *_warnings(secrets, label),
        )
        return cls(corpus, secrets, label, parts, groups, warnings, trained=trained)

    def scored_splits(self, target: Attribute) -> tuple[Split, ...]:
        """The splits whose victims have two classes of the target; all of them, if none has.

        Where few people have a class, a split by author may have none of them among its victims:
        whoever names the other class always would be right, and look like a leak.
        """
        several = tuple(item for item in self.splits if not _is_of_one_class(target, item.victims))
        return several or self.splits

    def check_victims(self) -> None:
        """Refuse a secret of which no split could show anything."""
        for secret in self.secrets:
            if all(_is_of_one_class(secret, item.victims) for item in self.splits):
                counts = _people_by_class(secret, np.arange(len(secret.codes)), self.units)
                who = "authors" if self.corpus.author is not None else "texts"
                raise DataError(
                    f"in every split all victims are of one class of {secret.name!r}, whose rarest "
                    f"class {min(counts):,} of {sum(counts):,} {who} have; give texts of more "
                    f"{who}, other {name_field('seeds')}, or leave the attribute out"
                )

    def search_split(self, against: Sequence[Attribute]) -> Split:
        """Where settings are searched: the first defender's people, cut into three parts anew.

        No attacker's row and no victim of the plan is in it. Rows that are held back stay with the
        part that learns. Where there are few people a cut may leave a part without two classes of
        some attribute, and then another is drawn.
        """
        parts = self.splits[0]
        rows, tune_rows = parts.training("defender")
        targets = [*against, *([self.label] if self.label is not None else [])]
        for attempt in range(MOST_CUTS):
            # The first draw has no number, so that searches that went well stay as they were.
            random = np.random.default_rng([parts.seed, 0xF0, *([attempt] if attempt else [])])
            # By author, not by row: an attacker must not learn on texts of those it is tested on.
            place = random.random(int(self.units[parts.defender].max()) + 1)[self.units[rows]]
            learn, attack, test = (
                rows[np.searchsorted(SEARCH_SHARES, place, side="right") == code]
                for code in range(len(PARTS))
            )
            flat = _first_flat(targets, (learn, attack, test))
            if flat is None and len(learn) and len(attack) and len(test):
                learn = np.sort(np.concatenate([learn, tune_rows]))
                return replace(parts, defender=learn, attacker=attack, victims=test)
        who = "authors" if self.corpus.author is not None else "texts"
        about = ""
        if flat is not None:
            counts = _people_by_class(flat, rows, self.units)
            about = f", {min(counts, default=0):,} of them of the rarest class of {flat.name!r}"
        raise DataError(
            f"settings are searched among {len(np.unique(self.units[rows])):,} {who} of the "
            f"defender's part{about}: too few to learn, to attack and to test on; give texts of "
            f"more {who}, or leave out {name_field('max_leakage')} and {name_field('min_utility')}"
        )

    def without_defender(self) -> Plan:
        """The plan where no defence is trained: the defender's rows teach the attacker.

        Rows that trained the encoder teach nobody, for they are unlike any victim's.
        """
        none = np.zeros(0, dtype=np.intp)
        trained = none if self.trained is None else np.flatnonzero(self.trained)
        splits = tuple(
            replace(
                item,
                defender=none,
                attacker=np.union1d(item.attacker, np.setdiff1d(item.defender, trained)),
            )
            for item in self.splits
        )
        return replace(self, splits=splits)

    def with_common_victims(self) -> Plan:
        """The plan whose seeds all score the victims of the first, so that a search sees none."""
        return replace(self, splits=share_victims(self.splits, self.units))

    def epsilon_warnings(self, guarantee: Guarantee) -> tuple[str, ...]:
        """What can be told before anything is encoded: that an ε cannot serve the task."""
        if self.label is None:
            return ()
        prior = self.label.prior()
        best = ceiling(prior, guarantee)
        # The ceiling is never below the majority, which needs no release at all.
        if best is None or best > max(prior) + 1e-9:
            return ()
        return (
            f"at ε = {guarantee.epsilon:g}, from one text, no release can beat always naming the "
            f"commonest class of {self.label.name!r} ({max(prior):.1%}); the least ε that can is "
            f"{least_epsilon(prior):.3g}",
        )


def _is_of_one_class(target: Attribute, rows: Codes) -> bool:
    codes = target.codes[rows]
    return len(np.unique(codes[codes >= 0])) < 2


def _first_flat(targets: Sequence[Attribute], parts: Sequence[Rows]) -> Attribute | None:
    """The first target of which some part shows fewer than two classes."""
    flat = (item for item in targets if any(_is_of_one_class(item, rows) for rows in parts))
    return next(flat, None)


def _people_by_class(target: Attribute, rows: Rows, units: Codes) -> list[int]:
    """How many people have each class among the rows."""
    codes = target.codes[rows]
    return [len(np.unique(units[rows[codes == code]])) for code in np.unique(codes[codes >= 0])]


def seeds_of(protocol: Protocol) -> tuple[int, ...]:
    """The seeds of the splits that were asked for, or those that nobody chose."""
    return seed_list(SEEDS if protocol.seeds is None else protocol.seeds)


def rows_left_out(parts: Split, rows: int) -> tuple[str, ...]:
    """What is said of rows that belong to no part, where there are any."""
    count = rows - sum(len(getattr(parts, name)) for name in PARTS)
    if not count:
        return ()
    return (
        f"{count:,} rows belong to no part: the column has them for training, and their author (or "
        "the same text) for test too",
    )


def _warnings(secrets: Sequence[Attribute], label: Attribute | None) -> tuple[str, ...]:
    warnings = []
    for secret in secrets:
        if label is not None and _same(label, secret):
            warnings.append(
                f"the label {label.name!r} and the private attribute {secret.name!r} are the same: "
                "the task is the leak"
            )
    return tuple(warnings)


def _same(one: Attribute, other: Attribute) -> bool:
    """Whether two attributes cut the rows into the same classes."""
    # One-to-one between classes: then there are as many pairs as classes on either side.
    pairs = set(zip(one.codes.tolist(), other.codes.tolist(), strict=True))
    return len(pairs) == len(set(one.codes.tolist())) == len(set(other.codes.tolist()))


def author_numbers(corpus: Corpus) -> Codes | None:
    """A number for the author of each row, −1 where nobody is known; None without authors."""
    if corpus.author is None:
        return None
    numbers: dict[Any, int] = {}
    return np.array(
        [-1 if name is None else numbers.setdefault(name, len(numbers)) for name in corpus.author],
        dtype=np.intp,
    )


def changing_authors(codes: Codes, authors: Codes) -> int:
    """How many authors have texts of several classes; their attribute is one of texts.

    >>> changing_authors(np.array([0, 0, 1, 0, -1]), np.array([0, 0, 1, 1, 0]))
    1
    """
    rows = (codes >= 0) & (authors >= 0)
    pairs = np.unique(np.stack([authors[rows], codes[rows]]), axis=1)
    return int((np.bincount(pairs[0]) > 1).sum()) if pairs.size else 0


def _with_note(secret: Attribute, authors: Codes | None) -> Attribute:
    """The attribute, with a note where it is no attribute of people."""
    changes = 0 if authors is None else changing_authors(secret.codes, authors)
    if not changes:
        return secret
    note = (
        f"{changes} authors have texts of several classes: texts of a person are not pooled for it"
    )
    return replace(secret, notes=(*secret.notes, note))
