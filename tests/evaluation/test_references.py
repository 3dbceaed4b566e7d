"""References say what they claim, and the null keeps everything but the tie to the texts."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.attacks.attribute import Parts, Secret, View
from capelet.evaluation.references import TextAttacker, from_predicted_label, permute
from capelet.findings.metrics import balanced_accuracy

FIT, TUNE, SCORED = np.arange(400), np.arange(400, 500), np.arange(500, 1000)


def secret_of(codes: np.ndarray) -> tuple[View, Secret]:
    view = View(np.zeros((1000, 2), dtype=np.float32), FIT, TUNE, SCORED, 0)
    return view, Secret(view, codes, 2)


def test_predicted_label_gives_away_what_label_and_secret_share() -> None:
    random = np.random.default_rng(0)
    codes = (random.random(1000) < 0.1).astype(np.intp)
    label = np.where(random.random(1000) < 0.8, codes, 1 - codes)  # right in 80 % of either class
    view, secret = secret_of(codes)
    said = Parts(*(label[rows] for rows in view.rows))
    scores = from_predicted_label(said, secret, labels=2)
    assert balanced_accuracy(secret.codes.scored, scores.argmax(axis=1)) == pytest.approx(
        0.8, abs=0.05
    )


def test_text_attacker_reads_words() -> None:
    random = np.random.default_rng(1)
    codes = random.integers(0, 2, 1000)
    words = np.array(["my wife said so", "my husband said so"])[codes]
    texts = np.array([f"{word} number {row}" for row, word in enumerate(words)], dtype=object)
    view, secret = secret_of(codes)
    scores = TextAttacker(texts, view).probabilities(secret)
    assert balanced_accuracy(secret.codes.scored, scores.argmax(axis=1)) == 1.0
    unique = np.array([f"w{row}x" for row in range(1000)], dtype=object)
    assert TextAttacker(unique, view).probabilities(secret).shape == (500, 2)


def test_permuted_by_author_keeps_authors_whole() -> None:
    random = np.random.default_rng(2)
    author = np.repeat(np.arange(100), 10)
    codes = random.integers(0, 2, 100)[author]
    codes[:10] = -1
    dealt = permute(codes, author, random)
    assert (dealt[:10] == -1).all() and (dealt != codes).any()
    assert all(len(set(dealt[author == person])) == 1 for person in range(1, 100))


def test_permuted_rows_keep_their_counts() -> None:
    random = np.random.default_rng(3)
    codes = random.integers(0, 3, 300)
    dealt = permute(codes, np.arange(300) // 5, random)
    assert (np.bincount(dealt) == np.bincount(codes)).all() and (dealt != codes).any()
