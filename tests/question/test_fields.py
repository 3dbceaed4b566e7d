"""Records of a question: declared once, described, and small."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from capelet import question
from capelet.errors import CapeletError
from capelet.question import (
    Columns,
    Network,
    Protocol,
    Search,
    Source,
    Training,
    chosen,
    collect,
    listed,
)
from capelet.question.fields import help_of

RECORDS: list[Any] = [Columns, Source, Protocol, Training, Network, Search, question.Attacks]
# Their defaults are the fields' own: no preset and no search stands between.
WITH_DEFAULTS: list[Any] = [
    question.LanguageNetwork,
    question.LanguageSchedule,
    question.Mitigation,
    question.CanaryCounts,
    question.DualNetwork,
    question.DualTraining,
    question.Service,
    question.Address,
    question.Machines,
    question.StudyFolders,
]


@pytest.mark.parametrize("kind", [*RECORDS, *WITH_DEFAULTS])
def test_a_record_is_frozen_small_and_described(kind: Any) -> None:
    names = [item.name for item in fields(kind)]
    assert len(names) <= 12 and set(help_of(kind)) == set(names)
    assert all(text.endswith((".", "…")) for text in help_of(kind).values())
    with pytest.raises(FrozenInstanceError):
        setattr(kind(), names[0], "other")


@pytest.mark.parametrize("kind", RECORDS)
def test_nothing_is_chosen_of_a_record_that_nobody_filled(kind: Any) -> None:
    usual = {"cache": True, "attacks": ("attributes",)}
    assert {key: usual.get(key) for key in chosen(kind())} == chosen(kind())


def test_zero_and_the_default_are_choices() -> None:
    assert chosen(Training(word_dropout=0.0, tune_layers=0)) == {
        "word_dropout": 0.0,
        "tune_layers": 0,
    }
    assert chosen(Network(width=64)) == {"width": 64}
    assert chosen(Network()) == {}


def test_a_name_that_no_record_has_is_refused_as_by_python() -> None:
    training, network = collect({"epsilon": 8, "width": None}, Training, Network)
    assert (training.epsilon, network) == (8, Network())
    with pytest.raises(TypeError, match="argument 'widht'; did you mean 'width'"):
        collect({"widht": 8}, Training, Network)


@pytest.mark.parametrize(
    ("kind", "values", "code"),
    [
        (Network, {"width": 0}, "range"),
        (Network, {"width": 65_537}, "range"),
        (Network, {"epochs": 1.5}, "number"),
        (Training, {"epsilon": "8"}, "number"),
        (Protocol, {"threads": True}, "number"),
        (Search, {"trials": -1}, "range"),
    ],
)
def test_a_field_is_checked_where_its_record_is_made(
    kind: Any, values: dict[str, Any], code: str
) -> None:
    with pytest.raises(CapeletError) as told:
        kind(**values)
    assert (told.value.field, told.value.code) == (*values, code)


def test_an_object_is_one_thing_although_it_has_a_length() -> None:
    class Ensemble:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, place: int) -> str:
            return "part"

    one = Ensemble()
    assert listed(one) == (one,)
    assert listed({"a": 1}.keys()) == listed(iter(["a"])) == ("a",)
