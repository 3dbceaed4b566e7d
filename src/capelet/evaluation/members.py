"""Which texts a defence's map was fitted to: what its own head gives away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from capelet.defences import Defence
from capelet.errors import DataError
from capelet.evaluation.membership import Membership
from capelet.evaluation.plan import Plan
from capelet.findings import Finding
from capelet.interfaces import Vectors


def members_of_map(plan: Plan, defence: Defence, vectors: Vectors) -> list[Finding]:
    """Whether the map's own head gives away the texts that both were fitted to, on one split.

    The attacker holds the folder and a text with its class. Noise before the map is nothing to him:
    he puts the text's own vector through the map, at the centre of the noise. `vectors` are those
    of the encoder in that folder, for all rows.
    """
    head, label = defence.outcome.head, plan.label
    if head is None or label is None:
        raise DataError("membership in a map is asked of its task's head, and this map has none")
    parts = plan.splits[0]
    fit_rows, _ = parts.training("defender")
    # Rows that stopped the training are neither: they were looked at, and not fitted to.
    rows = np.concatenate([fit_rows, parts.attacker, parts.victims])
    rows = rows[label.codes[rows] >= 0]
    centres = np.asarray(vectors[rows], dtype=np.float64)
    if defence.before is not None:
        centres = centres / np.maximum(np.abs(centres).sum(axis=1, keepdims=True), 1e-12)
    chances = head(defence.outcome.map(centres.astype(np.float32)))
    attack = Membership(seed=parts.seed)
    member = np.isin(rows, fit_rows)
    findings = attack.of_head(chances, label.codes[rows], member, plan.units[rows])
    return [replace(row, seed=parts.seed) for row in findings]
