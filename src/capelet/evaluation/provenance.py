"""Provenance: what was measured, on which data, with what, when and for how long.

There is one builder, `provenance`, and there are functions that describe its sections. An audit has
a plan of three parts; inversion and membership alone split in two, auxiliary texts and victims, and
say the same of everything else; language models have no encoder.
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from capelet.data.corpus import PARTS, Corpus, Split
from capelet.data.labels import Attribute
from capelet.data.official import column_of
from capelet.data.splits import SHARES, identical, linked_share, near_duplicates
from capelet.encoders.own import public_fingerprint
from capelet.evaluation.plan import Plan
from capelet.files import home_folder, sha256_of_file
from capelet.findings import Findings
from capelet.interfaces import Encoder
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.privacy.origins import keyed_name
from capelet.release import PrivateEncoder, Release


class Clock:
    """Seconds spent in each part of the work."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = self.seconds.get(name, 0.0) + time.perf_counter() - start
            self.seconds[name] = round(seconds, 3)

    def total(self) -> float:
        return round(time.perf_counter() - self.start, 3)

    def summary(self) -> dict[str, float]:
        return {**self.seconds, "total": self.total()}


def provenance(data: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
    """The provenance of any run: version and time, what the data are, and the sections given.

    Sections of a measurement on vectors are `attributes`, `label`, `encoder`, `release`, `cache`,
    `split`, `guarantee`, `versions`, `warnings` and `seconds`; see the functions below that
    describe them.
    """
    return {
        "capelet": importlib.metadata.version("capelet"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": dict(data),
        **sections,
    }


def audit_provenance(
    plan: Plan, encoder: PrivateEncoder, release: Release, clock: Clock
) -> dict[str, Any]:
    """Of an audit, by its plan."""
    corpus, model = plan.corpus, encoder.encoder
    cut_texts = (
        int(model.truncated(corpus.texts.tolist()).sum())
        if model is not None and corpus.texts is not None
        else 0
    )
    label = plan.label
    return provenance(
        describe_corpus(corpus, duplicates=_duplicates(plan), truncated=cut_texts),
        attributes={item.name: _describe_attribute(item) for item in plan.secrets},
        label=None if label is None else {"name": label.name, **_describe_attribute(label)},
        encoder={"dimension": release.vectors.shape[1], **describe_encoder(model)},
        release={"dimension": int(release.vectors.shape[1])},
        cache=describe_cache(model),
        split={
            "kind": plan.splits[0].kind,
            "shares": _shares(plan.splits[0]),
            "sizes": {part: len(getattr(plan.splits[0], part)) for part in PARTS},
            "seeds": [parts.seed for parts in plan.splits],
        },
        guarantee=describe_guarantee(release.guarantee, release.word_guarantee),
        noise=noise_source(encoder, release),
        versions=versions(),
        warnings=[*plan.warnings, *plan.epsilon_warnings(release.guarantee)],
        seconds=clock.summary(),
    )


def describe_auxiliary(corpus: Corpus, overlap: int) -> dict[str, Any]:
    """Of other data that taught an attacker; `overlap` rows were left out as the audited ones'."""
    return {
        "name": corpus.name,
        "rows": len(corpus),
        "overlap": overlap,
        "digest": keyed_name(corpus.digest()),
    }


# Of an attack alone: the metric of the rows that count its texts, and the part that they count.
_COUNTED = {"inversion": ("f1", "victims"), "membership": ("advantage", "scored")}


def attack_provenance(
    attack: str,
    corpus: Corpus,
    model: PrivateEncoder | Path,
    findings: Findings,
    clock: Clock,
    *,
    seed: int,
    auxiliary: Corpus | None = None,
    **about: int,
) -> dict[str, Any]:
    """Of one attack alone, on what a private encoder releases or on a file of word vectors.

    `about` is what else is to be said of the corpus: its pieces, its members.
    """
    metric, part = _COUNTED[attack]
    rows = findings.select(kind=attack, metric=metric, subgroup=None)
    # Aggregates count writers, not rows.
    rows = [row for row in rows if row.target != "aggregates"]
    sizes = {
        "auxiliary": max((int(row.parameters.get("auxiliary", 0)) for row in rows), default=0),
        part: max((row.n or 0 for row in rows), default=0),
    }
    # How the attack itself split: whole authors where they are known.
    kind = "by_text" if corpus.author is None else "by_author"
    sections: dict[str, Any] = {}
    if auxiliary is not None:
        kind, name = "own_texts", auxiliary.name
        sections = {"auxiliary": {"name": name, "digest": keyed_name(auxiliary.digest())}}
    if isinstance(model, PrivateEncoder):
        encoder, cache = describe_encoder(model.encoder), describe_cache(model.encoder)
        guarantee = describe_guarantee(model.guarantee, model.word_guarantee)
    else:
        encoder, cache = _describe_word_table(model), None
        guarantee = describe_guarantee(NONE, None)
    return provenance(
        describe_corpus(corpus, **about),
        attributes={},
        label=None,
        encoder=encoder,
        cache=cache,
        split={"kind": kind, "sizes": sizes, "seeds": [seed]},
        guarantee=guarantee,
        versions=versions(),
        warnings=[],
        seconds=clock.summary(),
        **sections,
        attacks=[attack],
    )


def describe_corpus(corpus: Corpus, **more: Any) -> dict[str, Any]:
    """Which data: name, size, digest, how many authors, and what else is to be said of them.

    The digest is under this user's key: findings are shown to others, and a plain one would confirm
    a guess of the last unknown text.
    """
    return {
        "name": corpus.name,
        "rows": len(corpus),
        "digest": keyed_name(corpus.digest()),
        "authors": None if corpus.author is None else len(set(corpus.author)),
        **more,
        "where": corpus.where,
    }


def describe_cache(model: Encoder | None) -> str | None:
    """Where vectors are kept, with `~` for the user's folder: a report does not name its user."""
    folder: Path | None = getattr(model, "folder", None)
    if not folder:
        return None
    home = home_folder()
    # The root names nobody, and everything lies in it.
    is_inside = folder.is_relative_to(home) and home != Path(home.root)
    return f"~/{folder.relative_to(home)}" if is_inside else str(folder)


def describe_guarantee(guarantee: Guarantee, words: Guarantee | None) -> dict[str, Any]:
    """What is promised of the text and, where word dropout adds something, of each word."""
    return {
        **guarantee.to_json(),
        "sentence": guarantee.sentence(),
        "words": words.sentence() if words is not None else None,
    }


def noise_source(encoder: PrivateEncoder, release: Release) -> str:
    """Where the noise of the measured release came from; that of a study could be drawn again."""
    if not encoder.draws:
        return "none"
    return "operating system" if release.unseeded_guarantee is None else "seeded"


def describe_encoder(model: Encoder | None) -> dict[str, Any]:
    """Which encoder made the vectors, if one did."""
    if model is None:
        return {"name": "ready vectors"}
    return {
        "name": model.name,
        "backend": model.backend,
        "fingerprint": public_fingerprint(model),
        "dimension": model.dimension,
    }


def _describe_attribute(item: Attribute) -> dict[str, Any]:
    return {"classes": item.counts(), "missing": item.missing, "notes": list(item.notes)}


def _describe_word_table(path: Path) -> dict[str, Any]:
    """A table of word vectors is known by its file's hash, keyed: somebody's texts trained it."""
    fingerprint = keyed_name(sha256_of_file(path))
    return {"name": f"word vectors {path.name}", "fingerprint": fingerprint}


def _duplicates(plan: Plan) -> dict[str, Any]:
    """How many rows repeat an earlier one, exactly and nearly, and how many cross parts."""
    same = identical(plan.corpus)
    repeats = len(same) - len(np.unique(same))
    if plan.corpus.texts is None:
        return {"identical": repeats, "near": None, "victims_near_attacker": None}
    near = near_duplicates(plan.corpus.texts)
    return {
        "identical": repeats,
        "near": len(near) - len(np.unique(near)),
        "victims_near_attacker": linked_share(plan.splits[0], near),
    }


def _shares(parts: Split) -> dict[str, float]:
    """The shares that a split aims at; of official parts those that they have."""
    if column_of(parts.kind) is None:
        return SHARES
    sizes = {name: len(getattr(parts, name)) for name in PARTS}
    return {name: round(size / sum(sizes.values()), 3) for name, size in sizes.items()}


def versions() -> dict[str, str]:
    """Of Python and of the packages whose arithmetic a number may depend on."""
    packages = ("numpy", "scipy", "scikit-learn", "torch", "sentence-transformers", "onnxruntime")
    result = {"python": platform.python_version()}
    for name in packages:
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return result
