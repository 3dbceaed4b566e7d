"""A protection in words: what became of each leak, the price, and what is guaranteed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capelet.findings import Finding, Findings
from capelet.findings.verdicts import Outcome
from capelet.reports import comparison, facts
from capelet.reports.ceilings import ALMOST_ALL, at_most, person_ceilings
from capelet.reports.formatting import (
    change,
    count,
    difference,
    group_names,
    is_number,
    join_names,
    percent,
    points,
    sentence_of,
)
from capelet.reports.kinds.attribute_inference import ADVERBS, strongest, verdicts
from capelet.reports.kinds.fairness import gap_rows
from capelet.reports.kinds.utility import USE, judged_row
from capelet.reports.page import Passage
from capelet.reports.verdict import Verdict, first, targets

OWN_TEXTS = (
    "A trained map is not private towards the texts it was trained on, unless it says so. "
    "This one does not: whoever holds the map may learn something about {texts} of the defender’s "
    "part. The guarantee, where there is one, is for the texts that pass through."
)
OWN_TEXTS_PRIVATE = (
    "This map says that it is private towards the texts it was trained on: the guarantee tells how "
    "far. The figures on this page are exact, and no ε covers them."
)
ONLY_MEASURED = (
    "That the leaks are as small as they are shown, that the task works as shown, and for whom: on "
    "these data, by these attackers. Another attacker or more labelled texts may find more."
)


@dataclass(frozen=True)
class AttributeChange:
    """What became of one attribute."""

    target: str
    before: Verdict | None
    after: Verdict
    way: str

    @property
    def kind(self) -> str:
        """`gone`, `less`, `more`, `same`, `quiet` for no leak before or after, or `unclear`."""
        # An attribute that was not measured before is as good as new.
        is_old = self.before is not None and self.before.outcome == Outcome.LEAK
        if self.after.outcome == Outcome.INCONCLUSIVE:
            return "unclear"
        if self.after.outcome == Outcome.NO_LEAK_FOUND:
            return "gone" if is_old else "quiet"
        if self.way == "better":
            return "less"
        return "same" if is_old and self.way != "worse" else "more"


def attribute_changes(before: Findings, after: Findings) -> list[AttributeChange]:
    """What became of each attribute that was measured after."""
    old = {item.target: item for item in verdicts(before)}
    ways = {item.target: item.way for item in comparison.all_changes(before, after)}
    return [
        AttributeChange(item.target, old.get(item.target), item, ways.get(item.target, "unclear"))
        for item in verdicts(after)
    ]


def lead(before: Findings, after: Findings) -> str:
    """The whole page in a few sentences."""
    items = attribute_changes(before, after)
    if not items:
        return "No private attribute was measured, so this report says nothing about leaks."
    clauses = group_names(((item.kind, item.target) for item in items), _CLAUSES)
    sentences = [clauses, _cost(before, after), _promise(after)]
    return " ".join(f"{sentence_of(item)}." for item in sentences if item)


# The worst news first.
_CLAUSES = {
    "more": "{} {leak} more than before",
    "same": "{} {leak} as before, or nearly so",
    "less": "{} {leak} less than before, but still {leak}",
    "unclear": "whether {} still {leak} is inconclusive",
    "gone": "no leak of {} was found any more",
    "quiet": "no leak of {} was found, before or after",
}


def answers(before: Findings, after: Findings) -> list[Passage]:
    """Six questions, answered."""
    return [
        # The same sentence in the past tense.
        Passage("What leaked", _leaks(before).replace("vectors give", "vectors gave", 1)),
        Passage("What leaks now", _leaks(after)),
        Passage("What it costs", _price(before, after)),
        Passage("What is guaranteed", _guarantee_words(after)),
        Passage("What is only measured", ONLY_MEASURED),
        Passage("The texts it was trained on", _own_texts(after)),
    ]


def _leaks(findings: Findings) -> str:
    items = verdicts(findings)
    leaking = [
        f"“{item.target}” {ADVERBS[item.level]} ({item.value_words} where chance is "
        f"{item.chance_words})"
        for item in items
        if item.outcome == Outcome.LEAK
    ]
    sentence = f"The vectors give away {join_names(leaking)}." if leaking else ""
    pairs = (((item.outcome, item.degenerate), item.target) for item in items)
    sentences = filter(None, (sentence, group_names(pairs, _UNPROVEN, " ")))
    return " ".join(sentences) or "No private attribute was measured."


_UNPROVEN = {
    (Outcome.INCONCLUSIVE, False): "Whether {} {leak} is inconclusive: the intervals are too wide.",
    (Outcome.INCONCLUSIVE, True): "Whether {} {leak} is inconclusive: the strongest attacker gave "
    "every text the same answer.",
    (Outcome.NO_LEAK_FOUND, False): "No leak of {} was found, which is not proof that there is "
    "none.",
}


def _cost(before: Findings, after: Findings) -> str:
    """What became of the task, or of the neighbours where there is no task."""
    clauses = [
        f"the task “{now.target}” goes from {percent(old.value, 1)} to {percent(now.value, 1)} "
        f"({change(now.metric, difference(now.metric, old.value, now.value))} points)"
        for old, now in _tasks(before, after)
    ]
    row = _neighbours(after)
    if not clauses and row is not None:
        clauses.append(f"{percent(row.value)} of the ten nearest neighbours are kept")
    return "; ".join(clauses)


def _price(before: Findings, after: Findings) -> str:
    clauses = [_cost(before, after)]
    for _, now in _tasks(before, after):
        if is_number(now.majority):
            clauses.append(f"always naming the commonest class gives {percent(now.majority)}")
        # A bound of nearly 1 bounds nothing, and would only sound like a promise.
        if is_number(now.ceiling) and now.ceiling < ALMOST_ALL:
            clauses.append(
                f"at this guarantee nobody can reach more than {percent(now.ceiling)} from one text"
            )
    row = _neighbours(after)
    if row is not None and _tasks(before, after):
        clauses.append(
            f"{percent(row.value)} of each text’s ten nearest neighbours are still its neighbours"
        )
    clauses.append(_gap(before, after))
    words = ". ".join(sentence_of(item) for item in clauses if item)
    return f"{words}." if words else "No task was measured, and no neighbours."


def _gap(before: Findings, after: Findings) -> str:
    rows = {row.subgroup: row for row in gap_rows(before)}
    pairs = [(rows[row.subgroup], row) for row in gap_rows(after) if row.subgroup in rows]
    if not pairs:
        return ""
    # The largest gap of either side, which need not be of the same attribute.
    old, now = (max(side, key=lambda row: row.value) for side in zip(*pairs, strict=True))
    return (
        f"the task’s accuracy differed between groups by up to {points(old.value, 1)} "
        f"(“{old.subgroup or old.target}”), and differs now by up to {points(now.value, 1)} "
        f"(“{now.subgroup or now.target}”)"
    )


def _promise(after: Findings) -> str:
    promise = _guarantee(after)
    if promise is None:
        return "nothing is guaranteed: all of this is only measured"
    return f"guaranteed is {promise.get('sentence')}; all else is only measured"


def _guarantee_words(after: Findings) -> str:
    promise = _guarantee(after)
    if promise is None:
        return (
            "Nothing. There is no noise in this encoder, and an attacker that nobody has tried yet "
            "may read more than the ones that were tried here."
        )
    sentence = f"{sentence_of(str(promise.get('sentence')))}, whoever attacks. "
    bounds = [
        f"“{item.target}” {percent(item.ceiling)}"
        for item in verdicts(after)
        if item.ceiling is not None and item.ceiling < ALMOST_ALL
    ]
    if bounds:
        sentence += (
            f"From one text nobody reaches more balanced accuracy than: {join_names(bounds)}. "
        )
        sentence += _persons(after)
    else:
        sentence += (
            "For these attributes that alone rules out next to nothing, from one text already. "
        )
    sentence += "Each further text of a person costs it again."
    return f"{sentence} For each word: {promise['words']}." if promise.get("words") else sentence


def _persons(after: Findings) -> str:
    """What several texts of one person permit: a sentence for the median, one for the most."""
    groups: dict[tuple[int, str], list[str]] = {}
    for item in verdicts(after):
        row = strongest(after, item.target)
        for person in person_ceilings(row) if row is not None else []:
            words = f"“{item.target}” {at_most(person.ceiling)}"
            groups.setdefault((person.texts, person.who), []).append(words)
    return "".join(
        f"From {count(texts)} texts of one person, as {who} has: {join_names(words)}. "
        for (texts, who), words in groups.items()
    )


def _own_texts(after: Findings) -> str:
    about = facts.part(after, "protect")
    if about.get("private_towards_training_texts"):
        return OWN_TEXTS_PRIVATE
    number = about.get("trained_on")
    return OWN_TEXTS.format(texts=f"the {count(number)} texts" if number else "texts")


def _tasks(before: Findings, after: Findings) -> list[tuple[Finding, Finding]]:
    """The task's rows that stand in both runs, judged by the same metric."""
    pairs = []
    for target in targets(after, USE):
        old, now = (judged_row(run, target) for run in (before, after))
        if old is not None and now is not None and old.metric == now.metric:
            pairs.append((old, now))
    return pairs


def _neighbours(after: Findings) -> Finding | None:
    return first(after, kind=USE, metric="recall_at_10")


def _guarantee(after: Findings) -> Mapping[str, Any] | None:
    """The guarantee, if there is one that holds."""
    content = facts.part(after, "guarantee")
    if content.get("notion", "none") == "none":
        return None
    # One that is broken, or that nobody claims, is none, whatever its numbers say.
    return content if content.get("status") in ("proven", "claimed") else None
