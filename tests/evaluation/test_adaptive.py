"""Adaptive attackers in an audit: what they read and hold, and that victims teach nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from capelet.attacks.adaptive import LIKELIHOOD, PAIRS, UNDO
from capelet.attacks.attribute import OutOfFold, Result, paired_gain
from capelet.data.corpus import Corpus
from capelet.evaluation.access import access_of
from capelet.evaluation.adaptive import (
    AdaptiveAttackers,
    AdaptiveGuess,
    Insider,
    _leaning,
    _without_leaning,
    holds,
    strongest_of,
)
from capelet.evaluation.plan import Plan
from capelet.findings.metrics import balanced_accuracy
from capelet.mechanisms import Gaussian, Laplace
from capelet.release import PrivateEncoder
from capelet.release.maps import Layer, Map, affine
from capelet.workflows.audit import audit

ROWS, WIDTH = 1200, 6


def corpus(shift: float = 3.0, seed: int = 0) -> Corpus:
    """A secret in the first coordinate; the best balanced accuracy is Φ(shift/2)."""
    random = np.random.default_rng(seed)
    secret = random.integers(0, 2, ROWS)
    vectors = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    vectors[:, 0] += shift * secret
    values = np.array([str(item) for item in secret], dtype=object)
    return Corpus("made", vectors=vectors, private={"secret": values})


def folding_map() -> Map:
    """z₀ = x₀ + a steep zigzag of x₁: plain readers lose sight of x₀, and nothing is lost.

    The zigzag is made of ReLUs; it rises and falls by 10 in every half unit of x₁.
    """
    knots = np.arange(-5.0, 5.0, 0.25)
    turns = np.where(np.arange(len(knots)) % 2, -80.0, 80.0)
    turns[0] = 40.0
    inner, outer = np.zeros((len(knots), WIDTH)), np.zeros((WIDTH, len(knots)))
    inner[:, 1], outer[0] = 1.0, turns
    zero, same = np.zeros(WIDTH), affine(np.eye(WIDTH), np.zeros(WIDTH))
    bend = Layer(inner.astype("f4"), -knots.astype("f4"), "relu")
    return Map((same, bend, affine(outer, zero)), same)


def attackers_of(*steps: object, shift: float = 3.0) -> tuple[Plan, AdaptiveAttackers]:
    plan = Plan.of(corpus(shift), 1)
    private = PrivateEncoder(*steps)
    raw = plan.corpus.vectors
    assert raw is not None
    released = private.release(raw).vectors
    return plan, AdaptiveAttackers(plan, plan.splits[0], released, Insider.of(private, raw))


def accuracy(plan: Plan, guess: AdaptiveGuess) -> float:
    truth = plan.secrets[0].codes[plan.splits[0].victims]
    return balanced_accuracy(truth, guess.scored.argmax(axis=1))


def test_whoever_holds_the_map_reads_what_was_raw() -> None:
    plan, attackers = attackers_of(folding_map())
    assert attackers.names == [PAIRS, UNDO]
    guesses = attackers.guesses(plan.secrets[0])
    optimum = norm.cdf(1.5)
    assert accuracy(plan, guesses[UNDO]) > optimum - 0.05
    # Its own rows told it so beforehand, no victim.
    assert guesses[UNDO].quality == pytest.approx(optimum, abs=0.07)


def test_the_likelihood_is_bayes_and_noise_alone_is_chance() -> None:
    noise = Gaussian(3.0, 1e-3)
    plan, attackers = attackers_of(noise)
    assert attackers.names == [PAIRS, LIKELIHOOD]
    guesses = attackers.guesses(plan.secrets[0])
    assert 0.5 < accuracy(plan, guesses[LIKELIHOOD]) < 0.85
    plan, attackers = attackers_of(Laplace(0.01))
    for guess in attackers.guesses(plan.secrets[0]).values():
        assert accuracy(plan, guess) == pytest.approx(0.5, abs=0.1)


def test_a_secret_that_is_not_there_is_not_read_off_pre_images() -> None:
    plan, attackers = attackers_of(folding_map(), shift=0.0)
    for guess in attackers.guesses(plan.secrets[0]).values():
        assert accuracy(plan, guess) == pytest.approx(0.5, abs=0.1)


def test_no_victim_has_a_say() -> None:
    """Victims' raw vectors and labels may be anything: guesses and quality stay the same."""
    plan, attackers = attackers_of(folding_map())
    secret = plan.secrets[0]
    before = attackers.guesses(secret)
    victims = plan.splits[0].victims
    raw = np.array(attackers.raw)
    raw[victims] = 99.0
    steps = (folding_map(),)
    spoilt = AdaptiveAttackers(plan, plan.splits[0], attackers.outputs, Insider(raw, steps))
    after = spoilt.guesses(secret)
    for name, guess in before.items():
        assert np.array_equal(guess.scored, after[name].scored)
        assert guess.quality == after[name].quality


def test_noise_before_a_map_leaves_pairs_only() -> None:
    _, attackers = attackers_of(Laplace(50.0), folding_map())
    assert attackers.names == [PAIRS]


def first_rows(codes: np.ndarray, right: int) -> OutOfFold:
    """Guesses that are right on the first rows only."""
    guesses = np.where(np.arange(len(codes)) < right, codes, 1 - codes)
    return OutOfFold(np.arange(len(codes)), np.eye(2)[guesses])


def test_a_reader_that_leans_to_one_class_is_set_upright() -> None:
    """Undone vectors are shrunk towards one class: uncorrected, nearly all are named so."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 2, 4000)
    score = random.normal(1.5 * (truth - 0.5), 1.0)
    leaning = 1 / (1 + np.exp(-1.5 * score - 2.0))
    crooked = np.stack([1 - leaning, leaning], axis=1)
    upright = _without_leaning(crooked, _leaning(crooked, np.ones(4000)))
    before, after = (balanced_accuracy(truth, item.argmax(axis=1)) for item in (crooked, upright))
    assert before < 0.7 and after > norm.cdf(0.75) - 0.02
    np.testing.assert_allclose(upright.sum(axis=1), 1)


def test_the_strongest_is_chosen_on_own_rows() -> None:
    """Of 400 rows knn knows the first 300; who is better must be so by more than luck."""
    codes = np.arange(400) % 2
    result = Result({"knn": None}, {"knn": 0.75}, None, {"knn": first_rows(codes, 300)})  # type: ignore[arg-type, dict-item]

    def guess(right: int) -> AdaptiveGuess:
        return AdaptiveGuess(np.zeros((3, 2)), first_rows(codes, right), right / 400, {})

    assert strongest_of(result, {UNDO: guess(390), PAIRS: guess(330)}, codes) == UNDO
    assert strongest_of(result, {UNDO: guess(290), PAIRS: guess(330)}, codes) == PAIRS
    # Eight rows won and three lost are one and a half standard errors: no clear lead.
    unclear = guess(308)
    unclear.trial.probabilities[:3] = unclear.trial.probabilities[:3, ::-1]
    gain, error = paired_gain(unclear.trial, result.out_of_fold["knn"], codes)
    assert error < gain < 2 * error
    assert strongest_of(result, {UNDO: unclear}, codes) == "knn"
    # Six rows won and five lost is luck; rows that only one of them read are not compared.
    lucky = guess(306)
    lucky.trial.probabilities[:5] = lucky.trial.probabilities[:5, ::-1]
    assert strongest_of(result, {UNDO: lucky}, codes) == "knn"
    elsewhere = replace(guess(390), trial=OutOfFold(np.arange(400, 410), np.ones((10, 2))))
    assert strongest_of(result, {UNDO: elsewhere}, np.tile(codes, 2)) == "knn"
    assert strongest_of(result, {}, codes) == "knn"
    assert (holds("knn"), holds(PAIRS), holds(UNDO)) == ("vectors", "pairs", "the folder")
    assert holds("strongest", {"knn": 1, UNDO: 2}) == "the folder"


def test_nobody_is_an_insider_of_unprotected_vectors() -> None:
    raw = corpus().vectors
    plain, folded = access_of([PrivateEncoder(), PrivateEncoder(folding_map())], raw, raw)
    assert plain.insider is None and folded.insider is not None


def test_an_audit_names_the_winner_and_what_it_held() -> None:
    findings = audit(corpus(), PrivateEncoder(folding_map()), seeds=1)
    rows = {row.attacker: row for row in findings.select(
        kind="attribute-inference", metric="balanced_accuracy"
    )}  # fmt: skip
    assert rows["undo"].parameters["holds"] == "the folder"
    assert rows["strongest"].parameters["chosen"] == {"undo": 1}
    assert rows["strongest"].parameters["holds"] == "the folder"
    assert rows["strongest"].value == rows["undo"].value > rows["logistic"].value + 0.1
    assert rows["knn"].parameters["holds"] == "vectors"
    # Families that are named are tried alone.
    named = audit(corpus(), PrivateEncoder(folding_map()), seeds=1, attackers=["logistic"])
    assert {row.attacker for row in named.select(kind="attribute-inference")} == {
        "logistic", "strongest"
    }  # fmt: skip
