"""What leaves of each text, in one phrase: the first thing to know of a private encoder.

"one of 5 symbols (a noisy guess of “stars”)", "64 numbers", "384 numbers, 2 % of neighbours kept:
not for search". A pure function of findings: every word rests on a fact that stands in them, and
where a fact is missing (as in those of a single attack) the phrase is shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capelet.findings import Finding, Findings
from capelet.reports import facts
from capelet.reports.formatting import count, is_number, percent
from capelet.reports.verdict import first

TITLE = "What leaves"
# Below it most of what a search returned is not returned any more.
HALF = 0.5
# Steps that change a text before it is encoded, and what they do to its words.
REWRITES = {
    "word-replacement": "replaced",
    "truncated-exponential": "replaced",
    "word-dropout": "dropped",
}


def what_leaves(findings: Findings) -> str:
    """What leaves of each text through a private encoder; empty for a plain one, or if unknown.

    >>> what_leaves(Findings((), recipe={"steps": [{"step": "randomised-response", "classes": 5}]}))
    'one of 5 symbols'
    """
    steps = _steps(findings)
    if not any(step.get("step") != "encoder" for step in steps):
        return ""
    form, neighbours = _form(findings, steps[-1]), _neighbours(findings)
    phrases = [form or ("numbers" if neighbours else ""), _rewriting(steps), neighbours]
    return ", ".join(phrase for phrase in phrases if phrase)


def _steps(findings: Findings) -> list[Mapping[str, Any]]:
    entries = findings.recipe.get("steps")
    # Findings may come from hand: a page must be drawn all the same.
    return [item for item in entries if isinstance(item, Mapping)] if entries else []


def _form(findings: Findings, last: Mapping[str, Any]) -> str:
    """A symbol or so many numbers, as the last step lets out; empty where nobody wrote it down."""
    if last.get("step") == "randomised-response":
        return _symbol(findings, last.get("classes"))
    # A single attack notes no width of its release, and only some steps tell it.
    dimension = facts.part(findings, "release").get("dimension") or last.get("dimension")
    if not isinstance(dimension, int):
        return ""
    if last.get("step") == "rounding":
        noun = "signs" if last.get("precision") == "binary" else "rounded numbers"
        return f"{count(dimension)} {noun}"
    # A step with an ε of its own is noise; behind any other the numbers are only made from noise.
    return f"{count(dimension)} {'noisy ' if 'epsilon' in last else ''}numbers"


def _symbol(findings: Findings, symbols: Any) -> str:
    form = f"one of {count(symbols)} symbols" if isinstance(symbols, int) else "one symbol"
    settings = facts.part(findings, "protect").get("settings")
    # Whoever audits an encoder may name another label than the one that it was trained for.
    if not isinstance(settings, Mapping) or settings.get("keep") not in ("task", "both"):
        return form
    label = facts.part(findings, "label")
    if not label.get("name"):
        return form
    classes = label.get("classes")
    number = len(classes) if isinstance(classes, Mapping) else symbols
    # With fewer symbols than classes no symbol can be the class itself.
    coarse = f", which has {count(number)} classes" if number != symbols else ""
    return f"{form} (a noisy guess of “{label['name']}”{coarse})"


def _rewriting(steps: list[Mapping[str, Any]]) -> str:
    names = [REWRITES[step["step"]] for step in steps if step.get("step") in REWRITES]
    return f"made from a text with {' and '.join(dict.fromkeys(names))} words" if names else ""


def _neighbours(findings: Findings) -> str:
    row = first(findings, kind="utility", metric="recall_at_10")
    if row is None or not is_number(row.value):
        return ""
    return f"{percent(row.value)} of neighbours kept{_warning(row)}"


def _warning(row: Finding) -> str:
    """Only where it was shown: the whole interval lies below one half."""
    bound = row.high if is_number(row.high) else row.value
    return ": not for search" if bound < HALF else ""
