"""The first `gr+` as a specimen: fresh attackers lose sight of the secret, insiders do not.

Real vectors: news with named people, the encoder that ships with Capelet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from capelet.attacks.adaptive import LIKELIHOOD, UNDO
from capelet.attacks.attribute import Secret, View, attack, families
from capelet.data.corpus import Corpus
from capelet.data.datasets import is_available, load
from capelet.defences import Settings, fit
from capelet.defences.specimens import fit_invertible
from capelet.encoders import load as load_encoder
from capelet.evaluation.adaptive import AdaptiveAttackers, Insider
from capelet.evaluation.plan import Plan
from capelet.findings.metrics import balanced_accuracy
from capelet.privacy.guarantees import ceiling_balanced
from capelet.release import PrivateEncoder
from capelet.workflows.training import part_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_available("ag_entities"), reason="CAPELET_DATA has no ag_entities"),
]
ROWS = 1600


@pytest.fixture(scope="module")
def news() -> tuple[Plan, np.ndarray]:
    corpus = load("ag_entities")
    rows = np.linspace(0, len(corpus) - 1, ROWS).astype(int)
    vectors = load_encoder("wordllama").encode(corpus.texts[rows].tolist())
    secrets = {"entity_1": corpus.private["entity_1"][rows]}
    label = np.where(corpus.label[rows] == 0, "world", "other").astype(object)
    small = Corpus("news", vectors=vectors, label=label, label_name="topic", private=secrets)
    return Plan.of(small, 1), vectors


def attackers_of(news: Any, defence: Any) -> tuple[AdaptiveAttackers, np.ndarray]:
    plan, raw = news
    private = PrivateEncoder(*defence.steps)
    released = private.release(raw).vectors
    insider = Insider.of(private, raw)
    return AdaptiveAttackers(plan, plan.splits[0], released, insider), released


def read(plan: Plan, vectors: np.ndarray) -> float:
    """What fresh attackers of these vectors reach."""
    secret, parts = plan.secrets[0], plan.splits[0]
    view = View(vectors, *parts.training("attacker"), parts.victims, 0)
    target = Secret(view, secret.codes, 2)
    result = attack(view, target, families(("logistic", "kernel", "knn")))
    return accuracy(plan, result.best[result.strongest].scored)


def accuracy(plan: Plan, scores: np.ndarray) -> float:
    truth = plan.secrets[0].codes[plan.splits[0].victims]
    return float(balanced_accuracy(truth, scores.argmax(axis=1)))


def test_undo_reads_from_the_specimen_nearly_what_is_raw(news: Any) -> None:
    plan, raw = news
    part = part_of(plan, plan.splits[0], raw, plan.secrets)
    attackers, released = attackers_of(
        news, fit_invertible(part, Settings(adversary_weight=5.0, keep="neighbours"))
    )
    unprotected = read(plan, raw)
    guess = attackers.guesses(plan.secrets[0])[UNDO]
    assert accuracy(plan, guess.scored) > unprotected - 0.05
    # It knew beforehand, from its own rows, that it would beat those who hold vectors alone.
    assert read(plan, released) < unprotected - 0.05 < guess.quality
    # The control: labels that have nothing to do with the texts are not read.
    shuffled = np.random.default_rng(0).permutation(plan.secrets[0].codes)
    nothing = attackers.guesses(replace(plan.secrets[0], codes=shuffled))[UNDO]
    truth = shuffled[plan.splits[0].victims]
    assert balanced_accuracy(truth, nothing.scored.argmax(axis=1)) == pytest.approx(0.5, abs=0.08)


def test_nobody_reads_more_than_likelihood_from_the_bottleneck(news: Any) -> None:
    plan, raw = news
    part = part_of(plan, plan.splits[0], raw, plan.secrets)
    defence = fit("bottleneck", part, Settings(epsilon=2.0))
    attackers, released = attackers_of(news, defence)
    guesses = attackers.guesses(plan.secrets[0])
    best = accuracy(plan, guesses[LIKELIHOOD].scored)
    error = np.sqrt(0.25 / len(plan.splits[0].victims))
    others = [accuracy(plan, guess.scored) for guess in guesses.values()]
    assert max(*others, read(plan, released)) <= best + 2 * error
    top = ceiling_balanced(2, PrivateEncoder(*defence.steps).guarantee)
    assert top is not None and best <= top + 2 * error
