"""Defences: they learn a map that keeps what is wanted and loses the writer.

A method is a record of the table in `methods`: which steps stand around the learnt map, and what
its training asks for. Families of methods are files (`dense`, `bottleneck`, `erasure`,
`autoencoder`); there is one class for each thing that a loss can ask for (`terms`). Which method
serves which use stands in `uses`.
"""

from __future__ import annotations

from capelet.defences.methods import (
    METHODS,
    Method,
    check_attributes,
    check_choices,
    check_needs,
    check_options,
    fit,
    method,
)
from capelet.defences.settings import (
    KEEPS,
    PRESETS,
    Defence,
    HeadShape,
    Part,
    Schedule,
    Settings,
    TrainingPrivacy,
)
from capelet.defences.uses import USES, Proposal, propose

__all__ = [
    "KEEPS",
    "METHODS",
    "PRESETS",
    "USES",
    "Defence",
    "HeadShape",
    "Method",
    "Part",
    "Proposal",
    "Schedule",
    "Settings",
    "TrainingPrivacy",
    "check_attributes",
    "check_choices",
    "check_needs",
    "check_options",
    "fit",
    "method",
    "propose",
]
