"""The references beside every leak: the least a useful release gives away, and about the most.

The predicted task label alone is the least: whoever can use the release for its task knows it. A
TF-IDF attacker on the text itself is about the most.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from capelet.attacks.families import all_classes, fit_quietly
from capelet.attacks.views import Parts, Secret, View, folds_of
from capelet.data.corpus import Values
from capelet.data.text import words_and_emphasis
from capelet.findings.metrics import Codes, Floats

# Permutations per seed: enough that the null of a rare attribute is not itself a lottery.
NULLS = 4


def from_predicted_label(label_parts: Parts, secret: Secret, labels: int) -> Floats:
    """Class probabilities of a secret given only which label a task probe predicted.

    `label_parts` are the predicted labels of the attacker's rows and of the victims. The rule is
    Bayes's with equal class priors, from the attacker's counts (with one half added to each).
    """
    codes = np.concatenate([secret.codes.fit, secret.codes.tune])
    # Half a row more in each cell: a label that no row of a class has excludes nobody.
    counts = np.full((labels, secret.classes), 0.5)
    np.add.at(counts, (np.concatenate([label_parts.fit, label_parts.tune]), codes), 1.0)
    # P(label | class): by columns, so that the classes' own frequencies do not enter.
    likelihood = counts / counts.sum(axis=0)
    posterior: Floats = likelihood[label_parts.scored]
    return posterior / posterior.sum(axis=1, keepdims=True)


class TextAttacker:
    """Logistic regression on TF-IDF of words and word pairs, learnt on the attacker's texts."""

    strengths = (1.0, 10.0)

    def __init__(self, texts: Values, view: View) -> None:
        self.view = view.joined()
        self.texts = Parts(*(texts[rows] for rows in self.view.rows))

    @cached_property
    def features(self) -> Parts:
        """Computed once per split and shared by all attributes."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        # Learnt on the attacker's texts, as its vectors are; victims' words beyond them are not
        # known.
        words = TfidfVectorizer(
            ngram_range=(1, 2),
            min_df=2,
            sublinear_tf=True,
            tokenizer=words_and_emphasis,
            lowercase=False,
            token_pattern=None,
        )
        try:
            counts = words.fit_transform(self.texts.fit)
        except ValueError:  # no word occurs twice
            words.set_params(min_df=1)
            counts = words.fit_transform(self.texts.fit)
        return Parts(counts, None, words.transform(self.texts.scored))

    def probabilities(self, secret: Secret) -> Floats:
        """Of each victim's classes, with the strength that did best in cross-validation."""
        secret = secret.on(self.view)
        words = self.features.fit
        # Chosen like every attacker; two folds are enough to choose between two strengths.
        qualities = dict.fromkeys(self.strengths, 0.0)
        for fold in folds_of(self.view, secret)[:2]:
            part = secret.on_fold(fold)
            for strength in self.strengths:
                scores = _guess(strength, words[fold.inside], part, words[fold.outside])
                qualities[strength] += part.quality(scores)
        best = max(self.strengths, key=qualities.__getitem__)
        return _guess(best, words, secret, self.features.scored)


def _guess(strength: float, own: Any, secret: Secret, others: Any) -> Floats:
    """Probabilities of the other rows from a model of the own ones."""
    from sklearn.linear_model import LogisticRegression

    codes = secret.codes.fit
    if len(set(codes.tolist())) < 2:  # a fold may hold back all of a rare class
        return np.tile(np.eye(secret.classes)[codes[0]], (others.shape[0], 1))
    model = LogisticRegression(C=strength, max_iter=2000, tol=1e-5)
    fit_quietly(model, own, codes, secret.weights.fit)
    return all_classes(model.predict_proba(others), model.classes_, secret.classes)


def permute(codes: Codes, units: Codes, random: np.random.Generator) -> Codes:
    """The secret permuted: the null control keeps everything but the tie to the texts.

    A secret that is the same on all rows of an author (or of identical texts) is permuted author by
    author, so that a protocol which lets an attacker recognise victims would betray itself.
    """
    present = np.flatnonzero(codes >= 0)
    _, first, inverse = np.unique(units[present], return_index=True, return_inverse=True)
    # Is the secret constant within each unit? Then units are permuted, not rows.
    values = codes[present][first]
    result = codes.copy()
    if (values[inverse] == codes[present]).all():
        result[present] = random.permutation(values)[inverse]
    else:
        result[present] = random.permutation(codes[present])
    return result
