"""A study's result as a file that may be committed: what its pages are drawn from.

`docs/results/data/<paper>-<plan>.json` holds a study's rows (one mean over victims each) and the
paired differences that need the victims' guesses to be computed. The guesses themselves, and
whatever else is about single people, stay in the store: a file with a field that is of none of the
types in `documents` is refused, whoever wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from capelet.errors import OutputError
from capelet.findings.documents import parse_json
from capelet.studies.claims import Ruling
from capelet.studies.comparisons import Difference
from capelet.studies.documents import (
    Axes,
    Count,
    FileName,
    Number,
    Sentence,
    Verdict,
    Word,
    plain,
    read_record,
    up_to,
)
from capelet.studies.rows import Row
from capelet.studies.sweeps import MatchedDifference
from capelet.studies.tables import Layout

DATA = "data"
SCHEMA = 1


@dataclass(frozen=True)
class Analysis:
    """An analysis of variance that the page shows: factors, blocks, and which rows."""

    factors: Annotated[tuple[Word, ...], up_to(2)]
    where: Axes
    blocks: Annotated[tuple[Word, ...], up_to(5)] = ()


@dataclass(frozen=True)
class Origin:
    """When, on which splits and how long a study ran; `stand_ins` for data not to be had."""

    date: Word
    seeds: Annotated[tuple[Count, ...], up_to(1000)]
    seconds: Number
    size: Word = "full"
    stand_ins: Sentence = ""


@dataclass(frozen=True)
class Result:
    """A study of one table of a paper: its headline, our rows, and the verdict.

    `exploratory` says what had been seen when its claims were set; nothing, where nothing had.
    """

    paper: FileName
    plan: FileName
    title: Word
    headline: Sentence
    verdict: Verdict
    why: Sentence
    origin: Origin
    rows: tuple[Row, ...]
    layouts: Annotated[tuple[Layout, ...], up_to(20)]
    blocks: Annotated[tuple[Word, ...], up_to(5)] = ()
    analyses: Annotated[tuple[Analysis, ...], up_to(20)] = ()
    differences: tuple[Difference, ...] = ()
    at_utility: tuple[MatchedDifference, ...] = ()
    claims: Annotated[tuple[Ruling, ...], up_to(100)] = ()
    exploratory: Sentence = ""

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.paper}-{self.plan}"

    def to_json(self) -> str:
        """The file that is committed; checked, so that nothing about a victim is ever written."""
        document = {"schema": SCHEMA, **plain(self)}
        try:
            _read(document)
        except ValueError as error:
            raise OutputError(f"the results of {self.name!r} cannot be kept: {error}") from None
        return _text(document)

    @classmethod
    def parse(cls, content: bytes | str, name: str) -> Result:
        """A file as `to_json` writes it; an `OutputError` names the first field that is not so."""
        try:
            return _read(parse_json(content))
        except ValueError as error:
            reason = "it is no JSON" if isinstance(error, json.JSONDecodeError) else str(error)
            raise OutputError(
                f"{name!r} is no file of results as Capelet writes it ({reason}); write it again "
                "from the study"
            ) from None


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


def _read(document: Any) -> Result:
    """A ValueError that names the first field which may not be there, or is not as it should be."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"it has not the schema {SCHEMA}")
    fields = {key: value for key, value in document.items() if key != "schema"}
    result = read_record(Result, fields, "the file")
    for place, row in enumerate(result.rows):
        if row.seed not in result.origin.seeds:
            raise ValueError(f"row {place} is of a split that the file's seeds do not name")
    return result


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
