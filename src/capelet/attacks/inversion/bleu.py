"""How near a sentence that was read back is to the true one: corpus BLEU and exact match.

BLEU is that of Papineni et al. (2002): the geometric mean of the clipped precisions of 1 to 4
tokens, counted over all sentences, times the brevity penalty; one reference, no smoothing. Tokens
are words and single marks of punctuation, in lower case. A match is exact when all words are there
in their order; case and punctuation are not asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from capelet.attacks.inversion.word_sets import Floats
from capelet.data.text import words_and_marks, words_of

ORDERS = 4


def bleu_counts(guesses: Sequence[str], truths: Sequence[str]) -> Floats:
    """A row per sentence: matches of 1 to 4 tokens, how many were said, and both lengths.

    Rows add up, and so sentences can be resampled: `bleu(weights @ bleu_counts(…))`.
    """
    rows = []
    for guess, truth in zip(guesses, truths, strict=True):
        output, reference = words_and_marks(guess), words_and_marks(truth)
        right, whole = [], []
        for order in range(1, ORDERS + 1):
            mine, true = _runs(output, order), _runs(reference, order)
            # The smaller of both counts: a word said twice is right twice only if it is true twice.
            right.append((mine & true).total())
            whole.append(mine.total())
        rows.append([*right, *whole, len(output), len(reference)])
    return np.array(rows, dtype=np.float64).reshape(-1, 2 * ORDERS + 2)


def bleu(counts: Floats) -> Floats:
    """BLEU, between 0 and 1, of summed counts; of each row where there are several sums.

    >>> round(float(bleu(bleu_counts(["a b c d e"], ["a b c d f"]).sum(axis=0))), 4)
    0.6687
    """
    right, whole = counts[..., :ORDERS], counts[..., ORDERS : 2 * ORDERS]
    output_length, reference_length = counts[..., -2], counts[..., -1]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(right / whole).mean(axis=-1)
        # The logarithm of the brevity penalty: without it one sure word would be a perfect answer.
        short = np.minimum(0.0, 1 - reference_length / output_length)
        value = np.exp(logs + short)
    # Without smoothing, no match of some order is a BLEU of 0.
    return np.where((right > 0).all(axis=-1), value, 0.0)


def exact(guesses: Sequence[str], truths: Sequence[str]) -> Floats:
    """1 for each sentence whose words are all there in their order, else 0.

    >>> exact(["oh no", "no oh"], ["Oh, no!", "Oh, no!"]).tolist()
    [1.0, 0.0]
    """
    pairs = zip(guesses, truths, strict=True)
    return np.array([float(words_of(one) == words_of(two)) for one, two in pairs])


def _runs(tokens: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[at : at + order]) for at in range(len(tokens) - order + 1))
