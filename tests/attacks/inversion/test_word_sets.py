"""The attacker's vocabulary is the same in every process, whatever Python's hash seed is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SETUP = """
from capelet.attacks.inversion.word_sets import Vocabulary
words = [f"{a}{b}l" for a in "bdfgk" for b in "aeiou"]  # all equally frequent
texts = [" ".join(words)] * 50
"""
SET_ORDER = "print(list(set(words)))"
VOCABULARY = "print(Vocabulary.of(texts, most=20).words)"
POOL = """
from types import SimpleNamespace
from capelet.attacks.inversion.candidate_search import CandidateSearch, Weights
search = SimpleNamespace(words=[{}], _top=lambda row, count, weights: texts)
print(CandidateSearch._pool(search, 0, Weights()))
"""


def output(code: str, hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    process = subprocess.run(
        [sys.executable, "-c", SETUP + code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout


@pytest.mark.parametrize("code", [VOCABULARY, POOL])
def test_words_that_are_equally_frequent_come_in_the_same_order(code: str) -> None:
    assert output(code, 0) == output(code, 1)


def test_a_set_of_the_same_words_does_not() -> None:
    """The control: these two hash seeds order a set differently."""
    assert output(SET_ORDER, 0) != output(SET_ORDER, 1)
