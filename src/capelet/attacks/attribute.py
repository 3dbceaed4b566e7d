"""Attribute inference: fresh attackers that read a private attribute off released vectors.

Threat model: the attacker holds the released vectors of the victims, and vectors with labels for
texts of its own (the attacker's part). Five families try; each is class-balanced (an unbalanced
attacker on a rare attribute predicts the majority and looks like privacy) and tuned on a held-back
tenth of the attacker's part, on which the strongest is chosen too. No victim influences anything.

What does not depend on the attribute (standardised and projected vectors, kernels, sorted
neighbours) is computed once per split in a `View` and shared by all families and attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from capelet.data.corpus import Rows
from capelet.errors import CapeletError, did_you_mean
from capelet.findings.metrics import Codes, Floats, balanced_accuracy

Matrix = npt.NDArray[np.float32]
Settings = Mapping[str, Any]

# Kernel features of a text. The Cholesky factor of their own matrix costs 1024³/3, once per width.
LANDMARKS = 1024
# More than the largest k that is tried.
NEIGHBOURS = 64
COMMITTEE = "committee"
# Trees look at every axis in every node: the full width of 384 costs about thirty times more.
AXES = 32
# With ten labels of each class none can be spared for tuning: the learning curve has one strength.
FEW_LABELS_STRENGTH = 1e-2


class Parts(NamedTuple):
    """One thing for the rows to fit on, to tune on, and to be scored."""

    fit: Any
    tune: Any
    scored: Any


class View:
    """One split's vectors, prepared once for every attacker.

    Whatever is learnt here (means, axes, landmarks) is learnt on the rows to fit on only.
    """

    def __init__(self, vectors: Floats, fit: Rows, tune: Rows, scored: Rows, seed: int) -> None:
        self.rows = Parts(fit, tune, scored)
        self.seed = seed
        self.vectors = Parts(*(np.asarray(vectors[rows], dtype=np.float32) for rows in self.rows))

    @cached_property
    def standard(self) -> Parts:
        """Each coordinate with mean 0 and deviation 1; dead ones (MiniLM has three) are 0."""
        fit = self.vectors.fit.astype(np.float64)
        mean, deviation = fit.mean(axis=0), fit.std(axis=0)
        # A dead coordinate varies by rounding alone, so it is measured against its own size, not
        # against 0.
        alive = deviation > 1e-6 * np.abs(fit).max(axis=0)
        scale = np.where(alive, 1 / np.where(alive, deviation, 1), 0)
        return Parts(
            # A coordinate that hardly varies among the rows to fit on may be huge in a victim:
            # clipped, it does not drown all others.
            *(np.clip((part - mean) * scale, -30, 30).astype(np.float32) for part in self.vectors)
        )

    @cached_property
    def principal(self) -> Parts:
        """Standardised vectors in their principal axes, strongest first."""
        # eigh sorts upwards, hence the reversed columns.
        _, axes = np.linalg.eigh(self.standard.fit.T @ self.standard.fit)
        return Parts(*(part @ axes[:, ::-1] for part in self.standard))

    @cached_property
    def levels(self) -> Parts:
        """Principal axes cut into at most 128 levels each, which is all that trees look at."""
        shares = np.linspace(0, 1, 129)[1:-1]
        axes = Parts(*(part[:, :AXES] for part in self.principal))
        edges = np.quantile(axes.fit, shares, axis=0)
        return Parts(
            *(
                np.stack(
                    [
                        np.searchsorted(edge, column)
                        for edge, column in zip(edges.T, part.T, strict=True)
                    ],
                    axis=1,
                ).astype(np.float32)
                for part in axes
            )
        )

    @cached_property
    def unit(self) -> Parts:
        """Centred vectors of length one: the geometry that kernels and neighbours see."""
        mean = self.vectors.fit.mean(axis=0)
        offsets = [part - mean for part in self.vectors]
        lengths = [np.linalg.norm(part, axis=1, keepdims=True) for part in offsets]
        return Parts(*(p / np.maximum(n, 1e-12) for p, n in zip(offsets, lengths, strict=True)))

    @cached_property
    def landmarks(self) -> Rows:
        """Places in `fit` of the points whose kernels with a text are its features (Nyström)."""
        return np.random.default_rng(self.seed).permutation(len(self.rows.fit))[:LANDMARKS]

    @cached_property
    def distances(self) -> Parts:
        """Squared distances to the landmarks, in units of their median."""
        points = self.unit.fit[self.landmarks].T
        # ‖u − v‖² = 2 − 2·u·v for vectors of length one; rounding can leave it below 0.
        squares = [np.maximum(2 - 2 * part @ points, 0) for part in self.unit]
        return Parts(*(part / max(float(np.median(squares[0][:512])), 1e-12) for part in squares))

    def kernel(self, width: float) -> Parts:
        """Features whose products are RBF kernels (Nyström); width 1 is the median distance."""
        if width not in self._kernels:
            raw = Parts(*(np.exp(part / -width) for part in self.distances))
            corner = raw.fit[self.landmarks].astype(np.float64)
            # Nyström features K·L⁻ᵀ with L·Lᵀ = the landmarks' own kernels: their products are
            # kernels again (Williams, Seeger 2001). The jitter is for landmarks that are near
            # copies.
            root = np.linalg.cholesky(corner + 1e-4 * np.eye(len(corner)))
            inverse = np.linalg.inv(root).T.astype(np.float32)
            self._kernels[width] = Parts(*(part @ inverse for part in raw))
        return self._kernels[width]

    @cached_property
    def _kernels(self) -> dict[float, Parts]:
        return {}

    @cached_property
    def neighbours(self) -> Parts:
        """(places in `fit`, cosines) of the nearest rows to fit on, nearest first."""
        most = min(NEIGHBOURS, len(self.rows.fit))
        return Parts(None, *(_nearest(part, self.unit.fit, most) for part in self.unit[1:]))


def _nearest(queries: Matrix, base: Matrix, most: int) -> tuple[Rows, Matrix]:
    places = np.empty((len(queries), most), dtype=np.intp)
    cosines = np.empty((len(queries), most), dtype=np.float32)
    # In blocks: the products of all queries with all rows would not fit into memory. argpartition
    # is linear in the rows; only the few nearest are then sorted.
    for start in range(0, len(queries), 1024):
        block = slice(start, start + 1024)
        similar = queries[block] @ base.T
        near = np.argpartition(-similar, most - 1, axis=1)[:, :most]
        best = np.take_along_axis(similar, near, axis=1)
        order = np.argsort(-best, axis=1, kind="stable")
        places[block] = np.take_along_axis(near, order, axis=1)
        cosines[block] = np.take_along_axis(best, order, axis=1)
    return places, cosines


class Secret:
    """What is to be guessed on a view: codes per part and the number of classes.

    `balanced` weighs every class alike; a task probe, whose score is plain accuracy, does not.
    """

    def __init__(self, view: View, codes: Codes, classes: int, balanced: bool = True) -> None:
        self.codes = Parts(*(codes[rows] for rows in view.rows))
        self.classes = classes
        self.balanced = balanced
        self.weights = Parts(*(self._weights(part) for part in self.codes))

    def _weights(self, codes: Codes) -> npt.NDArray[np.float32]:
        """A weight per row with mean one; balanced, every class has the same total."""
        if not self.balanced or not len(codes):
            return np.ones(len(codes), dtype=np.float32)
        # Unweighted, an attacker of a rare attribute names the majority and looks like privacy.
        counts = np.bincount(codes, minlength=self.classes)
        return (len(codes) / (np.count_nonzero(counts) * counts[codes])).astype(np.float32)

    def quality(self, scores: Floats) -> float:
        """What tuning maximises on `tune`: balanced accuracy of a secret, accuracy of a task."""
        guesses = scores.argmax(axis=1)
        if self.balanced:
            return balanced_accuracy(self.codes.tune, guesses)
        return float((self.codes.tune == guesses).mean())


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
    def title(self) -> str:
        """What a report calls it."""

    @property
    def grid(self) -> list[dict[str, Any]]: ...

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate: ...


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression on standardised vectors."""

    strengths: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1)
    name: str = "logistic"
    title: str = "logistic regression"

    @property
    def grid(self) -> list[dict[str, Any]]:
        return [{"C": strength} for strength in self.strengths]

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=settings["C"], max_iter=2000, tol=1e-3)
        model.fit(view.standard.fit, secret.codes.fit, secret.weights.fit)
        return _candidate(settings, model, secret, view.standard)


@dataclass(frozen=True)
class Perceptron:
    """Multi-layer perceptron (one hidden layer of 200 by default), stopped early."""

    depth: int = 1
    width: int = 200
    epochs: int = 30
    patience: int = 3
    name: str = "mlp"
    title: str = "neural network"

    @property
    def grid(self) -> list[dict[str, Any]]:
        return [{"depth": self.depth, "width": self.width}]

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        from sklearn.neural_network import MLPClassifier

        model = MLPClassifier(
            (settings["width"],) * settings["depth"],
            batch_size=min(128, len(secret.codes.fit)),
            alpha=1e-2,
            random_state=view.seed,
        )
        # Stopped here, epoch by epoch: scikit-learn's own early stopping looks at plain accuracy,
        # on rows of its own choice.
        everyone = np.arange(secret.classes)
        best, best_layers, idle_epochs = np.inf, None, 0
        for _ in range(self.epochs):
            model.partial_fit(
                view.standard.fit, secret.codes.fit, secret.weights.fit, classes=everyone
            )
            loss = _log_loss(_candidate(settings, model, secret, view.standard).tune, secret)
            if loss < best:
                best, idle_epochs = loss, 0
                best_layers = [layer.copy() for layer in (*model.coefs_, *model.intercepts_)]
            elif (idle_epochs := idle_epochs + 1) >= self.patience:
                break
        if best_layers is not None:
            model.coefs_, model.intercepts_ = (
                best_layers[: len(best_layers) // 2],
                best_layers[len(best_layers) // 2 :],
            )
        return _candidate(settings, model, secret, view.standard)


@dataclass(frozen=True)
class Boosting:
    """Gradient-boosted trees on the first principal axes (full width costs thirty times more)."""

    rounds: int = 80
    name: str = "boosting"
    title: str = "gradient boosting"

    @property
    def grid(self) -> list[dict[str, Any]]:
        return [{"rounds": self.rounds}]

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(
            max_iter=settings["rounds"],
            max_leaf_nodes=15,
            early_stopping=False,
            random_state=view.seed,
        )
        model.fit(view.levels.fit, secret.codes.fit, secret.weights.fit)
        return _candidate(settings, model, secret, view.levels)


@dataclass(frozen=True)
class Neighbours:
    """Votes of the k nearest vectors by cosine, nearer and rarer ones counting more."""

    counts: Sequence[int] = (5, 15, 50)
    name: str = "knn"
    title: str = "nearest neighbours"

    @property
    def grid(self) -> list[dict[str, Any]]:
        return [{"k": count} for count in self.counts]

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        votes = _one_hot(secret.codes.fit, secret.classes) * secret.weights.fit[:, None]

        def probabilities(near: tuple[Rows, Matrix]) -> Floats:
            places, cosines = near[0][:, : settings["k"]], near[1][:, : settings["k"]]
            nearness = np.exp(4 * (cosines - cosines[:, :1]))
            total = np.einsum("nk,nkc->nc", nearness, votes[places])
            return np.asarray(total / total.sum(axis=1, keepdims=True))

        return Candidate(settings, *(probabilities(near) for near in view.neighbours[1:]))


@dataclass(frozen=True)
class Kernel:
    """Ridge classifier in the span of RBF kernels at the landmarks (Nyström), in closed form."""

    widths: Sequence[float] = (0.5, 1.0)
    penalties: Sequence[float] = (1e-4, 1e-3, 1e-2)
    name: str = "kernel"
    title: str = "RBF kernel"

    @property
    def grid(self) -> list[dict[str, Any]]:
        return [
            {"width": width, "penalty": penalty}
            for width, penalty in product(self.widths, self.penalties)
        ]

    def fit(self, view: View, secret: Secret, settings: Settings) -> Candidate:
        from scipy.linalg import cho_factor, cho_solve

        kernel = view.kernel(settings["width"])
        # Weighted ridge in closed form: (KᵀWK + penalty·I)·slope = KᵀW(Y − level). √W stands on
        # both sides, so that the matrix stays symmetric.
        root = np.sqrt(secret.weights.fit / len(secret.weights.fit))[:, None]
        target = _one_hot(secret.codes.fit, secret.classes)
        # The intercept is the weighted share of each class: 1/classes where classes are balanced.
        level = (root**2 * target).sum(axis=0)
        inside = kernel.fit * root
        gram = (inside.T @ inside).astype(np.float64)
        gram[np.diag_indices_from(gram)] += settings["penalty"]
        slope = cho_solve(cho_factor(gram), inside.T @ ((target - level) * root))

        def probabilities(part: Matrix) -> Floats:
            # Ridge gives no probabilities; cut at 0 and summing to one, they can be averaged in a
            # committee.
            raw = np.clip(part @ slope.astype(np.float32) + level, 1e-6, None)
            return np.asarray(raw / raw.sum(axis=1, keepdims=True))

        return Candidate(settings, probabilities(kernel.tune), probabilities(kernel.scored))


FAMILIES: dict[str, Family] = {
    "logistic": Logistic(),
    "mlp": Perceptron(),
    "boosting": Boosting(),
    "knn": Neighbours(),
    "kernel": Kernel(),
}


def families(names: Sequence[str] = ()) -> list[Family]:
    """The families of these names, or all of them."""
    for name in names:
        if name not in FAMILIES:
            raise CapeletError(f"there is no attacker {name!r}; {did_you_mean(name, FAMILIES)}")
    return [FAMILIES[name] for name in names or FAMILIES]


@dataclass(frozen=True, eq=False)
class Result:
    """Each family's best candidate on one split, the committee of all, and who is strongest.

    The committee averages the families' probabilities. It is the attacker's choice unless a single
    family beats it on the held-back rows by more than a standard error: a few hundred rows cannot
    tell five families apart, and picking their luckiest would understate the leak.
    """

    best: Mapping[str, Candidate]
    quality: Mapping[str, float]
    rows: int

    @property
    def family(self) -> str:
        """The single family that did best on the attacker's held-back rows."""
        return max((name for name in self.best if name != COMMITTEE), key=self.quality.__getitem__)

    @property
    def strongest(self) -> str:
        if COMMITTEE not in self.best:
            return self.family
        together = self.quality[COMMITTEE]
        # The binomial standard error of the committee's score on the held-back rows.
        error = np.sqrt(together * (1 - together) / max(self.rows, 1))
        return self.family if self.quality[self.family] > together + error else COMMITTEE


def attack(view: View, secret: Secret, attackers: Sequence[Family]) -> Result:
    """Fit every family with all its settings; each one's best is judged on the held-back rows."""
    best: dict[str, Candidate] = {}
    quality: dict[str, float] = {}
    for family in attackers:
        for settings in family.grid:
            candidate = family.fit(view, secret, settings)
            score = secret.quality(candidate.tune)
            if family.name not in quality or score > quality[family.name]:
                best[family.name], quality[family.name] = candidate, score
    if len(best) > 1:
        members = list(best.values())
        best[COMMITTEE] = Candidate(
            {"members": list(quality)},
            np.mean([member.tune for member in members], axis=0),
            np.mean([member.scored for member in members], axis=0),
        )
        quality[COMMITTEE] = secret.quality(best[COMMITTEE].tune)
    return Result(best, quality, len(secret.codes.tune))


def few_labels(view: View, secret: Secret, count: int) -> Floats | None:
    """Scores of a logistic attacker that knows only `count` labels of each class.

    None when some class does not have so many. It may use the other vectors of the attacker's part
    without their labels (to standardise), as a real attacker could.
    """
    random = np.random.default_rng([view.seed, count])
    sample: list[Rows] = []
    for code in range(secret.classes):
        places = np.flatnonzero(secret.codes.fit == code)
        if len(places) < count:
            return None
        sample.append(random.permutation(places)[:count])
    from sklearn.linear_model import LogisticRegression

    places = np.concatenate(sample)
    model = LogisticRegression(C=FEW_LABELS_STRENGTH, max_iter=2000, tol=1e-3)
    model.fit(view.standard.fit[places], secret.codes.fit[places])
    return np.asarray(model.predict_proba(view.standard.scored))


def one_thread() -> Any:
    """One thread for each attacker: its matrices are too small to share, and seeds run abreast."""
    from threadpoolctl import threadpool_limits

    import_module("sklearn.ensemble")  # a thread pool must be loaded before it can be limited
    return threadpool_limits(1)


def _log_loss(probabilities: Floats, secret: Secret) -> float:
    right = probabilities[np.arange(len(probabilities)), secret.codes.tune]
    return float(np.mean(-np.log(np.maximum(right, 1e-12)) * secret.weights.tune))


def _one_hot(codes: Codes, classes: int) -> Matrix:
    return np.eye(classes, dtype=np.float32)[codes]


def _candidate(settings: Settings, model: Any, secret: Secret, inputs: Parts) -> Candidate:
    """Probabilities for all classes from a model that may not have seen each of them."""
    probabilities = []
    for part in inputs[1:]:
        # A class without rows to fit on keeps the probability 0.
        scores = np.zeros((len(part), secret.classes))
        if len(part):
            scores[:, model.classes_] = model.predict_proba(part)
        probabilities.append(scores)
    return Candidate(settings, *probabilities)
