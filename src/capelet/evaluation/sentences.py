"""What sentence vectors are good for: logistic regression on small tasks of sentence analysis.

MPQA (opinion polarity), TREC (question types), SUBJ (subjectivity) and MRPC (paraphrases) are the
four tasks of Song and Raghunathan (2020, section 7); SST-2, CR and STS-B stand beside them. Pairs
are described by |u − v| and u·v, as in Kiros et al. (2015). STS-B needs no training: it is the
rank correlation of cosines with the grades. Sets with an official test part are scored on it, the
others by folds; the strength of the regression is chosen on a held-back part of the training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.families import fit_quietly
from capelet.errors import DataError
from capelet.findings import Finding
from capelet.findings.intervals import Score, mean_of, normal_mean, percentile
from capelet.interfaces import Vectors
from capelet.numerics import cosines, standard_scale

# The tasks whose mean is *the* utility of a sentence encoder.
MAIN = ("mpqa", "trec", "subj", "mrpc")
TASKS = (*MAIN, "sst2", "cr", "stsb")

# One grid for every task and encoder, so that none is tuned more than another.
_STRENGTHS = (0.01, 0.1, 1.0)
_FOLDS = 5

Rows = npt.NDArray[np.intp]
Reals = npt.NDArray[np.float64]
Encode = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True, eq=False)
class SentenceTask:
    """One task: sentences, or pairs of them, their labels, and which rows are scored.

    `test` is None where the set has no official test part. A graded task has numbers as labels.
    """

    name: str
    texts: tuple[str, ...]
    labels: npt.NDArray[Any]
    others: tuple[str, ...] | None = None
    test: npt.NDArray[np.bool_] | None = None
    has_grades: bool = False

    def __post_init__(self) -> None:
        sizes = {len(self.texts), len(self.labels)}
        sizes |= {len(self.others)} if self.others is not None else set()
        sizes |= {len(self.test)} if self.test is not None else set()
        if len(sizes) != 1:
            raise DataError(f"the parts of the task {self.name!r} differ in length: {sizes}")
        if len(np.unique(self.labels)) < 2:
            raise DataError(f"the task {self.name!r} needs at least two different labels")

    @classmethod
    def load(cls, name: str) -> SentenceTask:
        """The named set as a task; a `DataError` says where to get it when it is not here."""
        import pyarrow.parquet

        from capelet.data.datasets import path

        if name not in TASKS:
            raise DataError(f"{name!r} is no sentence task; there is {', '.join(TASKS)}")
        table = pyarrow.parquet.read_table(path(name)).to_pydict()
        has_grades = name == "stsb"
        split = table["split"]
        rows = [i for i, part in enumerate(split) if not has_grades or part == "test"]
        official = "test" in split and not has_grades
        return cls(
            name,
            tuple(table["text"][i] for i in rows),
            np.array([table["label"][i] for i in rows], dtype=float if has_grades else None),
            tuple(table["text_b"][i] for i in rows) if "text_b" in table else None,
            np.array([split[i] == "test" for i in rows]) if official else None,
            has_grades,
        )

    def measure(self, encode: Encode, recipe_hash: str | None = None, seed: int = 0) -> Finding:
        """One finding: accuracy, or the rank correlation of a graded task."""
        vectors = self._vectors(encode, self.texts)
        other = None if self.others is None else self._vectors(encode, self.others)
        if not self.has_grades:
            return self._classify(features(vectors, other), seed, recipe_hash)
        if other is None:
            raise DataError(f"the graded task {self.name!r} needs pairs of sentences")
        ends = rank_score(cosines(vectors, other), self.labels).ends
        return Finding(
            "utility", self.name, "spearman", *ends, majority=0.0, n=len(self.labels),
            attacker="cosine", recipe_hash=recipe_hash,
        )  # fmt: skip

    def _vectors(self, encode: Encode, texts: Sequence[str]) -> Reals:
        vectors = np.asarray(encode(texts), dtype=np.float64)
        if not np.isfinite(vectors).all():
            raise DataError(f"some vectors of the task {self.name!r} are not finite")
        return vectors

    def _classify(self, inputs: Reals, seed: int, recipe_hash: str | None) -> Finding:
        codes = np.unique(self.labels, return_inverse=True)[1]
        hits = np.full(len(codes), np.nan)
        strength, constant = None, True
        for train, test in self._parts(seed):
            # Learnt on the training rows of the fold alone.
            standard = _standardise(inputs, train)
            # Chosen once, on the training rows of the first fold: in each it would cost five times
            # as much.
            strength = strength or _best_strength(standard[train], codes[train], seed)
            guess = _regression(standard[train], codes[train], strength).predict(standard[test])
            constant = constant and len(np.unique(guess)) == 1
            hits[test] = guess == codes[test]
        rows = np.flatnonzero(np.isfinite(hits))
        return Finding(
            "utility", self.name, "accuracy", *normal_mean(hits[rows]).ends,
            majority=float(np.bincount(codes[rows]).max() / len(rows)), n=len(rows),
            attacker="logistic regression", degenerate=constant,
            parameters={"strength": strength}, recipe_hash=recipe_hash,
        )  # fmt: skip

    def _parts(self, seed: int) -> list[tuple[Rows, Rows]]:
        if self.test is not None:
            return [(np.flatnonzero(~self.test), np.flatnonzero(self.test))]
        fold = np.random.default_rng([seed, 0x5E]).permutation(len(self.labels)) % _FOLDS
        return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(_FOLDS)]


def measure_all(
    encode: Encode, tasks: Sequence[SentenceTask], recipe_hash: str | None = None
) -> list[Finding]:
    """A finding for each task, and the mean accuracy of the four main ones where all are there."""
    findings = [task.measure(encode, recipe_hash) for task in tasks]
    main = [item for item in findings if item.target in MAIN]
    if len(main) == len(MAIN):
        scores = [Score(item.value, item.low or 0.0, item.high or 0.0) for item in main]
        findings.append(
            Finding(
                "utility", "sentences", "accuracy", *mean_of(scores).ends,
                majority=float(np.mean([item.majority or 0.0 for item in main])),
                n=sum(item.n or 0 for item in main), parameters={"mean_of": list(MAIN)},
                recipe_hash=recipe_hash,
            )
        )  # fmt: skip
    return findings


def rank_score(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> Score:
    """Spearman's rank correlation with its interval."""
    random = np.random.default_rng(0x5D)
    # A rank correlation has no weighted form, so pairs of sentences are drawn, not weighted.
    samples = random.integers(len(one), size=(200, len(one)))
    draws = [_rank_correlation(one[rows], other[rows]) for rows in samples]
    return percentile(np.array([_rank_correlation(one, other), *draws]), people=len(one))


def features(vectors: Reals, other: Reals | None = None) -> Reals:
    """What the regression reads: the vector, or what two vectors have in common and apart."""
    if other is None:
        return vectors
    return np.hstack([np.abs(vectors - other), vectors * other])


def _best_strength(inputs: Reals, codes: Rows, seed: int) -> float:
    order = np.random.default_rng([seed, 0x5F]).permutation(len(codes))
    tune, fit = order[: len(order) // 5], order[len(order) // 5 :]
    if len(np.unique(codes[fit])) < 2:
        return 0.1
    accuracy = {
        strength: _regression(inputs[fit], codes[fit], strength).score(inputs[tune], codes[tune])
        for strength in _STRENGTHS
    }
    return max(accuracy, key=accuracy.__getitem__)


def _regression(inputs: Reals, codes: Rows, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return fit_quietly(LogisticRegression(C=strength, max_iter=400, tol=1e-3), inputs, codes)


def _standardise(inputs: Reals, train: Rows) -> Reals:
    """Mean 0 and deviation 1 on the training rows; a dead column (MiniLM has three) becomes 0."""
    mean, scale = standard_scale(inputs[train])
    return np.asarray((inputs - mean) * scale)


def _rank_correlation(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    from scipy.stats import rankdata

    # Spearman: Pearson's correlation of ranks, ties with their mean rank.
    a, b = rankdata(one), rankdata(other)
    a, b = a - a.mean(), b - b.mean()
    length = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / length) if length > 0 else 0.0
