"""Whom a private training hides: texts or authors, each decided by itself."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.data.labels import Attribute, attribute
from capelet.data.readers import read
from capelet.data.splits import split
from capelet.defences import Settings
from capelet.defences.settings import TrainingPrivacy
from capelet.errors import CapeletError, DataError
from capelet.evaluation.plan import Plan
from capelet.release import PrivateEncoder
from capelet.workflows.protect import protect
from capelet.workflows.training import part_of
from capelet.workflows.units import check_classes, check_units, population, with_units

ROWS = {"t": [f"text {row}" for row in range(61)], "g": ["f"] * 30 + ["m"] * 30 + ["?"]}
TEXTS, AUTHORS = TrainingPrivacy(8.0), TrainingPrivacy(8.0, unit="author", texts=3)


def column(values: Any) -> np.ndarray:
    return np.array([str(item) for item in values], dtype=object)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """1,200 vectors by 200 authors with one to eleven texts each, and a planted task."""
    random = np.random.default_rng(3)
    author = np.sort(random.integers(0, 200, 1200))
    task = random.integers(0, 2, 1200)
    vectors = random.normal(size=(1200, 8)).astype(np.float32)
    vectors[:, 0] += 4 * task
    return Corpus(
        "planted",
        vectors=vectors,
        label_name="task",
        label=column(task),
        author=column(author),
    )


def parts_of(corpus: Corpus) -> dict[bytes, str]:
    """Which part each row stands in, by its content."""
    parts = split(corpus, "keyed", 0)
    assert corpus.vectors is not None
    return {
        corpus.vectors[row].tobytes(): name
        for name in ("defender", "attacker", "victims")
        for row in getattr(parts, name)
    }


@pytest.mark.parametrize("known", [True, False])
def test_replacing_one_row_moves_no_other_to_another_part(corpus: Corpus, known: bool) -> None:
    whole = corpus if known else replace(corpus, author=None)
    before = parts_of(whole)
    assert whole.vectors is not None and whole.label is not None
    vectors, label = whole.vectors.copy(), whole.label.copy()
    vectors[5], label[5] = 9.0, "1" if label[5] == "0" else "0"
    after = parts_of(replace(whole, vectors=vectors, label=label))
    same = set(before) & set(after)
    assert len(same) == 1199 and all(before[row] == after[row] for row in same)
    shares = [list(before.values()).count(name) / 1200 for name in ("defender", "attacker")]
    assert shares[0] == pytest.approx(0.5, abs=0.08) and shares[1] == pytest.approx(0.3, abs=0.08)
    # The control: in a balanced split one changed label reshuffles the others.
    balance = [Attribute("task", (label == "1").astype(np.intp), ("0", "1"))]
    old = [Attribute("task", (whole.label == "1").astype(np.intp), ("0", "1"))]
    bare = replace(whole, author=None)
    one, two = split(bare, "balanced", 0, old), split(bare, "balanced", 0, balance)
    assert len(set(one.defender) ^ set(two.defender)) > 20


def test_an_author_is_one_unit_of_bounded_texts(corpus: Corpus) -> None:
    plan = Plan.of(corpus, 1, "keyed")
    parts = plan.splits[0]
    part = part_of(plan, parts, np.asarray(corpus.vectors), ())
    assert with_units(part, plan, parts, TEXTS).units is None
    mine = with_units(part, plan, parts, AUTHORS)
    assert mine.units is not None and mine.units.shape[1] == 3
    assert corpus.author is not None
    names = corpus.author[parts.defender]
    for row in mine.units:
        present = row[row >= 0]
        (name,) = set(names[present])
        assert len(present) == min(3, (names == name).sum())
    assert len(mine.units) == len(set(names))
    assert population(corpus, AUTHORS) == mine.population == len(set(corpus.author))
    assert population(corpus, TEXTS) == 1200


def test_a_person_in_two_spellings_is_one_unit(corpus: Corpus) -> None:
    """Blanks around a name and its Unicode form: else the person would count, and be hidden, twice.

    The control: capitals may mean another person, and stay apart.
    """
    assert corpus.author is not None
    names = {"Zo\u00eb": ["Zo\u00eb", " Zoe\u0308 "], "Ann": ["Ann", "ann"]}
    for spellings, count in zip(names.values(), (1, 2), strict=True):
        author = column(spellings[row % 2] for row in range(1200))
        whole = replace(corpus, author=author)
        assert population(whole, AUTHORS) == count
        plan = Plan.of(corpus, 1, "keyed")
        parts, plan = plan.splits[0], replace(plan, corpus=whole)
        part = part_of(plan, parts, np.asarray(corpus.vectors), ())
        units = with_units(part, plan, parts, AUTHORS).units
        assert units is not None and units.shape == (count, 3)


def test_a_private_encoder_for_authors(corpus: Corpus, tmp_path: Any) -> None:
    settings = Settings(epsilon=8.0, training=AUTHORS)
    result = protect(corpus, None, "bottleneck", settings, seeds=1, attackers=["logistic"])
    promise = result.encoder.guarantee.training
    assert promise is not None and promise.unit == "author" and promise.epsilon <= 8
    about = result.after.provenance["protect"]
    assert about["private_towards_training_texts"] is True
    assert about["trained_on"] is None and about["training_seconds"] is None
    assert result.after.provenance["split"]["kind"] == "keyed"
    folder = result.save(tmp_path / "out")
    assert "for each author under replace" in (folder / "private.json").read_text()


def shipped_beside_the_weights(corpus: Corpus, settings: Settings, folder: Path) -> dict[str, str]:
    """All that the manifest names, by file, without weights, their hash and the random id."""
    result = protect(corpus, None, "bottleneck", settings, seeds=1, attackers=["logistic"])
    result.save(folder)
    names = [*json.loads((folder / "manifest.json").read_text())["files"], "manifest.json"]
    contents = {}
    for name in names:
        content = (folder / name).read_bytes()
        if name.endswith(".safetensors"):
            # Eight bytes say how long the header is; the weights follow it.
            content = content[8 : 8 + int.from_bytes(content[:8], "little")]
        contents[name] = re.sub(r"[0-9a-f]{32,}", "…", content.decode())
    return contents


@pytest.mark.parametrize("privacy", [TEXTS, AUTHORS], ids=["text", "author"])
def test_one_row_changes_nothing_that_ships_but_the_noisy_weights(
    corpus: Corpus, privacy: TrainingPrivacy, tmp_path: Path
) -> None:
    assert corpus.vectors is not None and corpus.label is not None and corpus.author is not None
    vectors, label, author = corpus.vectors.copy(), corpus.label.copy(), corpus.author.copy()
    theirs = author == author[0]
    vectors[theirs], label[theirs], author[theirs] = 9.0, "1", "somebody else"
    neighbour = replace(corpus, vectors=vectors, label=label, author=author)
    settings = Settings(epsilon=8.0, training=privacy)
    first = shipped_beside_the_weights(corpus, settings, tmp_path / "one")
    second = shipped_beside_the_weights(neighbour, settings, tmp_path / "two")
    assert first == second and set(first) == {
        "manifest.json", "map.safetensors", "head.safetensors", "head.json", "private.json",
        "recipe.toml",
    }  # fmt: skip
    # The control: without the promise, how many rows trained is among what ships.
    plain = shipped_beside_the_weights(corpus, Settings(epsilon=8.0), tmp_path / "plain")
    assert '"trained_on": null' in first["private.json"]
    assert '"trained_on": null' not in plain["private.json"]


def test_what_ships_works_without_the_figures_beside_it(corpus: Corpus, tmp_path: Path) -> None:
    settings = Settings(epsilon=8.0, training=TEXTS)
    result = protect(corpus, None, "bottleneck", settings, seeds=1, attackers=["logistic"])
    whole, shipped = result.save(tmp_path / "whole"), tmp_path / "shipped"
    shipped.mkdir()
    for name in [*json.loads((whole / "manifest.json").read_text())["files"], "manifest.json"]:
        (shipped / name).write_bytes((whole / name).read_bytes())
    private = PrivateEncoder.load(shipped)
    assert private.guarantee == result.encoder.guarantee
    assert corpus.vectors is not None
    assert private.release(corpus.vectors[:5]).vectors.shape == (5, 2)


@pytest.mark.parametrize(
    ("changes", "privacy", "kind", "derived", "sentence"),
    [
        ({"author": None}, AUTHORS, "auto", False, "needs to know the authors"),
        ({}, TEXTS, "balanced", False, "'balanced' does not: leave split= out"),
        ({}, TEXTS, "auto", True, "leave derive= out"),
        ({}, TrainingPrivacy(8.0, 0.01), "auto", False, "δ of the training is 0.01"),
    ],
)
def test_what_cannot_be_private_is_refused_before_encoding(
    corpus: Corpus, changes: Any, privacy: Any, kind: str, derived: bool, sentence: str
) -> None:
    check_units(corpus, TEXTS, "keyed", False)  # the control
    with pytest.raises(CapeletError, match=sentence):
        check_units(replace(corpus, **changes), privacy, kind, derived)


def test_rows_without_an_author_are_refused(corpus: Corpus) -> None:
    assert corpus.author is not None
    author = corpus.author.copy()
    author[7] = None
    with pytest.raises(DataError, match="1 rows have none"):
        check_units(replace(corpus, author=author), AUTHORS, "auto", False)


def test_classes_that_all_rows_decide_are_refused(corpus: Corpus) -> None:
    numbers = np.array([row // 2 for row in range(1200)], dtype=object)
    whole = replace(corpus, label=numbers)
    settings = Settings(epsilon=8.0, training=TEXTS)
    with pytest.raises(DataError, match="give bins= for a number"):
        protect(whole, None, "bottleneck", settings, seeds=1)
    cut = Plan.of(whole, 1, bins={"task": [400.0]}).label
    assert cut is not None
    check_classes([cut])  # the control: edges that the user gave
    with pytest.raises(DataError, match="counts as training"):
        protect(corpus, None, "bottleneck", settings, seeds=1, min_utility=0.5)


def test_merging_rare_classes_looks_at_all_rows() -> None:
    privacy = TrainingPrivacy(8.0, None, "text")
    merged = read(ROWS, text="t", private="g", merge_rare=20)
    with pytest.raises(DataError, match="leave merge_rare= out"):
        check_units(merged, privacy, "auto", False)
    check_units(read(ROWS, text="t", private="g"), privacy, "auto", False)


def test_rare_classes_that_were_left_out_count_as_merged() -> None:
    values = read({"t": ROWS["t"], "g": [*ROWS["g"][:-2], "?", "!"]}, text="t", private="g")
    with pytest.raises(DataError, match="follow from all rows"):
        check_classes([attribute("g", values.private["g"])])
    check_classes([attribute("g", values.private["g"][:58])])
