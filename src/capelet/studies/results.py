"""Pages of results: each is drawn from a committed file, and no number of it is typed by hand.

`docs/results/data/<paper>-<plan>.json` holds a study's rows (one mean over victims each) and the
paired differences that need the victims' guesses to be computed. The guesses themselves, and
whatever else is about single people, stay in the store: a file that has more fields than those
named here is refused, whoever wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capelet.errors import OutputError, did_you_mean
from capelet.files import write_whole
from capelet.findings.documents import parse_json
from capelet.reports.draw.svg import standalone
from capelet.reports.markdown import bullets, escape, table
from capelet.reports.page import Line, Table
from capelet.reports.words import NOTHING, change, duration
from capelet.studies.claims import Ruling
from capelet.studies.comparisons import Difference, StandardisedEffect
from capelet.studies.documents import SCHEMA, VERDICTS, check_results
from capelet.studies.pictures import picture
from capelet.studies.rows import Exclusions, Level, Row, pick
from capelet.studies.statistics import CONDITIONAL, anova
from capelet.studies.sweeps import MatchedDifference
from capelet.studies.tables import (
    Layout,
    anova_table,
    difference_table,
    matched_table,
    page_table,
    tabulate,
)

DATA, INDEX = "data", "index.md"
# A card quotes a table of results between these two lines: the file's name, the table's number.
_QUOTE = re.compile(
    r"(?P<head><!-- table (?P<name>[a-z0-9-]+) (?P<number>\d+) -->\n)"
    r"(?P<body>.*?)(?P<foot><!-- end of table -->)",
    re.DOTALL,
)


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
    """A study of one table of a paper: its headline, our rows, and the verdict."""

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
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

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


def results_page(result: Result) -> str:
    """The page of one study as Markdown: verdict, headline, our tables, statistics, origin."""
    result_tables = [tabulate(result.rows, layout, result.blocks) for layout in result.layouts]
    parts = [
        f"# {escape(result.title)}",
        f"**{escape(result.verdict.capitalize())}.** {escape(result.why)}",
        f"**The paper:** {escape(result.headline)}",
    ]
    if result.origin.stand_ins:
        parts.append(f"**Stand-ins:** {escape(result.origin.stand_ins)}")
    parts.append("## Our tables")
    for place, item in enumerate(result_tables):
        parts.append(table(page_table(item)))
        if picture(item) is not None:
            parts.append(f"![{escape(item.title)}]({_picture_name(result, place)})")
    if result.claims:
        parts += ["## Claims", table(_claims_table(result.claims))]
    statistics = _statistics(result)
    if statistics:
        parts += ["## Statistics", *map(table, statistics)]
    parts += ["## Origin", bullets(map(escape, _origin(result))), f"*{escape(CONDITIONAL)}*"]
    return "\n\n".join(parts) + "\n"


def results_index(results: Sequence[Result]) -> str:
    """The list of all pages, by paper, with their verdicts."""
    by_name = sorted(results, key=lambda item: item.name)
    counts = [
        f"{sum(item.verdict == verdict for item in results)} {verdict}" for verdict in VERDICTS
    ]
    lines = [
        "| study | verdict | splits | date |",
        "| --- | --- | ---: | --- |",
        *(
            f"| [{escape(item.title)}]({item.name}.md) | {escape(item.verdict)} | "
            f"{len(item.origin.seeds)} | {escape(item.origin.date)} |"
            for item in by_name
        ),
    ]
    summary = f"{len(results)} studies: {', '.join(counts)}." if results else "None is kept yet."
    parts = [
        "# Results: the papers’ tables, run again",
        "Every page here is drawn from a file in `data/` and from nothing else; a test draws them "
        "again and compares. The files hold means over victims and paired differences, and nothing "
        "about any one person.",
        summary,
        *(["\n".join(lines)] if results else []),
        escape(CONDITIONAL),
    ]
    return "\n\n".join(parts) + "\n"


def result_files(folder: Path) -> dict[str, str]:
    """Every file of a folder of results, by name, as its data files have it drawn."""
    results = list(read_results(folder).values())
    files = {INDEX: results_index(results)}
    for result in results:
        files[f"{result.name}.md"] = results_page(result)
        for place, layout in enumerate(result.layouts):
            drawing = picture(tabulate(result.rows, layout, result.blocks))
            if drawing is not None:
                files[_picture_name(result, place)] = standalone(drawing)
    return files


def quote_tables(text: str, results: Mapping[str, Result]) -> str:
    """A page with the tables that it quotes drawn from results; unchanged if they are up to date.

    <!-- table cape-strategies 1 -->
    <!-- end of table -->
    """

    def draw(match: re.Match[str]) -> str:
        name, number = match["name"], int(match["number"])
        if name not in results or not 1 <= number <= len(results[name].layouts):
            raise OutputError(
                f"a page quotes table {number} of {name!r}, which no file of results has; "
                f"{did_you_mean(name, results)}"
            )
        result = results[name]
        item = tabulate(result.rows, result.layouts[number - 1], result.blocks)
        return f"{match['head']}\n{table(page_table(item))}\n\n{match['foot']}"

    return _QUOTE.sub(draw, text)


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


def write_results(folder: Path, results: Sequence[Result] = ()) -> list[Path]:
    """Add these results to the folder's data and draw all of its pages; the paths written."""
    (folder / DATA).mkdir(parents=True, exist_ok=True)
    # All are checked before any is written.
    documents = {folder / DATA / f"{item.name}.json": item.to_json() for item in results}
    for path, content in documents.items():
        write_whole(path, content)
    files = result_files(folder)
    for name, content in files.items():
        write_whole(folder / name, content)
    return [*documents, *(folder / name for name in files)]


def _picture_name(result: Result, place: int) -> str:
    return f"{result.name}-{place + 1}.svg"


def _statistics(result: Result) -> list[Table]:
    tables = [
        anova_table(anova(pick(result.rows, **item.where), item.factors, item.blocks))
        for item in result.analyses
    ]
    if result.differences:
        tables.append(difference_table(result.differences))
    if result.at_utility:
        tables.append(matched_table(result.at_utility))
    return tables


def _claims_table(claims: Sequence[Ruling]) -> Table:
    lines = [
        Line((item.text, item.verdict, _estimate(item), item.why or NOTHING)) for item in claims
    ]
    return Table(
        "What the paper claims",
        ("claim", "verdict", "estimate (95 %)", "why"),
        tuple(lines),
        words=4,
    )


def _estimate(item: Ruling) -> str:
    if item.value is None:
        return NOTHING
    # In points: claims are about shares; other measures have their tables.
    value, low, high = (change("accuracy", end) for end in (item.value, item.low, item.high))
    return f"{value} ({low} to {high})"


def _origin(result: Result) -> list[str]:
    seeds = ", ".join(map(str, result.origin.seeds))
    return [
        f"Plan: papers/{result.paper}/{result.plan}.toml, size {result.origin.size}",
        f"Date: {result.origin.date}",
        f"Split seeds: {seeds}",
        f"Time: {duration(result.origin.seconds)} of computing, all cells together",
    ]


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
    ),
    # What a plan expects is for its build.
    Ruling: ("text", "verdict", "value", "low", "high", "why"),
}


def _plain(value: Any) -> Any:
    """Records, tuples and mappings as JSON has them; a field that is None is left out of rows."""
    # Never a row's guesses: what is not named here is not written.
    for record, names in _FIELDS.items():
        if isinstance(value, record):
            return {name: _plain(getattr(value, name)) for name in names}
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
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
                exclusions.get("degenerate", 0), tuple(exclusions.get("missing", ()))
            ),
        }
    )


def _at_utility(item: Mapping[str, Any]) -> MatchedDifference:
    triples = ("first_leakage", "second_leakage", "difference")
    return MatchedDifference(**{**item, **{name: tuple(item[name]) for name in triples}})
