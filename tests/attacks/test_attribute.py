"""Every attacker finds a planted leak, finds nothing in noise, and looks at no victim."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from capelet.attacks.attribute import (
    COMMITTEE,
    FAMILIES,
    Candidate,
    Perceptron,
    Result,
    Secret,
    View,
    attack,
    families,
    few_labels,
)
from capelet.errors import CapeletError
from capelet.findings.metrics import balanced_accuracy

ROWS = 1500
FIT, TUNE, SCORED = np.arange(700), np.arange(700, 800), np.arange(800, ROWS)


def world(
    shift: float, share: float = 0.5, seed: int = 0, kind: str = "linear"
) -> tuple[View, np.ndarray]:
    """Vectors in which a secret is planted; the best balanced accuracy is Φ(shift / 2)."""
    random = np.random.default_rng(seed)
    secret = (random.random(ROWS) < share).astype(np.intp)
    vectors = random.normal(size=(ROWS, 12)).astype(np.float32)
    if kind == "linear":
        vectors[:, 0] += shift * secret
    else:  # no linear probe can see it: the secret is whether two signs agree
        signs = random.choice([-1.0, 1.0], size=ROWS)
        vectors[:, 0] = shift * signs + 0.5 * vectors[:, 0]
        vectors[:, 1] = shift * signs * (2 * secret - 1) + 0.5 * vectors[:, 1]
    return View(vectors, FIT, TUNE, SCORED, seed), secret


def reached(name: str, view: View, codes: np.ndarray, classes: int = 2) -> float:
    secret = Secret(view, codes, classes)
    best = attack(view, secret, families([name])).best[name]
    return balanced_accuracy(secret.codes.scored, best.scored.argmax(axis=1))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_planted_leak_is_found_and_the_optimum_is_not_passed(name: str) -> None:
    view, codes = world(shift=2.0)
    optimum = norm.cdf(1.0)
    assert optimum - 0.09 < reached(name, view, codes) < optimum + 0.03


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_rare_secret_is_found_too(name: str) -> None:
    view, codes = world(shift=3.0, share=0.06)
    assert reached(name, view, codes) > 0.7  # 42 rows have it; the optimum is 0.93


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_nothing_is_found_in_noise(name: str) -> None:
    scores = [reached(name, *world(shift=0.0, seed=seed)) for seed in range(8)]
    assert np.mean(scores) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("name", ["mlp", "boosting", "knn", "kernel"])
def test_what_linear_probes_cannot_see_is_found_by_the_others(name: str) -> None:
    view, codes = world(shift=2.0, kind="agreement")
    assert reached("logistic", view, codes) < 0.6
    assert reached(name, view, codes) > 0.85


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_probabilities_and_many_classes(name: str) -> None:
    random = np.random.default_rng(3)
    codes = random.integers(0, 4, ROWS)
    codes[:700][codes[:700] == 3] = 2  # the attacker never saw the last class
    vectors = random.normal(size=(ROWS, 6)).astype(np.float32)
    vectors[np.arange(ROWS), codes] += 3
    view = View(vectors, FIT, TUNE, SCORED, 0)
    secret = Secret(view, codes, 4)
    for settings in FAMILIES[name].grid:
        candidate = FAMILIES[name].fit(view, secret, settings)
        assert candidate.scored.shape == (len(SCORED), 4) and candidate.tune.shape == (100, 4)
        assert (candidate.scored >= 0).all()
        np.testing.assert_allclose(candidate.scored.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_truth_about_victims_changes_nothing(name: str) -> None:
    view, codes = world(shift=1.0)
    lie = codes.copy()
    lie[SCORED] = 1 - lie[SCORED]
    settings = FAMILIES[name].grid[0]
    one, two = (FAMILIES[name].fit(view, Secret(view, item, 2), settings) for item in (codes, lie))
    np.testing.assert_array_equal(one.scored, two.scored)


def test_victims_change_no_preparation() -> None:
    """Means, axes and landmarks are learnt on the rows to fit on."""
    view, _ = world(shift=1.0)
    vectors = np.concatenate([view.vectors.fit, view.vectors.tune, 100 + view.vectors.scored])
    other = View(vectors, FIT, TUNE, SCORED, 0)
    np.testing.assert_array_equal(view.standard.fit, other.standard.fit)
    np.testing.assert_array_equal(view.kernel(1.0).tune, other.kernel(1.0).tune)
    np.testing.assert_array_equal(view.levels.tune, other.levels.tune)


def test_dead_and_huge_coordinates_break_nothing() -> None:
    view, codes = world(shift=3.0)
    vectors = np.concatenate(list(view.vectors))
    vectors[:, 5] = 7.0
    vectors[:, 6] *= 1e12
    vectors[:, 7] *= 1e-12
    view = View(vectors, FIT, TUNE, SCORED, 0)
    for name in ("logistic", "mlp", "boosting"):
        assert reached(name, view, codes) > 0.8


def test_depth_and_width_are_arguments() -> None:
    view, codes = world(shift=3.0)
    deep = Perceptron(depth=3, width=50)
    candidate = deep.fit(view, Secret(view, codes, 2), deep.grid[0])
    assert candidate.settings == {"depth": 3, "width": 50}
    assert balanced_accuracy(codes[SCORED], candidate.scored.argmax(axis=1)) > 0.85


def made_up(quality: dict[str, float], rows: int) -> Result:
    nothing = Candidate({}, np.zeros((rows, 2)), np.zeros((0, 2)))
    return Result(dict.fromkeys(quality, nothing), quality, rows)


def test_the_committee_is_chosen_unless_clearly_beaten() -> None:
    assert made_up({"a": 0.71, "b": 0.6, COMMITTEE: 0.7}, rows=100).strongest == COMMITTEE
    assert made_up({"a": 0.90, "b": 0.6, COMMITTEE: 0.7}, rows=100).strongest == "a"
    assert made_up({"a": 0.6, "b": 0.8, COMMITTEE: 0.7}, rows=100).family == "b"
    assert made_up({"a": 0.6}, rows=100).strongest == "a"


def test_few_labels() -> None:
    view, codes = world(shift=4.0)
    secret = Secret(view, codes, 2)
    few, more = (few_labels(view, secret, count) for count in (2, 50))
    assert few is not None and more is not None
    assert balanced_accuracy(codes[SCORED], more.argmax(axis=1)) > 0.9
    assert few_labels(view, secret, 10_000) is None


def test_a_task_probe_is_not_balanced() -> None:
    view, codes = world(shift=0.0, share=0.2)
    task = Secret(view, codes, 2, balanced=False)
    assert (task.weights.fit == 1).all()
    constant = np.tile([1.0, 0.0], (len(TUNE), 1))
    assert task.quality(constant) == pytest.approx((codes[TUNE] == 0).mean())
    assert Secret(view, codes, 2).quality(constant) == 0.5


def test_unknown_families_are_said() -> None:
    with pytest.raises(CapeletError, match="did you mean 'kernel'"):
        families(["kernl"])


# ---- what is prepared, by hand -------------------------------------------------------------------


def crooked(rows: int = 300, width: int = 5, seed: int = 4) -> View:
    """Columns of unlike scales and means; one is dead, one has a far outlier."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(rows, width)) * [1.0, 20.0, 0.05, 1.0, 3.0] + [0, 5, -1, 2, 0]
    vectors[:, 3] = 2.0
    vectors[rows - 1, 4] = 1e4
    cut = rows // 2
    return View(vectors, np.arange(cut), np.arange(cut, cut + 50), np.arange(cut + 50, rows), seed)


def test_standard_coordinates_are_divided_by_their_deviation() -> None:
    """By σ, not multiplied by it: a coordinate of deviation 20 and one of 0.05 weigh alike."""
    view = crooked()
    fit = view.vectors.fit.astype(np.float64)
    mean, deviation = fit.mean(axis=0), fit.std(axis=0)
    for part, raw in zip(view.standard, view.vectors, strict=True):
        wanted = np.clip((raw - mean) / np.where(deviation > 1e-6, deviation, np.inf), -30, 30)
        np.testing.assert_allclose(part, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(view.standard.fit.std(axis=0), [1, 1, 1, 0, 1], atol=1e-3)
    assert (view.standard.scored[:, 3] == 0).all() and view.standard.scored.max() == 30.0
    assert view.standard.fit.dtype == np.float32


def test_principal_axes_are_a_turn_and_the_strongest_comes_first() -> None:
    view = crooked()
    gram = view.principal.fit.T @ view.principal.fit
    np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-2)
    assert (np.diff(np.diag(gram)) <= 1e-3).all()
    for turned, plain in zip(view.principal, view.standard, strict=True):
        lengths = [np.linalg.norm(part, axis=1) for part in (turned, plain)]
        np.testing.assert_allclose(*lengths, rtol=1e-4)


def test_levels_count_the_quantiles_below() -> None:
    view = crooked()
    edges = np.quantile(view.principal.fit, np.arange(1, 128) / 128, axis=0)
    for levels, axes in zip(view.levels, view.principal, strict=True):
        wanted = (axes[:, None, :] > edges[None]).sum(axis=1)
        assert (levels == wanted).mean() > 0.999 and np.abs(levels - wanted).max() <= 1
    assert view.levels.fit.min() == 0 and view.levels.fit.max() == 127
    wide = View(np.random.default_rng(0).normal(size=(90, 40)), *np.split(np.arange(90), 3), 0)
    assert wide.levels.fit.shape == (30, 32)


def test_units_neighbours_and_distances_are_those_of_brute_force() -> None:
    view = crooked()
    mean = view.vectors.fit.mean(axis=0)
    for unit, raw in zip(view.unit, view.vectors, strict=True):
        wanted = (raw - mean) / np.linalg.norm(raw - mean, axis=1, keepdims=True)
        np.testing.assert_allclose(unit, wanted, rtol=1e-4, atol=1e-5)
    for unit, (places, cosines) in zip(view.unit[1:], view.neighbours[1:], strict=True):
        similar = unit @ view.unit.fit.T
        assert places.shape == (len(unit), 64)
        np.testing.assert_allclose(cosines, -np.sort(-similar, axis=1)[:, :64], atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(similar, places, 1), cosines, atol=1e-5)
    assert view.neighbours.fit is None
    marks = view.unit.fit[view.landmarks]
    assert sorted(view.landmarks.tolist()) == list(range(150))
    exact = ((view.unit.tune[:, None] - marks[None]) ** 2).sum(axis=2)
    every = ((view.unit.fit[:, None] - marks[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(view.distances.tune, exact / np.median(every), rtol=1e-3, atol=1e-4)
    few = View(np.eye(6), np.arange(3), np.arange(3, 5), np.arange(5, 6), 0)
    assert few.neighbours.tune[0].shape == (2, 3)


def test_kernel_features_multiply_to_the_kernel() -> None:
    view = crooked()
    for width in (0.5, 1.0):
        features = view.kernel(width)
        marks = features.fit[view.landmarks]
        wanted = np.exp(-view.distances.fit / width)
        # Where every row is a landmark the Nyström kernel is the kernel, up to the ridge.
        np.testing.assert_allclose(features.fit @ marks.T, wanted, atol=2e-3)
        assert view.kernel(width) is features
    assert not np.allclose(view.kernel(0.5).tune, view.kernel(1.0).tune)


def test_landmarks_are_a_thousand_and_differ_by_seed() -> None:
    vectors = np.random.default_rng(0).normal(size=(1500, 2))
    one, other = (View(vectors, np.arange(1400), FIT[:9], FIT[:9], seed) for seed in (0, 1))
    assert len(set(one.landmarks.tolist())) == 1024 == len(one.landmarks)
    assert one.landmarks.tolist() != other.landmarks.tolist()
    near = View(vectors, np.arange(1400), np.arange(1300), FIT[:9], 0)
    places, cosines = near.neighbours.tune  # more queries than one block
    similar = near.unit.tune @ near.unit.fit.T
    np.testing.assert_allclose(cosines[:, 0], similar.max(axis=1), atol=1e-6)
    assert (cosines[:, 0] >= cosines[:, 1]).all() and places.shape == (1300, 64)


# ---- weights and quality -------------------------------------------------------------------------


def test_every_class_has_the_same_total_weight() -> None:
    view = View(np.zeros((10, 1)), np.arange(6), np.arange(6, 9), np.arange(9, 10), 0)
    codes = np.array([0, 0, 0, 0, 1, 1, 0, 1, 1, 0])
    secret = Secret(view, codes, 3)
    assert secret.weights.fit == pytest.approx([0.75] * 4 + [1.5] * 2)
    assert secret.weights.tune == pytest.approx([1.5, 0.75, 0.75])
    scores = np.eye(3)[[0, 0, 1]]
    assert secret.quality(scores) == pytest.approx((1.0 + 0.5) / 2)
    task = Secret(view, codes, 3, balanced=False)
    assert task.quality(scores) == pytest.approx(2 / 3) and (task.weights.tune == 1).all()
    empty = View(np.zeros((3, 1)), np.arange(3), np.arange(0), np.arange(0), 0)
    assert Secret(empty, codes, 2).weights.tune.shape == (0,)


# ---- families against their definitions ----------------------------------------------------------


def small(seed: int = 0, classes: int = 3) -> tuple[View, Secret]:
    random = np.random.default_rng(seed)
    codes = random.integers(0, classes, 160)
    vectors = random.normal(size=(160, 6))
    vectors[np.arange(160), codes] += 1.5
    view = View(vectors, np.arange(90), np.arange(90, 120), np.arange(120, 160), seed)
    return view, Secret(view, codes, classes)


@pytest.mark.parametrize("strength", [1e-3, 1e-1])
def test_logistic_is_weighted_logistic_regression(strength: float) -> None:
    from sklearn.linear_model import LogisticRegression

    view, secret = small()
    model = LogisticRegression(C=strength, max_iter=2000, tol=1e-3)
    model.fit(view.standard.fit, secret.codes.fit, secret.weights.fit)
    candidate = FAMILIES["logistic"].fit(view, secret, {"C": strength})
    np.testing.assert_allclose(candidate.scored, model.predict_proba(view.standard.scored))
    np.testing.assert_allclose(candidate.tune, model.predict_proba(view.standard.tune))


def test_boosting_is_boosted_trees_on_levels() -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    view, secret = small()
    model = HistGradientBoostingClassifier(
        max_iter=7, max_leaf_nodes=15, early_stopping=False, random_state=0
    )
    model.fit(view.levels.fit, secret.codes.fit, secret.weights.fit)
    candidate = FAMILIES["boosting"].fit(view, secret, {"rounds": 7})
    np.testing.assert_allclose(candidate.scored, model.predict_proba(view.levels.scored))


@pytest.mark.parametrize("count", [1, 5])
def test_neighbours_vote_by_nearness_and_rarity(count: int) -> None:
    view, secret = small()
    candidate = FAMILIES["knn"].fit(view, secret, {"k": count})
    similar = view.unit.scored @ view.unit.fit.T
    for row, cosines in enumerate(similar):
        near = np.argsort(-cosines)[:count]
        votes = np.zeros(3)
        for place in near:
            weight = secret.weights.fit[place] * np.exp(4 * (cosines[place] - cosines[near[0]]))
            votes[secret.codes.fit[place]] += weight
        np.testing.assert_allclose(candidate.scored[row], votes / votes.sum(), rtol=1e-4)


def test_kernel_is_weighted_ridge_regression_on_one_hot_classes() -> None:
    view, secret = small()
    settings = {"width": 1.0, "penalty": 1e-2}
    features, weights = view.kernel(1.0), secret.weights.fit / len(secret.weights.fit)
    target = np.eye(3)[secret.codes.fit]
    level = weights @ target
    left = features.fit.T @ (weights[:, None] * features.fit) + 1e-2 * np.eye(90)
    slope = np.linalg.solve(left, features.fit.T @ (weights[:, None] * (target - level)))
    raw = np.clip(features.scored @ slope + level, 1e-6, None)
    candidate = FAMILIES["kernel"].fit(view, secret, settings)
    np.testing.assert_allclose(
        candidate.scored, raw / raw.sum(axis=1, keepdims=True), rtol=1e-3, atol=1e-5
    )


def epochs_of(view: View, secret: Secret, family: Perceptron) -> list[tuple[float, np.ndarray]]:
    """The tune loss and the scores after each epoch, as scikit-learn trains the same network."""
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(
        (family.width,) * family.depth, batch_size=90, alpha=1e-2, random_state=view.seed
    )
    history = []
    for _ in range(family.epochs):
        model.partial_fit(
            view.standard.fit, secret.codes.fit, secret.weights.fit, classes=np.arange(3)
        )
        tune = model.predict_proba(view.standard.tune)
        right = tune[np.arange(len(tune)), secret.codes.tune]
        loss = float(np.mean(-np.log(np.maximum(right, 1e-12)) * secret.weights.tune))
        history.append((loss, model.predict_proba(view.standard.scored)))
    return history


def test_the_perceptron_gives_back_its_best_epoch() -> None:
    """Losses on the held-back rows rise in the end; what scored then is not what is released."""
    random = np.random.default_rng(1)
    codes = random.integers(0, 3, 160)  # nothing to learn: the network can only learn by heart
    view = View(
        random.normal(size=(160, 40)), np.arange(90), np.arange(90, 120), np.arange(120, 160), 1
    )
    secret = Secret(view, codes, 3)
    family = Perceptron(width=100, epochs=40, patience=3)
    history = epochs_of(view, secret, family)
    losses = [loss for loss, _ in history]
    stop = next(
        (n for n in range(3, 40) if min(losses[: n - 2]) <= min(losses[n - 2 : n + 1]) and n >= 3),
        39,
    )
    best = int(np.argmin(losses[: stop + 1]))
    assert best == stop - 3 < 36  # it stopped, three epochs after the best
    candidate = family.fit(view, secret, family.grid[0])
    np.testing.assert_allclose(candidate.scored, history[best][1], rtol=1e-9)
    assert not np.allclose(candidate.scored, history[stop][1], rtol=1e-6)
    short = Perceptron(width=100, epochs=1)
    np.testing.assert_allclose(short.fit(view, secret, short.grid[0]).scored, history[0][1])


def test_the_grids_are_all_that_is_tried() -> None:
    assert FAMILIES["logistic"].grid == [{"C": 1e-4}, {"C": 1e-3}, {"C": 1e-2}, {"C": 1e-1}]
    assert FAMILIES["mlp"].grid == [{"depth": 1, "width": 200}]
    assert FAMILIES["boosting"].grid == [{"rounds": 80}]
    assert FAMILIES["knn"].grid == [{"k": 5}, {"k": 15}, {"k": 50}]
    assert [tuple(item.values()) for item in FAMILIES["kernel"].grid] == [
        (width, penalty) for width in (0.5, 1.0) for penalty in (1e-4, 1e-3, 1e-2)
    ]
    assert families() == list(FAMILIES.values())
    assert families(["knn", "mlp"]) == [FAMILIES["knn"], FAMILIES["mlp"]]
    assert (Perceptron().epochs, Perceptron().patience) == (30, 3)


# ---- choosing ------------------------------------------------------------------------------------


class Fixed:
    """A family that says what it is told: each setting is right on so many tune rows."""

    def __init__(self, name: str, *right: int) -> None:
        self.name = name
        self.grid = [{"right": number, "place": place} for place, number in enumerate(right)]

    def fit(self, view: View, secret: Secret, settings: dict[str, int]) -> Candidate:
        tune = np.eye(2)[1 - secret.codes.tune]
        tune[: settings["right"]] = tune[: settings["right"], ::-1]
        scored = np.full((len(secret.codes.scored), 2), 0.5)
        scored[:, 0] += settings["right"] / 100
        return Candidate(settings, tune, scored)


def test_the_best_setting_is_chosen_on_held_back_rows_and_the_first_of_equals() -> None:
    view = View(np.zeros((30, 1)), np.arange(10), np.arange(10, 20), np.arange(20, 30), 0)
    task = Secret(view, np.arange(30) % 2, 2, balanced=False)
    result = attack(view, task, [Fixed("a", 3, 8, 8, 2), Fixed("b", 5, 4)])  # type: ignore[list-item]
    assert result.best["a"].settings == {"right": 8, "place": 1}
    assert result.best["b"].settings == {"right": 5, "place": 0}
    assert result.quality["a"] == pytest.approx(0.8) and result.rows == 10
    committee = result.best[COMMITTEE]
    assert committee.settings == {"members": ["a", "b"]}
    np.testing.assert_allclose(committee.scored[:, 0], 0.5 + 0.065)
    members = (result.best["a"].tune, result.best["b"].tune)
    np.testing.assert_allclose(committee.tune, (members[0] + members[1]) / 2)
    alone = attack(view, task, [Fixed("a", 3)])  # type: ignore[list-item]
    assert set(alone.best) == {"a"} and alone.strongest == "a"


def test_a_family_must_beat_the_committee_by_more_than_a_standard_error() -> None:
    error = np.sqrt(0.7 * 0.3 / 100)
    for above, winner in ((0.99 * error, COMMITTEE), (1.01 * error, "a")):
        assert made_up({"a": 0.7 + above, COMMITTEE: 0.7}, rows=100).strongest == winner
    assert made_up({"a": 0.7, COMMITTEE: 0.7}, rows=0).strongest == COMMITTEE


def test_few_labels_are_so_many_of_each_class() -> None:
    from sklearn.linear_model import LogisticRegression

    view, secret = small()
    counts = np.bincount(secret.codes.fit)
    least = int(counts.min())
    assert few_labels(view, secret, least) is not None
    assert few_labels(view, secret, least + 1) is None
    random = np.random.default_rng([view.seed, 4])
    places = np.concatenate(
        [random.permutation(np.flatnonzero(secret.codes.fit == code))[:4] for code in range(3)]
    )
    model = LogisticRegression(C=1e-2, max_iter=2000, tol=1e-3)
    model.fit(view.standard.fit[places], secret.codes.fit[places])
    np.testing.assert_allclose(
        few_labels(view, secret, 4), model.predict_proba(view.standard.scored)
    )
