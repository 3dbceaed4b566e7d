"""A writer with a style is found among many; a writer without one is not."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.attacks.authorship import Shots, TextCnn
from capelet.evaluation.authorship import PROBES, Authorship
from capelet.findings import Findings
from capelet.privacy.guarantees import Guarantee, ceiling_top
from written import AUTHORS, WRITERS, texts, vectors

SMALL = Authorship(shots=10, writers=WRITERS, tests=15, seeds=2)


def test_a_perceptron_reads_what_no_linear_probe_can() -> None:
    """Each writer is a mean of 0 with a spread of its own: only the size of vectors tells."""
    random = np.random.default_rng(2)
    codes = np.array([int(name[1:]) % 2 for name in AUTHORS])
    two = [f"w{code}" for code in codes]
    rings = random.normal(size=(len(codes), 24))
    rings *= np.where(codes, 1.0, 3.0)[:, None]
    scores = {}
    for probe in PROBES:
        attack = Authorship(shots=100, writers=2, tests=60, seeds=1, probe=probe)
        rows = Findings(tuple(attack.measure(rings, two)))
        scores[probe.name] = rows.value(kind="authorship", metric="top1")
        assert rows.value(kind="authorship-null", metric="top1") < 0.7
    assert scores["mlp"] > 0.8 > 0.65 > scores["linear"]


def test_a_style_is_found_and_the_null_is_chance() -> None:
    found = Findings(tuple(SMALL.measure(vectors(1.0), AUTHORS)))
    top1 = found.select(kind="authorship", metric="top1")[0]
    top5 = found.select(kind="authorship", metric="top5")[0]
    assert top1.value > 0.7 and top5.value > top1.value
    assert top1.chance == 1 / WRITERS and top5.chance == 5 / WRITERS
    assert top1.low is not None and top1.high is not None and top1.low < top1.value < top1.high
    for metric, chance in (("top1", 0.05), ("top5", 0.25)):  # a writer's texts err together
        null = found.select(kind="authorship-null", metric=metric)[0]
        assert null.value == pytest.approx(chance, abs=0.15)
        assert null.low is not None and null.low <= chance


class Busiest:
    """Names the same writer for every text."""

    name = "busiest"

    def scores(self, vectors: np.ndarray, shots: Shots, codes: np.ndarray) -> np.ndarray:
        scores = np.zeros((len(shots.test), shots.writers))
        scores[:, np.bincount(shots.codes[shots.test]).argmax()] = 1.0
        return scores


def test_naming_the_busiest_writer_is_worth_no_more_than_chance() -> None:
    """40 of 49 texts are by one of ten writers: 0.816 of the texts, and one writer of ten."""
    authors = ["busy"] * 43 + [f"w{row}" for row in range(9) for _ in range(4)]
    attack = Authorship(shots=3, seeds=2, probe=Busiest())
    shots = Shots.of(authors, shots=3)
    assert (shots.codes[shots.test] == 0).mean() == pytest.approx(0.816, abs=1e-3)
    rows = attack.measure(np.zeros((len(authors), 2)), authors)
    row = next(row for row in rows if (row.kind, row.metric) == ("authorship", "top1"))
    ceiling = ceiling_top(1, 10, Guarantee(0.1))
    assert ceiling == pytest.approx(0.109, abs=1e-3)
    assert row.value == pytest.approx(0.1) and row.value < ceiling
    assert row.chance == row.majority == 0.1


def test_nothing_is_found_without_a_style() -> None:
    found = Findings(tuple(SMALL.measure(vectors(0.0), AUTHORS)))
    assert found.value(kind="authorship", metric="top5") == pytest.approx(0.25, abs=0.06)


def test_the_baseline_stands_beside_as_a_reference() -> None:
    one = Authorship(shots=5, writers=5, tests=5, seeds=1, baseline=TextCnn(epochs=2, width=8))
    found = Findings(tuple(one.measure(vectors(1.0), AUTHORS, texts(0.5))))
    assert len(found.select(kind="authorship-reference", attacker="text-cnn")) == 2
    alone = Findings(tuple(one.measure(vectors(1.0), AUTHORS)))
    assert not alone.select(kind="authorship-reference")


@pytest.mark.slow
def test_blog_writers(dataset: object) -> None:
    """Must show: top-5 from vectors ≥ 1.3 × TextCNN's at 10 texts of each of 100 writers."""
    from capelet.data.text import words_of
    from capelet.encoders import load, with_cache

    corpus = dataset("blog_authors")  # type: ignore[operator]
    shots = Shots.of(corpus.author, shots=10, writers=100, tests=40)
    rows = np.concatenate([shots.training, shots.test])
    written = corpus.texts[rows].tolist()
    made = with_cache(load("minilm")).encode(written)
    attack = Authorship(seeds=1, tests=39)
    found = Findings(
        tuple(attack.measure(made, corpus.author[rows], [words_of(text) for text in written]))
    )
    reached = found.value(kind="authorship", metric="top5")
    assert reached >= 1.3 * found.value(kind="authorship-reference", metric="top5")
