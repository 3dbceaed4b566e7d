"""The table of uses: what a release is for decides the method, and each line says why.

Whoever protects vectors for the first time knows what they are for, not what the methods are
called. A proposal is a start, no promise: what it hides on these data is measured afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from capelet.defences.settings import Settings
from capelet.errors import check_known


@dataclass(frozen=True)
class Use:
    """What is released for what, the method that serves it best, what it keeps, and why."""

    summary: str
    method: str
    keep: str
    reason: str


class Proposal(NamedTuple):
    """A method and its settings, as `protect` takes them, and the reason for the choice."""

    method: str
    settings: Settings
    reason: str


USES: dict[str, Use] = {
    "task": Use(
        "Vectors for one task, with a guarantee.",
        "bottleneck",
        "task",
        "it lets one of few symbols or a few noisy numbers through, so the task works at a real ε; "
        "what leaves is no use for anything else, search included",
    ),
    # The figures are those of the card of defences (general-purpose protection).
    "search": Use(
        "Vectors for search or clusters; no guarantee.",
        "leace",
        "neighbours",
        "of the maps that keep neighbours it costs least; but a map without noise hides little and "
        "guarantees nothing: on four sets it took 2 to 3 points from the best attacker, so most of "
        "what the vectors tell of their writers stays",
    ),
    "texts": Use(
        "Texts, rewritten word by word.",
        "mdp",
        "task",
        "it replaces words before anything is encoded, so that the rewritten text may leave; its ε "
        "is for each word and per unit of distance, and nothing bounds what a whole text tells",
    ),
}


def propose(use: str, settings: Settings | None = None) -> Proposal:
    """The method for a use, and the settings with what it keeps.

    >>> proposal = propose("task", Settings(epsilon=8))
    >>> proposal.method, proposal.settings.keep
    ('bottleneck', 'task')
    """
    check_known("use", use, USES)
    record = USES[use]
    return Proposal(record.method, replace(settings or Settings(), keep=record.keep), record.reason)
