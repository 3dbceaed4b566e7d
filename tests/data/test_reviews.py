"""The embedded sample: the stated optimum is the true one, and the texts read like reviews."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from capelet.data.reviews import sample as reviews
from capelet.data.reviews.sample import PRIOR, STARS, Optimum, Reviews, generate, optimum, posterior
from capelet.errors import DataError

DIGEST = "8280679a54d63636277dac5d9f4d0752110097df925dd3c7d93353697042d886"
TARGETS = ("gender", "age_group", "country", "stars")


def digest(corpus: Reviews) -> str:
    rows = zip(
        corpus.texts,
        corpus.stars,
        corpus.gender,
        corpus.age_group,
        corpus.country,
        corpus.author,
        strict=True,
    )
    lines = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    return hashlib.sha256(lines.encode()).hexdigest()


def codes(corpus: Reviews, name: str) -> np.ndarray:
    values = list(STARS if name == "stars" else PRIOR[name])
    return np.array([values.index(str(item)) for item in getattr(corpus, name)])


def clustered(values: np.ndarray, corpus: Reviews) -> float:
    """Standard error of the mean, texts of one writer taken together (written out again here)."""
    sums: dict[str, float] = {}
    for author, value in zip(corpus.author, values - values.mean(), strict=True):
        sums[author] = sums.get(author, 0.0) + float(value)
    return float(np.sqrt(sum(item**2 for item in sums.values())) / len(values))


@pytest.fixture(scope="module")
def corpus() -> Reviews:
    return generate()


@pytest.fixture(scope="module")
def fresh() -> Reviews:
    """Many other writers, from another seed: the Monte-Carlo side of the checks."""
    return generate(writers=3000, seed=7)


@pytest.fixture(scope="module")
def posteriors(fresh: Reviews) -> dict[str, np.ndarray]:
    return posterior(fresh.texts)


@pytest.fixture(scope="module")
def best(corpus: Reviews) -> dict[str, Optimum]:
    return optimum(corpus)


@pytest.fixture
def clean_caches() -> Iterator[None]:
    """For tests that break the grammar on purpose: nothing broken stays behind."""
    cached = (
        reviews._states,
        reviews._slots,
        reviews._find,
        reviews._lexicon,
        reviews._openings,
    )
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


# ── the corpus ───────────────────────────────────────────────────────────────────────────────────


def test_it_is_the_same_corpus_everywhere(corpus: Reviews) -> None:
    assert digest(corpus) == DIGEST


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_the_hash_seed_of_python_does_not_matter(hash_seed: str) -> None:
    program = (
        "from capelet.data.reviews import generate; print(hash(1), *generate(writers=9).texts)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True
    )
    assert result.stdout.decode().split() == ["1", *" ".join(generate(writers=9).texts).split()]


def test_another_seed_is_another_corpus() -> None:
    assert set(generate(5, seed=1).texts).isdisjoint(generate(5, seed=2).texts)


def test_sizes(corpus: Reviews) -> None:
    texts_of = Counter(corpus.author)
    assert len(corpus) >= 4000
    assert len(texts_of) == 640
    assert min(texts_of.values()) >= 4
    assert corpus.author[0] == "w001"
    assert corpus.author[-1] == "w640"


def test_a_writer_has_one_value_of_each_attribute(corpus: Reviews) -> None:
    for name in PRIOR:
        pairs = set(zip(corpus.author, getattr(corpus, name), strict=True))
        assert len(pairs) == 640


def test_identical_texts_do_not_occur(corpus: Reviews, fresh: Reviews) -> None:
    assert len(set(corpus.texts)) == len(corpus)
    assert len(set(fresh.texts)) > 0.999 * len(fresh)


@pytest.mark.parametrize("name", TARGETS)
def test_no_class_is_rare_and_none_rules(corpus: Reviews, name: str) -> None:
    shares = np.bincount(codes(corpus, name)) / len(corpus)
    assert len(shares) == len(STARS if name == "stars" else PRIOR[name])
    assert shares.min() >= 0.15
    assert name == "gender" or shares.max() <= 0.42
    assert name != "stars" or shares.max() <= 0.35


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(TARGETS, 2)))
def test_attributes_and_stars_are_independent(fresh: Reviews, first: str, second: str) -> None:
    """By chi-squared over writers, or over texts where the stars are one of the two."""
    index = np.unique(np.array(fresh.author), return_index=True)[1]
    rows = slice(None) if "stars" in (first, second) else index
    table = np.zeros((6, 6))
    np.add.at(table, (codes(fresh, first)[rows], codes(fresh, second)[rows]), 1)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    statistic = ((table - expected) ** 2 / expected).sum()
    assert statistic < freedom + 4 * np.sqrt(2 * freedom) + 4


def test_too_few_writers_are_refused() -> None:
    with pytest.raises(DataError, match="at least one writer, got 0"):
        generate(writers=0)


# ── the optimum ──────────────────────────────────────────────────────────────────────────────────


def test_the_optimum_is_moderate_and_above_chance(best: dict[str, Optimum]) -> None:
    assert best["gender"].balanced_accuracy == pytest.approx(0.773, abs=0.001)
    assert best["age_group"].balanced_accuracy == pytest.approx(0.687, abs=0.001)
    assert best["country"].balanced_accuracy == pytest.approx(0.702, abs=0.001)
    assert best["stars"].accuracy == pytest.approx(0.879, abs=0.001)
    assert best["country"].chance == 0.25
    assert best["age_group"].majority == 0.36
    for name in TARGETS:
        assert best[name].accuracy > best[name].majority
        assert 0.001 < best[name].error < 0.005


def test_the_optimum_of_the_default_needs_no_argument(best: dict[str, Optimum]) -> None:
    assert optimum() == best


@pytest.mark.parametrize("name", TARGETS)
def test_fresh_texts_are_guessed_as_often_as_stated(
    fresh: Reviews, posteriors: dict[str, np.ndarray], best: dict[str, Optimum], name: str
) -> None:
    """Monte Carlo: the hit rate of the Bayes rule on some 21,000 new texts is the stated figure."""
    truth = codes(fresh, name)
    hits = posteriors[name].argmax(axis=1) == truth
    slack = 4 * np.hypot(clustered(hits.astype(float), fresh), best[name].error)
    assert hits.mean() == pytest.approx(best[name].accuracy, abs=slack)
    assert slack < 0.02

    prior = np.array(list((STARS if name == "stars" else PRIOR[name]).values()))
    guess = (posteriors[name] / prior).argmax(axis=1)
    recalls = [np.mean(guess[truth == value] == value) for value in np.unique(truth)]
    slack = 4 * np.hypot(clustered(hits.astype(float), fresh), best[name].balanced_error)
    assert np.mean(recalls) == pytest.approx(best[name].balanced_accuracy, abs=slack)


@pytest.mark.parametrize("name", TARGETS)
def test_what_the_rules_scored_on_the_corpus_agrees(
    corpus: Reviews, best: dict[str, Optimum], name: str
) -> None:
    noise = 4 * np.sqrt(best[name].accuracy * (1 - best[name].accuracy) / len(corpus))
    assert best[name].hit_rate == pytest.approx(best[name].accuracy, abs=noise)
    assert best[name].balanced_hit_rate == pytest.approx(best[name].balanced_accuracy, abs=noise)


def worst_miscalibration(corpus: Reviews, name: str, posteriors: np.ndarray) -> float:
    """The largest gap, in standard errors, between mean posterior and frequency over any event.

    Events are bins of the posterior and the occurrence of each frequent word: for a true posterior
    P(value | text), the share of a value among the texts of *any* event is its mean posterior.
    """
    truth = codes(corpus, name)
    writer = np.unique(np.array(corpus.author), return_inverse=True)[1]
    containing: dict[str, list[int]] = {}
    for row, text in enumerate(corpus.texts):
        for word in set(re.findall(r"[\w']+|!+", text)):
            containing.setdefault(word, []).append(row)
    events = [np.array(rows) for rows in containing.values() if len(rows) >= 250]
    worst = 0.0
    for value in range(posteriors.shape[1]):
        gap = (truth == value) - posteriors[:, value]
        bins = np.digitize(posteriors[:, value], np.linspace(0.05, 0.95, 10))
        binned = [np.flatnonzero(bins == item) for item in range(11)]
        for rows in [*events, *(rows for rows in binned if len(rows) >= 250)]:
            by_writer = np.bincount(writer[rows], weights=gap[rows])
            if posteriors[rows, value].max() < 1e-12:  # never, and so it must be
                assert not gap[rows].any()
            else:
                worst = max(worst, abs(by_writer.sum()) / np.sqrt((by_writer**2).sum()))
    return worst


@pytest.mark.parametrize("name", TARGETS)
def test_posteriors_are_calibrated_on_every_frequent_word(
    fresh: Reviews, posteriors: dict[str, np.ndarray], name: str
) -> None:
    assert worst_miscalibration(fresh, name, posteriors[name]) < 5


@pytest.mark.usefixtures("clean_caches")
def test_calibration_notices_a_wrong_model(fresh: Reviews, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a posterior that believes tellers a little too much is caught."""
    monkeypatch.setitem(reviews.FIDELITY, "gender", 0.88)
    assert worst_miscalibration(fresh, "gender", posterior(fresh.texts)["gender"]) > 6


@pytest.mark.parametrize("name", TARGETS)
def test_the_balanced_posterior_has_equal_priors(corpus: Reviews, name: str) -> None:
    prior = np.array(list((STARS if name == "stars" else PRIOR[name]).values()))
    plain = posterior(corpus.texts[:50])[name] / prior
    expected = plain / plain.sum(axis=1, keepdims=True)
    assert posterior(corpus.texts[:50], equal_priors=True)[name] == pytest.approx(expected)


def test_the_likelihood_is_the_sum_over_all_hidden_states(corpus: Reviews) -> None:
    """Brute force over interest × voice × spelling × teller, for every writer, text by text."""
    slots, people = reviews._slots(), reviews._PEOPLE
    sources = ("interest", "voice", "spelling", "teller")
    states = {name: reviews._states(name) for name in sources}
    prior = [np.prod([PRIOR[a][v] for a, v in zip(PRIOR, who, strict=True)]) for who in people]
    for text in corpus.texts[:1500:500]:
        choices = [(slots[name], index) for name, index in reviews._read(text).items()]
        joint: Counter[str] = Counter()
        for writer, who in enumerate(people):
            total = 0.0
            for hidden in itertools.product(*(range(len(states[name][0])) for name in sources)):
                weight = prior[writer]
                now = dict(zip(sources, hidden, strict=True))
                for name, state in now.items():
                    weight *= states[name][writer][state]
                for slot, index in choices:
                    if slot.source in now:
                        weight *= slot.table[now[slot.source]][index]
                total += weight
            for value in who:
                joint[value] += total
        for name in PRIOR:
            mass = np.array([joint[value] for value in PRIOR[name]])
            assert posterior([text])[name][0] == pytest.approx(mass / mass.sum(), rel=1e-9)


@pytest.mark.parametrize("name", ["gender", "age_group", "country"])
def test_a_reader_of_words_comes_near_the_optimum_and_not_over_it(
    corpus: Reviews, fresh: Reviews, best: dict[str, Optimum], name: str
) -> None:
    """A learner that knows nothing of the model, with 21,000 texts of other writers to learn from.

    The optimum is neither overstated (it is nearly reached) nor understated (it is not passed).
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import balanced_accuracy_score

    vectorizer = CountVectorizer(
        token_pattern=r"[\w']+|!+|\.", lowercase=False, binary=True, min_df=10
    )
    model = LogisticRegression(C=0.05, class_weight="balanced", max_iter=500)
    model.fit(vectorizer.fit_transform(fresh.texts), codes(fresh, name))
    guess = model.predict(vectorizer.transform(corpus.texts))
    score = balanced_accuracy_score(codes(corpus, name), guess)
    known = best[name]
    assert score < known.balanced_hit_rate + 0.01
    assert score > known.chance + 0.9 * (known.balanced_accuracy - known.chance)


# ── the text determines its choices ──────────────────────────────────────────────────────────────


def test_no_sentence_of_the_grammar_has_two_derivations() -> None:
    """Exhaustive: every sentence that can be written is in the lexicon, once; else this raises."""
    sizes = {category: len(known) for category, known in reviews._lexicon().items()}
    assert sum(sizes.values()) > 50_000
    assert len(reviews._openings()) > 50_000


@pytest.mark.usefixtures("clean_caches")
def test_an_ambiguous_grammar_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reviews._words()["closing"], "3", ("It will do{end}", "It will do{end}"))
    with pytest.raises(ValueError, match="ambiguous at 'It will do"):
        reviews._lexicon()


@pytest.mark.usefixtures("clean_caches")
def test_a_product_of_two_categories_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reviews._words()["product"]["golf"], "names", ["fishing rod"])
    with pytest.raises(ValueError, match="two categories"):
        reviews._openings()


def test_every_distribution_sums_to_one() -> None:
    for slot in reviews._slots().values():
        assert len(set(slot.fillers)) == len(slot.fillers)
        for row in slot.table:
            assert sum(row) == pytest.approx(1)
    for source in ("interest", "voice", "spelling", "teller"):
        assert [sum(row) for row in reviews._states(source)] == pytest.approx([1] * 24)


def test_every_tag_of_the_tables_is_known() -> None:
    """A misspelt tag would silently make its fillers typical of nobody."""
    people = {tag for group in reviews._TAGS.values() for tag in group}
    words = reviews._words()
    interests = set(reviews._fillers(words["interest"]))
    tables = [
        (people, *(words[name] for name in ("interest", "voice", "spelling"))),
        (people, *(words[name] for name in ("self", "company", "place", "city", "price"))),
        (people, *words["reason"].values()),
        (interests, words["category"]),
        ({"calm", "keen", "loud"}, words["very"], words["end"]),
        (set(STARS), words["grade"], words["closing"], *words["verdict"].values()),
    ]
    for known, *group in tables:
        for table in group:
            assert {tag for key in table for tag in key.split()} <= known
    assert set(reviews._fillers(words["category"])) == set(words["product"])


@pytest.mark.parametrize("text", ["", "Hello there.", "Love it!", "Love it! Bought nothing."])
def test_a_text_of_another_hand_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="does not write"):
        posterior([text])


def test_a_text_that_contradicts_itself_is_refused() -> None:
    text = (
        "Got this kettle because my wife told me to. It is okay for the price. "
        "My husband thinks I am too picky about such things. I am fairly picky, to be fair. "
        "I live near Leeds."
    )
    with pytest.raises(DataError, match="no writer would write"):
        posterior([text])


# ── it reads like reviews ────────────────────────────────────────────────────────────────────────


def test_lengths_in_words(corpus: Reviews) -> None:
    lengths = [len(text.split()) for text in corpus.texts]
    assert min(lengths) >= 15
    assert max(lengths) <= 60


def test_sentences_are_whole(corpus: Reviews) -> None:
    for text in corpus.texts:
        assert not re.search(r"[{}\[\]|_<>]|  |\.\.| [.,!]|\bNone\b", text), text
        assert text[-1] in ".!"
        sentences = re.split(r"(?<=[.!]) ", text)
        assert 5 <= len(sentences) <= 6
        assert len(set(sentences)) == len(sentences)
        assert all(sentence[0].isupper() for sentence in sentences), text


def test_grammar_slips_are_absent(corpus: Reviews) -> None:
    for text in corpus.texts:
        assert not re.search(r"\b(\w+) \1\b", text, re.IGNORECASE), text
        assert not re.search(r"\b[Aa] [aeiouAEIOU]|\b[Aa]n [^aeiouAEIOU]", text), text


def test_there_is_variety(corpus: Reviews) -> None:
    vocabulary = {word for text in corpus.texts for word in re.findall(r"[a-z']+", text.lower())}
    sentences = Counter(
        sentence for text in corpus.texts for sentence in re.split(r"(?<=[.!]) ", text)
    )
    assert len(vocabulary) >= 700
    assert len(sentences) >= 4000
    assert sentences.most_common(1)[0][1] < 0.05 * len(corpus)


def test_a_writer_spells_in_one_way(corpus: Reviews) -> None:
    """Habits persist: nobody writes both colour and color."""
    spelt: dict[str, set[str]] = {}
    for author, text in zip(corpus.author, corpus.texts, strict=True):
        spelt.setdefault(author, set()).update(re.findall(r"\b(?:colou?r|favou?rite)\b", text))
    assert not any({"colour", "color"} <= seen for seen in spelt.values())
    assert not any({"favourite", "color"} <= seen for seen in spelt.values())
