"""Fairness: whether the task works equally well for everyone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capelet.data.labels import Attribute
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap
from capelet.findings.metrics import Guesses, accuracy_gap, score

# A subgroup with fewer victims than this, over all seeds, is not scored.
LEAST = 20


def subgroups(
    task: str,
    guesses: Sequence[Guesses],
    rows: Sequence[np.ndarray],
    attribute: Attribute,
    bootstrap: Bootstrap,
    recipe_hash: str | None = None,
) -> list[Finding]:
    """The task's accuracy in each subgroup of an attribute, and the largest gap between two."""
    findings: list[Finding] = []
    large: list[list[Guesses]] = []
    for code, name in enumerate(attribute.classes):
        # The task's guesses as they are: no probe is trained anew for a subgroup.
        inside = [attribute.codes[scored_rows] == code for scored_rows in rows]
        part = [
            Guesses(item.truth[mask], item.scores[mask], item.unit[mask])
            for item, mask in zip(guesses, inside, strict=True)
            if mask.any()
        ]
        count = sum(len(item.truth) for item in part)
        if count < LEAST:
            continue
        large.append(part)
        accuracy = score("accuracy", part, bootstrap)
        findings.append(
            Finding(
                "fairness",
                task,
                "accuracy",
                *accuracy.ends,
                n=count // len(part),
                attacker="strongest",
                subgroup=f"{attribute.name}={name}",
                parameters={"by_seed": list(accuracy.by_seed)},
                recipe_hash=recipe_hash,
            )
        )
    # Of subgroups large enough: the gap to a tiny one would be that of a few lucky rows.
    if len(large) > 1:
        gap = accuracy_gap(large, bootstrap)
        findings.append(
            Finding(
                "fairness",
                task,
                "accuracy_gap",
                *gap.ends,
                attacker="strongest",
                subgroup=attribute.name,
                recipe_hash=recipe_hash,
            )
        )
    return findings
