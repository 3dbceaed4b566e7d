"""Who is trained on what and scored on whom, and the findings that come of it, reckoned by hand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from capelet.attacks.attribute import COMMITTEE, Candidate, OutOfFold, Secret, View, few_labels
from capelet.data.corpus import Corpus
from capelet.errors import DataError
from capelet.evaluation import leakage
from capelet.evaluation.access import NO_ACCESS, Access, Redraw, access_of
from capelet.evaluation.adaptive import AdaptiveGuess
from capelet.evaluation.leakage import (
    LABELS_PER_CLASS,
    NULLS,
    Tally,
    attack_all,
    attack_split,
    findings_of,
    in_threads,
    learning_curve,
)
from capelet.evaluation.plan import Plan
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap
from capelet.findings.metrics import Guesses
from capelet.findings.metrics import score as score_of
from capelet.interfaces import silent
from capelet.mechanisms import Laplace, WordDropout
from capelet.privacy.guarantees import NONE, Guarantee, ceiling
from capelet.release import PrivateEncoder, Release

ROWS = 400


def column(values: Any) -> np.ndarray:
    return np.array([None if item is None else str(item) for item in values], dtype=object)


class Means:
    """An attacker that takes the nearest class mean, and remembers what it was given."""

    def __init__(self, name: str = "means", sharpness: float = 1.0) -> None:
        self.name = name
        self.grid = [{"sharpness": sharpness}]
        self.seen: list[tuple[View, Secret]] = []

    @property
    def final(self) -> list[tuple[View, Secret]]:
        """Those in which nothing was held back: what is scored on victims, and nulls."""
        return [item for item in self.seen if not len(item[0].rows.tune)]

    def fit(self, view: View, secret: Secret, settings: Any) -> Candidate:
        self.seen.append((view, secret))
        fit, codes = view.vectors.fit, secret.codes.fit
        empty = np.full(fit.shape[1], 1e3)
        means = [
            fit[codes == c].mean(axis=0) if (codes == c).any() else empty
            for c in range(secret.classes)
        ]

        def scores(part: np.ndarray) -> np.ndarray:
            squares = ((part[:, None] - np.array(means)[None]) ** 2).sum(axis=2)
            raw = np.exp(-settings["sharpness"] * (squares - squares.min(axis=1, keepdims=True)))
            return np.asarray(raw / raw.sum(axis=1, keepdims=True))

        return Candidate(settings, scores(view.vectors.tune), scores(view.vectors.scored))


def read_by(plan: Plan, *attackers: Any) -> Plan:
    return replace(plan, attackers=attackers)


def corpus(texts: bool = False, missing: int = 0, unlabelled: int = 0) -> Corpus:
    """A task in coordinate 0, a secret of two classes in 1, one of three in 2 (weakly)."""
    random = np.random.default_rng(5)
    task, two = random.integers(0, 2, (2, ROWS))
    three = random.integers(0, 3, ROWS)
    vectors = random.normal(size=(ROWS, 4)).astype(np.float32)
    vectors[:, 0] += 2.0 * task
    vectors[:, 1] += 1.5 * two
    vectors[:, 2] += 0.5 * three
    hidden: list[Any] = list(two)
    hidden[:missing] = [None] * missing
    labels: list[Any] = list(task)
    labels[:unlabelled] = [None] * unlabelled
    return Corpus(
        "made",
        texts=column([f"text {row} {'good' if task[row] else 'bad'}" for row in range(ROWS)])
        if texts
        else None,
        vectors=vectors,
        label_name="task",
        label=column(labels),
        private={"two": column(hidden), "three": column(three)},
    )


def plan_of(source: Corpus, seeds: int = 1) -> tuple[Plan, np.ndarray]:
    assert source.vectors is not None
    return Plan.of(source, seeds=seeds), np.asarray(source.vectors)


@pytest.fixture(scope="module")
def tally() -> tuple[Plan, Tally, Means]:
    plan, vectors = plan_of(corpus(missing=37))
    family = Means()
    return plan, attack_split(read_by(plan, family), vectors, plan.splits[0]), family


def release(plan: Plan, guarantee: Guarantee = NONE) -> Release:
    return Release(np.zeros((len(plan.corpus), 1)), guarantee, {"steps": []})


# ---- who sees what -------------------------------------------------------------------------------


def test_a_task_learns_from_the_defender_and_an_attack_from_the_attacker(
    tally: tuple[Plan, Tally, Means],
) -> None:
    plan, _, family = tally
    parts = plan.splits[0]
    views = [view for view, _ in family.seen]
    two, three = plan.secrets
    assert plan.label is not None and (two.name, three.name) == ("two", "three")
    task_view, task = family.final[0]
    assert task_view.rows.fit.tolist() == parts.defender.tolist()
    everyone = np.concatenate([parts.attacker, parts.victims])
    assert sorted(task_view.rows.scored.tolist()) == sorted(everyone.tolist())
    for (view, _), secret in ((family.final[1], two), (family.final[2 + NULLS], three)):
        for own, rows in ((view.rows.fit, parts.attacker), (view.rows.scored, parts.victims)):
            assert own.tolist() == rows[secret.codes[rows] >= 0].tolist()
        assert len(view.rows.tune) == 0
    # Folds hold rows of the same part back, and no victim.
    folds = [view for view in views if len(view.rows.tune)]
    assert len(folds) == 3 * 5  # a task and two secrets, five folds
    for view in folds:
        part = parts.defender if view.rows.fit[0] in parts.defender else parts.attacker
        assert {*view.rows.fit.tolist(), *view.rows.tune.tolist()} <= set(part.tolist())
        assert not {*view.rows.fit.tolist()} & {*view.rows.tune.tolist()}
        assert len(view.rows.scored) == 0
    assert {view.seed for view in views} == {parts.seed}
    assert not task.balanced and family.final[1][1].balanced


def test_what_is_gathered_of_one_split(tally: tuple[Plan, Tally, Means]) -> None:
    plan, result, family = tally
    counts = {key: len(guesses) for key, guesses in result.guesses.items()}
    wanted = {("utility", "task", name): 1 for name in ("means", "strongest")}
    for secret in ("two", "three"):
        for name in ("means", "strongest"):
            wanted["attribute-inference", secret, name] = 1
        wanted["attribute-inference-null", secret, "strongest"] = NULLS
        wanted["attribute-inference-reference", secret, "predicted-label"] = 1
    assert counts == wanted and NULLS == 4 and LABELS_PER_CLASS == (10, 20, 30, 40, 50)
    assert result.winners["utility", "task"] == Counter(means=1)
    assert result.winners["attribute-inference", "two"] == Counter(means=1)
    (rows,) = result.task_rows
    assert rows.tolist() == plan.splits[0].victims.tolist()
    enough = [n for n in LABELS_PER_CLASS if ("three", n) in result.curves]
    least = min(np.bincount(plan.secrets[1].codes[plan.splits[0].attacker]).tolist())
    assert enough == [n for n in LABELS_PER_CLASS if n <= least] and enough
    (few,) = result.curves["three", 10]
    scored = plan.splits[0].victims
    assert few.truth.tolist() == plan.secrets[1].codes[scored].tolist()
    assert few.unit.tolist() == plan.units[scored].tolist()
    view, secret = family.final[2 + NULLS]
    np.testing.assert_allclose(few.scores, few_labels(view, secret, 10))


def test_scores_are_taken_on_the_victims_that_are_known(tally: tuple[Plan, Tally, Means]) -> None:
    plan, result, family = tally
    two = plan.secrets[0]
    victims = plan.splits[0].victims
    known = victims[two.codes[victims] >= 0]
    assert 0 < len(known) < len(victims)
    (guesses,) = result.guesses["attribute-inference", "two", "means"]
    assert guesses.truth.tolist() == two.codes[known].tolist()
    assert guesses.unit.tolist() == plan.units[known].tolist()
    view, secret = family.final[1]
    again = Means().fit(view, secret, {"sharpness": 1.0})
    np.testing.assert_allclose(guesses.scores, again.scored)
    (task,) = result.guesses["utility", "task", "strongest"]
    assert plan.label is not None
    assert task.truth.tolist() == plan.label.codes[victims].tolist()
    assert (task.scores.argmax(axis=1) == task.truth).mean() > 0.7


def test_the_null_is_the_same_attack_on_permuted_secrets(tally: tuple[Plan, Tally, Means]) -> None:
    plan, result, family = tally
    victims = plan.splits[0].victims
    three = plan.secrets[1]
    nulls = result.guesses["attribute-inference-null", "three", "strongest"]
    truths = [guesses.truth.tolist() for guesses in nulls]
    assert three.codes[victims].tolist() not in truths
    assert len({tuple(truth) for truth in truths}) == NULLS
    for (view, secret), guesses in zip(family.final[-NULLS:], nulls, strict=True):
        # Trained and scored on one permutation of the same values.
        whole = np.concatenate([*secret.codes])
        rows = np.concatenate([*view.rows])
        counts = np.bincount(three.codes[rows], minlength=3)
        assert abs(np.bincount(whole, minlength=3) - counts).max() <= len(three.codes) - len(rows)
        assert guesses.truth.tolist() == secret.codes.scored.tolist()
        agreement = (whole == three.codes[rows]).mean()
        assert agreement == pytest.approx(1 / 3, abs=0.12)


def test_the_predicted_label_alone_is_judged_from_the_attacker_s_own_rows(
    tally: tuple[Plan, Tally, Means],
) -> None:
    """Bayes by hand, with the labels that the task probe predicts for attacker and victims."""
    plan, result, family = tally
    wide, task = family.final[0]
    predicted = np.full(ROWS, -1)
    predicted[wide.rows.scored] = Means().fit(wide, task, {"sharpness": 1.0}).scored.argmax(axis=1)
    parts, three = plan.splits[0], plan.secrets[1]
    attacker = parts.attacker
    counts = np.full((2, 3), 0.5)
    for row in attacker:
        counts[predicted[row], three.codes[row]] += 1
    likelihood = counts / counts.sum(axis=0)
    wanted = likelihood[predicted[parts.victims]]
    (guesses,) = result.guesses["attribute-inference-reference", "three", "predicted-label"]
    np.testing.assert_allclose(guesses.scores, wanted / wanted.sum(axis=1, keepdims=True))


def test_unknown_labels_are_predicted_too_but_never_scored() -> None:
    plan, vectors = plan_of(corpus(unlabelled=60))
    result = attack_split(read_by(plan, Means()), vectors, plan.splits[0])
    victims = plan.splits[0].victims
    assert plan.label is not None
    known = victims[plan.label.codes[victims] >= 0]
    (task,) = result.guesses["utility", "task", "means"]
    assert len(known) < len(victims) and len(task.truth) == len(task.scores) == len(known)
    assert task.truth.tolist() == plan.label.codes[known].tolist()
    assert (task.scores.argmax(axis=1) == task.truth).mean() > 0.7
    (guesses,) = result.guesses["attribute-inference-reference", "three", "predicted-label"]
    assert len(guesses.truth) == len(victims)  # the label is predicted where it is not known


def test_texts_bring_the_references_that_read_them() -> None:
    plan, vectors = plan_of(corpus(texts=True))
    ticks: list[int] = []
    result = attack_split(read_by(plan, Means()), vectors, plan.splits[0], lambda: ticks.append(1))
    (text,) = result.guesses["utility-reference", "task", "tf-idf"]
    assert (text.predictions == text.truth).mean() == 1.0  # the word says it
    assert len(result.guesses["attribute-inference-reference", "two", "tf-idf"]) == 1
    assert len(ticks) == 3  # the task and two secrets


def test_without_a_label_there_is_no_task_and_no_reference_from_it() -> None:
    source = corpus()
    bare = Corpus("bare", vectors=source.vectors, private=source.private)
    plan, vectors = plan_of(bare)
    result = attack_split(read_by(plan, Means("a"), Means("b", 9.0)), vectors, plan.splits[0])
    assert {kind for kind, *_ in result.guesses} == {
        "attribute-inference",
        "attribute-inference-null",
    }
    assert {name for _, _, name in result.guesses} == {"a", "b", COMMITTEE, "strongest"}
    (strongest,) = result.winners["attribute-inference", "two"]
    chosen = result.guesses["attribute-inference", "two", strongest][0]
    assert result.guesses["attribute-inference", "two", "strongest"][0].scores is chosen.scores
    rows = findings_of(plan, release(plan), result)
    assert not [row for row in rows if row.kind in ("utility", "fairness")]


def test_a_secret_that_is_hardly_known_is_refused_with_its_counts() -> None:
    source = corpus()
    plan, vectors = plan_of(source)
    two = plan.secrets[0]
    two.codes[plan.splits[0].victims] = -1
    with pytest.raises(DataError, match=r"'two' is known on too few rows .* 0 among the victims"):
        attack_split(read_by(plan, Means()), vectors, plan.splits[0])


def test_two_rows_to_learn_from_and_one_victim_are_enough() -> None:
    plan, vectors = plan_of(corpus())
    parts, secret = plan.splits[0], plan.secrets[0]
    for own, victims, is_enough in ((2, 1, True), (1, 9, False), (9, 0, False)):
        codes = np.full(ROWS, -1, dtype=np.intp)
        codes[parts.attacker[:own]] = codes[parts.victims[:victims]] = 0
        target = replace(secret, codes=codes)
        split = leakage._SplitAttack(plan, vectors, parts, NO_ACCESS)
        if not is_enough:
            with pytest.raises(DataError, match=f"{own} in the attacker's part, {victims} among"):
                split._view("attacker", target)
            continue
        view, text = split._view("attacker", target)
        assert view.rows.fit.tolist() == parts.attacker[:2].tolist() and text is None
        assert view.rows.scored.tolist() == parts.victims[:1].tolist()
        # Whoever is known on the same rows shares the view; in another part it is another.
        again = replace(target, codes=np.where(codes == 0, 1, codes))
        assert split._view("attacker", again)[0] is view


def test_an_adaptive_attacker_is_gathered_and_may_be_the_strongest() -> None:
    """One that knows the truth of own rows and victims wins; one that is wrong does not."""
    plan, vectors = plan_of(corpus())
    parts, secret = plan.splits[0], plan.secrets[0]

    def guess(codes: np.ndarray) -> AdaptiveGuess:
        scored, own = (np.eye(2)[codes[rows]] for rows in (parts.victims, parts.attacker))
        return AdaptiveGuess(scored, OutOfFold(parts.attacker, own), 1.0, {})

    for codes, winner in ((secret.codes, "pairs"), (1 - secret.codes, "means")):
        adaptive = {"pairs": guess(codes)}
        split = leakage._SplitAttack(read_by(plan, Means()), vectors, parts, NO_ACCESS)
        split.insiders = SimpleNamespace(guesses=lambda secret, found=adaptive: found)  # type: ignore[assignment]
        split.add_controls(split.attack_secret(secret), None)
        result = split.tally
        (own,) = result.guesses["attribute-inference", "two", "pairs"]
        assert own.scores is adaptive["pairs"].scored
        (strongest,) = result.guesses["attribute-inference", "two", "strongest"]
        (best,) = result.guesses["attribute-inference", "two", winner]
        assert strongest.scores is best.scores
        assert result.winners["attribute-inference", "two"] == Counter([winner])
        assert result.draws["attribute-inference", "two"] == [1]
        assert not [key for key in result.guesses if key[0].endswith("reference")]


# ---- all seeds -----------------------------------------------------------------------------------


def test_each_split_is_attacked_on_its_own_release_and_in_order() -> None:
    plan, vectors = plan_of(corpus(), seeds=3)
    released = [vectors, np.zeros_like(vectors), -vectors]
    reports: list[tuple[str, int, int]] = []
    total = attack_all(read_by(plan, Means()), released, lambda *report: reports.append(report))
    singles = [
        attack_split(read_by(plan, Means()), some, parts)
        for some, parts in zip(released, plan.splits, strict=True)
    ]
    for key, guesses in total.guesses.items():
        wanted = [item for single in singles for item in single.guesses[key]]
        for one, other in zip(guesses, wanted, strict=True):
            np.testing.assert_array_equal(one.scores, other.scores)
    assert sum(total.winners["utility", "task"].values()) == 3
    assert [rows.tolist() for rows in total.task_rows] == [
        parts.victims.tolist() for parts in plan.splits
    ]
    assert len(total.curves["three", 10]) == 3
    assert sorted(report[1] for report in reports) == list(range(1, 10))
    assert {report[0] for report in reports} == {"attacking"} and reports[0][2] == 9


def test_each_split_has_its_own_access(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, vectors = plan_of(corpus(), seeds=3)
    calls: list[tuple[int, Any, Any]] = []

    def spy(plan: Any, own: Any, parts: Any, *others: Any, controls: bool) -> Tally:
        assert controls
        calls.append((parts.seed, own, others[-1]))
        return Tally()

    monkeypatch.setattr(leakage, "attack_split", spy)
    some = [Access(), Access(), Access()]
    released = [vectors, 2 * vectors, 3 * vectors]
    for access in (some, []):
        calls.clear()
        attack_all(plan, released, silent, access)
        for seed, own, mine in calls:
            assert own is released[seed] and mine is (access[seed] if access else NO_ACCESS)
        assert sorted(seed for seed, _, _ in calls) == [0, 1, 2]


def test_work_in_threads_comes_back_in_order() -> None:
    plan, _ = plan_of(corpus(), seeds=5)
    assert list(in_threads(lambda parts: parts.seed, plan.splits)) == [0, 1, 2, 3, 4]


class Noise:
    """A stand-in for a private encoder: it adds fresh noise to vectors, and counts its calls."""

    def __init__(self, notion: str = "local") -> None:
        self.random = np.random.default_rng(3)
        self.calls: list[int] = []
        self.steps = [SimpleNamespace(guarantee=Guarantee(1.0), consumes="vectors")]

    def release(self, inputs: np.ndarray) -> SimpleNamespace:
        self.calls.append(len(inputs))
        return SimpleNamespace(vectors=inputs + self.random.normal(size=inputs.shape) * 2)


def test_noise_is_drawn_again_for_the_attacker_s_own_rows_only() -> None:
    plan, vectors = plan_of(corpus(missing=37))
    noise = Noise()
    released = noise.release(vectors).vectors
    again = Redraw(noise, vectors)  # type: ignore[arg-type]
    assert again.most == 16
    family = Means()
    tally_ = attack_split(read_by(plan, family), released, plan.splits[0], access=Access(again))
    parts = plan.splits[0]
    known = int((plan.secrets[0].codes[parts.attacker] >= 0).sum())
    assert set(noise.calls[1:]) <= {known, len(parts.attacker)} and len(noise.calls) > 1
    for name in ("two", "three"):
        (draws,) = tally_.draws["attribute-inference", name]
        assert draws in (1, 2, 4, 8, 16)
    # Victims keep the one draw that they released, and the task has one too.
    for view, _ in family.final:
        np.testing.assert_array_equal(
            view.vectors.scored, released[view.rows.scored].astype(np.float32)
        )
    assert family.final[0][0].draws == 1


def test_noise_in_texts_is_drawn_less_often() -> None:
    private = SimpleNamespace(
        steps=[SimpleNamespace(guarantee=Guarantee(1.0), consumes="texts")],
        release=lambda texts: SimpleNamespace(vectors=np.array([[len(text)] for text in texts])),
    )
    again = Redraw(private, ["a", "bb", "ccc"])  # type: ignore[arg-type]
    assert again.most == 4 and again(np.array([2, 0])).tolist() == [[3], [1]]


def test_word_dropout_alone_is_drawn_again_as_texts_are() -> None:
    class Lengths:
        name, backend, dimension, fingerprint = "lengths", "none", 1, "lengths"

        def encode(self, texts: Any, progress: Any = None) -> Any:
            return np.array([[len(text)] for text in texts], dtype=np.float32)

        def truncated(self, texts: Any) -> Any:
            return np.zeros(len(texts), dtype=bool)

    texts = ["a good film", "bad acting", "fine"]
    alone = PrivateEncoder(WordDropout(0.5), Lengths())
    (access,) = access_of([alone], texts, None)
    assert access.redraw is not None and access.redraw.most == 4
    before_noise = PrivateEncoder(WordDropout(0.5), Lengths(), Laplace(1.0))
    assert Redraw(before_noise, texts).most == 16


# ---- findings ------------------------------------------------------------------------------------


def find(rows: list[Finding], kind: str, target: str, metric: str, attacker: str) -> Finding:
    (row,) = [
        row
        for row in rows
        if (row.kind, row.target, row.metric, row.attacker) == (kind, target, metric, attacker)
        and row.subgroup is None
    ]
    return row


@pytest.fixture(scope="module")
def rows(tally: tuple[Plan, Tally, Means]) -> list[Finding]:
    plan, result, _ = tally
    return findings_of(plan, release(plan, Guarantee(1.5)), result)


def test_findings_are_the_scores_with_their_references(
    rows: list[Finding], tally: tuple[Plan, Tally, Means]
) -> None:
    plan, result, _ = tally
    (guesses,) = result.guesses["attribute-inference", "three", "strongest"]
    row = find(rows, "attribute-inference", "three", "accuracy", "strongest")
    assert row.value == pytest.approx((guesses.predictions == guesses.truth).mean())
    # One weight for each person of the plan, the same for every attacker and attribute.
    score = score_of("accuracy", [guesses], Bootstrap(len(np.unique(plan.units))))
    assert (row.low, row.high) == (score.low, score.high)
    assert row.low < row.value < row.high
    assert row.chance == pytest.approx(1 / 3) and row.n == len(guesses.truth)
    share = np.bincount(guesses.truth).max() / len(guesses.truth)
    assert row.majority == pytest.approx(share)
    assert row.parameters == {
        "by_seed": [pytest.approx(row.value)],
        "chosen": {"means": 1},
        "holds": "vectors",
        "people": len(np.unique(guesses.unit)),
    }
    single = find(rows, "attribute-inference", "three", "accuracy", "means")
    assert "chosen" not in single.parameters and single.value == row.value
    assert row.degenerate is False
    task = find(rows, "utility", "task", "auc", "strongest")
    assert task.value > 0.8 and task.majority == 0.5
    assert {row.recipe_hash for row in rows} == {release(plan).recipe_hash}


def test_controls_are_scored_by_accuracies_alone(rows: list[Finding]) -> None:
    for kind in ("attribute-inference-null", "attribute-inference-reference"):
        metrics = {row.metric for row in rows if row.kind == kind}
        assert metrics == {"accuracy", "balanced_accuracy"}
    leaks = {(row.target, row.metric) for row in rows if row.kind == "attribute-inference"}
    assert ("two", "tpr_at_1_fpr") in leaks and ("three", "tpr_at_1_fpr") not in leaks
    assert ("three", "auc") in leaks and ("three", "f1_macro") in leaks
    null = find(rows, "attribute-inference-null", "two", "accuracy", "strongest")
    assert len(null.parameters["by_seed"]) == NULLS


def test_ceilings_stand_where_there_is_one(
    rows: list[Finding], tally: tuple[Plan, Tally, Means]
) -> None:
    """Accuracy by the prior, balanced accuracy by equal classes, AUC for two classes alone."""
    plan, result, _ = tally
    e = math.exp(1.5)
    for target, classes in (("two", 2), ("three", 3)):
        secret = {item.name: item for item in plan.secrets}[target]
        get = {
            row.metric: row.ceiling
            for row in rows
            if (row.kind, row.target, row.attacker) == ("attribute-inference", target, "strongest")
        }
        assert get["accuracy"] == ceiling(secret.prior(), Guarantee(1.5))
        assert get["balanced_accuracy"] == pytest.approx(e / (e + classes - 1))
        assert get["f1_macro"] is get["f1_weighted"] is None
        if classes == 2:
            assert get["auc"] == pytest.approx(e / (1 + e)) and get["tpr_at_1_fpr"] is None
        else:
            assert get["auc"] is None
    task = find(rows, "utility", "task", "auc", "strongest")
    assert task.ceiling == pytest.approx(e / (1 + e))
    for none in (NONE, Guarantee(1.5, status="broken"), Guarantee(1.5, unit="word")):
        unbound = findings_of(plan, release(plan, none), result)
        assert all(row.ceiling is None for row in unbound)


def test_fairness_is_measured_for_every_secret(rows: list[Finding]) -> None:
    gaps = {row.subgroup for row in rows if row.metric == "accuracy_gap"}
    assert gaps == {"two", "three"}
    parts = {row.subgroup for row in rows if row.kind == "fairness"} - gaps
    assert parts == {"two=0", "two=1", "three=0", "three=1", "three=2"}


def test_only_constant_guesses_in_every_seed_are_degenerate() -> None:
    plan, _ = plan_of(corpus())
    result = Tally()
    truth = np.array([0, 1] * 20)
    unit = np.arange(40)
    good = Guesses(truth, np.eye(2)[truth], unit)
    constant = Guesses(truth[:30], np.tile([1.0, 0.0], (30, 1)), unit[:30])
    result.guesses["attribute-inference", "two", "means"] = [good, constant]
    result.guesses["attribute-inference", "two", "blind"] = [constant, constant]
    result.guesses["utility", "task", "strongest"] = [good]
    result.task_rows = [np.arange(40)]
    rows = findings_of(plan, release(plan), result)
    row = find(rows, "attribute-inference", "two", "accuracy", "means")
    assert not row.degenerate and row.n == 35 and row.value == pytest.approx(0.75)
    assert row.parameters["constant_seeds"] == 1 and row.parameters["people"] == 40
    blind = find(rows, "attribute-inference", "two", "accuracy", "blind")
    assert blind.degenerate and blind.parameters["people"] == 30
    assert row.parameters["by_seed"] == [1.0, 0.5] and row.majority == pytest.approx(0.5)
    assert not find(rows, "utility", "task", "accuracy", "strongest").degenerate


def test_the_best_family_on_victims_has_an_interval_for_all_families_at_once() -> None:
    source = corpus()
    plan, vectors = plan_of(source)
    some = [Means("a"), Means("b", 9.0)]
    result = attack_split(read_by(plan, *some), vectors, plan.splits[0])
    rows = findings_of(plan, release(plan), result)
    row = find(rows, "attribute-inference", "two", "accuracy", "strongest")
    best = row.parameters["best_family"]
    singles = [find(rows, "attribute-inference", "two", "accuracy", name) for name in "ab"]
    first = max(singles, key=lambda item: item.value)
    assert best["attacker"] == first.attacker and best["value"] == pytest.approx(first.value)
    assert best["low"] < first.value < best["high"]
    assert "draws" not in row.parameters
    assert "best_family" not in singles[0].parameters
    null = find(rows, "attribute-inference-null", "two", "accuracy", "strongest")
    assert "best_family" not in null.parameters


def test_draws_are_told_where_there_were_several() -> None:
    plan, _ = plan_of(corpus())
    guess = Guesses(np.array([0, 1]), np.eye(2), np.array([0, 1]))
    result = Tally()
    result.guesses["attribute-inference", "two", "strongest"] = [guess, guess]
    result.draws["attribute-inference", "two"] = [4, 1]
    rows = findings_of(
        Plan(plan.corpus, plan.secrets, None, plan.splits, plan.units, ()), release(plan), result
    )
    assert rows[0].parameters["draws"] == [4, 1]


def test_the_learning_curve_lists_what_was_measured() -> None:
    plan, _ = plan_of(corpus())
    truth = np.array([0, 1, 2, 0, 1, 2] * 5)
    result = Tally()
    for labels, right in ((10, 15), (20, 30)):
        said = np.where(np.arange(30) < right, truth, (truth + 1) % 3)
        result.curves["three", labels] = [Guesses(truth, np.eye(3)[said], np.arange(30))]
    curve = learning_curve(plan, result)
    assert curve["attacker"] == "logistic" and curve["metric"] == "balanced_accuracy"
    three = curve["curves"]["three"]
    assert three["labels_per_class"] == [10, 20] and three["chance"] == pytest.approx(1 / 3)
    assert three["value"] == pytest.approx([0.5, 1.0])
    assert three["low"][0] < 0.5 < three["high"][0] and three["high"][1] == pytest.approx(1.0)
    score = score_of(
        "balanced_accuracy", result.curves["three", 10], Bootstrap(len(np.unique(plan.units)))
    )
    assert (three["low"][0], three["high"][0]) == (score.low, score.high)


def test_tallies_add_up() -> None:
    guess = Guesses(np.array([0]), np.array([[1.0, 0.0]]), np.array([0]))
    one, other = Tally(), Tally()
    for tally_, name in ((one, "a"), (other, "b")):
        tally_.guesses["k", "t", "x"].append(guess)
        tally_.winners["k", "t"][name] += 1
        tally_.curves["t", 10].append(guess)
        tally_.draws["k", "t"].append(ord(name))
        tally_.task_rows.append(np.array([1]))
    one.add(other)
    assert one.draws["k", "t"] == [97, 98]
    assert len(one.guesses["k", "t", "x"]) == len(one.curves["t", 10]) == len(one.task_rows) == 2
    assert one.winners["k", "t"] == Counter(a=1, b=1)
    assert silent("x", 1, 1) is None
