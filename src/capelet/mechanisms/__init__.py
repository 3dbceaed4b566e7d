"""Mechanisms: noise with a proof. They learn nothing, and their ε is true of what they emit.

`MECHANISMS` is the table of names that a recipe may use. To add one: a class in this room, a line
here, a card in docs. The known-broken forms in `specimens` are not in it.
"""

from __future__ import annotations

from collections.abc import Callable

from capelet.interfaces import Step
from capelet.mechanisms.rounding import Rounding
from capelet.mechanisms.vectors import Gaussian, Laplace, PrivUnit, Projection, RandomisedResponse
from capelet.mechanisms.words import TruncatedExponential, WordDropout, WordReplacement

MECHANISMS: dict[str, Callable[..., Step]] = {
    "laplace": Laplace,
    "gaussian": Gaussian,
    "privunit": PrivUnit,
    "randomised-response": RandomisedResponse,
    "projection": Projection,
    "rounding": Rounding,
    "word-replacement": WordReplacement,
    "truncated-exponential": TruncatedExponential,
    "word-dropout": WordDropout,
}

__all__ = [
    "MECHANISMS",
    "Gaussian",
    "Laplace",
    "PrivUnit",
    "Projection",
    "RandomisedResponse",
    "Rounding",
    "TruncatedExponential",
    "WordDropout",
    "WordReplacement",
]
