"""The road: what is kept of an attack to read more vectors is the attack that was scored."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.evaluation.decision import plan_attributes
from capelet.evaluation.measure import Released, encoders_of, fitted_attackers, measure
from capelet.evaluation.provenance import Clock
from capelet.mechanisms import Laplace
from capelet.question import Protocol
from capelet.release import PrivateEncoder

ROWS = 400


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Ready vectors of which the first coordinate says the side; one side in five is the left."""
    random = np.random.default_rng(0)
    left = random.random(ROWS) < 0.2
    vectors = random.normal(size=(ROWS, 6)).astype(np.float32)
    vectors[:, 0] += 3.0 * left
    side = np.where(left, "left", "right").astype(object)
    return Corpus("sides", vectors=vectors, private={"side": side})


@pytest.mark.parametrize("private", [PrivateEncoder(), PrivateEncoder(Laplace(2.0))])
def test_a_fitted_attacker_is_right_as_often_as_an_audit_says(
    corpus: Corpus, private: PrivateEncoder
) -> None:
    protocol = Protocol(seeds=(0,), attackers=("logistic",), seeded_noise=True)
    plan = plan_attributes(protocol, corpus).without_defender()

    def released() -> Released:
        return Released.of(encoders_of(private, plan), corpus.vectors)

    (attacker,) = fitted_attackers(plan, released())
    rows, _ = measure(plan, released(), Clock())
    (row,) = (
        row
        for row in rows
        if (row.kind, row.attacker, row.metric, row.subgroup)
        == ("attribute-inference", "strongest", "balanced_accuracy", None)
    )
    assert attacker.secret.name == "side" and attacker.accuracy == row.value


def test_further_vectors_are_read_and_how_sure_a_guess_is_is_how_often_it_is_right(
    corpus: Corpus,
) -> None:
    """Classes are weighed alike, so that the rare one is often named, and believed less."""
    plan = plan_attributes(Protocol(seeds=(0,), attackers=("logistic",)), corpus)
    (attacker,) = fitted_attackers(
        plan.without_defender(), Released.of([PrivateEncoder()], corpus.vectors)
    )
    random = np.random.default_rng(1)
    left = random.random(200) < 0.2
    vectors = random.normal(size=(200, 6)).astype(np.float32)
    vectors[:, 0] += 3.0 * left
    guesses = [attacker.read(row) for row in vectors]
    named = np.array([side == "left" for side, _ in guesses])
    sure = np.array([probability for _, probability in guesses])
    for side in (True, False):
        share = (left == named)[named == side].mean()
        assert abs(share - sure[named == side].mean()) < 0.1
    assert sure[named].mean() < sure[~named].mean()


def test_where_nobody_defends_the_defender_teaches_all_but_what_trained(corpus: Corpus) -> None:
    trained = np.zeros(ROWS, dtype=bool)
    trained[:40] = True
    plan = plan_attributes(Protocol(seeds=(0, 1)), corpus, trained)
    for before, after in zip(plan.splits, plan.without_defender().splits, strict=True):
        assert not len(after.defender)
        np.testing.assert_array_equal(after.victims, before.victims)
        own = set(before.attacker) | set(before.defender) - set(range(40))
        assert set(after.attacker) == own and not own & set(before.victims)
