"""Provenance: what was measured, on which data, with what, when and for how long."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from capelet.data.corpus import PARTS
from capelet.data.labels import Attribute
from capelet.data.splits import SHARES, identical, linked, near_duplicates
from capelet.evaluation.plan import Plan
from capelet.interfaces import Encoder
from capelet.privacy.guarantees import Guarantee
from capelet.release import PrivateEncoder, Release


class Clock:
    """Seconds spent in each part of the work."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - start, 3)

    def total(self) -> float:
        return round(time.perf_counter() - self.began, 3)


def provenance(
    plan: Plan, encoder: PrivateEncoder, release: Release, clock: Clock
) -> dict[str, Any]:
    corpus, model = plan.corpus, encoder.encoder
    truncated = (
        int(model.truncated(corpus.texts.tolist()).sum())
        if model is not None and corpus.texts is not None
        else 0
    )
    return {
        "capelet": importlib.metadata.version("capelet"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": {
            "name": corpus.name,
            "rows": len(corpus),
            "digest": corpus.digest(),
            "authors": None if corpus.author is None else len(set(corpus.author)),
            "duplicates": _duplicates(plan),
            "truncated": truncated,
            "where": corpus.where,
        },
        "attributes": {item.name: _described(item) for item in plan.secrets},
        "label": None
        if plan.label is None
        else {"name": plan.label.name, **_described(plan.label)},
        "encoder": {"dimension": release.vectors.shape[1], **described_encoder(model)},
        "cache": at_home(folder) if (folder := getattr(model, "folder", None)) else None,
        "split": {
            "kind": plan.splits[0].kind,
            "shares": SHARES,
            "sizes": {part: len(getattr(plan.splits[0], part)) for part in PARTS},
            "seeds": [parts.seed for parts in plan.splits],
        },
        "guarantee": described_guarantee(release.guarantee, release.word_guarantee),
        "versions": versions(),
        "warnings": [*plan.warnings, *plan.advance(release.guarantee)],
        "seconds": {**clock.seconds, "total": clock.total()},
    }


def at_home(folder: Path) -> str:
    """The folder with `~` for the user's own, so that a report does not name its user."""
    home = Path.home()
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)


def _described(item: Attribute) -> dict[str, Any]:
    return {"classes": item.counts(), "missing": item.missing, "notes": list(item.notes)}


def described_guarantee(guarantee: Guarantee, words: Guarantee | None) -> dict[str, Any]:
    """What is promised of the text and, where word dropout adds something, of each word."""
    return {
        **asdict(guarantee),
        "sentence": guarantee.sentence(),
        "words": words.sentence() if words is not None else None,
    }


def described_encoder(model: Encoder | None) -> dict[str, Any]:
    """Which encoder made the vectors, if one did."""
    if model is None:
        return {"name": "ready vectors"}
    return {
        "name": model.name,
        "backend": model.backend,
        "fingerprint": model.fingerprint,
        "dimension": model.dimension,
    }


def _duplicates(plan: Plan) -> dict[str, Any]:
    """How many rows repeat an earlier one, exactly and nearly, and how many cross parts."""
    same = identical(plan.corpus)
    repeated = len(same) - len(np.unique(same))
    if plan.corpus.texts is None:
        return {"identical": repeated, "near": None, "victims_near_attacker": None}
    near = near_duplicates(plan.corpus.texts)
    return {
        "identical": repeated,
        "near": len(near) - len(np.unique(near)),
        "victims_near_attacker": linked(plan.splits[0], near),
    }


def versions() -> dict[str, str]:
    packages = ("numpy", "scipy", "scikit-learn", "torch", "sentence-transformers", "onnxruntime")
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
