"""One builder of provenance: every run says which data, which model, when, and how long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.evaluation.plan import Plan
from capelet.evaluation.provenance import (
    Clock,
    attack_provenance,
    audit_provenance,
    describe_cache,
    provenance,
)
from capelet.findings import Finding, Findings
from capelet.privacy.origins import keyed_name
from capelet.release import PrivateEncoder

SECTIONS = [
    "capelet", "created", "data", "attributes", "label", "encoder", "cache", "split", "guarantee",
    "versions", "warnings", "seconds",
]  # fmt: skip


@pytest.fixture
def corpus() -> Corpus:
    rows = np.arange(120)
    return Corpus(
        "planted",
        texts=np.array([f"text {row}" for row in rows], dtype=object),
        vectors=np.stack([rows, -rows], axis=1).astype(np.float32),
        private={"side": np.array(["a", "b"] * 60, dtype=object)},
        author=np.array([f"p{row // 4}" for row in rows], dtype=object),
    )


def test_an_audit_says_everything(corpus: Corpus) -> None:
    plan, private, clock = Plan.of(corpus, seeds=2), PrivateEncoder(), Clock()
    with clock("attacks"):
        release = private.release(corpus.vectors)
    about = audit_provenance(plan, private, release, clock)
    # An audit knows how much leaves of a text, and whose noise it was; a single attack does not.
    expected = [*SECTIONS]
    expected.insert(expected.index("cache"), "release")
    expected.insert(expected.index("versions"), "noise")
    assert list(about) == expected
    assert about["release"] == {"dimension": 2}
    assert about["data"]["digest"] == keyed_name(corpus.digest()) and about["data"]["authors"] == 30
    assert corpus.digest() not in str(about)  # nobody can confirm a guess of the last text
    assert about["data"]["duplicates"]["identical"] == 0 and about["data"]["truncated"] == 0
    assert about["attributes"]["side"]["classes"] == {"a": 60, "b": 60}
    assert about["split"]["seeds"] == [0, 1] and sum(about["split"]["sizes"].values()) == 120
    assert about["encoder"] == {"dimension": 2, "name": "ready vectors"}
    assert set(about["seconds"]) == {"attacks", "total"}


def test_single_attacks_say_the_same_of_everything_else(corpus: Corpus, tmp_path: Path) -> None:
    inversion = Finding("inversion", "words", "f1", 0.5, n=40, parameters={"auxiliary": 80})
    findings = Findings((inversion,))
    about = attack_provenance(
        "inversion", corpus, PrivateEncoder(), findings, Clock(), seed=3, pieces=200
    )
    assert list(about) == [*SECTIONS, "attacks"] and about["data"]["pieces"] == 200
    assert about["split"] == {
        "kind": "by_author", "sizes": {"auxiliary": 80, "victims": 40}, "seeds": [3],
    }  # fmt: skip
    table = tmp_path / "words.txt"
    table.write_text("a 1\n", encoding="utf-8")
    rows = (replace(inversion, kind="membership", metric="advantage", target="windows"),)
    for data, kind in ((corpus, "by_author"), (replace(corpus, author=None), "by_text")):
        about = attack_provenance(
            "membership", data, table, Findings(rows), Clock(), seed=0, members=60
        )
        assert list(about) == [*SECTIONS, "attacks"] and about["split"]["kind"] == kind
        assert about["data"]["members"] == 60 and about["guarantee"]["status"] == "none"
        assert about["encoder"]["name"] == "word vectors words.txt"


def test_a_run_without_vectors_uses_the_same_builder() -> None:
    about = provenance({"digest": "d"}, guarantee={"sentence": "none"}, canaries=3)
    assert list(about) == ["capelet", "created", "data", "guarantee", "canaries"]


def test_the_cache_does_not_name_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cached:
        folder = Path("/people/ann/cache/vectors")

    monkeypatch.setenv("HOME", "/people/ann")
    assert describe_cache(Cached()) == "~/cache/vectors"  # type: ignore[arg-type]
    # Everything lies in the root, which is the home of a user without one.
    monkeypatch.setenv("HOME", "/")
    Cached.folder = Path("/data/vectors")
    assert describe_cache(Cached()) == "/data/vectors"  # type: ignore[arg-type]
    assert describe_cache(None) is None
