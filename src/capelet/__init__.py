"""Capelet: find out what your text embeddings give away about the people who wrote the texts.

    import capelet
    corpus = capelet.load("reviews")
    findings = capelet.audit(corpus, "minilm")
    for verdict in capelet.verdicts(findings):
        print(verdict.sentence)

Names are imported at first use, so that `import capelet` costs nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from capelet import silence

# Before anything else is imported: most packages read such a switch only once.
silence.switch_off()
# Threads that wait for each other sleep instead of spinning: on a busy machine the spinning of one
# training takes the cores that it waits for. OpenMP reads this when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

__version__ = "0.1.0"

if TYPE_CHECKING:
    from capelet.client import Client
    from capelet.data.corpus import Corpus, Split
    from capelet.data.datasets import load
    from capelet.data.readers import read
    from capelet.defences import Settings, propose
    from capelet.errors import CapeletError
    from capelet.findings import Finding, Findings
    from capelet.integrations import Cape, Protector
    from capelet.integrations.sentence_transformer import sentence_transformer
    from capelet.judge import verify
    from capelet.mechanisms import Gaussian, Laplace, PrivUnit, Projection, RandomisedResponse
    from capelet.privacy.guarantees import Guarantee
    from capelet.release import PrivateEncoder, Release, encode
    from capelet.reports import verdicts, write_report
    from capelet.workflows.audit import audit
    from capelet.workflows.check import check
    from capelet.workflows.protect import protect

_HOME = {
    "audit": "capelet.workflows.audit",
    "check": "capelet.workflows.check",
    "Corpus": "capelet.data.corpus",
    "Split": "capelet.data.corpus",
    "read": "capelet.data.readers",
    "load": "capelet.data.datasets",
    "Settings": "capelet.defences",
    "propose": "capelet.defences",
    "CapeletError": "capelet.errors",
    "Finding": "capelet.findings",
    "Findings": "capelet.findings",
    "Guarantee": "capelet.privacy.guarantees",
    "Cape": "capelet.integrations",
    "Client": "capelet.client",
    "Protector": "capelet.integrations",
    "Gaussian": "capelet.mechanisms",
    "Laplace": "capelet.mechanisms",
    "PrivUnit": "capelet.mechanisms",
    "Projection": "capelet.mechanisms",
    "RandomisedResponse": "capelet.mechanisms",
    "protect": "capelet.workflows.protect",
    "render_cards": "capelet.reports.notebook",
    "render_table": "capelet.reports.notebook",
    "PrivateEncoder": "capelet.release",
    "encode": "capelet.release",
    "Release": "capelet.release",
    "sentence_transformer": "capelet.integrations.sentence_transformer",
    "verdicts": "capelet.reports",
    "verify": "capelet.judge",
    "write_report": "capelet.reports",
}

__all__ = [
    "Cape",
    "CapeletError",
    "Client",
    "Corpus",
    "Finding",
    "Findings",
    "Gaussian",
    "Guarantee",
    "Laplace",
    "PrivUnit",
    "PrivateEncoder",
    "Projection",
    "Protector",
    "RandomisedResponse",
    "Release",
    "Settings",
    "Split",
    "audit",
    "check",
    "encode",
    "load",
    "propose",
    "protect",
    "read",
    "sentence_transformer",
    "verdicts",
    "verify",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'capelet' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
