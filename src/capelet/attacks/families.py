"""The families of attackers: each learns on a view with one of its settings.

Every family is class-balanced (an unbalanced attacker on a rare attribute predicts the majority and
looks like privacy), and gives a probability for every class. A family learns on the rows to fit on
and gives probabilities of the rows to tune on (in a fold) and of those to be scored (in the end).
It may not look at the labels of either. What its settings share (a path of epochs, a matrix of
products) it keeps in `secret.share`, so that a grid costs little more than its dearest setting.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Protocol

import numpy as np

from capelet.attacks.views import INPUTS, Fold, Matrix, Parts, Secret, View
from capelet.errors import CapeletError, did_you_mean, name_field
from capelet.findings.metrics import Codes, Floats

Settings = Mapping[str, Any]


# Ends that weaken no attacker: a line search that finds nothing lower has come as far as floats go,
# and the epochs of a network are a budget. A regression that ran out of steps does complain.
_FINE_ENDS = ("(?s)lbfgs failed.*ABNORMAL", "Stochastic Optimizer: Maximum iterations")


def fit_quietly(model: Any, *data: Any) -> Any:
    """Fit a model of scikit-learn's, without its warning where it ended as well as it could."""
    with warnings.catch_warnings():
        for message in _FINE_ENDS:
            warnings.filterwarnings("ignore", message)
        return model.fit(*data)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A fitted attacker: its settings and its class probabilities on tune and scored rows."""

    settings: Settings
    tune: Floats
    scored: Floats


class Family(Protocol):
    """A kind of attacker: one fit for each of its settings, probabilities for every class."""

    @property
    def name(self) -> str: ...

    @property
    def grid(self) -> Sequence[Settings]:
        """The settings among which cross-validation chooses."""

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        """Learn on the rows to fit on; either of the other parts may be empty."""


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression."""

    strengths: Sequence[float] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    name: str = "logistic"

    @property
    def grid(self) -> list[dict[str, Any]]:
        return _grid(input=INPUTS, C=self.strengths)

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        from sklearn.linear_model import LogisticRegression

        inputs = view.inputs(settings["input"])
        model = LogisticRegression(C=settings["C"], max_iter=2000, tol=1e-3)
        fit_quietly(model, inputs.fit, secret.codes.fit, secret.weights.fit)
        return _candidate(settings, model, secret, inputs)


@dataclass(frozen=True)
class Perceptron:
    """Multi-layer perceptron (one hidden layer of 128 by default).

    Its size may be chosen by name, as in `mlp:depth=3,width=200` (YAWYW §5.2 varies both).
    """

    sizes: ClassVar[Mapping[str, int]] = {"depth": 10, "width": 4096}  # the most of each

    depth: int = 1
    width: int = 128
    epochs: Sequence[int] = (3, 10)
    name: str = "mlp"

    @property
    def grid(self) -> list[dict[str, Any]]:
        return _grid(input=INPUTS, depth=[self.depth], width=[self.width], epochs=self.epochs)

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        # In a fold one training passes all numbers of epochs, and is asked at each; the final
        # network is trained for as many as did best. So no row is spared for stopping it.
        run = (self.name, *(value for key, value in settings.items() if key != "epochs"))

        def train(checkpoints: Sequence[int]) -> dict[int, Candidate]:
            return self._train(view, secret, settings, checkpoints)

        return _on_path(secret, run, settings["epochs"], self.epochs, train)

    def _train(
        self, view: View, secret: Secret, settings: Settings, checkpoints: Sequence[int]
    ) -> dict[int, Candidate]:
        """The network's probabilities after each of these numbers of epochs."""
        from sklearn.neural_network import MLPClassifier

        inputs = view.inputs(settings["input"])
        model = MLPClassifier(
            (settings["width"],) * settings["depth"],
            batch_size=min(128, len(secret.codes.fit)),
            alpha=1e-2,
            random_state=view.seed,
        )
        everyone = np.arange(secret.classes)
        path = {}
        for epoch in range(1, checkpoints[-1] + 1):
            model.partial_fit(inputs.fit, secret.codes.fit, secret.weights.fit, classes=everyone)
            if epoch in checkpoints:
                snapshot = {**settings, "epochs": epoch}
                path[epoch] = _candidate(snapshot, model, secret, inputs)
        return path


@dataclass(frozen=True)
class Boosting:
    """Gradient-boosted trees on the first principal axes (full width costs thirty times more)."""

    rounds: Sequence[int] = (30, 100)
    name: str = "boosting"

    @property
    def grid(self) -> list[dict[str, Any]]:
        return _grid(rounds=self.rounds)

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        def train(checkpoints: Sequence[int]) -> dict[int, Candidate]:
            return self._train(view, secret, checkpoints)

        # As with epochs: one training passes all numbers of rounds.
        return _on_path(secret, (self.name,), settings["rounds"], self.rounds, train)

    def _train(
        self, view: View, secret: Secret, checkpoints: Sequence[int]
    ) -> dict[int, Candidate]:
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(
            max_iter=checkpoints[-1],
            max_leaf_nodes=15,
            early_stopping=False,
            random_state=view.seed,
        )
        model.fit(view.levels.fit, secret.codes.fit, secret.weights.fit)
        stages: dict[int, list[Floats]] = {rounds: [] for rounds in checkpoints}
        for part in view.levels[1:]:
            if not len(part):
                for probabilities in stages.values():
                    probabilities.append(np.zeros((0, secret.classes)))
                continue
            for number, stage in enumerate(model.staged_predict_proba(part), 1):
                if number in stages:
                    stages[number].append(all_classes(stage, model.classes_, secret.classes))
        return {rounds: Candidate({"rounds": rounds}, *parts) for rounds, parts in stages.items()}


@dataclass(frozen=True)
class Neighbours:
    """Votes of the k nearest vectors by cosine, nearer and rarer ones counting more."""

    counts: Sequence[int] = (5, 15, 40, 100)
    name: str = "knn"

    @property
    def grid(self) -> list[dict[str, Any]]:
        return _grid(input=INPUTS, k=self.counts)

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        votes = _one_hot(secret.codes.fit, secret.classes) * secret.weights.fit[:, None]

        def probabilities(near: tuple[Codes, Matrix]) -> Floats:
            places, cosines = near[0][:, : settings["k"]], near[1][:, : settings["k"]]
            nearness = np.exp(4 * (cosines - cosines[:, :1]))
            total = np.einsum("nk,nkc->nc", nearness, votes[places])
            return np.asarray(total / total.sum(axis=1, keepdims=True))

        near = view.neighbours(settings["input"])
        return Candidate(settings, *(probabilities(part) for part in near[1:]))


@dataclass(frozen=True)
class Kernel:
    """Ridge classifier with RBF kernels, in closed form; of many rows in the span of landmarks."""

    widths: Sequence[float] = (0.25, 0.5, 1.0)
    penalties: Sequence[float] = (2e-5, 5e-4)
    name: str = "kernel"

    @property
    def grid(self) -> list[dict[str, Any]]:
        return _grid(input=INPUTS, width=self.widths, penalty=self.penalties)

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        """Minimise Σ w_i(y_i − level − f(x_i))²/n + penalty·‖f‖², the level being the class share.

        Balanced, that is 1/classes. A least-squares SVM reads as well as one with a hinge
        (Rifkin, Klautau 2004), and needs no iteration.
        """
        weights = secret.weights.fit
        target = _one_hot(secret.codes.fit, secret.classes)
        level = (weights @ target) / weights.sum()
        solve = _in_kernels if view.is_exact else _in_features
        values = solve(view, secret, settings, target - level)

        def probabilities(part: str) -> Floats:
            # Ridge gives no probabilities. These have its order, and a committee calibrates them.
            raw = values(part) + level
            odds = np.exp(4 * (raw - raw.max(axis=1, keepdims=True)))
            return np.asarray(odds / odds.sum(axis=1, keepdims=True))

        return Candidate(settings, probabilities("tune"), probabilities("scored"))


def _in_kernels(
    view: View, secret: Secret, settings: Settings, target: Matrix
) -> Callable[[str], Matrix]:
    """f(x) = Σ_i α_i·k(x, x_i) with (K + n·penalty·W⁻¹)·α = target."""
    place = (settings["input"], settings["width"])
    # A fold's kernels are a copy of its own; those of a whole view are shared.
    ridge = view.kernel(*place)
    ridge = ridge if isinstance(view, Fold) else ridge.copy()
    weights = secret.weights.fit
    ridge[np.diag_indices_from(ridge)] += settings["penalty"] * weights.sum() / weights
    alpha = _solve(ridge, target)
    return lambda part: view.kernel(*place, part) @ alpha


def _in_features(
    view: View, secret: Secret, settings: Settings, target: Matrix
) -> Callable[[str], Matrix]:
    """f(x) = features(x)·slope with (FᵀWF + n·penalty·I)·slope = FᵀW·target."""
    place = (settings["input"], settings["width"])
    weights = secret.weights.fit
    ridge = _gram(view, secret, *place).copy()
    ridge[np.diag_indices_from(ridge)] += np.float32(settings["penalty"] * weights.sum())
    right = view.features(*place).T @ (target * weights[:, None])
    slope = _solve(ridge, right)
    return lambda part: view.features(*place, part) @ slope


def _solve(left: Matrix, right: Matrix) -> Matrix:
    """left⁻¹·right for a positive definite matrix, in single precision where that is enough."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    try:
        # Transposed, the same matrix has the order that LAPACK copies fastest.
        root = cho_factor(left.T, lower=True, check_finite=False)
    except LinAlgError:  # many near copies: rounding made it indefinite
        root = cho_factor(left.astype(np.float64), lower=True, check_finite=False)
    return np.asarray(cho_solve(root, right, check_finite=False), dtype=np.float32)


def _gram(view: View, secret: Secret, inputs: str, width: float) -> Matrix:
    """FᵀWF of Nyström features; a fold takes what the rows it leaves out add to the whole."""

    def of(features: Matrix, weights: Matrix) -> Matrix:
        # One array times itself: half the work of a product of two.
        heavy = features * np.sqrt(weights)[:, None]
        return np.asarray(heavy.T @ heavy)

    def make() -> Matrix:
        if secret.whole is None or not isinstance(view, Fold):
            return of(view.features(inputs, width), secret.weights.fit)
        absent = np.ones(len(view.whole.rows.fit), dtype=bool)
        absent[view.inside] = False
        less = of(view.whole.features(inputs, width)[absent], secret.whole.weights.fit[absent])
        return np.asarray(_gram(view.whole, secret.whole, inputs, width) - less)

    return secret.share(("gram", inputs, width), make)


@dataclass(frozen=True)
class OwnClassifier:
    """A user's object with `fit` and `predict_proba`; what it is given is a copy of it.

    Where its `fit` takes no weights its probabilities are divided by the share of their class, so
    that it too is asked which class is likelier than usual.
    """

    model: Any
    name: str

    @property
    def grid(self) -> list[dict[str, Any]]:
        return _grid(input=INPUTS)

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        from sklearn.base import clone
        from sklearn.utils.validation import has_fit_parameter

        inputs = view.inputs(settings["input"])
        codes, weights = secret.codes.fit, secret.weights.fit
        model = clone(self.model, safe=False)
        if has_fit_parameter(model, "sample_weight"):
            model.fit(inputs.fit, codes, sample_weight=weights)
            return _candidate(settings, model, secret, inputs)
        model.fit(inputs.fit, codes)
        rarity = np.bincount(codes, weights, secret.classes) / np.maximum(
            np.bincount(codes, minlength=secret.classes), 1
        )
        plain = _candidate(settings, model, secret, inputs)
        return Candidate(settings, *(_scaled(part, rarity) for part in (plain.tune, plain.scored)))


def _scaled(probabilities: Floats, factors: Floats) -> Floats:
    """Probabilities times a factor for each class, with rows that add up to 1 again."""
    scores = probabilities * factors
    return np.asarray(scores / np.maximum(scores.sum(axis=1, keepdims=True), 1e-300))


# Literal: `--help` reads the names off this file, without the second that an import takes.
FAMILIES: dict[str, Family] = {
    "logistic": Logistic(),
    "mlp": Perceptron(),
    "boosting": Boosting(),
    "knn": Neighbours(),
    "kernel": Kernel(),
}


def families(attackers: Any = ()) -> list[Family]:
    """The families of these names, or all of them; a name may state sizes behind a colon.

    Whatever has `fit` and `predict_proba`, as scikit-learn's classifiers do, is an attacker too.

    >>> [family.name for family in families(["knn,mlp:depth=3,width=200"])]
    ['knn', 'mlp:depth=3,width=200']
    """
    is_one = isinstance(attackers, str) or hasattr(attackers, "fit")
    items = [attackers] if is_one else list(attackers)
    names = [item for item in items if isinstance(item, str)]
    found = {name: _family(name) for name in _split_names(names)}
    for item in items:
        if not isinstance(item, str):
            family = _own_family(item, found)
            found[family.name] = family
    return list(found.values()) or list(FAMILIES.values())


def _own_family(item: Any, others: Collection[str]) -> Family:
    """A user's object as a family, under a name of its own."""
    if hasattr(item, "grid") and item.name not in (*others, *FAMILIES):
        family: Family = item
        return family
    if not all(callable(getattr(item, name, None)) for name in ("fit", "predict_proba")):
        raise CapeletError(
            f"{name_field('attackers')} holds a {type(item).__name__}; give names, or objects with "
            "fit and predict_proba"
        )
    base = name = type(item).__name__
    number = 1
    while name in (*others, *FAMILIES):
        number += 1
        name = f"{base}-{number}"
    return OwnClassifier(item, name)


def _split_names(names: Sequence[str]) -> list[str]:
    """The names of a list with commas, in which sizes of one attacker stand between commas too."""
    attackers: list[str] = []
    for part in (part.strip() for name in names for part in name.split(",")):
        is_size = "=" in part and ":" not in part
        if is_size and attackers and ":" in attackers[-1]:
            attackers[-1] += f",{part}"
        elif part:
            attackers.append(part)
    return attackers


def _family(name: str) -> Family:
    base, colon, text = name.partition(":")
    if base not in FAMILIES:
        raise CapeletError(f"there is no attacker {base!r}; {did_you_mean(base, FAMILIES)}")
    family: Any = FAMILIES[base]
    if not colon:
        return FAMILIES[base]
    most: Mapping[str, int] = getattr(family, "sizes", {})
    sizes: dict[str, int] = {}
    for item in text.split(","):
        key, _, number = item.partition("=")
        if key not in most:
            rest = f"write mlp:{','.join(f'{name}=…' for name in Perceptron.sizes)}"
            raise CapeletError(f"the attacker {base!r} has no size {key!r}; {rest}")
        if not number.isdecimal() or not 1 <= int(number) <= most[key]:
            raise CapeletError(
                f"the {key} of the attacker {base!r} must be a whole number from 1 to {most[key]}"
            )
        sizes[key] = int(number)
    family_of_size: Family = replace(family, **sizes, name=name)
    return family_of_size


def _on_path(
    secret: Secret,
    run: tuple[Any, ...],
    length: int,
    lengths: Sequence[int],
    train: Callable[[Sequence[int]], dict[int, Candidate]],
) -> Candidate:
    """The candidate after so many epochs or rounds; shorter ones come of the same training.

    Whoever asks for the longest first trains once.
    """
    path = secret.share(run, dict)
    if length not in path:
        path.update(train(sorted({length, *(item for item in lengths if item < length)})))
    return path[length]


def _grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(values, some, strict=True)) for some in product(*values.values())]


def _one_hot(codes: Codes, classes: int) -> Matrix:
    return np.eye(classes, dtype=np.float32)[codes]


def _candidate(settings: Settings, model: Any, secret: Secret, inputs: Parts) -> Candidate:
    """Probabilities for all classes from a model that may not have seen each of them."""
    empty = np.zeros((0, secret.classes))
    # Of an object that does not say which classes it has seen, in what order: all, in theirs.
    seen = getattr(model, "classes_", np.unique(secret.codes.fit))
    return Candidate(
        settings,
        *(
            all_classes(np.asarray(model.predict_proba(part)), seen, secret.classes)
            if len(part)
            else empty
            for part in inputs[1:]
        ),
    )


def all_classes(probabilities: Floats, seen: Codes, classes: int) -> Floats:
    """A class without rows to fit on keeps the probability 0."""
    scores = np.zeros((len(probabilities), classes))
    scores[:, seen] = probabilities
    return scores
