"""Other kinds of attack in an audit: what is asked for, what the data allow, what is found."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from capelet.attacks.authorship import TextCnn
from capelet.data.corpus import Corpus
from capelet.errors import CapeletError, DataError, spell
from capelet.evaluation.attacks import (
    ATTACKS,
    Evidence,
    Measurement,
    ReadyVectors,
    Target,
    TextAttacks,
    choose_attacks,
    shots_for,
    with_texts,
)
from capelet.evaluation.authorship import Authorship
from capelet.evaluation.decision import decide
from capelet.evaluation.inversion import Inversion
from capelet.evaluation.provenance import Clock
from capelet.findings import Finding
from capelet.mechanisms import Laplace
from capelet.question import Attacks, Protocol
from capelet.release import PrivateEncoder
from capelet.workflows import audit as workflow
from capelet.workflows.audit import audit

WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]
SMALL = {"multi-label": {"epochs": 25, "width": 128}, "multi-set": {"epochs": 4, "width": 64}}


def column(values: Any) -> np.ndarray:
    return np.array(list(values), dtype=object)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """900 texts by 30 writers, each fond of six words; a vector is the mean of its words'."""
    random = np.random.default_rng(3)
    share = 1 / np.arange(1, len(WORDS) + 1)
    table = random.normal(size=(len(WORDS), 64)).astype(np.float32)
    texts, vectors, authors = [], [], []
    for row in range(900):
        who = row % 30
        fond = share.copy()
        fond[10 + 4 * who : 16 + 4 * who] *= 12
        drawn = random.choice(len(WORDS), 8, replace=False, p=fond / fond.sum())
        texts.append(" ".join(WORDS[word] for word in drawn))
        vectors.append(table[drawn].mean(axis=0))
        authors.append(f"p{who}")
    return Corpus("bags", texts=column(texts), vectors=np.stack(vectors), author=column(authors))


def attacks(corpus: Corpus, private: PrivateEncoder, *kinds: str) -> Any:
    fast = Inversion(attacks=["multi-label"], options=SMALL)
    plan = decide(Protocol(seeds=2), Attacks(kinds), corpus, private)
    release = private.release(corpus.vectors)
    writers = Authorship(baseline=TextCnn(epochs=1, width=8, filters=8))
    return TextAttacks(fast, writers).measure(plan, private, release, Clock())


def test_words_and_writers_are_found_in_plain_vectors(corpus: Corpus) -> None:
    rows, artefacts = attacks(corpus, PrivateEncoder(), "inversion", "authorship")
    (words,) = [r for r in rows if (r.kind, r.metric) == ("inversion", "f1")]
    assert words.low > words.majority + 0.1
    assert artefacts["inversion_examples"]["redacted"]
    (writer,) = [r for r in rows if (r.kind, r.metric) == ("authorship", "top5")]
    assert writer.low > 1.5 * writer.chance and writer.parameters["shots"] == 10
    assert {row.recipe_hash for row in rows} == {rows[0].recipe_hash}


def test_nothing_is_found_behind_enough_noise(corpus: Corpus) -> None:
    """The control, and the same attackers trained on the noise that they meet."""
    private = PrivateEncoder(Laplace(epsilon=0.5))
    assert private.draws and not PrivateEncoder().draws
    rows, _ = attacks(corpus, private, "inversion", "authorship")
    (words,) = [r for r in rows if (r.kind, r.metric) == ("inversion", "f1")]
    assert words.parameters["draws"] == 4
    assert words.value < words.majority + 0.05
    (writer,) = [r for r in rows if (r.kind, r.metric) == ("authorship", "top5")]
    assert writer.low < writer.chance + 0.02
    assert writer.ceiling is not None and writer.chance < writer.ceiling < 1
    texts = writer.parameters["texts_per_person"]
    permitted = writer.parameters["person_ceiling"]
    assert texts["median"] > 10 and writer.ceiling < permitted["median"] <= permitted["most"]


def test_no_victim_is_among_the_attackers_texts(corpus: Corpus) -> None:
    """Parts are the audit's own, and a text that both sides said is taken from the attacker."""
    plan = decide(Protocol(seeds=1), Attacks(["inversion"]), corpus, PrivateEncoder())
    parts = plan.splits[0]
    people = [set(corpus.author[rows]) for rows in (parts.attacker, parts.victims, parts.defender)]
    assert not people[0] & people[1] and not people[1] & people[2]
    seen: dict[str, Any] = {}

    class Spy(Inversion):
        def measure(self, texts: Any, private: Any, **options: Any) -> Any:
            seen.update(options, victims=texts)
            raise StopIteration

    twice = corpus.texts.copy()
    twice[parts.attacker[0]] = twice[parts.victims[0]]
    both = replace(corpus, texts=twice)
    others = TextAttacks(inversion=Spy())
    release = PrivateEncoder().release(corpus.vectors)
    with pytest.raises(StopIteration):
        others.measure(replace(plan, corpus=both), PrivateEncoder(), release, Clock())
    assert not set(seen["auxiliary"]) & set(seen["victims"])
    assert len(seen["auxiliary"]) == len(parts.attacker) - 1


def test_all_takes_what_the_data_allow(corpus: Corpus, planted: Corpus) -> None:
    asked = choose_attacks(Attacks(["all"]), corpus)
    assert asked.kinds == ("inversion", "authorship")
    assert any("private=" in spell(reason, "python") for reason in asked.left_out)
    assert any("--member" in spell(reason, "terminal") for reason in asked.left_out)
    assert choose_attacks(Attacks(["all"]), planted).kinds == ("attributes",)
    everything = replace(corpus, label=corpus.author)
    assert choose_attacks(Attacks(["all"], [True] * len(corpus)), everything).kinds == tuple(
        ATTACKS
    )


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("authorship", "name the column"),
        ("inversion", "needs them"),
        ("membership", "which texts the model was trained on"),
        ("all", None),
        ("inversoin", "did you mean 'inversion'"),
    ],
)
def test_what_is_asked_by_name_and_lacks_data_is_refused(
    kind: str, sentence: str | None, planted: Corpus
) -> None:
    if sentence is None:
        assert choose_attacks(Attacks([kind]), planted).kinds
        return
    with pytest.raises(CapeletError, match=sentence):
        choose_attacks(Attacks([kind]), planted)


def test_one_writer_and_empty_data_are_refused(corpus: Corpus) -> None:
    alone = replace(corpus, author=column(["p0"] * len(corpus)))
    with pytest.raises(DataError, match="by one writer"):
        choose_attacks(Attacks(["authorship"]), alone)
    bare = replace(corpus, texts=None, author=None)
    with pytest.raises(DataError, match="no kind of attack fits"):
        choose_attacks(Attacks(["all"]), bare)
    with pytest.raises(DataError, match="nothing to measure"):
        audit(corpus, attacks=["attributes"])


def test_fewer_texts_are_known_where_writers_wrote_few() -> None:
    assert shots_for(["a"] * 30 + ["b"] * 30) == 3
    assert shots_for([name for name in "abcdefghijk" for _ in range(12)]) == 10


def test_ready_vectors_answer_only_for_their_own_texts(corpus: Corpus) -> None:
    ready = ReadyVectors(corpus)
    assert np.array_equal(ready.encode(corpus.texts[:5].tolist()), corpus.vectors[:5])
    assert ready.dimension == 64 and len(ready.fingerprint) == 64
    with pytest.raises(DataError, match="no vector of their own"):
        ready.encode(["something else"])
    assert with_texts(corpus, PrivateEncoder()).consumes == "texts"


def test_an_audit_needs_no_private_column(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = Inversion(attacks=["multi-label"], options=SMALL)
    monkeypatch.setattr(workflow, "TextAttacks", partial(TextAttacks, inversion=fast))
    found = audit(corpus, attacks=["inversion"], seeds=1)
    assert {row.kind.split("-")[0] for row in found} == {"inversion"}
    assert found.provenance["attacks"] == ["inversion"] and found.provenance["attributes"] == {}
    assert found.provenance["split"]["kind"] == "by_author"
    assert found.provenance["data"]["authors"] == 30


def test_a_new_kind_of_attack_is_one_class_and_one_line(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting:
        name = "counting"
        title = "how many rows there are"

        def lacks(self, evidence: Evidence) -> str | None:
            return None if evidence.corpus.author is not None else "counting needs authors"

        def measure(self, target: Target, settings: TextAttacks) -> Measurement:
            rows = len(target.release.vectors)
            return [Finding("counting", "rows", "count", float(rows))], {"counts": [rows]}

    monkeypatch.setitem(ATTACKS, "counting", Counting())
    findings = audit(corpus, attacks=["counting"], seeds=1)
    assert findings.value(kind="counting") == len(corpus)
    assert findings.artefacts == {"counts": [len(corpus)]}
    assert findings.provenance["attacks"] == ["counting"]
    assert "counting" in findings.provenance["seconds"]
    with pytest.raises(DataError, match="counting needs authors"):
        choose_attacks(Attacks(["counting"]), replace(corpus, author=None))
