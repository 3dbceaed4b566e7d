"""A verdict: what an attacker learnt, in plain words, and what that shows.

Every number in it stands in the findings. Rounding, subtracting what needs no vectors, and whether
it is a leak are the business of `capelet.findings.verdicts`, for every report alike.
"No leak found" is never said as "no leak".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from capelet.findings import Finding, Findings
from capelet.findings.verdicts import Figures, Judgement, Outcome
from capelet.reports.formatting import count, figure, is_number, percent, points


@dataclass(frozen=True, kw_only=True)
class Verdict(Judgement):
    """What the strongest attacker learnt about one attribute, against chance.

    `statement` is the verdict, `warnings` say why it may not be trusted, `sentence` is both. What
    `chance` is the score of is said by `base`: the words of a text have a better one than chance.
    What was scored is said by `counted`: people, or texts whose authors nobody knows.
    """

    target: str
    statement: str
    warnings: tuple[str, ...] = ()
    ceiling: float | None = None
    degenerate: bool = False
    base: str = "by chance"
    counted: str = "people"

    @property
    def value(self) -> float | None:
        return self.figures.value

    @property
    def chance(self) -> float | None:
        return self.figures.base

    @property
    def gain(self) -> float | None:
        return self.figures.gain

    @property
    def value_words(self) -> str:
        """`78 %`, with as many decimals as its sentence."""
        return percent(self.value, self.figures.decimals)

    @property
    def chance_words(self) -> str:
        return percent(self.chance, self.figures.decimals)

    @property
    def sentence(self) -> str:
        return " ".join((self.statement, *self.warnings))

    @property
    def title(self) -> str:
        """The outcome in two words, as a label on the verdict, the same wherever it stands."""
        if self.outcome == Outcome.LEAK:
            return f"{self.level} leak"
        if self.outcome == Outcome.INCONCLUSIVE and self.degenerate:
            return "inconclusive, all guesses the same"
        return str(self.outcome)


def first(findings: Findings, **fields: Any) -> Finding | None:
    """The row that matches, a mean over seeds and all subgroups before a part of them."""
    rows = findings.select(**fields)
    # Means over seeds and all victims first; a single seed or a subgroup only where nothing else
    # is.
    rows.sort(key=lambda row: (row.seed is not None, row.subgroup is not None))
    return rows[0] if rows else None


def targets(findings: Findings, kind: str) -> list[str]:
    """The targets of a kind in the order in which they were measured."""
    return list(dict.fromkeys(row.target for row in findings if row.kind == kind))


def people_words(judgement: Judgement, what: str) -> str:
    """How many would decide what these could not, as a sentence; empty where unknown.

    `what` they are: people among the victims, or texts, or writers.
    """
    if judgement.people_needed is None:
        return ""
    return (
        f"About {count(_roughly(judgement.people_needed))} {what} would decide it if the score "
        f"stayed as it is; there were {count(judgement.people)}."
    )


def _roughly(number: int) -> int:
    """Rounded up to two digits: more would promise a precision that an estimate does not have.

    >>> _roughly(63), _roughly(1234)
    (63, 1300)
    """
    unit = 10 ** max(len(str(number)) - 2, 0)
    return -(-number // unit) * unit


def against(figures: Figures, what: str = "") -> str:
    """`78 % balanced accuracy (95 % interval 75–81 %) against 50 %`."""
    digits = figures.decimals
    return f"{figure(figures, digits, what)} against {percent(figures.base, digits)}"


def gains(figures: Figures) -> str:
    """`the attacker gains 28 points`."""
    return f"the attacker gains {points(figures.gain, figures.decimals)}"


def value_of(row: Finding | None) -> float | None:
    """The row's number; None where there is no row or no number."""
    return row.value if row is not None and is_number(row.value) else None
