"""Empirical ε: does a mechanism keep its claim? The judge that catches false ones.

    verdict = capelet.verify(mechanism, claimed=1.0, samples=1_000_000, dimension=16)
    print(verdict.sentence)

`pairs` holds the inputs tried, `statistics` what is read off the outputs, `bounds` what a count
proves, `search` how the worst event is found, `judge` the verdict.
"""

from __future__ import annotations

from capelet.judge.bounds import Tradeoff
from capelet.judge.judge import Verdict, verify, verify_recipe
from capelet.judge.pairs import Pair, corners

__all__ = ["Pair", "Tradeoff", "Verdict", "corners", "verify", "verify_recipe"]
