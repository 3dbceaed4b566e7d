"""Guarantees as data, and the ceiling that an ε puts on every attacker and every task.

A guarantee says what holds (ε, δ), in which notion, for which unit, and whether that is proven. A
release without noise carries `NONE`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from capelet.errors import CapeletError

Notion = Literal["none", "local", "metric", "central"]
Unit = Literal["text", "word", "record"]
Status = Literal["proven", "claimed", "broken", "none"]


@dataclass(frozen=True)
class Guarantee:
    """What a release promises: (ε, δ) in a notion of privacy, for a unit, with a status.

    >>> Guarantee(epsilon=2.0, notion="local", unit="text", status="proven").sentence()
    '2-local differential privacy for each text (proven)'
    """

    epsilon: float
    delta: float = 0.0
    notion: Notion = "local"
    unit: Unit = "text"
    status: Status = "proven"

    def sentence(self) -> str:
        if self.notion == "none":
            return "no guarantee: the vectors are released as they are"
        amount = f"{self.epsilon:g}" if self.delta == 0 else f"({self.epsilon:g}, {self.delta:g})"
        return f"{amount}-{self.notion} differential privacy for each {self.unit} ({self.status})"


NONE = Guarantee(epsilon=math.inf, notion="none", status="none")


def compose(parts: Sequence[Guarantee]) -> Guarantee:
    """What holds of several releases of one unit together: ε and δ add, unlike things do not.

    >>> compose([Guarantee(1.0), Guarantee(2.0, delta=1e-6)]).epsilon
    3.0
    """
    if not parts:
        return NONE
    if len({(part.notion, part.unit) for part in parts}) > 1:
        found = " and ".join(sorted({f"{part.notion} ({part.unit})" for part in parts}))
        raise CapeletError(f"guarantees of different notions or units do not add up: {found}")
    ranks: list[Status] = ["none", "broken", "claimed", "proven"]
    return Guarantee(
        epsilon=sum(part.epsilon for part in parts),
        delta=min(1.0, sum(part.delta for part in parts)),
        notion=parts[0].notion,
        unit=parts[0].unit,
        status=min((part.status for part in parts), key=ranks.index),
    )


def ceiling(prior: Sequence[float], guarantee: Guarantee) -> float | None:
    """The best accuracy of anyone who guesses a secret with this prior from one release.

    For (ε, δ)-local privacy of whole texts it is δ + (1−δ)·max over m of e^ε/(e^ε+m−1) · (sum of
    the m largest priors), and m-ary randomised response attains it. It bounds the attacker and the
    user's own task alike. None where no such bound is known.

    >>> local = Guarantee(epsilon=2.0)
    >>> round(ceiling([0.744, 0.15, 0.05, 0.03, 0.026], local), 3)
    0.787
    """
    if guarantee.notion != "local" or guarantee.unit != "text" or guarantee.status != "proven":
        return None
    sizes = np.arange(len(prior))
    mass = np.cumsum(np.sort(np.asarray(prior, dtype=float))[::-1])
    # e^ε/(e^ε + m − 1), written so that a large ε cannot overflow.
    best = float(np.max(mass / (1.0 + sizes * math.exp(-guarantee.epsilon))))
    return guarantee.delta + (1.0 - guarantee.delta) * min(best, 1.0)


def ceiling_auc(guarantee: Guarantee) -> float | None:
    """The largest area under the ROC curve that the guarantee permits (two classes)."""
    if guarantee.notion != "local" or guarantee.unit != "text" or guarantee.status != "proven":
        return None
    return 1.0 - (1.0 - guarantee.delta) ** 2 / (1.0 + math.exp(guarantee.epsilon))
