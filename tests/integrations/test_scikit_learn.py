"""The estimators keep scikit-learn's manners, and what they release keeps its guarantee."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from capelet.defences import METHODS
from capelet.errors import CapeletError, DataError
from capelet.integrations import Cape, Protector
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.release import PrivateEncoder

REPEATED = (
    "compares two releases of the same rows: noise is fresh in each, or it would protect none"
)
"""Why a check does not apply to an estimator whose `transform` adds noise."""


def not_for_noise(estimator: Any) -> dict[str, str]:
    names = ("check_estimators_pickle", "check_fit_idempotent")
    return dict.fromkeys(names, REPEATED) if estimator._noisy() else {}


@parametrize_with_checks(
    [Cape(epochs=1), Protector(epsilon=0.5, epochs=1), Protector("fx", epochs=1)],
    expected_failed_checks=not_for_noise,
)
def test_scikit_learn_manners(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():  # checks clone, skip and warn on purpose
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A task in one direction, a secret in another."""
    random = np.random.default_rng(0)
    y, z = random.integers(0, 2, (2, 600))
    x = random.normal(size=(600, 8)).astype(np.float32)
    x[:, 0] += 4 * y
    x[:, 1] += 4 * z
    return x, np.array(["no", "yes"])[y], z


def read(vectors: np.ndarray, target: np.ndarray) -> float:
    """Accuracy of a fresh linear probe: learnt on one half, scored on the other."""
    made = make_pipeline(StandardScaler(), LogisticRegression()).fit(vectors[::2], target[::2])
    return float(made.score(vectors[1::2], target[1::2]))


def test_cape_is_laplace_then_a_map_with_the_guarantee_of_the_noise(rows: Any) -> None:
    x, y, z = rows
    cape = Cape(epsilon=6, epochs=3, random_state=0).fit(x, y, private=z)
    kinds = [step["step"] for step in cape.encoder_.recipe["steps"]]
    assert kinds == ["laplace", "map"] and cape.guarantee_ == Guarantee(6.0, training=NONE)
    assert set(cape.joint_) == {"private"} and cape.n_features_in_ == 8
    released = cape.transform(x)
    assert released.shape == (600, 64) and np.isfinite(released).all()
    assert (cape.transform(x) != released).any()  # never seeded, whatever random_state


def test_cape_without_secrets_is_ldp(rows: Any) -> None:
    x, y, _ = rows
    cape = Cape(epochs=2).fit(x, y)
    assert not cape.joint_ and cape.guarantee_ == Guarantee(8.0, training=NONE)


def test_the_training_is_seeded(rows: Any) -> None:
    x, y, z = rows

    def trained(seed: Any) -> str:
        made = Cape(epochs=2, random_state=seed).fit(x, y, private=z)
        return str(made.encoder_.steps[1].digest)  # type: ignore[attr-defined]

    assert trained(1) == trained(1) != trained(2)
    assert trained(np.random.RandomState(1)) == trained(1)
    assert trained(None) != trained(None)


def test_secrets_come_as_arrays_or_mappings_with_values_missing(rows: Any) -> None:
    x, y, z = rows
    missing = np.array([None if place % 3 else value for place, value in enumerate(z)])
    nan = np.where(np.arange(600) % 3, np.nan, z)

    def trained(private: Any) -> Any:
        return Protector("gr", epochs=2, random_state=0).fit(x, y, private=private)

    assert set(trained(z).joint_) == {"private"}
    assert set(trained(np.stack([z, 1 - z], axis=1)).joint_) == {"private0", "private1"}
    assert set(trained({"gender": z, "age": missing}).joint_) == {"gender", "age"}
    by_none, by_nan = trained({"age": missing}), trained({"age": nan})
    assert by_none.joint_ == by_nan.joint_
    for wrong, sentence in (
        (z[:5], "inconsistent"),
        (np.zeros((2, 2, 2)), "found shape"),
        (np.zeros(600), "one class"),
        (np.full(600, np.nan), "no value at all"),
        ({"a": np.zeros((600, 2))}, "one dimension"),
    ):
        with pytest.raises((ValueError, DataError), match=sentence):
            trained(wrong)


def test_a_planted_secret_is_gone_after_erasure_and_not_after_fx(rows: Any) -> None:
    x, y, z = rows
    assert read(x, z) > 0.95
    erased = Protector("leace", random_state=0).fit_transform(x, private=z)
    assert read(erased, z) < 0.6 and read(erased, y) > 0.95
    plain = Protector("fx", epochs=10, random_state=0).fit_transform(x, y)
    assert read(plain, z) > 0.9


def test_the_default_serves_the_task_under_noise(rows: Any) -> None:
    x, y, z = rows
    made = Protector(epsilon=4, epochs=10, random_state=0).fit(x, y)
    assert made.guarantee_.epsilon == 4.0 and made.guarantee_.notion == "local"
    released = made.transform(x)
    assert read(released, y) > 0.85 and read(released, z) < 0.65


def test_clone_and_set_params_leave_the_original_alone(rows: Any) -> None:
    x, y, _ = rows
    cape = Cape(epsilon=3, adversary_weight=0.5, width=16, epochs=1, random_state=0)
    params = {"epsilon": 3, "adversary_weight": 0.5, "width": 16, "epochs": 1, "random_state": 0}
    assert cape.get_params() == params
    other = clone(cape.fit(x, y)).set_params(width=4)
    with pytest.raises(NotFittedError):
        other.transform(x)
    assert cape.transform(x).shape[1] == 16 and other.fit(x, y).transform(x).shape[1] == 4


def test_it_stands_in_a_pipeline_with_its_secrets(rows: Any) -> None:
    x, y, z = rows
    pipe = Pipeline(
        [
            ("scale", StandardScaler()),
            ("cape", Cape(epsilon=1000, epochs=10, random_state=0)),
            ("task", LogisticRegression(max_iter=1000)),
        ]
    )
    pipe.fit(x, y, cape__private=z)
    assert set(pipe["cape"].joint_) == {"private"} and pipe.score(x, y) > 0.9
    assert clone(pipe).set_params(cape__epsilon=2.0)["cape"].epsilon == 2.0


def test_outputs_have_names(rows: Any) -> None:
    x, y, _ = rows
    names = Cape(width=3, epochs=1).fit(x, y).get_feature_names_out()
    assert names.tolist() == ["cape0", "cape1", "cape2"]


def test_what_was_learnt_is_saved_as_a_folder(rows: Any, tmp_path: Path) -> None:
    x, y, z = rows
    made = Protector("gr", epochs=1, random_state=0).fit(x, y, private=z)
    assert made.guarantee_ == replace(NONE, training=NONE)
    back = PrivateEncoder.load(made.encoder_.save(tmp_path / "private"))
    np.testing.assert_array_equal(back.release(x).vectors, made.transform(x))


def test_what_a_method_needs_is_asked_for(rows: Any) -> None:
    x, y, z = rows
    with pytest.raises(DataError, match="needs a private attribute"):
        Protector("gr").fit(x, y)
    with pytest.raises(CapeletError, match="there is no method 'capes'"):
        Protector("capes").fit(x, y, private=z)
    with pytest.raises(CapeletError, match="epsilon is -1"):
        Cape(epsilon=-1).fit(x, y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        Cape().fit(x)
    with pytest.raises(DataError, match="one class"):
        Cape().fit(x, np.zeros(600, dtype=int))
    for name, method in METHODS.items():
        protector = Protector(name)
        if method.rewrites is not None:
            with pytest.raises(DataError, match="changes texts"):
                protector.fit(x, y, private=z)
