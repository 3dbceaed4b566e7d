"""Defences that look private and are not: kept to prove that our attackers can tell.

`fit_invertible` is `gr+ --keep neighbours` as it was at first: x ↦ Ax + h(x), trained
against a kernel adversary that is solved anew in every step. Fresh attackers of released vectors
read clearly less from it than from LEACE at the same recall; whoever holds the folder inverts it by
its own gradient (`attacks.adaptive.undo`) and reads nearly as much as without any protection.
"""

from __future__ import annotations

from pathlib import Path

from capelet.defences.dense import Dense
from capelet.defences.settings import Defence, Part, Settings
from capelet.interfaces import Progress, silent


def fit_invertible(
    part: Part, settings: Settings, checkpoints: Path | None = None, progress: Progress = silent
) -> Defence:
    """A map that bends vectors and loses nothing of them."""
    return Dense(adversary="kernel")(part, settings, checkpoints, progress)
