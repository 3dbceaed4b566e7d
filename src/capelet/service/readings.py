"""What an attacker reads from the raw and from the private vector of one text, beside chance.

The operator's page shows it for a text that is typed there. The attackers are fresh ones, learnt
when the gateway starts: one on raw vectors, one on released vectors of the same texts (an attacker
adapts to the noise). They are logistic regressions, class-balanced; a stronger attacker may read
more, so what they do not read is no proof, and the ceiling of ε stands beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capelet.data.corpus import Corpus, Rows
from capelet.data.labels import attributes
from capelet.data.splits import group_rows
from capelet.encoders.cache import RememberingEncoder
from capelet.errors import CapeletError
from capelet.evaluation.utility import neighbour_recall
from capelet.findings.metrics import balanced_accuracy
from capelet.interfaces import Vectors
from capelet.release import PrivateEncoder

# As many as take a few seconds to encode; more hardly help a logistic regression.
_TRAINING_ROWS, _TEST_ROWS = 900, 300
_NEIGHBOURS = 10
_STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class Guess:
    """A class, how sure the attacker is of it, and how often such guesses are right elsewhere."""

    value: str
    probability: float
    accuracy: float


@dataclass(frozen=True)
class Reading:
    """One attribute, guessed from the raw vector and from the private one; chance for both."""

    attribute: str
    chance: float
    raw: Guess
    private: Guess


@dataclass(frozen=True)
class Search:
    """How many of the ten nearest texts a vector store still finds among so many."""

    recall: float
    chance: float
    rows: int

    def sentence(self) -> str:
        return (
            f"of the {_NEIGHBOURS} nearest of {self.rows} texts, the released vectors still find "
            f"{100 * self.recall:.0f} % (chance: {100 * self.chance:.1f} %)"
        )

    @property
    def serves(self) -> str:
        """Whether that is of use, in words."""
        if self.recall >= 0.5:
            return "it serves search"
        if self.recall >= 3 * self.chance:
            return "it serves search poorly: a task of few classes may still be served"
        return "it does not serve search: neighbours are hardly better than chance"


class _Attacker:
    """One logistic regression per attribute, and how often it is right on texts it has not seen."""

    def __init__(self, vectors: Vectors, codes: dict[str, Any], training_rows: int) -> None:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self._models, self.accuracies = {}, {}
        for name, values in codes.items():
            has_value = values >= 0
            fit, test = has_value.copy(), has_value.copy()
            fit[training_rows:], test[:training_rows] = False, False
            # Balanced: on a rare attribute it would else name the majority, and look like privacy.
            # The strength by log-loss, so that "70 % sure" means it: where there is only noise, a
            # weak penalty gives guesses that are sure and wrong.
            model = make_pipeline(
                StandardScaler(),
                GridSearchCV(
                    LogisticRegression(max_iter=500, class_weight="balanced"),
                    {"C": _STRENGTHS},
                    scoring="neg_log_loss",
                    cv=3,
                ),
            )
            model.fit(vectors[fit], values[fit])
            self._models[name] = model
            guesses = model.predict(vectors[test])
            self.accuracies[name] = balanced_accuracy(values[test], guesses)

    def guess(self, name: str, vector: Vectors, classes: Sequence[str]) -> Guess:
        model = self._models[name]
        probabilities = model.predict_proba(vector[None, :])[0]
        best = int(probabilities.argmax())
        value = classes[int(model.classes_[best])]
        return Guess(value, float(probabilities[best]), self.accuracies[name])


def _choose_rows(corpus: Corpus) -> tuple[Rows, int]:
    """Rows to learn on and to be scored, and how many are learnt; no writer is in both."""
    groups = group_rows(corpus)
    rank = np.random.default_rng(0).permutation(int(groups.max()) + 1)[groups]
    rows = np.argsort(rank, kind="stable")[: _TRAINING_ROWS + _TEST_ROWS]
    training_rows = min(_TRAINING_ROWS, len(rows) * 3 // 4)
    # The writer on the edge stays with those that are learnt from.
    apart = np.concatenate(
        [
            rows[:training_rows],
            rows[training_rows:][rank[rows[training_rows:]] != rank[rows[training_rows - 1]]],
        ]
    )
    if len(apart) - training_rows <= _NEIGHBOURS:
        raise CapeletError("the page's attackers need more writers: too few are left to be scored")
    return apart, training_rows


class Readings:
    """Attackers on the raw and the released vectors of a corpus with private attributes."""

    def __init__(self, private: PrivateEncoder, corpus: Corpus) -> None:
        if corpus.texts is None or not corpus.private:
            raise CapeletError("the page's attackers need texts and at least one private attribute")
        self._private, self._corpus = private, corpus
        self._attackers: tuple[_Attacker, _Attacker] | None = None
        self._classes: dict[str, tuple[str, ...]] = {}
        self.search: Search | None = None

    @property
    def is_ready(self) -> bool:
        return self._attackers is not None

    def learn(self) -> None:
        """Encode some texts, release them, fit both attackers; seconds, once."""
        rows, training_rows = _choose_rows(self._corpus)
        # For this once, so that no text is encoded twice; nothing of it stays.
        private = self._private.with_encoder(RememberingEncoder)
        assert self._corpus.texts is not None and private.encoder is not None
        texts = [str(self._corpus.texts[row]) for row in rows]
        raw = np.asarray(private.encoder.encode(texts))
        releases = np.asarray(private.release(texts).vectors)
        secrets = attributes(self._corpus.private)
        codes = {secret.name: np.asarray(secret.codes)[rows] for secret in secrets}
        self._classes = {secret.name: tuple(secret.classes) for secret in secrets}
        unseen = slice(training_rows, None)
        recall = float(neighbour_recall(raw[unseen], releases[unseen], _NEIGHBOURS).mean())
        count = len(rows) - training_rows
        self.search = Search(recall, _NEIGHBOURS / (count - 1), count)
        # Last: whoever sees it may read.
        self._attackers = (
            _Attacker(raw, codes, training_rows),
            _Attacker(releases, codes, training_rows),
        )

    def read(self, text: str, release: Vectors) -> list[Reading]:
        """What both attackers say of one text; its raw vector is made here and forgotten."""
        assert self._attackers is not None and self._private.encoder is not None
        raw = np.asarray(self._private.encoder.encode([text]))[0]
        on_raw, on_release = self._attackers
        return [
            Reading(
                name,
                1 / len(classes),
                on_raw.guess(name, raw, classes),
                on_release.guess(name, np.asarray(release), classes),
            )
            for name, classes in self._classes.items()
        ]
