"""Before and after: what leaked, what leaks now, what it cost, and what of that is guaranteed.

One page for whoever must decide whether a private encoder may be used. A pure function of the two
runs that `protect` made. What is proven and what is only measured stand apart, and so do the score
of the defence's own adversary and that of a fresh attacker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from capelet.findings import Finding, Findings
from capelet.findings.kinds import reference_of
from capelet.reports import comparison, facts, method
from capelet.reports.answers import answers, lead
from capelet.reports.audit import callout, ending
from capelet.reports.draw.bars import Bar
from capelet.reports.draw.pareto import settings_of
from capelet.reports.formatting import (
    change,
    count,
    difference,
    duration,
    is_number,
    join_names,
    percent,
    points,
    score,
)
from capelet.reports.frontier import search_section
from capelet.reports.kinds import report_of
from capelet.reports.kinds.attribute_inference import (
    LEAK,
    PRIMARY,
    strongest,
    summary_table,
    verdicts,
)
from capelet.reports.kinds.families import family_table
from capelet.reports.kinds.generic import cell
from capelet.reports.kinds.person_inference import PERSON
from capelet.reports.kinds.utility import USE
from capelet.reports.output_summary import what_leaves
from capelet.reports.page import (
    Card,
    Cards,
    Change,
    Fact,
    Facts,
    Page,
    Passage,
    Passages,
    Section,
    Table,
    Tables,
    bars,
    changes,
    present,
    section,
    sign_off,
    table_of,
    tables,
    text,
)
from capelet.reports.verdict import targets, value_of

JOINT = "joint-adversary"
NAMES = ("before", "after")
HELD_OUT = ("Held out:", "the training never saw this attribute.")


def protection_page(before: Findings, after: Findings) -> Page:
    """In short, what leaks now, what it costs, false comfort, the search, and all numbers."""
    name = facts.name_of(after)
    leaks, uses = both_bars(before, after)
    marked = mark_changes(before, after)
    comfort_blocks = [text(comfort_sentences(after)), comfort(after)]
    sections = [
        Section("short", "In short", (Passages(tuple(answers(before, after))),), "In short"),
        _leakage(before, after, leaks, marked),
        report_of(PERSON).section(after),
        _task(after, uses, marked),
        section("comfort", "False comfort", comfort_blocks, "False comfort"),
        search_section(after),
        report_of("deviation").section(after),
        section("tables", "Tables", _tables(before, after), "Tables"),
        *ending([*how(after), *method.method(after)], [*method.limits(after), OTHER_DATA]),
        section("provenance", "Provenance", facts.origin(after, provenance(after)), "Provenance"),
        sign_off(),
    ]
    warnings = [*facts.incomparable(before, after), *facts.warnings(after)]
    return Page(
        title=f"{name}: a private encoder, before and after, by Capelet",
        heading=("A private encoder for ", name, ": before and after"),
        lead=lead(before, after),
        header=(Facts(headline(after)), *callout(warnings)),
        sections=present(sections),
        leaves=what_leaves(after),
    )


def _leakage(
    before: Findings, after: Findings, rows: list[Bar], marked: list[Change]
) -> Section | None:
    scores = {item.target: item.value_words for item in verdicts(before)}
    apart = held_out_attributes(after)
    cards = []
    for item in verdicts(after):
        old = [f"before: {scores[item.target]}"] if item.target in scores else []
        # The only fair look at attributes that nobody thought of.
        remark = HELD_OUT if item.target in apart else ("", "")
        cards.append(Card(item, (*old, f"by chance: {item.chance_words}"), remark))
    caption = (
        "Balanced accuracy of the strongest fresh attacker on the victims. A bar begins at chance: "
        "a shorter bar is a smaller leak."
    )
    name = "Balanced accuracy of the strongest attacker, before and after"
    blocks = [
        Cards(tuple(cards)) if cards else text(["No attribute was measured in this run."]),
        bars(rows, name, "Before and after, per attribute.", caption),
        changes(item for item in marked if item.sense == "leak"),
    ]
    return section("leakage", "What leaks now", blocks, "Leakage")


def _task(after: Findings, rows: list[Bar], marked: list[Change]) -> Section | None:
    caption = (
        "A longer bar is a more useful vector. The task’s bar begins at what needs no vectors at "
        "all."
    )
    title = "Task and neighbours, before and after."
    picture = bars(rows, "The task and the neighbours, before and after", title, caption)
    blocks = [
        text(report_of(USE).sentences(after)),
        picture or text(["No task was measured."]),
        changes(item for item in marked if item.sense == "task"),
    ]
    return section("task", "What it costs", blocks, "Cost")


def _tables(before: Findings, after: Findings) -> list[Tables | None]:
    families = [family_table(after, LEAK, target) for target in targets(after, LEAK)]
    return [
        tables("Before and after", comparison.differences(before, after, NAMES)),
        tables("After: every control and every attacker", [summary_table(after), *families]),
    ]


# ---- bars and tables -----------------------------------------------------------------------------


def both_bars(before: Findings, after: Findings) -> tuple[list[Bar], list[Bar]]:
    """Leaks and uses, each before and after; what was held out from the training is marked."""
    leaks, tasks = (
        comparison.paired_bars(report_of(kind), before, after, NAMES) for kind in (LEAK, USE)
    )
    apart = held_out_attributes(after)
    leaks = [
        replace(bar, group=f"{bar.group} (held out)") if bar.group in apart else bar
        for bar in leaks
    ]
    uses: list[Bar] = []
    for bar in tasks:
        if bar.group == "neighbours":
            # Before the protection all neighbours are there, by definition: nobody measured it.
            group = "ten nearest neighbours kept"
            uses.append(Bar("before, by definition", 1.0, start=0.0, group=group))
            bar = replace(bar, group=group)
        uses.append(bar)
    return leaks, uses


def mark_changes(before: Findings, after: Findings) -> list[Change]:
    """What happened to each leak and each task; held-out attributes are marked."""
    apart = held_out_attributes(after)
    return [
        replace(item, sentence=f"Held out from the training: {item.sentence}")
        if item.sense == "leak" and item.target in apart
        else item
        for item in comparison.all_changes(before, after)
    ]


def comfort(after: Findings) -> Table | None:
    """The defence's own adversary beside a fresh attacker; None where it had no adversary."""
    triples: list[tuple[str, Finding | None, Finding]] = [*_joint(after)]
    if not triples:
        return None
    # Held-out attributes have no adversary of their own, so that only the fresh score is there.
    triples += [
        (f"{row.target} (held out)", None, row)
        for row in (strongest(after, name) for name in held_out_attributes(after))
        if row is not None
    ]
    columns: dict[str, Callable[[tuple[str, Finding | None, Finding]], str]] = {
        "attribute": lambda item: item[0],
        "chance": lambda item: score(PRIMARY, (item[1] or item[2]).chance),
        "the defence’s own adversary": lambda item: score(PRIMARY, value_of(item[1])),
        "fresh attacker": lambda item: cell(item[2]),
        "false comfort, points": lambda item: change(
            PRIMARY, difference(PRIMARY, value_of(item[1]), item[2].value)
        ),
    }
    note = (
        "Balanced accuracy, means over seeds. The defence’s own adversary is scored on rows that "
        "the defender held back, the fresh attacker on victims, after the map was frozen."
    )
    return table_of("What the training believed, and what is so", triples, columns, note)


def comfort_sentences(after: Findings) -> list[str]:
    """The largest difference in words."""
    triples = _joint(after)
    if not triples:
        return []
    # The worst case: an average would hide one attribute that the training got wrong.
    target, joint, fresh = max(triples, key=lambda item: item[2].value - item[1].value)
    gap = difference(PRIMARY, joint.value, fresh.value)
    scores = [percent(row.value, 1) for row in (joint, fresh)]
    sentence = (
        f"While it trained, the defence’s own adversary read “{target}” with {scores[0]} balanced "
        f"accuracy; a fresh attacker on the frozen vectors reaches {scores[1]}"
    )
    # One point is within the noise of a held-back tenth.
    if gap is not None and gap > 0.01:
        sentence += f". These {points(gap, 1)} are false comfort: only the fresh score counts."
    else:
        sentence += ". Here the training did not deceive itself."
    return [sentence]


def held_out_attributes(after: Findings) -> list[str]:
    """The attributes that the training did not see."""
    return [str(name) for name in facts.part(after, "protect").get("hold_out") or []]


# ---- method, limits, provenance ------------------------------------------------------------------


def headline(after: Findings) -> tuple[Fact, ...]:
    """The facts at the top: data, encoder, method, guarantee."""
    name = str(facts.part(after, "protect").get("method") or "")
    entries = facts.headline(after)
    # The method stands before what it promises.
    place = next((i for i, fact in enumerate(entries) if fact.term == "Guarantee"), len(entries))
    entry = facts.known({"Method": f"{name} ({_settings(after)})" if name else None})
    return (*entries[:place], *entry, *entries[place:])


def how(after: Findings) -> list[Passage]:
    """How the encoder was trained."""
    about = facts.part(after, "protect")
    number, seeds = about.get("trained_on"), about.get("seeds")
    sentence = f"The method “{about.get('method')}” learnt on "
    sentence += f"{count(number)} texts of " if number else ""
    sentence += (
        "the defender’s part and was then frozen; no victim and none of the attacker’s texts had a "
        "part in it. "
    )
    if isinstance(seeds, int) and seeds > 1:
        sentence += (
            f"This was done anew for each of the {seeds} splits, and the scores are means over "
            "them. The encoder in this folder is that of the first. "
        )
    apart = held_out_attributes(after)
    if apart:
        names = join_names([f"“{name}”" for name in apart])
        sentence += f"{names} was held out: the training never saw it"
        sentence += ", and it shows what happens to attributes that nobody thought of."
    return [Passage("Trained, frozen, then attacked", sentence.strip())]


OTHER_DATA = Passage(
    "Other data, other tasks",
    "A learnt map keeps what its training asked for, on texts like those it saw. Audit it again on "
    "yours: the folder is an encoder like any other.",
)


def provenance(after: Findings) -> list[facts.Group]:
    """The facts of the run, with those of the training behind the encoder's."""
    about = facts.part(after, "protect")
    training = about.get("training_seconds")
    opponents = [str(name) for name in about.get("against") or []]
    entries = facts.known(
        {
            "method": about.get("method"),
            "settings": _settings(after, all_of_them=True),
            "private attributes that it was given": join_names(opponents),
            "held out": join_names(held_out_attributes(after)),
            "texts trained on": count(about["trained_on"]) if about.get("trained_on") else None,
            "time, one training": duration(training) if training is not None else None,
        }
    )
    groups = facts.provenance(after)
    return [*groups[:2], *([("Training", entries)] if entries else []), *groups[2:]]


def _settings(after: Findings, all_of_them: bool = False) -> str:
    """What was chosen of the method; `schedule` and defaults of other methods only on demand."""
    settings = dict(facts.part(after, "protect").get("settings") or {})
    schedule = settings.pop("schedule", None)
    if not all_of_them:
        # What a reader decides by; the rest stands under provenance.
        keep = ["keep"] if settings.get("keep") != "task" else []
        names = ("epsilon", "adversary_weight", *keep)
        settings = {key: settings[key] for key in names if key in settings}
    elif isinstance(schedule, Mapping):
        settings.update({key: value for key, value in schedule.items() if key != "seed"})
    return settings_of(settings)


def _joint(after: Findings) -> list[tuple[str, Finding, Finding]]:
    """Each secret's score of the defence's own adversary, and of the strongest fresh attacker."""
    rows = after.select(kind=reference_of(LEAK), attacker=JOINT, metric=PRIMARY)
    pairs = [(row.target, row, strongest(after, row.target)) for row in rows]
    return [
        (target, joint, fresh)
        for target, joint, fresh in pairs
        if fresh is not None and is_number(joint.value) and is_number(fresh.value)
    ]
