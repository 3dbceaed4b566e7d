"""Erasure of what readers look at: LEACE, then the directions along which their guesses turn.

A map for neighbours that only *bends* vectors hides nothing: whoever holds it walks back along its
gradient (`attacks.adaptive`). What a map has *lost*, nobody finds. So this one loses directions, as
few as do the most harm to whoever reads the secrets:

1. LEACE takes the class means: no linear attacker is left (Belrose et al. 2023).
2. Readers (perceptrons, each judged on texts that it has not learnt) are trained on what is left.
   G = E[∇p(x) ∇p(x)ᵀ], with p the chance that they give a class, says along which directions they
   look; in coordinates of variance one its first eigenvectors span what they use (the outer product
   of gradients of Samarov 1993, Hristache et al. 2001).
3. The first k of these are taken out, so that what stays is uncorrelated with them.

It is one affine map of lower rank. λ says how much: k = 4·λ directions beyond those of LEACE.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from capelet.defences.erasure import erase
from capelet.defences.readers import Reader, read
from capelet.defences.settings import Defence, Part, Schedule, Settings, TrainedMap
from capelet.interfaces import Progress
from capelet.release.maps import Layer, Map, affine

Reals = npt.NDArray[np.float64]
# Directions beyond LEACE's at λ = 1: on the news and on the tweets of the card, the first three or
# four took most of what readers had, and twenty took little more.
DIRECTIONS = 4
# Of the largest variance: less is rounding, and is not blown up.
LEAST_VARIANCE = 1e-7


def fit_reader_erasure(
    part: Part, settings: Settings, checkpoints: Path | None, progress: Progress
) -> Defence:
    """The map that erases what LEACE and readers find; λ = 0 changes nothing."""
    start = time.monotonic()
    lam = settings.lam
    rows = np.concatenate([part.fit, part.tune])
    eraser = _identity(part.width)
    if lam and part.secrets:
        eraser = erase(part).map.layers[0]
        count = min(round(DIRECTIONS * lam), part.width // 2)
        if count:
            rest = replace(part, vectors=eraser(part.vectors.astype(np.float32)), fit=rows)
            eraser = _join(eraser, _without_sight(rest, settings.schedule, count, progress))
    return Defence(TrainedMap(Map((eraser,)), seconds=time.monotonic() - start))


def _identity(width: int) -> Layer:
    return affine(np.eye(width), np.zeros(width))


def _join(first: Layer, second: Layer) -> Layer:
    """One affine layer for two."""
    weight = second.weight.astype(np.float64) @ first.weight
    return affine(weight, second.weight.astype(np.float64) @ first.bias + second.bias)


def _without_sight(part: Part, schedule: Schedule, count: int, progress: Progress) -> Layer:
    """x ↦ μ + (I − R·E·Eᵀ·R⁺)(x − μ): R is the root of the covariance, E what readers look along.

    Afterwards nothing that is left is correlated with what was taken.
    """
    x = np.asarray(part.vectors, dtype=np.float64)
    own = x[part.fit]
    middle = own.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov(own.T, bias=True))
    # LEACE left directions without variance: they are neither whitened nor touched.
    alive = values > LEAST_VARIANCE * values[-1]
    deviations = np.sqrt(np.where(alive, values, 0.0))
    inverse = np.where(alive, 1 / np.where(alive, deviations, 1.0), 0.0)
    root, inverse_root = (axes * deviations) @ axes.T, (axes * inverse) @ axes.T
    # Readers learn where all directions vary alike. On vectors as they are they would look along
    # the widest ones, and to lose those costs far more neighbours.
    white = replace(part, vectors=((x - middle) @ inverse_root).astype(np.float32))
    # Along directions without variance a reader's slope is what it began with: within the span of
    # the others alone, or the erasure would take a part of a direction, and a part can be undone.
    span = axes[:, alive]
    sight = span.T @ _outer_product(white, read(white, schedule, progress)) @ span
    directions = span @ np.linalg.eigh(sight)[1][:, ::-1][:, :count]
    apply = np.eye(part.width) - root @ directions @ directions.T @ inverse_root
    # As in `erase`: rounding in a dead coordinate would be read by whoever standardises.
    dead = own.std(axis=0) <= 1e-6 * np.abs(own).max()
    apply[dead], apply[:, dead] = 0.0, 0.0
    return affine(apply, middle - apply @ middle)


def _outer_product(part: Part, reader: Reader) -> Reals:
    """Σ over secrets of E[∇p∇pᵀ]/tr: each secret counts alike, however well it is read."""
    x = torch.tensor(np.asarray(part.vectors[part.fit], dtype=np.float32))
    total = np.zeros((part.width, part.width))
    for place in range(len(reader.sizes)):
        own = np.zeros_like(total)
        for body in reader.bodies:
            for slope in _slopes(body, x, reader.sizes, place):
                own += slope.T @ slope
        total += own / max(float(np.trace(own)), 1e-30)
    return total


def _slopes(body: torch.nn.Module, x: Tensor, sizes: list[int], place: int) -> list[Reals]:
    """∇ of the chance of each class but the first of one secret, at every row."""
    inputs = x.to(next(body.parameters()).device).clone().requires_grad_()
    chances = torch.softmax(body(inputs).split(sizes, dim=1)[place], dim=1)
    slopes = []
    for code in range(1, sizes[place]):
        # Rows do not touch each other, so the gradient of a sum holds that of each.
        slope = torch.autograd.grad(chances[:, code].sum(), inputs, retain_graph=True)[0]
        slopes.append(slope.cpu().numpy().astype(np.float64))
    return slopes
