"""Sentence tasks: a planted label is found, noise stays at the majority, pairs and grades work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.errors import DataError
from capelet.evaluation.sentences import MAIN, SentenceTask, features, measure_all

RANDOM = np.random.default_rng(0)
TEXTS = tuple(f"sentence {number}" for number in range(400))
TABLE = dict(zip(TEXTS, RANDOM.normal(size=(400, 8)), strict=True))
OTHERS = TEXTS[200:] + TEXTS[:200]
LABELS = np.array([str(int(TABLE[text][0] > 0)) for text in TEXTS])


def encode(texts: Sequence[str]) -> np.ndarray:
    return np.array([TABLE[text] for text in texts])


def test_a_planted_label_is_found_and_a_dealt_one_is_not() -> None:
    found = SentenceTask("mpqa", TEXTS, LABELS).measure(encode)
    assert found.value > 0.9 and found.n == 400
    assert found.low is not None and found.majority is not None and found.low > found.majority
    dealt = SentenceTask("mpqa", TEXTS, RANDOM.permutation(LABELS)).measure(encode)
    assert dealt.low is not None and dealt.low < 0.55


def test_only_the_official_test_part_is_scored() -> None:
    test = np.arange(400) >= 300
    found = SentenceTask("trec", TEXTS, LABELS, test=test).measure(encode)
    assert found.n == 100 and found.value > 0.85


def test_a_constant_encoder_is_called_degenerate() -> None:
    found = SentenceTask("cr", TEXTS, LABELS).measure(lambda texts: np.ones((len(texts), 3)))
    assert found.degenerate
    assert abs(found.value - (found.majority or 0)) < 0.06


def test_pairs_are_read_by_difference_and_product() -> None:
    near = np.array(
        [np.sign(TABLE[a][1]) == np.sign(TABLE[b][1]) for a, b in zip(TEXTS, OTHERS, strict=True)]
    )
    found = SentenceTask("mrpc", TEXTS, near.astype(int), others=OTHERS).measure(encode)
    assert found.value > 0.8
    assert features(np.ones((2, 3)), np.zeros((2, 3))).tolist() == [[1, 1, 1, 0, 0, 0]] * 2


def test_grades_are_compared_by_rank() -> None:
    vectors, other = encode(TEXTS), encode(OTHERS)
    cosine = (
        (vectors * other).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(other, axis=1)
    )
    task = SentenceTask("stsb", TEXTS, np.exp(3 * cosine), others=OTHERS, has_grades=True)
    found = task.measure(encode)
    assert found.metric == "spearman" and found.value > 0.999
    noise = SentenceTask("stsb", TEXTS, RANDOM.normal(size=400), others=OTHERS, has_grades=True)
    assert abs(noise.measure(encode).value) < 0.2


def test_the_mean_needs_all_four_main_tasks() -> None:
    tasks = [SentenceTask(name, TEXTS, LABELS) for name in MAIN]
    rows = measure_all(encode, tasks)
    assert [row.target for row in rows] == [*MAIN, "sentences"]
    assert rows[-1].value == pytest.approx(np.mean([row.value for row in rows[:-1]]))
    assert [row.target for row in measure_all(encode, tasks[:2])] == list(MAIN[:2])


def test_bad_tasks_are_refused() -> None:
    with pytest.raises(DataError, match="differ in length"):
        SentenceTask("cr", TEXTS, LABELS[:-1])
    with pytest.raises(DataError, match="two different labels"):
        SentenceTask("cr", TEXTS, np.zeros(400))
    with pytest.raises(DataError, match="no sentence task"):
        SentenceTask.load("blog")
    with pytest.raises(DataError, match="needs pairs"):
        SentenceTask("stsb", TEXTS, RANDOM.normal(size=400), has_grades=True).measure(encode)
    with pytest.raises(DataError, match="not finite"):
        SentenceTask("cr", TEXTS, LABELS).measure(lambda texts: np.full((len(texts), 2), np.nan))


def test_real_sets_load(dataset: Callable[..., Corpus]) -> None:
    dataset("mrpc")
    task = SentenceTask.load("mrpc")
    assert task.others is not None and task.test is not None and int(task.test.sum()) == 1725
    dataset("stsb")
    graded = SentenceTask.load("stsb")
    assert graded.has_grades and len(graded.texts) == 1379
