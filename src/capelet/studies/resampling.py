"""Who is resampled in a study: authors where every victim's guess is at hand, else splits.

One set of weights serves all cells. A person who is a victim of five splits is one person, and a
split that is hard is hard for both cells of a comparison: so a difference is resampled as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from capelet.errors import DataError
from capelet.findings.intervals import Bootstrap, weighted_means
from capelet.findings.metrics import Floats, Guesses, replicates
from capelet.studies.rows import OF_GUESSES, PseudonymGuesses, Row, count_of, split_of

Unit = Literal["split", "author"]
# Student's stretch of percentiles is good from five units on (`findings.intervals`).
LEAST_UNITS = 5
# Weights are single-precision.
TOLERANCE = 1e-5


class People:
    """Bootstrap weights over authors: one weight per person, in every cell and split."""

    unit: Unit = "author"

    def __init__(self, rows: Sequence[Row]) -> None:
        names = np.unique(np.concatenate([guesses_of(row).authors for row in rows]))
        self._names, self.count = names, len(names)
        if self.count < LEAST_UNITS:
            raise DataError(f"{self.count} authors are too few to resample")
        self._weights = Bootstrap(self.count).weights

    def mean(self, rows: Sequence[Row]) -> Floats:
        """The mean over splits of a cell's metric, once per draw."""
        return np.asarray(np.mean([self._replicates(row) for row in rows], axis=0))

    def _replicates(self, row: Row) -> Floats:
        if row.metric not in OF_GUESSES:
            raise DataError(
                f"{row.metric!r} is not computed from the classes guessed, so authors cannot be "
                f"resampled; compare over splits, or in one of {', '.join(OF_GUESSES)}"
            )
        guesses = guesses_of(row)
        codes = np.searchsorted(self._names, guesses.authors)
        classes = int(max(guesses.truth.max(), guesses.guess.max())) + 1
        sample = Guesses(guesses.truth.astype(np.intp), np.eye(classes)[guesses.guess], codes)
        draws = replicates(row.metric, sample, self._weights[:, codes])
        # Guesses of another attacker than the row's would give an interval of something else.
        if abs(float(draws[0]) - row.value) > TOLERANCE:
            raise DataError(
                f"the guesses of a cell give {row.metric} {draws[0]:.4f}, its row says "
                f"{row.value:.4f}: they are not of one measurement; measure the cell again"
            )
        return draws


class Splits:
    """Bootstrap weights over splits, where guesses are not at hand."""

    unit: Unit = "split"

    def __init__(self, rows: Sequence[Row], blocks: Sequence[str]) -> None:
        self._blocks = blocks
        splits = dict.fromkeys(split_of(row, blocks) for row in rows)
        self._places = {split: place for place, split in enumerate(splits)}
        self.count = len(self._places)
        if self.count < LEAST_UNITS:
            raise DataError(
                f"{count_of(self.count, 'split')} to resample, and {LEAST_UNITS} are needed; give "
                "more seeds, or the guesses of the victims"
            )
        self._weights = Bootstrap(self.count).weights

    def mean(self, rows: Sequence[Row]) -> Floats:
        """The weighted mean of a cell over splits, once per draw."""
        places = [self._places[split_of(row, self._blocks)] for row in rows]
        return weighted_means(self._weights[:, places], np.array([row.value for row in rows]))


def units_of(rows: Sequence[Row], blocks: Sequence[str]) -> People | Splits:
    """Authors where every row has the guesses of its victims, else splits."""
    if all(row.guesses is not None for row in rows):
        return People(rows)
    return Splits(rows, blocks)


def guesses_of(row: Row) -> PseudonymGuesses:
    """The guesses of a row; refused where the cell kept none."""
    if row.guesses is None:
        raise DataError("a cell has no guesses of its victims, so authors cannot be resampled")
    return row.guesses
