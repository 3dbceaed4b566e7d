"""Splits into defender, attacker and victims (50/30/20), and what links rows across them.

Identical texts always stay together, and with an author column so do all texts of one author, so
that no attacker is scored on a person or a text it was trained on.

Word vectors, which the split by Wasserstein distance compares, are handed in by whoever has an
encoder: data know of none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from capelet.data.corpus import PARTS, Corpus, Rows, Split, Values
from capelet.data.labels import Attribute
from capelet.data.official import column_of, rows_for_test
from capelet.data.text import words_of
from capelet.errors import DataError, did_you_mean, name_field

# The defender has most to train; a fifth of the people suffices to score.
SHARES = {"defender": 0.5, "attacker": 0.3, "victims": 0.2}
# The tenth on which settings and strongest attackers are chosen: never victims.
HELD_BACK = 0.1
# With fewer, a fifth is a dozen victims, and no interval would say anything.
LEAST_ROWS = 60
NOBODYS = -1  # the code of a row that belongs to no part

# How many splits, numbered from 0, or the seeds of single ones.
Seeds = int | Sequence[int]
MOST_SEED = 2**32 - 1  # what every generator takes

# Texts in; the vectors of all their words, one text after another, and where each text begins.
WordVectors = Callable[[Sequence[str]], tuple[npt.NDArray[np.floating[Any]], Rows]]


@dataclass(frozen=True, eq=False)
class Material:
    """What a split may look at: the rows, their groups, classes to balance, word vectors."""

    corpus: Corpus
    groups: Rows
    balance: Sequence[Attribute] = ()
    word_vectors: WordVectors | None = None
    shares: tuple[float, ...] = tuple(SHARES.values())


def seed_list(seeds: Seeds) -> tuple[int, ...]:
    """The seeds themselves: a count N is 0 … N − 1, and a list is what it says.

    Nothing of a seed (its split, training, noise) depends on which others were asked for: so one
    split can be measured alone, and put beside the others later.

    >>> seed_list(3), seed_list([7])
    ((0, 1, 2), (7,))
    """
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            raise DataError(f"seeds must be at least 1, and is {seeds}")
        return tuple(range(seeds))
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        raise DataError(
            f"seeds must be a count or a list of whole numbers, and is a {type(seeds).__name__}"
        )
    numbers = list(seeds)
    if not numbers:
        raise DataError("seeds is an empty list; name one seed or more")
    for number in numbers:
        is_whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not is_whole or not 0 <= number <= MOST_SEED:
            raise DataError(f"a seed must be a whole number from 0 to {MOST_SEED}")
    # A split counted twice would make an interval narrower than its data.
    twice = next((number for number in numbers if numbers.count(number) > 1), None)
    if twice is not None:
        raise DataError(f"the seed {twice} stands twice in the list; name each once")
    return tuple(int(number) for number in numbers)


def split(
    corpus: Corpus,
    kind: str = "auto",
    seed: int = 0,
    balance: Sequence[Attribute] = (),
    word_vectors: WordVectors | None = None,
    trained: npt.NDArray[np.bool_] | None = None,
    groups: Rows | None = None,
) -> Split:
    """Three disjoint parts. `auto` is by author where authors are known, else random by group.

    So what is found of one attribute does not depend on which others were named. `balance` are the
    attributes that the split `balanced` spreads evenly over the parts where authors are not known,
    as studies do whose cells name all of them; `word_vectors` are what a Wasserstein split of texts
    compares. `column:NAME` takes the official parts of the corpus (`official`), where rows may
    belong to no part. Rows that `trained` the encoder are the defender's, with all of their group:
    what is learnt by heart must not be scored. `groups` are those of `group_rows`, where whoever
    splits one corpus several times has them.
    """
    if len(corpus) < LEAST_ROWS:
        raise DataError(
            f"{corpus.name!r} has {len(corpus)} usable rows; at least {LEAST_ROWS} are needed to "
            "split them into defender, attacker and victims"
        )
    if kind in ("auto", "balanced") and corpus.author is not None:
        kind = "by_author"
    elif kind == "auto":
        kind = "random"
    assign = _assignment(kind)
    random = np.random.default_rng([seed, 0x5EED])
    groups = group_rows(corpus) if groups is None else groups
    if int(groups.max()) + 1 < 3:
        raise DataError(
            f"{corpus.name!r} has {int(groups.max()) + 1} groups of linked rows (authors or "
            "identical texts); at least 3 are needed, one for each part"
        )
    # The same random numbers go on to hold back rows: one seed fixes all of a split.
    material = Material(corpus, groups, balance, word_vectors)
    if trained is not None and trained.any():
        part = _with_trained(assign, material, random, np.isin(groups, groups[trained]))
    else:
        part = assign(material, random)
    held_back = _held_back(groups, part, random)
    rows = {name: np.flatnonzero(part == code) for code, name in enumerate(PARTS)}
    empty = [name for name in PARTS if not len(rows[name])]
    if empty:
        raise DataError(f"the split {kind!r} leaves no rows for {' and '.join(empty)}")
    return Split(kind, seed, rows["defender"], rows["attacker"], rows["victims"], held_back)


def _assignment(kind: str) -> Callable[[Material, np.random.Generator], Rows]:
    """What decides the parts of this kind of split."""
    column = column_of(kind)
    if column is not None:
        return lambda material, random: _official(material, random, column)
    if kind not in SPLITS:
        hint = did_you_mean(kind, ["auto", *SPLITS, "column:NAME"])
        raise DataError(f"there is no split {kind!r}; {hint}")
    return SPLITS[kind]


def _with_trained(
    assign: Callable[[Material, np.random.Generator], Rows],
    material: Material,
    random: np.random.Generator,
    trained: npt.NDArray[np.bool_],
) -> Rows:
    """The rows that trained are the defender's; the others fill up the parts to their shares."""
    part = np.zeros(len(trained), dtype=np.intp)
    rest = np.flatnonzero(~trained)
    if len(np.unique(material.groups[rest])) < 2:
        raise DataError(
            f"{material.corpus.name!r} has {len(rest)} rows that did not train this encoder; give "
            "texts that it has not seen, for an attacker to learn on and for victims"
        )
    targets = np.array(material.shares) * len(trained)
    targets[0] = max(0.0, targets[0] - trained.sum())
    own = Material(
        material.corpus.take(rest),
        _number(material.groups[rest]),
        [replace(item, codes=item.codes[rest]) for item in material.balance],
        material.word_vectors,
        tuple((targets / targets.sum()).tolist()),
    )
    part[rest] = assign(own, random)
    return part


def share_victims(splits: Sequence[Split], groups: Rows) -> tuple[Split, ...]:
    """The splits with the victims of the first one; who was a victim elsewhere joins another part.

    For whatever is chosen inside one split and scored on all: nobody whom the choice saw may be a
    victim of another seed.
    """
    first = splits[0]
    answer = [first]
    for parts in splits[1:]:
        random = np.random.default_rng([parts.seed, 0x71C])
        codes = np.full(len(groups), NOBODYS, dtype=np.intp)
        codes[parts.defender] = PARTS.index("defender")
        codes[parts.attacker] = PARTS.index("attacker")
        # The other two parts keep the proportion that they had.
        sizes = np.array([len(parts.defender), len(parts.attacker)])
        codes[parts.victims] = _assign(
            groups[parts.victims], random, (sizes / sizes.sum()).tolist()
        )
        codes[first.victims] = PARTS.index("victims")
        defender, attacker, victims = (np.flatnonzero(codes == code) for code in range(len(PARTS)))
        answer.append(replace(parts, defender=defender, attacker=attacker, victims=victims))
    return tuple(answer)


def group_rows(corpus: Corpus) -> Rows:
    """A group number per row: rows of one group never stand in two parts.

    Identical texts (or vectors) are one group. With authors, a text that two authors share ties
    both together, unless that would tie more than a fifth of the rows into one group (stock phrases
    do that): then authors stay whole, and the duplicates are counted in the report instead.
    """
    same = identical(corpus)
    if corpus.author is None:
        return same
    author = _number(corpus.author)
    ones = np.ones(len(corpus))
    size = (int(author.max()) + 1, int(same.max()) + 1)
    # A bipartite graph of authors and texts: its components are whom shared texts tie together.
    graph = coo_array((ones, (author, same + size[0])), shape=(sum(size), sum(size)))
    _, component = connected_components(graph, directed=False)
    component_codes: Rows = np.unique(component[author], return_inverse=True)[1]
    # An author may have more than a fifth of the rows: it cannot be divided anyway.
    largest_group = max(0.2 * len(corpus), np.bincount(author).max())
    return author if np.bincount(component_codes).max() > largest_group else component_codes


def identical(corpus: Corpus) -> Rows:
    """A number per row, equal for rows with the same text (or, without texts, the same vector)."""
    if corpus.texts is not None:
        return _number(corpus.texts)
    return _number([row.tobytes() for row in np.ascontiguousarray(corpus.vectors)])


def _number(values: Iterable[Any]) -> Rows:
    """0, 1, 2 … in order of first appearance, equal for equal values."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.intp)


def _held_back(groups: Rows, part: Rows, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    """About a tenth of each part's groups, for tuning and early stopping inside that part."""
    flags = np.zeros(len(groups), dtype=bool)
    for code in range(len(PARTS)):
        inside = np.flatnonzero(part == code)
        tune = _assign(groups[inside], random, [1 - HELD_BACK, HELD_BACK]) == 1
        flags[inside[tune]] = True
    return flags


def _assign(groups: Rows, random: np.random.Generator, shares: Sequence[float]) -> Rows:
    """Whole groups, in random order, in parts of the given shares of the rows."""
    numbers, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = random.permutation(len(numbers))
    # A group goes where its middle row falls, so that a large one does not overfill a part.
    middle = np.cumsum(sizes[order]) - sizes[order] / 2
    part = np.empty(len(numbers), dtype=np.intp)
    part[order] = np.searchsorted(np.cumsum(shares)[:-1] * sizes.sum(), middle)
    return part[inverse]


def _random(material: Material, random: np.random.Generator) -> Rows:
    """Groups assigned at random."""
    return _assign(material.groups, random, material.shares)


def _by_author(material: Material, random: np.random.Generator) -> Rows:
    """No author stands in two parts."""
    if material.corpus.author is None:
        raise DataError(f"a split by author needs to know the author: give {name_field('author')}")
    return _assign(material.groups, random, material.shares)


def _balance(material: Material, random: np.random.Generator) -> Rows:
    """Each part gets each class's share.

    A stratum is a combination of classes of the first row of a group. Groups are assigned from one
    long list, ordered by stratum and at random within it, each to the part that lacks most rows: so
    every stretch of the list is spread evenly, however short a stratum is.
    """
    # Without classes to balance, all groups are one stratum.
    blank = np.zeros(len(material.groups), dtype=np.intp)
    codes = np.stack([item.codes for item in material.balance] or [blank])
    stratum = np.unique(codes, axis=1, return_inverse=True)[1].ravel()
    numbers, first, inverse, sizes = np.unique(
        material.groups, return_index=True, return_inverse=True, return_counts=True
    )
    # The last key of lexsort counts first: by stratum, at random within it.
    order = np.lexsort((random.random(len(numbers)), stratum[first]))
    shares = np.array(material.shares)
    lacking = shares * random.random(len(shares))  # who goes first differs between seeds
    part = np.empty(len(numbers), dtype=np.intp)
    for group in order:
        # Each part is owed its share of the rows so far, and the one that is owed most gets the
        # group. What all are owed together is positive: a part without a share gets none.
        lacking += shares * sizes[group]
        part[group] = lacking.argmax()
        lacking[part[group]] -= sizes[group]
    return part[inverse]


def _wasserstein(material: Material, random: np.random.Generator) -> Rows:
    """The victims are the nearest neighbours of a random text in Wasserstein space.

    Adversarial split of Søgaard et al. (2021), used by YAWYW §3.5: the victims differ from what the
    attacker trained on as a whole region of texts does, not as a random sample. Distances are those
    of `wasserstein_points`; whole groups are moved, and the rest is assigned at random.
    """
    points, groups = wasserstein_points(material.corpus, material.word_vectors), material.groups
    centre = points[random.integers(len(points))]
    distance = ((points - centre) ** 2).sum(axis=1)
    numbers, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    nearest = np.full(len(numbers), np.inf)
    # A group is as near as its nearest row: with it the whole group moves.
    np.minimum.at(nearest, inverse, distance)
    order = np.argsort(nearest, kind="stable")
    inside = np.cumsum(sizes[order]) - sizes[order] / 2 <= material.shares[2] * sizes.sum()
    victims = np.zeros(len(numbers), dtype=bool)
    victims[order[inside]] = True
    others = ~victims[inverse]
    part = np.full(len(groups), PARTS.index("victims"), dtype=np.intp)
    rest = material.shares[:2]
    part[others] = _assign(groups[others], random, [share / sum(rest) for share in rest])
    return part


def wasserstein_points(
    corpus: Corpus,
    word_vectors: WordVectors | None = None,
    directions: int = 32,
    quantiles: int = 16,
) -> npt.NDArray[np.float32]:
    """Points whose Euclidean distance is the sliced 2-Wasserstein distance between texts.

    A text is the cloud of its token vectors. Along one direction the 2-Wasserstein distance of two
    clouds is the L2 distance of their quantile functions, so the quantiles along a few directions
    are coordinates: memory grows with the texts, not with their pairs. A row that is only a vector
    is a cloud of one point, for which the distance is Euclidean.
    """
    if corpus.texts is None:
        return np.asarray(corpus.vectors, dtype=np.float32)
    if word_vectors is None:
        raise DataError(
            "a Wasserstein split of texts compares clouds of word vectors: give word_vectors="
        )
    tokens, starts = word_vectors(corpus.texts.tolist())
    random = np.random.default_rng(0)  # directions are public and shared by all seeds
    frame = random.standard_normal((tokens.shape[1], directions)).astype(np.float32)
    projections = tokens @ (frame / np.linalg.norm(frame, axis=0))
    # Midpoints of equal steps: the mean of squared differences is then the integral over quantiles.
    levels = (np.arange(quantiles) + 0.5) / quantiles
    points = np.zeros((len(corpus), directions * quantiles), dtype=np.float32)
    for row in range(len(corpus)):
        cloud = np.sort(projections[starts[row] : starts[row + 1]], axis=0)
        if len(cloud):
            points[row] = cloud[(levels * len(cloud)).astype(int)].ravel()
    # Divided so that the squared distance is a mean over directions and quantiles.
    return np.asarray(points / np.sqrt(directions * quantiles), dtype=np.float32)


def _keyed(material: Material, random: np.random.Generator) -> Rows:
    """Each author's, or text's, part follows from a keyed hash of it alone: none moves another.

    What differential privacy of a training needs: in the other splits one changed label can move
    every row. Shares are met in the mean only.
    """
    key = random.bytes(32)
    corpus = material.corpus
    if corpus.author is not None:
        values = [str(name).encode("utf-8", "surrogatepass") for name in corpus.author]
    elif corpus.texts is not None:
        values = [text.encode("utf-8", "surrogatepass") for text in corpus.texts]
    else:
        values = [row.tobytes() for row in np.ascontiguousarray(corpus.vectors)]
    codes = [hashlib.blake2b(value, digest_size=8, key=key).digest() for value in values]
    place = np.array([int.from_bytes(code, "big") for code in codes], dtype=np.float64) / 2.0**64
    return np.searchsorted(np.cumsum(material.shares)[:-1], place, side="right")


def _official(material: Material, random: np.random.Generator, column: str) -> Rows:
    """Victims are the rows for test; whole groups of the others are defender's or attacker's."""
    groups = material.groups
    test = rows_for_test(material.corpus, column)
    part = np.full(len(groups), NOBODYS, dtype=np.intp)
    part[test] = PARTS.index("victims")
    # Whoever stands in both official parts is a victim: nobody else learns from them.
    others = np.flatnonzero(~np.isin(groups, groups[test]))
    if len(np.unique(groups[others])) < 2:
        raise DataError(
            f"all but {len(others)} rows for training are by authors of the rows for test, or "
            "repeat a text of theirs; defender and attacker need others: leave "
            f"{name_field('author')} out, or split another way"
        )
    rest = np.array(material.shares[:2])
    part[others] = _assign(groups[others], random, (rest / rest.sum()).tolist())
    return part


SPLITS: dict[str, Callable[[Material, np.random.Generator], Rows]] = {
    "random": _random,
    "balanced": _balance,
    "by_author": _by_author,
    "wasserstein": _wasserstein,
    "keyed": _keyed,
}


def near_duplicates(texts: Values, bands: int = 16, rows: int = 4) -> Rows:
    """A number per text, equal for texts that share most of their words (Jaccard 0.8 and up).

    MinHash over words in 16 bands of 4: two texts with Jaccard 0.9 meet with probability above
    0.999, with 0.5 in two cases of three, with 0.2 in one of forty; meetings are then checked and
    kept from a Jaccard of 0.8. Identical texts count as near.
    """
    words = [set(words_of(text)) or {text} for text in texts]
    hashes = [np.fromiter((crc32(word.encode()) for word in bag), dtype=np.uint64) for bag in words]
    random = np.random.default_rng(0)
    # Multiply-shift hashing: the product wraps at 2^64, so that each factor gives another order.
    factor = random.integers(0, 1 << 63, size=(bands * rows, 1), dtype=np.uint64) * 2 + 1
    shift = random.integers(0, 1 << 63, size=(bands * rows, 1), dtype=np.uint64)
    # Of a multiply-shift hash only the high bits are mixed well.
    top = np.uint64(32)
    signature = np.stack([((bag * factor + shift) >> top).min(axis=1) for bag in hashes])
    first: list[Rows] = []
    second: list[Rows] = []
    for band in range(bands):
        block = np.ascontiguousarray(signature[:, band * rows : (band + 1) * rows])
        _, bucket = np.unique(block.view([("", block.dtype)] * rows).ravel(), return_inverse=True)
        order = np.argsort(bucket, kind="stable")
        meet = np.flatnonzero(bucket[order][1:] == bucket[order][:-1])
        # Only neighbours in a bucket meet: linear, where all pairs of a stock phrase would be
        # quadratic.
        first.append(order[meet])
        second.append(order[meet + 1])
    pairs = np.unique(np.stack([np.concatenate(first), np.concatenate(second)]), axis=1)
    near = [len(words[a] & words[b]) >= 0.8 * len(words[a] | words[b]) for a, b in pairs.T.tolist()]
    a, b = pairs[:, np.array(near, dtype=bool)] if near else pairs
    graph = coo_array((np.ones(len(a)), (a, b)), shape=(len(texts), len(texts)))
    return connected_components(graph, directed=False)[1].astype(np.intp)


def linked_share(parts: Split, group: Rows) -> float:
    """The share of victims that have a member of their group in the attacker's part."""
    return float(np.isin(group[parts.victims], group[parts.attacker]).mean())
