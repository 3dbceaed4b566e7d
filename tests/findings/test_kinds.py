"""One record per kind and measure: names, directions, and the suffixes of controls."""

from __future__ import annotations

import pytest

from capelet.findings.kinds import (
    KINDS,
    MEASURES,
    better,
    control_of,
    kind_of,
    measure_of,
    reference_of,
    split_kind,
)
from capelet.findings.metrics import METRICS


def test_every_kind_says_how_it_is_judged() -> None:
    for name, kind in KINDS.items():
        assert kind.name == name and kind.metric in {**MEASURES, **METRICS}
        for words in (kind.title, kind.summary, kind.subject, kind.control):
            assert words, name


def test_every_metric_of_guesses_has_a_measure() -> None:
    assert not set(METRICS) & set(MEASURES)  # each is described once


@pytest.mark.parametrize("name", [*KINDS, "later"])
def test_suffixes_are_taken_apart_as_they_were_put_together(name: str) -> None:
    assert split_kind(name) == (name, "score")
    assert split_kind(control_of(name)) == (name, "control")
    assert split_kind(reference_of(name)) == (name, "reference")
    assert kind_of(control_of(name)) == kind_of(reference_of(name)) == kind_of(name)


@pytest.mark.parametrize(
    ("kind", "metric", "direction"),
    [
        ("attribute-inference", "balanced_accuracy", "less"),
        ("membership-null", "auc", "less"),
        ("extraction", "exposure_bits", "less"),
        ("utility", "accuracy", "more"),
        ("utility", "perplexity", "less"),
        ("fairness", "perplexity_ratio", "less"),
        ("fairness", "accuracy_gap", "less"),
        ("fairness", "accuracy", "more"),
        ("deviation", "separability", None),
        ("later", "accuracy", None),
    ],
)
def test_the_direction_follows_kind_and_measure(
    kind: str, metric: str, direction: str | None
) -> None:
    assert better(kind, metric) == direction


def test_a_measure_without_a_record_is_read_off_its_name() -> None:
    assert measure_of("recall_at_100").form == "share"
    assert measure_of("some_gap").success == "falls"
    assert (measure_of("nats").title, measure_of("nats").form) == ("nats", "number")
