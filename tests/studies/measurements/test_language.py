"""Cells of language models: repeated secrets are found, methods compared at one perplexity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from capelet.attacks.extraction import CHANCE_BITS, exposures
from capelet.errors import CapeletError
from capelet.evaluation.extraction import attack_canaries
from capelet.findings import Findings
from capelet.language.model import Scorer
from capelet.language.vocabulary import START
from capelet.question import CanaryCounts, LanguageNetwork, LanguageSchedule
from capelet.studies.cell import compute
from capelet.studies.plan import StudyPlan
from capelet.workflows.language import (
    LanguageSettings,
    train_model,
)
from exposure import exact_exposures

SIZES = {
    "vocabulary": 100, "width": 32, "layers": 1, "length": 8, "epochs": 14, "batch": 40,
    "rate": 5e-3, "canaries": [1, 20], "per_level": 8, "samples": 1100,
}  # fmt: skip


def invented(rows: int = 500) -> tuple[list[str], list[str]]:
    """Texts of 12 authors with a grammar, over 110 words."""
    random = np.random.default_rng(3)
    names = [f"{a}{b}" for a in "bdfglmnprs" for b in ("ako", "eli", "omu", "ita", "une")]
    verbs = [f"{a}{b}" for a in "chkst" for b in ("ades", "ills")]
    things = [f"{a}{b}rth" for a in "bglnpdfmts" for b in "aeiou"]
    texts = [
        f"the {random.choice(names)} {random.choice(verbs)} a {random.choice(things)}"
        for _ in range(rows)
    ]
    return texts, [f"author{row % 12:02d}" for row in range(rows)]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., StudyPlan]:
    """A plan on the invented texts, with other settings where they are given."""
    file = tmp_path_factory.mktemp("texts") / "invented.csv"
    lines = [f"{text},{author}" for text, author in zip(*invented(), strict=True)]
    file.write_text("\n".join(["text,author", *lines]) + "\n")
    corpora = {"invented": {"file": str(file), "text": "text", "author": "author"}}

    def make(**settings: Any) -> StudyPlan:
        axes = {"corpus": ["invented"], "seed": [0]}
        document = {"kind": "language", "corpora": corpora, "axes": axes}
        return StudyPlan.of({**document, "settings": {**SIZES, **settings}})

    return make


def measure(plan: StudyPlan) -> Findings:
    outcome = compute(plan.cells()[0].cell)
    assert outcome.reason is None and outcome.measurement is not None
    return outcome.measurement.findings


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = LanguageSettings(
        LanguageNetwork("lstm", 100, 32, 1, 8),
        LanguageSchedule(14, 40, 5e-3, device="cpu"),
        secrets=CanaryCounts((1, 20), 8),
    )
    return train_model(*invented(), tmp_path_factory.mktemp("model") / "plain", settings)


def test_exposure_rises_with_repetitions_and_the_control_stays_at_chance(model: Any) -> None:
    scorer = Scorer(model.network, "cpu")
    rows = attack_canaries(scorer, model.vocabulary, model.canaries, samples=4000)
    bits = {
        row.parameters["repetitions"]: row.value for row in rows if row.metric == "exposure_bits"
    }
    assert bits[20] > 10 > bits[1]
    assert bits[20] > bits[1] + 3
    assert abs(bits[0] - CHANCE_BITS) < 1.5


def test_sampling_agrees_with_enumeration_on_a_trained_model(model: Any) -> None:
    """On three-word beginnings of the canaries, all of whose space can be ranked."""
    scorer = Scorer(model.network, "cpu")
    number = model.vocabulary.number
    tokens = np.array([[number[word] for word in item.words[:3]] for item in model.canaries])
    words = sorted(set(tokens.ravel().tolist()))[:60]
    inside = np.isin(tokens, words).all(axis=1)
    exact = exact_exposures(scorer, tokens[inside], words, START)
    estimate = exposures(scorer, tokens[inside], words, START, samples=20_000)
    ranked = ~estimate.is_extrapolated
    assert ranked.sum() >= 5
    assert np.mean(np.abs(estimate.bits - exact)[ranked] <= 0.5) >= 0.95
    assert np.isfinite(estimate.bits).all()


def test_methods_are_measured_at_one_perplexity(plan: Callable[..., StudyPlan]) -> None:
    def perplexity(**settings: Any) -> float:
        findings = measure(plan(**settings))
        return findings.value(kind="utility", metric="perplexity")

    best = perplexity()
    target = 1.3 * best
    near = {
        name: perplexity(perplexity=target, method=name, strength=1.0)
        for name in ("none", "triplet")
    }
    # Of test rows, while the stop was chosen on validation rows; without it plain training is best.
    assert all(abs(value / target - 1) < 0.12 for value in near.values()), (best, near)


def test_a_baseline_says_what_a_method_costs_whom(plan: Callable[..., StudyPlan]) -> None:
    findings = measure(plan(epochs=2, baseline=True))
    ratios = findings.select(kind="fairness", metric="perplexity_ratio")
    # The method is none: the same training twice costs nobody anything.
    assert [row.value for row in ratios] == [1.0, 1.0]
    assert {row.subgroup for row in ratios} == {"author size=largest", "author size=smallest"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "dpsgd"}, "needs an epsilon or a noise"),
        ({"method": "none", "epsilon": 8}, "takes neither"),
        ({"method": "tripplet"}, "did you mean 'triplet'"),
        ({"network": "lstn"}, "did you mean 'lstm'"),
        ({"unit": "author"}, "the unit 'author' is of 'dpsgd'"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_trained(
    plan: Callable[..., StudyPlan], settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CapeletError, match=sentence):
        plan(**settings).cells()


@pytest.mark.slow
def test_regularisers_remember_less_at_the_same_perplexity(dataset: Callable[..., Any]) -> None:
    """The card's claim at the size of the plan `privreg/exposure`, one seed, fewer canaries."""
    dataset("blog_authors")
    settings = {
        "per_author": 40, "vocabulary": 1500, "width": 96, "layers": 2, "length": 12, "epochs": 12,
        "batch": 50, "rate": 2e-3, "perplexity": 106, "canaries": [1, 20, 50], "per_level": 8,
        "samples": 1100,
    }  # fmt: skip
    groups = [
        {"method": ["none"]},
        {"method": ["adversarial"], "strength": [3]},
        {"method": ["triplet"], "strength": [15]},
    ]
    axes = {"corpus": ["blog_authors"], "seed": [0], "group": groups}
    document = {"kind": "language", "settings": settings, "axes": axes}
    table: dict[Any, dict[str, float]] = {}
    for item in StudyPlan.of(document).cells():
        outcome = compute(item.cell)
        assert outcome.measurement is not None
        rows = outcome.measurement.findings
        bits = {str(row.subgroup): row.value for row in rows.select(metric="exposure_bits")}
        table[item.axes["method"]] = {
            **bits, "perplexity": rows.value(kind="utility", metric="perplexity"),
        }  # fmt: skip
    plain = table["none"]
    assert plain["repetitions=1"] < plain["repetitions=20"] < plain["repetitions=50"]
    for name in ("adversarial", "triplet"):
        assert abs(table[name]["perplexity"] / plain["perplexity"] - 1) < 0.05, table
        for level in ("repetitions=20", "repetitions=50"):
            assert table[name][level] < plain[level] - 3, table
