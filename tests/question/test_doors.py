"""Random questions are accepted or refused alike at every door, with the same field and code."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import cyclopts
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capelet.cli.doors import Group, Option, as_command, options_of, words_of_config
from capelet.defences import Settings
from capelet.defences.methods import check_mechanism, check_private_training
from capelet.errors import CapeletError
from capelet.question import (
    Columns,
    Network,
    Protocol,
    Search,
    Training,
    collect,
    fill,
    names_of,
)
from capelet.studies.kinds import KINDS as STUDIES
from capelet.studies.plan import StudyPlan

KINDS: tuple[Any, ...] = (Columns, Protocol, Training, Network, Search)
Answer = tuple[str, Any]


def ask(
    *,
    columns: Annotated[Columns, Group.DATA],
    protocol: Annotated[Protocol, Group.MEASURE],
    training: Annotated[Training, Group.PROTECT],
    network: Annotated[Network, Group.PAPERS],
    search: Annotated[Search, Group.PROTECT],
) -> None:
    ANSWERS.append([columns, protocol, training, network, search])


ANSWERS: list[list[Any]] = []
OPTIONS: dict[str, Option] = {option.name: option for option in options_of(ask)}

WORDS = st.text("abcxyz", min_size=1, max_size=5)
WHOLE = st.integers(-3, 5) | st.sampled_from([64, 10_000, 10_001, 65_536, 65_537, 10**9 + 1])
REAL = st.floats(-2, 1e3, allow_nan=False) | st.sampled_from([math.inf, 8, 0])
NAMES = st.lists(WORDS, min_size=1, max_size=3)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": WORDS,
    "private": NAMES,
    "merge_rare": WHOLE | REAL | WORDS,
    "drop_empty": st.just(True),
    "split": WORDS,
    "seeds": st.integers(1, 9) | st.lists(st.integers(0, 9), min_size=1, max_size=3),
    "attackers": NAMES,
    "derive": NAMES,
    "bins": st.dictionaries(WORDS, st.lists(st.floats(0, 9), min_size=1), min_size=1, max_size=2),
    "threads": WHOLE | WORDS,
    "seeded_noise": st.just(True),
    "epsilon": REAL | WORDS,
    "adversary_weight": REAL | st.dictionaries(WORDS, st.floats(0, 9), min_size=1, max_size=2),
    "tune_layers": WHOLE,
    "train_epsilon": REAL,
    "width": WHOLE | REAL | WORDS,
    "batch": WHOLE,
    "epochs": WHOLE,
    "dropout": REAL,
    "max_leakage": REAL | WORDS,
    "trials": WHOLE | WORDS,
    "widht": WHOLE,
}


@st.composite
def questions(draw: st.DrawFn, known: Sequence[str]) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(known), unique=True, max_size=5))
    return {name: draw(VALUES[name]) for name in names}


def same(record: Any) -> str:
    """A record as words: lists and tuples, 8 and 8.0, are one thing."""
    plain = {key: value for key, value in vars(record).items() if value not in (None, {})}
    return json.dumps(_plain(plain), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else value


def answer(door: Any) -> Answer:
    try:
        return "accepted", [same(record) for record in door()]
    except CapeletError as error:
        return "refused", (error.field, error.code)
    except (TypeError, cyclopts.UnknownOptionError) as error:
        assert "widht" in str(error)
        return "refused", ("widht", "unknown")


APP = cyclopts.App(name="ask")
APP.default(as_command(ask, str))


def on_the_line(words: list[str]) -> list[Any]:
    APP(words, exit_on_error=False, print_error=False, result_action="return_value")
    return ANSWERS.pop()


def spelt(values: Mapping[str, Any]) -> list[str]:
    """As somebody types it; an option that there is not is typed all the same."""
    words: list[str] = []
    for name, value in values.items():
        option = OPTIONS.get(name)
        words += [f"--{name}", str(value)] if option is None else option.spell(value)
    return words


def as_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {as_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return "inf" if value == math.inf else json.dumps(value)


def in_a_file(values: Mapping[str, Any]) -> list[Any]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "question.toml"
        path.write_text("\n".join(f"{name} = {as_toml(item)}" for name, item in values.items()))
        return on_the_line(words_of_config(ask, path, []))


# What a plan knows of a method: the fields of its training and of its network.
PLANNED = {*names_of(Training), *names_of(Network), "widht"}


def _method(values: Mapping[str, Any]) -> str:
    """One with noise where a question has an ε: a plan asks for both or for neither."""
    return "cape" if "epsilon" in values else "gr"


def of_a_method(values: Mapping[str, Any]) -> list[Any]:
    """What `protect` refuses of a method before it looks at a corpus."""
    training, network = collect(values, Training, Network)
    chosen = Settings.of(training, network)
    check_mechanism(_method(values), chosen)
    check_private_training(_method(values), chosen)
    return [training, network]


def in_a_plan(values: Mapping[str, Any]) -> list[Any]:
    lines = [f"{name} = {as_toml(item)}" for name, item in values.items()]
    text = f"""
    kind = "protect"
    [axes]
    corpus = ["reviews"]
    method = ["{_method(values)}"]
    [settings]
    split = "keyed"
    """
    plan = StudyPlan.of(tomllib.loads("\n".join([text, *lines])))
    inputs = STUDIES[plan.kind].complete(plan.kind, next(plan.combinations()))
    return [fill(Training, inputs), fill(Network, inputs)]


@settings(deadline=None)
@given(questions(sorted(PLANNED & VALUES.keys())))
def test_a_study_says_the_same(values: dict[str, Any]) -> None:
    for name in _slips(values, lambda one: answer(lambda: of_a_method(one)))[1:]:
        del values[name]
    assert answer(lambda: in_a_plan(values)) == answer(lambda: of_a_method(values))


@settings(deadline=None)
@given(questions(sorted(VALUES)))
def test_every_door_says_the_same(values: dict[str, Any]) -> None:
    # Several slips at once are told one by one, in an order that each door may choose.
    for name in _slips(values, lambda one: answer(lambda: collect(one, *KINDS)))[1:]:
        del values[name]
    python = answer(lambda: collect(values, *KINDS))
    assert answer(lambda: on_the_line(spelt(values))) == python
    assert answer(lambda: in_a_file(values)) == python


def _slips(values: Mapping[str, Any], ask_one: Callable[[Mapping[str, Any]], Answer]) -> list[str]:
    """The names whose values are refused alone."""
    return [name for name, value in values.items() if ask_one({name: value})[0] == "refused"]


def test_what_stands_on_the_line_goes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "question.toml"
    path.write_text('text = "body"\nseeds = [7]\nprivate = ["a", "b"]\nbins = { age = [30, 50] }\n')
    given = ["--seeds", "3"]
    columns, protocol, *_ = on_the_line([*given, *words_of_config(ask, path, given)])
    assert (columns.text, columns.private) == ("body", ("a", "b"))
    assert protocol.seeds == 3 and protocol.bins == {"age": [30.0, 50.0]}
    columns, protocol, *_ = on_the_line(words_of_config(ask, path, []))
    assert protocol.seeds == [7]


@pytest.mark.parametrize("value", ["-1 < age", "--json", "-", "a=b"])
def test_a_value_of_a_file_is_never_an_option(tmp_path: Path, value: str) -> None:
    path = tmp_path / "question.toml"
    path.write_text(f'where = "{value}"\nprivate = ["{value}"]\n')
    columns, *_ = on_the_line(words_of_config(ask, path, []))
    assert (columns.where, columns.private) == (value, (value,))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("sedes = 3", "'sedes', which is no option of this command; did you mean 'seeds'"),
        ("seeds = ", "is not TOML"),
    ],
)
def test_a_file_with_a_slip_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "question.toml"
    path.write_text(content)
    with pytest.raises(CapeletError, match=sentence):
        words_of_config(ask, path, [])
    with pytest.raises(CapeletError, match=r"cannot read .*none\.toml"):
        words_of_config(ask, tmp_path / "none.toml", [])
