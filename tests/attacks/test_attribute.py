"""Every attacker finds a planted leak, finds nothing in noise, and looks at no victim."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import capelet
from capelet.attacks import attribute, views
from capelet.attacks import families as family_module
from capelet.attacks.attribute import (
    COMMITTEE,
    FAMILIES,
    Candidate,
    Draws,
    Result,
    Secret,
    View,
    attack,
    families,
    few_labels,
    paired_gain,
    race,
)
from capelet.attacks.families import Perceptron, fit_quietly
from capelet.attacks.views import folds_of
from capelet.errors import CapeletError
from capelet.findings.metrics import balanced_accuracy
from capelet.reports.formatting import attacker_name

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


def test_a_family_stands_in_the_table_under_its_own_name() -> None:
    assert [family.name for family in FAMILIES.values()] == list(FAMILIES)


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
    np.testing.assert_array_equal(
        view.kernel("unit", 1.0, "tune"), other.kernel("unit", 1.0, "tune")
    )
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
    candidate = deep.fit(view, Secret(view, codes, 2), deep.grid[-1])
    assert candidate.settings == {"input": "standard", "depth": 3, "width": 50, "epochs": 10}
    assert balanced_accuracy(codes[SCORED], candidate.scored.argmax(axis=1)) > 0.85


def made_up(quality: dict[str, float], lead_error: float = 0.0) -> Result:
    nothing = Candidate({}, np.zeros((0, 2)), np.zeros((0, 2)))
    best = dict.fromkeys(quality, nothing)
    return Result(best, quality, world(shift=1.0)[0], {}, lead_error)


def test_the_quality_in_cross_validation_decides_alone() -> None:
    assert made_up({"a": 0.71, "b": 0.6, COMMITTEE: 0.7}).strongest == "a"
    assert made_up({"a": 0.71, "b": 0.6, COMMITTEE: 0.72}).strongest == COMMITTEE
    assert made_up({"a": 0.6, "b": 0.8, COMMITTEE: 0.9}).family == "b"
    assert made_up({"a": 0.6}).strongest == "a"
    assert made_up({"a": 0.7, COMMITTEE: 0.7}).strongest == COMMITTEE  # of equals


def test_a_lead_over_the_committee_must_be_clear() -> None:
    assert made_up({"a": 0.71, COMMITTEE: 0.7}, 0.01).strongest == COMMITTEE
    assert made_up({"a": 0.73, COMMITTEE: 0.7}, 0.01).strongest == "a"
    # What is measured: on the rows of both, the standard error of the difference of their hits.
    view, codes = world(shift=0.7)
    secret = Secret(view, codes, 2)
    result = attack(view, secret, families(["kernel", "knn", "mlp"]))
    one, committee = (result.out_of_fold[name] for name in (result.family, COMMITTEE))
    assert result.lead_error == pytest.approx(paired_gain(one, committee, codes)[1], rel=1e-6)
    assert result.lead_error > 0
    assert attack(view, secret, families(["knn"])).lead_error == 0


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


def test_a_coordinate_is_dead_by_its_own_size() -> None:
    """Whatever the unit it is measured in; one that varies by rounding alone is 0."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(300, 5)) * [1e12, 1e-12, 1.0, 1e-7, 0] + [0, 0, 0, 1.0, 0]
    vectors[-2:, 2] = 1e4, -1e4
    view = View(vectors.astype(np.float32), *np.split(np.arange(300), [200, 250]), 0)
    np.testing.assert_allclose(view.standard.fit.std(axis=0), [1, 1, 1, 0, 0], atol=1e-3)
    assert view.standard.scored[-2:, 2].tolist() == [30, -30]  # far out, a victim is cut
    np.testing.assert_allclose(view.standard.fit.mean(axis=0), 0, atol=1e-3)
    # All rows are one point: no median to measure distances by, and nobody divides by 0.
    same = View(np.ones((9, 2)), *np.split(np.arange(9), [5, 7]), 0)
    assert (same.distances("unit", "tune") == 0).all() and (same.unit.fit == 0).all()


def test_inputs_of_length_one_are_brought_to_coordinates_of_one() -> None:
    view = crooked()
    for part, unit in zip(view.inputs("unit"), view.unit, strict=True):
        np.testing.assert_allclose(part, unit * np.sqrt(5), rtol=1e-6)
    assert view.inputs("unit") is view.inputs("unit")
    assert view.inputs("standard") is view.standard


def test_rows_to_tune_on_join_those_to_fit_on() -> None:
    view = crooked()
    whole = view.joined()
    assert whole.rows.fit.tolist() == list(range(200)) and not len(whole.rows.tune)
    assert whole.rows.scored.tolist() == view.rows.scored.tolist()
    assert whole.seed == view.seed and whole.joined() is whole
    assert whole.units.tolist() == list(range(200))
    people = View(np.zeros((4, 1)), np.array([2, 3]), np.array([1]), np.array([0]), 0, FIT[5:9])
    assert people.units.tolist() == [7, 8] and people.joined().units.tolist() == [7, 8, 6]


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
    for unit, (places, cosines) in zip(view.unit[1:], view.neighbours("unit")[1:], strict=True):
        similar = unit @ view.unit.fit.T
        assert places.shape == (len(unit), 100)
        np.testing.assert_allclose(cosines, -np.sort(-similar, axis=1)[:, :100], atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(similar, places, 1), cosines, atol=1e-5)
    assert view.neighbours("unit").fit is None
    assert view.landmarks.tolist() == list(range(150))
    for name, inputs in (("unit", view.unit), ("standard", view.standard)):
        exact, every = (
            ((part[:, None].astype(float) - inputs.fit[None]) ** 2).sum(axis=2)
            for part in (inputs.tune, inputs.fit)
        )
        wanted = exact / np.median(every)
        np.testing.assert_allclose(view.distances(name, "tune"), wanted, rtol=1e-3, atol=1e-3)
    few = View(np.eye(6), np.arange(3), np.arange(3, 5), np.arange(5, 6), 0)
    assert few.neighbours("unit").tune[0].shape == (2, 3)


def test_neighbours_by_standardised_cosine() -> None:
    view = crooked()
    rows = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in view.standard]
    _, cosines = view.neighbours("standard").tune
    np.testing.assert_allclose(cosines[:, 0], (rows[1] @ rows[0].T).max(axis=1), atol=1e-5)


def test_among_many_rows_neighbours_are_looked_for_in_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "MOST_BASE", 40)
    view = crooked()
    places, cosines = view.neighbours("unit").scored
    assert places.shape == (100, 40) and len(set(places.ravel().tolist())) == 40
    similar = view.unit.scored @ view.unit.fit.T
    np.testing.assert_allclose(np.take_along_axis(similar, places, 1), cosines, atol=1e-5)


def test_kernels_are_exact_where_rows_are_few() -> None:
    view = crooked()
    for width in (0.5, 1.0):
        kernel = view.kernel("unit", width)
        np.testing.assert_allclose(kernel, np.exp(-view.distances("unit") / width), rtol=1e-5)
        assert view.kernel("unit", width) is kernel
        features = view.features("unit", width)
        jittered = kernel + 1e-4 * np.eye(len(kernel))
        nystroem = kernel @ np.linalg.solve(jittered, kernel)
        np.testing.assert_allclose(features @ features.T, nystroem, atol=2e-5)
        # Where every row is a landmark the Nyström kernel is the kernel, up to the jitter.
        np.testing.assert_allclose(features @ features.T, kernel, atol=2e-3)
    assert not np.allclose(view.kernel("unit", 1.0, "tune"), view.kernel("standard", 1.0, "tune"))


def test_landmarks_of_many_rows_are_a_thousand_and_differ_by_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "MOST_EXACT", 1300)
    vectors = np.random.default_rng(0).normal(size=(1500, 2))
    one, other = (View(vectors, np.arange(1400), FIT[:9], FIT[:9], seed) for seed in (0, 1))
    assert not one.is_exact and len(set(one.landmarks.tolist())) == 1024 == len(one.landmarks)
    assert one.landmarks.tolist() != other.landmarks.tolist()
    near = View(vectors, np.arange(1300), np.arange(1300), FIT[:9], 0)
    assert near.is_exact
    places, cosines = near.neighbours("unit").tune  # more queries than one block
    similar = near.unit.tune @ near.unit.fit.T
    np.testing.assert_allclose(cosines[:, 0], similar.max(axis=1), atol=1e-6)
    assert (cosines[:, 0] >= cosines[:, 1]).all() and places.shape == (1300, 100)


# ---- folds ---------------------------------------------------------------------------------------


def test_folds_keep_people_together_and_classes_even() -> None:
    random = np.random.default_rng(0)
    units = random.integers(0, 60, 400)
    codes = (units % 3 == 0).astype(np.intp)
    view = View(np.zeros((400, 2)), np.arange(300), np.arange(0), np.arange(300, 400), 0, units)
    folds = folds_of(view, Secret(view, codes, 2))
    assert len(folds) == 5
    outside = np.concatenate([fold.outside for fold in folds])
    assert sorted(outside.tolist()) == list(range(300))
    for fold in folds:
        assert sorted([*fold.inside, *fold.outside]) == list(range(300))
        assert not set(units[fold.rows.fit]) & set(units[fold.rows.tune])
        assert codes[fold.rows.tune].mean() == pytest.approx(1 / 3, abs=0.08)
        assert len(fold.outside) == pytest.approx(60, abs=15)
    # The control: rows without persons part those that belong together.
    alone = View(np.zeros((400, 2)), np.arange(300), np.arange(0), np.arange(300, 400), 0)
    fold = folds_of(alone, Secret(alone, codes, 2))[0]
    assert set(units[fold.rows.fit]) & set(units[fold.rows.tune])


def test_people_are_dealt_there_and_back_by_class_and_size() -> None:
    """Sizes 6 to 1 in three folds: 0 1 2 2 1 0, so that each has seven rows."""
    sizes = [6, 5, 4, 3, 2, 1]
    units = np.repeat(np.arange(6), sizes)
    place = views._deal(units, np.zeros(21, dtype=np.intp), 3, 0)
    assert place.tolist() == np.repeat([0, 1, 2, 2, 1, 0], sizes).tolist()
    # Classes come one after the other; a person of two classes counts as the commoner one.
    codes = (units % 2 == 0).astype(np.intp)
    codes[0] = 0
    dealt = views._deal(units, codes, 4, 0)  # in the order 1, 3, 5, then 0, 2, 4
    assert dealt.tolist() == np.repeat([3, 0, 3, 1, 2, 2], sizes).tolist()
    both = np.array([1, 0, 0, 1, 0, 0])  # the first and second person: of equals the first class
    assert views._deal(np.array([0, 0, 1, 1, 2, 3]), both, 4, 0)[[0, 2]].max() <= 1
    assert views._deal(np.arange(3), np.zeros(3, dtype=np.intp), 5, 0).max() == 2
    seeds = [views._deal(np.arange(40), np.zeros(40, dtype=np.intp), 5, seed) for seed in (0, 1)]
    assert np.bincount(seeds[0]).tolist() == [8] * 5 and (seeds[0] != seeds[1]).any()


def test_a_fold_is_rows_of_the_whole_view() -> None:
    view = crooked()
    fold = view.fold(np.arange(100), np.arange(100, 150))
    for name in ("vectors", "standard", "principal", "levels", "unit"):
        whole, part = getattr(view, name), getattr(fold, name)
        np.testing.assert_array_equal(part.fit, whole.fit[:100])
        np.testing.assert_array_equal(part.tune, whole.fit[100:])
        assert len(part.scored) == 0
    kernel = view.kernel("unit", 1.0)
    np.testing.assert_array_equal(fold.kernel("unit", 1.0), kernel[:100, :100])
    np.testing.assert_array_equal(fold.kernel("unit", 1.0, "tune"), kernel[100:, :100])
    assert fold.kernel("unit", 1.0, "scored").shape == (0, 100)
    assert len(fold.rows.scored) == 0 and fold.is_exact
    places, _ = fold.neighbours("unit").tune
    assert places.max() < 100  # nobody who is held back is a neighbour


def test_a_fold_of_many_rows_has_all_landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MOST_EXACT", 100)
    monkeypatch.setattr(views, "LANDMARKS", 40)
    view = crooked()
    fold = view.fold(np.arange(100), np.arange(100, 150))
    assert not fold.is_exact
    for part, rows in (("fit", slice(0, 100)), ("tune", slice(100, 150)), ("scored", slice(0))):
        kernel, features = fold.kernel("unit", 1.0, part), fold.features("unit", 1.0, part)
        np.testing.assert_array_equal(kernel, view.kernel("unit", 1.0)[rows])
        np.testing.assert_array_equal(features, view.features("unit", 1.0)[rows])
        assert kernel.shape[1] == features.shape[1] == 40


def test_few_people_make_few_folds_and_one_person_is_cut_by_rows() -> None:
    codes = np.array([0, 1, 0, 1, 0, 1])
    for units, count in (([0, 0, 1, 1, 2, 2], 3), ([0] * 6, 5)):
        view = View(np.eye(6), np.arange(6), np.arange(0), np.arange(0), 0, np.array(units))
        assert len(folds_of(view, Secret(view, codes, 2))) == count


# ---- draws of noise ------------------------------------------------------------------------------


def noisy(texts: int = 240, seed: int = 0) -> tuple[View, Secret, np.ndarray]:
    """A secret in one coordinate, and much noise on all."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 2, texts + 800)
    clean = random.normal(size=(texts + 800, 30)) * 0.3
    clean[:, 0] += 3 * codes
    vectors = clean + random.normal(size=clean.shape) * 1.5
    own = np.arange(texts)
    view = View(vectors, own, own[:0], np.arange(texts, texts + 800), seed)
    return view, Secret(view, codes, 2), clean


def test_draws_of_a_text_share_a_fold_and_only_the_first_is_judged() -> None:
    view, secret, clean = noisy()
    wider = view.with_draws([clean[:240], clean[:240]])
    assert wider.draws == 3 and wider.rows.fit.tolist() == list(range(240)) * 3
    np.testing.assert_array_equal(wider.vectors.fit[240:480], clean[:240].astype(np.float32))
    np.testing.assert_array_equal(wider.vectors.scored, view.vectors.scored)
    for fold in folds_of(wider, secret.on(wider)):
        assert fold.outside.max() < 240
        assert not set(fold.rows.fit.tolist()) & set(fold.rows.tune.tolist())
        assert len(fold.inside) == 3 * (240 - len(fold.outside))


def test_more_draws_are_taken_while_they_help() -> None:
    view, secret, clean = noisy()
    random = np.random.default_rng(5)
    calls: list[int] = []

    def again(rows: np.ndarray) -> np.ndarray:
        calls.append(len(rows))
        return clean[rows] + random.normal(size=(len(rows), 30)) * 1.5

    names = families(["logistic", "kernel"])
    once = attack(view, secret, names)
    often = attack(view, secret, names, Draws(view, again))
    assert once.view.draws == 1 and often.view.draws > 1
    assert often.quality[often.strongest] >= once.quality[once.strongest]
    truth = secret.codes.scored

    def score(result: Result) -> float:
        return balanced_accuracy(truth, result.best[result.strongest].scored.argmax(axis=1))

    assert score(often) > score(once) - 0.01
    assert set(calls) == {240} and len(calls) <= 15


def test_draws_have_a_bound_and_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    view, _, clean = noisy()
    made = Draws(view, lambda rows: clean[rows].copy())
    assert made.most == 16 and made.first(2)[0] is made.first(3)[0]
    monkeypatch.setattr("capelet.attacks.attribute.MOST_ROWS", 800)
    assert Draws(view, lambda rows: clean[rows]).most == 3  # 240 texts, 800 rows
    assert Draws(view, lambda rows: clean[rows], most=2).most == 2


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
    candidate = FAMILIES["logistic"].fit(view, secret, {"input": "standard", "C": strength})
    np.testing.assert_allclose(candidate.scored, model.predict_proba(view.standard.scored))
    np.testing.assert_allclose(candidate.tune, model.predict_proba(view.standard.tune))
    model.fit(view.unit.fit * np.sqrt(np.float32(6)), secret.codes.fit, secret.weights.fit)
    candidate = FAMILIES["logistic"].fit(view, secret, {"input": "unit", "C": strength})
    wanted = model.predict_proba(view.unit.scored * np.sqrt(np.float32(6)))
    np.testing.assert_allclose(candidate.scored, wanted, rtol=1e-4)


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
    candidate = FAMILIES["knn"].fit(view, secret, {"input": "unit", "k": count})
    similar = view.unit.scored @ view.unit.fit.T
    for row, cosines in enumerate(similar):
        near = np.argsort(-cosines)[:count]
        votes = np.zeros(3)
        for place in near:
            weight = secret.weights.fit[place] * np.exp(4 * (cosines[place] - cosines[near[0]]))
            votes[secret.codes.fit[place]] += weight
        np.testing.assert_allclose(candidate.scored[row], votes / votes.sum(), rtol=1e-4)


def ridge_by_hand(features: np.ndarray, secret: Secret, part: np.ndarray) -> np.ndarray:
    weights = secret.weights.fit / len(secret.weights.fit)
    target = np.eye(3)[secret.codes.fit]
    level = weights @ target
    left = features.T @ (weights[:, None] * features) + 1e-2 * np.eye(features.shape[1])
    slope = np.linalg.solve(left, features.T @ (weights[:, None] * (target - level)))
    odds = np.exp(4 * (part @ slope + level))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("inputs", ["unit", "standard"])
def test_kernel_is_weighted_ridge_regression_on_one_hot_classes(
    inputs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same function whether it is solved in kernels or, of many rows, in their features."""
    settings = {"input": inputs, "width": 1.0, "penalty": 1e-2}
    view, secret = small()
    features = [view.features(inputs, 1.0, part).astype(float) for part in ("fit", "scored")]
    wanted = ridge_by_hand(features[0], secret, features[1])
    exact = FAMILIES["kernel"].fit(view, secret, settings)
    np.testing.assert_allclose(exact.scored, wanted, rtol=2e-3, atol=1e-3)
    monkeypatch.setattr(views, "MOST_EXACT", 10)
    many = FAMILIES["kernel"].fit(view, secret, settings)
    np.testing.assert_allclose(many.scored, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("most_exact", [3500, 10])
def test_a_fold_of_the_kernel_is_fitted_without_the_rows_it_holds_back(
    most_exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of the rows outside are taken off: what they say must be gone."""
    monkeypatch.setattr(views, "MOST_EXACT", most_exact)
    view, secret = small()
    fold = folds_of(view, secret)[0]
    settings = {"input": "unit", "width": 1.0, "penalty": 1e-2}
    part = secret.on_fold(fold)
    candidate = FAMILIES["kernel"].fit(fold, part, settings)
    codes = np.concatenate(secret.codes)
    codes[view.rows.fit[fold.outside]] = 2 - codes[view.rows.fit[fold.outside]]
    lie = Secret(view, codes, 3, balanced=False)
    lie.weights = secret.weights
    other = FAMILIES["kernel"].fit(fold, lie.on_fold(fold), settings)
    np.testing.assert_allclose(candidate.tune, other.tune, rtol=1e-4, atol=1e-5)


def test_products_of_a_fold_are_those_of_its_own_rows() -> None:
    """FᵀWF directly, by taking off the rows outside, and of a secret that knows of no whole."""
    view, secret = small()
    fold = folds_of(view, secret)[1]
    assert secret.on_fold(fold).whole is secret and secret.on(fold).whole is None
    for target in (secret.on_fold(fold), secret.on(fold)):
        features = fold.features("unit", 0.5).astype(float)
        wanted = features.T @ (target.weights.fit[:, None] * features)
        np.testing.assert_allclose(
            family_module._gram(fold, target, "unit", 0.5), wanted, rtol=1e-3, atol=1e-3
        )
    features = view.features("unit", 0.5).astype(float)
    wanted = features.T @ (secret.weights.fit[:, None] * features)
    gram = family_module._gram(view, secret, "unit", 0.5)
    np.testing.assert_allclose(gram, wanted, rtol=1e-3, atol=1e-3)
    assert family_module._gram(view, secret, "unit", 0.5) is gram


def test_a_path_is_trained_once_for_all_shorter_lengths() -> None:
    secret = small()[1]
    trainings: list[list[int]] = []

    def train(lengths: Sequence[int]) -> dict[int, Candidate]:
        trainings.append(list(lengths))
        return {n: Candidate({"n": n}, np.zeros((0, 2)), np.zeros((0, 2))) for n in lengths}

    for length in (10, 3, 5, 20):
        path = family_module._on_path(secret, ("run",), length, (5, 10, 3, 30), train)
        assert path.settings == {"n": length}
    assert trainings == [[3, 5, 10], [3, 5, 10, 20]]


def epochs_of(view: View, secret: Secret, epochs: int) -> list[np.ndarray]:
    """The scores after each epoch, as scikit-learn trains the same network."""
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier((128,), batch_size=90, alpha=1e-2, random_state=view.seed)
    history = []
    for _ in range(epochs):
        model.partial_fit(
            view.standard.fit, secret.codes.fit, secret.weights.fit, classes=np.arange(3)
        )
        history.append(model.predict_proba(view.standard.scored))
    return history


def test_the_perceptron_is_trained_for_as_many_epochs_as_asked() -> None:
    view, secret = small()
    history = epochs_of(view, secret, 10)
    family = FAMILIES["mlp"]
    for settings in reversed(family.grid):
        if settings["input"] == "standard":
            candidate = family.fit(view, secret, settings)
            assert candidate.settings == settings
            np.testing.assert_allclose(candidate.scored, history[settings["epochs"] - 1])


@pytest.mark.parametrize("name", ["mlp", "boosting"])
def test_shorter_trainings_come_of_the_longest(name: str) -> None:
    """Asked in either order the answers agree; the longest first trains once."""
    family = FAMILIES[name]
    view, secret = small()
    again = Secret(view, np.concatenate(secret.codes), 3)
    grid = [item for item in family.grid if item.get("input", "unit") == "unit"]
    upwards = [family.fit(view, secret, settings).scored for settings in grid]
    downwards = [family.fit(view, again, settings).scored for settings in reversed(grid)]
    for one, other in zip(upwards, reversed(downwards), strict=True):
        np.testing.assert_allclose(one, other)
    assert not np.allclose(upwards[0], upwards[-1])


def test_the_grids_are_all_that_is_tried() -> None:
    inputs = ("unit", "standard")
    grids = {name: [tuple(item.values()) for item in FAMILIES[name].grid] for name in FAMILIES}
    strengths = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    assert grids["logistic"] == [(name, strength) for name in inputs for strength in strengths]
    assert grids["mlp"] == [(name, 1, 128, epochs) for name in inputs for epochs in (3, 10)]
    assert grids["boosting"] == [(30,), (100,)]
    assert grids["knn"] == [(name, k) for name in inputs for k in (5, 15, 40, 100)]
    assert grids["kernel"] == [
        (name, width, penalty)
        for name in inputs
        for width in (0.25, 0.5, 1.0)
        for penalty in (2e-5, 5e-4)
    ]
    assert families() == list(FAMILIES.values())
    assert families(["knn", "mlp"]) == [FAMILIES["knn"], FAMILIES["mlp"]]


# ---- choosing ------------------------------------------------------------------------------------


class Fixed:
    """A family that says what it is told: each setting is right on so many of ten tune rows."""

    def __init__(self, name: str, *right: int) -> None:
        self.name = name
        self.grid = [{"right": number, "place": place} for place, number in enumerate(right)]
        self.fits: list[tuple[int, int, int]] = []

    def fit(self, view: View, secret: Secret, settings: dict[str, int]) -> Candidate:
        self.fits.append((settings["place"], len(view.rows.fit), len(view.rows.tune)))
        tune = np.eye(2)[1 - secret.codes.tune] * 0.8 + 0.1
        wrong = np.arange(len(tune)) % 10 < settings["right"]
        tune[wrong] = tune[wrong, ::-1]
        scored = np.full((len(secret.codes.scored), 2), 0.5)
        scored[:, 0] += settings["right"] / 100
        return Candidate(settings, tune, scored)


def hundred() -> tuple[View, Secret]:
    view = View(np.zeros((130, 1)), np.arange(90), np.arange(90, 100), np.arange(100, 130), 0)
    return view, Secret(view, np.arange(130) % 2, 2, balanced=False)


def test_the_best_setting_of_each_family_is_chosen_and_fitted_on_all_rows() -> None:
    view, task = hundred()
    one, other = Fixed("a", 3, 8, 8, 2, 1, 1, 1), Fixed("b", 5, 4)
    result = attack(view, task, [one, other])  # type: ignore[list-item]
    assert result.best["a"].settings == {"right": 8, "place": 1}  # of equals the first
    assert result.best["b"].settings == {"right": 5, "place": 0}
    assert result.quality["a"] == pytest.approx(0.8)
    assert result.quality["b"] == pytest.approx(0.5)
    # At last on all hundred rows, those to tune on among them, with none held back.
    assert one.fits[-1] == (1, 100, 0) and other.fits[-1] == (0, 100, 0)
    assert result.view.rows.fit.tolist() == list(range(100))
    alone = attack(view, task, [Fixed("a", 3)])  # type: ignore[list-item]
    assert set(alone.best) == {"a"} and alone.strongest == "a"


def test_settings_race_and_the_beaten_are_left_behind() -> None:
    view, task = hundred()
    many, weak = Fixed("many", *range(9, 0, -1)), Fixed("weak", 1, 1, 1)
    attack(view, task, [many, weak])  # type: ignore[list-item]
    rounds = [[p for p, rows, _ in many.fits if rows == 80].count(place) for place in range(9)]
    assert rounds == [5, 4, 3, 2, 2, 1, 1, 1, 1]  # nine, five, three, two, one
    # After two folds of five the weak family is clearly beaten; it is fitted once more at the end.
    assert sum(rows == 80 for _, rows, _ in weak.fits) == 3 + 2
    assert weak.fits[-1][1:] == (100, 0)


def test_of_what_is_left_at_the_end_the_best_is_taken() -> None:
    """Two folds of three settings leave two: the better of these, whichever stands first."""
    view, task = hundred()
    whole = view.joined()
    target = task.on(whole)
    folds = folds_of(whole, target)[:2]
    for right, best in (((3, 8, 6), 8), ((6, 3, 8), 8), ((8, 6, 3), 8)):
        (trial,) = race(target, [Fixed("a", *right)], folds)  # type: ignore[list-item]
        assert trial.settings["right"] == best and trial.quality == pytest.approx(best / 10)
        assert trial.places.tolist() == [*folds[0].outside, *folds[1].outside]
        assert len(trial.probabilities) == 40 and trial.complete


def test_the_committee_has_all_folds_and_says_its_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view, task = hundred()
    whole = view.joined()
    target = task.on(whole)
    folds = folds_of(whole, target)
    members = race(target, [Fixed("a", 8), Fixed("b", 7)], folds)  # type: ignore[list-item]
    weights = np.array([0.12345, 0.67891])
    monkeypatch.setattr(attribute, "learn_weights", lambda guesses, codes, rows: weights)
    scored = {"a": np.array([[0.9, 0.1]]), "b": np.array([[0.2, 0.8]])}
    best = {name: Candidate({}, np.zeros((0, 2)), item) for name, item in scored.items()}
    candidate, quality, guesses = attribute._committee(members, best, target, folds)
    assert candidate.settings == {"members": {"a": 0.123, "b": 0.679}}
    odds = (0.1 / 0.9) ** 0.12345 * (0.8 / 0.2) ** 0.67891
    assert candidate.scored == pytest.approx(np.array([[1, odds]]) / (1 + odds))
    assert candidate.tune.shape == (0, 2) and guesses.shape == (100, 2)
    assert quality == pytest.approx((guesses.argmax(axis=1) == target.codes.fit).mean())
    assert quality >= 0.7


class Eager(Fixed):
    """A family that is right on one row more of ten for each draw of a text."""

    def fit(self, view: View, secret: Secret, settings: dict[str, int]) -> Candidate:
        draws = round(len(view.rows.fit) / 80)
        gain = settings.get("step", 1) * (draws - 1) + 1
        right = min(settings["right"] + gain, settings.get("most", 9))
        candidate = super().fit(view, secret, {**settings, "right": right})
        return Candidate(settings, candidate.tune, candidate.scored)


@pytest.mark.parametrize(
    ("most", "helps", "draws"), [(1, 9, 1), (2, 9, 2), (3, 9, 2), (4, 9, 4), (8, 9, 8), (8, 3, 2)]
)
def test_draws_are_doubled_up_to_their_bound(most: int, helps: int, draws: int) -> None:
    """One right of ten without draws; where `helps` is reached, more draws help no more."""
    view, task = hundred()
    whole = view.joined()
    target = task.on(whole)
    family = Eager("eager", 1)
    family.grid[0]["most"] = helps
    asked: list[int] = []

    def release(rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return np.zeros((len(rows), 1))

    trials = race(target, [family], folds_of(whole, target))  # type: ignore[list-item]
    assert trials[0].quality == pytest.approx(0.2)
    wider = attribute._with_draws(whole, target, trials, Draws(whole, release, most))
    assert wider.draws == draws and (wider is whole) is (draws == 1)
    # One draw is there already; the last doubling may be one that did not help.
    assert len(asked) == (min(2 * draws, most) if helps < 9 else draws) - 1


@pytest.mark.parametrize(("right", "draws"), [((8, 7, 6), 2), ((8, 7, 6, 5), 1)])
def test_the_first_three_families_tell_whether_draws_help(right: Sequence[int], draws: int) -> None:
    """Only the last of them gets better with draws: with two it is right on nine of ten."""
    view, task = hundred()
    whole = view.joined()
    target = task.on(whole)
    some: list[Fixed] = [Fixed(f"f{number}", number) for number in right[:-1]]
    some.append(Eager("eager", right[-1] - 1))
    trials = race(target, some[::-1], folds_of(whole, target))  # type: ignore[arg-type]
    release = Draws(whole, lambda rows: np.zeros((len(rows), 1)), 4)
    some[-1].grid[0]["step"] = 3
    assert attribute._with_draws(whole, target, trials, release).draws == draws


def test_an_attack_learns_on_as_many_draws_as_help() -> None:
    view, task = hundred()
    draws = Draws(view.joined(), lambda rows: np.full((len(rows), 1), 7.0), 4)
    families_: list[Fixed] = [Eager("eager", 5), Fixed("fixed", 6)]
    result = attack(view, task, families_, draws)  # type: ignore[arg-type]
    assert result.view.draws == 4 and result.quality["eager"] == pytest.approx(0.9)
    assert result.view.vectors.fit[:, 0].tolist() == [0.0] * 100 + [7.0] * 300
    once = attack(view, task, families_)  # type: ignore[arg-type]
    assert once.view.draws == 1 and once.quality["eager"] == pytest.approx(0.6)
    for outcome in (result, once):
        guesses = outcome.out_of_fold
        assert set(guesses) == set(outcome.best)
        for name, own in guesses.items():
            truth = task.on(view.joined()).codes.fit[own.rows]
            right = (own.probabilities.argmax(axis=1) == truth).mean()
            assert right == pytest.approx(outcome.quality[name])
    assert once.out_of_fold[COMMITTEE].rows.tolist() == list(range(100))


def test_a_family_is_beaten_by_paired_standard_errors() -> None:
    """Of 40 rows one is right on 30, the other on 20 of them: 0.25 better, with an error of it."""
    view, task = hundred()
    target = task.on(view.joined())
    codes = target.codes.fit[:40]

    def trial(right: int) -> attribute.Contender:
        guesses = np.where(np.arange(40) < right, codes, 1 - codes)
        return attribute.Contender(
            FAMILIES["knn"], {}, 0.0, np.eye(2)[guesses], np.arange(40), True
        )

    gain, error = attribute._gain(trial(30), trial(20).probabilities, target)
    assert gain == pytest.approx(0.25)
    assert error == pytest.approx(np.sqrt(0.25 * 0.75 / 40))
    assert attribute._is_beaten(trial(20), trial(30), target)  # 3.7 errors
    assert not attribute._is_beaten(trial(26), trial(30), target)  # 2.1 errors
    assert not attribute._is_beaten(trial(30), trial(20), target)
    assert not attribute._is_beaten(trial(30), trial(30), target)


def test_a_beaten_family_is_no_member_of_the_committee() -> None:
    view, task = hundred()
    some = [Fixed("a", 8), Fixed("b", 8), Fixed("weak", 1)]
    result = attack(view, task, some)  # type: ignore[arg-type]
    assert set(result.best) == {"a", "b", "weak", COMMITTEE}
    assert set(result.best[COMMITTEE].settings["members"]) == {"a", "b"}
    pair = race(task.on(view.joined()), some[::2], folds_of(view.joined(), task.on(view.joined())))  # type: ignore[arg-type]
    assert [trial.complete for trial in pair] == [True, False]


def test_a_fold_that_lacks_a_class_names_the_other() -> None:
    """One row has the class: whoever holds it back learns from one class alone."""
    codes = np.zeros(130, dtype=np.intp)
    codes[0] = 1
    view = View(np.random.default_rng(0).normal(size=(130, 4)), FIT[:100], FIT[:0], FIT[100:130], 0)
    result = attack(view, Secret(view, codes, 2), families(["logistic", "knn"]))
    assert all(best.scored.shape == (30, 2) for best in result.best.values())


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


# ---- attackers of a chosen size ------------------------------------------------------------------


def test_a_size_may_stand_behind_the_name() -> None:
    (one,) = families(["mlp:depth=3,width=20"])
    assert isinstance(one, Perceptron) and (one.depth, one.width) == (3, 20)
    assert one.name == "mlp:depth=3,width=20" and one.grid[0]["depth"] == 3
    # As a terminal splits them, too: a size belongs to the attacker before it.
    names = [family.name for family in families(["knn", "mlp:depth=3", "width=20", "mlp", "mlp"])]
    assert names == ["knn", "mlp:depth=3,width=20", "mlp"]
    assert attacker_name(one.name) == "neural network (depth 3, width 20)"
    assert attacker_name("mlp") == "neural network"
    assert [family.name for family in families()] == list(FAMILIES)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mpl:depth=3", "did you mean 'mlp'"),
        ("knn:depth=3", "'knn' has no size 'depth'"),
        ("mlp:height=3", "has no size 'height'; write mlp:depth=…,width=…"),
        ("mlp:depth=0", "from 1 to 10"),
        ("mlp:depth=11", "from 1 to 10"),
        ("mlp:width=ten", "from 1 to 4096"),
        ("depth=3", "there is no attacker 'depth=3'"),
    ],
)
def test_sizes_that_are_none_are_refused(name: str, sentence: str) -> None:
    with pytest.raises(CapeletError, match=sentence):
        families([name])


def test_a_solver_may_end_where_floats_end_and_not_where_steps_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import scipy.optimize
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    vectors, codes = random.normal(size=(60, 5)), random.integers(0, 3, 60)
    with pytest.warns(ConvergenceWarning):
        fit_quietly(LogisticRegression(max_iter=1), vectors, codes)
    minimise = scipy.optimize.minimize

    def end_early(*arguments: object, **options: object) -> object:
        result = minimise(*arguments, **options)
        result.status, result.message = 2, "ABNORMAL: "
        return result

    monkeypatch.setattr(scipy.optimize, "minimize", end_early)
    with pytest.warns(ConvergenceWarning, match="ABNORMAL"):
        LogisticRegression().fit(vectors, codes)
    assert fit_quietly(LogisticRegression(), vectors, codes).score(vectors, codes) > 1 / 3


def test_no_attacker_fits_a_regression_of_its_own() -> None:
    """On few distinct vectors a line search stops where floats end, one run in a hundred."""
    source = Path(capelet.__file__).parent
    for path in [*source.glob("attacks/**/*.py"), *source.glob("evaluation/*.py")]:
        code = path.read_text(encoding="utf-8")
        for maker in re.findall(r"(\w+) = LogisticRegression\(", code):
            # `families` fits other models of its own under the same name.
            assert f"fit_quietly({maker}," in code, path
        assert not re.search(r"LogisticRegression\(.*\)\.fit\(", code), path
