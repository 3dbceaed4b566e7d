"""What models remember: repeated secrets are found, and the comparison is honest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from studies.language_models import (
    BESIDE,
    Comparison,
    Prepared,
    Snapshot,
    Trajectory,
    findings_of,
    matched,
    summary,
)

from capelet.attacks.extraction import CHANCE_BITS, exact_exposures, exposures
from capelet.data.corpus import Corpus
from capelet.errors import DataError
from capelet.language.model import Scorer
from capelet.language.vocabulary import START
from capelet.workflows.language import attack_canaries
from capelet.workflows.language.attack import canary_tokens

SMALL = Comparison(
    vocabulary=100,
    width=32,
    layers=1,
    length=8,
    epochs=14,
    batch=40,
    rate=5e-3,
    repetitions=(1, 20),
    per_level=8,
    samples=4000,
    snapshots_per_epoch=1,
    device="cpu",
    strengths={"adversarial": (1.0,), "triplet": (1.0,)},
    noise_multiplier=1.0,
    private_epochs=2,
    private_batch=100,
)


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
def trained() -> tuple[Prepared, Scorer]:
    data = SMALL.prepare(*invented(), seed=0)
    network = SMALL.network(data)
    network.load_state_dict(dict(SMALL.train(data, "none").snapshots[-1].state))
    return data, Scorer(network, "cpu")


def test_exposure_rises_with_repetitions_and_the_control_stays_at_chance(
    trained: tuple[Prepared, Scorer],
) -> None:
    data, scorer = trained
    rows = attack_canaries(scorer, data.vocabulary, data.canaries, samples=4000).findings
    bits = {
        row.parameters["repetitions"]: row.value for row in rows if row.metric == "exposure_bits"
    }
    assert bits[20] > 10 > bits[1]
    assert bits[20] > bits[1] + 3
    assert abs(bits[0] - CHANCE_BITS) < 1.5


def test_sampling_agrees_with_enumeration_on_a_trained_model(
    trained: tuple[Prepared, Scorer],
) -> None:
    """On three-word beginnings of the canaries, all of whose space can be ranked."""
    data, scorer = trained
    tokens = canary_tokens(data.canaries, data.vocabulary)[:, :3]
    used = sorted(set(tokens.ravel().tolist()))
    words = used[:60]
    inside = np.isin(tokens, words).all(axis=1)
    exact = exact_exposures(scorer, tokens[inside], words, START)
    found = exposures(scorer, tokens[inside], words, START, samples=20_000)
    ranked = ~found.is_extrapolated
    assert ranked.sum() >= 5
    assert np.mean(np.abs(found.bits - exact)[ranked] <= 0.5) >= 0.95
    assert np.isfinite(found.bits).all()


def test_a_curve_ends_at_the_best_and_keeps_its_distance() -> None:
    found = (400.0, 150.0, 149.0, 120.0, 101.0, 100.0, 130.0, 99.9)
    shots = tuple(Snapshot(step, value, {}) for step, value in enumerate(found))
    curve = Trajectory("none", 0.0, shots[:7], 1.0).curve(0.03, 2.0)
    assert [shot.perplexity for shot in curve] == [149.0, 120.0, 100.0]
    assert Trajectory("none", 0.0, shots, 1.0).curve(0.03, 2.0)[-1].perplexity == 99.9


def made(method: str, strength: float, perplexity: float, seed: int = 0) -> dict[str, Any]:
    return {
        "method": method,
        "strength": strength,
        "seed": seed,
        "validation_perplexity": perplexity,
    }


def test_all_methods_are_read_at_one_perplexity() -> None:
    rows = [made("none", 0.0, value) for value in (300, 150, 121, 103, 100)]
    rows += [made("triplet", 1.0, value) for value in (120, 101, 99)]
    rows += [made("triplet", 3.0, value) for value in (130, 102, 101.5)]
    rows += [made("triplet", 9.0, value) for value in (150, 119)]
    rows += [made("dpsgd", 1.0, 290)]
    best = {line["method"]: line for line in matched(rows)}
    assert best["none"]["validation_perplexity"] == 100
    # The strongest that comes near, not the one whose perplexity is lowest.
    assert best["triplet"]["strength"] == 3.0 and best["triplet"]["matched"]
    assert not best["dpsgd"]["matched"] and best[BESIDE]["validation_perplexity"] == 300
    above = {line["method"]: line for line in matched(rows, 1.2)}
    assert above["none"]["validation_perplexity"] == 121
    assert above["triplet"]["strength"] == 9.0
    far = matched([*rows[:5], *rows[-3:-1]])
    assert far[-1]["validation_perplexity"] == 119 and not far[-1]["matched"]
    with pytest.raises(DataError, match="run the method 'none' too"):
        matched(rows[5:])


def test_strengths_are_chosen_on_the_first_seed() -> None:
    rows = [made("none", 0.0, 100, seed) for seed in (0, 1)]
    rows += [made("adversarial", 2.0, 101, 0), made("adversarial", 4.0, 110, 0)]
    rows += [made("adversarial", 2.0, 104, 1), made("adversarial", 4.0, 101, 1)]
    second = matched(rows)[-1]
    assert second["seed"] == 1 and second["strength"] == 2.0 and not second["matched"]


def test_a_comparison_runs_resumes_and_becomes_findings() -> None:
    from dataclasses import replace

    tiny = replace(SMALL, epochs=2, samples=1100)
    texts, authors = invented(240)
    kept: dict[str, Any] = {}

    def keep(name: str, seed: int, rows: list[dict[str, Any]]) -> None:
        kept[f"{name}/{seed}"] = rows

    rows = tiny.run(texts, authors, [0], keep=keep)
    again = tiny.run(texts, authors, [0], done=lambda name, seed: kept.get(f"{name}/{seed}"))
    assert rows == again
    chosen = matched(rows)
    table = summary(chosen)
    methods = {line["method"] for line in table}
    assert {"none", "adversarial", "triplet", "dpsgd"} <= methods
    plain = next(row for row in chosen if row["method"] == "none")
    assert plain["matched"] and plain["target"] == plain["validation_perplexity"]
    assert len([row for row in rows if row["method"] == "none"]) > 1  # a curve, not a point
    found = findings_of(table, {})
    assert found.artefacts["training_time"]["none"] == 1.0
    bits = found.select(kind="extraction-null", metric="exposure_bits")
    assert bits and all(row.parameters["repetitions"] == 0 for row in bits)


def blogs(dataset: Callable[..., Corpus]) -> tuple[list[str], list[str]]:
    corpus = dataset("blog_authors")
    assert corpus.texts is not None and corpus.author is not None
    people = sorted(set(corpus.author))[:25]
    rows = [i for i in range(len(corpus)) if corpus.author[i] in people]
    rows = np.random.default_rng(0).permutation(rows)[:3000].tolist()
    return [str(corpus.texts[i]) for i in rows], [str(corpus.author[i]) for i in rows]


@pytest.mark.slow
def test_regularisers_remember_less_at_the_same_perplexity(dataset: Callable[..., Corpus]) -> None:
    """The card's claim at a small size, on real texts, 25 authors and one seed."""
    study = Comparison(
        vocabulary=1500,
        width=96,
        length=12,
        epochs=8,
        batch=50,
        rate=2e-3,
        repetitions=(1, 5, 20, 50),
        per_level=12,
        samples=2000,
        snapshots_per_epoch=8,
        spacing=0.005,
        reach=1.15,
        device="cpu",
        strengths={"adversarial": (3.0,), "triplet": (15.0,)},
        methods=("none", "adversarial", "triplet"),
    )
    rows = study.run(*blogs(dataset), [0])
    table = {line["method"]: line for line in summary(matched(rows, 1.05))}
    plain = table["none"]
    bits = [plain["exposure"][level][0] for level in (0, 1, 5, 20, 50)]
    assert abs(bits[0] - CHANCE_BITS) < 1.5 and bits == sorted(bits)
    assert plain["exposure"][20][1] > 10
    for name in ("adversarial", "triplet"):
        assert abs(table[name]["test_perplexity"] / plain["test_perplexity"] - 1) < 0.03, name
        for level in (20, 50):
            assert table[name]["exposure"][level][2] < plain["exposure"][level][1], (name, level)
