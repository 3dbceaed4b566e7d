"""A cell has the numbers of the command for its seed alone, and has them again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.data.datasets import load
from capelet.defences import Defence, Settings
from capelet.defences.settings import Schedule
from capelet.encoders import load as load_encoder
from capelet.encoders import with_cache
from capelet.errors import CapeletError
from capelet.evaluation.membership import Membership
from capelet.evaluation.plan import Plan
from capelet.findings import Findings
from capelet.mechanisms import Laplace
from capelet.mechanisms.words import WordDropout
from capelet.question import Protocol
from capelet.release import PrivateEncoder
from capelet.studies.measurements.splits import measure_clouds, measure_method, measure_steps
from capelet.workflows import training
from capelet.workflows.audit import audit
from capelet.workflows.protect import protect

pytest.importorskip("wordllama", reason="the extra words is not installed")
QUICK = Schedule(epochs=2, device="cpu")
FAST = ("logistic",)
SEED = 3


def one_split(seed: int, attackers: tuple[str, ...] = ()) -> Protocol:
    """What a cell asks: one split, with noise from its seed."""
    return Protocol(seeds=[seed], attackers=attackers, seeded_noise=True, threads=1)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    some = load("reviews").take(np.arange(400))
    # A task and a secret of two classes each: of rarer ones a split this small may have no victim.
    stars = np.array(["good" if str(item) > "3" else "bad" for item in some.label], dtype=object)
    secrets = {"gender": some.private["gender"]}
    return replace(some, label=stars, private=secrets, author=None)


def scores(findings: Findings) -> dict[tuple[Any, ...], float]:
    """What attackers and probes reached; geometry and pooled persons are in both alike."""
    return {
        (row.kind, row.target, row.metric, row.attacker, row.subgroup): row.value
        for row in findings
        if np.isfinite(row.value)
    }


@pytest.mark.parametrize(
    ("method", "settings"),
    [("gr", {}), ("cape", {"epsilon": 8.0}), ("dpnr", {"epsilon": 8.0, "word_dropout": 0.3})],
)
def test_a_cell_is_protect_for_one_seed(
    corpus: Corpus, method: str, settings: dict[str, Any]
) -> None:
    choice = Settings(schedule=QUICK, **settings)
    encoder = with_cache(load_encoder("wordllama"))
    measured = measure_method(corpus, encoder, method, choice, one_split(SEED, FAST))
    cell, guesses = measured.findings, measured.guesses
    whole = protect(
        corpus, "wordllama", method, choice, seeds=[SEED], attackers=FAST, seeded_noise=True,
        allow_useless_epsilon=True,
    )  # fmt: skip
    own = scores(cell)
    # The defence's own adversary is no attacker, and is shown by `protect` alone.
    theirs = {key: value for key, value in scores(whole.after).items() if "joint" not in str(key)}
    assert own == theirs
    assert {item.target for item in guesses} == {"stars", "gender"}
    # Another seed is another split.
    other = measure_method(corpus, encoder, method, choice, one_split(SEED + 1, FAST)).findings
    assert scores(other) != own


def test_a_cell_without_steps_is_an_audit_and_one_with_noise_can_be_repeated(
    corpus: Corpus,
) -> None:
    encoder, protocol = with_cache(load_encoder("wordllama")), one_split(SEED, FAST)
    before = measure_steps(corpus, encoder, (), protocol).findings
    assert scores(before) == scores(audit(corpus, "wordllama", seeds=[SEED], attackers=FAST))
    steps = [Laplace(64.0), WordDropout(0.2)]
    measured = measure_steps(corpus, encoder, steps, protocol)
    noisy, guesses = measured.findings, measured.guesses
    measured = measure_steps(corpus, encoder, steps, protocol)
    again, same_guesses = measured.findings, measured.guesses
    assert noisy.to_json() == again.to_json() != before.to_json()
    for one, other in zip(guesses, same_guesses, strict=True):
        assert np.array_equal(one.guess, other.guess)
    private = PrivateEncoder(WordDropout(0.2), encoder, Laplace(64.0))
    seeded = audit(corpus, private, seeds=[SEED], attackers=FAST, seeded_noise=True)
    assert scores(noisy) == scores(seeded)


def test_guesses_are_those_that_the_scores_come_from(corpus: Corpus) -> None:
    encoder = with_cache(load_encoder("wordllama"))
    measured = measure_steps(corpus, encoder, (), one_split(SEED, FAST))
    findings, guesses = measured.findings, measured.guesses
    for item in guesses:
        accuracy = findings.value(
            kind=item.kind, target=item.target, metric="accuracy", attacker="strongest",
            subgroup=None,
        )  # fmt: skip
        assert (item.truth == item.guess).mean() == pytest.approx(accuracy)
        assert len(set(item.rows.tolist())) == len(item.rows)


def test_a_cell_with_the_original_noise_says_that_it_is_broken(corpus: Corpus) -> None:
    encoder, protocol = with_cache(load_encoder("wordllama")), one_split(SEED, FAST)
    wrong = Settings(epsilon=8.0, mechanism="specimen:row-range", schedule=QUICK)
    findings = measure_method(corpus, encoder, "cape", wrong, protocol).findings
    assert findings.provenance["unseeded_guarantee"]["status"] == "broken"
    assert any(step["step"] == "specimen:row-range" for step in findings.recipe["steps"])
    again = measure_method(corpus, encoder, "cape", wrong, protocol).findings
    assert again.to_json() == findings.to_json()
    # The control: the right noise would keep its word, had it not come from a seed.
    right = replace(wrong, mechanism="laplace")
    findings = measure_method(corpus, encoder, "cape", right, protocol).findings
    assert findings.provenance["unseeded_guarantee"]["status"] == "proven"
    auto = measure_method(
        corpus, encoder, "cape", replace(wrong, mechanism="auto"), protocol
    ).findings
    assert scores(auto) == scores(findings)


def test_nothing_is_protected_with_the_original_noise(corpus: Corpus) -> None:
    wrong = Settings(epsilon=8.0, mechanism="specimen:row-range", schedule=QUICK)
    for seeded in (False, True):
        with pytest.raises(CapeletError, match="known to be broken"):
            protect(corpus, "wordllama", "cape", wrong, seeds=[0], seeded_noise=seeded)
    with pytest.raises(CapeletError, match="has no mechanism 'laplase'; did you mean 'laplace'"):
        protect(corpus, "wordllama", "cape", replace(wrong, mechanism="laplase"), seeds=[0])


def test_the_head_of_a_map_that_learnt_by_heart_gives_its_texts_away(corpus: Corpus) -> None:
    """Labels that say nothing can only be learnt by heart; a map that hardly trained knew none."""
    random = np.random.default_rng(0)
    noise = np.array(["yes", "no"], dtype=object)[random.integers(2, size=len(corpus))]
    blind = replace(corpus, label=noise)
    encoder, protocol = with_cache(load_encoder("wordllama")), one_split(SEED, FAST)

    def advantage(**schedule: Any) -> float:
        settings = Settings(schedule=Schedule(device="cpu", **schedule))
        findings = measure_method(blind, encoder, "fx", settings, protocol, members=True).findings
        return findings.value(kind="membership", metric="advantage", attacker="head-loss")

    assert advantage(epochs=200, patience=None) > 0.5
    assert abs(advantage(epochs=1, rate=1e-6)) < 0.2
    without = measure_method(blind, encoder, "fx", Settings(schedule=QUICK), protocol).findings
    assert not without.select(kind="membership")


def test_a_map_is_asked_with_the_vectors_of_the_encoder_that_ships(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder that was learnt too has vectors of its own, of the plain one's width perhaps."""
    fitted: list[Defence] = []
    asked: list[np.ndarray] = []
    fit, of_head = training.fit, Membership.of_head

    def remember(*arguments: Any) -> Defence:
        fitted.append(fit(*arguments))
        return fitted[-1]

    def look(attack: Membership, chances: np.ndarray, *arguments: Any) -> Any:
        asked.append(chances)
        return of_head(attack, chances, *arguments)

    monkeypatch.setattr(training, "fit", remember)
    monkeypatch.setattr(Membership, "of_head", look)
    encoder, settings = load_encoder("wordllama"), Settings(schedule=QUICK)
    measure_method(corpus, encoder, "ae", settings, one_split(SEED, FAST), members=True)
    ((defence,), (chances,)) = fitted, asked
    plan = Plan.of(corpus, [SEED])
    rows = plan.splits[0]
    fit_rows = rows.training("defender")[0]
    some = np.concatenate([fit_rows, rows.attacker, rows.victims])
    assert defence.encoder is not None and defence.outcome.head is not None
    texts = [str(corpus.texts[row]) for row in some]  # type: ignore[index]
    head, change = defence.outcome.head, defence.outcome.map
    ships, plain = (head(change(item.encode(texts))) for item in (defence.encoder, encoder))
    np.testing.assert_allclose(chances, ships, atol=1e-4)
    assert np.abs(ships - plain).max() > 0.01


def test_clouds_of_a_cell_can_be_drawn_again(corpus: Corpus) -> None:
    encoder, protocol = with_cache(load_encoder("wordllama")), one_split(SEED)
    clouds = {"ldp": [Laplace(1.0)], "dropped": [WordDropout(0.2)]}
    findings = measure_clouds(corpus, encoder, clouds, protocol)
    assert findings.to_json() == measure_clouds(corpus, encoder, clouds, protocol).to_json()
    values = {(row.subgroup, row.metric): row.value for row in findings if row.target == "vectors"}
    assert values["ldp", "cosine_distance"] > 0.9 > values["dropped", "cosine_distance"]
    assert values["ldp", "map_purity"] > values["dropped", "map_purity"]
