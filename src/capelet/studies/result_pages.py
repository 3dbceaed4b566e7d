"""A folder of results: `data/` with a file for each study, and beside it what is drawn from them.

That is a page, its pictures and its tables for a paper, and the index. Cards quote tables of
results too. No number of any of them is typed by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from capelet.errors import OutputError, did_you_mean
from capelet.files import write_whole
from capelet.reports import latex
from capelet.reports.draw.svg import standalone
from capelet.reports.markdown import draw_markdown, table
from capelet.reports.page import Picture, Table
from capelet.studies.experiments import EXPERIMENTS, Experiments
from capelet.studies.page import (
    FULL,
    index_page,
    origin,
    result_claims,
    result_page,
    result_statistics,
    result_tables,
)
from capelet.studies.results import DATA, Result, read_results
from capelet.studies.tables import page_table, tabulate

INDEX, CARDS = "index.md", "cards"
# A card quotes a table of results between these two lines: the file's name, the table's number. As
# long as its study has not been run, the line says so, and what stands there is left alone.
_QUOTE = re.compile(
    r"<!-- table (?P<name>[a-z0-9-]+) (?P<number>\d+)(?P<pending>, not run yet)? -->\n"
    r"(?P<body>.*?)<!-- end of table -->",
    re.DOTALL,
)


def result_files(folder: Path) -> dict[str, str]:
    """Every file of a folder of results, by name, as its data files have it drawn."""
    results = list(read_results(folder).values())
    account = Experiments.read(folder / DATA / EXPERIMENTS)
    files = {INDEX: draw_markdown(index_page(results, account))}
    for result in results:
        page = result_page(result)
        files[f"{result.name}.md"] = draw_markdown(page)
        files[f"{result.name}.tex"] = result_latex(result)
        for block in (block for section in page.sections for block in section.blocks):
            if isinstance(block, Picture):
                files[block.file] = standalone(block.drawing)
    return files


def result_latex(result: Result) -> str:
    """All tables of the page for a paper, one after another."""
    facts = " · ".join(f"{fact.term}: {fact.value}" for fact in origin(result))
    blocks = [
        *result_tables(result, alone=True),
        result_claims(result),
        *result_statistics(result),
    ]
    tables = [latex.table(block) for block in blocks if isinstance(block, Table)]
    return "\n".join([rf"% {facts}. Needs \usepackage{{booktabs}}.", *tables])


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
