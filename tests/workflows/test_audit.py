"""The audit finds what is there, finds nothing where nothing is, and stays below the optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.data.datasets import load
from capelet.data.reviews import optimum
from capelet.encoders import load as load_encoder
from capelet.errors import CapeletError, DataError
from capelet.evaluation.plan import Plan
from capelet.findings import Finding, Findings
from capelet.findings.metrics import OTHER_METRICS
from capelet.mechanisms import Laplace, Projection, WordDropout
from capelet.privacy.guarantees import Guarantee
from capelet.release import PrivateEncoder
from capelet.reports import render_html, verdicts
from capelet.workflows.audit import audit


def strongest(findings: Findings, target: str, kind: str = "attribute-inference") -> Finding:
    metric = "accuracy" if kind == "utility" else "balanced_accuracy"
    (row,) = findings.select(kind=kind, target=target, attacker="strongest", metric=metric)
    return row


def with_shuffled(corpus: Corpus, name: str) -> Corpus:
    values = corpus.private[name].copy()
    if corpus.author is not None:  # whoever writes keeps one value, but not their own
        people = np.unique(corpus.author.astype(str))
        of = dict(zip(corpus.author, values, strict=True))
        dealt = dict(
            zip(people, np.random.default_rng(0).permutation([of[p] for p in people]), strict=True)
        )
        values = np.array([dealt[person] for person in corpus.author], dtype=object)
    else:
        values = np.random.default_rng(0).permutation(values)
    return corpus.with_private({"shuffled": values})


@pytest.fixture(scope="module")
def ready(planted: Corpus) -> Findings:
    return audit(planted, seeds=3)


def test_ready_vectors_planted_and_hidden(ready: Findings) -> None:
    found, none = strongest(ready, "open"), strongest(ready, "hidden")
    assert 0.72 < found.value < 0.90 and found.low is not None and found.low > 0.65
    assert (
        none.low is not None
        and none.high is not None
        and none.low < 1 / 3 + 0.03 < none.high + 0.05
    )
    assert found.chance == 0.5 and none.chance == pytest.approx(1 / 3)
    assert found.ceiling is None and not found.degenerate


def test_controls_stand_beside_every_leak(ready: Findings) -> None:
    for target, chance in (("open", 0.5), ("hidden", 1 / 3)):
        assert strongest(ready, target, "attribute-inference-null").value == pytest.approx(
            chance, abs=0.06
        )
        (label,) = ready.select(
            kind="attribute-inference-reference",
            target=target,
            attacker="predicted-label",
            metric="balanced_accuracy",
        )
        assert label.value == pytest.approx(chance, abs=0.08)
    assert not ready.select(attacker="tf-idf")  # there are no texts


def test_task_fairness_and_artefacts(ready: Findings) -> None:
    task = strongest(ready, "side", "utility")
    assert task.value > 0.85 and task.majority is not None and task.majority < 0.65
    groups = {row.subgroup for row in ready.select(kind="fairness", metric="accuracy")}
    assert groups == {"open=no", "open=yes", "hidden=h0", "hidden=h1", "hidden=h2"}
    gaps = ready.select(kind="fairness", metric="accuracy_gap")
    assert {row.subgroup for row in gaps} == {"open", "hidden"} and all(
        row.value < 0.12 for row in gaps
    )
    curve = ready.artefacts["learning_curve"]["curves"]["open"]
    assert curve["labels_per_class"] == [10, 20, 30, 40, 50] and curve["value"][-1] > 0.65
    assert set(ready.artefacts["tsne"]["colours"]) == {"open", "hidden", "side"}
    families = {row.attacker for row in ready.select(kind="attribute-inference", target="open")}
    assert families == {"logistic", "mlp", "boosting", "knn", "kernel", "committee", "strongest"}


def test_provenance_says_what_was_done(ready: Findings) -> None:
    origin = ready.provenance
    assert origin["data"]["rows"] == 600 and origin["data"]["digest"].startswith("keyed:")
    assert origin["split"]["kind"] == "random" and origin["split"]["seeds"] == [0, 1, 2]
    assert origin["guarantee"]["notion"] == "none" and origin["cache"] is None
    assert origin["seconds"]["total"] > 0 and "numpy" in origin["versions"]


def test_the_same_audit_gives_the_same_findings(planted: Corpus, ready: Findings) -> None:
    again = audit(planted, seeds=3)
    assert [row.value for row in again] == [row.value for row in ready]


def test_missing_values_are_left_out_and_counted(planted: Corpus) -> None:
    values = planted.private["open"].copy()
    values[::3] = None
    findings = audit(
        replace(planted, private={"open": values}), seeds=1, attackers=["logistic", "knn"]
    )
    assert findings.provenance["attributes"]["open"]["missing"] == 200
    assert strongest(findings, "open").n == pytest.approx(80, abs=15)


class Noise:
    """A vector step: fresh noise that drowns everything, with the guarantee it would have."""

    consumes = emits = "vectors"
    guarantee = Guarantee(epsilon=1.0)

    def describe(self) -> dict[str, Any]:
        return {"step": "noise"}

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return np.random.default_rng().normal(size=batch.shape)


def test_a_protected_release_has_a_ceiling_and_label_free_utility(planted: Corpus) -> None:
    unlabelled = replace(planted, label=None, label_name=None)
    findings = audit(unlabelled, PrivateEncoder(Noise()), seeds=2, attackers=["logistic"])
    row = strongest(findings, "open")
    assert row.ceiling == pytest.approx(np.e / (1 + np.e)) and row.value < row.ceiling
    recall = findings.value(kind="utility", target="neighbours", metric="recall_at_10")
    assert recall == pytest.approx(10 / 119, abs=0.04)
    assert findings.provenance["guarantee"]["epsilon"] == 1.0
    drawn = findings.artefacts["tsne_shift"]
    assert drawn["shown"] == drawn["of"] == 120 and sum(drawn["released"]) == 120
    assert len(drawn["points"]) == len(drawn["released"]) == 240
    (told,) = findings.select(kind="deviation", metric="separability")
    (null,) = findings.select(kind="deviation-null", metric="separability")
    assert told.chance == 0.5 and told.n == 120 and abs(null.value - 0.5) < 0.06


def test_what_dropout_adds_for_each_word_is_in_the_provenance() -> None:
    texts = np.array([f"text number {row} on {row % 7} things" for row in range(120)], dtype=object)
    corpus = Corpus("w", texts=texts, private={"odd": np.array(["y", "n"] * 60, dtype=object)})
    private = PrivateEncoder(WordDropout(0.5), "wordllama", Laplace(2.0))
    promised = audit(corpus, private, seeds=1, attackers=["knn"]).provenance["guarantee"]
    assert promised["epsilon"] == 2.0 and "for each text" in promised["sentence"]
    assert promised["words"] == "1.43378-local differential privacy for each word (proven)"


def test_a_release_of_another_width_has_no_joint_map(planted: Corpus) -> None:
    findings = audit(planted, PrivateEncoder(Projection(3)), seeds=1, attackers=["logistic"])
    assert "tsne_shift" not in findings.artefacts and not findings.select(kind="deviation")


@pytest.fixture(scope="module")
def sample() -> Findings:

    corpus = with_shuffled(load("reviews"), "gender")
    # int8 to be quick; every family takes part, for none may beat the optimum.
    return audit(corpus, load_encoder("minilm", "int8"), seeds=2)


def test_the_sample_lies_between_half_way_and_the_optimum(sample: Findings) -> None:
    best = optimum()
    for target in ("gender", "age_group", "country"):
        row, top = strongest(sample, target), best[target].balanced_accuracy
        assert row.chance is not None and row.low is not None
        assert row.chance + 0.5 * (top - row.chance) <= row.value <= top, target
        assert strongest(sample, target, "attribute-inference-null").value == pytest.approx(
            row.chance, abs=0.04
        )
    shuffled = strongest(sample, "shuffled")
    assert shuffled.value == pytest.approx(0.5, abs=0.05)


def test_the_sample_is_split_by_author_and_useful(sample: Findings) -> None:
    assert sample.provenance["split"]["kind"] == "by_author"
    assert sample.provenance["encoder"]["name"] == "minilm"
    task = strongest(sample, "stars", "utility")
    assert task.majority is not None and task.value > task.majority + 0.2
    assert sample.select(kind="utility-reference", attacker="tf-idf")


def test_a_second_audit_spends_no_time_encoding(
    monkeypatch: pytest.MonkeyPatch, planted: Corpus
) -> None:
    texts = np.array(
        [f"text number {row} about {row % 7} things" for row in range(120)], dtype=object
    )
    corpus = Corpus(
        "again", texts=texts, private={"odd": np.array(["yes", "no"] * 60, dtype=object)}
    )
    first = audit(corpus, load_encoder("minilm"), seeds=1, attackers=["logistic"])

    def never(*_: object, **__: object) -> None:
        raise AssertionError("encoded again")

    encoder = load_encoder("minilm")
    monkeypatch.setattr(encoder, "encode", never)
    second = audit(corpus, encoder, seeds=1, attackers=["logistic"])
    assert [row.value for row in first] == [row.value for row in second]
    assert first.provenance["cache"] and Path(first.provenance["cache"]).is_dir()


def test_derived_attributes_on_wikitext(dataset: Callable[..., Corpus]) -> None:
    corpus = dataset("wikitext_sentences")
    assert corpus.texts is not None
    some = replace(corpus, texts=corpus.texts[:4000])
    findings = audit(some, "wordllama", seeds=2, derive=["number", "words:song|album|music"])
    assert strongest(findings, "has number").value > 0.7
    assert strongest(findings, "mentions song/album/music").value > 0.7
    assert strongest(findings, "has number", "attribute-inference-null").value == pytest.approx(
        0.5, abs=0.03
    )


# ------------------------------------------------------------------- real data at their full size


@pytest.mark.slow
def test_ag_entities(dataset: Callable[..., Corpus]) -> None:
    corpus = dataset("ag_entities")
    wanted = {"entity_0": (0.93, 0.66), "entity_1": (0.95, 0.64), "entity_2": (0.98, 0.67)}
    findings = audit(replace(corpus, private={name: corpus.private[name] for name in wanted}))
    task = strongest(findings, "label", "utility")
    assert task.value >= 0.78 and task.majority == pytest.approx(0.625, abs=0.005)
    for target, (least, reference) in wanted.items():
        assert strongest(findings, target).value >= least, target
        assert strongest(findings, target, "attribute-inference-null").value == pytest.approx(
            0.5, abs=0.03
        )
        (label,) = findings.select(
            kind="attribute-inference-reference",
            target=target,
            attacker="predicted-label",
            metric="balanced_accuracy",
        )
        assert label.value == pytest.approx(reference, abs=0.03), target


@pytest.mark.slow
def test_trustpilot_english_gender(dataset: Callable[..., Corpus]) -> None:
    findings = audit(dataset("trustpilot", where="language == 'en'"))
    assert strongest(findings, "gender").value >= 0.64


@pytest.mark.slow
def test_blog_gender_by_author(dataset: Callable[..., Corpus]) -> None:
    findings = audit(dataset("blog"))
    assert findings.provenance["split"]["kind"] == "by_author"
    assert strongest(findings, "gender").value >= 0.61


def few_people(with_b: int, shift: float) -> Corpus:
    """Twelve authors of sixty texts, of whom the first few have the class b."""
    author = np.repeat(np.arange(12), 60)
    vectors = np.random.default_rng(0).normal(size=(len(author), 16)).astype(np.float32)
    vectors[author < with_b, 0] += shift
    secret = np.where(author < with_b, "b", "a")
    return Corpus("few", vectors=vectors, private={"secret": secret}, author=author.astype(str))


def test_victims_of_one_class_are_no_leak() -> None:
    """Who names the only class of a split is always right: in pure noise that was a strong leak."""
    noise = audit(few_people(4, 0.0), attackers=["logistic", "boosting"], seeds=5)
    row = strongest(noise, "secret")
    assert row.parameters["one_class_seeds"] == 1 and len(row.parameters["by_seed"]) == 4
    (verdict,) = verdicts(noise)
    assert verdict.outcome == "inconclusive" and "1 of 5 seeds left out" in verdict.sentence
    # The control: what the vectors do tell is found in the seeds that are left.
    planted = audit(few_people(4, 6.0), attackers=["logistic"], seeds=5)
    assert verdicts(planted)[0].outcome == "leak" and strongest(planted, "secret").value > 0.85
    rare = few_people(2, 0.0)
    splits = Plan.of(rare, seeds=20).splits
    bare = [item.seed for item in splits if set(rare.private["secret"][item.victims]) == {"a"}]
    with pytest.raises(DataError, match="whose rarest class 2 of 12 authors have"):
        audit(rare, attackers=["logistic"], seeds=bare[:2])


@pytest.mark.parametrize("draws", [False, True], ids=["plain", "noised"])
def test_findings_of_an_attribute_do_not_hang_on_what_else_was_named(draws: bool) -> None:
    """Splits were balanced by all that was named, and `--label` moved a verdict by six points."""
    sample = load("reviews").take(np.arange(900))
    hidden = sample.private["country"].copy()
    hidden[::7] = None  # an attribute that is known on other rows has draws of its own
    everything = replace(sample, author=None, private={**sample.private, "country": hidden})
    everything = replace(everything, private=dict(reversed(everything.private.items())))
    alone = replace(
        everything, label=None, label_name=None, private={"gender": sample.private["gender"]}
    )
    private = PrivateEncoder("wordllama", *([Laplace(epsilon=600.0)] if draws else []))
    one, other = (
        audit(corpus, private, seeds=2, attackers=["logistic", "knn"], seeded_noise=True)
        for corpus in (alone, everything)
    )
    assert one.provenance["split"]["kind"] == "random"
    found = {
        (row.kind, row.attacker, row.metric, row.subgroup): (row.value, row.low, row.high)
        for row in other.select(target="gender")
    }
    rows = one.select(target="gender")
    assert len({row.kind for row in rows}) > 2 and draws == private.draws
    for row in rows:
        both = found[row.kind, row.attacker, row.metric, row.subgroup]
        np.testing.assert_allclose((row.value, row.low, row.high), both, atol=1e-9, rtol=0)
    curve = one.artefacts["learning_curve"]["curves"]["gender"]
    assert curve == other.artefacts["learning_curve"]["curves"]["gender"]


def test_private_names_columns_and_no_encoder(planted: Corpus) -> None:
    with pytest.raises(CapeletError, match="a Corpus knows its columns; leave out private"):
        audit(planted, private=PrivateEncoder(), seeds=1)


def test_the_scores_of_a_seed_are_the_same_alone_and_among_others(planted: Corpus) -> None:
    alone = audit(planted, seeds=[7], attackers=["logistic"])
    among = audit(planted, seeds=(2, 7), attackers=["logistic"])
    assert among.provenance["split"]["seeds"] == [2, 7]
    for target in ("open", "hidden"):
        for kind in ("attribute-inference", "attribute-inference-null"):
            one, two = (strongest(item, target, kind) for item in (alone, among))
            scores, both = one.parameters["by_seed"], two.parameters["by_seed"]
            assert both[len(scores) :] == scores != both[: len(scores)]


def test_seeded_noise_repeats_and_a_seed_does_not_know_the_others(planted: Corpus) -> None:
    private = PrivateEncoder(Laplace(epsilon=20.0))
    quick: dict[str, Any] = {"attackers": ["logistic"], "seeded_noise": True}
    alone, again, among = (
        audit(planted, private, seeds=seeds, **quick, threads=threads)
        for seeds, threads in (([7], None), ([7], 1), ([2, 7], 2))
    )
    assert [row.value for row in alone] == [row.value for row in again]
    for target in ("open", "hidden"):
        one, two = (strongest(item, target) for item in (alone, among))
        assert two.parameters["by_seed"][1:] == one.parameters["by_seed"]
        assert two.parameters.get("draws", [1, 1])[1:] == one.parameters.get("draws", [1])
        assert one.ceiling is not None  # that of the mechanism under study
    assert alone.provenance["noise"] == "seeded" and alone.recipe["seed"] == 7
    assert alone.provenance["guarantee"]["status"] == "none"
    # The control: noise of the operating system gives other scores, and a guarantee.
    fresh = audit(planted, private, seeds=[7], attackers=["logistic"])
    assert fresh.provenance["noise"] == "operating system" and "seed" not in fresh.recipe
    assert fresh.provenance["guarantee"]["status"] == "proven"
    assert [row.value for row in fresh] != [row.value for row in alone]


def test_without_noise_there_is_nothing_to_seed(planted: Corpus) -> None:
    findings = audit(planted, seeds=1, attackers=["logistic"], seeded_noise=True)
    assert findings.provenance["noise"] == "none" and "seed" not in findings.recipe


def test_more_metrics_stand_beside_the_usual_ones(planted: Corpus) -> None:
    quick: dict[str, Any] = {"seeds": 1, "attackers": ["logistic"]}
    usual, more = audit(planted, **quick), audit(planted, **quick, metrics=OTHER_METRICS)
    rows = {(row.kind, row.target, row.metric, row.attacker, row.subgroup): row for row in more}
    for row in usual:  # what is there without the option does not change
        same = rows.pop((row.kind, row.target, row.metric, row.attacker, row.subgroup))
        assert same.value == row.value
    assert {key[2] for key in rows} == {*OTHER_METRICS}
    leak = rows["attribute-inference", "open", "empirical_privacy", "strongest", None]
    (accuracy,) = usual.select(
        kind="attribute-inference", target="open", metric="accuracy", attacker="strongest"
    )
    assert leak.value == pytest.approx(1 - accuracy.value) and leak.ceiling is None


def test_releases_beside_are_drawn_into_one_map(planted: Corpus) -> None:
    quick: dict[str, Any] = {"seeds": 1, "attackers": ["logistic"]}
    others = {"weak": PrivateEncoder(Laplace(500.0)), "strong": PrivateEncoder(Laplace(1.0))}
    findings = audit(planted, compare_map=others, **quick)
    content = findings.artefacts["tsne_clouds"]
    assert set(content["clouds"]) == {"original", "weak", "strong"} and content["shown"] == 120
    assert audit(planted, compare_map=others, **quick).artefacts["tsne_clouds"] == content
    page = render_html(findings)
    assert "Several releases in one map" in page
    plain = audit(planted, **quick)
    assert "tsne_clouds" not in plain.artefacts
    assert "Several releases in one map" not in render_html(plain)
    with pytest.raises(CapeletError, match="'narrow' have 3 coordinates"):
        audit(planted, compare_map={"narrow": PrivateEncoder(Projection(3))}, **quick)
    with pytest.raises(CapeletError, match="called 'original'"):
        audit(planted, compare_map={"original": others["weak"]}, **quick)
    with pytest.raises(CapeletError, match="'words' consumes texts"):
        audit(planted, compare_map={"words": PrivateEncoder("wordllama")}, **quick)
