"""A study's result as a file that may be committed: what its pages are drawn from.

`docs/results/data/<paper>-<plan>.json` holds a study's rows (one mean over victims each) and the
paired differences that need the victims' guesses to be computed. The guesses themselves, and
whatever else is about single people, stay in the store: a file that has more fields than those
named here is refused, whoever wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capelet.errors import OutputError
from capelet.findings.documents import parse_json
from capelet.studies.claims import Ruling
from capelet.studies.comparisons import Difference, StandardisedEffect
from capelet.studies.documents import SCHEMA, check_results
from capelet.studies.rows import Exclusions, Level, Row
from capelet.studies.sweeps import MatchedDifference
from capelet.studies.tables import Layout

DATA = "data"


@dataclass(frozen=True)
class Analysis:
    """An analysis of variance that the page shows: factors, blocks, and which rows."""

    factors: tuple[str, ...]
    where: Mapping[str, Level]
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Origin:
    """When, on which splits and how long a study ran; `stand_ins` for data not to be had."""

    date: str
    seeds: tuple[int, ...]
    seconds: float
    size: str = "full"
    stand_ins: str = ""


@dataclass(frozen=True)
class Result:
    """A study of one table of a paper: its headline, our rows, and the verdict.

    `exploratory` says what had been seen when its claims were set; nothing, where nothing had.
    """

    paper: str
    plan: str
    title: str
    headline: str
    verdict: str
    why: str
    origin: Origin
    rows: tuple[Row, ...]
    layouts: tuple[Layout, ...]
    blocks: tuple[str, ...] = ()
    analyses: tuple[Analysis, ...] = ()
    differences: tuple[Difference, ...] = ()
    at_utility: tuple[MatchedDifference, ...] = ()
    claims: tuple[Ruling, ...] = ()
    exploratory: str = ""

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.paper}-{self.plan}"

    def to_json(self) -> str:
        """The file that is committed; checked, so that nothing about a victim is ever written."""
        document = {"schema": SCHEMA, **_plain(self)}
        try:
            check_results(document)
        except ValueError as error:
            raise OutputError(f"the results of {self.name!r} cannot be kept: {error}") from None
        return _text(document)

    @classmethod
    def parse(cls, content: bytes | str, name: str) -> Result:
        """A file as `to_json` writes it; an `OutputError` names the first field that is not so."""
        try:
            document = parse_json(content)
            check_results(document)
        except ValueError as error:
            reason = "it is no JSON" if isinstance(error, json.JSONDecodeError) else str(error)
            raise OutputError(
                f"{name!r} is no file of results as Capelet writes it ({reason}); write it again "
                "from the study"
            ) from None
        return _result(document)


def read_results(folder: Path) -> dict[str, Result]:
    """The results of a folder's data files, by name."""
    results = {}
    for path in sorted((folder / DATA).glob("*.json")):
        result = Result.parse(path.read_bytes(), path.name)
        # Two files of one study would draw one page, and the last would win.
        if path.stem != result.name:
            raise OutputError(f"{path.name!r} holds {result.name!r}; name it {result.name}.json")
        results[result.name] = result
    return results


# Of these records a file holds the fields that are named here; of all others, every one.
_FIELDS: dict[type, tuple[str, ...]] = {
    Row: (
        "axes",
        "seed",
        "kind",
        "target",
        "metric",
        "value",
        "degenerate",
        "chance",
        "winner",
        "holds",
        "candidate",
        "single_class",
    ),
    # What a plan expects is for its build.
    Ruling: ("text", "verdict", "value", "low", "high", "why", "metric", "relation", "scale"),
}


# What most records have not is left out of the file, so that files of earlier days are as of today.
_ABSENT = {
    "winner": None,
    "holds": None,
    "candidate": False,
    "single_class": 0,
    "exploratory": "",
    "scale": "absolute",
}


def _text(document: Mapping[str, Any]) -> str:
    """JSON with a line for each entry of a list: so a change of a study can be read as lines."""

    def dump(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    parts = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            lines = ",\n  ".join(map(dump, value))
            parts.append(f" {dump(key)}: [\n  {lines}\n ]")
        else:
            parts.append(f" {dump(key)}: {dump(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _plain(value: Any) -> Any:
    """Records, tuples and mappings as JSON has them."""
    if hasattr(value, "__dataclass_fields__"):
        # Never a row's guesses: what is not named here is not written.
        names = _FIELDS.get(type(value), tuple(value.__dataclass_fields__))
        entries = {name: _plain(getattr(value, name)) for name in names}
        return {
            name: entry
            for name, entry in entries.items()
            if name not in _ABSENT or entry != _ABSENT[name]
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # JSON has no NaN.
    return None if isinstance(value, float) and value != value else value


def _result(document: Mapping[str, Any]) -> Result:
    fields = {key: value for key, value in document.items() if key != "schema"}
    return Result(
        **{
            **fields,
            "origin": Origin(**{**fields["origin"], "seeds": tuple(fields["origin"]["seeds"])}),
            "rows": tuple(_row(item) for item in fields["rows"]),
            "layouts": tuple(_layout(item) for item in fields["layouts"]),
            "blocks": tuple(fields.get("blocks", ())),
            "analyses": tuple(
                Analysis(tuple(item["factors"]), item["where"], tuple(item.get("blocks", ())))
                for item in fields.get("analyses", ())
            ),
            "differences": tuple(_difference(item) for item in fields.get("differences", ())),
            "at_utility": tuple(_at_utility(item) for item in fields.get("at_utility", ())),
            "claims": tuple(Ruling(**item) for item in fields.get("claims", ())),
        }
    )


def _layout(item: Mapping[str, Any]) -> Layout:
    down = item["down"]
    return Layout(**{**item, "down": down if isinstance(down, str) else tuple(down)})


def _row(item: Mapping[str, Any]) -> Row:
    value = float("nan") if item["value"] is None else item["value"]
    return Row(**{**item, "value": value})


def _difference(item: Mapping[str, Any]) -> Difference:
    effect, exclusions = item.get("effect"), item.get("exclusions") or {}
    return Difference(
        **{
            **item,
            "effect": None if effect is None else StandardisedEffect(**effect),
            "exclusions": Exclusions(
                exclusions.get("degenerate", 0),
                tuple(exclusions.get("missing", ())),
                exclusions.get("single_class", 0),
            ),
        }
    )


def _at_utility(item: Mapping[str, Any]) -> MatchedDifference:
    triples = ("first_leakage", "second_leakage", "difference")
    return MatchedDifference(**{**item, **{name: tuple(item[name]) for name in triples}})
