"""A map has a point and a colour for each row shown; what noise moved can be told, noise cannot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from capelet.attacks.views import View
from capelet.data.corpus import Corpus, Split
from capelet.data.labels import Attribute
from capelet.evaluation.geometry import (
    cloud_findings,
    deviation,
    map_purity,
    separability,
    tsne,
    tsne_clouds,
    tsne_shift,
)
from capelet.evaluation.plan import Plan
from capelet.findings import Finding

RANDOM = np.random.default_rng(1)
CLOUD = RANDOM.normal(size=(600, 12)).astype(np.float32)
PLAN = Plan.of(
    Corpus("cloud", vectors=CLOUD, private={"odd": np.array(["no", "yes"] * 300, dtype=object)}),
    seeds=2,
)


def told(released: np.ndarray) -> tuple[Finding, Finding]:
    found, null = separability(PLAN, CLOUD, released, "h")
    assert (found.kind, null.kind) == ("deviation", "deviation-null")
    assert found.chance == null.chance == 0.5 and found.recipe_hash == "h" and found.n == 120
    assert found.low is not None and found.high is not None
    assert found.low <= found.value <= found.high
    return found, null


def test_vectors_that_were_not_changed_cannot_be_told_apart() -> None:
    found, _ = told(CLOUD.copy())
    assert found.value == 0.5  # both vectors of a text get the same name: one of two is right


def test_fresh_draws_of_one_distribution_end_at_chance() -> None:
    found, null = told(RANDOM.normal(size=CLOUD.shape))
    assert found.low is not None and found.low < 0.5 + 0.02 and found.value < 0.56
    assert abs(null.value - 0.5) < 0.06


@pytest.mark.parametrize("how", ["a shift", "large noise"])
def test_what_moved_is_told_apart_and_shuffled_names_are_not(how: str) -> None:
    """Large noise around the same middle is seen by no plane in the vectors, only by length."""
    noise = RANDOM.normal(scale=8.0, size=CLOUD.shape)
    found, null = told(CLOUD + (np.full(12, 4.0) if how == "a shift" else noise))
    assert found.value > 0.97 and abs(null.value - 0.5) < 0.08
    assert sum(found.parameters["chosen"].values()) == 2


def test_another_width_has_neither_a_number_nor_a_map() -> None:
    assert separability(PLAN, CLOUD, CLOUD[:, :4], None) == []
    assert tsne_shift(CLOUD, CLOUD[:, :4], np.arange(60), seed=0) is None


def test_the_joint_map_parts_what_lies_apart_and_mixes_what_does_not() -> None:
    rows = np.arange(80)
    for released, apart in ((CLOUD + 9, True), (RANDOM.normal(size=CLOUD.shape), False)):
        drawn = tsne_shift(CLOUD, released, rows, seed=0)
        assert drawn is not None and drawn["shown"] == drawn["of"] == 80
        points, flags = np.array(drawn["points"]), np.array(drawn["released"])
        assert points.shape == (160, 2) and flags.sum() == 80
        assert (np.diff(points[:, 0]) >= 0).all()
        gap = np.linalg.norm(points[flags].mean(axis=0) - points[~flags].mean(axis=0))
        assert (gap > points[flags].std() + points[~flags].std()) == apart


def test_two_clouds_stay_apart_and_missing_has_no_colour() -> None:
    random = np.random.default_rng(0)
    codes = np.repeat([0, 1], 60)
    vectors = random.normal(size=(120, 10)) + 12 * codes[:, None]
    codes = codes.copy()
    codes[3] = -1
    drawn = tsne(vectors, np.arange(120), [Attribute("cloud", codes, ("a", "b"))], seed=0)
    points = np.array(drawn["points"])
    assert points.shape == (120, 2) and drawn["shown"] == drawn["of"] == 120
    assert (np.diff(points[:, 0]) >= 0).all()  # left to right: no point can be traced to its row
    cloud = np.array(drawn["colours"]["cloud"])
    assert sorted(map(str, cloud)) == ["None"] + ["a"] * 59 + ["b"] * 60
    first, second = points[cloud == "a"], points[cloud == "b"]
    assert np.linalg.norm(first.mean(axis=0) - second.mean(axis=0)) > first.std() + second.std()


def plan_of(units: Sequence[int], victims: Sequence[int] = ()) -> Plan:
    """A plan of nothing but persons and victims."""
    rows = np.arange(len(units))
    part = np.setdiff1d(rows, victims)
    parts = Split("random", 0, part, part, np.array(victims, dtype=np.intp), rows < 0)
    corpus = Corpus("planted", vectors=np.zeros((len(units), 1), dtype=np.float32))
    return Plan(corpus, (), None, (parts,), np.array(units), ())


def test_deviation_is_the_paired_distance() -> None:
    random = np.random.default_rng(0)
    vectors, plan = random.normal(size=(50, 6)), plan_of(range(50))
    far, angle = deviation(plan, vectors, 2 * vectors, "h")
    assert far.value == pytest.approx(np.linalg.norm(vectors, axis=1).mean())
    assert angle.value == pytest.approx(0.0, abs=1e-12) and angle.metric == "cosine_distance"
    assert deviation(plan, vectors, -vectors, None)[1].value == pytest.approx(2.0)
    assert deviation(plan, vectors, vectors[:, :3], None) == []


def test_deviation_is_as_sure_as_there_are_persons() -> None:
    """Ten authors whose texts all move alike are ten measurements, not two hundred."""
    random = np.random.default_rng(1)
    author = np.repeat(np.arange(10), 20)
    vectors = random.normal(size=(200, 6))
    moved = vectors + random.random(10)[author][:, None]
    by_author = deviation(plan_of(author.tolist()), vectors, moved, None)[0]
    by_text = deviation(plan_of(range(200)), vectors, moved, None)[0]
    assert by_author.value == pytest.approx(by_text.value)
    width = [row.high - row.low for row in (by_author, by_text) if row.high and row.low]
    assert width[0] > 3 * width[1]


@pytest.mark.parametrize("unit", [1e-30, 1e-42, 1e20, 1e37])
def test_a_map_does_not_depend_on_the_unit(unit: float) -> None:
    """In single precision squares of these numbers are 0 or infinite; t-SNE ran off its memory."""
    vectors = np.random.default_rng(0).normal(size=(120, 4))
    plain = tsne(vectors, np.arange(120), [], seed=0)
    scaled = tsne((vectors * unit).astype(np.float32), np.arange(120), [], seed=0)
    assert np.isfinite(scaled["points"]).all() and len(scaled["points"]) == len(plain["points"])
    same = tsne(np.full((30, 4), unit, np.float32), np.arange(30), [], seed=0)
    assert same["points"] == [[0.0, 0.0]] * 30


@pytest.mark.parametrize("unit", [2.0**-100, 2.0**60])
def test_attackers_do_not_depend_on_the_unit(unit: float) -> None:
    vectors = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    rows = np.arange(40), np.arange(40, 50), np.arange(50, 60)
    plain, scaled = (View(item, *rows, seed=0) for item in (vectors, vectors * np.float32(unit)))
    for name in ("standard", "unit"):
        for one, other in zip(getattr(plain, name), getattr(scaled, name), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_three_clouds_in_one_map_part_as_their_vectors_do() -> None:
    rows = np.arange(80)
    noise = RANDOM.normal(size=CLOUD.shape)
    clouds = {"original": CLOUD, "near": CLOUD + 0.01 * noise, "far": CLOUD + 9}
    content = tsne_clouds(clouds, rows, seed=0)
    points, names = np.array(content["points"]), np.array(content["clouds"])
    assert content["shown"] == content["of"] == 80 and len(points) == 240
    middle = {name: points[names == name].mean(axis=0) for name in clouds}
    near, far = (np.linalg.norm(middle[name] - middle["original"]) for name in ("near", "far"))
    assert far > 5 * near


def test_purity_is_one_of_clouds_apart_and_chance_of_clouds_that_mix() -> None:
    random = np.random.default_rng(4)
    names = ["a"] * 100 + ["b"] * 300
    apart = np.concatenate([random.normal(size=(100, 2)), random.normal(50, size=(300, 2))])
    assert {name: value for name, (value, _) in map_purity(apart, names).items()} == {
        "a": 1.0,
        "b": 1.0,
    }
    mixed = map_purity(random.normal(size=(400, 2)).tolist(), names)
    for name, share in (("a", 99 / 399), ("b", 299 / 399)):
        value, chance = mixed[name]
        assert chance == pytest.approx(share) and abs(value - chance) < 0.06
    # One point has no neighbours of its own.
    assert set(map_purity([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], ["a", "b", "b"])) == {"b"}


def test_clouds_are_told_by_distance_by_classifier_and_on_one_map() -> None:
    """A copy mixes with the original, what was moved lies apart; the points are no findings."""
    near = CLOUD + RANDOM.normal(scale=1e-3, size=CLOUD.shape).astype(np.float32)
    rows = cloud_findings(PLAN, {"original": CLOUD, "near": near, "far": CLOUD + 9}, 0)
    purity = {(row.target, row.subgroup): row.value for row in rows if row.metric == "map_purity"}
    assert purity["vectors", "far"] > 0.75 and purity["vectors", "near"] < 0.5
    # The secret says nothing about where a vector lies, in any of the clouds.
    assert all(abs(purity["odd", name] - 0.5) < 0.1 for name in ("original", "near", "far"))
    distances = {row.subgroup: row.value for row in rows if row.metric == "euclidean"}
    assert set(distances) == {"near", "far"} and distances["near"] < 0.01 < distances["far"]
    assert not any("points" in row.parameters for row in rows)
