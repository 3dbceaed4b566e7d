"""Before and after: what leaked, what leaks now, what it cost, and what of that is guaranteed.

One page for whoever must decide whether a private encoder may be used. A pure function of the two
runs that `protect` made. What is proven and what is only measured stand apart, and so do the score
of the defence's own adversary and that of a fresh attacker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from capelet.files import writable_folder, write_whole
from capelet.findings import Finding, Findings
from capelet.reports import comparison, facts, figures, markdown, method, pareto, shift, tables
from capelet.reports import verdicts as judged
from capelet.reports.facts import Fact
from capelet.reports.method import Passage
from capelet.reports.tables import Line, Table
from capelet.reports.verdicts import LEAK, PRIMARY, Verdict, first, verdicts
from capelet.reports.words import (
    NOTHING,
    count,
    duration,
    known,
    listed,
    percent,
    points,
    score,
    score_with_interval,
    signed,
)

JOINT = "joint-adversary"
NAMES = ("before", "after")
ADVERBS = {"slight": "slightly", "clear": "clearly", "strong": "strongly"}
OWN_TEXTS = (
    "A trained map is not private towards the texts it was trained on, unless it says so. "
    "This one does not: whoever holds the map may learn something about {texts} of the defender’s "
    "part. The guarantee, where there is one, is for the texts that pass through."
)
MEASURED = (
    "That the leaks are as small as they are shown, that the task works as shown, and for whom: on "
    "these data, by these attackers. Another attacker or more labelled texts may find more."
)
NO_NOISE = "no guarantee: a map was learnt, and no noise is added"
OWN_TEXTS_KEPT = "This map says that it is private towards the texts it was trained on."


def write_protection(before: Findings, after: Findings, folder: Path | str) -> Path:
    """Write `report.md` and `report.html` on a private encoder; the page's path."""
    target = writable_folder(folder)
    write_whole(target / "report.md", render_protection_markdown(before, after))
    page = target / "report.html"
    write_whole(page, render_protection(before, after))
    return page


def render_protection(before: Findings, after: Findings) -> str:
    """The page as one HTML file."""
    from capelet.reports.render import rows_of, templates

    after = _worded(after)
    leaks, tasks = bars(before, after)
    frontier = pareto.Frontier.read(after)
    content = {
        "name": facts.name_of(after),
        "lead": lead(before, after),
        "headline": headline(after),
        "answers": answers(before, after),
        "warnings": [*facts.incomparable(before, after), *facts.warnings(after)],
        "cards": [(item, figures.meter(item)) for item in verdicts(after)],
        "was": {item.target: item for item in verdicts(before)},
        "held_out": held_out(after),
        "changes": changes(before, after),
        "leaks": rows_of(leaks, "Balanced accuracy of the strongest attacker, before and after"),
        "tasks": rows_of(tasks, "The task and the neighbours, before and after"),
        "task_sentences": judged.tasks(after),
        "comfort": comfort(after),
        "comfort_sentences": comfort_sentences(after),
        "frontier": frontier,
        "frontier_picture": pareto.picture(frontier) if frontier else None,
        "frontier_legend": pareto.legend(frontier) if frontier else [],
        "frontier_sentences": pareto.sentences(frontier) if frontier else [],
        "frontier_table": pareto.table(frontier) if frontier else None,
        "shift": shift.shift(after),
        "caution": shift.CAUTION,
        "differences": tables.differences(before, after, NAMES),
        "summary": tables.summary(after),
        "families": tables.attack_tables(after),
        "method": [*how(after), *method.method(after)],
        "limits": [*method.limits(after), OTHER_DATA],
        "provenance": provenance(after),
        "command": facts.command(after),
        "recipe": facts.recipe(after),
    }
    return templates().get_template("protection.html").render(content)


def render_protection_markdown(before: Findings, after: Findings) -> str:
    """The same as Markdown."""
    after = _worded(after)
    frontier = pareto.Frontier.read(after)
    found = comfort(after)
    blocks = [
        f"# A private encoder for {markdown.plain(facts.name_of(after))}: before and after",
        f"**{markdown.plain(lead(before, after))}**",
        markdown.facts_list(headline(after)),
        markdown.quoted([*facts.incomparable(before, after), *facts.warnings(after)]),
        "## In short",
        markdown.passages(answers(before, after)),
        "## What changed",
        markdown.listed(markdown.plain(item.sentence) for item in changes(before, after)),
        *(markdown.table(item) for item in tables.differences(before, after, NAMES)),
    ]
    if found is not None:
        said = map(markdown.plain, comfort_sentences(after))
        blocks += ["## False comfort", markdown.listed(said), markdown.table(found)]
    if frontier is not None:
        said = map(markdown.plain, pareto.sentences(frontier))
        blocks += ["## Leakage against utility", markdown.listed(said)]
        blocks.append(markdown.table(pareto.table(frontier)))
    checked = [tables.summary(after), *tables.attack_tables(after)]
    blocks += ["## Tables", *(markdown.table(item) for item in checked if item is not None)]
    blocks += ["## Method", markdown.passages([*how(after), *method.method(after)])]
    blocks += ["## Limits", markdown.passages([*method.limits(after), OTHER_DATA])]
    blocks += markdown.origin(provenance(after), after, "##")
    return "\n\n".join(block for block in blocks if block) + "\n"


# ---- in words ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fate:
    """What became of one attribute."""

    target: str
    before: Verdict | None
    after: Verdict
    way: str

    @property
    def kind(self) -> str:
        """`gone`, `less`, `more`, `same`, or `quiet` for what leaked neither before nor after."""
        leaked = self.before is not None and self.before.level != "none"
        if self.after.level == "none":
            return "gone" if leaked else "quiet"
        if self.way == "better":
            return "less"
        return "same" if leaked and self.way != "worse" else "more"


def fates(before: Findings, after: Findings) -> list[Fate]:
    """What became of each attribute that was measured after."""
    was = {item.target: item for item in verdicts(before)}
    ways = {item.target: item.way for item in comparison.changes(before, after)}
    return [
        Fate(item.target, was.get(item.target), item, ways.get(item.target, "unclear"))
        for item in verdicts(after)
    ]


def lead(before: Findings, after: Findings) -> str:
    """The whole page in a few sentences."""
    found = fates(before, after)
    if not found:
        return "No private attribute was measured, so this report says nothing about leaks."
    said = []
    for kind, one, several in _SAID:
        names = [f"“{item.target}”" for item in found if item.kind == kind]
        if names:
            said.append((one if len(names) == 1 else several).format(listed(names)))
    sentences = ["; ".join(said), _cost(before, after), _promise(after)]
    return " ".join(f"{item[0].upper()}{item[1:]}." for item in sentences if item)


_SAID = (
    ("more", "{} leaks more than before", "{} leak more than before"),
    ("same", "{} leaks as before, or nearly so", "{} leak as before, or nearly so"),
    (
        "less",
        "{} leaks less than before, but still leaks",
        "{} leak less than before, but still leak",
    ),
    ("gone", "no leak of {} was found any more", "no leak of {} was found any more"),
    (
        "quiet",
        "no leak of {} was found, before or after",
        "no leak of {} was found, before or after",
    ),
)


def answers(before: Findings, after: Findings) -> list[Passage]:
    """Six questions, answered."""
    return [
        Passage("What leaked", _leaks(before).replace("vectors give", "vectors gave", 1)),
        Passage("What leaks now", _leaks(after)),
        Passage("What it costs", _price(before, after)),
        Passage("What is guaranteed", _guaranteed(after)),
        Passage("What is only measured", MEASURED),
        Passage("The texts it was trained on", _own_texts(after)),
    ]


def _leaks(findings: Findings) -> str:
    found = verdicts(findings)
    leaking = [
        f"“{item.target}” {ADVERBS[item.level]} ({percent(item.value)} where chance is "
        f"{percent(item.chance)})"
        for item in found
        if item.level != "none"
    ]
    quiet = [f"“{item.target}”" for item in found if item.level == "none"]
    said = f"The vectors give away {listed(leaking)}. " if leaking else ""
    if quiet:
        said += f"No leak of {listed(quiet)} was found, which is not proof that there is none."
    return said.strip() or "No private attribute was measured."


def _cost(before: Findings, after: Findings) -> str:
    """What became of the task, or of the neighbours where there is no task."""
    said = [
        f"the task “{now.target}” goes from {percent(was.value)} to {percent(now.value)} "
        f"({signed(now.value - was.value)} points)"
        for was, now in _tasks(before, after)
    ]
    kept = _neighbours(after)
    if not said and kept is not None:
        said.append(f"{percent(kept.value)} of the ten nearest neighbours are kept")
    return "; ".join(said)


def _price(before: Findings, after: Findings) -> str:
    said = [_cost(before, after)]
    for _, now in _tasks(before, after):
        if known(now.majority):
            said.append(f"always naming the commonest class gives {percent(now.majority)}")
        if now.ceiling is not None and known(now.ceiling) and now.ceiling < 0.99:
            said.append(f"at this guarantee nobody can reach more than {percent(now.ceiling)}")
    kept = _neighbours(after)
    if kept is not None and _tasks(before, after):
        said.append(
            f"{percent(kept.value)} of each text’s ten nearest neighbours are still its neighbours"
        )
    said.append(_gap(before, after))
    words = ". ".join(f"{item[0].upper()}{item[1:]}" for item in said if item)
    return f"{words}." if words else "No task was measured, and no neighbours."


def _gap(before: Findings, after: Findings) -> str:
    pairs = _gaps(before, after)
    if not pairs:
        return ""
    was, now = (max(side, key=lambda row: row.value) for side in zip(*pairs, strict=True))
    return (
        f"the task’s accuracy differed between groups by up to {points(was.value, 1)} "
        f"(“{was.subgroup or was.target}”), and differs now by up to {points(now.value, 1)} "
        f"(“{now.subgroup or now.target}”)"
    )


def _promise(after: Findings) -> str:
    promised = _guarantee(after)
    if promised is None:
        return "nothing is guaranteed: all of this is only measured"
    return f"guaranteed is {promised.get('sentence')}; all else is only measured"


def _guaranteed(after: Findings) -> str:
    promised = _guarantee(after)
    if promised is None:
        return (
            "Nothing. There is no noise in this encoder, and an attacker that nobody has tried yet "
            "may read more than the ones that were tried here."
        )
    said = str(promised.get("sentence"))
    said = f"{said[0].upper()}{said[1:]}, whoever attacks. "
    bounds = [
        f"“{item.target}” {percent(item.ceiling)}"
        for item in verdicts(after)
        if item.ceiling is not None and item.ceiling < 0.99
    ]
    if bounds:
        said += f"From one text nobody reaches more balanced accuracy than: {listed(bounds)}. "
    else:
        said += "For these attributes that alone rules out next to nothing. "
    said += "Each further text of a person costs it again."
    return f"{said} For each word: {promised['words']}." if promised.get("words") else said


def _own_texts(after: Findings) -> str:
    about = _protect(after)
    if about.get("private_towards_training_texts"):
        return OWN_TEXTS_KEPT
    number = about.get("trained_on")
    return OWN_TEXTS.format(texts=f"the {count(number)} texts" if number else "texts")


# ---- bars and tables -----------------------------------------------------------------------------


def bars(before: Findings, after: Findings) -> tuple[list[figures.Bar], list[figures.Bar]]:
    """Leaks and uses, each before and after; what was held out from the training is marked."""
    leaks, tasks = comparison.paired(before, after, NAMES)
    apart = held_out(after)
    leaks = [
        replace(bar, group=f"{bar.group} (held out)") if bar.group in apart else bar
        for bar in leaks
    ]
    shown: list[figures.Bar] = []
    for bar in tasks:
        if bar.group == "neighbours":
            group = "ten nearest neighbours kept"
            shown.append(figures.Bar("before, by definition", 1.0, start=0.0, group=group))
            bar = replace(bar, group=group)
        shown.append(bar)
    return leaks, shown


def changes(before: Findings, after: Findings) -> list[comparison.Change]:
    """What happened to each leak and each task; held-out attributes are marked."""
    apart = held_out(after)
    return [
        replace(item, sentence=f"Held out from the training: {item.sentence}")
        if item.kind == "leak" and item.target in apart
        else item
        for item in comparison.changes(before, after)
    ]


def comfort(after: Findings) -> Table | None:
    """The defence's own adversary beside a fresh attacker; None where it had no adversary."""
    lines = []
    for target, joint, fresh in _joint(after):
        gap = fresh.value - joint.value
        cells = (
            target,
            score(PRIMARY, joint.chance),
            score(PRIMARY, joint.value),
            score_with_interval(fresh),
            signed(gap),
        )
        lines.append(Line(cells))
    if not lines:
        return None
    lines += [
        Line((f"{row.target} (held out)", score(PRIMARY, row.chance), NOTHING, *_fresh(row)))
        for row in (_strongest(after, name) for name in held_out(after))
        if row is not None
    ]
    columns = (
        "attribute",
        "chance",
        "the defence’s own adversary",
        "fresh attacker",
        "false comfort, points",
    )
    note = (
        "Balanced accuracy, means over seeds. The defence’s own adversary is scored on rows that "
        "the defender held back, the fresh attacker on victims, after the map was frozen."
    )
    return Table("What the training believed, and what is so", columns, tuple(lines), note)


def _fresh(row: Finding) -> tuple[str, str]:
    return score_with_interval(row), NOTHING


def comfort_sentences(after: Findings) -> list[str]:
    """The largest difference in words."""
    found = _joint(after)
    if not found:
        return []
    target, joint, fresh = max(found, key=lambda item: item[2].value - item[1].value)
    gap = fresh.value - joint.value
    said = (
        f"While it trained, the defence’s own adversary read “{target}” with {percent(joint.value)}"
        f" balanced accuracy; a fresh attacker on the frozen vectors reaches {percent(fresh.value)}"
    )
    if gap > 0.01:
        said += f". These {points(gap, 1)} are false comfort: only the fresh score counts."
    else:
        said += ". Here the training did not deceive itself."
    return [said]


def held_out(after: Findings) -> list[str]:
    """The attributes that the training did not see."""
    return [str(name) for name in _protect(after).get("held_out") or []]


# ---- method, limits, provenance ------------------------------------------------------------------


def headline(after: Findings) -> list[Fact]:
    """The facts at the top: data, encoder, method, guarantee."""
    named = str(_protect(after).get("method") or "")
    found = facts.headline(after)
    place = next((i for i, fact in enumerate(found) if fact.term == "Guarantee"), len(found))
    entry = [Fact("Method", f"{named} ({_settings(after)})")] if named else []
    return [*found[:place], *entry, *found[place:]]


def how(after: Findings) -> list[Passage]:
    """How the encoder was trained."""
    about = _protect(after)
    number, seeds = about.get("trained_on"), about.get("seeds")
    said = f"The method “{about.get('method')}” learnt on "
    said += f"{count(number)} texts of the defender’s part" if number else "the defender’s part"
    said += " and was then frozen; no victim and none of the attacker’s texts had a part in it. "
    if isinstance(seeds, int) and seeds > 1:
        said += (
            f"This was done anew for each of the {seeds} splits, and the scores are means over "
            "them. The encoder in this folder is that of the first. "
        )
    apart = held_out(after)
    if apart:
        said += f"{listed([f'“{name}”' for name in apart])} was held out: the training never saw it"
        said += ", and it shows what happens to attributes that nobody thought of."
    return [Passage("Trained, frozen, then attacked", said.strip())]


OTHER_DATA = Passage(
    "Other data, other tasks",
    "A learnt map keeps what its training asked for, on texts like those it saw. Audit it again on "
    "yours: the folder is an encoder like any other.",
)


def provenance(after: Findings) -> list[tuple[str, list[Fact]]]:
    """The facts of the run, with those of the training behind the encoder's."""
    about = _protect(after)
    training = about.get("training_seconds")
    seen = [str(name) for name in about.get("against") or []]
    entries = (
        ("method", about.get("method")),
        ("settings", _settings(after, all_of_them=True)),
        ("private attributes that it was given", listed(seen)),
        ("held out", listed(held_out(after))),
        ("texts trained on", count(about["trained_on"]) if about.get("trained_on") else None),
        ("time, one training", duration(training) if training is not None else None),
    )
    trained = [Fact(term, str(value)) for term, value in entries if value]
    groups = facts.provenance(after)
    return [*groups[:2], *([("Training", trained)] if trained else []), *groups[2:]]


def _settings(after: Findings, all_of_them: bool = False) -> str:
    """What was chosen of the method; `schedule` and defaults of other methods only on demand."""
    chosen = dict(_protect(after).get("settings") or {})
    schedule = chosen.pop("schedule", None)
    if not all_of_them:
        told = ("epsilon", "lam", *(["keep"] if chosen.get("keep") != "task" else []))
        chosen = {key: chosen[key] for key in told if key in chosen}
    elif isinstance(schedule, Mapping):
        chosen.update({key: value for key, value in schedule.items() if key != "seed"})
    return pareto.settings_of(chosen)


def _tasks(before: Findings, after: Findings) -> list[tuple[Finding, Finding]]:
    """The task's rows that stand in both runs, judged by the same metric."""
    pairs = []
    for target in judged.targets(after, "utility"):
        was, now = (
            judged.primary_task_row(run.select(kind="utility", target=target))
            for run in (before, after)
        )
        if was is not None and now is not None and was.metric == now.metric:
            pairs.append((was, now))
    return pairs


def _gaps(before: Findings, after: Findings) -> list[tuple[Finding, Finding]]:
    wanted = {"kind": "fairness", "metric": "accuracy_gap"}
    was = {row.subgroup: row for row in before.select(**wanted)}
    return [
        (was[row.subgroup], row)
        for row in after.select(**wanted)
        if row.subgroup in was and known(row.value) and known(was[row.subgroup].value)
    ]


def _neighbours(after: Findings) -> Finding | None:
    return first(after, kind="utility", metric="recall_at_10")


def _joint(after: Findings) -> list[tuple[str, Finding, Finding]]:
    """Each secret's score of the defence's own adversary, and of the strongest fresh attacker."""
    rows = after.select(kind=f"{LEAK}-reference", attacker=JOINT, metric=PRIMARY)
    pairs = [(row.target, row, _strongest(after, row.target)) for row in rows]
    return [
        (target, joint, fresh)
        for target, joint, fresh in pairs
        if fresh is not None and known(joint.value) and known(fresh.value)
    ]


def _strongest(after: Findings, target: str) -> Finding | None:
    return first(after, kind=LEAK, target=target, attacker="strongest", metric=PRIMARY)


def _guarantee(after: Findings) -> Mapping[str, Any] | None:
    """The guarantee, if there is one that holds."""
    found = after.provenance.get("guarantee")
    if not isinstance(found, Mapping) or found.get("notion", "none") == "none":
        return None
    return found if found.get("status") in ("proven", "claimed") else None


def _worded(after: Findings) -> Findings:
    """Without noise the vectors are still not "released as they are": there is a map."""
    found = after.provenance.get("guarantee")
    if not isinstance(found, Mapping) or found.get("notion", "none") != "none":
        return after
    said = {**found, "sentence": NO_NOISE}
    return replace(after, provenance={**after.provenance, "guarantee": said})


def _protect(after: Findings) -> Mapping[str, Any]:
    about = after.provenance.get("protect")
    return about if isinstance(about, Mapping) else {}
