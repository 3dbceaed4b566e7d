"""Where the findings of a single attack come from: data, model, sizes, seed, versions, time.

An audit has a plan of three parts and its own `provenance`; inversion and membership alone split
in two, auxiliary texts and victims, and say the same of everything else.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from capelet.data.corpus import Corpus
from capelet.evaluation.provenance import (
    Clock,
    at_home,
    described_encoder,
    described_guarantee,
    versions,
)
from capelet.files import sha256_of_file
from capelet.findings import Findings
from capelet.privacy.guarantees import NONE
from capelet.release import PrivateEncoder


def origin_of_inversion(
    corpus: Corpus,
    private: PrivateEncoder,
    findings: Findings,
    clock: Clock,
    *,
    seed: int,
    texts: int,
    auxiliary: Corpus | None = None,
) -> dict[str, Any]:
    """The provenance of one inversion attack; `texts` is how many there were after cutting."""
    rows = findings.select(kind="inversion", metric="f1", subgroup=None)
    kind = "by_author" if corpus.author is not None else "by_text"
    sizes = {
        "auxiliary": max((int(row.parameters.get("auxiliary", 0)) for row in rows), default=0),
        "victims": max((row.n or 0 for row in rows), default=0),
    }
    split = {"kind": "own_texts" if auxiliary is not None else kind, "sizes": sizes}
    said = _origin(
        corpus, described_encoder(private.encoder), private, {**split, "seeds": [seed]}, clock
    )
    said["data"]["pieces"] = texts
    if auxiliary is not None:
        said["auxiliary"] = {"name": auxiliary.name, "digest": auxiliary.digest()}
    return {**said, "attacks": ["inversion"]}


def origin_of_membership(
    corpus: Corpus,
    model: PrivateEncoder | Path,
    findings: Findings,
    clock: Clock,
    *,
    seed: int,
    members: int,
) -> dict[str, Any]:
    """The provenance of one membership attack on an encoder or on a file of word vectors."""
    rows = findings.select(kind="membership", metric="advantage", subgroup=None)
    rows = [row for row in rows if row.target != "aggregates"]
    sizes = {
        "auxiliary": max((int(row.parameters.get("auxiliary", 0)) for row in rows), default=0),
        "scored": max((row.n or 0 for row in rows), default=0),
    }
    alone = corpus.author is None or not isinstance(model, PrivateEncoder)
    split = {"kind": "by_text" if alone else "by_author", "sizes": sizes, "seeds": [seed]}
    if isinstance(model, PrivateEncoder):
        encoder, private = described_encoder(model.encoder), model
    else:
        encoder, private = _of_words(model), None
    said = _origin(corpus, encoder, private, split, clock)
    said["data"]["members"] = members
    return {**said, "attacks": ["membership"]}


def _origin(
    corpus: Corpus,
    encoder: Mapping[str, Any],
    private: PrivateEncoder | None,
    split: Mapping[str, Any],
    clock: Clock,
) -> dict[str, Any]:
    guarantee = NONE if private is None else private.guarantee
    words = None if private is None else private.word_guarantee
    folder = getattr(private.encoder, "folder", None) if private is not None else None
    return {
        "capelet": importlib.metadata.version("capelet"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": {
            "name": corpus.name,
            "rows": len(corpus),
            "digest": corpus.digest(),
            "authors": None if corpus.author is None else len(set(corpus.author)),
            "where": corpus.where,
        },
        "attributes": {},
        "label": None,
        "encoder": dict(encoder),
        "cache": at_home(folder) if folder is not None else None,
        "split": dict(split),
        "guarantee": described_guarantee(guarantee, words),
        "versions": versions(),
        "warnings": [],
        "seconds": {**clock.seconds, "total": clock.total()},
    }


def _of_words(path: Path) -> dict[str, Any]:
    """A table of word vectors is known by its file's hash."""
    return {"name": f"word vectors {path.name}", "fingerprint": sha256_of_file(path)}
