"""Wherever a figure is printed it is the same one, and what is subtracted is what is printed."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from capelet.cli.terminal import verdict_summaries
from capelet.findings import Finding, Findings
from capelet.findings.verdicts import classify
from capelet.reports.answers import answers, lead
from capelet.reports.audit import audit_page
from capelet.reports.comparison import all_changes, comparison_page
from capelet.reports.html import draw_html
from capelet.reports.kinds import all_verdicts
from capelet.reports.kinds.attribute_inference import ADVERBS, summary_table
from capelet.reports.markdown import draw_markdown

NUMBER = r"(−?[\d.]+)"
STATEMENT = re.compile(
    rf"{NUMBER} % balanced accuracy \(95 % interval {NUMBER}–{NUMBER} %\) against {NUMBER} %"
)
CELL = re.compile(rf"{NUMBER} % \({NUMBER}–{NUMBER}\)")
LEAK = Finding("attribute-inference", "age", "balanced_accuracy", 0.5, n=400, attacker="strongest")
TASK = Finding("utility", "stars", "accuracy", 0.5, n=400, attacker="strongest", majority=0.5)

triples = st.tuples(*[st.floats(0, 1)] * 3).map(sorted)
# Pages take some hundredths of a second each: fewer examples than for sentences alone.
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def row(kind: Finding, numbers: list[float], chance: float | None = 0.5) -> Finding:
    low, value, high = numbers
    return replace(kind, value=value, low=low, high=high, chance=chance)


def number(printed: str) -> Decimal:
    return Decimal(printed.replace("−", "-").replace("+", ""))


def as_coarse(exact: Decimal, like: Decimal) -> Decimal:
    """The figure with as many decimals as another one, halves away from zero as readers do."""
    return exact.quantize(Decimal(1).scaleb(like.as_tuple().exponent), ROUND_HALF_UP)  # type: ignore[arg-type]


@FEW
@given(numbers=triples, chance=st.integers(2, 12).map(lambda classes: 1 / classes))
@example(numbers=[0.63, 0.6496, 0.67], chance=0.5)
@example(numbers=[0.5395, 0.5449, 0.5495], chance=0.5)  # 54.5 %, which is 55 and not 54
@example(numbers=[0.45, 0.48, 0.504], chance=0.5)  # room for a gain that is printed as 0
@example(numbers=[0.0, 0.0, 0.333984375], chance=1 / 3)  # the same, where the interval is wide
@example(numbers=[0.0, 0.1, 0.3], chance=0.5)  # a wide interval, all of it below chance
def test_card_table_bar_lead_and_json_print_the_same_figures(
    numbers: list[float], chance: float
) -> None:
    findings = Findings((row(LEAK, numbers, chance),))
    (verdict,) = all_verdicts(findings)
    found = STATEMENT.search(verdict.sentence)
    assert found is not None
    statement = [number(item) for item in found.groups()]
    table = summary_table(findings)
    assert table is not None
    cells = table.lines[0].cells
    in_table = CELL.search(cells[1])
    assert in_table is not None
    # The table has tenths; the sentence has these, or what they round to.
    tenths = [number(item) for item in (*in_table.groups(), cells[2].removesuffix(" %"))]
    assert statement == [as_coarse(item, like=statement[0]) for item in tenths]
    page = draw_markdown(audit_page(findings))
    drawn = draw_html(audit_page(findings)).replace("\xa0", " ")
    bars = re.findall(rf">age: {NUMBER} %, 95 % interval {NUMBER}–{NUMBER} %<", drawn)
    labels = re.findall(rf">{NUMBER} %</tspan> \({NUMBER}–{NUMBER} %\)", drawn)
    assert bars and all([number(item) for item in bar] == tenths[:3] for bar in bars)
    whole = [as_coarse(item, like=Decimal(1)) for item in tenths[:3]]
    assert labels and all([number(item) for item in label] == whole for label in labels)
    assert f"**{verdict.title}**" in page and verdict.statement.split(". ")[0] in page
    # The lead's adverb, the card's title and the terminal's level are one level.
    (summary,) = verdict_summaries([verdict])
    assert summary["level"] == verdict.level == classify(findings.rows[0]).level
    assert summary["sentence"] == verdict.sentence
    assert not re.search(r"up to 0(\.0)? points|without an interval", verdict.sentence)
    if verdict.level in ADVERBS:
        assert f"“age” {ADVERBS[verdict.level]}" in page
        assert verdict.title == f"{verdict.level} leak"


@FEW
@given(before=triples, after=triples)
@example(before=[0.63, 0.6496, 0.67], after=[0.57, 0.5984, 0.62])  # 65.0 and 59.8 are 5.2 apart
@example(before=[0.5, 0.6, 0.64960], after=[0.65040, 0.7, 0.8])  # ends that are printed alike
@example(before=[0.5, 0.60001, 0.7], after=[0.5, 0.60002, 0.7])
def test_a_difference_is_that_of_the_figures_beside_it(
    before: list[float], after: list[float]
) -> None:
    runs = [
        Findings((row(LEAK, numbers), row(TASK, numbers, chance=None)))
        for numbers in (before, after)
    ]
    changes = all_changes(*runs)
    assert len(changes) == 2
    for change in changes:
        moved = re.search(
            rf"(falls|rises) from {NUMBER} % to {NUMBER} % \({NUMBER} points?\)", change.sentence
        )
        if moved is None:
            assert re.search(rf"stays at {NUMBER} %", change.sentence)
            continue
        verb, old, now, size = moved[1], *map(number, moved.groups()[1:])
        assert abs(now - old) == size > 0 and (now < old) == (verb == "falls")
    page = draw_markdown(comparison_page(*runs))
    lines = re.findall(rf"{CELL.pattern} \| {CELL.pattern} \| ([+−\d.]+) \| (\w+)", page)
    assert lines
    for line in lines:
        old, old_low, old_high, now, now_low, now_high = map(number, line[:6])
        assert number(line[6]) == now - old
        is_apart = now_high < old_low or old_high < now_low
        assert line[7] == ("apart" if is_apart else "overlap")
    sentences = [lead(*runs), *(str(passage) for passage in answers(*runs))]
    costs = re.findall(
        rf"goes from {NUMBER} % to {NUMBER} % \(([+−\d.]+) points\)", *["\n".join(sentences)]
    )
    assert costs and all(number(now) - number(old) == number(size) for old, now, size in costs)
