"""How often does an analysis of variance alarm where cells share splits, rightly and wrongly?

Invented cells: three methods on two encoders in eight splits. A split moves all its cells together,
three times as far as a cell moves alone. Three analyses look for a difference between methods: the
plain two-way one, which takes splits for repetitions; the one with the split as a block; and
repeated measures. The last two are those of `capelet.studies.statistics`.

    python studies/shared_splits.py                    # 1,000 simulations of each case
    python studies/shared_splits.py --simulations 50

Prints a Markdown table, line by line as it is ready.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from capelet.studies.rows import Row
from capelet.studies.statistics import anova

Floats = npt.NDArray[np.floating[Any]]

METHODS, ENCODERS, SPLITS = 3, 2, 8
# In shares of an accuracy: a cell by itself, and a split with all its cells.
CELL_DEVIATION, SPLIT_DEVIATION = 0.02, 0.06
LEVEL = 0.05


@dataclass(frozen=True)
class Case:
    """What is true of the invented cells.

    `effect` is the gain of the first method; `own` how far a split moves each method by itself, and
    `spread` how much noisier the last method is, both in deviations of a cell.
    """

    name: str
    effect: float = 0.0
    own: float = 0.0
    spread: float = 1.0

    def simulate(self, random: np.random.Generator) -> Floats:
        """Values by method, encoder and split."""
        values = CELL_DEVIATION * random.normal(size=(METHODS, ENCODERS, SPLITS))
        values[-1] *= self.spread
        values += SPLIT_DEVIATION * random.normal(size=SPLITS)
        values += self.own * CELL_DEVIATION * random.normal(size=(METHODS, 1, SPLITS))
        values[0] += self.effect
        return np.asarray(0.6 + values)


NULL = Case("no method differs")
POWER = Case("one method differs by 2 points", effect=0.02)
OWN = Case("none differs, but each split moves each method in its own way", own=1.5)
SPREAD = Case("none differs, but one method is three times as noisy", spread=3.0)
CASES = (NULL, POWER, OWN, SPREAD)


def rows_of_values(values: Floats, names: Sequence[str] = ("method", "encoder")) -> list[Row]:
    """Rows of a study; the last axis is the split, the others are factors with levels a0, a1 …"""
    return [
        Row(
            {name: f"{name}{level}" for name, level in zip(names, place, strict=False)},
            place[-1],
            "utility",
            "invented",
            "accuracy",
            float(values[place]),
        )
        for place in np.ndindex(values.shape)
    ]


def plain_p(values: Floats) -> float:
    """The two-way analysis without a block, by statsmodels: what must not be used."""
    first, second, _ = np.indices(values.shape).reshape(3, -1).astype(str)
    frame = pandas.DataFrame({"value": values.ravel(), "first": first, "second": second})
    fit = ols("value ~ C(first) * C(second)", data=frame).fit()
    return float(anova_lm(fit, typ=2).loc["C(first)", "PR(>F)"])


def alarm_rates(case: Case, simulations: int, seed: int = 16) -> tuple[float, float, float]:
    """The share of P-values below 5 %: plain, with the block, and of repeated measures."""
    random = np.random.default_rng(seed)
    p_values = []
    for _ in range(simulations):
        values = case.simulate(random)
        effect = anova(rows_of_values(values), ["method", "encoder"]).effect("method")
        p_values.append((plain_p(values), effect.p, effect.p_repeated))
    plain, blocked, repeated = (np.array(p_values, dtype=float) < LEVEL).mean(axis=0)
    return float(plain), float(blocked), float(repeated)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=1000)
    arguments = parser.parse_args()
    print("| what is true | plain two-way | split as block | repeated measures |")
    print("| --- | ---: | ---: | ---: |")
    for case in CASES:
        rates = " | ".join(f"{rate:.3f}" for rate in alarm_rates(case, arguments.simulations))
        print(f"| {case.name} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
