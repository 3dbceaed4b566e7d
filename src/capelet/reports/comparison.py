"""Two runs side by side: what changed for the attacker and for the task, in words and bars.

Any two runs can be compared, those of language models too. Whether a difference is for the better
follows from the kind and the measure: less exposure is better, and so is less perplexity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from capelet.findings import Findings
from capelet.findings.kinds import better, kind_of
from capelet.reports import facts, method
from capelet.reports.audit import callout
from capelet.reports.draw.bars import Bar
from capelet.reports.formatting import (
    decimal,
    difference,
    group_names,
    is_number,
    is_share,
    metric_name,
    percent,
    points,
    score,
    sentence_of,
)
from capelet.reports.kinds import all_verdicts, report_of, reports_of, summary
from capelet.reports.kinds.attribute_inference import LEAK
from capelet.reports.kinds.deviation import Deviation
from capelet.reports.kinds.extraction import Extraction
from capelet.reports.kinds.generic import KindReport, Pair, apart
from capelet.reports.language import LIMITS, is_of_language, model_sentences
from capelet.reports.page import (
    Block,
    Card,
    Cards,
    Change,
    Column,
    Columns,
    Facts,
    Page,
    Passage,
    Passages,
    Section,
    Table,
    Text,
    bars,
    changes,
    present,
    section,
    sign_off,
    text,
)

# Two runs and how they are called.
Both = tuple[Findings, Findings, tuple[str, str]]


def comparison_page(before: Findings, after: Findings) -> Page:
    """What changed, the bars and tables of both runs, and each run's verdicts and provenance."""
    names = facts.run_names(before, after)
    runs = list(zip((before, after), names, strict=True))
    both = (before, after, names)
    deviation = report_of("deviation")
    assert isinstance(deviation, Deviation)
    sections = [
        section("changes", "What changed", [_changes(before, after)], "Changes"),
        _bars_of(LEAK, both, _LEAK_BARS, "leakage", "Leakage"),
        _others(before, after, names),
        _exposure(runs),
        _bars_of("utility", both, _TASK_BARS, "task", "Task"),
        deviation.compare(before, after, names),
        section("tables", "Tables", differences(*both), "Tables"),
        _columns("verdicts", "Verdicts", runs, _verdict_blocks),
        Section("limits", "Limits", (Passages(_limits(after)),), "Limits"),
        _columns("provenance", "Provenance", runs, facts.origin),
        sign_off(),
    ]
    data = [facts.name_of(run) for run in (before, after)]
    return Page(
        title=f"{data[0]} and {data[1]}: two runs side by side, by Capelet",
        heading=("Two runs side by side", "", ""),
        lead=change_summary(before, after),
        header=(
            Columns(tuple(Column(sentence_of(name), _head(run)) for run, name in runs)),
            *callout(facts.incomparable(before, after), "Not quite comparable"),
        ),
        sections=present(sections),
    )


def all_changes(before: Findings, after: Findings) -> list[Change]:
    """What happened to each leak (attributes, words, writers, members), then to each task."""
    items = [
        change_of(pair)
        for report in reports_of(before, after)
        for pair in report.pairs(before, after)
        if pair.headline
    ]
    return sorted(present(items), key=lambda item: item.sense != "leak")


def change_summary(before: Findings, after: Findings) -> str:
    """The comparison in one sentence: which leaks fell or rose, and what became of the task."""
    items = all_changes(before, after)
    if not any(change.sense == "leak" for change in items):
        return (
            "The two runs share no attribute and no other attack, so their leaks cannot be "
            "compared."
        )
    pairs = (((item.sense, item.way), item.target) for item in items)
    return f"{sentence_of(group_names(pairs, _CLAUSES))}."


_CLAUSES = {
    ("leak", "better"): "{} leaked less in the second run",
    ("leak", "worse"): "{} leaked more in the second run",
    ("leak", "unclear"): "for {} no difference in leakage is beyond doubt",
    ("task", "better"): "the task {} gained",
    ("task", "worse"): "the task {} lost",
    ("task", "unclear"): "for the task {} no difference is beyond doubt",
}


def change_of(pair: Pair) -> Change | None:
    """A pair in words; None where the two numbers cannot be compared."""
    before, after = pair.before, pair.after
    direction = better(pair.kind, pair.metric)
    # Two metrics have no difference, and a measure that is neither good nor bad has no way.
    if before is None or after is None or direction is None or before.metric != after.metric:
        return None
    if not (is_number(before.value) and is_number(after.value)):
        return None
    gap = difference(before.metric, before.value, after.value)
    assert gap is not None
    old, now = (_value(before.metric, row.value) for row in (before, after))
    amount = points(abs(gap), 1) if is_share(before.metric) else decimal(abs(gap), 1)
    way = f"{'falls' if gap < 0 else 'rises'} from {old} to {now} ({amount})"
    sentence = f"{pair.name}: {metric_name(before.metric)} {way if gap else f'stays at {now}'}"
    sense: Literal["leak", "task"] = "leak" if kind_of(pair.kind).sense == "leak" else "task"
    # Overlapping intervals may hide a true difference; "unclear" claims neither.
    if not apart(before, after):
        sentence += "; the intervals overlap, so it may be chance."
        return Change(sense, pair.name, sentence, "unclear")
    sentence += "; the intervals do not overlap."
    is_better = (after.value < before.value) == (direction == "less")
    return Change(sense, pair.name, sentence, "better" if is_better else "worse")


def _value(metric: str, value: float) -> str:
    return percent(value, 1) if is_share(metric) else score(metric, value)


def paired_bars(
    report: KindReport, before: Findings, after: Findings, names: tuple[str, str]
) -> list[Bar]:
    """Both runs under each other, measurement by measurement."""
    return [
        report.bar(run, row, name, pair.name)
        for pair in report.pairs(before, after)
        if pair.headline and is_share(pair.metric)
        for run, name, row in zip((before, after), names, (pair.before, pair.after), strict=True)
        if row is not None and is_number(row.value)
    ]


# ---- sections ------------------------------------------------------------------------------------


def _changes(before: Findings, after: Findings) -> Block:
    block = changes(all_changes(before, after))
    return block or Text(("The two runs have no measurement in common.",))


# The name, the title and the caption of the bars of one kind.
_LEAK_BARS = (
    "Balanced accuracy of the strongest attacker in both runs",
    "The strongest attacker, per attribute.",
    "Balanced accuracy on the victims, from chance: a shorter bar is a smaller leak.",
)
_TASK_BARS = (
    "Score of the task in both runs",
    "The task.",
    "A bar begins at what needs no vectors at all: a longer bar is a more useful vector.",
)


def _bars_of(
    kind: str, both: Both, captions: tuple[str, str, str], anchor: str, menu: str
) -> Section | None:
    """A section with the headlines of one kind, both runs under each other."""
    report = report_of(kind)
    block = bars(paired_bars(report, *both), *captions)
    return section(anchor, report.kind.heading, [block], menu)


def _others(before: Findings, after: Findings, names: tuple[str, str]) -> Section | None:
    """Every attacker of the other kinds, both runs under each other."""
    rows = [
        bar
        for report in reports_of(before, after)
        if report.kind.sense == "leak" and report.kind.name != LEAK
        for bar in paired_bars(report, before, after, names)
    ]
    block = bars(
        rows,
        "Other attacks in both runs",
        "Words, writers and training texts.",
        "A bar begins at what needs no vectors: the most frequent words, or chance. A shorter bar "
        "is a smaller leak.",
    )
    return section("others", "What else a vector tells", [block], "Words, writers, training texts")


def _exposure(runs: list[tuple[Findings, str]]) -> Section | None:
    report = report_of("extraction")
    assert isinstance(report, Extraction)
    return section("exposure", report.kind.heading, [report.curves(runs)], report.kind.heading)


def differences(before: Findings, after: Findings, names: tuple[str, str]) -> list[Table | None]:
    """Both runs and the difference of every measurement, kind by kind."""
    return [
        table
        for report in reports_of(before, after)
        for table in report.differences(before, after, names)
    ]


def _columns(
    anchor: str,
    heading: str,
    runs: Iterable[tuple[Findings, str]],
    blocks: Callable[[Findings], Iterable[Block]],
) -> Section:
    columns = tuple(Column(sentence_of(name), tuple(blocks(run))) for run, name in runs)
    return Section(anchor, heading, (Columns(columns),), heading)


def _head(findings: Findings) -> tuple[Block, ...]:
    headline = facts.headline(findings)
    if is_of_language(findings):
        promise = [fact for fact in headline if fact.term == "Guarantee"]
        headline = (*promise, *facts.model_facts(findings))
    return Text((summary(findings),)), Facts(headline)


def _verdict_blocks(findings: Findings) -> list[Block]:
    cards = tuple(Card(verdict) for verdict in all_verdicts(findings))
    if is_of_language(findings):
        sentences = model_sentences(findings)
    else:
        sentences = report_of("utility").sentences(findings)
    verdicts = Cards(cards, compact=True) if cards else None
    return [*callout(facts.warnings(findings)), *present([verdicts, text(sentences)])]


def _limits(after: Findings) -> tuple[Passage, ...]:
    if is_of_language(after):
        return (Passage("What these attacks cannot say", LIMITS),)
    # The others are of one run's guarantee and data, which stand in its own report.
    return tuple(method.limits(after)[:2])
