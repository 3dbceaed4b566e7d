"""Official parts: a column in which publishers of a set say what is for training, what for test.

The rows for test are the victims. Those for training and development are divided between defender
and attacker, as in the other splits. A person (or a text) that stands on both sides of the official
border is a victim, and the rows beyond the border belong to no part: publishers split for a task,
and most let one writer into both, but an attacker must be scored on strangers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capelet.data.corpus import Corpus
from capelet.data.messages import kind_of
from capelet.errors import DataError, did_you_mean, name_field

PREFIX = "column:"
TRAINING = frozenset({"train", "training", "dev", "development", "valid", "validation", "val"})
TEST = frozenset({"test", "testing"})


def column_of(kind: str) -> str | None:
    """The column that a split names; None for a split that needs none.

    >>> column_of("column:split"), column_of("random")
    ('split', None)
    """
    if not kind.startswith(PREFIX):
        return None
    name = kind.removeprefix(PREFIX)
    if not name:
        raise DataError(
            f"{name_field('split', 'column:')} names no column; write the name behind the colon"
        )
    return name


def rows_for_test(corpus: Corpus, column: str) -> npt.NDArray[np.bool_]:
    """Which rows are for test; a column that is missing, or says anything else, is refused."""
    if corpus.official is None or corpus.official_name != column:
        names = [] if corpus.official_name is None else [corpus.official_name]
        raise DataError(
            f"{corpus.name!r} was read without the column {column!r} of official parts "
            f"({did_you_mean(column, names)}); read it with official="
        )
    words = [str(value).strip().lower() for value in corpus.official]
    for row, word in enumerate(words):
        if word not in TRAINING | TEST:
            kind = "empty" if kind_of(corpus.official[row]) == "empty" else "something else"
            raise DataError(
                f"row {row} of the column {column!r} must be train, dev or test, and is {kind}; "
                f"leave such rows out with {name_field('where')}"
            )
    flags = np.array([word in TEST for word in words], dtype=bool)
    for missing, part in ((not flags.any(), "test"), (flags.all(), "train")):
        if missing:
            raise DataError(
                f"the column {column!r} names no row for {part}; official parts need both"
            )
    return flags
