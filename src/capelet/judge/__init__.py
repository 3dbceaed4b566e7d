"""Empirical ε: does a mechanism keep its claim? The judge that catches false ones.

    verdict = capelet.verify(mechanism, claimed=1.0, samples=1_000_000, dimension=16)
    print(verdict.sentence)

`pairs` holds the inputs tried, `calls` which rows share a call and what is looked at together,
`statistics` what is read off the outputs, `bounds` what a count proves, `search` how the worst
events are found, `judge` the verdict. `pipeline` judges the whole road, from file to file, and
`released` what one released file tells beside its vectors.
"""

from __future__ import annotations

from capelet.judge.bounds import Tradeoff
from capelet.judge.judge import Verdict, verify, verify_recipe
from capelet.judge.pairs import Pair, corners
from capelet.judge.pipeline import verify_pipeline
from capelet.judge.released import Inspection, inspect_file

__all__ = [
    "Inspection",
    "Pair",
    "Tradeoff",
    "Verdict",
    "corners",
    "inspect_file",
    "verify",
    "verify_pipeline",
    "verify_recipe",
]
