"""Two runs side by side: what changed for the attacker and for the task, in words and bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from capelet.findings import Finding, Findings
from capelet.reports.attacks import told
from capelet.reports.facts import run_names
from capelet.reports.figures import Bar, leak_bars, task_bars
from capelet.reports.verdicts import LEAK, PRIMARY, first, primary_task_row, targets
from capelet.reports.words import known, listed, metric_name, percent, points


@dataclass(frozen=True)
class Change:
    """One measurement in both runs; `unclear` is a difference that may be chance."""

    kind: Literal["leak", "task"]
    target: str
    sentence: str
    way: Literal["better", "worse", "unclear"]


def changes(before: Findings, after: Findings) -> list[Change]:
    """What happened to each leak (attributes, words, writers, members), then to each task."""
    wanted = {"kind": LEAK, "attacker": "strongest", "metric": PRIMARY}
    leaks = [
        _change(
            "leak",
            name,
            first(before, target=name, **wanted),
            first(after, target=name, **wanted),
        )
        for name in _shared(before, after, LEAK)
    ]
    tasks = [
        _change(
            "task",
            name,
            primary_task_row(before.select(kind="utility", target=name)),
            primary_task_row(after.select(kind="utility", target=name)),
        )
        for name in _shared(before, after, "utility")
    ]
    others = [_change("leak", pair.name, pair.before, pair.after) for pair in told(before, after)]
    return [change for change in (*leaks, *others, *tasks) if change is not None]


def summary(before: Findings, after: Findings) -> str:
    """The comparison in one sentence: which leaks fell or rose, and what became of the task."""
    found = changes(before, after)
    if not any(change.kind == "leak" for change in found):
        return (
            "The two runs share no attribute and no other attack, so their leaks cannot be "
            "compared."
        )
    said = []
    for kind, way, words in _SAID:
        names = [f"“{item.target}”" for item in found if (item.kind, item.way) == (kind, way)]
        if names:
            said.append(words.format(listed(names)))
    sentence = "; ".join(said)
    return f"{sentence[0].upper()}{sentence[1:]}."


_SAID = (
    ("leak", "better", "{} leaked less in the second run"),
    ("leak", "worse", "{} leaked more in the second run"),
    ("leak", "unclear", "for {} no difference in leakage is beyond doubt"),
    ("task", "better", "the task {} gained"),
    ("task", "worse", "the task {} lost"),
    ("task", "unclear", "for the task {} no difference is beyond doubt"),
)


def paired(
    before: Findings, after: Findings, names: tuple[str, str] | None = None
) -> tuple[list[Bar], list[Bar]]:
    """The bars of both runs, attribute by attribute and task by task."""
    names = names or run_names(before, after)
    leaks = [leak_bars(run, name) for run, name in zip((before, after), names, strict=True)]
    tasks = [task_bars(run, name) for run, name in zip((before, after), names, strict=True)]
    return _interleaved(leaks), _interleaved(tasks)


def _interleaved(runs: list[list[Bar]]) -> list[Bar]:
    groups = dict.fromkeys(bar.group for bars in runs for bar in bars)
    return [bar for group in groups for bars in runs for bar in bars if bar.group == group]


def _change(
    kind: Literal["leak", "task"], name: str, before: Finding | None, after: Finding | None
) -> Change | None:
    if before is None or after is None:
        return None
    if before.metric != after.metric or not (known(before.value) and known(after.value)):
        return None
    difference = after.value - before.value
    verb = "falls" if difference < 0 else "rises" if difference > 0 else "stays"
    sentence = (
        f"{name}: {metric_name(before.metric)} {verb} from {percent(before.value, 1)} to "
        f"{percent(after.value, 1)} ({points(abs(difference), 1)})"
    )
    if not _apart(before, after):
        sentence += "; the intervals overlap, so it may be chance."
        return Change(kind, name, sentence, "unclear")
    better = (difference < 0) == (kind == "leak")
    sentence += "; the intervals do not overlap."
    return Change(kind, name, sentence, "better" if better else "worse")


def _apart(before: Finding, after: Finding) -> bool:
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return False
    return after.high < before.low or before.high < after.low


def _shared(before: Findings, after: Findings, kind: str) -> list[str]:
    return list(dict.fromkeys([*targets(before, kind), *targets(after, kind)]))
