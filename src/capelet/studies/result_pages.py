"""Pages of results: each is drawn from a committed file, and no number of it is typed by hand.

A folder of results is `data/` with a file for each study, and beside it what is drawn from them: a
page, its pictures and its tables for a paper, and the index. Cards quote tables of results too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from capelet.errors import OutputError, did_you_mean
from capelet.files import write_whole
from capelet.reports import latex
from capelet.reports.draw.svg import standalone
from capelet.reports.formatting import NOTHING, duration
from capelet.reports.markdown import bullets, escape, table
from capelet.reports.page import Line, Table
from capelet.studies.documents import BENCH, count_verdicts
from capelet.studies.experiments import (
    EXPERIMENTS,
    Experiment,
    experiments_table,
    read_experiments,
    read_papers,
)
from capelet.studies.pictures import picture
from capelet.studies.results import DATA, Result, read_results
from capelet.studies.rows import pick
from capelet.studies.statistic_tables import anova_table, difference_table, estimate, matched_table
from capelet.studies.statistics import CONDITIONAL, anova
from capelet.studies.tables import ResultTable, page_table, tabulate

INDEX, CARDS, FULL = "index.md", "cards", "full"
READING = (
    "A study *holds* where all of its claims do, *fails* where one of them fails, and else *cannot "
    "be tested here*. A claim holds where the whole 95 % interval lies on its side of the margin, "
    "fails where none of it does, and cannot be tested where the interval leaves both open, or "
    "where data are not to be had. So a study that fails may have claims that hold: its page has "
    "them one by one, beside what the paper says, and names what stands in for data that are not "
    "public."
)
# Of our own pages: attackers, splits and noise are not those of the papers, and that is the point.
PROTOCOL = (
    "Attackers are trained afresh on released vectors, an author’s texts are all in one part of a "
    "split, and noise has the sensitivity that its ε asks for; where it has not, the page begins "
    "with *broken* ([why so](../explanation/protocol.md)). More: [how a study is "
    "run](../how-to/studies.md), [what its P-values mean](../explanation/splits-as-blocks.md), "
    "[what is kept of people](../cards/studies.md)."
)
EXPLORATORY = (
    "*Exploratory*: some cells had been seen when the claims were set, so that these cells do not "
    "confirm them; the page says what."
)
# A card quotes a table of results between these two lines: the file's name, the table's number. As
# long as its study has not been run, the line says so, and what stands there is left alone.
_QUOTE = re.compile(
    r"<!-- table (?P<name>[a-z0-9-]+) (?P<number>\d+)(?P<pending>, not run yet)? -->\n"
    r"(?P<body>.*?)<!-- end of table -->",
    re.DOTALL,
)


def results_page(result: Result) -> str:
    """The page of one study as Markdown: verdict, headline, our tables, statistics, origin."""
    asker = "Question" if result.paper == BENCH else "The paper"
    parts = [
        f"# {escape(result.title)}",
        f"**{escape(_verdict(result).capitalize())}.** {escape(result.why)}",
        *([f"**Exploratory:** {escape(result.exploratory)}"] if result.exploratory else []),
        f"**{asker}:** {escape(result.headline)}",
    ]
    if result.origin.stand_ins:
        parts.append(f"**Stand-ins:** {escape(result.origin.stand_ins)}")
    parts.append("## Our tables")
    for place, item in _tables(result):
        parts.append(table(page_table(item, alone=False)))
        if picture(item) is not None:
            parts.append(f"![{escape(item.title)}]({_picture_name(result, place)})")
    if result.claims:
        parts += ["## Claims", table(_claims_table(result))]
    statistics = _statistics(result)
    if statistics:
        parts += ["## Statistics", *map(table, statistics)]
    parts += [
        "## Origin",
        bullets([*map(escape, _origin(result)), f"For a paper: [LaTeX]({result.name}.tex)"]),
        f"*{escape(CONDITIONAL)}*",
    ]
    return "\n\n".join(parts) + "\n"


def results_latex(result: Result) -> str:
    """All tables of the page for a paper, one after another."""
    tables = [
        *(page_table(item) for _, item in _tables(result)),
        *([_claims_table(result)] if result.claims else []),
        *_statistics(result),
    ]
    head = rf"% {' · '.join(_origin(result))}. Needs \usepackage{{booktabs}}."
    return "\n".join([head, *map(latex.table, tables)])


def results_index(
    results: Sequence[Result],
    experiments: Sequence[Experiment] = (),
    papers: Mapping[str, str] | None = None,
) -> str:
    """Every experiment of the papers with its verdict or why it has none, then all studies."""
    by_name = sorted(results, key=lambda item: item.name)
    lines = [
        "| study | verdict | size | splits | date | computing time |",
        "| --- | --- | --- | ---: | --- | ---: |",
        *(
            f"| [{escape(item.title)}]({item.name}.md) | {escape(_verdict(item))} | "
            f"{escape(item.origin.size)} | {len(item.origin.seeds)} | "
            f"{escape(item.origin.date)} | {duration(item.origin.seconds)} |"
            for item in by_name
        ),
    ]
    number = "1 study" if len(results) == 1 else f"{len(results)} studies"
    outcome = count_verdicts([item.verdict for item in results])
    summary = f"{number}: {outcome}." if results else "None is kept yet."
    # A small study checks that a plan runs; its verdict is not one on the paper.
    verdicts = {item.name: _verdict(item) for item in results if item.origin.size == FULL}
    parts = [
        "# Results: the papers’ tables, run again",
        "Every page here is drawn from a file in `data/` and from nothing else; a test draws them "
        "again and compares. The files hold means over victims and paired differences, and nothing "
        "about any one person.",
        READING,
        *([PROTOCOL, "## The papers’ experiments"] if experiments else []),
        *([bullets([f"{name}: {escape(papers[name])}" for name in papers])] if papers else []),
        *([experiments_table(experiments, verdicts), "## Studies"] if experiments else []),
        summary,
        *(["\n".join(lines)] if results else []),
        *([EXPLORATORY] if any(item.exploratory for item in results) else []),
        escape(CONDITIONAL),
    ]
    return "\n\n".join(parts) + "\n"


def result_files(folder: Path) -> dict[str, str]:
    """Every file of a folder of results, by name, as its data files have it drawn."""
    results = list(read_results(folder).values())
    account = folder / DATA / EXPERIMENTS
    files = {INDEX: results_index(results, read_experiments(account), read_papers(account))}
    for result in results:
        files[f"{result.name}.md"] = results_page(result)
        files[f"{result.name}.tex"] = results_latex(result)
        for place, item in _tables(result):
            drawing = picture(item)
            if drawing is not None:
                files[_picture_name(result, place)] = standalone(drawing)
    return files


def quote_tables(text: str, results: Mapping[str, Result]) -> str:
    """A page with the tables that it quotes drawn from results; unchanged if they are up to date.

    <!-- table cape-strategies 1 -->
    <!-- end of table -->

    A table that waits for its study is marked `<!-- table cape-strategies 1, not run yet -->`.
    """

    def draw(match: re.Match[str]) -> str:
        name, number = match["name"], int(match["number"])
        # A small study checks that a plan runs; its figures do not take the place of others.
        is_full = name in results and results[name].origin.size == FULL
        if match["pending"] and not is_full:
            return match[0]
        if name not in results or not 1 <= number <= len(results[name].layouts):
            raise OutputError(
                f"a page quotes table {number} of {name!r}, which no file of results has; "
                f"{did_you_mean(name, results)}"
            )
        result = results[name]
        item = table(page_table(tabulate(result.rows, result.layouts[number - 1], result.blocks)))
        return f"<!-- table {name} {number} -->\n\n{item}\n\n<!-- end of table -->"

    return _QUOTE.sub(draw, text)


def quotes_of(text: str) -> list[tuple[str, int]]:
    """The tables that a page quotes or waits for: the name of the result, the table's number."""
    return [(match["name"], int(match["number"])) for match in _QUOTE.finditer(text)]


def write_results(folder: Path, results: Sequence[Result] = ()) -> list[Path]:
    """Add these results to the folder's data, draw all of its pages, and quote them in the cards.

    The paths written; the cards are the pages in `cards` beside the folder, if there are any.
    """
    (folder / DATA).mkdir(parents=True, exist_ok=True)
    # All are checked before any is written.
    documents = {folder / DATA / f"{item.name}.json": item.to_json() for item in results}
    for path, content in documents.items():
        write_whole(path, content)
    contents = {folder / name: content for name, content in result_files(folder).items()}
    everything = read_results(folder)
    for page in sorted((folder.resolve().parent / CARDS).glob("*.md")):
        text = page.read_text("utf-8")
        with_tables = quote_tables(text, everything)
        if with_tables != text:
            contents[page] = with_tables
    for path, content in contents.items():
        write_whole(path, content)
    return [*documents, *contents]


def _tables(result: Result) -> list[tuple[int, ResultTable]]:
    """The tables with their places; a size that leaves an axis out has no rows for some of them."""
    tables = [tabulate(result.rows, layout, result.blocks) for layout in result.layouts]
    return [(place, item) for place, item in enumerate(tables) if item.rows]


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


def _verdict(result: Result) -> str:
    """In a word or two: claims that were set after a look at cells are not confirmed by them."""
    return f"{result.verdict} (exploratory)" if result.exploratory else result.verdict


def _claims_table(result: Result) -> Table:
    lines = [
        Line((item.text, item.verdict, estimate(item), item.why or NOTHING))
        for item in result.claims
    ]
    note = f"Exploratory: {result.exploratory}" if result.exploratory else ""
    return Table(
        "What is claimed" if result.paper == BENCH else "What the paper claims",
        ("claim", "verdict", "estimate (95 %)", "why"),
        tuple(lines),
        note,
        words=4,
    )


def _origin(result: Result) -> list[str]:
    seeds = ", ".join(map(str, result.origin.seeds))
    return [
        f"Plan: papers/{result.paper}/{result.plan}.toml, size {result.origin.size}",
        f"Date: {result.origin.date}",
        f"Split seeds: {seeds}",
        f"Time: {duration(result.origin.seconds)} of computing, all cells together",
    ]
