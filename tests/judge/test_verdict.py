"""What `verify` asks of the search and makes of its count: claims, pairs, steps, sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from capelet.errors import CapeletError
from capelet.interfaces import silent
from capelet.judge import judge as module
from capelet.judge.bounds import Claim, Threshold
from capelet.judge.calls import CROWD, views
from capelet.judge.event_search import FAMILIES, Event, Finalist, SearchResult, Setting, Tally
from capelet.judge.judge import DIMENSION, LEAST_SAMPLES, Verdict, verify, verify_recipe
from capelet.judge.pairs import WORDS, Pair
from capelet.mechanisms import Gaussian, Laplace, Projection, RandomisedResponse
from capelet.mechanisms.words import TruncatedExponential, WordReplacement
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.release import PrivateEncoder

TABLE = (["good", "bad", "he", "she"], [[0.0, 0.0], [3.0, 4.0], [1.0, 0.0], [0.0, 1.0]])


@dataclass
class Calls:
    """What the search and the count were asked for; the answers are fixed."""

    hits: tuple[int, int] = (900, 100)
    pairs: list[Pair] | None = None
    claim: Claim | None = None
    draws: int = 0
    counts: list[int] = field(default_factory=list)
    mechanism: Any = None

    def search(
        self, source: Any, pairs: list[Pair], claim: Claim, draws: int, _: Any
    ) -> SearchResult:
        self.pairs, self.claim, self.draws = pairs, claim, draws
        self.mechanism, self.counts = source.mechanism, []
        threshold = Threshold(1.0, 0.5, True, False)
        (view,) = views(CROWD, is_text=False)
        event = Event(Setting(pairs[-1], CROWD, view), "the sum", np.sum, threshold)
        return SearchResult([Finalist(event, MAIN, draws), Finalist(event, OTHER, draws // 10)], 77)

    def count(self, source: Any, finalists: list[Finalist], _: Any) -> list[Tally]:
        self.counts = [final.count for final in finalists]
        hits = (self.hits if final.family is MAIN else (50, 5) for final in finalists)
        return [Tally(own, (n, n)) for own, n in zip(hits, self.counts, strict=True)]


MAIN, OTHER = FAMILIES[:2]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    record = Calls()
    monkeypatch.setattr(module, "search", record.search)
    monkeypatch.setattr(module, "count_hits", record.count)
    return record


# ---- what is tested ------------------------------------------------------------------------------


def test_half_of_the_samples_choose_and_half_are_counted(calls: Calls) -> None:
    verdict = verify(Laplace(1.0), samples=4001, dimension=3)
    assert (calls.draws, calls.counts, verdict.counted) == (2001, [2001, 200], 4002)
    assert verdict.hits == (900, 100) and verdict.events_tried == 77
    assert verdict.pairs_tried == 12 and verdict.pair.name.startswith("a dense direction")
    claim = Claim(1.0, 0.0, 0.999)
    assert calls.claim == claim
    # Each count has its share of the risk, and the larger bound is told with its own event.
    main = claim.with_share(MAIN.risk)
    assert verdict.lower_bound == main.proven(900, 100, (2001, 2001))
    assert verdict.reach == main.reach(4002)
    assert verdict.event.startswith("the sum ≥ 0.5")
    assert not verdict.passed
    calls.hits = (101, 100)
    weak = verify(Laplace(1.0), samples=4001, dimension=3)
    assert weak.hits == (50, 5) and weak.counted == 400
    assert weak.lower_bound == claim.with_share(OTHER.risk).proven(50, 5, (200, 200))
    with pytest.raises(CapeletError, match=f"samples is {LEAST_SAMPLES - 1}"):
        verify(Laplace(1.0), samples=LEAST_SAMPLES - 1)
    verify(Laplace(1.0))
    assert calls.draws == 500_000


def test_a_claim_is_the_mechanism_s_unless_another_is_given(calls: Calls) -> None:
    verify(Gaussian(2.0, 1e-5), samples=2000)
    assert calls.claim == Claim(2.0, 1e-5, 0.999, "gaussian")
    verify(Gaussian(2.0, 1e-5), 3.0, 1e-3, 2000, confidence=0.9, tradeoff="any")
    assert calls.claim == Claim(3.0, 1e-3, 0.9, "any")
    verify(lambda rows: rows, 0.5, samples=2000)
    assert calls.claim == Claim(0.5, 0.0, 0.999, "any")
    verify(Laplace(1.0), samples=2000, confidence=0.5)
    for arguments in ({"confidence": 0.49}, {"confidence": 1.0}, {"delta": 1.1}, {"claimed": -1}):
        with pytest.raises(CapeletError, match="is"):
            verify(Laplace(1.0), samples=2000, **arguments)  # type: ignore[arg-type]
    assert verify(Laplace(1.0), 0.0, 1.0, 2000).lower_bound == 0.0

    class Unproven:
        guarantee = NONE

        def __call__(self, rows: Any) -> Any:
            return rows

    with pytest.raises(CapeletError, match="states no guarantee"):
        verify(Unproven(), samples=2000)
    with pytest.raises(CapeletError, match=r"delta is 0\.0"):
        verify(Laplace(1.0), samples=2000, tradeoff="gaussian")


def test_the_width_is_asked_for_or_the_mechanism_s_or_sixteen(calls: Calls) -> None:
    def width(mechanism: Any, **options: Any) -> int:
        verify(mechanism, samples=2000, **options)
        assert calls.pairs is not None
        return int(calls.pairs[0].first.size)

    assert width(Laplace(1.0)) == DIMENSION == 16
    assert width(Laplace(1.0, dimension=5)) == 5
    assert width(RandomisedResponse(1.0, 7)) == 7
    assert width(Laplace(1.0, dimension=5), dimension=3) == 3
    assert width(Laplace(1.0), dimension=1) == 1
    with pytest.raises(CapeletError, match="dimension is 0"):
        verify(Laplace(1.0), samples=2000, dimension=0)


def test_distances_are_the_mechanism_s_where_its_guarantee_is_metric(calls: Calls) -> None:
    step = WordReplacement(2.0, TABLE)
    verdict = verify(step, samples=2000, pairs=[("good", "bad")])
    assert verdict.pair.distance == pytest.approx(5.0)
    main = Claim(2.0, 0.0, 0.999).with_share(MAIN.risk)
    assert verdict.lower_bound == pytest.approx(main.proven(900, 100, (1000, 1000)) / 5)
    assert verdict.reach == pytest.approx(main.reach(2000) / 5)
    own = verify(step, samples=2000, pairs=[("good", "bad")], distance=2.0)
    assert own.pair.distance == 2.0
    plain = verify(Laplace(1.0), samples=2000, pairs=[([1.0], [2.0])])
    assert plain.pair.distance == 1.0
    for pairs, distance in ((None, 2.0), (None, None)):
        with pytest.raises(CapeletError, match="pairs="):
            verify(step, samples=2000, pairs=pairs, distance=distance)
    with pytest.raises(CapeletError, match="distance needs pairs"):
        verify(Laplace(1.0), samples=2000, distance=2.0)
    with pytest.raises(CapeletError, match="knows no distance"):
        verify(Gaussian(1.0, 0.1), samples=2000, pairs=[([1.0], [2.0])], distance=2.0)
    unlike = [([0.0], [1.0]), ([0.0], [2.0])]  # one pair that is not a unit apart is enough
    with pytest.raises(CapeletError, match="knows no distance"):
        verify(Gaussian(1.0, 0.1), samples=2000, pairs=unlike, distance=lambda a, b: b[0] - a[0])


# ---- recipes -------------------------------------------------------------------------------------


def only(*steps: Any) -> PrivateEncoder:
    private = PrivateEncoder()
    private.steps = steps
    return private


def test_each_noise_step_is_judged_in_few_dimensions(calls: Calls) -> None:
    steps = (Projection(64), Laplace(8.0, dimension=64), Gaussian(1.0, 1e-5), Laplace(2.0, 3))
    verdicts = verify_recipe(only(*steps), samples=2000, dimension=4, confidence=0.9)
    names = [verdict.subject for verdict in verdicts]
    assert names == [
        "Laplace(epsilon=8.0, dimension=4)",
        "Gaussian(epsilon=1.0, delta=1e-05, dimension=4)",
        "Laplace(epsilon=2.0, dimension=3)",
    ]
    assert all(verdict.confidence == 0.9 and verdict.counted == 2000 for verdict in verdicts)
    verify_recipe(only(Laplace(8.0, dimension=64)))
    assert calls.mechanism == Laplace(8.0, dimension=16) and calls.draws == 500_000
    verify_recipe(only(RandomisedResponse(1.0, 3)), samples=2000, dimension=2)
    assert calls.mechanism == RandomisedResponse(1.0, 3)
    with pytest.raises(CapeletError, match="dimension is 1"):
        verify_recipe(only(Laplace(1.0)), dimension=1)
    with pytest.raises(CapeletError, match="no noise step"):
        verify_recipe(only(Projection(4)))


def test_word_steps_are_judged_on_a_table_in_the_plane_or_on_own_texts(calls: Calls) -> None:
    step = WordReplacement(3.0, TABLE, size=3)
    verify_recipe(only(step), samples=2000)
    assert calls.mechanism.epsilon == 3.0 and calls.mechanism.size is None
    assert len(calls.mechanism.vocabulary) == 169
    assert calls.pairs is not None
    assert [pair.distance * 3.0 for pair in calls.pairs] == pytest.approx([2.0, 3.0])
    named = replace(step, fingerprint=step.vocabulary.fingerprint)
    verify_recipe(only(named), samples=2000)
    assert calls.mechanism.fingerprint is None
    verify_recipe(only(TruncatedExponential(3.0, 2.0, TABLE)), samples=2000)
    assert calls.mechanism.gamma == 2.0 and len(calls.mechanism.vocabulary) == 169
    # Own texts: the step with its own table, on these.
    full = WordReplacement(3.0, TABLE)
    verify_recipe(only(full), samples=2000, pairs=[("good", "bad")])
    assert calls.mechanism is full and calls.pairs[0].distance == pytest.approx(5.0)
    verify_recipe(only(full), samples=2000, pairs=[("good", "bad")], distance=2.5)
    assert calls.pairs[0].distance == 2.5


class Swapped:
    """A text step with a local guarantee for words."""

    consumes = "texts"
    emits = "texts"
    guarantee = Guarantee(1.0, unit="word")

    def __call__(self, texts: list[str]) -> list[str]:
        return texts


def test_other_text_steps_are_judged_on_common_words_without_a_distance(calls: Calls) -> None:
    step = Swapped()
    (verdict,) = verify_recipe(only(step), samples=2000, distance=3.0)
    assert calls.pairs is not None
    assert [(pair.first, pair.second) for pair in calls.pairs] == list(WORDS)
    assert verdict.subject == "Swapped" and verdict.pair.distance == 1.0
    verify_recipe(only(step), samples=2000, pairs=[("a", "b")], distance=3.0)
    assert calls.pairs[0].distance == 1.0 and calls.mechanism is step
    with pytest.raises(CapeletError, match="needs pairs"):
        verify(step, samples=2000)


# ---- the sentence --------------------------------------------------------------------------------


def verdict(**changes: Any) -> Verdict:
    pair = Pair("e₁ and −e₁", np.array([1.0]), np.array([-1.0]), 2.0)
    plain: dict[str, Any] = {
        "subject": "Laplace(epsilon=1.0)",
        "claimed": 1.0,
        "delta": 0.0,
        "lower_bound": 0.95,
        "confidence": 0.999,
        "tradeoff": "any",
        "pair": pair,
        "event": "the sum ≥ 1",
        "hits": (7000, 2600),
        "counted": 10_000,
        "reach": 7.25,
        "pairs_tried": 12,
        "events_tried": 1234,
    }
    return Verdict(**(plain | changes))


def test_a_claim_that_is_just_kept_stands() -> None:
    assert verdict(lower_bound=1.0).passed and not verdict(lower_bound=1.0 + 1e-9).passed
    assert verdict().sentence == (
        "The claim ε = 1 stands: Laplace(epsilon=1.0) loses at least ε = 0.95 with 99.9 % "
        "confidence, and no more was found. The worst of 1,234 events on 12 pairs was the pair "
        "e₁ and −e₁, the event the sum ≥ 1. This is a test, not a proof: 10,000 outputs can show "
        "at most ε = 7.25."
    )
    failed = verdict(lower_bound=1.5, delta=1e-5, tradeoff="gaussian")
    assert failed.sentence == (
        "The claim ε = 1, δ = 1e-05 is false: Laplace(epsilon=1.0) loses at least ε = 1.5 with "
        "99.9 % confidence, taking its noise to be normal (the pair e₁ and −e₁, the event the sum "
        "≥ 1: 7,000 against 2,600 of 10,000 outputs)."
    )


def test_a_verdict_is_plain_values() -> None:
    plain = verdict().describe()
    assert plain["pair"] == {
        "name": "e₁ and −e₁",
        "first": [1.0],
        "second": [-1.0],
        "distance": 2.0,
    }
    assert plain["hits"] == [7000, 2600] and plain["passed"] is True
    assert plain["sentence"] == verdict().sentence and plain["reach"] == 7.25
    texts = verdict(pair=Pair("a and b", "a", "b")).describe()
    assert texts["pair"]["first"] == "a"


def test_what_is_judged_has_a_name() -> None:
    assert module._name(Laplace(1.0)) == "Laplace(epsilon=1.0)"
    assert module._name(Laplace) == "Laplace"
    assert module._name(math.sin) == "sin"
    assert module._name(Swapped()) == "Swapped"


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(CapeletError, match="PrivateEncoder cannot be called"):
        verify(PrivateEncoder(), 1.0)  # type: ignore[arg-type]
    with pytest.raises(CapeletError, match="tradeoff is 'x'"):
        verify(Laplace(1.0), tradeoff="x")  # type: ignore[arg-type]
    assert silent("x", 1, 2) is None
