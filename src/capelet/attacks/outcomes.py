"""The exact attacker of a release that takes few values: the table of its outcomes.

Where a vector is one of few values v, all that it tells of a class c is which v it is. The best
guess of an attacker that weighs classes alike is argmax_c P(v|c), with a balanced accuracy of
(1/m)·Σ_v max_c P(v|c); no fitted attacker can do better than the table that says so. P(v|c) is
counted on the attacker's own rows. Guesses of one class alone mean that the table says so: that is
a result, and no failure of an attacker to learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capelet.attacks.attribute import Draws, Result, attack
from capelet.attacks.families import Candidate, Settings
from capelet.attacks.views import Secret, View
from capelet.errors import DataError

TABLE = "outcomes"
# With more values than this many, own rows are too few to count how often each one comes.
MOST_OUTCOMES = 64


@dataclass(frozen=True)
class OutcomeTable:
    """How often each value comes in each class; `most` is how many values there can be."""

    most: int
    name: str = TABLE

    @property
    def grid(self) -> Sequence[Settings]:
        """Nothing to choose."""
        return [{}]

    def fit(self, view: View, secret: Secret, settings: Mapping[str, Any]) -> Candidate:
        """P(c|v) for classes of equal weight, from counts of the rows to fit on."""
        fit, tune, scored = view.vectors
        # −0 and 0 are one value.
        rows = np.concatenate([fit, tune, scored]) + np.float32(0)
        values, numbers = np.unique(rows, axis=0, return_inverse=True)
        if len(values) > self.most:
            raise DataError(
                f"a step says that its rows take at most {self.most} values, and {len(values)} "
                "different ones were released; correct its `outcomes`"
            )
        numbers = numbers.reshape(-1)
        table = np.zeros((len(values), secret.classes))
        np.add.at(table, (numbers[: len(fit)], secret.codes.fit), secret.weights.fit)
        # Half a row more everywhere moves no maximum, and leaves no class impossible.
        table += 0.5
        # Of equals another class for each value: only what is one value to all is guessed alike.
        table[np.arange(len(values)), np.arange(len(values)) % secret.classes] += 1e-9
        guesses = (table / table.sum(axis=1, keepdims=True))[numbers]
        edges = len(fit), len(fit) + len(tune)
        return Candidate(settings, guesses[edges[0] : edges[1]], guesses[edges[1] :])


def attack_outcomes(
    view: View, secret: Secret, table: OutcomeTable, draws: Draws | None = None
) -> Result:
    """Count on all own rows, of as many draws as may be made, and guess the victims' classes.

    More draws make the counts of a noisy release better, and never worse.
    """
    whole = view.joined()
    if draws is not None and draws.most > 1:
        whole = whole.with_draws(draws.first(draws.most - 1))
    return attack(whole, secret.on(whole), [table])


def countable(outcomes: int | None) -> int | None:
    """The number of values where they are few enough to be counted on own rows, else None."""
    return outcomes if outcomes is not None and outcomes <= MOST_OUTCOMES else None
