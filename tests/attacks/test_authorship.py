"""Attackers of writers: known and scored texts are apart, and victims teach nothing."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.attacks.authorship import LinearProbe, Shots, TextCnn
from capelet.errors import DataError
from written import AUTHORS, WRITERS, texts, vectors


def test_a_faint_style_among_many_writers_is_found() -> None:
    # With many writers the loss is nearly flat at the start: a solver must not stop there.
    random = np.random.default_rng(2)
    codes = np.arange(100 * 15) % 100
    made = 0.2 * random.normal(size=(100, 512))[codes] + random.normal(size=(len(codes), 512))
    shots = Shots.of([f"w{code}" for code in codes], 10, 100, 5)
    scores = LinearProbe(strengths=(3.0,)).scores(made, shots, shots.codes)
    truth = shots.codes[shots.test]
    first = np.argsort(-scores, axis=1)[:, :5]
    assert (first == truth[:, None]).any(axis=1).mean() > 0.3  # chance 0.05


def test_the_text_baseline_finds_habits_and_not_noise() -> None:
    shots = Shots.of(AUTHORS, 10, WRITERS, 15)
    truth = shots.codes[shots.test]
    network = TextCnn(width=32, filters=32, epochs=30)
    loud = network.scores(texts(0.6), shots, shots.codes).argmax(axis=1) == truth
    mute = network.scores(texts(0.0), shots, shots.codes).argmax(axis=1) == truth
    assert loud.mean() > 0.5
    assert mute.mean() < 0.12


def test_known_and_scored_texts_are_apart_and_balanced() -> None:
    shots = Shots.of(AUTHORS, shots=7, writers=6, tests=4, seed=3)
    assert not set(shots.training) & set(shots.test)
    assert np.bincount(shots.codes[shots.training]).tolist() == [7] * 6
    assert np.bincount(shots.codes[shots.test]).tolist() == [4] * 6


def test_one_writer_is_refused() -> None:
    with pytest.raises(DataError, match="at least two"):
        Shots.of(["me"] * 50)
    with pytest.raises(DataError, match="1 of 2 writers"):
        Shots.of(["me"] * 50 + ["you"] * 3)


def test_victims_do_not_move_the_probe() -> None:
    """The scores of one victim stay when the others change: nothing is learnt from victims."""
    shots = Shots.of(AUTHORS, 10, WRITERS, 15)
    before = vectors(1.0)
    after = before.copy()
    after[shots.test[1:]] *= 9
    probe = LinearProbe(strengths=(3.0,))
    one, two = (probe.scores(made, shots, shots.codes)[0] for made in (before, after))
    assert one == pytest.approx(two)
