"""Tables of statistics: each says what it is conditional on, and what it is without."""

from __future__ import annotations

from dataclasses import replace

from capelet.reports import markdown
from capelet.studies.claims import Ruling
from capelet.studies.comparisons import adjust, compare_splits
from capelet.studies.rows import Row
from capelet.studies.statistic_tables import (
    anova_table,
    difference_table,
    estimate,
    matched_table,
)
from capelet.studies.statistics import CONDITIONAL, anova
from capelet.studies.sweeps import MatchedDifference

LEAK = {"fx": [0.70, 0.72, 0.74], "gr": [0.60, 0.61, 0.65]}


def test_every_table_of_statistics_says_what_it_is_conditional_on() -> None:
    sides = [
        [
            Row({"method": name}, seed, "attribute-inference", "gender", "balanced_accuracy", value)
            for seed, value in enumerate(values)
        ]
        for name, values in LEAK.items()
    ]
    leak = [row for side in sides for row in side]
    differences = adjust([compare_splits(*sides)])
    triple = (0.6, 0.55, 0.65)
    matched = MatchedDifference(
        "ldp", "cape", "gender", "accuracy", 0.8, triple, triple, (0.0, -0.1, 0.1), "split", 5
    )
    drawn = (
        anova_table(anova(leak, ["method"])),
        difference_table(differences),
        matched_table([matched]),
    )
    for table in drawn:
        assert CONDITIONAL in table.note
        assert {len(line.cells) for line in table.lines} == {len(table.columns)}
        assert CONDITIONAL in markdown.table(table)
    assert drawn[0].columns[:5] == ("source", "SS", "df", "F", "P")
    assert drawn[0].lines[-1].cells[0] == "residual"
    assert drawn[1].lines[0].cells[3].startswith("−10.0 (")
    assert drawn[1].lines[0].cells[5] == drawn[1].lines[0].cells[4]  # Holm of one is itself
    # A setting without a real guess is left out of a line, and is counted.
    with_constant = matched_table([matched, replace(matched, degenerate=2)])
    assert "2 settings left out (constant guesses)." in with_constant.note
    assert "left out" not in drawn[2].note
    single = matched_table([replace(matched, single_class=1)])
    assert "1 split left out (victims of one class)." in single.note


def test_an_estimate_is_in_points_in_parts_of_the_other_side_or_a_score() -> None:
    ruling = Ruling("less", "holds", value=-0.3, low=-0.4, high=-0.2, metric="balanced_accuracy")
    assert estimate(ruling) == "−30.0 (−40.0 to −20.0)"
    assert estimate(replace(ruling, scale="relative")) == "−30.0 % (−40.0 to −20.0)"
    # The interval of a mean reaches beyond what a share can be; it is not printed so.
    band = replace(ruling, relation="within", value=0.999, low=0.9975, high=1.0005)
    assert estimate(band) == "99.9 % (99.8–100.0)"
    assert estimate(replace(ruling, metric="exposure_bits", value=-8.0, low=-9.0, high=-7.0)) == (
        "−8.0 (−9.0 to −7.0)"
    )
    assert estimate(Ruling("less", "cannot be tested here")) == "–"
