"""What a private training may not use: classes that one row of somebody else can change."""

from __future__ import annotations

import pytest

from capelet.data.labels import attribute
from capelet.data.readers import read
from capelet.defences.settings import TrainingPrivacy
from capelet.errors import DataError
from capelet.workflows.units import check_classes, check_units

ROWS = {"t": [f"text {row}" for row in range(61)], "g": ["f"] * 30 + ["m"] * 30 + ["?"]}


def test_merging_rare_classes_looks_at_all_rows() -> None:
    privacy = TrainingPrivacy(8.0, None, "text")
    merged = read(ROWS, text="t", private="g", merge_rare=20)
    with pytest.raises(DataError, match="leave merge_rare= out"):
        check_units(merged, privacy, "auto", False)
    check_units(read(ROWS, text="t", private="g"), privacy, "auto", False)


def test_rare_classes_that_were_left_out_count_as_merged() -> None:
    values = read({"t": ROWS["t"], "g": [*ROWS["g"][:-2], "?", "!"]}, text="t", private="g")
    with pytest.raises(DataError, match="follow from all rows"):
        check_classes([attribute("g", values.private["g"])])
    check_classes([attribute("g", values.private["g"][:58])])
