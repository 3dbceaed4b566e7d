"""Pages of studies, built of the blocks that reports are built of: no number is typed by hand.

`study_page` is of whatever is measured of a plan, `result_page` of a file of results,
and `index_page` of all of these files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from capelet.findings.kinds import KINDS
from capelet.reports.formatting import NOTHING, duration
from capelet.reports.page import (
    Block,
    Fact,
    Facts,
    Line,
    Page,
    Picture,
    Section,
    Span,
    Table,
    Text,
    Words,
    present,
    section,
    table_of,
    text,
)
from capelet.studies.claims import Ruling
from capelet.studies.collection import Collection
from capelet.studies.documents import BENCH, UNTESTED, count_verdicts
from capelet.studies.experiments import Experiment, Experiments
from capelet.studies.pictures import picture
from capelet.studies.plan import PlannedCell
from capelet.studies.results import Result
from capelet.studies.rows import Row, format_level, pick
from capelet.studies.statistic_tables import anova_table, difference_table, estimate, matched_table
from capelet.studies.statistics import CONDITIONAL, anova
from capelet.studies.tables import page_table, tabulate

FULL = "full"
DRAWN = (
    "Every page here is drawn from a file in ", Span("data/", "code"), " and from nothing else; a "
    "test draws them again and compares. The files hold means over victims and paired differences, "
    "and nothing about any one person.",
)  # fmt: skip
READING = (
    "A study ", Span("holds", "em"), " where all of its claims do, ", Span("fails", "em"),
    " where one of them fails, and else ", Span(UNTESTED, "em"), ". A claim holds where the whole "
    "95 % interval lies on its side of the margin, fails where none of it does, and cannot be "
    "tested where the interval leaves both open, or where data are not to be had. So a study that "
    "fails may have claims that hold: its page has them one by one, beside what the paper says, "
    "and names what stands in for data that are not public.",
)  # fmt: skip
# Of our own pages: attackers, splits and noise are not those of the papers, and that is the point.
PROTOCOL = (
    "Attackers are trained afresh on released vectors, an author’s texts are all in one part of a "
    "split, and noise has the sensitivity that its ε asks for; where it has not, the page begins "
    "with ", Span("broken", "em"), " (", Span("why so", link="../explanation/protocol.md"),
    "). More: ", Span("how a study is run", link="../how-to/studies.md"), ", ",
    Span("what its P-values mean", link="../explanation/splits-as-blocks.md"), ", ",
    Span("what is kept of people", link="../cards/studies.md"), ".",
)  # fmt: skip
EXPLORATORY = (
    Span("Exploratory", "em"),
    ": some cells had been seen when the claims were set, so that these cells do not confirm them; "
    "the page says what.",
)


def study_page(study: Collection) -> Page:
    """Title, claims, tables, and what is missing."""
    plan = study.plan
    tables = [tabulate(study.rows, layout, plan.blocks) for layout in plan.tables]
    failures = [f"{_cell_words(item)}: {reason}" for item, reason in study.failures]
    blocks = [
        _said("Exploratory:", plan.exploratory),
        _said(_asker(plan.paper), plan.headline),
        Text(((Span(study.warning, "strong"),),)) if study.warning else None,
        _claims("Claims", study.rulings),
        # A size that leaves the level of a table out has nothing to show in it.
        *(page_table(item) for item in tables if item.rows),
        _overview(study),
        text([f"{study.missing} cells are not measured yet."] if study.missing else []),
        text(failures, "list"),
    ]
    return _page(plan.title or plan.name, blocks)


def result_page(result: Result) -> Page:
    """The page of one study: verdict, headline, our tables, statistics, origin."""
    header = [
        _said(f"{_verdict(result).capitalize()}.", result.why),
        _said("Exploratory:", result.exploratory),
        _said(_asker(result.paper), result.headline),
        _said("Stand-ins:", result.origin.stand_ins),
    ]
    source = Fact("For a paper", (Span("LaTeX", link=f"{result.name}.tex"),))
    note = Text(((Span(CONDITIONAL, "em"),),))
    return _page(
        result.title,
        header,
        section("tables", "Our tables", result_tables(result, alone=False)),
        section("claims", "Claims", [result_claims(result)]),
        section("statistics", "Statistics", result_statistics(result)),
        section("origin", "Origin", [Facts((*origin(result), source)), note]),
    )


def index_page(results: Sequence[Result], account: Experiments | None = None) -> Page:
    """Every experiment of the papers with its verdict or why it has none, then all studies."""
    account = account or Experiments()
    # A small study checks that a plan runs; its verdict is not one on the paper.
    verdicts = {item.name: _verdict(item) for item in results if item.origin.size == FULL}
    papers = tuple(Fact(name, citation) for name, citation in account.papers.items())
    columns: dict[str, Callable[[Experiment], Words]] = {
        "paper": lambda item: item.paper,
        "table, figure": lambda item: item.place,
        "what is in it": lambda item: item.content,
        "verdict here": lambda item: _state(item, verdicts),
    }
    number = "1 study" if len(results) == 1 else f"{len(results)} studies"
    outcome = count_verdicts([item.verdict for item in results])
    return _page(
        "Results: the papers’ tables, run again",
        [
            Text((DRAWN,)),
            Text((READING,)),
            Text((PROTOCOL,)) if account.rows else None,
        ],
        section(
            "experiments",
            "The papers’ experiments",
            [Facts(papers) if papers else None, table_of("", account.rows, columns, words=4)],
        ),
        section(
            "studies",
            "Studies",
            [
                text([f"{number}: {outcome}." if results else "None is kept yet."]),
                _studies(results),
                Text((EXPLORATORY,)) if any(item.exploratory for item in results) else None,
                Text((CONDITIONAL,)),
            ],
        ),
    )


# ---- parts of a result's page --------------------------------------------------------------------


def result_tables(result: Result, alone: bool) -> list[Block]:
    """Each table with its picture; a size that leaves an axis out has no rows for some of them."""
    blocks: list[Block] = []
    for number, layout in enumerate(result.layouts, start=1):
        item = tabulate(result.rows, layout, result.blocks)
        if item.rows:
            drawing = picture(item)
            blocks.append(page_table(item, alone))
            if drawing is not None:
                blocks.append(Picture(item.title, drawing, f"{result.name}-{number}.svg"))
    return blocks


def result_claims(result: Result) -> Table | None:
    title = "What is claimed" if result.paper == BENCH else "What the paper claims"
    note = f"Exploratory: {result.exploratory}" if result.exploratory else ""
    return _claims(title, result.claims, note)


def result_statistics(result: Result) -> list[Table | None]:
    tables = [
        anova_table(anova(pick(result.rows, **item.where), item.factors, item.blocks))
        for item in result.analyses
    ]
    return [*tables, difference_table(result.differences), matched_table(result.at_utility)]


def origin(result: Result) -> tuple[Fact, ...]:
    """Where the numbers come from."""
    about = result.origin
    return (
        Fact("Plan", f"papers/{result.paper}/{result.plan}.toml, size {about.size}"),
        Fact("Date", about.date),
        Fact("Split seeds", ", ".join(map(str, about.seeds))),
        Fact("Time", f"{duration(about.seconds)} of computing, all cells together"),
    )


# ---- parts that pages share ----------------------------------------------------------------------


def _page(title: str, header: Sequence[Block | None], *sections: Section | None) -> Page:
    return Page(title, (title, "", ""), "", present(header), present(sections))


def _said(head: str, sentence: str) -> Text | None:
    """A paragraph whose first words are set apart; None where there is nothing to say."""
    return Text(((Span(head, "strong"), f" {sentence}"),)) if sentence else None


def _asker(paper: str) -> str:
    return "Question:" if paper == BENCH else "The paper:"


def _verdict(result: Result) -> str:
    """In a word or two: claims that were set after a look at cells are not confirmed by them."""
    return f"{result.verdict} (exploratory)" if result.exploratory else result.verdict


def _claims(title: str, rulings: Sequence[Ruling], note: str = "") -> Table | None:
    columns: dict[str, Callable[[Ruling], str]] = {
        "claim": lambda item: item.text,
        "verdict": lambda item: item.verdict,
        "estimate (95 %)": estimate,
        "why": lambda item: item.why or NOTHING,
    }
    return table_of(title, rulings, columns, note, words=4)


# ---- the index -----------------------------------------------------------------------------------


def _state(item: Experiment, verdicts: Mapping[str, str]) -> Words:
    """The verdict of each plan of an experiment, or why there is none."""
    pieces: list[str | Span] = []
    for name in item.plans:
        if name in verdicts:
            pieces += [" · ", Span(verdicts[name], link=f"{name}.md")]
        else:
            path = f"papers/{name.replace('-', '/', 1)}.toml"
            pieces += [" · ", Span(path, "code"), ": not run at its full size yet"]
    if item.reason:
        # A row with plans has verdicts of its own; the reason is then about the rest.
        pieces += [" · ", item.reason if item.plans else f"{UNTESTED}: {item.reason}"]
    return tuple(pieces[1:])


def _studies(results: Sequence[Result]) -> Table | None:
    columns: dict[str, Callable[[Result], Words]] = {
        "study": lambda item: (Span(item.title, link=f"{item.name}.md"),),
        "verdict": _verdict,
        "size": lambda item: item.origin.size,
        "splits": lambda item: str(len(item.origin.seeds)),
        "date": lambda item: item.origin.date,
        "computing time": lambda item: duration(item.origin.seconds),
    }
    return table_of("", sorted(results, key=lambda item: item.name), columns, words=3)


# ---- all cells of a study ------------------------------------------------------------------------


def _overview(study: Collection) -> Table:
    """Every combination of the axes that vary, with the mean of each measure over its seeds.

    Of each kind the measure by which it is judged; controls and references have no record.
    """
    rows = [
        row
        for row in study.rows
        if not row.candidate and row.kind in KINDS and KINDS[row.kind].metric == row.metric
    ]
    names = [*study.plan.axis_names, "attacker", "subgroup"]
    axes = [name for name in names if len({str(_axes(row).get(name)) for row in rows}) > 1]
    columns = list(dict.fromkeys(map(_column, rows)))
    by_place: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for row in rows:
        place = tuple(_level(_axes(row).get(name)) for name in axes)
        by_place.setdefault(place, {}).setdefault(_column(row), []).append(row.value)
    lines = []
    for place, scores in by_place.items():
        figures = [f"{fmean(scores[name]):.3f}" if name in scores else NOTHING for name in columns]
        seeds = max(len(values) for values in scores.values())
        lines.append(Line((*place, *figures, str(seeds))))
    return Table("All cells", (*axes, *columns, "splits"), tuple(lines), words=len(axes))


def _axes(row: Row) -> Mapping[str, Any]:
    """Its axes; groups of people and clouds of vectors are columns, deciles of words are lines."""
    if "attacker" in row.axes or "subgroup" not in row.axes:
        return row.axes
    return {name: level for name, level in row.axes.items() if name != "subgroup"}


def _cell_words(item: PlannedCell) -> str:
    axes = ", ".join(f"{name} {_level(value)}" for name, value in item.axes.items())
    return f"{axes}, seed {item.cell.seed}"


def _column(row: Row) -> str:
    words = [row.target, row.metric]
    if "subgroup" in row.axes and "subgroup" not in _axes(row):
        words.append(f"({row.axes['subgroup']})")
    return " ".join(words).replace("_", " ")


def _level(value: Any) -> str:
    return NOTHING if value is None else format_level(value)
