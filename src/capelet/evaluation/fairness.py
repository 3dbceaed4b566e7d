"""Fairness: whether the task works equally well for everyone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from capelet.data.labels import Attribute
from capelet.evaluation.scores import Scoring
from capelet.findings import Finding
from capelet.findings.metrics import Guesses, accuracy_gap, score

# A subgroup with fewer victims than this, over all seeds, is not scored.
LEAST = 20


def subgroups(
    task: str,
    guesses: Sequence[Guesses],
    rows: Sequence[np.ndarray],
    attribute: Attribute,
    scoring: Scoring,
) -> list[Finding]:
    """The task's accuracy in each subgroup of an attribute, and the largest gap between two."""
    large: dict[str, list[Guesses]] = {}
    for code, name in enumerate(attribute.classes):
        # The task's guesses as they are: no probe is trained anew for a subgroup.
        inside = [attribute.codes[scored_rows] == code for scored_rows in rows]
        part = [
            Guesses(item.truth[mask], item.scores[mask], item.unit[mask])
            for item, mask in zip(guesses, inside, strict=True)
            if mask.any()
        ]
        if sum(len(item.truth) for item in part) >= LEAST:
            large[f"{attribute.name}={name}"] = part
    common: dict[str, Any] = {"attacker": "strongest", "recipe_hash": scoring.recipe_hash}
    findings: list[Finding] = []
    for subgroup, part in large.items():
        accuracy = score("accuracy", part, scoring.bootstrap)
        findings.append(
            Finding(
                "fairness", task, "accuracy", *accuracy.ends, subgroup=subgroup,
                n=sum(len(item.truth) for item in part) // len(part),
                parameters={"by_seed": list(accuracy.by_seed)}, **common,
            )
        )  # fmt: skip
    # Of subgroups large enough: the gap to a tiny one would be that of a few lucky rows.
    if len(large) > 1:
        ends = accuracy_gap(list(large.values()), scoring.bootstrap).ends
        gap = Finding("fairness", task, "accuracy_gap", *ends, subgroup=attribute.name, **common)
        findings.append(gap)
    return findings
