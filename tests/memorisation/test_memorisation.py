"""What models remember: repeated secrets are found, and the comparison is honest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from capelet.attacks.extraction import CHANCE_BITS, exact_exposures, exposures
from capelet.corpus import Corpus
from capelet.language.model import Scorer
from capelet.language.vocabulary import START
from capelet.memorisation import Comparison, attack_canaries, findings_of, summary
from capelet.memorisation.attack import canary_tokens
from capelet.memorisation.comparison import Prepared, Snapshot, Trajectory, strongest_match

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
    ranked = ~found.extrapolated
    assert ranked.sum() >= 5
    assert np.mean(np.abs(found.bits - exact)[ranked] <= 0.5) >= 0.95
    assert np.isfinite(found.bits).all()


def test_the_strongest_method_that_matches_is_taken() -> None:
    def made(strength: float, *perplexities: float) -> Trajectory:
        shots = tuple(Snapshot(i, value, {}) for i, value in enumerate(perplexities))
        return Trajectory("triplet", strength, shots, 1.0)

    tried = [made(1.0, 120, 101, 99), made(3.0, 130, 102, 101.5), made(9.0, 150, 120)]
    pick, snapshot = strongest_match(tried, 100.0)
    assert pick.strength == 3.0 and snapshot.perplexity == 101.5
    pick, snapshot = strongest_match(tried[2:], 100.0)
    assert pick.strength == 9.0 and snapshot.perplexity == 120  # nearest, and marked as unmatched


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
    table = summary(rows)
    methods = {line["method"] for line in table}
    assert {"none", "adversarial", "triplet", "dpsgd", "none, stopped at 2 ×"} <= methods
    plain = next(row for row in rows if row["method"] == "none")
    assert plain["matched"] and plain["target"] == plain["validation_perplexity"]
    found = findings_of(table, {})
    assert found.artefacts["training_time"]["none"] == 1.0
    bits = found.select(kind="extraction-null", metric="exposure_bits")
    assert bits and all(row.parameters["repetitions"] == 0 for row in bits)


@pytest.mark.slow
def test_regularisers_remember_less_at_the_same_perplexity(dataset: Callable[..., Corpus]) -> None:
    """The must-show at a small size, on real texts: blog posts of 25 authors, one seed."""
    corpus = dataset("blog_authors")
    assert corpus.texts is not None and corpus.author is not None
    people = sorted(set(corpus.author))[:25]
    rows = [i for i in range(len(corpus)) if corpus.author[i] in people]
    rows = np.random.default_rng(0).permutation(rows)[:3000].tolist()
    texts = [str(corpus.texts[i]) for i in rows]
    authors = [str(corpus.author[i]) for i in rows]
    study = Comparison(
        vocabulary=1500,
        width=96,
        length=12,
        epochs=9,
        batch=50,
        rate=2e-3,
        repetitions=(1, 5, 20, 50),
        per_level=12,
        samples=4000,
        snapshots_per_epoch=2,
        device="cpu",
        strengths={"adversarial": (2.0,), "triplet": (4.0,)},
        methods=("none", "adversarial", "triplet"),
    )
    table = {line["method"]: line for line in summary(study.run(texts, authors, [0]))}
    plain = table["none"]
    assert plain["exposure"][20][0] > 10 and plain["exposure"][50][0] > plain["exposure"][5][0]
    for name in ("adversarial", "triplet"):
        assert abs(table[name]["test_perplexity"] / plain["test_perplexity"] - 1) < 0.05
        assert table[name]["exposure"][20][0] < plain["exposure"][20][0]
        assert table[name]["exposure"][50][0] < plain["exposure"][50][0]
