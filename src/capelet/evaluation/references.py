"""The references beside every leak: the least a useful release gives away, and about the most.

The predicted task label alone is the least: whoever can use the release for its task knows it. A
TF-IDF attacker on the text itself is about the most.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from capelet.attacks.attribute import Parts, Secret, View
from capelet.data.corpus import Values
from capelet.data.text import words_and_emphasis
from capelet.findings.metrics import Codes, Floats


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
        self.texts = Parts(*(texts[rows] for rows in view.rows))

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
        return Parts(counts, *(words.transform(part) for part in self.texts[1:]))

    def probabilities(self, secret: Secret) -> Floats:
        """Of each victim's classes, with the strength that did best on the held-back rows."""
        from sklearn.linear_model import LogisticRegression

        best = -1.0
        result: Floats = np.zeros((len(secret.codes.scored), secret.classes))
        # Chosen like every attacker: on the held-back rows.
        for strength in self.strengths:
            model = LogisticRegression(C=strength, max_iter=2000, tol=1e-5)
            model.fit(self.features.fit, secret.codes.fit, secret.weights.fit)
            quality = secret.quality(_all_classes(model, self.features.tune, secret.classes))
            if quality > best:
                best = quality
                result = _all_classes(model, self.features.scored, secret.classes)
        return result


def _all_classes(model: Any, inputs: Any, classes: int) -> Floats:
    scores = np.zeros((inputs.shape[0], classes))
    scores[:, model.classes_] = model.predict_proba(inputs)
    return scores


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
