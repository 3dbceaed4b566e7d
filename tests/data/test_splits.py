"""Parts are disjoint, of the right size, and never share an author or a text."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from capelet.data import splits as module
from capelet.data.corpus import Corpus, Split
from capelet.data.labels import Attribute
from capelet.data.splits import (
    SPLITS,
    Material,
    group_rows,
    identical,
    linked_share,
    near_duplicates,
    seed_list,
    share_victims,
    split,
    wasserstein_points,
)
from capelet.encoders.static import token_vectors
from capelet.errors import DataError

WORDS = [
    "the",
    "a",
    "red",
    "green",
    "blue",
    "fast",
    "slow",
    "train",
    "boat",
    "cat",
    "dog",
    "ran",
    "sat",
    "ate",
    "saw",
    "big",
    "small",
]


def column(values: list[str]) -> np.ndarray:
    return np.array(values, dtype=object)


def made(rows: int = 400, authors: int = 40, seed: int = 0) -> Corpus:
    random = np.random.default_rng(seed)
    texts = [" ".join(random.choice(WORDS, size=9)) for _ in range(rows)]
    texts[-40:] = texts[:40]  # identical texts
    writers = [f"w{random.integers(authors)}" for _ in range(rows)]
    writers[-40:] = writers[:40]
    return Corpus("made", texts=column(texts), author=column(writers))


# A keyed part follows from the author alone: whoever shares a text with another moves nobody.
WHOLE_GROUPS = sorted(set(SPLITS) - {"keyed"})


def test_a_keyed_part_is_decided_by_its_author_alone() -> None:
    corpus = made()
    assert corpus.author is not None
    parts = parts_of(corpus, "keyed", 0)
    for name in set(corpus.author):
        assert len(set(parts[corpus.author == name])) == 1
    assert set(parts) == {"defender", "attacker", "victims"}
    # Everybody else's texts and labels change: nobody's part does.
    other = by_hand(list(corpus.author), [f"another text {row}" for row in range(len(corpus))])
    assert (parts_of(other, "keyed", 0) == parts).all()


@pytest.mark.parametrize("kind", WHOLE_GROUPS)
def test_parts_are_disjoint_and_linked_rows_stay_together(kind: str) -> None:
    corpus = made()
    for seed in range(3):
        parts = split(corpus, kind, seed, word_vectors=token_vectors)
        rows = [parts.defender, parts.attacker, parts.victims]
        assert sorted(np.concatenate(rows).tolist()) == list(range(400))
        assert corpus.author is not None and corpus.texts is not None
        for values in (corpus.author, corpus.texts):
            seen = [set(values[part]) for part in rows]
            assert not seen[0] & seen[1] and not seen[0] & seen[2] and not seen[1] & seen[2]
        sizes = [len(part) / 400 for part in rows]
        np.testing.assert_allclose(sizes, [0.5, 0.3, 0.2], atol=0.06)
        fit, tune = parts.training("attacker")
        assert set(fit) | set(tune) == set(parts.attacker) and not set(fit) & set(tune)
        assert 0.04 < len(tune) / len(parts.attacker) < 0.2


def test_splits_repeat_with_the_seed_and_differ_between_seeds() -> None:
    corpus = made()
    assert (split(corpus, seed=3).victims == split(corpus, seed=3).victims).all()
    assert set(split(corpus, seed=3).victims) != set(split(corpus, seed=4).victims)


def test_stratified_gives_each_part_its_share_of_a_rare_class() -> None:
    random = np.random.default_rng(0)
    codes = (random.random(2000) < 0.05).astype(np.intp)
    corpus = Corpus("s", texts=column([f"text {row}" for row in range(2000)]))
    rare = Attribute("rare", codes, ("no", "yes"))
    parts = split(corpus, "balanced", 0, [rare])
    shares = [
        codes[rows].sum() / codes.sum() for rows in (parts.defender, parts.attacker, parts.victims)
    ]
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.03)


def test_a_stock_phrase_does_not_tie_everyone_together() -> None:
    texts = [f"own text {row}" for row in range(200)]
    for row in range(0, 200, 5):
        texts[row] = "ok"
    corpus = Corpus("p", texts=column(texts), author=column([f"w{row % 50}" for row in range(200)]))
    parts = split(corpus, "by_author")
    assert len(parts.victims) > 20
    assert corpus.author is not None
    assert not set(corpus.author[parts.victims]) & set(corpus.author[parts.attacker])


def test_wasserstein_victims_are_neighbours() -> None:
    """Victims lie closer to each other than random rows do."""
    near, far = WORDS[:6], WORDS[10:]
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(near if row % 4 else far, size=8)) for row in range(400)]
    corpus = Corpus("w", texts=column(texts))
    points = wasserstein_points(corpus, token_vectors)
    spread = {}
    for kind in ("wasserstein", "random"):
        victims = points[split(corpus, kind, 0, word_vectors=token_vectors).victims]
        spread[kind] = float(victims.var(axis=0).sum() / points.var(axis=0).sum())
    assert spread["wasserstein"] < 0.75 < spread["random"]


def test_sliced_distance_is_the_wasserstein_distance_along_one_direction() -> None:
    from scipy.stats import wasserstein_distance_nd

    corpus = Corpus("w", texts=column(["cat dog", "boat train", "cat dog cat dog", "red fast"]))
    points = wasserstein_points(corpus, token_vectors, directions=64, quantiles=64)
    assert wasserstein_points(corpus, token_vectors).shape == (4, 32 * 16)
    assert np.allclose(points[0], points[2])  # the same cloud, doubled, is the same distribution
    assert wasserstein_distance_nd([[0.0]], [[1.0]]) == pytest.approx(1.0)
    assert ((points[0] - points[1]) ** 2).sum() > 0


def test_a_split_by_word_vectors_is_given_them() -> None:
    corpus = Corpus("w", texts=column([f"{WORDS[row % 10]} {row}" for row in range(80)]))
    with pytest.raises(DataError, match="word_vectors="):
        split(corpus, "wasserstein")
    vectors = np.arange(160, dtype=np.float32).reshape(80, 2)
    ready = Corpus("v", vectors=vectors)  # the control: vectors are clouds of one point
    assert len(split(ready, "wasserstein").victims) == 16


def test_twenty_thousand_texts_fit_in_memory() -> None:
    random = np.random.default_rng(2)
    texts = [" ".join(random.choice(WORDS, size=12)) + f" {row}" for row in range(20_000)]
    parts = split(Corpus("big", texts=column(texts)), "wasserstein", word_vectors=token_vectors)
    assert len(parts.victims) == pytest.approx(4000, abs=5)


def test_near_duplicates() -> None:
    long = "the quick brown fox jumps over the lazy dog near the old river bank today"
    texts = [long, long + " again", long, "completely different words stand in here", "and so on"]
    group = near_duplicates(column(texts))
    assert group[0] == group[1] == group[2]
    assert len({group[0], group[3], group[4]}) == 3


def test_linked_counts_victims_known_to_the_attacker() -> None:
    corpus = made()
    parts = split(corpus, "random")
    everyone = np.zeros(400, dtype=np.intp)
    assert linked_share(parts, everyone) == 1.0
    assert linked_share(parts, np.arange(400)) == 0.0


def test_what_cannot_be_split_is_said() -> None:
    few = Corpus("few", texts=column([f"t{row}" for row in range(59)]))
    with pytest.raises(DataError, match="59 usable rows"):
        split(few)
    texts = Corpus("t", texts=column([f"t{row}" for row in range(80)]))
    with pytest.raises(DataError, match="give author="):
        split(texts, "by_author")
    with pytest.raises(DataError, match="did you mean 'random'"):
        split(texts, "randm")
    one = Corpus("o", texts=texts.texts, author=column(["me"] * 80))
    with pytest.raises(DataError, match="1 groups of linked rows"):
        split(one)


# ---- what stays together -------------------------------------------------------------------------


def by_hand(authors: list[str] | None, texts: list[str]) -> Corpus:
    writers = None if authors is None else column(authors)
    return Corpus("hand", texts=column(texts), author=writers)


def parts_of(corpus: Corpus, kind: str, seed: int) -> np.ndarray:
    """The part of every row, by name."""
    parts = split(corpus, kind, seed, word_vectors=token_vectors)
    names = np.empty(len(corpus), dtype=object)
    for name in ("defender", "attacker", "victims"):
        names[getattr(parts, name)] = name
    return names


@pytest.mark.parametrize("kind", WHOLE_GROUPS)
def test_a_text_by_two_authors_never_lands_in_two_parts(kind: str) -> None:
    """Ten pairs of authors share one text each: both stay whole, and in one part."""
    authors = [f"w{row // 3}" for row in range(120)]
    texts = [f"text number {row} of its author" for row in range(120)]
    for pair in range(10):  # the last text of author 2·pair is the first of author 2·pair + 1
        texts[6 * pair + 3] = texts[6 * pair + 2]
    corpus = by_hand(authors, texts)
    for seed in range(4):
        names = parts_of(corpus, kind, seed)
        for pair in range(10):
            assert len(set(names[6 * pair : 6 * pair + 6])) == 1
        assert len(set(names)) == 3


def test_authors_tied_by_a_chain_of_texts_are_one_group() -> None:
    authors = ["a", "a", "b", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
    texts = ["x", "1", "x", "y", "y", "2", "3", "4", "5", "6", "7", "8"]
    fill = [f"{n}" for n in range(100, 184)]
    corpus = by_hand([*authors * 3, *fill[:60]], [*texts, *fill])
    groups = group_rows(corpus)
    assert len(set(groups[[0, 1, 2, 3, 4, 12, 16]])) == 1  # a, b and c, by x and y
    assert groups[5] != groups[0] and groups[5] == groups[17]
    assert sorted(set(groups.tolist())) == list(range(68))


def test_ties_are_given_up_only_when_they_hold_more_than_a_fifth_of_the_rows() -> None:
    def groups(stock: int) -> int:
        """How many groups there are when so many of 100 authors say "ok"."""
        texts = ["ok" if row < stock else f"own {row}" for row in range(100)]
        return len(set(group_rows(by_hand([f"w{row}" for row in range(100)], texts)).tolist()))

    assert groups(20) == 81  # a fifth: one group of twenty
    assert groups(21) == 100  # more: authors stay whole, and the phrase is let go
    # An author who wrote more than a fifth alone sets the measure.
    authors = ["much"] * 30 + [f"w{row}" for row in range(70)]
    texts = [f"own {row}" for row in range(100)]
    texts[29] = texts[30] = "ok"
    assert len(set(group_rows(by_hand(authors, texts)).tolist())) == 71
    texts[28] = texts[29] = texts[30]
    tied = group_rows(by_hand(["much"] * 29 + ["x"] + authors[30:], texts))
    assert len(set(tied.tolist())) == 72
    texts = [f"own {row}" for row in range(99)] + ["own 98"]  # two others tie, far from a fifth
    tied = group_rows(by_hand(authors, texts))
    assert len(set(tied.tolist())) == 70 and tied[98] == tied[99]


def test_identical_rows_are_grouped_without_authors_too() -> None:
    corpus = by_hand(None, ["a", "b", "a", "c", "b", "a"])
    assert group_rows(corpus).tolist() == [0, 1, 0, 2, 1, 0] == identical(corpus).tolist()
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=np.float32)
    assert identical(Corpus("v", vectors=vectors[:, ::-1])).tolist() == [0, 1, 0]


# ---- shares --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random", "balanced", "wasserstein"])
def test_single_rows_are_dealt_to_the_row(kind: str) -> None:
    vectors = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    for seed in range(3):
        parts = split(Corpus("v", vectors=vectors), kind, seed)
        sizes = [len(parts.defender), len(parts.attacker), len(parts.victims)]
        np.testing.assert_allclose(sizes, [500, 300, 200], atol=1)
        for name, size in zip(("defender", "attacker", "victims"), sizes, strict=True):
            assert len(parts.training(name)[1]) == pytest.approx(size / 10, abs=1)


def test_sixty_rows_and_three_groups_are_enough() -> None:
    texts = [f"t{row}" for row in range(60)]
    assert len(split(by_hand(None, texts)).victims) == 12
    parts = split(by_hand(["a"] * 30 + ["b"] * 18 + ["c"] * 12, texts), seed=2)
    assert {len(parts.defender), len(parts.attacker), len(parts.victims)} == {30, 18, 12}
    with pytest.raises(DataError, match="2 groups of linked rows"):
        split(by_hand([f"w{row % 2}" for row in range(60)], texts))
    one_large = by_hand(["w0"] * 58 + ["w1", "w2"], texts)
    with pytest.raises(DataError, match="leaves no rows for"):
        for seed in range(20):
            split(one_large, "random", seed)


def test_auto_is_by_author_where_authors_are_known() -> None:
    texts = [f"t{row}" for row in range(90)]
    assert split(by_hand(None, texts)).kind == "random"
    assert split(by_hand([f"w{row % 30}" for row in range(90)], texts)).kind == "by_author"


def test_without_authors_the_default_looks_at_no_attribute() -> None:
    texts = by_hand(None, [f"t{row}" for row in range(200)])
    side = Attribute("side", np.arange(200) % 2, ("a", "b"))
    for kind, is_same in (("auto", True), ("balanced", False)):
        one, other = (split(texts, kind, 5, balance).victims for balance in ([], [side]))
        assert (set(one) == set(other)) is is_same


def test_where_authors_are_known_a_balanced_split_is_by_author() -> None:
    corpus = by_hand([f"w{row % 30}" for row in range(90)], [f"t{row}" for row in range(90)])
    side = Attribute("side", np.arange(90) % 2, ("a", "b"))
    one, other = split(corpus, "balanced", 2, [side]), split(corpus, "by_author", 2)
    assert one.kind == "by_author" and one.victims.tolist() == other.victims.tolist()


def test_strata_are_spread_evenly_however_small_they_are() -> None:
    """Two attributes, twelve combinations: each part has its share of each to within two rows."""
    random = np.random.default_rng(1)
    codes = [random.integers(0, 3, 600), random.integers(0, 4, 600)]
    balance = [Attribute(str(k), c, tuple("abcd"[: c.max() + 1])) for k, c in enumerate(codes)]
    names = np.empty(600, dtype=object)
    corpus = by_hand(None, [f"t{row}" for row in range(600)])
    parts = split(corpus, "balanced", 3, balance)
    for name, share in (("defender", 0.5), ("attacker", 0.3), ("victims", 0.2)):
        rows = getattr(parts, name)
        names[rows] = name
        for cell in range(12):
            inside = codes[0] * 4 + codes[1] == cell
            assert abs(inside[rows].sum() - share * inside.sum()) <= 2
    other = split(corpus, "balanced", 4, balance)
    assert set(other.victims) != set(parts.victims)


# ---- Wasserstein ---------------------------------------------------------------------------------


def test_along_each_direction_the_distance_is_the_exact_one() -> None:
    """Clouds of equal size: the 2-Wasserstein distance in one dimension pairs sorted values."""
    tokens = {"red": 0, "fast": 1, "cat": 2, "boat": 3}
    random = np.random.default_rng(5)
    vectors = random.normal(size=(4, 6)).astype(np.float32)
    texts = ["red fast", "cat boat", "red boat", "fast", ""]
    clouds = [[vectors[tokens[word]] for word in text.split()] for text in texts]
    points = clouds_to_points(clouds, directions=3, quantiles=4)
    frame = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    frame /= np.linalg.norm(frame, axis=0)
    for one in range(4):
        for other in range(4):
            exact = 0.0
            for direction in frame.T:
                pair = [np.sort(np.array(clouds[k]) @ direction) for k in (one, other)]
                pair = [np.repeat(values, 4 // len(values)) for values in pair]
                exact += float(((pair[0] - pair[1]) ** 2).mean()) / 3
            assert ((points[one] - points[other]) ** 2).sum() == pytest.approx(exact, abs=1e-5)
    assert (points[4] == 0).all()  # a text without a known token lies at the origin


def clouds_to_points(clouds: list[list[np.ndarray]], directions: int, quantiles: int) -> np.ndarray:
    """`wasserstein_points` of texts whose token vectors are these."""
    starts = np.cumsum([0, *map(len, clouds)])
    table = np.array([vector for cloud in clouds for vector in cloud], dtype=np.float32)
    corpus = by_hand(None, [f"text {row}" for row in range(len(clouds))])
    points = wasserstein_points(corpus, lambda texts: (table, starts), directions, quantiles)
    return np.asarray(points)


def test_the_victims_of_vectors_are_the_nearest_to_one_row() -> None:
    """Brute force: some row has exactly the victims as its nearest fifth."""
    vectors = np.random.default_rng(3).normal(size=(100, 4)).astype(np.float32)
    victims = set(split(Corpus("v", vectors=vectors), "wasserstein", 1).victims.tolist())
    distances = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2)
    nearest = [set(np.argsort(row)[:20].tolist()) for row in distances]
    assert len(victims) == 20 and victims in nearest
    # A group counts by its nearest member, and is moved as a whole.
    twins = np.concatenate([vectors, vectors])
    rows = set(split(Corpus("v", vectors=twins), "wasserstein", 1).victims.tolist())
    assert {row % 100 for row in rows} in nearest and len(rows) == 40


def test_whole_groups_come_as_near_to_a_fifth_as_they_can() -> None:
    """13 authors of 8 rows: three of them are 24 of 104 rows, nearer to 20.8 than two are."""
    vectors = np.random.default_rng(3).normal(size=(104, 4)).astype(np.float32)
    author = column([f"w{row // 8}" for row in range(104)])
    for seed in range(4):
        parts = split(Corpus("v", vectors=vectors, author=author), "wasserstein", seed)
        assert len(parts.victims) == 24


# ---- near duplicates -----------------------------------------------------------------------------


def test_near_duplicates_of_a_pair_are_what_brute_force_finds() -> None:
    random = np.random.default_rng(0)
    words = [f"word{n}" for n in range(60)]
    for size in (4, 9, 20):
        text = " ".join(random.choice(words, size, replace=False))
        bag = set(text.split())
        for other in (text + " Extra", text.upper(), " ".join(text.split()[: size // 2]), "x y"):
            both = set(other.lower().split())
            alike = len(bag & both) >= 0.8 * len(bag | both)
            group = near_duplicates(column([text, other]))
            assert (group[0] == group[1]) == alike
    assert len(set(near_duplicates(column(["!", "?", "!"])).tolist())) == 2
    assert len(set(near_duplicates(column(["a b c d", "a b c d e"])).tolist())) == 1  # 0.8 itself


def test_near_duplicates_among_many_alike_texts_are_found() -> None:
    random = np.random.default_rng(0)
    words = [f"word{n}" for n in range(60)]
    texts = [" ".join(random.choice(words, 20, replace=False)) for _ in range(30)]
    texts += [text + " extra" for text in texts[:10]]  # Jaccard 20/21: they meet almost surely
    group = near_duplicates(column(texts))
    assert (group[:10] == group[30:]).all()


def test_linked_is_a_share_of_the_victims() -> None:
    corpus = made()
    parts = split(corpus, "random")
    group = np.arange(400)
    group[parts.victims[:10]] = group[parts.attacker[0]]
    group[parts.victims[10:15]] = group[parts.defender[0]]  # known to the defender: not counted
    assert linked_share(parts, group) == pytest.approx(10 / len(parts.victims))


@pytest.mark.parametrize("kind", ["random", "balanced", "by_author", "wasserstein"])
def test_rows_that_trained_are_the_defenders_in_every_kind_of_split(kind: str) -> None:
    """With all rows of their authors; the others fill the parts up to their shares."""
    random = np.random.default_rng(0)
    author = np.array([f"a{row // 4}" for row in range(400)], dtype=object)
    vectors = random.normal(size=(400, 3)).astype(np.float32)
    corpus = Corpus("planted", vectors=vectors, author=author)
    side = Attribute("side", (np.arange(400) % 2).astype(np.intp), ("a", "b"))
    for share, sizes in ((0.2, (200, 120, 80)), (0.5, (200, 120, 80)), (0.75, (300, 60, 40))):
        trained = np.zeros(400, dtype=bool)
        trained[: int(400 * share) : 4] = True  # one row of each author
        parts = split(corpus, kind, 1, [side], trained=trained)
        together = np.concatenate([parts.defender, parts.attacker, parts.victims])
        assert sorted(together.tolist()) == list(range(400))
        assert set(range(int(400 * share))) <= set(parts.defender.tolist())
        for rows, size in zip((parts.defender, parts.attacker, parts.victims), sizes, strict=True):
            assert abs(len(rows) - size) <= 8, (share, len(rows))
        assert not set(author[parts.victims]) & set(author[parts.defender])
    with pytest.raises(DataError, match="rows that did not train"):
        split(corpus, kind, 1, [side], trained=np.ones(400, dtype=bool))


def test_seeds_may_share_the_victims_of_the_first() -> None:
    rows = 300
    authors = np.array([f"a{row % 60}" for row in range(rows)], dtype=object)
    texts = np.array([f"text {row}" for row in range(rows)], dtype=object)
    corpus = Corpus("made", texts=texts, author=authors)
    splits = [split(corpus, "by_author", seed) for seed in range(3)]
    groups = group_rows(corpus)
    shared = share_victims(splits, groups)
    assert shared[0] is splits[0] and len(shared) == 3
    assert len({tuple(parts.victims) for parts in splits}) == 3, "the control"
    for parts in shared:
        assert parts.victims.tolist() == splits[0].victims.tolist()
        everyone = np.concatenate([parts.defender, parts.attacker, parts.victims])
        assert sorted(everyone) == list(range(rows))
        assert linked_share(parts, groups) == 0
        assert len(parts.defender) == pytest.approx(150, abs=25)
    assert len({tuple(parts.attacker) for parts in shared}) == 3


# ---- by hand -------------------------------------------------------------------------------------


class Fixed:
    """A generator whose order is the given one and whose reals are written down."""

    def __init__(self, *reals: list[float]) -> None:
        self.reals = list(reals)

    def permutation(self, count: int) -> np.ndarray:
        return np.arange(count)

    def random(self, count: int) -> np.ndarray:
        values = self.reals.pop(0) if self.reals else [0.0] * count
        assert len(values) == count
        return np.array(values)

    def integers(self, count: int) -> int:
        return 0


def parts_by_hand(
    kind: str, random: Fixed, *, shares: tuple[float, ...], **given: Any
) -> list[int]:
    given = {"groups": np.arange(len(given["corpus"])), **given}
    part = SPLITS[kind](Material(shares=shares, **given), random)  # type: ignore[arg-type]
    return np.asarray(part).tolist()


def rows(count: int) -> Corpus:
    return Corpus("v", vectors=np.arange(count, dtype=np.float32)[:, None])


def test_a_group_goes_where_its_middle_row_falls() -> None:
    """Groups of 4, 2, 2, 2 rows have their middles at 2, 5, 7, 9; parts end at 5 and 8 of 10."""
    groups = np.array([7, 7, 7, 7, 8, 8, 9, 9, 11, 11])
    given = {"corpus": rows(10), "groups": groups, "shares": (0.5, 0.3, 0.2)}
    assert parts_by_hand("random", Fixed(), **given) == [0] * 6 + [1] * 2 + [2] * 2


def test_each_group_goes_to_the_part_that_lacks_most() -> None:
    """Shares of ½, ¼, ¼: the parts take turns 0, 1, 2, 0, stratum after stratum."""
    shares, corpus = (0.5, 0.25, 0.25), rows(8)
    odd = Attribute("odd", np.array([1, 0] * 4), ("no", "yes"))
    given: dict[str, Any] = {"corpus": corpus, "shares": shares}
    assert parts_by_hand("balanced", Fixed(), **given) == [0, 1, 2, 0, 0, 1, 2, 0]
    balanced = parts_by_hand("balanced", Fixed(), balance=[odd], **given)
    assert balanced[1::2] == [0, 1, 2, 0] == balanced[::2]
    # Within a stratum the order is random, and so is who goes first: ½·0.5, ¼·3 and ¼·0 are owed.
    order = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]
    backwards = parts_by_hand("balanced", Fixed(order), balance=[odd], **given)
    assert backwards[1::2] == [0, 2, 1, 0] == backwards[::2]
    first = parts_by_hand("balanced", Fixed([0.0] * 8, [0.5, 3.0, 0.0]), **given)
    assert first == [1, 0, 0, 2, 1, 0, 0, 2]


def test_groups_weigh_by_their_rows_and_stand_in_the_stratum_of_their_first() -> None:
    groups = np.array([0, 0, 1, 2, 3, 3, 4, 5])
    codes = np.array([1, 0, 0, 1, 0, 1, 1, 0])  # of the groups: 1, 0, 1, 0, 1, 0
    odd = Attribute("odd", codes, ("no", "yes"))
    given: dict[str, Any] = {"corpus": rows(8), "groups": groups, "shares": (0.5, 0.25, 0.25)}
    plain = parts_by_hand("balanced", Fixed(), **given)
    assert plain == [0, 0, 1, 2, 0, 0, 1, 2]  # a group of two is a part's turn twice
    # In the order of the strata the groups are 1, 3, 5 and 0, 2, 4, with 1, 2, 1 and 2, 1, 1 rows.
    # Owed, at the turn of each: (½ ¼ ¼), (½ ¾ ¾), (1 −1 1), (1 −½ 1½), (1½ −¼ −¼), (1 0 0).
    by_stratum = parts_by_hand("balanced", Fixed(), balance=[odd], **given)
    assert by_stratum == [2, 2, 0, 0, 1, 1, 0, 0]


def test_a_part_without_a_share_gets_no_row() -> None:
    for seed in range(3):
        material = Material(rows(50), np.arange(50), shares=(0.0, 0.6, 0.4))
        part = SPLITS["balanced"](material, np.random.default_rng(seed))
        assert np.bincount(part, minlength=3).tolist() == [0, 30, 20]


def test_a_tenth_of_each_part_is_held_back() -> None:
    part, groups = np.repeat([0, 1, 2], [10, 20, 10]), np.arange(40)
    flags = module._held_back(groups, part, Fixed())  # type: ignore[arg-type]
    assert np.flatnonzero(flags).tolist() == [9, 28, 29, 39]


def test_the_victims_are_the_groups_nearest_to_the_drawn_row() -> None:
    """The row drawn is 0.0; its fifth of ten are the pair at 0 and 1; the others are shared out."""
    vectors = np.array([0, 9, 1, 5, 6, 7, 8, 3, 4, 2], dtype=np.float32)[:, None]
    corpus = Corpus("v", vectors=vectors)
    given: dict[str, Any] = {"corpus": corpus, "shares": (0.5, 0.3, 0.2)}
    assert parts_by_hand("wasserstein", Fixed(), **given) == [2, 0, 2, 0, 0, 0, 0, 1, 1, 1]
    # A group is as near as its nearest row: 9.0 moves with 0.0. Half inside the fifth is inside.
    groups = np.array([0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
    moved = parts_by_hand("wasserstein", Fixed(), groups=groups, **given)
    assert moved == [2, 2, 0, 0, 0, 0, 0, 1, 1, 1]
    groups = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 2])  # 1.0 and 2.0: their middle is at 2 of 2
    assert parts_by_hand("wasserstein", Fixed(), groups=groups, **given)[2::7] == [2, 2]


@pytest.mark.parametrize("what", ["author", "texts", "vectors"])
def test_a_keyed_part_is_a_keyed_hash_of_the_author_or_of_the_row(what: str) -> None:
    names = [f"name {row} \ud800 ä" for row in range(60)]
    vectors = np.random.default_rng(1).normal(size=(60, 2)).astype(np.float32)
    texts, own = column(names), [name.encode("utf-8", "surrogatepass") for name in names]
    corpus = Corpus("v", vectors=vectors[:, ::-1])
    if what == "vectors":
        own = [np.array(row[::-1]).tobytes() for row in vectors]
    if what == "texts":
        corpus = Corpus("t", texts=texts)
    if what == "author":
        corpus = Corpus("a", texts=column([str(row) for row in range(60)]), author=texts)
    shares = (0.25, 0.5, 0.25)
    material = Material(corpus, np.arange(60), shares=shares)
    part = SPLITS["keyed"](material, np.random.default_rng(7))
    key = np.random.default_rng(7).bytes(32)
    for code, value in zip(np.asarray(part).tolist(), own, strict=True):
        digest = hashlib.blake2b(value, digest_size=8, key=key).hexdigest()
        place = int(digest, 16) / 16**16  # in [0, 1): a quarter, a half and a quarter of it
        assert code == (place >= 0.25) + (place >= 0.75)
    assert set(np.asarray(part).tolist()) == {0, 1, 2}


def test_what_is_left_beside_the_rows_that_trained_is_shared_out() -> None:
    """Of ten rows three trained: the others owe the defender 2, the attacker 3, the victims 2."""
    seen: list[Material] = []

    def assign(material: Material, random: np.random.Generator) -> np.ndarray:
        seen.append(material)
        return np.array([0, 0, 1, 1, 1, 2, 2])

    trained = np.isin(np.arange(10), [0, 4, 9])
    side = Attribute("side", np.arange(10) % 2, ("a", "b"))
    material = Material(rows(10), np.arange(10) // 2, [side])
    part = module._with_trained(assign, material, np.random.default_rng(0), trained)
    assert part.tolist() == [0, 0, 0, 1, 0, 1, 1, 2, 2, 0]
    assert seen[0].shares == pytest.approx((2 / 7, 3 / 7, 2 / 7))
    assert seen[0].groups.tolist() == [0, 1, 1, 2, 3, 3, 4]
    assert seen[0].balance[0].codes.tolist() == [1, 0, 1, 1, 0, 1, 0]
    assert np.asarray(seen[0].corpus.vectors).ravel().tolist() == [1, 2, 3, 5, 6, 7, 8]
    # Where more than its share trained, the defender is owed nothing; two groups must be left.

    def attackers(own: Material, random: np.random.Generator) -> np.ndarray:
        seen.append(own)
        return np.ones(len(own.groups), dtype=np.intp)

    for count in (6, 8):
        trained, random = np.arange(10) < count, np.random.default_rng(0)
        part = module._with_trained(attackers, Material(rows(10), np.arange(10)), random, trained)
        assert seen[-1].shares == pytest.approx((0.0, 0.6, 0.4)) and (part == ~trained).all()


def test_former_victims_join_the_other_parts_in_their_proportion() -> None:
    """Of 100 rows 40 and 40 stand beside 20 victims: half of these join each of the two."""
    blocks = np.split(np.arange(100), [40, 80])
    flags = np.arange(100) % 10 == 0
    first = Split("random", 0, np.arange(20, 60), np.arange(60, 100), np.arange(20), ~flags)
    for attacker, former in ((blocks[1], 10), (blocks[1][:10], 4)):
        # Whoever else is nobody's stays the defender's.
        other = Split("random", 1, blocks[0], attacker, blocks[2], flags)
        shared = share_victims([first, other], np.arange(100))[1]
        assert shared.victims.tolist() == list(range(20))
        assert set(attacker) <= set(shared.attacker)
        assert len(set(shared.attacker) & set(blocks[2])) == former
        assert set(range(20, 40)) <= set(shared.defender)
        assert (shared.held_back == flags).all() and shared.seed == 1


# ---- seeds ---------------------------------------------------------------------------------------


def test_a_number_is_a_count_of_seeds_and_a_list_is_itself() -> None:
    assert seed_list(3) == (0, 1, 2)
    assert seed_list([7]) == (7,) and seed_list((5, 2)) == (5, 2)
    assert seed_list(np.array([4, 1])) == (4, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seeds", "sentence"),
    [
        (0, "at least 1, and is 0"),
        ([], "empty list"),
        ([1, -1], "from 0 to"),
        ([2**32], "from 0 to"),
        ([True], "from 0 to"),
        ([1.0], "from 0 to"),
        ([3, 1, 3], "the seed 3 stands twice"),
        ("0,1", "and is a str"),
        (True, "and is a bool"),
    ],
)
def test_seeds_that_are_none_are_refused(seeds: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        seed_list(seeds)
