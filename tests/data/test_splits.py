"""Parts are disjoint, of the right size, and never share an author or a text."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.data.labels import Attribute
from capelet.data.splits import SPLITS, linked_share, near_duplicates, split, wasserstein_points
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


@pytest.mark.parametrize("kind", sorted(SPLITS))
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
    parts = split(corpus, "stratified", 0, [rare])
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
