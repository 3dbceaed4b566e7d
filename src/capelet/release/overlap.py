"""Texts that trained the encoder, among those that are to be released.

A text that trained has only what the training promises, whatever noise is added to its vector. So
whoever releases a file is told how many of its rows trained the encoder, and can leave them out.
The count is told to him alone: in a released file it would be news about membership.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from capelet.data.formats import Format
from capelet.data.streams import TEXT, is_named
from capelet.errors import CapeletError, DataError, name_field
from capelet.privacy.origins import TrainingRecords, unrecorded
from capelet.release.recipe import PrivateEncoder
from capelet.release.rows import LeaveOut, source_of

BLOCK = 4096  # rows that are read and compared together


def trained_rows(
    private: PrivateEncoder,
    source: Path | str,
    text: str | None,
    vectors: str | None,
    layout: Format | None = None,
) -> npt.NDArray[np.bool_]:
    """Which rows of a file trained the encoder; empty where nothing is recorded of its training."""
    ids = [origin.id for origin in private.origins]
    column = TEXT if is_named(source) else text if private.consumes == "texts" else vectors
    # A missing column is an error of the release itself, which says what to do.
    if len(unrecorded(ids)) == len(ids) or column is None:
        return np.zeros(0, dtype=bool)
    records = TrainingRecords(ids)
    blocks = source_of(source, private.consumes, column, None, BLOCK, layout).blocks()
    return np.concatenate([records(block.values) for block in blocks] or [np.zeros(0, bool)])


def only_unseen(private: PrivateEncoder, trained: npt.NDArray[np.bool_]) -> LeaveOut | None:
    """What leaves out the rows that trained; refused where nobody can tell, or where all did."""
    ids = [origin.id for origin in private.origins]
    if unrecorded(ids):
        raise CapeletError(
            f"{name_field('only_unseen')} cannot tell which rows trained this encoder: that is "
            "recorded only where it was trained, in the state folder of the user who did "
            "(CAPELET_STATE)"
        )
    if len(trained) and trained.all():
        raise DataError(
            f"all {len(trained):,} rows trained this encoder, and {name_field('only_unseen')} "
            "leaves none; give texts that it has not seen"
        )
    return TrainingRecords(ids) if ids else None
