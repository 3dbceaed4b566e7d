"""Defences as scikit-learn estimators: `fit`, `transform`, `clone`, `Pipeline`.

    cape = Cape(epsilon=8).fit(vectors, task, private=gender)
    released = cape.transform(others)        # fresh noise in every call
    cape.guarantee_.sentence()
    cape.encoder_.save("private")            # a folder, never a pickle

In a pipeline the secrets go to the step that protects: `pipe.fit(x, y, cape__private=gender)`.
There is no second way of training behind these: they call `defences.fit`.

`random_state` seeds the training. No release is ever seeded: two calls of `transform` differ where
the method adds noise. The learnt map is *not* private towards the rows it was fitted on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from capelet.data.labels import Attribute
from capelet.errors import DataError
from capelet.interfaces import Vectors

# The share of the rows that early stopping watches.
HELD_BACK = 0.1
FLOATS = (np.float32, np.float64)


class Protector(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Any method of `capelet protect` on vectors, as a transformer.

    `method` is a name of `capelet.defences.METHODS` that works on vectors; ε is read by those that
    add noise, and `adversary_weight` None is the method's own λ. Learnt: `encoder_` (a
    `PrivateEncoder` of the steps), `guarantee_`, and `joint_`: what the defence's own adversaries
    reached on held-back rows, which is no measure of safety.
    """

    def __init__(
        self,
        method: str = "bottleneck",
        *,
        epsilon: float | None = 8.0,
        adversary_weight: float | None = None,
        width: int = 64,
        keep: str = "task",
        epochs: int = 60,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.epsilon = epsilon
        self.adversary_weight = adversary_weight
        self.width = width
        self.keep = keep
        self.epochs = epochs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, private: Any = None) -> Protector:
        """Learn on vectors `X` with the task `y`, against the secrets `private`.

        These are an (n,) or (n, k) array, a data frame or a mapping of names to columns; None and
        NaN in them are missing values. None alone means that there are no secrets.
        """
        # Here and not above: the defences load torch, which an estimator that is only made or
        # cloned does not need.
        from capelet.defences import fit, method
        from capelet.defences.fitting import Part, Schedule
        from capelet.release import PrivateEncoder

        task = None
        if y is None and not self._needs_label():
            X = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        else:
            X, y = validate_data(self, X, y, dtype=FLOATS, ensure_min_samples=2)
            check_classification_targets(y)
            task = _attribute("y", y)
        secrets = tuple(_attribute(name, column) for name, column in _columns(private).items())
        check_consistent_length(X, *[item.codes for item in secrets])
        name = self._method(secrets)
        if method(name).rewrites is not None:
            raise DataError(f"the method {name!r} changes texts, and these are vectors")
        random = check_random_state(self.random_state)
        rows = random.permutation(len(X))
        tune = max(1, round(HELD_BACK * len(X)))
        part = Part(X, np.sort(rows[tune:]), np.sort(rows[:tune]), task, secrets)
        # Of the same state as the rows, so that `random_state` alone decides the training.
        schedule = Schedule(epochs=self.epochs, seed=int(random.randint(2**31 - 1)))
        defence = fit(name, part, self._settings(schedule))
        self.encoder_ = PrivateEncoder(*defence.steps)
        self.guarantee_ = self.encoder_.guarantee
        self.joint_ = dict(defence.outcome.joint)
        self._n_features_out = defence.outcome.map.dimension
        return self

    def transform(self, X: Any) -> Vectors:
        """Release the vectors; noise comes from the operating system, fresh in every call."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        return self.encoder_.release(X).vectors

    def _method(self, secrets: tuple[Attribute, ...]) -> str:
        return self.method

    def _settings(self, schedule: Any = None) -> Any:
        from capelet.defences import Settings

        options = {"schedule": schedule} if schedule is not None else {}
        return Settings(
            epsilon=self.epsilon if self._noisy() else None,
            adversary_weight=self.adversary_weight,
            width=self.width,
            keep=self.keep,
            **options,
        )

    def _noisy(self) -> bool:
        from capelet.defences import METHODS

        return self.method in METHODS and "epsilon" in METHODS[self.method].needs

    def _needs_label(self) -> bool:
        from capelet.defences import METHODS

        record = METHODS.get(self.method)
        return record is None or "label" in record.needs_for(self.keep)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._needs_label()
        # The checks of scikit-learn compare two calls, which differ by design where there is noise.
        tags.non_deterministic = self._noisy()
        # A map gives float32, whatever comes in.
        tags.transformer_tags.preserves_dtype = []
        return tags


class Cape(Protector):
    """CAPE (Plant et al. 2021): Laplace noise on the vector, then a map trained with reversal.

    Without `private` there is no adversary, and it is LDP: the same noise and a task map. The
    guarantee is the same ε either way; reversal adds none.
    """

    def __init__(
        self,
        epsilon: float = 8.0,
        *,
        adversary_weight: float | None = None,
        width: int = 64,
        epochs: int = 60,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            "cape",
            epsilon=epsilon,
            adversary_weight=adversary_weight,
            width=width,
            epochs=epochs,
            random_state=random_state,
        )

    def _method(self, secrets: tuple[Attribute, ...]) -> str:
        return "cape" if secrets else "ldp"


def _columns(private: Any) -> dict[str, npt.NDArray[Any]]:
    """The secrets by name; those without one are called `private`, or `private0`, `private1` …"""
    if private is None:
        return {}
    if isinstance(private, Mapping) or hasattr(private, "columns"):
        return {str(name): _column(private[name]) for name in private}
    values = np.asarray(private, dtype=object)
    if values.ndim == 1:
        return {"private": values}
    if values.ndim == 2:
        return {f"private{place}": values[:, place] for place in range(values.shape[1])}
    raise DataError(
        "private must be an (n,) or (n, k) array, a data frame or a mapping of columns; "
        f"found shape {values.shape}"
    )


def _column(values: Any) -> npt.NDArray[Any]:
    column = np.asarray(values, dtype=object)
    if column.ndim != 1:
        raise DataError(f"a column of private must have one dimension; found shape {column.shape}")
    return column


def _attribute(name: str, values: npt.NDArray[Any]) -> Attribute:
    """A column as classes, −1 where it is None or NaN."""
    column = np.asarray(values, dtype=object)
    # NaN is the only value that differs from itself.
    is_known = np.array([value is not None and value == value for value in column], dtype=bool)
    # By type first: a number and a text in one column cannot be compared.
    classes = sorted(set(column[is_known].tolist()), key=lambda value: (str(type(value)), value))
    if len(classes) < 2:
        content = "one class" if classes else "no value at all"
        raise DataError(f"{name!r} has {content}; at least two classes are needed to learn from")
    place = {value: code for code, value in enumerate(classes)}
    codes = np.array(
        [place[value] if there else -1 for value, there in zip(column, is_known, strict=True)]
    )
    return Attribute(name, codes.astype(np.intp), tuple(str(value) for value in classes))
