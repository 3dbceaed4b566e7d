"""Protect: a planted leak is found before and gone after; what was held out is measured too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.data.datasets import load
from capelet.defences import Settings
from capelet.defences.fitting import Schedule
from capelet.defences.settings import TrainingPrivacy
from capelet.errors import CapeletError, DataError
from capelet.evaluation.decision import rows_that_trained
from capelet.evaluation.measure import Released
from capelet.evaluation.plan import Plan
from capelet.files import cache_folder
from capelet.findings import Findings
from capelet.interfaces import Progress, silent
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.release import PrivateEncoder, Release
from capelet.workflows import protect as protection
from capelet.workflows.audit import audit
from capelet.workflows.protect import JOINT, Protection, protect
from capelet.workflows.training import part_of

QUICK = Schedule(epochs=15, device="cpu")
FAST = ("logistic", "kernel")


def column(values: Any) -> np.ndarray:
    return np.array([str(item) for item in values], dtype=object)


@pytest.fixture(scope="module")
def leaky() -> Corpus:
    """1500 ready vectors: a task, two planted secrets, and one that is not in them."""
    random = np.random.default_rng(11)
    task, named, other, absent = random.integers(0, 2, (4, 1500))
    vectors = random.normal(size=(1500, 12)).astype(np.float32)
    vectors[:, 0] += 4 * task
    vectors[:, 1] += 4 * named
    vectors[:, 2] += 4 * other
    return Corpus(
        "leaky",
        vectors=vectors,
        label_name="task",
        label=column(task),
        private={"named": column(named), "other": column(other), "absent": column(absent)},
    )


def run(corpus: Corpus, method: str, hold_out: tuple[str, ...] = (), **settings: Any) -> Protection:
    chosen = Settings(schedule=QUICK, **settings)
    return protect(
        corpus, None, method, chosen, hold_out=hold_out, seeds=1, attackers=FAST, cache=False
    )


def score(findings: Findings, target: str, kind: str = "attribute-inference") -> float:
    """Balanced accuracy of the strongest attacker (or of the task probe)."""
    found = [
        row.value
        for row in findings.rows
        if (row.kind, row.target, row.metric) == (kind, target, "balanced_accuracy")
        and row.attacker in ("strongest", None)
        and row.subgroup is None
    ]
    assert len(found) == 1, (target, kind)
    return float(found[0])


@pytest.fixture(scope="module")
def reversed_(leaky: Corpus) -> Protection:
    return run(leaky, "gr", ("other",), adversary_weight=1.0)


@pytest.fixture(scope="module")
def squeezed(leaky: Corpus) -> Protection:
    return run(leaky, "bottleneck", ("other",), epsilon=4.0)


def test_a_planted_leak_is_found_before_and_gone_after(leaky: Corpus) -> None:
    done = run(leaky, "leace", ("absent",))
    for name in ("named", "other"):
        assert score(done.before, name) > 0.9
        assert score(done.after, name) < 0.6
    assert abs(score(done.before, "absent") - 0.5) < 0.1  # nothing is found where nothing is
    assert abs(score(done.after, "absent") - 0.5) < 0.1
    assert score(done.after, "task", "utility") > 0.9


def test_noise_protects_what_was_held_out(squeezed: Protection) -> None:
    assert score(squeezed.before, "other") > 0.9
    assert score(squeezed.after, "other") < 0.65
    assert score(squeezed.after, "task", "utility") > 0.9
    assert squeezed.encoder.guarantee.epsilon == 4.0


def test_reversal_does_not_protect_what_was_held_out(reversed_: Protection) -> None:
    assert score(reversed_.after, "other") > 0.8
    assert reversed_.after.provenance["protect"]["hold_out"] == ["other"]
    assert reversed_.after.provenance["protect"]["against"] == ["named", "absent"]


def test_lambda_is_noted_only_where_something_is_done_by_it(
    leaky: Corpus, reversed_: Protection
) -> None:
    assert reversed_.after.provenance["protect"]["settings"]["adversary_weight"] == 1.0
    assert "adversary_weight" not in run(leaky, "leace").after.provenance["protect"]["settings"]


def test_the_width_of_what_leaves_is_noted(reversed_: Protection) -> None:
    """Twelve numbers go in, and 64 leave."""
    assert reversed_.before.provenance["release"] == {"dimension": 12}
    assert reversed_.after.provenance["release"] == {"dimension": 64}


def test_the_joint_adversary_stands_beside_the_fresh_attacker(
    reversed_: Protection, squeezed: Protection
) -> None:
    joint = {row.target: row for row in reversed_.after.rows if row.attacker == JOINT}
    assert set(joint) == {"named", "absent"}  # none for what was held out
    row = joint["named"]
    assert row.kind == "attribute-inference-reference" and row.chance == 0.5
    assert row.parameters["by_seed"] == [row.value]
    assert row.recipe_hash == reversed_.after.rows[0].recipe_hash
    assert score(reversed_.after, "named") > row.value  # the false comfort
    assert not [row for row in squeezed.after.rows if row.attacker == JOINT]
    assert not [row for row in reversed_.before.rows if row.attacker == JOINT]


def test_a_run_is_saved_as_an_encoder_with_its_findings(
    reversed_: Protection, leaky: Corpus, tmp_path: Path
) -> None:
    folder = reversed_.save(tmp_path / "out")
    back = PrivateEncoder(str(folder))
    rows = leaky.vectors[:10]  # type: ignore[index]
    np.testing.assert_array_equal(
        back.release(rows).vectors, reversed_.encoder.release(rows).vectors
    )
    assert len(Findings.load(folder).rows) == len(reversed_.after.rows)
    assert len(Findings.load(folder / "before").rows) == len(reversed_.before.rows)
    about = json.loads((folder / "private.json").read_text())["about"]
    assert about["method"] == "gr" and about["private_towards_training_texts"] is False
    assert about["data"] == {"name": leaky.name} and about["trained_on"] == 750
    # No plain digest of the corpus, in no file: whoever knows all rows but one could confirm it.
    for path in folder.rglob("*.json"):
        assert leaky.digest() not in path.read_text()


def test_which_rows_trained_is_known_here_and_not_in_the_folder(
    reversed_: Protection, leaky: Corpus, tmp_path: Path, own_state: Path
) -> None:
    vectors = np.asarray(leaky.vectors)
    trained = rows_that_trained(reversed_.encoder, vectors)
    # Of the first split, whose encoder is kept; held-back rows decided when to stop.
    np.testing.assert_array_equal(np.flatnonzero(trained), Plan.of(leaky, 1).splits[0].defender)
    name = reversed_.encoder.origins[0].id
    # What is never saved leaves no record on a disk.
    folder = reversed_.save(tmp_path / "out")
    record = (own_state / "training" / name).read_bytes()
    for path in folder.rglob("*"):
        assert path.is_dir() or record[:32] not in path.read_bytes()


def test_an_audit_keeps_training_rows_out_of_the_victims(
    reversed_: Protection, leaky: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained = rows_that_trained(reversed_.encoder, np.asarray(leaky.vectors))
    plan = Plan.of(leaky, 2, trained=trained)
    for parts in plan.splits:
        assert trained[parts.defender].all() and not trained[parts.victims].any()
        assert not trained[parts.attacker].any()
        assert len(parts.attacker) == pytest.approx(450, abs=2)
        assert len(parts.victims) == pytest.approx(300, abs=2)
    few = {"seeds": 1, "attackers": ["logistic"]}
    findings = audit(leaky, reversed_.encoder, **few)  # type: ignore[arg-type]
    assert findings.provenance["split"]["sizes"]["defender"] == trained.sum() == 750
    # Once it is saved, the record lies in the state folder and no more in this process.
    reversed_.save(tmp_path / "out")
    # The control: where nothing is recorded, rows that trained are victims like others.
    monkeypatch.setenv("CAPELET_STATE", str(tmp_path / "elsewhere"))
    victims = Plan.of(leaky, 1).splits[0].victims
    assert not rows_that_trained(reversed_.encoder, np.asarray(leaky.vectors)).any()
    other = Plan.of(leaky, 2).splits[1].victims
    assert trained[other].any() and not trained[victims].any()


def test_a_defence_sees_the_defender_and_nobody_else(leaky: Corpus) -> None:
    plan = Plan.of(leaky, 1)
    parts, vectors = plan.splits[0], np.asarray(leaky.vectors)
    part = part_of(plan, parts, vectors, plan.secrets[:1])
    np.testing.assert_array_equal(part.vectors, vectors[parts.defender])
    together = np.sort(np.concatenate([part.fit, part.tune]))
    np.testing.assert_array_equal(together, np.arange(len(parts.defender)))
    assert part.task is not None and plan.label is not None
    np.testing.assert_array_equal(part.task.codes, plan.label.codes[parts.defender])
    np.testing.assert_array_equal(part.secrets[0].codes, plan.secrets[0].codes[parts.defender])
    assert not np.isin(parts.defender, np.concatenate([parts.attacker, parts.victims])).any()


def test_an_epsilon_that_cannot_serve_is_refused_before_training(leaky: Corpus) -> None:
    label = column(np.arange(1500) % 10 == 0)
    uneven = replace(leaky, label=label, label_name="rare")
    for method in ("bottleneck", "ldp", "cape"):
        with pytest.raises(DataError, match=r"no release can beat.*the least ε that can is 2.2"):
            run(uneven, method, epsilon=0.1)
    chosen = Settings(epsilon=0.1, schedule=replace(QUICK, epochs=1))
    seen = protect(
        uneven,
        None,
        "ldp",
        chosen,
        allow_useless_epsilon=True,
        seeds=1,
        attackers=["logistic"],
        cache=False,
    )
    assert seen.encoder.guarantee == Guarantee(0.1, training=NONE)


def test_what_cannot_be_done_is_said_at_once(leaky: Corpus) -> None:
    for arguments, sentence in (
        ({"method": "gr", "hold_out": ("nmaed",)}, "did you mean 'named'"),
        ({"method": "gr", "hold_out": ("named", "other", "absent")}, "needs a private attribute"),
        ({"method": "ldp"}, "needs an epsilon"),
        ({"method": "gr", "adversary_weight": -1.0}, "adversary_weight is -1.0"),
        ({"method": "mdp", "epsilon": 8.0}, "there are only vectors"),
        ({"method": "ae"}, "there are only vectors"),
        ({"method": "gr", "tune_layers": 1}, "ready vectors have no layers"),
        ({"method": "leace", "tune_layers": 1}, "leave tune_layers= out"),
        ({"method": "gone"}, "there is no method 'gone'"),
    ):
        with pytest.raises(CapeletError, match=sentence):
            run(leaky, **arguments)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="there is no label"):
        run(replace(leaky, label=None, label_name=None), "gr")


def test_values_missing_on_part_of_the_rows_are_no_obstacle(leaky: Corpus) -> None:
    named = leaky.private["named"].copy()
    named[::3] = None
    part = replace(leaky, private={"named": named})
    done = run(part, "leace")
    assert score(done.before, "named") > 0.9 and score(done.after, "named") < 0.62


def test_texts_go_through_the_encoder_and_a_folder_protects_again(tmp_path: Path) -> None:
    """Protect an encoder of texts; its folder is then the encoder of a second protection."""
    whole = load("reviews")
    some = slice(0, 500)
    assert whole.texts is not None and whole.label is not None
    corpus = Corpus(
        "some",
        texts=whole.texts[some],
        label_name="stars",
        label=whole.label[some],
        private={"gender": whole.private["gender"][some]},
    )
    quick = Settings(schedule=replace(QUICK, epochs=2))
    options: dict[str, Any] = {"seeds": 1, "attackers": ["logistic"]}
    first = protect(corpus, "wordllama", "leace", quick, **options)
    folder = first.save(tmp_path / "first")
    assert score(first.after, "gender") <= score(first.before, "gender") + 0.05
    second = protect(corpus, str(folder), "gr", quick, **options)
    kinds = [step["step"] for step in second.encoder.recipe["steps"]]
    assert kinds == ["encoder", "map", "map"]
    back = PrivateEncoder.load(second.save(tmp_path / "second"))
    texts = whole.texts[:3].tolist()
    np.testing.assert_allclose(
        back.release(texts).vectors, second.encoder.release(texts).vectors, rtol=1e-6
    )


class Counting:
    """An encoder of two coordinates that counts the texts it was given."""

    name, backend, dimension, fingerprint = "counting", "none", 2, "0" * 64

    def __init__(self) -> None:
        self.count = 0

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> np.ndarray:
        self.count += len(texts)
        return np.array([[len(text), text.count("e")] for text in texts], dtype=np.float32)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        return np.zeros(len(texts), dtype=bool)


@pytest.mark.parametrize("cache", [True, False])
def test_what_is_measured_is_what_ships(
    reviews: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: bool
) -> None:
    """Every release that is attacked comes from `PrivateEncoder.release`, once for each seed.

    What comes after those are further draws of the attacker's own texts, by the same encoders.
    """
    monkeypatch.setenv("CAPELET_CACHE", str(tmp_path))
    releases: list[Release] = []
    attacked: list[np.ndarray] = []
    release, measure = PrivateEncoder.release, protection.measure

    def recorded(private: PrivateEncoder, *arguments: Any) -> Release:
        releases.append(release(private, *arguments))
        return releases[-1]

    def seen(plan: Plan, given: Released, *arguments: Any) -> Any:
        attacked.extend(given.vectors)
        return measure(plan, given, *arguments)

    monkeypatch.setattr(PrivateEncoder, "release", recorded)
    monkeypatch.setattr(protection, "measure", seen)
    encoder = Counting()
    settings = Settings(epsilon=8.0, schedule=replace(QUICK, epochs=1))
    done = protect(reviews, encoder, "cape", settings, seeds=2, attackers=["logistic"], cache=cache)
    steps = [[step["step"] for step in item.recipe["steps"]] for item in releases]
    assert steps == [["encoder"], *[["encoder", "laplace", "map"]] * (len(releases) - 1)]
    assert [id(item) for item in attacked[2:]] == [id(item.vectors) for item in releases[1:3]]
    draws = releases[3:]
    assert draws and {len(item.vectors) for item in draws} <= {95, 96, 97}  # 30 % of 320
    hashes = {item.recipe_hash for item in releases[1:3]}
    assert {item.recipe_hash for item in draws} <= hashes
    assert encoder.count == len(set(reviews.texts))  # type: ignore[arg-type] # though released three times
    assert done.encoder.recipe == releases[1].recipe
    assert cache or done.encoder.encoder is encoder  # no vectors stay in memory


@pytest.fixture(scope="module")
def reviews() -> Corpus:
    """320 short reviews with their stars and the gender of their writers."""
    whole = load("reviews")
    assert whole.texts is not None and whole.label is not None
    some = slice(0, 320)
    return Corpus(
        "some",
        texts=np.array([" ".join(text.split()[:12]) for text in whole.texts[some]], dtype=object),
        label_name="gender",
        label=whole.private["gender"][some],
        private={
            "stars": np.array([str(int(item) > 3) for item in whole.label[some]], dtype=object)
        },
    )


def test_an_autoencoder_takes_the_place_of_the_encoder(reviews: Corpus, tmp_path: Path) -> None:
    done = protect(
        reviews, "wordllama", "ae", Settings(schedule=QUICK), seeds=2, attackers=["logistic"]
    )
    assert reviews.texts is not None
    steps = done.encoder.recipe["steps"]
    assert [step["step"] for step in steps] == ["encoder", "map"]
    assert steps[0]["name"] == "./encoder" and steps[0]["backend"] == "numpy"
    back = PrivateEncoder(str(done.save(tmp_path / "out")))
    texts = reviews.texts[:5].tolist()
    np.testing.assert_array_equal(back.release(texts).vectors, done.encoder.release(texts).vectors)
    assert back.recipe == done.encoder.recipe


def test_the_last_layers_of_the_encoder_are_trained_along(reviews: Corpus, tmp_path: Path) -> None:
    from capelet.encoders import load as load_encoder
    from capelet.encoders.own import TunedEncoder

    settings = Settings(tune_layers=1, schedule=replace(QUICK, epochs=2))
    encoder = load_encoder("minilm", "torch")
    folder = cache_folder() / "tuned"
    before = set(folder.iterdir()) if folder.is_dir() else set()
    done = protect(reviews, encoder, "gr", settings, seeds=2, attackers=["logistic"])
    tuned = done.encoder.encoder
    assert isinstance(tuned, TunedEncoder) and reviews.texts is not None
    assert set(folder.iterdir()) - before == {tuned.folder}  # of two seeds one is kept
    texts = reviews.texts[:5].tolist()
    assert np.abs(tuned.encode(texts) - encoder.encode(texts)).max() > 1e-4
    back = PrivateEncoder(str(done.save(tmp_path / "out")))
    wanted = done.encoder.release(texts).vectors
    tuned.forget()
    np.testing.assert_allclose(back.release(texts).vectors, wanted, atol=1e-5)
    with pytest.raises(DataError, match="steps before or behind"):
        protect(reviews, str(tmp_path / "out"), "gr", settings, seeds=1)
    with pytest.raises(DataError, match="too long for a search"):
        protect(reviews, encoder, "gr", settings, seeds=1, max_leakage=0.1)


def test_a_search_among_thirty_authors_ends_with_settings(leaky: Corpus) -> None:
    """A cut at random left the attacker nobody, and what came out was a traceback."""
    few = leaky.take(np.arange(600))
    few = replace(few, author=column(np.random.default_rng(0).integers(0, 30, 600)))
    for seed in range(4):
        done = protect(
            few, None, "leace", Settings(), seeds=[seed], min_utility=0.6, trials=1,
            attackers=["logistic"], cache=False,
        )  # fmt: skip
        assert done.after.artefacts["frontier"]["points"][0]["chosen"]


def test_the_training_of_a_seed_is_the_same_alone_and_among_others(leaky: Corpus) -> None:
    few = replace(leaky, private={"named": leaky.private["named"]})
    quick = Settings(schedule=Schedule(epochs=3, device="cpu"))
    results = [
        protect(few, None, "gr", quick, seeds=seeds, attackers=["logistic"], cache=False)
        for seeds in ([7], [7, 2], [2])
    ]

    # The bytes of a map hold a random id; what it does is what was learnt.
    vectors = [item.encoder.release(leaky.vectors).vectors for item in results]  # type: ignore[arg-type]

    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])
    rows = [
        item.after.select(kind="utility", target="task", metric="accuracy")[0].parameters["by_seed"]
        for item in results
    ]
    assert rows[1] == [*rows[0], *rows[2]]


def test_a_study_repeats_with_noise_and_its_encoder_still_promises(leaky: Corpus) -> None:
    few = replace(leaky, private={"named": leaky.private["named"]})
    quick = Settings(epsilon=8.0, schedule=Schedule(epochs=3, device="cpu"))
    options: dict[str, Any] = {"attackers": ["logistic"], "cache": False, "seeded_noise": True}
    alone, among = (
        protect(few, None, "cape", quick, seeds=seeds, **options) for seeds in ([7], [2, 7])
    )
    for kind, target in (("attribute-inference", "named"), ("utility", "task")):
        scores = [
            item.after.select(kind=kind, target=target, metric="accuracy", attacker="strongest")
            for item in (alone, among)
        ]
        first, both = (rows[0].parameters["by_seed"] for rows in scores)
        assert both[1:] == first
    assert alone.after.provenance["guarantee"]["status"] == "none"
    assert alone.before.provenance["noise"] == "none"
    # What is returned is for releases: its noise is nobody's to repeat.
    assert alone.encoder.guarantee.status == "proven" and "seed" not in alone.encoder.recipe
    vectors = [alone.encoder.release(few.vectors).vectors for _ in range(2)]  # type: ignore[arg-type]
    assert not np.array_equal(*vectors)


def test_a_study_does_not_search(leaky: Corpus) -> None:
    with pytest.raises(DataError, match="a search draws noise of its own"):
        protect(
            leaky, None, "ldp", Settings(epsilon=8.0), max_leakage=0.1, seeded_noise=True, seeds=1
        )


def test_the_noise_of_a_private_training_is_seeded_in_a_study(leaky: Corpus) -> None:
    few = replace(leaky, private={"named": leaky.private["named"]})
    settings = Settings(training=TrainingPrivacy(20.0, 1e-4))
    options: dict[str, Any] = {"attackers": ["logistic"], "cache": False, "seeds": [3]}
    one, two, fresh = (
        protect(few, None, "fx", settings, seeded_noise=seeded, **options)
        for seeded in (True, True, False)
    )
    vectors = [item.encoder.release(few.vectors).vectors for item in (one, two, fresh)]  # type: ignore[arg-type]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])
    promises = [item.encoder.guarantee.training for item in (one, fresh)]
    assert [promise and promise.status for promise in promises] == ["none", "proven"]


def test_dpnr_tunes_layers_on_what_is_left_of_texts(
    reviews: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capelet.encoders import load as load_encoder
    from capelet.encoders import tuning
    from capelet.encoders.own import TunedEncoder

    seen: list[Sequence[str]] = []
    top_layers = tuning.top_layers

    def spy(encoder: Any, texts: Sequence[str], *others: Any) -> Any:
        seen.append(texts)
        return top_layers(encoder, texts, *others)

    monkeypatch.setattr(tuning, "top_layers", spy)
    settings = Settings(
        epsilon=50.0, word_dropout=0.5, tune_layers=1, schedule=replace(QUICK, epochs=1)
    )
    encoder = load_encoder("minilm", "torch")
    done = protect(
        reviews, encoder, "dpnr", settings, seeds=[4], attackers=["logistic"], seeded_noise=True
    )
    assert [step["step"] for step in done.encoder.recipe["steps"]] == [
        "word-dropout", "encoder", "laplace", "map",
    ]  # fmt: skip
    tuned = done.encoder.encoder
    assert isinstance(tuned, TunedEncoder)
    tuned.forget()
    assert reviews.texts is not None
    words = sum(len(text.split()) for text in reviews.texts)
    share = sum(len(text.split()) for text in seen[0]) / (words * len(seen[0]) / len(reviews))
    assert share == pytest.approx(0.5, abs=0.06)  # half of the words were dropped
