"""The calibrated committee: families' probabilities pooled with weights that were learnt.

Families are differently sure of themselves: a boosted tree says .99 where a ridge says .6. A plain
mean of their probabilities listens to whoever is loudest. Here each member's log-probabilities get
a weight, log P(c) = Σ_m w_m·log p_m(c) + constant (logarithmic pooling; one member alone is then
temperature scaling, Guo et al. 2017). The weights, none below 0, minimise the log loss of
probabilities *out of fold*: a member that learns by heart is not believed (stacking, Wolpert 1992).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capelet.attacks.views import Fold, Secret
from capelet.findings.metrics import Codes, Floats

# Below this a probability says "never", which no attacker of some thousand rows can know.
LEAST = 1e-4
# Rows' worth of pull towards equal weights: of use where rows are few, lost where they are many.
PRIOR_ROWS = 1.0


def pool(members: Sequence[Floats], weights: Floats) -> Floats:
    """Class probabilities of the committee with these weights."""
    return softmax(np.tensordot(weights, _logs(members), axes=1))


def learn_weights(members: Sequence[Floats], codes: Codes, row_weights: Floats) -> Floats:
    """The weights that minimise the log loss of these probabilities, each at least 0."""
    from scipy.optimize import minimize

    logs = _logs(members)
    start = np.full(len(members), 1 / len(members))
    rows = np.arange(len(codes))
    right = logs[:, rows, codes]

    def loss(weights: Floats) -> tuple[float, Floats]:
        probabilities = softmax(np.tensordot(weights, logs, axes=1))
        # d/dw_m of −Σ log P(code) is Σ_c P(c)·log p_m(c) − log p_m(code).
        expectation = np.einsum("nc,mnc->mn", probabilities, logs)
        value = -row_weights @ np.log(np.maximum(probabilities[rows, codes], 1e-300))
        pull = PRIOR_ROWS * (weights - start)
        gradient = (expectation - right) @ row_weights + pull
        return float(value + pull @ (weights - start) / 2), gradient

    bounds = [(0.0, None)] * len(members)
    return np.asarray(minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x)


def cross_fit(members: Sequence[Floats], secret: Secret, folds: Sequence[Fold]) -> Floats:
    """The committee's probabilities of each row, its weights learnt on the other folds' rows."""
    texts = len(members[0])
    codes, row_weights = secret.codes.fit[:texts], secret.weights.fit[:texts]
    result = np.empty_like(members[0])
    for fold in folds:
        rest = np.ones(texts, dtype=bool)
        rest[fold.outside] = False
        weights = learn_weights([item[rest] for item in members], codes[rest], row_weights[rest])
        result[fold.outside] = pool([item[fold.outside] for item in members], weights)
    return result


def _logs(members: Sequence[Floats]) -> Floats:
    return np.log(np.maximum(np.stack(members), LEAST))


def softmax(values: Floats) -> Floats:
    """Probabilities of log-odds, line by line."""
    odds = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
