"""LEACE: the least change of the vectors after which no linear probe reads the secrets.

Closed form (Belrose et al. 2023), through `concept-erasure`. It holds for *linear* attackers, on
the distribution it was fitted on. A kernel or a perceptron may read the secret as before, and so
may a linear attacker behind any later ReLU or normalisation.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import torch

from capelet.data.corpus import Rows
from capelet.defences.fitting import Part, TrainedMap
from capelet.defences.settings import Defence, Settings
from capelet.errors import MissingExtra
from capelet.findings.metrics import Floats
from capelet.interfaces import Progress
from capelet.release.maps import Map, affine


def fit_erasure(
    part: Part, settings: Settings, checkpoints: Path | None, progress: Progress
) -> Defence:
    """The eraser of the part's secrets: nothing to set, nothing to resume."""
    return Defence(erase(part))


def erase(part: Part) -> TrainedMap:
    """The affine map that takes all secrets of the part out of its vectors, linearly."""
    try:
        with warnings.catch_warnings():  # it uses torch.jit, which torch has deprecated
            warnings.simplefilter("ignore", DeprecationWarning)
            from concept_erasure import LeaceFitter
    except ImportError:
        raise MissingExtra("the method leace", "protect") from None
    start = time.monotonic()
    rows = np.concatenate([part.fit, part.tune])
    x = torch.tensor(np.asarray(part.vectors[rows], dtype=np.float64))
    fitter = LeaceFitter.fit(x, torch.tensor(_columns(part, rows)))
    eraser = fitter.eraser
    apply = np.eye(part.width) - (eraser.proj_left @ eraser.proj_right).numpy()
    middle = x.mean(dim=0).numpy()
    # A dead coordinate (MiniLM has three) would carry the rounding of what was erased, and whoever
    # standardises would read it there: it stays at its mean, and nothing is taken from it.
    dead = x.std(dim=0).numpy() <= 1e-6 * np.abs(x.numpy()).max()
    apply[dead], apply[:, dead] = 0.0, 0.0
    # x ↦ μ + P(x − μ), as one affine map.
    eraser_map = Map((affine(apply, middle - apply @ middle),))
    return TrainedMap(eraser_map, seconds=time.monotonic() - start)


def _columns(part: Part, rows: Rows) -> Floats:
    """One column for each class but the first; what is missing counts as the mean.

    All classes of an attribute add up to one: with every column the covariance would be singular,
    and part of a secret could stay.
    """
    columns = []
    for item in part.secrets:
        codes = item.codes[rows]
        for code in range(1, len(item.classes)):
            column = (codes == code).astype(np.float64)
            present = codes >= 0
            column[~present] = column[present].mean() if present.any() else 0.0
            columns.append(column)
    return np.stack(columns, axis=1)
